#ifndef RESEAT_STATE_COMMAND_SHARE_H
#define RESEAT_STATE_COMMAND_SHARE_H

#include "state/command/command.h"
#include "state/command/pieces.h"

/*
 * A launch that is given in pieces, of which a mover has another residence do a part
 * (move/spread.h). It takes groups from the end of the launch while the launch's own queue takes
 * them from its beginning. What it did counts once it has arrived where the queue is; what cannot,
 * is given back, and done there as if nobody had taken it. The launch's event does not end before
 * the mover has left it.
 */

/** What a mover has of it, for as long as it is in: of one thread, but for share_claim. */
struct shared_launch {
    struct queue *queue;     /**< Held. */
    struct event *event;     /**< Held. */
    struct command *command; /**< Owned: a copy, to be issued elsewhere, with pieces of its own. Its
                                  objects are the launch's. */
    struct pieces *pieces;   /**< The launch's. Guarded by engine_lock. */
};

/**
 * Join the launch that @vdev is in the middle of, if there is one that may be done in several
 * places. Ends with share_leave. By a mover, gate open. 0, -ENOENT, -ENOMEM, or -EAGAIN: at this
 * moment a thread is giving a piece.
 */
MUST_CHECK int share_join(const struct vdev *vdev, struct shared_launch *ret_launch);
/** Another copy of its command; NULL without memory. Owned by the caller. */
struct command *share_copy(const struct shared_launch *launch);
/** Work-items of it that nobody was given yet. */
uint64_t share_left(const struct shared_launch *launch);
/** Take up to @count groups: those from *ret_at on, as many as it returns. 0: no more are to be
 *  had. Any thread. */
size_t share_claim(const struct shared_launch *launch, size_t count, size_t *ret_at);
/** Those in @list are done where the queue is now. Frees the list. */
void share_arrived(const struct shared_launch *launch, struct groups *list);
/** Those in @list, owned from now on, are to be done there after all. */
void share_give_back(const struct shared_launch *launch, struct groups *list);
/** Have the queue be given no more of it for the moment, or more again. */
void share_rest(const struct shared_launch *launch, bool rests);
/** True once a piece of it has ended in its own queue. */
bool share_has_begun(const struct shared_launch *launch);
/** True when nothing of it runs in its own queue. */
bool share_is_idle(const struct shared_launch *launch);
/** It ends in @error. */
void share_fail(const struct shared_launch *launch, cl_int error);
/** The launch goes on, or ends. Gate open. */
void share_leave(struct shared_launch *launch);

#endif
