#ifndef RESEAT_STATE_COMMAND_COMMAND_H
#define RESEAT_STATE_COMMAND_COMMAND_H

#include "state/command/event.h"
#include "state/memory/memory.h"

/*
 * Commands and queues.
 *
 * Every enqueue call describes itself as a struct command on its stack and runs it. Usually that is
 * one driver call. A command that waits for something which no driver can wait for (a user event
 * that is not set, a deferred command, another residence's event) is copied to the heap and
 * deferred, with everything behind it on an in-order queue, until its wait list can complete.
 */

/** So many kernels a queue remembers having launched last. */
#define QUEUE_LAUNCHED 4

struct queue {
    struct object object;
    struct context *context; /**< Held. */
    struct vdev *vdev;
    int vdev_index; /**< Index of its virtual device in the context. */
    bool in_order;
    _Atomic uint32_t deferred_count;
    cl_command_queue
        real; /**< The driver's queue, in the residence of vdev_index; NULL while suspended. */
    _Atomic uint64_t order;       /**< Rises with each event: see queue_step. */
    _Atomic uint64_t past;        /**< All commands given up to this order have ended. */
    cl_command_queue next;        /**< The queue made by a mover, in the target. */
    uint8_t next_residence_index; /**< Of `next`. */
    cl_command_queue_properties properties;
    cl_queue_properties *property_list; /**< As passed by the program, with the final 0; or NULL. */
    size_t property_count;
    struct deferred *deferred_first, *deferred_last; /**< Guarded by the engine's lock. */
    uint64_t deferred_serial; /**< Guarded by the engine's lock: serial of the last one added. */
    bool pumping; /**< Guarded by the engine's lock: a thread is issuing deferred commands. */
    unsigned
        passing; /**< Guarded by the engine's lock: its copies between residences (elsewhere.h). */
    /** Its commands are tracked (defer_track_begin). Guarded by the engine's lock, like the next.
     */
    bool tracked;
    struct queue *tracked_next;
    uint64_t settled; /**< Used by journal_settle: the last pass that found later commands to have
                         ended. */
    /** For reports only: a slot a kernel, which the next kernel of the same slot takes over. */
    struct {
        const char *_Atomic kernel; /**< NULL: none. Never freed (pace.h). */
        _Atomic uint64_t order;     /**< The queue's, after its last launch. */
    } launched[QUEUE_LAUNCHED];
};

static inline struct queue *queue_get(cl_command_queue handle)
{
    return object_get(handle, OBJECT_QUEUE);
}

/*
 * Tells which commands a successful wait covered, whatever their driver reports afterwards. A
 * command reads the order after it was given to the driver. A wait steps the order before it
 * begins, or before the command it waits for is given: it covers all commands that read no more
 * than the order before the step. (The driver's own lock on its queue is between the two; all
 * interleavings are checked in tests/model/past.pml.)
 */

/** Step the order. Returns the largest order that commands given before can have read. */
static inline uint64_t queue_step(struct queue *queue)
{
    return atomic_fetch_add_explicit(&queue->order, 1, memory_order_acq_rel);
}
static inline uint64_t queue_order(const struct queue *queue)
{
    return atomic_load_explicit(&queue->order, memory_order_relaxed);
}
/** All commands given to the driver before queue_step returned @order have ended. */
static inline void queue_ended(struct queue *queue, uint64_t order)
{
    uint64_t past = atomic_load_explicit(&queue->past, memory_order_relaxed);
    while (past < order &&
           !atomic_compare_exchange_weak_explicit(&queue->past, &past, order, memory_order_release,
                                                  memory_order_relaxed))
        ;
}
static inline bool queue_is_past(const struct queue *queue, const struct event *event)
{
    return atomic_load_explicit(&event->given, memory_order_relaxed) <=
           atomic_load_explicit(&queue->past, memory_order_acquire);
}

/** A kernel called @kernel, of a struct pace, was launched. */
static inline void queue_note_launch(struct queue *queue, const char *kernel)
{
    size_t slot = ((uintptr_t)kernel >> 4) % QUEUE_LAUNCHED;
    atomic_store_explicit(&queue->launched[slot].kernel, kernel, memory_order_relaxed);
    atomic_store_explicit(&queue->launched[slot].order, queue_order(queue), memory_order_relaxed);
}
/** The kernels whose launches are not known to have ended. Returns how many. */
size_t queue_launched(const struct queue *queue, const char *ret_kernels[QUEUE_LAUNCHED]);
/** They ended. */
void queue_launched_ended(struct queue *queue);

cl_int queue_create(struct context *context, struct vdev *vdev,
                    cl_command_queue_properties properties, const cl_queue_properties *list,
                    struct queue **ret_queue);
