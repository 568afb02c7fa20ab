#ifndef RESEAT_STATE_TRANSFER_COST_H
#define RESEAT_STATE_TRANSFER_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/driver/link.h"

/*
 * The cost model of transfers: how long a pipeline takes whose stages each have a set-up time and a
 * bandwidth, and which chunk size and thread count make that shortest. Pure: no clock, no globals.
 */

struct cost_choice {
    size_t chunk;     /**< Bytes. */
    unsigned chunks;  /**< In the ring. */
    unsigned threads; /**< Copy threads to start; 0: the caller copies. */
    double seconds;   /**< Predicted, from start to end. */
};

#define COST_CHUNK_MIN    (64u << 10)
#define COST_CHUNK_MAX    (64u << 20)
#define COST_RING_MAX     (256u << 20)
#define COST_THREADS_MAX  64
#define COST_THREAD_START 40e-6 /**< Seconds to start and stop one thread. */
/** What a thread adds beside others, of what it does alone. */
#define COST_EFFICIENCY 0.9

/** Predicted seconds for @total bytes through @stages with a given chunk size and thread count. */
double cost_predict(const struct cost_stage *stages, size_t n, uint64_t total, size_t chunk,
                    unsigned threads, unsigned *ret_chunks);

/**
 * The chunk size (a power of two) and thread count with the least predicted time; the smaller ring
 * and the fewer threads where that costs less than a hundredth more.
 *
 * @total  Bytes, at least 1.
 * @cores  That may be used; threads never exceed it, and there are none when it is 1.
 * @ret  Written always. Without a copy stage there are no threads.
 */
void cost_choose(const struct cost_stage *stages, size_t n, uint64_t total, unsigned cores,
                 struct cost_choice *ret);

#endif
