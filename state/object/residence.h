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

#define RESIDENCES_MAX 8              /**< Residences of one context at once. */
#define RESIDENCE_HOST RESIDENCES_MAX /**< Host memory, as the holder of a replica. */
#define RESIDENCE_NONE 0xff           /**< Suspended: nowhere. */

struct context;
struct vdev;

/** What a device does with CL_MEM_USE_HOST_PTR: tried out by its first residence. */
enum host_ptr {
    HOST_PTR_UNTRIED,
    HOST_PTR_COPIED, /**< Maps give other pointers, or other bytes. */
    HOST_PTR_MAPPED, /**< Maps give the pointer, as 5.2.1 demands. */
};

/** What becomes of a residence. Only a loss comes at any time; the rest is a mover's to say. */
enum residence_life {
    RESIDENCE_PREPARING, /**< A mover, or who makes its context, makes it. */
    RESIDENCE_LIVE,      /**< Of a context: commands run there. */
    RESIDENCE_SOURCE,    /**< Its virtual device left it on demand: nothing runs there, and what is
                              not fetched yet is read there (move/fetch.h). */
    RESIDENCE_DRAINING,  /**< No object refers to it any more: it goes with its last reference. */
    RESIDENCE_LOST,      /**< Its device is gone, for good (lost.h). */
};

/** Real objects of one residence that nothing refers to any more, on their way to being released.
 */
struct retired_list {
    struct retired_list *next; /**< Taken from another residence. */
    const cl_icd_dispatch *cl;
    size_t count, capacity;
    struct retired {
        void *real;
        enum object_type type;
        void *kept; /**< For the class's release; or NULL. */
    } items[];
};

/** The programs of ours that a residence may have. */
enum residence_tool_kind {
    RESIDENCE_DIGEST, /**< memory/digest_device.c */
    RESIDENCE_MERGE,  /**< memory/merge_device.c */
    RESIDENCE_TOOLS,
};

/** One of them, with what it needs (memory/device_tool.h, which alone makes it). */
struct residence_tool {
    _Atomic uint8_t state;
    cl_program program;
    cl_kernel kernels[3];
    cl_mem buffers[2];
    void *staging; /**< Where they are read to: a wait that failed may leave a read under way. */
    size_t items;  /**< Of a work-group. */
};

struct residence {
    _Atomic uint32_t refs; /**< The context's table, and each thread that waits in the driver. */
    struct context *owner; /**< In whose table it is; or NULL. Borrowed. */
    struct device *device;
    const cl_icd_dispatch *_Atomic cl; /**< Its driver's; once lost, one that reaches no driver. */
    _Atomic uint8_t life;              /**< enum residence_life. */
    atomic_bool recovered; /**< Lost, and what it had was done again elsewhere; or left whole. */
    bool maps_host_ptr;    /**< HOST_PTR_MAPPED. */
    bool in_place;         /**< And the device works on those very bytes: nothing is ever copied. */
    bool runs_at_once;     /**< Commands run in the call that gives them. */
    bool runs_in_caller;  /**< Commands run in whichever thread waits for them, in one at a time. */
    bool finish_forgets;  /**< clFinish returns at once where another thread flushed before. */
    bool waits_aside;     /**< Threads of ours wait in its driver (await.h). */
    struct vdev *left_by; /**< On demand, and not released since; or NULL. By movers. */
    struct context *_Atomic notified; /**< Who hears what the driver reports; or NULL. */
    cl_context context;
    cl_command_queue io; /**< Ours, in order, with profiling: transfers. Used by movers only. */
    struct group_limits groups;
    struct residence_tool tools[RESIDENCE_TOOLS]; /**< Made when first needed; released with it. */
    struct retired_list *retired; /**< Released with it; NULL: room for none. By movers only. */
    struct residence *next;       /**< In the list of whoever takes it apart. */
};

static inline bool residence_is_lost(const struct residence *residence)
{
    return atomic_load_explicit(&residence->life, memory_order_acquire) == RESIDENCE_LOST;
}
/** It lives that from now on, unless it is lost. */
void residence_lives(struct residence *residence, enum residence_life life);

/**
 * Make a residence for @context (or for nobody, NULL) on @device: the real context and the io
 * queue. The device's first tries out what that does with host pointers. Blocks on the driver (0.25
 * s for a GPU).
 *
 * @ret_error  The driver's word when it returns -EIO; untouched otherwise.
 */
MUST_CHECK int residence_create(struct context *context, struct device *device,
                                struct residence **ret_residence, cl_int *ret_error);
static inline void residence_ref(struct residence *residence)
{
    atomic_fetch_add_explicit(&residence->refs, 1, memory_order_relaxed);
}
/** The last one releases what was retired, the queue and the context; where a lost device's driver
 * hangs everything stays: it may still write to host memory. NULL is allowed. */
void residence_unref(struct residence *residence);

/** How many there are, also of those that nobody lives in any more. Any thread. */
unsigned residence_count(void);

/** Release a program of ours: it is made anew when it is needed. By who took it. */
void residence_tool_finish(struct residence *residence, enum residence_tool_kind kind);

/** Room for @more to be retired. 0 or -ENOMEM (then nothing changed). By a mover. */
MUST_CHECK int residence_reserve(struct residence *residence, size_t more);
/**
 * Nothing refers to @real any more: set it aside, to be released with @residence or with what
 * residence_take_retired takes. Where there is no room it is released at once. By a mover.
 *
 * @real  NULL is allowed.
 * @kept  For the class's release; or NULL.
 */
void residence_retire(struct residence *residence, enum object_type type, void *real, void *kept);
/** Of a residence that stays: move what was set aside to the front of *@list, unless a thread still
 *  waits in the driver: then it is left for the next time. By a mover with the gate closed. */
void residence_take_retired(struct residence *residence, struct retired_list **list);
/** Release all that is in the list. Gate open. NULL is allowed. */
void retired_release(struct retired_list *list);

/**
 * clWaitForEvents and clFinish for a thread of the program: outside the gate (G2), where the caller
 * has a reference to @residence. A driver that runs commands in the thread that waits is entered as
 * for any other call: there, waiting is working, and it is not made for a mover beside it.
 */
cl_int residence_wait(struct residence *residence, cl_uint count, const cl_event *real);
cl_int residence_finish(struct residence *residence, cl_command_queue real);
/** The same for movers and threads of ours. CL_SUCCESS, the driver's error, or once the residence
 * is lost, which ends the wait, what a lost device's driver says (await.c). */
cl_int residence_await_events(struct residence *residence, cl_uint count, const cl_event *real);
cl_int residence_await_queue(struct residence *residence, cl_command_queue real);
/** clFlush from a thread of ours, inside the gate; nothing where that would run commands in it
 * while the program runs others. */
void residence_flush(struct residence *residence, cl_command_queue real);

/** Unmap through the io queue what was mapped with it or another queue. */
cl_int residence_unmap(struct residence *residence, cl_mem real, void *pointer);

/** True for a device that has a link between its memory and the host's. NULL is allowed. */
bool residence_has_link(const struct residence *residence);

/**
 * True when both copy over links of one driver, to different devices: NVIDIA's (580) copies from
 * and to host memory as the oldest of the residences has it that were given that memory, also for
 * the others, and a copy under way faults when that one lets go. NULL is allowed.
 */
bool residence_is_sibling(const struct residence *residence, const struct residence *other);

/** Release one real object; NULL is allowed. */
void residence_release(const cl_icd_dispatch *cl, enum object_type type, void *real);

#endif
