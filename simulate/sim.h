#ifndef RESEAT_SIMULATE_SIM_H
#define RESEAT_SIMULATE_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/settings.h"
#include "state/base/compiler.h"

/*
 * The input of `reseat simulate`: a trace (nodes with their devices, and programs that arrive, grow
 * and end), the models of its devices, and assumptions about the environment. All of it is constant
 * during runs, so that several runs can share it.
 *
 * Time is in milliseconds from the trace's start. Work is measured in microseconds of run time on
 * the reference device: a program does its speed (in thousandths) of work in one millisecond.
 */

#define SIM_NONE         UINT32_MAX
#define SIM_MODELS_MAX   64
#define SIM_DEVICES_MAX  100000
#define SIM_PROGRAMS_MAX 1000000
#define SIM_LEVELS_MAX   16
#define SIM_STEPS_MAX    3
/** Devices of a node. */
#define SIM_NODE_MAX 64
#define SIM_ERROR    512
/** Ten years: the latest time and the longest work of a trace. */
#define SIM_SECONDS_MAX 315360000ull
/** The part of a program's memory that one command needs at once. */
#define SIM_LEAST_PART 4

struct sim_model {
    char name[32];
    uint64_t memory; /**< Bytes. */
    uint32_t speed;  /**< Thousandths of the reference device's. */
    uint32_t price;  /**< Price of an hour on demand, in thousandths of the reference device's. */
};

struct sim_models {
    struct sim_model items[SIM_MODELS_MAX];
    size_t count;
    char from[128]; /**< "built in", or the file. */
};

/** A device of a trace, or of a part of one; devices of a node are adjacent. */
struct sim_device {
    uint32_t model, node;
    uint32_t id; /**< Index in the whole trace. */
};

struct sim_node {
    uint64_t from_ms;      /**< When it is added. */
    uint64_t host;         /**< Bytes of host memory. */
    uint32_t first, count; /**< Devices. */
    uint32_t id;           /**< Index in the whole trace. */
};

struct sim_task {
    uint64_t arrive_ms;
    uint64_t work;   /**< Microseconds on the reference device. */
    uint64_t bytes;  /**< Device memory after all growth; on each device. */
    uint64_t host;   /**< Host memory that it always needs, besides its device memory. */
    uint32_t share;  /**< Thousandths of its time in which it keeps the reference device busy. */
    uint32_t rule;   /**< Index in the rules of struct sim_trace. */
    uint32_t order;  /**< Order in which it was added. */
    int8_t priority; /**< Higher goes first. */
    uint8_t steps;   /**< It starts with 1/(steps+1) of its memory and grows in this many steps. */
    uint8_t more; /**< Additional devices that it needs on the same node, each for itself alone. */
    bool preemptible; /**< Best effort. */
};

/** The models that a program may run on. */
struct sim_rule {
    uint64_t models;  /**< A bit for each of struct sim_models; all: no rule. */
    uint64_t *barred; /**< A bit for each device where it may not; NULL: none. Owned. */
};

/** Which of a trace's tasks are simulated, and which are not. */
struct sim_counts {
    uint32_t rows, without_gpu, pending, failed, several; /**< Tasks. */
    uint32_t growing, ruled, preemptible;                 /**< Programs. */
};

struct sim_trace {
    struct sim_models models;
    struct sim_device *devices;
    struct sim_node *nodes;
    struct sim_task *tasks; /**< Sorted by arrival. */
    struct sim_rule *rules;
    uint32_t device_count, node_count, task_count, rule_count;
    struct sim_counts counts;
    char name[256]; /**< What it was read or made from. */
};

/** Settings that a trace does not contain. */
struct sim_load {
    uint64_t seed;
    uint32_t grow_percent; /**< Share of programs that grow. */
    uint32_t devices; /**< Keep nodes with about this many devices, evenly spread over the list; 0:
                         all. */
    bool pending;     /**< Simulate tasks that never ran, too. */
};

enum sim_regime {
    SIM_TERMINATION,
    SIM_CHEAPEST, /**< The same, but on the cheapest device with room. */
    SIM_SAVING,   /**< Termination, but programs that can be saved within the notice are. */
    SIM_OVERCOMMIT,
    SIM_RECONFIGURATION,
    SIM_REGIMES
};

struct sim_level {
    uint32_t reclaim; /**< Probability of a reclaim for each node and hour, in millionths. */
    uint32_t price;   /**< Thousandths of the price on demand. */
};

struct sim_options {
    uint64_t seed;
    struct sim_level levels[SIM_LEVELS_MAX];
    size_t level_count;
    uint32_t fail;      /**< Probability of a failure for each node and hour, in millionths. */
    uint64_t notice_ms; /**< Time from the notice to the reclaim. */
    uint64_t away_ms;   /**< Mean time from a reclaim to the node's return. */
    uint64_t repair_ms; /**< Time from a failure to the node's return. */
    uint64_t
        checkpoint_ms;   /**< Work between two checkpoints, on the reference; 0: there are none. */
    uint64_t storage;    /**< Bytes a millisecond from and to storage, of each node; 0: no limit. */
    uint64_t link;       /**< Bytes a millisecond, between a device and host memory. */
    uint64_t network;    /**< Bytes a millisecond between nodes, of each node. */
    uint64_t latency_ms; /**< Latency of each transfer between nodes. */
    uint64_t fixed_ms;   /**< Fixed time of each move, suspend, resume and spill. */
    uint64_t touch_ms;   /**< Programs go over all of their memory once in this time. */
    uint64_t balance_ms; /**< Interval at which the policy examines everything. */
    uint64_t horizon_ms; /**< When the simulation ends in any case. */
    uint32_t cell;       /**< Number of devices that one policy governs between hosts, about. */
    bool between_hosts;  /**< Allow moves between nodes; else each policy governs one node. */
    bool save; /**< In all regimes, save programs at the notice if they cannot be moved. */
    bool check;
    struct policy_settings settings;
};

