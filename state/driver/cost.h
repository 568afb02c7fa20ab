#ifndef RESEAT_STATE_DRIVER_COST_H
#define RESEAT_STATE_DRIVER_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "state/driver/link.h"

/*
 * The cost model of transfers: predicts the time of a pipeline of stages, each with a set-up time
 * and a bandwidth, and finds the fastest chunk size, number of chunks and threads. Pure: no clock,
 * no globals, no blocking; safe in any thread.
 *
 * Chunks of c bytes, k of them in a ring, go through the stages in order; a stage works on one at a
 * time, for s_i = setup_i + c / bandwidth_i seconds, the COST_WORK with t_i threads in s_i =
 * setup_i + c / (bandwidth_i * (1 + (t_i - 1) * COST_EFFICIENCY)). The first chunk takes the sum of
 * all s_i. Each that follows comes a period later, which is COST_TURN, the slowest stage's s_i or,
 * when there are too few chunks to keep all stages at work, the time in which a chunk goes around,
 * divided by how many do: (COST_LATE + the sum of all s_i) / (k - 1), as one chunk of several is
 * always between two hands, and all come late now and then. What a COST_HAND takes is in both sums,
 * and keeps no stage from its next chunk. Making the ring and starting the threads is paid before.
 */

#define COST_STAGES_MAX  6
#define COST_CHUNK_MIN   (64u << 10)
#define COST_CHUNK_MAX   (64u << 20)
#define COST_CHUNKS_MAX  8
#define COST_RING_MAX    (256u << 20)
#define COST_THREADS_MAX 64
/** Seconds to start and stop one thread. On a machine of 16 cores 64 MiB over an H100's link took
 * 0.2 to 0.4 ms longer for each one beyond those that were needed. */
#define COST_THREAD_START 150e-6
/** Seconds by which threads are late now and then, which a ring must buffer. An H100's link took
 * 24.7 ms with 5 chunks of 4 MiB, 35 with 4 of them, and 30 with 3 of 8 MiB. */
#define COST_LATE 120e-6
/** Seconds that the thread waiting for the link needs for each chunk of any size: to start its
 * transfer, and to wake a copying thread. On an H100's link 64 chunks of 1 MiB, and 64 of 2 MiB,
 * took 85 to 105 us each, and 4 MiB no longer. */
#define COST_TURN 85e-6
/** Efficiency of each additional thread, relative to one alone. */
#define COST_EFFICIENCY 0.9
/** Least bytes for which a device is worth measuring. */
#define COST_MEASURE_FROM (16ull << 20)
/** How much slower than the best a choice may be if it needs fewer threads or less memory. */
#define COST_SLACK 0.01

/** Seconds that @stage needs for @bytes at once. @threads: those of a COST_WORK; else 1. */
double cost_stage_seconds(const struct cost_stage *stage, double bytes, unsigned threads);

/** A measured time counts as at most so many times, and at least that part of, the expected one. */
#define COST_LEARN_MOST 4

/**
 * Correct @stage, whose figures are above 0, by a copy of @bytes that took @seconds, above 0, with
 * one thread. Its set-up time and its bandwidth are changed by their parts of the expected time: so
 * small copies tell of the set-up time, and large ones of the bandwidth. Each copy takes a
 * quarter of the weight from those before it.
 */
void cost_stage_learn(struct cost_stage *stage, double bytes, double seconds);

struct cost_problem {
    /** In the order in which chunks pass; at most one is a COST_WORK. */
    struct cost_stage stages[COST_STAGES_MAX];
    size_t count;
    uint64_t total; /**< Bytes, at least 1. */
    unsigned cores; /**< Processors for threads; with 1, no threads are used. */
    uint64_t ring;  /**< Most bytes of all chunks together; at least COST_CHUNK_MIN. */
};

struct cost_choice {
    size_t chunk;     /**< Bytes, a power of two. 0: no ring. */
    unsigned chunks;  /**< In the ring. */
    unsigned threads; /**< For the COST_WORK; 0: the thread that waits for the chunks does it. */
    double seconds;   /**< Predicted, from start to end. */
};

