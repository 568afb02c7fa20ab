#ifndef RESEAT_STATE_COMMAND_SHARE_H
#define RESEAT_STATE_COMMAND_SHARE_H

#include "state/command/command.h"
#include "state/command/pieces.h"

/*
 * Shares a launch that is given in pieces with helpers, residences that a mover has prepared
 * (move/spread.h). A helper takes groups from the end of the launch while its own queue takes them
 * from the beginning. Results count once they were merged into the queue's residence; groups whose
 * results cannot be merged are given back and done there. The launch's event does not end before
 * the mover has left it.
 */

/** A mover's part in a launch, from share_join to share_leave: used by one thread, except for
 * share_claim. */
struct shared_launch {
    struct queue *queue;     /**< Held. */
    struct event *event;     /**< Held. */
    struct command *command; /**< Owned: a copy of the command for helpers, with pieces of its own.
                                It uses the launch's objects. */
    struct pieces *pieces;   /**< The launch's. Guarded by engine_lock. */
};

/**
 * Join the current launch of @vdev, if there is one that may be spread. Ends with share_leave. By a
 * mover, gate open. 0, -ENOENT, -ENOMEM, or -EAGAIN: a thread is giving a piece at this moment.
 */
MUST_CHECK int share_join(const struct vdev *vdev, struct shared_launch *ret_launch);
/** Another copy of its command; NULL without memory. Owned by the caller. */
struct command *share_copy(const struct shared_launch *launch);
/** Work-items that are neither given nor taken by a helper. */
uint64_t share_left(const struct shared_launch *launch);
/** Take up to @count groups, from *ret_at on; returns how many. 0: none is left. Any thread. */
size_t share_claim(const struct shared_launch *launch, size_t count, size_t *ret_at);
/** The results of the groups in @list were merged. Frees the list. */
void share_arrived(const struct shared_launch *launch, struct groups *list);
/** The groups in @list, owned from now on, must be done by the queue after all. */
void share_give_back(const struct shared_launch *launch, struct groups *list);
/** Give no pieces to the queue until share_leave. */
void share_rest(const struct shared_launch *launch);
/** True once a piece of it has ended in its own queue. */
bool share_has_begun(const struct shared_launch *launch);
/** True when nothing of it runs in its own queue. */
bool share_is_idle(const struct shared_launch *launch);
/** Let the launch end with CL_OUT_OF_RESOURCES. */
void share_fail(const struct shared_launch *launch);
/** Leave the launch, which continues or ends. Gate open. */
void share_leave(struct shared_launch *launch);

#endif
