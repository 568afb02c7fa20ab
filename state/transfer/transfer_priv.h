#ifndef RESEAT_STATE_TRANSFER_TRANSFER_PRIV_H
#define RESEAT_STATE_TRANSFER_TRANSFER_PRIV_H

#include <pthread.h>

#include "state/base/clock.h"
#include "state/base/span.h"
#include "state/driver/between.h"
#include "state/driver/cost.h"
#include "state/object/pinned.h"
#include "state/transfer/transfer.h"

/* Pieces of items (transfer_piece.c). */

/** The part of an item that one command copies: a box of a buffer or image. */
struct piece {
    cl_mem from, to;
    bool image;
    bool layered;     /**< An image with a slice pitch: 1D and 2D arrays, 3D. */
    bool row_slices;  /**< Each row is a slice: a 1D array. */
    size_t origin[3]; /**< Axis 0 in bytes for buffers, in elements for images. */
    size_t region[3];
    size_t row;                  /**< Bytes of one row, packed. */
    bool user_memory;            /**< The item's. */
    char *host;                  /**< First byte at the host end, or NULL. */
    size_t host_row, host_slice; /**< Pitches there. */
    size_t size;                 /**< Bytes, packed. */
    size_t counted;              /**< What it adds to the count of bytes that arrived. */
    size_t at;                   /**< Offset, packed, in its slot's memory. */
};

/** Cuts one item into pieces. */
struct walk {
    struct piece whole;
    size_t element;
    size_t next[3]; /**< Elements, relative to whole.origin. */
    uint64_t left;  /**< Packed bytes. */
    uint64_t uncounted;
};

/** @item's bytes and objects are borrowed; its shape and pitches are copied. */
void walk_init(struct walk *walk, const struct transfer_item *item);
/** The next piece of at most @room bytes; false when not even one element fits. walk->left > 0. */
bool walk_next(struct walk *walk, size_t room, struct piece *ret_piece);

/**
 * Enqueue the read or write of @piece, not blocking. @memory holds it packed; NULL: use its host
 * end. Returns an OpenCL error, or CL_SUCCESS and an event that the caller owns.
 */
cl_int piece_read(const struct piece *piece, const cl_icd_dispatch *cl, cl_command_queue queue,
                  char *memory, cl_event *ret_event);
cl_int piece_write(const struct piece *piece, const cl_icd_dispatch *cl, cl_command_queue queue,
                   const char *memory, cl_event *ret_event);

/** Copy the packed bytes [begin, end) of @piece between @memory (its first byte) and its host end.
 * Fresh pages there are made by this thread, within @limits. */
void piece_copy(const struct piece *piece, char *memory, size_t begin, size_t end, bool to_host,
                const struct transfer_limits *limits);

/* Host memory (transfer_host.c). */

/** Cores that this thread may run on, at least 1. */
unsigned host_cores(void);
/** pages_populate() for memory that looks fresh, within @limits (or NULL). A hint. */
void host_populate(char *memory, size_t size, unsigned threads,
                   const struct transfer_limits *limits);
/** Memory for chunks with all pages present (unless @limits ended it), to be freed by pages_give().
 * NULL: out of memory. */
char *host_ring_create(size_t size, unsigned threads, const struct transfer_limits *limits);
/** Drop @memory from the host's caches; a hint. */
void host_flush(const char *memory, size_t size);
/** Stack size of copying threads, in bytes. */
#define HOST_STACK ((size_t)1 << 20)

/* Measured figures (transfer_probe.c). */

/** Figures of the host's memory copies, and of making a registered ring: as transfer_link(). */
void probe_host(struct host_figures *ret_figures);
/** Measures them (transfer_probe_host.c). Blocks. Returns false, with a guess, if there is no
 * memory. */
bool probe_measure_host(struct host_figures *ret_figures);

#define PROBE_ROUNDS       3 /**< Of which the best counts. */
#define PROBE_BANDWIDTH_LO 50e6
#define PROBE_BANDWIDTH_HI 1e12

static inline double probe_seconds(void)
{
    return (double)clock_now_ns() * 1e-9;
}

