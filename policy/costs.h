#ifndef RESEAT_POLICY_COSTS_H
#define RESEAT_POLICY_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/decide.h"

/*
 * How long launches of one kernel take on one device and what power they draw, learnt from samples.
 * Launch sizes are told apart by powers of two of work-items; times, power and sizes are kept as
 * logarithms, since launches differ by factors. Pure: no I/O, no clock.
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

/** A quantity that was measured several times: its binary logarithms. */
struct cost_mean {
    float count; /**< Samples, faded ones as fractions; 0: nothing is known. */
    float mean;
    float spread;     /**< Sum of the squared differences from `mean`. */
    int32_t outliers; /**< Samples in a row beyond the limit: above 0 higher, below lower. */
};

/** What is known of launches of one power of two. */
struct cost_point {
    float size;             /**< Mean of the binary logarithms of work-items. */
    struct cost_mean time;  /**< Of nanoseconds; count 0: nothing is known of this size. */
    struct cost_mean power; /**< Of milliwatts above what the idle device draws, plus 1 W: near 0
                                 meters are noise. count 0: unknown. */
};

/** Of one kernel on one device. All zero: nothing is known. */
struct costs {
    struct cost_point points[COSTS_SIZES];
};

/** A launch of @items work-items took @ns. Any value is taken; more than a day counts as one. */
void costs_add(struct costs *costs, uint64_t items, uint64_t ns);
/** While launches of @items ran alone the device drew so much more than when it is idle. Nothing is
 *  learnt for a size whose time is unknown. */
void costs_add_power(struct costs *costs, uint64_t items, uint64_t power_mw);

/**
 * Add what another one learnt, from other samples. Commutative and associative but for rounding;
 * the counts add up, and fade with the next sample to COSTS_MEMORY.
 */
void costs_merge(struct costs *costs, const struct costs *other);

/** One point of the model as whole numbers, for a file or a message. A record of more samples than
 *  COSTS_MEMORY is read as one of COSTS_MEMORY samples. */
struct cost_record {
    uint64_t items, ns;    /**< Geometric means. */
    uint64_t samples_k;    /**< Thousandths of a sample. */
    uint64_t spread_k;     /**< Thousandths of cost_mean.spread. */
    uint64_t error_permil; /**< How far the mean may be off; not read back. */
    /** The same of the power above idle; power_samples_k 0: unknown. */
    uint64_t power_mw, power_samples_k, power_spread_k, power_error_permil;
};
void cost_record_of(const struct cost_point *point, struct cost_record *ret_record);
/** Costs that know this point alone, for costs_merge(). False where its numbers cannot be. */
bool costs_read_record(const struct cost_record *record, struct costs *ret_costs);

struct cost_guess {
    uint64_t ns;
    uint32_t error_permil; /**< The mean may be longer or shorter by this factor less one. */
    float samples;         /**< Behind it, those of the size that has fewer. */
    /** Power that such launches draw above idle; power_samples 0: unknown. */
    uint64_t power_mw;
    uint32_t power_error_permil;
    float power_samples;
};
/**
 * How long a launch of @items is likely to take. Between two sizes that were measured and are no
 * more than a factor of 256 apart it is interpolated; outside, up to a factor of 4, extrapolated.
 * Power is that of the nearest of these sizes of which it is known. False: the time is unknown.
 */
bool costs_guess(const struct costs *costs, uint64_t items, struct cost_guess *ret_guess);

/** How a program uses one kernel now. */
struct costs_use {
    const struct costs *here;  /**< Of the kernel where the program is; NULL: unknown. */
    const struct costs *there; /**< Of the same kernel on the other device; NULL: unknown. */
    uint64_t items;            /**< Of a launch. */
    uint64_t busy_ns;          /**< Time that these launches take where the program is. */
};
/** How fast these launches would run there. A kernel with fewer samples than COSTS_SURE on either
 *  side is not covered. */
struct policy_measured costs_relative(const struct costs_use *uses, uint32_t count);

#endif
