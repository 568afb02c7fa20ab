#ifndef RESEAT_STATE_TRANSFER_TRANSFER_H
#define RESEAT_STATE_TRANSFER_TRANSFER_H

#include <stdint.h>

#include "state/object/residence.h"
#include "state/opencl/image.h"

/*
 * The transfer engine: copies the bytes of many objects from one end to another at the speed of the
 * link.
 *
 * An end is a residence or host memory. Stages (device read, copy between pinned and pageable
 * memory, device write) run as a pipeline over chunks; the cost model (cost.h) chooses chunk size,
 * number of chunks and copying threads from figures that were measured on these devices. Small
 * objects are batched without waiting for each.
 */

struct transfer;

/** Transfers that a series keeps: one for each direction that a move uses (from a device, to one,
 * and between two). */
#define TRANSFER_SERIES_KEPT 3

/**
 * Registered chunks and threads that consecutive transfers between the same ends reuse. Zeroed:
 * empty. Not thread-safe; the ends that were used with it must live until transfer_series_finish.
 */
struct transfer_series {
    /** Bytes to be transferred in one direction, for the choice of chunks and threads; 0: each
     * transfer's own. */
    uint64_t total;
    struct transfer *idle[TRANSFER_SERIES_KEPT]; /**< The most recently used one comes first. */
};

struct transfer_limits {
    uint64_t deadline_ns;      /**< CLOCK_MONOTONIC; 0: none. */
    const atomic_bool *cancel; /**< Or NULL. */
    _Atomic uint64_t *done;    /**< Bytes are added here as they arrive; or NULL. */
    bool user_memory;  /**< Items may have user_memory, so drivers are never given host memory
                          directly. */
    bool fresh;        /**< Pages of the host memory to write may not exist yet. */
    bool through_host; /**< Between devices: copy through host memory even if the driver could copy
                          directly. */
    /** Limits the bandwidth; or NULL. Used by one transfer at a time. */
    struct throttle *throttle;
    struct transfer_series *series; /**< The series that this transfer belongs to, or NULL. */
};

/** What to copy: a range of a buffer, or rows or slices of an image in the layout of its host copy.
 */
struct transfer_item {
    cl_mem from; /**< NULL when the source end is host memory. */
    cl_mem to;   /**< NULL when the target end is host memory. */
    char *host;  /**< The host end's bytes, in the layout below. NULL when both ends are devices. */
    size_t offset; /**< Of the first byte, at both ends and in @host. In an image: of a row, or of a
                      slice if it has several. */
    size_t
        size; /**< In bytes. In an image: up to the begin of a row or slice, or the image's end. */
    const struct image_shape
        *image;       /**< NULL for buffers. @host is in its row_pitch, slice_pitch. */
    bool user_memory; /**< @host is read and is the program's: what is not there reads as zeroes. */
};

/**
 * Begin a transfer. One end may be NULL (host memory). The ends' io queues belong to the transfer
 * until transfer_destroy. When @total makes it worthwhile, chunks are registered and threads
 * started here, so a mover calls this in PREPARE. A transfer is not thread-safe.
 *
 * @total  Bytes to be transferred, for the choice of chunks and threads; 0 where unknown: then the
 *         first transfer_add chooses.
 * @limits  Copied; what it points to must outlive the transfer.
 * Blocks on the drivers (a few ms the first time a device is measured). Returns 0, -ENOMEM, -EIO.
 */
MUST_CHECK int transfer_create(struct residence *from, struct residence *to, uint64_t total,
                               const struct transfer_limits *limits,
                               struct transfer **ret_transfer);
/**
 * Copy one item. May return before it has arrived; @item's memory objects and bytes must stay until
 * transfer_flush. Blocks while the pipeline is full.
 *
 * Returns 0, -EIO (a driver refused or a command failed), -ENOMEM, -ETIMEDOUT, -ECANCELED: then
 * nothing more is transferred, and transfer_flush returns the same error.
 */