/** Predicted seconds of @choice, ignoring its own prediction; threads without work are ignored. */
double cost_predict(const struct cost_problem *problem, const struct cost_choice *choice);

/**
 * Find the choice with the least predicted time, by an exact search that prunes what cannot be
 * better. Among those at most @slack slower, take the one with the fewest threads, then the
 * smallest ring, then the least time.
 *
 * @slack  A fraction; 0: only the time counts.
 * @ret  Written always.
 */
void cost_choose(const struct cost_problem *problem, double slack, struct cost_choice *ret);

/** A transfer between two ends; NULL is host memory, but not for both. */
struct cost_way {
    const struct link_figures *from, *to; /**< Measured. */
    const struct host_figures *host;
    uint64_t total;
    unsigned cores;
    bool link;  /**< One of the devices has memory of its own. */
    bool ring;  /**< It must go through a ring; always set between devices. */
    bool fresh; /**< Host memory is written whose pages must be made first. */
};

/**
 * True for transfers that need no figures: few bytes, or none over a link.
 *
 * @ret  Written when true is returned, except for the seconds.
 */
bool cost_is_simple(const struct cost_way *way, struct cost_choice *ret);

/**
 * Find the fastest way to transfer: through a ring, or directly from and to host memory
 * (@ret->chunk is 0) if that is one of the ends and faster.
 */
void cost_route(const struct cost_way *way, struct cost_choice *ret);

/*
 * Streams: records pass stages that all work at once, each on payloads of its own size. A stage
 * that needs s seconds for a payload of r records needs s / r for a record, and the stream as long
 * as its slowest stage. COST_WORK stages share the cores: together they need no less than the sum
 * of their s / r over the number of cores.
 */

#define COST_FLOW_STAGES  7
#define COST_PAYLOADS_MAX 32

enum cost_memory {
    COST_HOST,   /**< A stage's payloads lie in host memory. */
    COST_DEVICE, /**< In the device's. */
};

struct cost_payload {
    uint64_t records; /**< At least 1. */
    double seconds;   /**< Measured, or predicted by cost_payloads_fill. */
};

struct cost_flow_stage {
    enum cost_kind kind;                             /**< COST_WORK: it takes a core; COST_LINK. */
    struct cost_payload payloads[COST_PAYLOADS_MAX]; /**< In ascending order of records. */
    size_t count;                                    /**< Of them, at least 1. */
    uint32_t record;                                 /**< Bytes of a record. */
    unsigned depth;                                  /**< Payloads that it has at a time. */
    enum cost_memory memory;                         /**< Where they are. */
};

struct cost_flow {
    struct cost_flow_stage stages[COST_FLOW_STAGES];
    size_t count;
    uint64_t memory[2]; /**< Most bytes of all payloads in each enum cost_memory. */
    unsigned cores;     /**< For the COST_WORK stages; 0: as many as there are stages. */
};

struct cost_flow_choice {
    size_t payloads[COST_FLOW_STAGES]; /**< For each stage, an index of its payloads. */
    double seconds;                    /**< Predicted, for a record. */
    uint64_t memory[2];                /**< Bytes of all payloads in each enum cost_memory. */
};

/** Give @ret_stage payloads of 1, 2, 4 ... records, at most @most bytes but one record at least,
 * and the seconds that one thread of @stage needs for each. Only the kind, the payloads and their
 * count are written; @ret_stage->record must be set. */
void cost_payloads_fill(const struct cost_stage *stage, uint64_t most,
                        struct cost_flow_stage *ret_stage);

/**
 * Find the payload of each stage with which a record takes least, by an exact search. Among choices
 * at most @slack slower, take the one with the least memory.
 *
 * @slack  A fraction; 0: only the time counts, then memory.
 * @ret  Written on success.
 *
 * Returns 0 or -ENOMEM: the smallest payloads need more memory than there is.
 */
MUST_CHECK
int cost_payloads(const struct cost_flow *flow, double slack, struct cost_flow_choice *ret);

#endif
