#ifndef RESEAT_STATE_COMMAND_PIECES_H
#define RESEAT_STATE_COMMAND_PIECES_H

#include "state/object/residence.h"
#include "state/object/usage.h"

/*
 * A launch in pieces: ranges of work-groups along one dimension, each a launch of its own with an
 * offset, which run one after another in any residence. The global ids are as in the whole launch
 * by themselves, and so are all ids within a group.
 *
 * A held command (hold.c) whose ops have `pieces` is given piece by piece: two are with the driver
 * at once, so that the device never waits, and when one ends the next is given. A move comes
 * between pieces: it waits for those that the driver has, and the rest goes where the queue is
 * then. Its event has parts (parts.h).
 *
 * What places pieces by other rules takes them from the same cursor: pieces_take.
 */

/* Pieces with the driver at once. */
#define PIECES_AT_ONCE 2

/** Where a launch has come. Of the thread that gives its pieces. */
struct pieces {
    struct pace *pace; /**< How fast it is; borrowed. */
    uint32_t dim;      /**< Along this one. */
    size_t local;      /**< Work-items of a group there. */
    size_t global;     /**< Work-items there; its last group may have fewer than the others. */
    size_t offset;     /**< The launch's own, there. */
    size_t groups;     /**< Full ones and a last one of fewer. */
    size_t done;       /**< Groups that were given. */
    size_t fill;       /**< As many keep the device busy. */
    uint64_t row;      /**< Work-items of one group along dim, through all other dimensions. */
    size_t at, count;  /**< The piece to be given next: groups of it. */
    bool measures;     /**< It is not cut, but measured: one piece. */
    bool alone;        /**< No other queue is made before it has ended: queue_alone_begin. */
};

/**
 * Begin with @space, whose local size is known, in @residence.
 * @ret_pieces  Without `pace`, which the caller sets.
 * False where there are not two pieces that could be told apart by an offset that every driver
 * carries.
 */
bool pieces_begin(const struct launch_space *space, const struct residence *residence,
                  struct pieces *ret_pieces);
/** All were given. */
static inline bool pieces_are_given(const struct pieces *pieces)
{
    return pieces->done == pieces->groups;
}
/** @count groups, or as many as there are, are the next piece: `at` and `count`. */
void pieces_plan(struct pieces *pieces, size_t count);
/** As many as take a slice, or the rest where that takes less than two; a few that fill the device
 *  while nothing is known. */
void pieces_plan_slice(struct pieces *pieces);
/** What was planned was given to a driver. */
static inline void pieces_take(struct pieces *pieces)
{
    pieces->done = pieces->at + pieces->count;
}
/** Offset and size of the planned piece along dim. */
size_t pieces_offset(const struct pieces *pieces);
size_t pieces_size(const struct pieces *pieces);

#endif
