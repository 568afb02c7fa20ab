#include "state/base/threads/fork.h"

#include <stddef.h>
#include <stdint.h>

/* All parts that were linked: the linker defines the section's begin and end. */
extern const struct fork_part *const __start_reseat_fork[] __attribute__((visibility("hidden")));
extern const struct fork_part *const __stop_reseat_fork[] __attribute__((visibility("hidden")));

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int watch_error; /* written once */

static void fork_each(enum fork_rank rank, void (*act)(const struct fork_part *part))
{
    const size_t count = ((uintptr_t)__stop_reseat_fork - (uintptr_t)__start_reseat_fork) /
                         sizeof(__start_reseat_fork[0]);
    for (size_t i = 0; i < count; i++)
        if (__start_reseat_fork[i]->rank == rank)
            act(__start_reseat_fork[i]);
}

static void fork_take(const struct fork_part *part)
{
    if (part->lock)
        pthread_mutex_lock(part->lock);
    if (part->before)
        part->before();
}

static void fork_let_go(const struct fork_part *part)
{
    if (part->after)
        part->after();
    if (part->lock)
        pthread_mutex_unlock(part->lock);
}

static void fork_renew(const struct fork_part *part)
{
    if (part->after)
        part->after();
    if (part->lock)
        pthread_mutex_init(part->lock, NULL);
    if (part->long_lock)
        pthread_mutex_init(part->long_lock, NULL);
    for (size_t i = 0; i < sizeof(part->changed) / sizeof(part->changed[0]); i++)
        if (part->changed[i])
            pthread_cond_init(part->changed[i], NULL);
}

static void fork_begin(const struct fork_part *part)
{
    if (part->in_child)
        part->in_child();
}

static void fork_before_fork(void)
{
    for (int rank = 0; rank < FORK_RANKS; rank++)
        fork_each((enum fork_rank)rank, fork_take);
}

static void fork_parent_goes_on(void)
{
    for (int rank = FORK_RANKS; rank-- > 0;)
        fork_each((enum fork_rank)rank, fork_let_go);
}

static void fork_child_begins(void)
{
    for (int rank = FORK_RANKS; rank-- > 0;)
        fork_each((enum fork_rank)rank, fork_renew);
    for (int rank = 0; rank < FORK_RANKS; rank++)
        fork_each((enum fork_rank)rank, fork_begin);
}

static void fork_watch_once(void)
{
    watch_error = -pthread_atfork(fork_before_fork, fork_parent_goes_on, fork_child_begins);
}

int fork_watch(void)
{
    pthread_once(&once, fork_watch_once);
    return watch_error;
}
