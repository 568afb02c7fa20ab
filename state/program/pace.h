#ifndef RESEAT_STATE_PROGRAM_PACE_H
#define RESEAT_STATE_PROGRAM_PACE_H

#include "state/object/usage.h"
#include "state/program/kernel_traits.h"

/*
 * The speed of a kernel, which decides whether a launch of it is given to the driver in pieces. A
 * move has to wait for all commands that the driver has; of a launch in pieces that is two at most.
 *
 * A launch that is predicted to end within two slices goes whole, which takes one comparison. The
 * prediction comes from launches that were given in pieces and measured. Further launches are
 * measured now and then, since a kernel may take longer with other arguments: often at first, and
 * ever less while it stays short. Nothing is predicted for launches much larger than the measured.
 */

/** The wanted time of a piece, a slice; 0: no launch is cut. Set before the first kernel is made,
 *  or by tests. */
extern _Atomic uint64_t pace_slice_ns;

/** The number of other devices whose speed is kept. */
#define PACE_ELSEWHERE 4

/** Launches that take less go whole and stay on their queue's device; 0: as said above, two slices.
 *  Set before the first kernel is made where launches are placed (command/place.h). */
extern _Atomic uint64_t pace_whole_ns;

/** How many pace_learnt have costs. */
extern atomic_uint pace_learnt_count;

struct device;

/** Size of a kernel's identity, which is the same on all devices: hexadecimal digits and a NUL. */
#define PACE_ID_SIZE   33
#define PACE_NAME_SIZE 64

/** A measured launch, which stands for others that were not measured. */
struct pace_sample {
    char id[PACE_ID_SIZE];     /**< A digest of its program's recipe and its name. */
    char name[PACE_NAME_SIZE]; /**< Cut where it is longer. */
    const struct device *device;
    uint64_t items, ns; /**< Work-items of the launch, and how long it took. */
    uint64_t busy_ns;   /**< Estimated time of all launches that it stands for. */
};

/** Shared by all kernels of one name in a program. Owned by the program. */
struct pace {
    struct pace *next;
    const char *name;           /**< Kept until the process ends: see queue_launched. */
    _Atomic uint64_t whole;     /**< Launches of fewer work-items go whole. */
    _Atomic uint32_t countdown; /**< The number of launches until one is measured again. */
    _Atomic uint32_t backoff;   /**< The next initial value of `countdown`. */
    _Atomic uint64_t per_s;     /**< Measured work-items a second; 0: unknown. */
    _Atomic uint64_t largest;   /**< Work-items of the largest measured launch. */
    /** The speed of other devices, in work-items a second, when they did a part of a launch
     *  (move/spread.h). Used by movers. */
    struct pace_elsewhere {
        const struct device *device;
        double per_s;
        unsigned refused; /**< Launches since then that it was thought too slow for. */
    } elsewhere[PACE_ELSEWHERE];
    /** How long its whole launches take on each device, and the power that these draw, where
     * launches are placed. Guarded by engine_lock (command/place.c). */
    struct pace_learnt {
        const struct device *device;
        struct costs *costs; /**< Owned. */
        uint64_t at_ns;      /**< When a launch was measured there last. */
        uint64_t power_mw;   /**< That they draw, whatever their size; 0: unknown. */
    } learnt[PACE_ELSEWHERE];
    /** The number of launches until spreading is tried again, and its next initial value. */
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

/** The pace of kernels called @name; NULL without memory. Borrowed; it lives as long as the
 * program.
 */
struct pace *pace_of(struct program *program, const char *name);
/** The traits of its kernels, as a copy. The first call reads the source, which may take long. 0 or
 *  -ENOMEM. */
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

/** Add a sample: @done of a launch's @items took @ns on @device, with no other work beside them. It
 *  stands for all launches that went whole since the last sample. Any thread. */
void pace_sample(const struct pace *pace, const struct device *device, uint64_t items,
                 uint64_t done, uint64_t ns);
/** Take up to @most samples, which are then forgotten here. Returns how many. Thread-safe. */
uint32_t pace_samples_take(struct pace_sample *ret_samples, uint32_t most);
/** The pace of the kernel of @program that samples call @id, or NULL. It lives as long as the
 * program. */
struct pace *pace_with_id(struct program *program, const char *id);

#define PACE_UNSPREAD_MAX 64

/** Spreading one of its launches was worth it, or not: then it is tried less often. By movers. */
static inline void pace_spread(struct pace *pace, bool worth_it)
{
    uint32_t next = worth_it ? 0 : 2 * atomic_load(&pace->unspread_next) + 1;
    next = next < PACE_UNSPREAD_MAX ? next : PACE_UNSPREAD_MAX;
    atomic_store(&pace->unspread_next, next);
    atomic_store(&pace->unspread, next);
}

/** Its launches are never cut. @reason: static text; NULL: no kernel's launches are. */
void pace_never(struct pace *pace, const char *reason);
/** A launch that may be long is not cut. @reason: static text; NULL: it is cut. */
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
/** True when the time of a launch of @items is known from measured launches like it. */
bool pace_predicts(const struct pace *pace, uint64_t items);
/** True when it is predicted to take more than two slices. */
bool pace_is_long(const struct pace *pace, uint64_t items);
/** Note that @items took @ns. */
void pace_measured(struct pace *pace, uint64_t items, uint64_t ns);
/** A launch of @items, for which there was no prediction, is about to be measured. */
void pace_doubt(struct pace *pace);
/** A launch of @items has ended: decide which launches go whole from now on. */
void pace_settle(struct pace *pace, uint64_t items);
/** How many work-items take @ns; 0: it is not known. */
uint64_t pace_items(const struct pace *pace, uint64_t ns);

#endif
