#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/command/command.h"

/*
 * Launches that must have the program's only queue: they count, and so do queues, so that a second
 * queue is created only when none runs.
 */

/* Guarded by engine_lock. */
static unsigned queue_count, alone_count;

bool queue_alone_begin(const struct queue *queue)
{
    pthread_mutex_lock(&engine_lock);
    bool alone = queue_count == 1 && queue->in_order;
    alone_count += alone;
    pthread_mutex_unlock(&engine_lock);
    return alone;
}

void queue_alone_end(void)
{
    pthread_mutex_lock(&engine_lock);
    alone_count--;
    pthread_cond_broadcast(&engine_changed);
    pthread_mutex_unlock(&engine_lock);
}

void queue_begin_beside_others(void)
{
    pthread_mutex_lock(&engine_lock);
    queue_count++;
    int before = cancel_hold();
    while (alone_count != 0)
        defer_await_change();
    cancel_allow(before);
    pthread_mutex_unlock(&engine_lock);
}

void queue_end_beside_others(void)
{
    pthread_mutex_lock(&engine_lock);
    queue_count--;
    pthread_mutex_unlock(&engine_lock);
}

/* The launch that ran alone belongs to the parent. */
static void queue_alone_in_child(void)
{
    alone_count = 0;
}

FORK_PART = {.rank = FORK_TABLE, .in_child = queue_alone_in_child};
