#ifndef RESEAT_STATE_OBJECT_RESIDENCE_H
#define RESEAT_STATE_OBJECT_RESIDENCE_H

#include <stdatomic.h>

#include "state/driver/driver.h"
#include "state/object/object.h"

/*
 * A residence is one real OpenCL context on one real device. A context of the program keeps its
 * residences in a small table, and every object of the context keeps its real handle for each of
 * them at the same index.
 */

#define RESIDENCES_MAX                                                                             \
    63                     /**< Residences of one context at once: with host memory, as            \
                              many as a mask has bits. */
#define RESIDENCES_LEAST 8 /**< A context has room for so many in any case. */
#define RESIDENCE_HOST   RESIDENCES_MAX /**< Host memory, as the holder of a replica. */
#define RESIDENCE_NONE   0xff           /**< Suspended: nowhere. */

/** Its bit in a mask of residences; RESIDENCE_HOST has one too. */
static inline uint64_t residence_bit(uint8_t residence_index)
{
    return UINT64_C(1) << residence_index;
}

struct context;
struct vdev;

/** What a device does with CL_MEM_USE_HOST_PTR: tried out by its first residence. */
enum host_ptr {
    HOST_PTR_UNTRIED,
    HOST_PTR_COPIED, /**< Maps give other pointers, or other bytes. */
    HOST_PTR_MAPPED, /**< Maps give the pointer, as 5.2.1 demands. */
};

/** The states of a residence. A loss may come at any time; all other changes are made by movers. */
enum residence_life {
    RESIDENCE_PREPARING, /**< A mover, or the thread that makes its context, makes it. */
    RESIDENCE_LIVE,      /**< Belongs to a context: commands run there. */
    RESIDENCE_SOURCE, /**< Its virtual device left it on demand: no command runs there, and what is
                         not fetched yet is read from it (move/fetch.c). */
    RESIDENCE_DRAINING, /**< No object refers to it any more: it is released with its last
                           reference. */
    RESIDENCE_LOST,     /**< Its device is gone, for good (lost.h). */
};

/** Real objects of one residence that nothing refers to any more, waiting to be released. */
struct retired_list {
    struct retired_list *next; /**< A list of another residence. */
    const cl_icd_dispatch *cl;
    size_t count, capacity;
    struct retired {
        void *real;
        enum object_type type;
        void *kept; /**< Passed to the class's release; or NULL. */
    } items[];
};

/** Our own device programs that a residence may have. */
enum residence_tool_kind {
    RESIDENCE_DIGEST, /**< memory/digest_device.c */
    RESIDENCE_MERGE,  /**< memory/merge_device.c */
    RESIDENCE_TOOLS,
};

/** One of these programs, with its objects. Only memory/device_tool.h makes it. */
struct residence_tool {
    _Atomic uint8_t state;
    cl_program program;
    cl_kernel kernels[3];
    cl_mem buffers[2];
    void *staging; /**< Memory that results are read to: if a wait failed, a read may still be
                      running. */
    size_t items;  /**< Work-items of a work-group. */
};

struct residence {
    _Atomic uint32_t
        refs; /**< References: the context's table, and each thread that waits in the driver. */
    struct context *owner; /**< The context whose table it is in; or NULL. Borrowed. */
    struct device *device;
    const cl_icd_dispatch
        *_Atomic cl;      /**< Calls of its driver; once lost, a table that reaches no driver. */
    _Atomic uint8_t life; /**< enum residence_life. */
    atomic_bool
        recovered; /**< Lost, and its work was done again elsewhere; or left with all work done. */
    bool maps_host_ptr; /**< HOST_PTR_MAPPED. */
    bool in_place;     /**< maps_host_ptr, and the device works on those very bytes: nothing is ever
                          copied. */
    bool runs_at_once; /**< Commands run in the call that enqueues them. */
    bool runs_in_caller;  /**< Commands run in the threads that wait for them, one at a time. */
    bool holds_back;      /**< Commands begin when their queue is flushed. */
    bool finish_forgets;  /**< clFinish returns at once where another thread flushed before. */
    bool waits_aside;     /**< Helper threads wait in its driver (await.c). */
    struct vdev *left_by; /**< The virtual device whose source it is; or NULL. By movers. */
    struct object_weak notified; /**< Context whose callback gets the driver's reports; or none. */
    uintptr_t number;            /**< What the driver knows it by in its reports. */
    struct residence *listed;    /**< Owned by residence.c. */
    cl_context context;
    cl_command_queue
        io; /**< In-order queue of ours, with profiling, for transfers. Used by movers only. */
    struct group_limits groups;
    struct residence_tool tools[RESIDENCE_TOOLS]; /**< Made when first needed; released with it. */
    struct pinned_slots *_Atomic slots; /**< Of pinned.h, made when first needed; or NULL. */
    struct retired_list *retired; /**< Real objects to be released with it; NULL: no room reserved.
                                     By movers only. */
    struct residence *next;       /**< Next in the list of a mover that takes it apart. */
};

