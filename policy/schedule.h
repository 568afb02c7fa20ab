#ifndef RESEAT_POLICY_SCHEDULE_H
#define RESEAT_POLICY_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * On which device a single launch runs. Pure: no I/O, no clock, no globals, no allocation; every
 * array is the caller's. schedule_choose() decides for one launch that is about to be given to a
 * device, from what is known at that moment. schedule_plan() decides for all launches of a graph
 * that is known in advance, as a training step that repeats is.
 *
 * Times are in nanoseconds on one clock, energies in microjoules, powers in milliwatts. A time,
 * energy or power of 0 is unknown. Any value is taken: sums stop at UINT64_MAX.
 */

#define SCHEDULE_CANDIDATES 8
#define SCHEDULE_NONE       UINT32_MAX

enum schedule_objective {
    SCHEDULE_TIME,              /**< The earliest end; of equal ones the least energy. */
    SCHEDULE_ENERGY,            /**< The least energy, counting what a longer step draws idle. */
    SCHEDULE_ENERGY_AT_NO_LOSS, /**< The least energy that does not make the step longer. */
};

/** "none", then the objectives in their order; ended by NULL. */
extern const char *const schedule_objective_names[];

/** A device where the launch may run; or a device at one of its clocks. */
struct schedule_candidate {
    bool allowed;
    uint64_t ready_ns;    /**< When its inputs can be on the device. */
    uint64_t free_ns;     /**< When the device has finished what it was given before. */
    uint64_t run_ns;      /**< How long the launch runs. */
    uint64_t energy_uj;   /**< Of the launch and of the transfers of its inputs, above idle. */
    uint64_t draw_mw;     /**< The most that the device draws above idle while the launch runs. */
    uint64_t relieved_mw; /**< Power drawn now that ends before the launch starts there. */
};

struct schedule_launch {
    enum schedule_objective objective;
    uint32_t home;     /**< Candidate that is taken when too little is known, and of equal ones. */
    uint64_t now_ns;   /**< The launch does not start before. */
    uint64_t due_ns;   /**< The latest end that does not make the step longer. schedule_plan()
                            knows it of each launch; the engine, which does not know what launches
                            come next, of none: 0, it has no slack. */
    uint64_t idle_mw;  /**< Drawn by everything that the cap covers while nothing runs. */
    uint64_t drawn_mw; /**< Drawn by it now; idle_mw is part of it. */
    uint64_t cap_mw;   /**< 0: no cap. */
};

enum schedule_verdict {
    SCHEDULE_RUN,
    SCHEDULE_WAIT,   /**< Nothing fits under the cap until something else ends. */
    SCHEDULE_REFUSE, /**< Nothing fits under the cap even while nothing else runs; or nothing is
                          allowed. */
};

struct schedule_choice {
    enum schedule_verdict verdict;
    uint32_t candidate; /**< SCHEDULE_NONE unless it runs. */
    uint64_t end_ns;    /**< When it ends there; 0: unknown. */
    uint64_t least_mw;  /**< Unless it runs: the least cap that it would fit under while nothing
                             else runs; 0: no candidate's power is known. */
};

/**
 * Choose one of up to SCHEDULE_CANDIDATES candidates.
 *
 * The home device is chosen unless another one is known to be better: a candidate whose time is
 * unknown is compared with nothing, and an objective of energy chooses among those whose energy is
 * known, and the home device if its own energy is not. Under a cap a launch is given only where
 * the power that is drawn now and its own together stay within the cap; where its power is
 * unknown it does not fit. With `relieved_mw` a device that is still busy can be compared with a
 * free one; where the busy one is chosen, wait until it is free and choose again.
 */
struct schedule_choice schedule_choose(const struct schedule_launch *launch,
                                       const struct schedule_candidate *candidates, uint32_t count);

/** Energy of @mw over @ns. */
uint64_t schedule_energy(uint64_t mw, uint64_t ns);

/* ---- graphs that are known in advance ---- */

/** What a launch costs on one candidate. */
struct schedule_cost {
    uint64_t run_ns; /**< 0: it cannot run there. */
    uint64_t energy_uj, draw_mw;
};

/** The launch needs what an earlier one wrote. */
struct schedule_edge {
    uint32_t from;
    uint64_t bytes;
};

/** Between host memory and a device. */
struct schedule_link {
    uint64_t setup_ns;
    uint64_t bytes_per_ms; /**< 0: no limit. */
    uint64_t draw_mw;      /**< Above idle, while it copies. */
};

struct schedule_graph {
    uint32_t launches, candidates;
    const struct schedule_cost *costs; /**< Of each launch, for each candidate. */
    const struct schedule_edge *edges; /**< By the launch that needs them, all from earlier ones. */
    const uint32_t *first; /**< launches + 1 numbers: edges of launch i are first[i]..first[i+1]. */
    uint32_t unit[SCHEDULE_CANDIDATES]; /**< Device of each candidate, below SCHEDULE_CANDIDATES:
                                             one launch at a time. */
    struct schedule_link links[SCHEDULE_CANDIDATES]; /**< Of each device. */
    uint32_t home;
    uint64_t idle_mw;
};

/** Of one launch. */
struct schedule_slot {
    uint32_t candidate;
    uint32_t order;   /**< The i-th slot: which launch comes i-th. By falling rank. */
    uint64_t rank_ns; /**< From its start to the end of the step, if nothing had to wait. */
    uint64_t due_ns;  /**< The latest end that keeps the step's length, if nothing had to wait. */
    uint64_t start_ns, end_ns;
};

struct schedule_result {
    uint64_t length_ns;
    uint64_t energy_uj; /**< Of launches, transfers, and idle_mw over the length. */
};

/** Time and energy of moving an edge's bytes from one device to another through host memory. */
struct schedule_cost schedule_transfer(const struct schedule_graph *graph, uint32_t from,
                                       uint32_t to, uint64_t bytes);

/** Its time on the candidate where it runs fastest. */
uint64_t schedule_fastest(const struct schedule_graph *graph, uint32_t launch);

/**
 * The longest path from each launch to the end, its own time included, at the times of the fastest
 * candidates and without transfers; and the order of falling ranks, in which every launch comes
 * after those whose results it needs. Writes `rank_ns` and `order` of graph->launches slots.
 * Returns the longest rank: no step is shorter.
 */
uint64_t schedule_rank(const struct schedule_graph *graph, struct schedule_slot *slots);

/**
 * Plan a step: a candidate and a time for each launch. No cap is regarded.
 *
 * @limit_ns  The length that SCHEDULE_ENERGY_AT_NO_LOSS keeps to; 0: the shortest plan's. Where no
 *            plan is that short, the shortest plan.
 * @slots, @spare  graph->launches slots each; the plan is in @slots.
 *
 * With SCHEDULE_TIME it is never longer than the best plan that uses one candidate only. False
 * where a launch cannot run anywhere.
 */
bool schedule_plan(const struct schedule_graph *graph, enum schedule_objective objective,
                   uint64_t limit_ns, struct schedule_slot *slots, struct schedule_slot *spare,
                   struct schedule_result *ret_result);

#endif