/**
 * True when @queue is the program's only queue, and in order: then creating another one waits until
 * queue_alone_end. Any thread, inside the gate or not.
 */
bool queue_alone_begin(const struct queue *queue);
void queue_alone_end(void);
/** A queue is created: returns once no launch runs that needs the only queue, and none begins any
 * more. */
void queue_begin_beside_others(void);
/** It is destroyed, or could not be created. */
void queue_end_beside_others(void);
/** clFlush, clFinish. */
cl_int queue_flush(struct queue *queue);
cl_int queue_finish(struct queue *queue);

#define COMMAND_USES 8

struct command;
struct pieces; /* pieces.h */

/** Narrow @range, which is all bytes of uses[@use], to those that @command reads or writes. */
typedef void command_ranger(const struct command *command, unsigned use, struct range *range);

struct command_ops {
    cl_command_type type;
    size_t size; /**< Size of the struct that begins with struct command. */
    /** Give the command to the driver; inside the gate. Real objects are at index @residence_index.
     */
    cl_int (*issue)(struct command *command, struct residence *residence, uint8_t residence_index,
                    cl_command_queue queue, cl_uint waits, const cl_event *wait_list,
                    cl_event *ret_event);
    /** Called after the command was copied to the heap with memcpy: copy what the program may
     * change or free after the call returns, and hold the objects. CL_SUCCESS or the error for the
     * program's call. NULL, as is `drop`: there is nothing but the objects in uses[]. */
    cl_int (*defer)(struct command *command);
    /** Undo defer: after a deferred command was issued or given up. */
    void (*drop)(struct command *command);
    /** A deferred command is given up, because what it waited for failed; called before drop. Or
     * NULL. */
    void (*cancel)(struct command *command);
    /** Put the objects that `more` returns into uses[], for later calls of command_use; inside the
     * gate. Or NULL. */
    void (*gather)(struct command *command);
    command_ranger *range; /**< NULL: all bytes of each object are used. */
    /** Size of the units that it writes in the object that command_use returned for cursor @use; 0:
     * not known. For deferred commands. Or NULL. */
    size_t (*element)(const struct command *command, unsigned use);
    /** Prepare what is not a memory object in the residence; NULL: nothing to do. COMMAND_ABSENT:
     * call bring first. */
    cl_int (*ready)(struct command *command, struct residence *residence, uint8_t residence_index);
    /** For a command that is given in pieces (pieces.h), which is deferred from the beginning: its
     * progress. NULL for all others. */
    struct pieces *(*pieces)(struct command *command);
    /** After the driver refused it with CL_OUT_OF_RESOURCES: true when the device's limits are the
     * cause, so that freeing memory would not help. Inside the gate. Or NULL. */
    bool (*exceeds)(const struct command *command, struct residence *residence,
                    uint8_t residence_index);
    /** First step of bringing (upcalls.h), outside the gate; it may move the program. Or NULL. */
    void (*relocate)(struct command *command);
    /** Last step of bringing, with the gate closed and every memory object ready in the residence.
     * Or NULL. */
    cl_int (*bring)(struct command *command, uint8_t residence_index);
    /**
     * For the journal: make a command that has the same effect again, deferred and on the heap,
     * with the bytes that it writes. Both are owned by the caller. 0 or -errno. NULL: the command
     * itself, as `defer` makes it.
     */
    int (*record)(const struct command *command, struct command **ret_command, char **ret_bytes,
                  size_t *ret_size);
    /** For a command that reads one range of bytes into the program's memory: where its address is
     * stored, so that it can be changed. Or NULL. */
    void **(*output)(struct command *command, size_t *ret_size);
    /** False: the recorded command would have another effect by now. Or NULL. */
    bool (*is_current)(const struct command *command);
    const char *unrepeatable; /**< Why it cannot be given again, or NULL. */
    bool reads_to_host;       /**< It only reads uses[0] into the program's memory, so it may run in
                                 another residence than its queue's. */
    bool launches;            /**< It launches a kernel: under a power cap it is deferred until
                                 there is power (power.h). */
    bool waits_for_all;       /**< Marker or barrier: with no wait list, waits for all before it. */
    bool blocks_later;        /**< Barrier: all after it wait for it. */
};

struct command {
    const struct command_ops *ops;
    struct queue *queue;
    struct memory *uses[COMMAND_USES];
    uint8_t use_count;
    uint8_t writes; /**< Bit i: uses[i] gets a new version. */
    bool wait_list_empty;
    bool stays;     /**< It could not read elsewhere (elsewhere.h): all that it uses is brought. */
    cl_int refused; /**< Last error of bringing. */
    cl_int
        shortage; /**< Error of the driver when it had no room for the command; else CL_SUCCESS. */
    uint8_t spills;   /**< How often the policy told it to spill when it asked for room. */
    uint8_t squeezes; /**< Number of spills after driver errors, each larger than before; after the
                         last, the policy is asked. */
    uint64_t residency_token; /**< The residency token that it holds; 0: none. */
    /** For kernels and migrations, which may have many objects: NULL, or returns the next object
     * from *cursor (0 at first) on, NULL after the last. */
    struct memory *(*more)(const struct command *command, unsigned *cursor, bool *ret_writes);
};

