#include "state/command/share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/command/journal.h"
#include "state/command/parts.h"
#include "state/command/power.h"

static struct command *share_copy_of(const struct command *command)
{
    struct command *copy = malloc(command->ops->size);
    if (!copy)
        return NULL;
    memcpy(copy, command, command->ops->size);
    struct pieces *pieces = copy->ops->pieces(copy);
    pieces->back = NULL; /* belongs to the launch */
    return copy;
}

/* With engine_lock. */
static int share_join_locked(struct queue *queue, struct shared_launch *ret_launch)
{
    struct event *event;
    bool busy = false;
    struct command *command = defer_in_pieces(queue, &event, &busy);
    if (!command)
        return busy ? -EAGAIN : -ENOENT;
    struct pieces *pieces = command->ops->pieces(command);
    if (pieces->stays || pieces->measures || event->parts->sharers != 0)
        return -ENOENT;
    struct command *copy = share_copy_of(command);
    if (!copy)
        return -ENOMEM;
    parts_share(event->parts);
    object_hold(queue);
    object_hold(event);
    *ret_launch = (struct shared_launch){queue, event, copy, pieces};
    return 0;
}

int share_join(const struct vdev *vdev, struct shared_launch *ret_launch)
{
    uintptr_t cursor = 0;
    struct queue *queue;
    int error = -ENOENT;
    for (; error != 0 && (queue = object_next(OBJECT_QUEUE, &cursor)); object_unhold(queue)) {
        if (queue->vdev != vdev || atomic_load(&queue->deferred_count) == 0)
            continue;
        pthread_mutex_lock(&engine_lock);
        int joined = share_join_locked(queue, ret_launch);
        pthread_mutex_unlock(&engine_lock);
        error = joined == -ENOENT ? error : joined;
    }
    return error;
}

struct command *share_copy(const struct shared_launch *launch)
{
    return share_copy_of(launch->command);
}

uint64_t share_left(const struct shared_launch *launch)
{
    pthread_mutex_lock(&engine_lock);
    uint64_t left = pieces_left(launch->pieces) * launch->pieces->row;
    pthread_mutex_unlock(&engine_lock);
    return left;
}

size_t share_claim(const struct shared_launch *launch, size_t count, size_t *ret_at)
{
    pthread_mutex_lock(&engine_lock);
    bool open = atomic_load(&launch->event->parts->open) && !power_is_capped();
    size_t claimed = open ? pieces_claim(launch->pieces, count, ret_at) : 0;
    pthread_mutex_unlock(&engine_lock);
    return claimed;
}

/* The journal of a protected program gets what a helper did as a piece of its own. */
static void share_record(const struct shared_launch *launch, const struct groups *groups)
{
    struct pieces *pieces = launch->command->ops->pieces(launch->command);
    gate_enter();
    if (atomic_load(&journal_is_kept)) {
        pieces->at = groups->at;
        pieces->count = groups->count;
        struct journal_entry *entry = journal_prepare(launch->command, true, 0, NULL);
        (void)journal_add(entry, launch->command, launch->event);
    }
    gate_leave();
}

void share_arrived(const struct shared_launch *launch, struct groups *list)
{
    while (list) {
        struct groups *next = list->next;
        share_record(launch, list);
        pthread_mutex_lock(&engine_lock);
        pieces_arrived(launch->pieces, list->count);
        pthread_mutex_unlock(&engine_lock);
        free(list);
        list = next;
    }
}

void share_give_back(const struct shared_launch *launch, struct groups *list)
{
    pthread_mutex_lock(&engine_lock);
    pieces_give_back(launch->pieces, list);
    pthread_mutex_unlock(&engine_lock);
    defer_pump_soon();
}

void share_rest(const struct shared_launch *launch)
{
    pthread_mutex_lock(&engine_lock);
    launch->pieces->rests = true;
    pthread_mutex_unlock(&engine_lock);
}

/* Ask the drivers, since some report ends only then. */
static void share_ask(const struct shared_launch *launch)
{
    gate_enter();
    (void)parts_status(launch->event);
    gate_leave();
}

bool share_has_begun(const struct shared_launch *launch)
{
    share_ask(launch);
    pthread_mutex_lock(&engine_lock);
    bool begun = launch->event->parts->ended != 0;
    pthread_mutex_unlock(&engine_lock);
    return begun;
}

bool share_is_idle(const struct shared_launch *launch)
{
    struct event *event = launch->event, *same;
    bool busy = false;
    share_ask(launch);
    pthread_mutex_lock(&engine_lock);
    bool idle =
        event->parts->left == 0 && (pieces_none_left(launch->pieces) || launch->pieces->rests ||
                                    !atomic_load(&event->parts->open));
    if (idle)
        (void)defer_in_pieces(launch->queue, &same, &busy); /* a piece is being given */
    pthread_mutex_unlock(&engine_lock);
    return idle && !busy;
}

void share_fail(const struct shared_launch *launch)
{
    parts_close(launch->event->parts, CL_OUT_OF_RESOURCES);
}

void share_leave(struct shared_launch *launch)
{
    pthread_mutex_lock(&engine_lock);
    launch->pieces->rests = false;
    pthread_mutex_unlock(&engine_lock);
    gate_enter();
    parts_unshare(launch->event); /* from here on the command may be gone */
    gate_leave();
    defer_pump_soon();
    object_unhold(launch->event);
    object_unhold(launch->queue);
    free(launch->command);
}
