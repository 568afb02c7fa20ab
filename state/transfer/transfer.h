#ifndef RESEAT_STATE_TRANSFER_TRANSFER_H
#define RESEAT_STATE_TRANSFER_TRANSFER_H

#include "state/object/residence.h"
#include "state/opencl/image.h"
#include "state/transfer/throttle.h"

/*
 * The transfer engine: bytes of many objects from one end to another, as fast as the link.
 *
 * An end is a residence or host memory. Stages (device read, copy between pinned and pageable
 * memory, what else is done to the bytes, device write) run as a pipeline over chunks; chunk size,
 * number of chunks and each stage's threads are chosen by a cost model (cost.h) from figures that
 * were measured on the residences at hand. Small objects are batched without waiting for each.
 */

struct transfer;

/** Ways that one move takes: out, in, and straight. */
#define TRANSFER_SERIES_KEPT 3

/** What is done to bytes on their way, beside moving them: a digest, a compression. */
struct transfer_work {
    /** Takes bytes in any order, each once; several threads call it. They may be looked at until it
     * returns. */
    void (*run)(void *data, const char *bytes, size_t size);
    void *data;
    struct cost_stage cost; /**< COST_WORK, for the choice of chunks and threads. */
};

/**
 * What transfers between the same ends have in common: chunks, registered, and threads. Who makes
 * many one after the other keeps them from one to the next here. Zeroed: none yet. One thread at a
 * time; the ends that were used with it live until transfer_series_finish.
 */
struct transfer_series {
    /** Bytes to come one way, for the choice of chunks and threads; 0: each transfer's own. */
    uint64_t total;
    struct transfer *idle[TRANSFER_SERIES_KEPT]; /**< The one that was used last comes first. */
};

struct transfer_limits {
    uint64_t deadline_ns;      /**< CLOCK_MONOTONIC; 0: none. */
    const atomic_bool *cancel; /**< Or NULL. */
    _Atomic uint64_t *done;    /**< Bytes that arrived are added here as they do; or NULL. */
    bool user_memory;          /**< Items may be: nothing goes straight from host memory. */
    bool fresh;                /**< Host memory is written whose pages may have to be made first. */
    bool through_host; /**< Between devices: not by a way of their driver's past the host. */
    const struct transfer_work *work; /**< Or NULL. With it all bytes pass through host memory. */
    /** Bytes wait for it before they go; or NULL. Of one transfer at a time. */
    struct throttle *throttle;
    struct transfer_series *series; /**< Of which this one is, or NULL. Not with work. */
};

/** What to move: a run of a buffer, or rows or slices of an image through its host copy's layout.
 */
struct transfer_item {
    cl_mem from; /**< NULL when the source end is host memory. */
    cl_mem to;   /**< NULL when the target end is host memory. */
    char *host;  /**< The host end's bytes, in the layout below. NULL when both ends are devices. */
    size_t offset; /**< The first byte, the same on both ends and in @host. Of an image: that of a
                        row, or of a slice where it has several. */
    size_t size;   /**< Bytes. Of an image: up to where a row or slice begins, or its end. */
    const struct image_shape
        *image;       /**< NULL for buffers. @host is in its row_pitch, slice_pitch. */
    bool user_memory; /**< @host, which is read, is the program's: what is not there reads as
                         zeroes. */
};

/**
 * Begin. Either end may be NULL (host memory), not both. The ends' io queues are the transfer's
 * until transfer_destroy. Chunks are registered and threads started here when @total makes that
 * worthwhile, so a mover calls it in PREPARE. One thread at a time may use a transfer.
 *
 * @total  Bytes to come, for the choice of chunks and threads. 0 where unknown: then the first
 *         transfer_add chooses.
 * @limits  Copied; what it points to must outlive the transfer.
 * Blocks on the drivers (a few ms the first time a device is measured). Returns 0, -ENOMEM, -EIO.
 */
MUST_CHECK int transfer_create(struct residence *from, struct residence *to, uint64_t total,
                               const struct transfer_limits *limits,
                               struct transfer **ret_transfer);
/**
 * Move one item. May return before it has arrived; @item's memory objects and bytes must stay until
 * transfer_flush. Blocks while the pipeline is full.
 *
 * Returns 0, -EIO (a driver refused or a command ended in error), -ENOMEM, -ETIMEDOUT, -ECANCELED:
 * then nothing more arrives and transfer_flush gives the same.
 */
MUST_CHECK int transfer_add(struct transfer *transfer, const struct transfer_item *item);
/** Wait until everything has arrived. */
MUST_CHECK int transfer_flush(struct transfer *transfer);
/** Waits for what is in flight, stops the threads, frees; of a series, unless something failed,
 * leaves chunks and threads to the next one. NULL is allowed. */
void transfer_destroy(struct transfer *transfer);
/** Free what @series keeps, which may be used again then. Blocks on the drivers. */
void transfer_series_finish(struct transfer_series *series);

/** Seconds that a transfer of @total bytes takes, by the cost model; either end may be NULL (host
 *  memory). Blocks on the drivers as transfer_create does, the first time. */
double transfer_predict(struct residence *from, struct residence *to, uint64_t total);

/** How a transfer goes about it, for logs and benchmarks. */
struct transfer_shape {
    size_t chunk;     /**< Bytes; 0: straight from and to the host's memory. */
    unsigned chunks;  /**< Of the ring. */
    unsigned threads; /**< Copy threads that run; 0, and none below: the caller does all. */
    unsigned workers; /**< Threads of the work. */
    bool registered;  /**< The ring is registered with every driver that has a link. */
    bool passes;      /**< Past the host (between.h): it may fail where the host is a way. */
    double predicted; /**< Seconds, of the cost model; 0: not asked. */
};
/** Meaningful after the first transfer_add, or at once when transfer_create was told the total. */
void transfer_describe(const struct transfer *transfer, struct transfer_shape *ret_shape);

/**
 * Measure the link of @residence's device, and the host, anew, for this process and for those that
 * come (links.h). Its io queue is used. Blocks for some milliseconds.
 *
 * Returns 0, -EIO (a driver failed; nothing changes), -ENOMEM, or why the figures could not be
 * kept.
 */
MUST_CHECK int transfer_measure(struct residence *residence);

/** The OpenCL error behind the last -EIO, for the reason that an operator reads; 0 if none. */
cl_int transfer_error(const struct transfer *transfer);

/** Copy from memory that somebody may be taking away; what is not there reads as zeroes. */
void host_copy_user_memory(char *to, const char *from, size_t size);

#endif