/** Reset the record of errors and spills. */
static inline void command_begin_anew(struct command *command)
{
    command->refused = CL_SUCCESS;
    command->shortage = CL_SUCCESS;
    command->spills = 0;
    command->squeezes = 0;
}

/** Initialise a command without objects. Unlike an initialiser this does not clear uses[], which
 * would take longer than everything else. */
static inline void command_init(struct command *command, const struct command_ops *ops,
                                struct queue *queue)
{
    command->ops = ops;
    command->queue = queue;
    command->use_count = 0;
    command->writes = 0;
    command->stays = false;
    command_begin_anew(command);
    command->residency_token = 0;
    command->more = NULL;
}

/**
 * Run a command: the body of every enqueue entry point.
 *
 * @blocking  Return after it ended (waits in the driver, outside the gate).
 * @ret_event  For the program, or NULL.
 * Returns the specified error for a bad wait list, else the driver's error.
 */
cl_int command_run(struct command *command, bool blocking, cl_uint waits, const cl_event *wait_list,
                   cl_event *ret_event);

/** Of a command that is a marker for its driver: struct command_ops.issue. */
cl_int command_marker_issue(struct command *command, struct residence *residence,
                            uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                            const cl_event *wait_list, cl_event *ret_event);

/** Call struct command_ops.defer, or .drop. */
cl_int command_defer(struct command *command);
void command_drop(struct command *command);
/** Hold the objects in uses[], as command_defer() does where there is no .defer. */
void command_hold_uses(const struct command *command);

/** The same for a command that is given in pieces. Does not block on the device. */
cl_int command_run_in_pieces(struct command *command, cl_uint waits, const cl_event *wait_list,
                             cl_event *ret_event);

/** Value of `squeezes` after which everything else has been spilled by this one. */
#define COMMAND_SQUEEZES 5

/** @command cannot run in @residence_index yet: some object of it has no latest replica there (R2).
 */
#define COMMAND_ABSENT 1

struct memory *command_use_more(const struct command *command, unsigned *cursor, bool *ret_writes);
/** The next memory object that @command uses; *cursor starts at 0. NULL after the last. */
static inline struct memory *command_use(const struct command *command, unsigned *cursor,
                                         bool *ret_writes)
{
    if (*cursor < command->use_count) {
        unsigned i = (*cursor)++;
        *ret_writes = (command->writes >> i) & 1;
        return command->uses[i];
    }
    return UNLIKELY(command->more != NULL) ? command_use_more(command, cursor, ret_writes) : NULL;
}
/** The range of the root's bytes that @command uses in @memory, which command_use returned for
 * cursor @use. */
struct range command_range(const struct command *command, unsigned use,
                           const struct memory *memory);
/**
 * CL_SUCCESS: it can be given to @residence_index with command_issue at once. Else COMMAND_ABSENT,
 * or the error for the program. Inside the gate.
 */
cl_int command_ready(struct command *command, struct residence *residence, uint8_t residence_index);
/** Give a ready command to the driver, with those events of @wait_list that the driver knows.
 * Inside the gate. *ret_real is set if @ret_real is not NULL. */
cl_int command_issue(struct command *command, struct residence *residence, uint8_t residence_index,
                     cl_uint waits, struct event *const *wait_list, cl_event *ret_real);
/** The same in @queue, a real one of the same residence in place of the command's. */
cl_int command_issue_in(struct command *command, struct residence *residence,
                        uint8_t residence_index, cl_command_queue queue, cl_uint waits,
                        struct event *const *wait_list, cl_event *ret_real);
/** Finish every real queue of @context in @residence_index. By a mover, with the gate closed. */
cl_int queue_drain(struct context *context, uint8_t residence_index);
/** Drain the siblings of @residence (residence_is_sibling) before its host memory is released. By a
 * mover, with the gate closed. False where there are none. */
bool queue_drain_siblings(const struct residence *residence);

/*
 * Deferred commands (defer.c).
 */

/**
 * True when @command must be deferred: it waits for what no driver can wait for, or for something
 * that failed, or comes behind a deferred command. Inside the gate.
 */
bool defer_needed(const struct command *command, uint8_t residence_index, cl_uint waits,
                  struct event *const *wait_list);
/**
 * Defer a copy of @command behind @wait_list; @event is its event, or NULL. Inside the gate.
 * CL_SUCCESS, or the error for the program; then nothing is deferred.
 */
