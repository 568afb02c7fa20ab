#ifndef RESEAT_STATE_COMMAND_PIECES_H
#define RESEAT_STATE_COMMAND_PIECES_H

#include "state/object/residence.h"
#include "state/object/usage.h"

/*
 * A launch in pieces: ranges of work-groups along one dimension, each a launch of its own with an
 * offset, which run one after another in any residence. The global ids are as in the whole launch
 * by themselves, and so are all ids within a group; what else a kernel asks is told by a program of
 * its own (program_cut.h), which knows where the piece is from offsets that mean nothing else.
 *
 * A deferred command (defer.c) whose ops have `pieces` is given piece by piece: two are with the
 * driver at once, so that the device never waits, and when one ends the next is given. A move comes
 * between pieces: it waits for those that the driver has, and the rest goes where the queue is
 * then. Its event has parts (parts.h).
 *
 * Another residence may do some of it at the same time (share.h): it takes groups from the end, and
 * what it cannot bring home it gives back, to be given here after all.
 */

/* Pieces with the driver at once. */
#define PIECES_AT_ONCE 2

/** Somebody does parts of launches elsewhere, and hears of long ones (upcalls.h, share). */
extern atomic_bool pieces_shared;

/** Groups one behind another. */
struct groups {
    struct groups *next; /**< In a list; or NULL. */
    size_t at, count;
};

/** Where a launch has come. Of the thread that gives its pieces, but for what engine_lock guards.
 */
struct pieces {
    struct pace *pace; /**< How fast it is; borrowed. */
    uint32_t dim;      /**< Along this one. */
    size_t local;      /**< Work-items of a group there. */
    size_t global;     /**< Work-items there; its last group may have fewer than the others. */
    size_t offset;     /**< The launch's own, there. */
    size_t groups;     /**< Full ones and a last one of fewer. */
    size_t fill;       /**< As many keep the device busy. */
    uint64_t row;      /**< Work-items of one group along dim, through all other dimensions. */
    uint64_t group;    /**< Work-items of a group. */
    size_t at, count;  /**< The piece to be given next: groups of it. */
    bool offset_aware; /**< The kernel is told where a piece is: program_cut.h. */
    bool measures;     /**< It is not cut, but measured: one piece... */
    const char *whole; /**< ...for this reason; static. */
    bool probes;       /**< Nothing is predicted of it: the first pieces say how fast it is. */
    uint32_t given;    /**< Pieces that were. */
    uint64_t traced;   /**< When the first was planned: span_begin. */
    bool alone;        /**< No other queue is made before it has ended: queue_alone_begin. */
    const char *stays; /**< Why no other residence may do some of it, in words; NULL: it may. */
    bool announced;    /**< Whoever spreads launches knows of it. */
    /* Guarded by engine_lock. */
    size_t done, end;    /**< Groups from `done` to `end` are to be given next. */
    size_t taken;        /**< Groups that others do, or did, and that are not here yet. */
    struct groups *back; /**< Owned; then those that were given back. */
    bool rests;          /**< None is given for the moment. */
};

/**
 * Begin with @space, whose local size is known, in @residence.
 * @offset_aware  The kernel asks where it is in the launch, and is told.
 * @ret_pieces  Without `pace`, which the caller sets.
 * False where there are not two pieces that could be told apart by offsets that every driver
 * carries.
 */
bool pieces_begin(const struct launch_space *space, const struct residence *residence,
                  bool offset_aware, struct pieces *ret_pieces);
void pieces_finish(struct pieces *pieces);
/** False while nothing says how fast it is. By who gives its pieces. */
bool pieces_know_pace(const struct pieces *pieces);
/** `fill` is that of @residence from now on. By who gives its pieces. */
void pieces_refit(struct pieces *pieces, const struct residence *residence);

/* The next four under engine_lock, once others may see it. */

/** All are given, or with somebody else. */
static inline bool pieces_none_left(const struct pieces *pieces)
{
    return pieces->done == pieces->end && !pieces->back;
}
/** All were given, and those that others did are here. */
static inline bool pieces_are_given(const struct pieces *pieces)
{
    return pieces_none_left(pieces) && pieces->taken == 0;
}
/** Groups that are not given yet, nor with anybody. */
size_t pieces_left(const struct pieces *pieces);
/** The next @count groups, or as many as there are side by side, are a piece: `at` and `count`. */
void pieces_take(struct pieces *pieces, size_t count);
/** The driver did not take it. */
void pieces_untake(struct pieces *pieces);
/** As many as take a slice, or the rest where that takes less than two; a few that fill the device
 *  while nothing is known. */
size_t pieces_of_slice(const struct pieces *pieces);
/**
 * Up to @count groups, from the end, are somebody else's to do. Returns how many: 0 where what is
 * left cannot be split.
 */
size_t pieces_claim(struct pieces *pieces, size_t count, size_t *ret_at);
/** @count of them are here. */
void pieces_arrived(struct pieces *pieces, size_t count);
/** Those in @list, which is owned from now on, are to be given here after all. */
void pieces_give_back(struct pieces *pieces, struct groups *list);

/** Offset and size of the piece along dim. */
size_t pieces_offset(const struct pieces *pieces);
size_t pieces_size(const struct pieces *pieces);

/** What a driver is given for a piece. */
struct piece_space {
    cl_uint dims;
    size_t offset[3], global[3], local[3];
};
/** The piece of @space. */
void pieces_space(const struct pieces *pieces, const struct launch_space *space,
                  struct piece_space *ret_space);

#endif
