#ifndef RESEAT_SIMULATE_PUBLISHED_H
#define RESEAT_SIMULATE_PUBLISHED_H

#include "policy/schedule.h"
#include "state/base/compiler.h"

/*
 * A published evaluation of placing operations of DNN training on a GPU and FPGAs
 * ("Hype-training"), computed again: the tables that it prints are inputs, what it does not say is
 * an assumption with a name, and its scheduler and reseat's run on the same steps.
 */

/* ---- what is published ---- */

enum published_size { PUBLISHED_SMALL, PUBLISHED_MEDIUM, PUBLISHED_LARGE, PUBLISHED_SIZES };

/** Rows of Table 1. */
enum published_operation {
    PUBLISHED_MATMUL,
    PUBLISHED_CONV,
    PUBLISHED_FILTER_GRADIENT,
    PUBLISHED_INPUT_GRADIENT,
    PUBLISHED_BIAS_GRADIENT,
    PUBLISHED_MUL,
    PUBLISHED_TRANSPOSE,
    PUBLISHED_OPERATIONS
};

/** Of one size: peak and mean power in watts, time in microseconds. */
struct published_cost {
    unsigned fpga_peak_w, fpga_mean_w, fpga_us, gpu_peak_w, gpu_mean_w, gpu_us;
};

extern const struct published_cost published_costs[PUBLISHED_OPERATIONS][PUBLISHED_SIZES];

#define PUBLISHED_NETWORKS 6

struct published_network {
    const char *name;
    unsigned batch;  /**< Samples of a step. */
    unsigned layers; /**< Of the network as it is known; the paper does not say. */
    double launches; /**< Table 2: share of operations on the FPGAs, in percent. */
    double time;     /**< Table 2: their share of the time. */
    /** Rows of Table 1 among the offloaded operations: those of forward passes, by turns. */
    enum published_operation forward[2], small;
    double faster; /**< Fig 5b: how much faster what is left on the GPU runs, in percent. */
    double power;  /**< Sec. 5.2: change of power with three FPGAs, in percent; NAN: not printed. */
    /** Table 3, at 230 W: samples a second of the GPU alone, and with three FPGAs. */
    unsigned capped_gpu, capped_fpga;
};

extern const struct published_network published_networks[PUBLISHED_NETWORKS];

/** What the paper says of a configuration, as changes in percent on average of the six networks. */
struct published_claim {
    unsigned gpus, fpgas;               /**< Compared with as many GPUs alone. */
    double throughput, power, per_watt; /**< NAN: it does not say. */
    const char *from;
};

#define PUBLISHED_CONFIGURATIONS 5
#define PUBLISHED_THREE          2 /**< One GPU with three FPGAs. */
extern const struct published_claim published_claims[PUBLISHED_CONFIGURATIONS];

/* ---- what is assumed ---- */

enum published_assumption {
    PUBLISHED_SIZES_USED,
    PUBLISHED_MOVE_KB,
    PUBLISHED_FASTER,
    PUBLISHED_GPU_IDLE,
    PUBLISHED_FPGA_IDLE,
    PUBLISHED_HOST,
    PUBLISHED_CARDS,
    PUBLISHED_CONTROL,
    PUBLISHED_CLOCK_POWER,
    PUBLISHED_CLOCK_TIME,
    PUBLISHED_CLOCK_STEP,
    PUBLISHED_SAMPLE,
    PUBLISHED_STEPS,
    PUBLISHED_ASSUMPTIONS
};

struct published_assumed {
    const char *name, *unit;
    double value, other; /**< The default; and another one, whose effect is shown; NAN: none. */
    double least, most;
    const char *why;
};

extern const struct published_assumed published_assumed[PUBLISHED_ASSUMPTIONS];

/** Assumptions that have no value: sentences, NULL at the end. */
extern const char *const published_fixed[];

/** Values of the assumptions. */
struct published_options {
    double value[PUBLISHED_ASSUMPTIONS];
};

void published_options_init(struct published_options *ret_options);

/* ---- steps ---- */

struct published_launch {
    enum published_operation operation;
    enum published_size size;
    unsigned copy;   /**< Which GPU's part of the batch. */
    bool offloaded;  /**< Among the operations that Table 2 offloads. */
    uint64_t gpu_ns; /**< On the GPU alone. */
};

/** A step of a network: its graph, with the GPUs as the first candidates and the FPGAs of each GPU
 *  after them. */
struct published_step {
    struct schedule_graph graph;
    const struct published_network *network;
    const struct published_options *options;
    unsigned gpus, fpgas, samples;
    uint64_t alone_ns; /**< Its length on the GPUs alone. */
    struct published_launch *launches;
    struct schedule_cost *costs;
    struct schedule_edge *edges;
    uint32_t *first;
};

