#ifndef RESEAT_STATE_COMMAND_PIECES_H
#define RESEAT_STATE_COMMAND_PIECES_H

#include "policy/schedule.h"
#include "state/object/residence.h"
#include "state/object/usage.h"

/*
 * A launch in pieces: ranges of work-groups along one dimension, each a driver launch with an
 * offset, which run one after another in any residence. Global ids and ids within a group are then
 * the same as in the whole launch; everything else that a kernel may ask is answered by a modified
 * program (program_cut.h), which is told where the piece is by offsets of otherwise unused
 * dimensions.
 *
 * A deferred command (defer.c) whose ops have `pieces` is given piece by piece: two are with the
 * driver at once, so that the device never idles, and when one ends the next is given. A move can
 * happen between pieces: it waits for those that the driver has, and the rest runs in the queue's
 * new residence. The event has parts (parts.h).
 *
 * Another residence may do some of the launch at the same time (share.h): it takes groups from the
 * end, and gives back those whose results cannot be merged.
 */

/* Most pieces with the driver at once. */
#define PIECES_AT_ONCE 2

/** Launches may be spread: helpers are told of long ones (upcalls.h, share). */
extern atomic_bool pieces_shared;

/** A range of work-groups. */
struct groups {
    struct groups *next; /**< In a list; or NULL. */
    size_t at, count;
};

/** What a launch that may be placed is likely to take on a device. */
struct piece_cost {
    const struct device *device; /**< NULL: not asked yet. */
    uint64_t ns, energy_uj;      /**< Energy is that above idle. 0: not known. */
};

/** Progress of a launch. Owned by the thread that gives its pieces, except for what engine_lock
 * guards. */
struct pieces {
    struct pace *pace; /**< Measured speed; borrowed. */
    uint32_t dim;      /**< The dimension that is cut. */
    size_t local;      /**< Work-items of a group there. */
    size_t global;     /**< Work-items there; its last group may have fewer than the others. */
    size_t offset;     /**< The launch's own offset there. */
    size_t groups;     /**< Full groups, and a last one with fewer work-items. */
    size_t fill;       /**< Groups that keep the device busy. */
    uint64_t row;      /**< Work-items of one group along dim, through all other dimensions. */
    uint64_t group;    /**< Work-items of a group. */
    size_t at, count;  /**< The next piece: its first group and number of groups. */
    bool offset_aware; /**< The kernel's program is told where a piece is: program_cut.h. */
    bool measures;     /**< The launch is not cut but measured: one piece... */
    const char *whole; /**< ...for this reason; static. */
    bool probes;       /**< Its speed cannot be predicted: the first pieces say how fast it is. */
    uint32_t given;    /**< Pieces given so far. */
    uint64_t timed_items, timed_ns; /**< Work-items whose time is known, and that time. */
    const struct device *on; /**< Where all of them were given; NULL: on several. Borrowed. */
    uint64_t traced;         /**< When the first was planned: span_begin. */
    bool alone;        /**< No other queue is created before it has ended: queue_alone_begin. */
    const char *stays; /**< Why it may not be spread, in words; NULL: it may. */
    bool announced;    /**< Helpers were told of it. */
    bool is_all;       /**< The launch is one piece, of which only the work-items are known... */
    bool places;       /**< ...and which may run on another device (place.h)... */
    bool visible;      /**< ...and the program has its event. */
    /* Guarded by engine_lock. */
    size_t done, end;    /**< Groups from `done` to `end` are still to be given next. */
    size_t taken;        /**< Groups that helpers took and whose results are not merged yet. */
    struct groups *back; /**< Owned; groups given back, to be done after those. */
    bool rests;          /**< No piece is given at present. */
    bool placed;         /**< It is with a helper (place.h). */
    struct piece_cost costs[SCHEDULE_CANDIDATES]; /**< On each helper and at home (place.c). */
    uint64_t home_end_ns; /**< When it would have ended at home, by these. */
    bool by_time;         /**< Where was chosen by time, as its energy is not known (place.h). */
    bool explores;        /**< It was placed to measure what it takes there. */
};

/**
 * Prepare pieces of @space, whose local size is known, in @residence.
 * @offset_aware  The kernel asks for its place in the launch and is told.
 * @ret_pieces  Without `pace`, which the caller sets.
 * Returns false when the launch cannot be cut into two pieces with offsets that every driver
 * supports.
 */
bool pieces_begin(const struct launch_space *space, const struct residence *residence,
                  bool offset_aware, struct pieces *ret_pieces);
/** Make a launch of @items work-items, whatever its shape, one piece. */
void pieces_begin_all(struct pace *pace, uint64_t items, struct pieces *ret_pieces);
void pieces_finish(struct pieces *pieces);
/** False while its speed is unknown. By the thread that gives its pieces. */
bool pieces_know_pace(const struct pieces *pieces);
/** Compute `fill` for @residence. By the thread that gives its pieces. */
void pieces_refit(struct pieces *pieces, const struct residence *residence);

/* The next functions need engine_lock once other threads can see the pieces. */

/** True when all groups are given or taken by helpers. */
static inline bool pieces_none_left(const struct pieces *pieces)
{
    return pieces->done == pieces->end && !pieces->back;
}
/** True when all groups were given, and results of helpers are merged. */
static inline bool pieces_are_given(const struct pieces *pieces)
{
    return pieces_none_left(pieces) && pieces->taken == 0;
}
/** Groups that are neither given nor taken by helpers. */
size_t pieces_left(const struct pieces *pieces);
/** Make the next @count groups, or as many as are adjacent, the next piece: `at` and `count`. */
void pieces_take(struct pieces *pieces, size_t count);
/** Undo pieces_take: the driver refused the piece. */
void pieces_untake(struct pieces *pieces);
/** Groups for a piece that takes a slice, or all the rest if that takes less than two slices; a few
 * that fill the device while the speed is unknown. */
size_t pieces_of_slice(const struct pieces *pieces);
/**
 * Let a helper take up to @count groups from the end. Returns how many: 0 if the rest cannot be
 * split.
 */
size_t pieces_claim(struct pieces *pieces, size_t count, size_t *ret_at);
/** The results of @count taken groups were merged. */
void pieces_arrived(struct pieces *pieces, size_t count);
/** The groups in @list, which is owned from now on, must be done here after all. */
void pieces_give_back(struct pieces *pieces, struct groups *list);

/** Offset and size of the piece along dim. */
size_t pieces_offset(const struct pieces *pieces);
size_t pieces_size(const struct pieces *pieces);

/** The index space of a piece for the driver. */
struct piece_space {
    cl_uint dims;
    size_t offset[3], global[3], local[3];
};
/** Compute the index space of the next piece of @space. */
void pieces_space(const struct pieces *pieces, const struct launch_space *space,
                  struct piece_space *ret_space);

#endif