static inline double probe_clamp(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

/* Slots, and the threads that work on them (transfer_slot.c). */

#define SLOT_PIECES        256
#define PIECE_ALIGN        64 /**< Of a piece in its slot. */
#define PLAIN_SLOTS        4  /**< In flight without a ring, of this many bytes each: */
#define PLAIN_SLOT_LINK    (16u << 20)
#define PLAIN_SLOT_UNIFIED (128u << 20)
#define UNIT_MIN           (128u << 10)
#define PASSED_MOST        PLAIN_SLOT_LINK /**< Of an image at once, on its way past the host. */

/** Times of a slot, for a trace (transfer_trace.c). */
struct slot_trace {
    uint64_t begun_ns, read_ns, staged_ns; /**< Of the current chunk; 0: not traced. */
    /* Of a batch of chunks whose span is not written yet. */
    uint64_t first_ns, last_ns, bytes;
    unsigned chunks;
};

/** A chunk and the pieces in it, or, without memory, a batch of commands. */
struct slot {
    struct slot *next;
    char *memory; /**< NULL: pieces go straight from and to the host end. */
    size_t used;  /**< Bytes of memory, or of all pieces. */
    uint64_t counted;
    unsigned piece_count, event_count;
    size_t unit, handed; /**< Size of the copy's units, and offset of the next one to hand out. */
    unsigned units_left;
    struct slot_trace trace;
    struct piece pieces[SLOT_PIECES];
    cl_event events[2 * SLOT_PIECES]; /**< Of the reads, later of the writes. */
    /** Events of the source where `events` are the target's: complete when those are. */
    cl_event outs[SLOT_PIECES];
    unsigned out_count;
};

struct fifo {
    struct slot *first, *last;
    unsigned count;
};

/** Buffer that images are copied through at one end, between devices. */
struct passed {
    cl_mem buffer; /**< NULL: not needed yet. */
    size_t size;   /**< Taken from the device's budget. */
};

/*
 * The states of a slot: free, filled by the caller, queued (its reads are enqueued), copied by the
 * host's cores, in flight (its last commands are enqueued), free. The caller fills slots and waits
 * for those in flight; threads, or the caller where there are none, wait for reads and copy.
 */
struct transfer {
    struct residence *from, *to;
    struct transfer_limits limits;
    bool planned;
    uint64_t chosen_for; /**< Bytes. */
    struct transfer_shape shape;
    size_t room; /**< Bytes of a slot. */
    unsigned slot_count;
    struct slot *slots;
    struct slot *filling;     /**< Only the caller uses it. */
    between_function between; /**< Set where shape.passes. */
    struct passed passed[2];  /**< For `from` and `to`; only the caller uses them. */
    char *memory;
    size_t memory_size;
    struct pinned pins[2]; /**< Of the memory: for `from` and for `to`. */

    bool copies; /**< Bytes are copied between chunks and the host end. */

    pthread_mutex_t lock;    /**< Guards everything below, and the units of slots in stages. */
    pthread_cond_t progress; /**< For the caller: free, flight. */
    pthread_cond_t work;     /**< For the threads: queued, copying, leading, stopping. */
    struct fifo free, queued, flight;
    struct fifo copying; /**< The first one's units are being handed out. */
    bool leading;        /**< A thread is waiting for the first queued slot's reads. */
    bool stopping;
    int error; /**< The first error; nothing is enqueued after it. */
    cl_int cl_error;

    unsigned thread_count;
    pthread_t threads[COST_THREADS_MAX];

    unsigned trace_id; /**< Identifies its chunks' spans; no other transfer has it now. */
};

/**
 * transfer_create with the chunk size (0: plain, a host end only), chunk count and threads given
 * instead of chosen; for tests and benchmarks.
 */
MUST_CHECK int transfer_create_shaped(struct residence *from, struct residence *to,
                                      const struct transfer_shape *shape,
                                      const struct transfer_limits *limits,
                                      struct transfer **ret_transfer);

void fifo_push(struct fifo *fifo, struct slot *slot);

/** Record @error if it is the first. Takes the lock. Returns the recorded error. */
int transfer_fail(struct transfer *transfer, int error, cl_int cl_error);
/** Wait for a free slot, working on earlier ones where there are no threads. 0 or the recorded
 * error. */
int slot_take(struct transfer *transfer, struct slot **ret_slot);
/** Submit a filled slot; it becomes free again in any case. 0 or the recorded error. */
int slot_submit(struct transfer *transfer, struct slot *slot);
/** Wait until every slot is free. 0 or the recorded error. */
int slots_drain(struct transfer *transfer);
/* Directly between devices (transfer_between.c). */

/** Enqueue all commands of a slot. An OpenCL error, or CL_SUCCESS; the slot then has the target's
 * events. */
cl_int between_enqueue_slot(struct transfer *transfer, struct slot *slot);
/** Release the events of copies out of the slot's images. CL_SUCCESS, or the error of one that
 * failed; nothing of the slot is running then. */
cl_int between_wait_outs(const struct transfer *transfer, struct slot *slot);
/** Free the buffers that images were copied through. */
void between_finish(struct transfer *transfer);

/** Start shape->threads threads, which is set to the number that runs. */
void threads_start(struct transfer *transfer);
void threads_stop(struct transfer *transfer);

/* Spans of chunks, while somebody traces (transfer_trace.c). */

/** An id that no transfer uses, or the shared one if all are used. */
unsigned trace_id_take(void);
void trace_id_give(unsigned id);

/** The slot was submitted. */
static inline void trace_begin(struct slot *slot)
{
    slot->trace.begun_ns = span_begin();
    slot->trace.read_ns = slot->trace.staged_ns = 0;
}

/** The slot has reached the step whose time is @ret_at, a member of its trace. */
static inline void trace_step(const struct slot *slot, uint64_t *ret_at)
{
    if (UNLIKELY(slot->trace.begun_ns != 0))
        *ret_at = clock_now_ns();
}

/** The slot is done: record its span and those of its steps; chunks shorter than TRACE_BATCH_NS
 * share a span. Called by one thread a slot. */
void trace_end(const struct transfer *transfer, struct slot *slot);
/** Record the rest of its batch. */
void trace_flush(const struct transfer *transfer, struct slot *slot);

#endif
