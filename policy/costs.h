#ifndef RESEAT_POLICY_COSTS_H
#define RESEAT_POLICY_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/decide.h"

/*
 * How long launches of one kernel take on one device, learnt from samples. Launch sizes are told
 * apart by powers of two of work-items; times and sizes are kept as logarithms, since launches
 * differ by factors. Pure: no I/O, no clock.
 *
 * A sample that is further from those before it than a factor of 2 to 4 only makes them less
 * certain. When COSTS_FOLLOW samples in a row are so on one side, the device has changed, and the
 * last of them replaces what was known. A smaller change is averaged in: half of it within 22
 * samples.
 */

#define COSTS_SIZES  48 /**< Powers of two of work-items; larger launches count as the largest. */
#define COSTS_FOLLOW 4
/** So many samples are remembered of a size: older ones fade as others come. */
#define COSTS_MEMORY 32
/** Fewer samples than that say too little for a comparison of devices. */
#define COSTS_SURE 3

/** What is known of launches of one power of two. */
struct cost_point {
    float count;    /**< Samples, faded ones as fractions; 0: nothing is known. */
    float size;     /**< Mean of the binary logarithms of work-items. */
    float time;     /**< The same of nanoseconds. */
    float spread;   /**< Sum of the squared differences from `time`. */
    int32_t astray; /**< Samples in a row beyond the limit: above 0 slower, below faster. */
};

/** Of one kernel on one device. All zero: nothing is known. */
struct costs {
    struct cost_point points[COSTS_SIZES];
};

/** A launch of @items work-items took @ns. Any value is taken; more than a day counts as one. */
void costs_add(struct costs *costs, uint64_t items, uint64_t ns);

/**
 * Add what another one learnt, from other samples. Commutative and associative but for rounding;
 * the counts add up, and fade with the next sample to COSTS_MEMORY.
 */
void costs_merge(struct costs *costs, const struct costs *other);

/** A point as numbers for a file or a message, and back. */
struct cost_record {
    uint64_t items, ns;    /**< Geometric means. */
    uint64_t samples_k;    /**< Thousandths of a sample. */
    uint64_t spread_k;     /**< Thousandths of cost_point.spread. */
    uint64_t error_permil; /**< How far the mean may be off; not read back. */
};
void cost_record_of(const struct cost_point *point, struct cost_record *ret_record);
/** Merge one record. False where its numbers cannot be: nothing is changed then. */
bool costs_add_record(struct costs *costs, const struct cost_record *record);

struct cost_guess {
    uint64_t ns;
    uint32_t error_permil; /**< The mean may be longer or shorter by this factor less one. */
    float samples;         /**< Behind it, those of the size that has fewer. */
};
/**
 * How long a launch of @items is likely to take. Between two sizes that were measured and are no
 * more than a factor of 256 apart it is interpolated; outside, up to a factor of 4, extrapolated.
 * False: unknown.
 */
bool costs_guess(const struct costs *costs, uint64_t items, struct cost_guess *ret_guess);

/** A part of what a program does now: launches of one kernel. */
struct costs_work {
    const struct costs *here;  /**< Of the kernel where the program is; NULL: unknown. */
    const struct costs *there; /**< Of the same kernel on the other device; NULL: unknown. */
    uint64_t items;            /**< Of a launch. */
    uint64_t busy_ns;          /**< Time that these launches take where the program is. */
};
/** How fast that work would go there. A kernel with fewer samples than COSTS_SURE on either side is
 *  not covered. */
struct policy_measured costs_relative(const struct costs_work *works, uint32_t count);

#endif
