#ifndef RESEAT_STATE_PROGRAM_PACE_H
#define RESEAT_STATE_PROGRAM_PACE_H

#include "state/object/usage.h"
#include "state/program/kernel_traits.h"

/*
 * How fast a kernel is, and so whether a launch of it is to be given in pieces: a move waits for
 * what the driver has, and a piece is what it has at most.
 *
 * A launch that is predicted to end within two slices goes whole, which costs a comparison. What is
 * predicted was measured, with a launch given in pieces; every now and then another one is, since
 * a kernel may take longer with other arguments: at first often, then ever less while it stays
 * short. Of a launch much larger than those that were measured nothing is predicted.
 */

/** How long a piece is to take; 0: no launch is cut. Set before the first kernel is made, or by
 *  tests. */
extern _Atomic uint64_t pace_slice_ns;

/** How many devices it is remembered of. */
#define PACE_ELSEWHERE 4

struct device;

/** Of all kernels of one name in a program. Owned by the program. */
struct pace {
    struct pace *next;
    char *name;                 /**< Owned. */
    _Atomic uint64_t whole;     /**< Launches of fewer work-items go whole. */
    _Atomic uint32_t countdown; /**< So many launches go whole before one is measured again. */
    _Atomic uint32_t backoff;   /**< What the countdown begins with the next time. */
    _Atomic uint64_t per_s;     /**< Work-items a second, where it was measured; 0: unknown. */
    _Atomic uint64_t largest;   /**< Work-items of the largest launch that was. */
    /** What other devices did of it, a second, when they did a part of a launch (move/spread.h);
     *  borrowed. By movers. */
    struct pace_elsewhere {
        const struct device *device;
        double per_s;
    } elsewhere[PACE_ELSEWHERE];
    /** So many launches are not tried to be spread; and how many the next time. The first is
     *  counted down as launches are given. */
    _Atomic uint32_t unspread, unspread_next;
    atomic_bool overlaps; /**< Two of its work-groups were seen to write the same bytes. */
    /** Why the last launch that may have been long was not cut; static. NULL: it was, or there was
     *  none. */
    const char *_Atomic refusal;
    /* Guarded by the program's lock. */
    bool known;       /**< The traits were read, of that... */
    uint32_t edition; /**< ...edition of the program. */
    struct kernel_traits traits;
};

struct program;

/** That of kernels called @name; NULL without memory. Borrowed, for as long as the program. */
struct pace *pace_of(struct program *program, const char *name);
/** What its kernels use; read at the first call, which takes as long as reading the source does.
 *  @ret_traits is a copy. 0 or -ENOMEM. */
MUST_CHECK int pace_traits(struct program *program, struct pace *pace,
                           struct kernel_traits *ret_traits);
void pace_list_free(struct pace *list);

static inline uint64_t launch_item_count(const struct launch_space *space)
{
    uint64_t items = space->global[0];
    for (uint32_t i = 1; i < space->dims; i++)
        items *= space->global[i];
    return items;
}

/** False: the launch goes whole, without further questions. */
static inline bool pace_asks(struct pace *pace, const struct launch_space *space)
{
    uint32_t left = atomic_load_explicit(&pace->countdown, memory_order_relaxed);
    atomic_store_explicit(&pace->countdown, left - 1, memory_order_relaxed);
    return UNLIKELY(launch_item_count(space) >=
                        atomic_load_explicit(&pace->whole, memory_order_relaxed) ||
                    left == 0);
}

/** Its launches are never done in several places any more. */
static inline void pace_overlaps(struct pace *pace)
{
    atomic_store(&pace->overlaps, true);
}

#define PACE_UNSPREAD_MAX 64

/** Spreading one of its launches was worth it, or not: then fewer and fewer are tried. By movers.
 */
static inline void pace_spread(struct pace *pace, bool worth_it)
{
    uint32_t next = worth_it ? 0 : 2 * atomic_load(&pace->unspread_next) + 1;
    next = next < PACE_UNSPREAD_MAX ? next : PACE_UNSPREAD_MAX;
    atomic_store(&pace->unspread_next, next);
    atomic_store(&pace->unspread, next);
}

/** Its launches are never cut, and why; static. NULL: none is, of any kernel. */
void pace_never(struct pace *pace, const char *reason);
/** A launch that may be long is not cut, and why; static. NULL: it is. */
static inline void pace_goes_whole(struct pace *pace, const char *reason)
{
    if (atomic_load_explicit(&pace->refusal, memory_order_relaxed) != reason)
        atomic_store_explicit(&pace->refusal, reason, memory_order_relaxed);
}
/** A kernel whose launches are not cut. */
struct pace_refusal {
    char kernel[64]; /**< Cut where it is longer. */
    const char *reason;
};
/** Add those of @program to @list, each once, of which @count are there. Returns how many there are
 *  then, at most @most. Thread-safe. */
uint32_t pace_refusals(struct program *program, struct pace_refusal *list, uint32_t count,
                       uint32_t most);
/** Nothing is known of it any more: it is somewhere else. */
void pace_forget(struct pace *pace);
/** How long a launch of @items takes was measured, of launches like it. */
bool pace_predicts(const struct pace *pace, uint64_t items);
/** True when it is predicted to take more than two slices. */
bool pace_is_long(const struct pace *pace, uint64_t items);
/** @items took @ns. */
void pace_measured(struct pace *pace, uint64_t items, uint64_t ns);
/** A launch of @items, of which nothing was predicted, is measured from here on. */
void pace_doubt(struct pace *pace);
/** A launch of @items has ended: was it worth cutting? */
void pace_settle(struct pace *pace, uint64_t items);
/** How many work-items take @ns; 0: it is not known. */
uint64_t pace_items(const struct pace *pace, uint64_t ns);

#endif
