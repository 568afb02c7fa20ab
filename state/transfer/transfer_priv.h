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

/** A part of an item that one command moves: a box of a buffer or image. */
struct piece {
    cl_mem from, to;
    bool image;
    bool layered;     /**< An image whose slices have a pitch: 1D and 2D arrays, 3D. */
    bool row_slices;  /**< Whose slices are its rows: a 1D array. */
    size_t origin[3]; /**< Axis 0 in bytes for buffers, in elements for images. */
    size_t region[3];
    size_t row;                  /**< Bytes of one row, packed. */
    bool user_memory;            /**< The item's. */
    char *host;                  /**< Its first byte at the host end, or NULL. */
    size_t host_row, host_slice; /**< Pitches there. */
    size_t size;                 /**< Bytes, packed. */
    size_t counted;              /**< What it adds to the bytes that arrived. */
    size_t at;                   /**< Where it lies, packed, in its slot's memory. */
};

/** Cuts one item into pieces. */
struct walk {
    struct piece whole;
    size_t element;
    size_t next[3]; /**< Elements, relative to whole.origin. */
    uint64_t left;  /**< Packed bytes. */
    uint64_t uncounted;
};

/** @item is borrowed; not its shape nor its pitches, only its bytes and objects. */
void walk_init(struct walk *walk, const struct transfer_item *item);
/** The next piece of at most @room bytes; false when not even one element fits. walk->left > 0. */
bool walk_next(struct walk *walk, size_t room, struct piece *ret_piece);

/**
 * Enqueue the read or write of @piece, not blocking. @memory is where it lies packed; NULL: at its
 * host end. An OpenCL error, or CL_SUCCESS and an event that the caller owns.
 */
cl_int piece_read(const struct piece *piece, const cl_icd_dispatch *cl, cl_command_queue queue,
                  char *memory, cl_event *ret_event);
cl_int piece_write(const struct piece *piece, const cl_icd_dispatch *cl, cl_command_queue queue,
                   const char *memory, cl_event *ret_event);

/** Copy the packed bytes [begin, end) of @piece between @memory (its first byte) and its host end,
 * whose fresh pages are made within @limits, by this thread. */
void piece_copy(const struct piece *piece, char *memory, size_t begin, size_t end, bool to_host,
                const struct transfer_limits *limits);

/* Host memory (transfer_host.c). */

/** Cores that this thread may run on, at least 1. */
unsigned host_cores(void);
/** pages_populate() of what looks fresh, within @limits, or NULL. A hint. */
void host_populate(char *memory, size_t size, unsigned threads,
                   const struct transfer_limits *limits);
/** Memory for chunks, present unless @limits ended before, for pages_give(). NULL: there is none.
 */
char *host_ring_create(size_t size, unsigned threads, const struct transfer_limits *limits);
/** Have no cache of the host's keep what is there; a hint. */
void host_flush(const char *memory, size_t size);
/** Of copying threads, bytes. */
#define HOST_STACK ((size_t)1 << 20)

/* Measured figures (transfer_probe.c). */

/**
 * Of the device of @residence: what is known of it on disk (links.h), else measured, once a
 * process; a guess where that fails. Blocks.
 */
void probe_link(struct residence *residence, struct link_figures *ret_figures);
/** Memory copies, and the making of a registered ring; the same. */
void probe_host(struct host_figures *ret_figures);
/** Measure that (transfer_probe_host.c). Blocks. A guess, and false, where there is no memory. */
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

/** What a trace needs to know of a slot (transfer_trace.c). */
struct slot_trace {
    uint64_t begun_ns, read_ns, staged_ns; /**< Of the chunk under way; 0: nobody traces. */
    /* Of the chunks of a batch, of which there is no span yet. */
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
    unsigned stage;      /**< In which it is, or the first that it comes to. */
    size_t unit, handed; /**< A stage's units, and how far they were handed out. */
    unsigned units_left;
    struct slot_trace trace;
    struct piece pieces[SLOT_PIECES];
    cl_event events[2 * SLOT_PIECES]; /**< Of the reads, later of the writes. */
    /** Of the source's, where `events` are the target's: ended once those have. */
    cl_event outs[SLOT_PIECES];
    unsigned out_count;
};

struct fifo {
    struct slot *first, *last;
    unsigned count;
};

/** What images pass through at one end, on their way past the host. */
struct passed {
    cl_mem buffer; /**< NULL: it was not needed yet. */
    size_t size;   /**< Taken from the device's budget. */
};