static inline bool residence_is_lost(const struct residence *residence)
{
    return atomic_load_explicit(&residence->life, memory_order_acquire) == RESIDENCE_LOST;
}
/** Set the state, unless it is lost. */
void residence_lives(struct residence *residence, enum residence_life life);

/**
 * Make a residence for @context (or NULL) on @device: the real context and the io queue. The
 * device's first residence also tries out host pointers. Blocks on the driver (0.25 s for a GPU).
 *
 * @ret_error  The driver's error when this returns -EIO; untouched otherwise.
 */
MUST_CHECK int residence_create(struct context *context, struct device *device,
                                struct residence **ret_residence, cl_int *ret_error);
static inline void residence_ref(struct residence *residence)
{
    atomic_fetch_add_explicit(&residence->refs, 1, memory_order_relaxed);
}
/** Drop a reference. The last one releases retired objects, the queue and the context; where a lost
 * device's driver hangs, all stay, since it may still write to host memory. NULL is allowed. */
void residence_unref(struct residence *residence);

/** Number of residences, including those that no virtual device is in. Any thread. */
unsigned residence_count(void);

/** Release a tool; it is made again when needed. By the thread that took it. */
void residence_tool_finish(struct residence *residence, enum residence_tool_kind kind);

/** Reserve room for @more retired objects. 0 or -ENOMEM (nothing changed). By a mover. */
MUST_CHECK int residence_reserve(struct residence *residence, size_t more);
/**
 * Retire @real, to which nothing refers any more: it is released with @residence or through
 * residence_take_retired. Without room it is released at once. By a mover.
 *
 * @real  NULL is allowed.
 * @kept  Passed to the class's release; or NULL.
 */
void residence_retire(struct residence *residence, enum object_type type, void *real, void *kept);
/** For a residence that stays: move its retired objects to the front of *@list, unless a thread
 * still waits in the driver; then they are left for the next time. By a mover with the gate closed.
 */
void residence_take_retired(struct residence *residence, struct retired_list **list);
/** Release all objects in the list. Gate open. NULL is allowed. */
void retired_release(struct retired_list *list);

/**
 * clWaitForEvents and clFinish for a thread of the program: outside the gate (G2), with a reference
 * of the caller's to @residence. Where a driver runs commands in the waiting thread, the wait
 * enters the gate like any other call, because it does the device's work, which must not run beside
 * a mover.
 */
cl_int residence_wait(struct residence *residence, cl_uint count, const cl_event *real);
cl_int residence_finish(struct residence *residence, cl_command_queue real);
/** The same for movers and threads of ours. CL_SUCCESS, the driver's error, or, once the residence
 * is lost, which ends the wait, the error of a lost device's driver (await.c). */
cl_int residence_await_events(struct residence *residence, cl_uint count, const cl_event *real);
cl_int residence_await_queue(struct residence *residence, cl_command_queue real);
/** clFlush from a thread of ours, inside the gate; does nothing where that would run commands in
 * this thread while the program runs others. */
void residence_flush(struct residence *residence, cl_command_queue real);

/** Unmap through the io queue, whichever queue mapped it. */
cl_int residence_unmap(struct residence *residence, cl_mem real, void *pointer);

/** True for a device that has a link between its memory and the host's. NULL is allowed. */
bool residence_has_link(const struct residence *residence);

/**
 * True when both copy over links of one driver, to different devices. NVIDIA's driver (580) copies
 * to and from host memory through the oldest residence that was given that memory, also for the
 * others, and a running copy faults when that residence releases it. NULL is allowed.
 */
bool residence_is_sibling(const struct residence *residence, const struct residence *other);

/** Release one real object; NULL is allowed. */
void residence_release(const cl_icd_dispatch *cl, enum object_type type, void *real);

/*
 * Waits for drivers that end when the residence is lost, even if the driver's own call never
 * returns.
 *
 * A thread cannot be taken out of a driver. So where a device can be lost without the driver
 * reporting it, a helper thread of ours calls the driver, and the caller waits for the helper,
 * which it can leave behind: the helper then ends later, or never. The handles that it uses stay
 * valid, because nothing of such a residence is released (lost.h). Waits for a CPU, which cannot be
 * lost without the process, and waits in drivers that are known to report an error
 * (residence_create), are done by the calling thread itself.
 */

enum device_answer {
    ANSWER_GOOD,
    ANSWER_ERROR,
    ANSWER_NONE, /**< No answer in time. */
};
/** Test the device of @residence, which is not lost, with a command of ours (lost.h). Blocks for
 * @patience_ns at most. ANSWER_GOOD also without a thread or memory for the test. */
enum device_answer await_answer(struct residence *residence, uint64_t patience_ns);

/** A residence was lost: wake those who wait for it. Callable anywhere. */
void await_lost(void);

#endif