cl_int defer_add(struct command *command, cl_uint waits, struct event *const *wait_list,
                 struct event *event);
/**
 * Have the commands of all queues deferred and kept on their lists until they have ended, so that
 * it is known what the devices have been given: launches may be placed (place.h). That goes on
 * until nothing is deferred any more, and at least until defer_track_end. False: it is not possible
 * now. Outside the gate and every lock; waits for threads inside, a few milliseconds at most.
 */
MUST_CHECK bool defer_track_begin(void);
void defer_track_end(void);
/** A queue is about to be published, inside the gate; one is destroyed. */
void defer_track_queue(struct queue *queue);
void defer_forget_queue(struct queue *queue);
/** Issue all deferred commands that became ready. Outside the gate and every lock; blocks on the
 * device, the policy, and moves. */
void defer_pump(void);
/** The same on a callback thread, for callers that must not wait for a move or for the policy,
 * which issuing may need. From anywhere. */
void defer_pump_soon(void);
/** Wait for engine_changed, with engine_lock; may return early. Once the process ends, the caller
 * also issues what is ready, because no thread of ours does: engine_lock is released meanwhile. */
void defer_await_change(void);
/** The command of @queue that is being given in pieces, with its event, or NULL. With engine_lock.
 * *ret_busy: a thread is giving a piece, so what it changes of the command must not be read. */
struct command *defer_in_pieces(const struct queue *queue, struct event **ret_event,
                                bool *ret_busy);
/** True when some command of any queue was not yet given to a driver. Gate closed. */
bool defer_any(void);
/** Wait until no command enqueued before now is deferred in @queue. Outside the gate. */
void defer_wait_queue(struct queue *queue);
/** Wait until @event is no longer DEFERRED. Outside the gate. */
void defer_wait_event(struct event *event);

/*
 * The residency token: while a command holds it, no other command may have its objects spilled
 * again, until it was given to the driver. A move releases the token.
 *
 * It belongs to a command, not to a thread: a deferred command may be given to the driver by
 * another thread than the one that had its objects brought.
 */

/** Blocks; outside the gate. */
void residency_token_take(struct command *command);
bool residency_token_has(const struct command *command);
void residency_token_release(struct command *command);
/** The serial number of the token that is held now; 0: none is. */
uint64_t residency_token_current(void);
/** Release the token with that number, if it is still held. Any thread. */
void residency_token_release_of(uint64_t serial);

struct kernel;
struct launch_space;
/**
 * clEnqueueNDRangeKernel and clEnqueueTask (@type tells which), with a @space that was checked
 * against the kernel and against what the program was told about its device. If the present device
 * cannot run the launch (its local size, its memory), the program is moved back to a device that
 * could, while the call blocks, and the launch is tried again there. A deferred launch does the
 * same when its turn comes.
 */
cl_int launch_run(struct queue *queue, struct kernel *kernel, cl_command_type type,
                  const struct launch_space *space, cl_uint waits, const cl_event *wait_list,
                  cl_event *ret_event);

/* The commands that map and unmap; mapping.h has the mappings themselves. */

/**
 * clEnqueueMapBuffer (origin[0], region[0] in bytes, the others 0 and 1) and clEnqueueMapImage.
 * Outputs may be NULL; they are untouched on failure.
 */
cl_int map_enqueue(struct queue *queue, struct memory *memory, cl_map_flags flags,
                   const size_t origin[3], const size_t region[3], bool blocking, cl_uint waits,
                   const cl_event *wait_list, cl_event *ret_event, size_t *ret_row_pitch,
                   size_t *ret_slice_pitch, void **ret_pointer);
/** clEnqueueUnmapMemObject. */
cl_int map_unmap(struct queue *queue, struct memory *memory, void *pointer, cl_uint waits,
                 const cl_event *wait_list, cl_event *ret_event);

/** Checked arguments of clEnqueueNativeKernel. */
struct native_call {
    void(CL_CALLBACK *function)(void *);
    const void *args;
    size_t size; /**< Bytes of @args. */
    cl_uint count;
    struct memory *const *objects; /**< Buffers; handles are the objects. */
    const void *const *locations;  /**< Positions in @args for the objects' addresses. */
};

/**
 * clEnqueueNativeKernel (5.10). It pins the context, because the function gets device addresses and
 * may keep them.
 *
 * The driver calls the function at any time and in any thread, perhaps inside an entry point of
 * ours; it still runs outside the gate (G3).
 *
 * @ret_stray  As in pin_enter.
 */
cl_int native_enqueue(struct queue *queue, const struct native_call *call, cl_uint waits,
                      const cl_event *wait_list, cl_event *ret_event, struct vdev **ret_stray);

#endif
