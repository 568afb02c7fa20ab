#ifndef RESEAT_STATE_DRIVER_COST_H
#define RESEAT_STATE_DRIVER_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "state/driver/link.h"

/*
 * The cost model of transfers: how long a pipeline takes whose stages each have a set-up time and a
 * bandwidth, and which chunk size, number of chunks and threads make that shortest. Pure: no clock,
 * no globals, nothing blocks; safe from any thread.
 *
 * Chunks of c bytes, k of them in a ring, go through the stages in order; a stage works on one at a
 * time, for s_i = setup_i + c / bandwidth_i seconds, a COST_WORK stage with t_i threads in
 * s_i = setup_i + c / (bandwidth_i * (1 + (t_i - 1) * COST_EFFICIENCY)). The first chunk takes the
 * sum of all s_i. Each that follows comes a period later, which is COST_TURN, the slowest stage's
 * s_i or, when there are too few chunks to keep all stages at work, the time in which a chunk goes
 * around, divided by how many do: (COST_LATE + the sum of all s_i) / (k - 1), as one chunk of
 * several is always between two hands, and all come late now and then. What a COST_HAND takes is in
 * both sums, and keeps no stage from its next chunk. Making the ring and starting the threads is
 * paid before.
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
/** Seconds by which threads come late now and then: a ring has as much to spare. An H100's link
 * took 24.7 ms with 5 chunks of 4 MiB, 35 with 4 of them, and 30 with 3 of 8 MiB. */
#define COST_LATE 120e-6
/** Seconds that who waits for the link needs for each chunk, however small: to have it written or
 * read, and to wake who copies. Of an H100's link 64 chunks of 1 MiB, and 64 of 2 MiB, took 85 to
 * 105 us each, and 4 MiB no longer. */
#define COST_TURN 85e-6
/** What a thread adds beside others, of what it does alone. */
#define COST_EFFICIENCY 0.9
/** Bytes for which a device is worth measuring. */
#define COST_MEASURE_FROM (16ull << 20)
/** How much longer than the best a choice may take that needs fewer threads or less memory. */
#define COST_SLACK 0.01

struct cost_problem {
    struct cost_stage stages[COST_STAGES_MAX]; /**< In the order of the way. */
    size_t count;
    uint64_t total; /**< Bytes, at least 1. */
    unsigned cores; /**< That threads may use together; with 1 there are none. */
    uint64_t ring;  /**< Most bytes of all chunks together; at least COST_CHUNK_MIN. */
};

struct cost_choice {
    size_t chunk;    /**< Bytes, a power of two. 0: no ring. */
    unsigned chunks; /**< In the ring. */
    /** Of each stage of the problem. All 0: who waits for the chunks does all work, one after the
     * other. */
    unsigned threads[COST_STAGES_MAX];
    double seconds; /**< Predicted, from start to end. */
};

/** All threads of a choice. */
unsigned cost_threads(const struct cost_choice *choice);

/** Predicted seconds of what @choice says but for its own; threads of other stages are ignored. */
double cost_predict(const struct cost_problem *problem, const struct cost_choice *choice);

/**
 * The choice with the least predicted time, found by a search that leaves out only what cannot be
 * better. Of those that take at most @slack of it longer, the one with the fewest threads, then
 * the smallest ring, then the least time.
 *
 * @slack  A fraction; 0: the least time is all that counts.
 * @ret  Written always.
 */
void cost_choose(const struct cost_problem *problem, double slack, struct cost_choice *ret);

/** A way between two ends; an end that is NULL is host memory, but not both. */
struct cost_way {
    const struct link_figures *from, *to; /**< Measured. */
    const struct host_figures *host;
    const struct cost_stage *work; /**< What is done to the bytes on the way; NULL: nothing. */
    uint64_t total;
    unsigned cores;
    bool link;  /**< One of the devices has memory of its own. */
    bool ring;  /**< It has to be by way of a ring; between devices and for work it always is. */
    bool fresh; /**< Host memory is written whose pages are to be made first. */
};

/** Places of stages in the problem that a way is, and so of its threads in a choice. */
struct cost_places {
    size_t copy, work; /**< COST_STAGES_MAX: there is none. */
};

/**
 * Few bytes, or none that go over a link, go by a rule that needs no figures.
 *
 * @ret  Then written, but for the seconds.
 */
bool cost_is_simple(const struct cost_way *way, struct cost_choice *ret);

/**
 * How bytes go that way soonest: through a ring, or straight from and to host memory
 * (@ret->chunk is 0) where that is one of the ends and faster.
 */
void cost_route(const struct cost_way *way, struct cost_choice *ret,
                struct cost_places *ret_places);

#endif