MUST_CHECK int transfer_add(struct transfer *transfer, const struct transfer_item *item);
/** Wait until everything has arrived. */
MUST_CHECK int transfer_flush(struct transfer *transfer);
/** Waits for what is in flight and frees the transfer; in a series, unless something failed, its
 * chunks and threads are kept for the next one. NULL is allowed. */
void transfer_destroy(struct transfer *transfer);
/** Free what @series keeps; it may be used again. Blocks on the drivers. */
void transfer_series_finish(struct transfer_series *series);

/** The driver's function that copies @total bytes directly between its devices, or NULL. */
between_function transfer_between(const struct residence *from, const struct residence *to,
                                  uint64_t total);
/** Fewer bytes go through the host, because setting up the direct way takes longer. Tests lower it.
 */
extern size_t transfer_between_least;

/** Seconds that a transfer of @total bytes takes, by the cost model; either end may be NULL (host
 *  memory). Blocks on the drivers as transfer_create does, the first time. */
double transfer_predict(struct residence *from, struct residence *to, uint64_t total);

/** How a transfer was set up, for logs and benchmarks. */
struct transfer_shape {
    size_t chunk; /**< Chunk size in bytes; 0: drivers read and write the host's memory directly. */
    unsigned chunks;  /**< Chunks in the ring. */
    unsigned threads; /**< Running copy threads; with 0, the caller does everything. */
    bool registered;  /**< The ring is registered with every driver that has a link. */
    bool passes; /**< Directly between devices (between.h): may fail where a transfer through the
                    host would not. */
    double predicted; /**< Seconds predicted by the cost model; 0: not asked. */
};
/** Valid after the first transfer_add, or at once if transfer_create was told the total. */
void transfer_describe(const struct transfer *transfer, struct transfer_shape *ret_shape);

/**
 * Figures of the link of @residence's device: from disk (links.h), else measured, once a process; a
 * guess if that fails. Blocks. Thread-safe.
 */
void transfer_link(struct residence *residence, struct link_figures *ret_figures);

/**
 * Measure the link of @residence's device and the host's memory again, for this process and later
 * ones (links.h). Uses its io queue. Blocks for some milliseconds.
 *
 * Returns 0, -EIO (a driver failed; nothing changes), -ENOMEM, or the error of storing the figures.
 */
MUST_CHECK int transfer_measure(struct residence *residence);

/** The OpenCL error behind the last -EIO, for the reason that an operator reads; 0 if none. */
cl_int transfer_error(const struct transfer *transfer);

/** Copy from memory that the program may unmap meanwhile; missing pages read as zeroes. */
void host_copy_user_memory(char *to, const char *from, size_t size);

/*
 * A bandwidth limit for copies: a token bucket with one token a byte, which fills at the limit's
 * rate and holds BURST_NS worth of tokens. Taking more than it holds incurs a debt, which the taker
 * waits out. It has no clock of its own: callers pass the time, so that tests can choose it.
 */

/** Most tokens that the bucket holds, as nanoseconds of the rate. */
#define THROTTLE_BURST_NS 10000000u

/** Zeroed: no limit. Not thread-safe. */
struct throttle {
    uint64_t rate; /**< Bytes a second; 0: no limit. */
    /** The rate from now on, unless 0; or NULL. Any thread may write it. */
    const _Atomic uint64_t *changed;
    uint64_t paid_ns;  /**< When the debt is paid off. */
    uint64_t slept_ns; /**< Time that its users have waited, in all. */
};

/**
 * Take @bytes, any number. Returns when they may be sent: @now_ns, or later if the bucket held too
 * few tokens.
 */
uint64_t throttle_take(struct throttle *throttle, uint64_t bytes, uint64_t now_ns);
/** When what was taken before may be sent. A rate that changed shortens or extends the wait. */
uint64_t throttle_due(struct throttle *throttle, uint64_t now_ns);
/** Bytes a second at present; 0: no limit. */
uint64_t throttle_rate(const struct throttle *throttle);

#endif
