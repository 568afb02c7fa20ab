#ifndef RESEAT_TESTS_SUPPORT_REPEAT_H
#define RESEAT_TESTS_SUPPORT_REPEAT_H

#include "tests/support/cases.h"
#include <pthread.h>
#include <stdatomic.h>

/* Something that a thread does again and again beside the test. */
struct repeat {
    void (*act)(void *data, unsigned round); /* rounds count from 1 */
    void *data;
    atomic_bool stop;
    atomic_uint rounds; /* that have ended */
    pthread_t thread;
};

static void *repeat_run(void *of)
{
    struct repeat *repeat = of;
    while (!atomic_load(&repeat->stop)) {
        repeat->act(repeat->data, atomic_load(&repeat->rounds) + 1);
        atomic_fetch_add(&repeat->rounds, 1);
    }
    return NULL;
}

static inline void repeat_begin(struct repeat *repeat, void (*act)(void *data, unsigned round),
                                void *data)
{
    repeat->act = act;
    repeat->data = data;
    atomic_init(&repeat->stop, false);
    atomic_init(&repeat->rounds, 0);
    cr_assert_eq(pthread_create(&repeat->thread, NULL, repeat_run, repeat), 0);
}

/* After the round that it is in. */
static inline void repeat_end(struct repeat *repeat)
{
    atomic_store(&repeat->stop, true);
    pthread_join(repeat->thread, NULL);
}

#endif