/** What cores of the host do to each chunk between its read and its write. */
struct stage {
    /** The part of the slot's memory that a unit covers. No lock is held. */
    void (*run)(const struct transfer *transfer, struct slot *slot, size_t begin, size_t end);
    struct fifo waiting; /**< Under the lock. The first one's units are being handed out. */
    pthread_cond_t work; /**< For its threads: waiting, stopping; the first's: queued, leading. */
    unsigned threads;    /**< That run. */
};

/** A copy, and the work that the caller wants done. */
#define STAGES_MAX 2

struct stage_thread {
    pthread_t thread;
    struct transfer *transfer;
    unsigned stage;
};

/*
 * A slot's way: free, filled by the caller, queued (its reads are enqueued), through the stages, in
 * flight (its last commands are enqueued), free. The caller fills and waits for what is in flight;
 * threads, or the caller where there are none, do what lies between. The first stage's threads
 * also wait for reads, even where there is no stage.
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
    struct slot *filling;     /**< The caller's. */
    between_function between; /**< Set where shape.passes. */
    struct passed passed[2];  /**< Of `from` and of `to`; the caller's. */
    char *memory;
    size_t memory_size;
    struct pinned pins[2]; /**< Of the memory: for `from` and for `to`. */

    struct stage stages[STAGES_MAX]; /**< In the order of the way. */
    unsigned stage_count;

    pthread_mutex_t lock;    /**< Guards what follows, and units of slots in stages. */
    pthread_cond_t progress; /**< For the caller: free, flight. */
    struct fifo free, queued, flight;
    bool leading; /**< A thread waits for the first queued slot's reads. */
    bool stopping;
    int error; /**< The first; nothing is enqueued after it. */
    cl_int cl_error;

    unsigned thread_count;
    struct stage_thread threads[COST_THREADS_MAX];

    unsigned trace_id; /**< Of its chunks' spans. No other transfer has it now. */
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

/** Keep the first error. Takes the lock. Returns the error kept. */
int transfer_fail(struct transfer *transfer, int error, cl_int cl_error);
/** Wait for a free slot, doing or waiting for what stands before it. 0 or the error kept. */
int slot_take(struct transfer *transfer, struct slot **ret_slot);
/** Send a filled slot on its way. It comes back whatever happens. 0 or the error kept. */
int slot_submit(struct transfer *transfer, struct slot *slot);
/** Wait until every slot is free. The error kept, or 0. */
int slots_drain(struct transfer *transfer);
/* Past the host (transfer_between.c). */

/** Enqueue all of a slot. An OpenCL error, or CL_SUCCESS; the events of both are the slot's, as far
 * as they are the target's. */
cl_int between_enqueue_slot(struct transfer *transfer, struct slot *slot);
/** Release the events of what the slot's images were copied out by. CL_SUCCESS, or how one of them
 * failed; nothing of it is under way then. */
cl_int between_wait_outs(const struct transfer *transfer, struct slot *slot);
/** Give back what images passed through. */
void between_finish(struct transfer *transfer);

/** What the stages of a transfer are: shape->chunk is known. */
void stages_init(struct transfer *transfer);
/**
 * Start the threads of all stages: shape->threads that copy, shape->workers, and set both to how
 * many run. None at all when the system refuses one that is its stage's only one.
 */
void threads_start(struct transfer *transfer);
void threads_stop(struct transfer *transfer);

/* Spans of chunks, while somebody traces (transfer_trace.c). */

/** One that no transfer has, or that of all for which there is none. */
unsigned trace_id_take(void);
void trace_id_give(unsigned id);

/** The slot is on its way. */
static inline void trace_begin(struct slot *slot)
{
    slot->trace.begun_ns = span_begin();
    slot->trace.read_ns = slot->trace.staged_ns = 0;
}

/** It has come to @ret_at, a member of its trace. */
static inline void trace_step(const struct slot *slot, uint64_t *ret_at)
{
    if (UNLIKELY(slot->trace.begun_ns != 0))
        *ret_at = clock_now_ns();
}

/** It is through: its span is kept, with those of its steps; of chunks that take less than
 *  TRACE_BATCH_NS one of several. By one thread a slot. */
void trace_end(const struct transfer *transfer, struct slot *slot);
/** Keep what is left of its batch. */
void trace_flush(const struct transfer *transfer, struct slot *slot);

#endif