/** The results of a run. */
struct sim_result {
    enum sim_regime regime;
    struct sim_level level;
    uint64_t finished, refused, unfinished; /**< Programs. */
    uint64_t terminations;                  /**< Times that programs were killed with their node. */
    uint64_t saves;                         /**< Programs saved within the notice. */
    uint64_t reclaims, failures; /**< Nodes with programs that were reclaimed, or failed. */
    uint64_t moves, suspends, resumes, spills, prewarms;
    uint64_t between;     /**< Moves and resumes from another node. */
    uint64_t checkpoints; /**< Periodic checkpoints. */
    uint64_t asked_ms; /**< Work of the programs that finished, in time of the reference device. */
    uint64_t lost_ms;  /**< Work that had to be done again, or was useless. */
    uint64_t stopped_ms;  /**< Time that programs stood still to be moved, loaded or saved. */
    uint64_t occupied_ms; /**< Device time with a program on the device. */
    uint64_t busy_ms;     /**< Device time that programs' commands ran. */
    uint64_t wait_mean_ms, wait_p50_ms,
        wait_p99_ms;       /**< Waiting times of programs that finished. */
    uint64_t took_mean_ms; /**< Mean time from arrival to end. */
    uint64_t end_ms;       /**< When the last one ended. */
    double cost;      /**< Cost of devices in use, in hours of the reference device on demand. */
    double node_cost; /**< The same if all devices of a node in use must be paid. */
    uint64_t checked; /**< Events that the checker saw. */
    char problem[SIM_ERROR]; /**< Error found by the checker; "" for none. */
};

const char *sim_regime_name(enum sim_regime regime);

/** The built-in table. */
void sim_models_init(struct sim_models *ret_models);
/** Read a table: the header "model,memory_gib,speed,price", then one model per line. Returns 0 or
 * -EINVAL with "FILE:LINE: reason" in @ret_error. */
MUST_CHECK int sim_models_read(const char *path, struct sim_models *ret_models, char *ret_error);
/** Index of the model, or SIM_NONE. */
uint32_t sim_models_find(const struct sim_models *models, const char *name, size_t length);

/** Initialise; everything a trace owns is freed by sim_trace_finish(). @models is copied. */
void sim_trace_init(struct sim_trace *ret_trace, const struct sim_models *models);
void sim_trace_finish(struct sim_trace *trace);
/**
 * Read a trace in the openb format. Returns 0, -EINVAL with "FILE:LINE: reason" in @ret_error, or
 * -ENOMEM. After a failure only sim_trace_finish() may follow.
 */
MUST_CHECK int sim_trace_read(struct sim_trace *trace, const char *nodes, const char *tasks,
                              const struct sim_load *load, char *ret_error);
/**
 * Generate a synthetic trace. @text is "" or "key=value,...": devices, programs, hours, load,
 * best-effort, late, mix. Returns as sim_trace_read().
 */
MUST_CHECK int sim_trace_make(struct sim_trace *trace, const char *text,
                              const struct sim_load *load, char *ret_error);

/* For building traces. Each returns 0 or -ENOMEM. */
MUST_CHECK int sim_trace_add_node(struct sim_trace *trace, uint64_t from_ms, uint64_t host);
/** Add a device to the last node, which has fewer than SIM_NODE_MAX. */
MUST_CHECK int sim_trace_add_device(struct sim_trace *trace, uint32_t model);
MUST_CHECK int sim_trace_add_task(struct sim_trace *trace, const struct sim_task *task);
/** @models  As in struct sim_rule. */
MUST_CHECK int sim_trace_rule(struct sim_trace *trace, uint64_t models, uint32_t *ret_rule);
/**
 * Finish building: let some programs grow, drop nodes that are not kept, sort the tasks, and
 * compute the rules. Returns 0, -ENOMEM, or -EINVAL with the reason (nothing to simulate, or too
 * much).
 */
MUST_CHECK int sim_trace_seal(struct sim_trace *trace, const struct sim_load *load,
                              char *ret_error);

/**
 * Make the @cell-th of @cells parts of a sealed trace: every @cells-th node, and all tasks, which
 * the trace still owns. Returns 0 or -ENOMEM; call sim_trace_part_finish() in either case.
 */
MUST_CHECK int sim_trace_part(const struct sim_trace *trace, uint32_t cell, uint32_t cells,
                              struct sim_trace *ret_part);
void sim_trace_part_finish(struct sim_trace *part);

/** Rate of a program that has a device to itself, in thousandths of the reference device: only the
 * time in which it keeps the device busy gets shorter on a faster device. */
uint32_t sim_rate(uint32_t speed, uint32_t share);
/** Thousandths of the device's time that such a program uses. */
uint32_t sim_busy(uint32_t speed, uint32_t share);

void sim_options_init(struct sim_options *ret_options);

/**
 * Simulate one regime at one level. The same arguments give the same result. Returns 0 or -ENOMEM.
 * May be called from several threads for the same @trace.
 */
MUST_CHECK int sim_run(const struct sim_trace *trace, const struct sim_options *options,
                       enum sim_regime regime, size_t level, struct sim_result *ret_result);

#endif
