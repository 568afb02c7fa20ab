#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "state/base/threads/callback.h"
#include "state/base/threads/gate.h"

int destructor_add(struct destructor *_Atomic *list, void(CL_CALLBACK *call)(void *, void *),
                   void *handle, void *data)
{
    struct destructor *destructor = malloc(sizeof(*destructor));
    if (!destructor)
        return -ENOMEM;
    *destructor = (struct destructor){atomic_load(list), call, handle, data};
    while (!atomic_compare_exchange_weak(list, &destructor->next, destructor))
        ;
    return 0;
}

struct destructor_job {
    struct callback_job job;
    struct destructor *_Atomic list;
};

static void destructor_call(void *data)
{
    const struct destructor_job *later = data;
    const struct destructor *destructor = atomic_load(&later->list);
    destructor->call(destructor->handle, destructor->data);
}

static void destructor_called(struct destructor_job *later)
{
    struct destructor *destructor = atomic_load(&later->list);
    atomic_store(&later->list, destructor->next);
    free(destructor);
}

/* The callback ended its thread: the others are called in another. */
static void destructor_gone(void *data)
{
    struct destructor_job *later = data;
    destructor_called(later);
    callback_post(&later->job);
}

static void destructor_job_run(struct callback_job *job)
{
    struct destructor_job *later = container_of(job, struct destructor_job, job);
    while (atomic_load(&later->list)) {
        callback_program(destructor_call, destructor_gone, later);
        destructor_called(later);
    }
    free(later);
}

/* False without memory or thread for that. */
static bool destructor_post(struct destructor *list)
{
    struct destructor_job *later = calloc(1, sizeof(*later));
    if (!later || callback_start() != 0) {
        free(later);
        return false;
    }
    later->job.run = destructor_job_run;
    atomic_init(&later->list, list);
    callback_post(&later->job);
    return true;
}

static void destructor_run_where(struct destructor *destructor, bool later)
{
    if (destructor && later && destructor_post(destructor))
        return;
    while (destructor) {
        struct destructor *next = destructor->next;
        destructor->call(destructor->handle, destructor->data);
        free(destructor);
        destructor = next;
    }
}

void destructor_run(struct destructor *_Atomic *list)
{
    destructor_run_where(atomic_exchange(list, NULL), gate_is_inside());
}

void destructor_run_later(struct destructor *_Atomic *list)
{
    destructor_run_where(atomic_exchange(list, NULL), true);
}
