#ifndef RESEAT_STATE_PROGRAM_PACE_H
#define RESEAT_STATE_PROGRAM_PACE_H

#include "state/object/usage.h"
#include "state/program/kernel_traits.h"

/*
 * How fast a kernel is, and so whether a launch of it is given in pieces: a move waits for the
 * commands that the driver has, and of a launch in pieces the driver has two at most.
 *
 * A launch that is predicted to end within two slices goes whole; that takes one comparison. The
 * prediction comes from launches that were given in pieces and measured. Now and then another
 * launch is measured, since a kernel may take longer with other arguments: often at first, less
 * and less while it stays short. A launch much larger than the measured ones is not predicted.
 */

/** How long a piece is to take; 0: no launch is cut. Set before the first kernel is made, or by
 *  tests. */
extern _Atomic uint64_t pace_slice_ns;

/** Of how many other devices the speed is kept. */
#define PACE_ELSEWHERE 4

struct device;

/** Hexadecimal digits of what stands for a kernel wherever it runs, and a NUL. */
#define PACE_ID_SIZE   33
#define PACE_NAME_SIZE 64

/** A launch whose time was measured, and which others it stands for. */
struct pace_sample {
    char id[PACE_ID_SIZE];     /**< A digest of its program's recipe and its name. */
    char name[PACE_NAME_SIZE]; /**< Cut where it is longer. */
    const struct device *device;
    uint64_t items, ns; /**< Work-items of the launch, and how long it took. */
    uint64_t busy_ns;   /**< How long all launches took that it stands for. */
};

/** Of all kernels of one name in a program. Owned by the program. */
struct pace {
    struct pace *next;
    const char *name;           /**< Kept until the process ends: see queue_launched. */
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
    /** How many launches are given before spreading is tried again, counted down; and what the
     *  count begins with the next time. */
    _Atomic uint32_t unspread, unspread_next;
    atomic_bool overlaps; /**< Two of its work-groups were seen to write the same bytes. */
    /** Why the last launch that may have been long was not given in pieces; static. NULL: it was,
     * or there was none. */
    const char *_Atomic refusal;
    /* Guarded by the program's lock. */
    bool known;            /**< The traits were read, of that... */
    uint32_t edition;      /**< ...edition of the program. */
    uint32_t id_edition;   /**< The edition that `id` is of, plus one; 0: none. */
    char id[PACE_ID_SIZE]; /**< "": it has none, and is not sampled. Guarded by pace.c's lock. */
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

/** Its launches are never spread over several residences any more. */
static inline void pace_overlaps(struct pace *pace)
{
    atomic_store(&pace->overlaps, true);
}

/* What launches cost, for the agent (policy/costs.h). */

/** A launch of @items, of which @done were timed, took @ns for those on @device, with nothing
 *  beside it. It stands for the launches that went whole since the last such one. Any thread. */
void pace_sample(const struct pace *pace, const struct device *device, uint64_t items,
                 uint64_t done, uint64_t ns);
/** Take up to @most samples, which are then forgotten here. Returns how many. Thread-safe. */
uint32_t pace_samples_take(struct pace_sample *ret_samples, uint32_t most);

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
/** Forget its speed: the program is on another device. */
void pace_forget(struct pace *pace);
/** How long a launch of @items takes was measured, of launches like it. */
bool pace_predicts(const struct pace *pace, uint64_t items);
/** True when it is predicted to take more than two slices. */
bool pace_is_long(const struct pace *pace, uint64_t items);
/** @items took @ns. */
void pace_measured(struct pace *pace, uint64_t items, uint64_t ns);
/** A launch of @items, of which nothing was predicted, is measured from here on. */
void pace_doubt(struct pace *pace);
/** A launch of @items has ended: decide which launches go whole from now on. */
void pace_settle(struct pace *pace, uint64_t items);
/** How many work-items take @ns; 0: it is not known. */
uint64_t pace_items(const struct pace *pace, uint64_t ns);

#endif