/** Make a step that takes @alone_ns on a GPU alone. Returns 0 or -ENOMEM; call
 *  published_step_finish() in either case. */
MUST_CHECK int published_step_init(struct published_step *step,
                                   const struct published_network *network,
                                   const struct published_options *options, unsigned gpus,
                                   unsigned fpgas, uint64_t alone_ns);
void published_step_finish(struct published_step *step);
/**
 * Set what launches cost: with the GPUs at @clock_mhz, and what is left on them faster in
 * proportion to @part (0 to 1) of what Table 2 offloads (an input of the paper, Fig 5b).
 */
void published_step_cost(struct published_step *step, double clock_mhz, double part);
/** Part of the step's time on the GPUs alone that a schedule takes off them. */
double published_step_offloaded(const struct published_step *step,
                                const struct schedule_slot *slots);
#define PUBLISHED_CLOCK_MHZ 1530.0 /**< The GPU's highest. */
/** Power above idle and time at a lower clock, relative to the highest one's. */
double published_clock_power(const struct published_options *options, double clock);
double published_clock_time(const struct published_options *options, double clock);

/** What a schedule comes to. */
struct published_result {
    double samples_s;       /**< Samples a second. */
    double seconds, joules; /**< Of a step. */
    double bound_j;         /**< No schedule of that length takes less; 0: not computed. */
    double highest_w;       /**< At any time, with every running launch at its peak. */
    uint64_t violations;    /**< Samples above the cap. */
    uint64_t samples_taken; /**< Samples of all steps. */
};

enum published_scheduler {
    PUBLISHED_ALONE,   /**< The GPUs alone; under a cap, their own power management. */
    PUBLISHED_RULE,    /**< The paper's. */
    PUBLISHED_FASTEST, /**< reseat, for time. */
    PUBLISHED_NO_LOSS, /**< reseat, for energy, no slower than the GPUs alone. */
    PUBLISHED_CLOCKS,  /**< reseat under a cap, with the best clock of the GPU for all steps. */
    PUBLISHED_SCHEDULERS
};

/**
 * Schedule a network's step, and measure it. @cap_w 0: no cap. Returns 0, -ENOMEM, or -ERANGE when
 * nothing fits under the cap: then @ret_result has in highest_w the least cap that would do.
 */
MUST_CHECK int published_run(const struct published_network *network,
                             const struct published_options *options, unsigned gpus, unsigned fpgas,
                             enum published_scheduler scheduler, double cap_w,
                             struct published_result *ret_result);

/* ---- everything that is printed ---- */

#define PUBLISHED_CAPS   3
#define PUBLISHED_TABLE3 1                          /**< Table 3's. */
extern const double published_caps[PUBLISHED_CAPS]; /**< In watts, highest first. */

/** By network, or at PUBLISHED_NETWORKS the average of all. */
struct published_change {
    double throughput, power, per_watt, energy, bound; /**< In percent of the GPUs alone. */
};

struct published_all {
    /** Without a cap. PUBLISHED_CLOCKS is not among them. */
    struct published_result free[PUBLISHED_CONFIGURATIONS][PUBLISHED_NETWORKS][PUBLISHED_CLOCKS];
    struct published_change changes[PUBLISHED_CONFIGURATIONS][PUBLISHED_NETWORKS + 1]
                                   [PUBLISHED_CLOCKS];
    /** One GPU with three FPGAs. PUBLISHED_NO_LOSS is not among them. */
    struct published_result capped[PUBLISHED_CAPS][PUBLISHED_NETWORKS][PUBLISHED_SCHEDULERS];
    /** One GPU with three FPGAs with the other value of each assumption, on average. */
    struct published_change others[PUBLISHED_ASSUMPTIONS][PUBLISHED_CLOCKS];
};

/** Returns as published_run(). */
MUST_CHECK int published_run_all(const struct published_options *options,
                                 struct published_all *ret_all);

/* ---- schedulers; each fills the slots' candidate, start and end ---- */

/** First in, first out on the GPUs. */
void published_alone(const struct published_step *step, struct schedule_slot *slots);
/** The paper's rule. Returns 0, or -ERANGE with the least cap in @ret_least_w. */
MUST_CHECK int published_rule(const struct published_step *step, double cap_w,
                              struct schedule_slot *slots, double *ret_least_w);
/** reseat's choices launch by launch under a cap, in the order of @ranked. Returns the same. */
MUST_CHECK int published_capped(const struct published_step *step, double cap_w,
                                struct schedule_slot *slots, const struct schedule_slot *ranked,
                                double *ret_least_w);
/** The joules that no schedule of this graph within @limit_ns is below. @slots is overwritten. */
double published_bound(const struct schedule_graph *graph, uint64_t limit_ns,
                       struct schedule_slot *slots);

#endif
