#ifndef RESEAT_STATE_OBJECT_CONTEXT_H
#define RESEAT_STATE_OBJECT_CONTEXT_H

#include <pthread.h>

#include "state/base/threads/destructor.h"
#include "state/base/threads/gate.h"
#include "state/object/device_clock.h"
#include "state/object/object.h"
#include "state/object/pin.h"
#include "state/object/residence.h"

/*
 * The program's platform, devices and contexts.
 *
 * A virtual device is on one real device, or on none while it is suspended. Every context that
 * holds the virtual device has a residence on that device, shared by virtual devices on the same
 * one.
 */

#define VDEVS 4 /**< Virtual devices of a program, at most. */

struct platform {
    struct object object;
};

struct vdev {
    struct object object; /**< A cl_device_id of the program. */
    uint32_t index;
    struct device
        *_Atomic device;         /**< Where it is; NULL: suspended. Changed with the gate closed. */
    struct device *_Atomic last; /**< Where it was before that. Likewise. */
    struct device *origin; /**< Where it started: what it was promised under --profile native. */
    _Atomic uint32_t moves;
    _Atomic uint64_t last_downtime_ns;
    struct device_clock clock; /**< Of its profiling times. */
    _Atomic bool moving;
    uint64_t granted;        /**< Its part of what the program may have on `device`. By budget.c. */
    bool limited;            /**< Somebody says what it may have. Likewise. */
    uint32_t retries;        /**< Pieces of work that moves wait for: retry.c's, as is... */
    uint64_t retry_until;    /**< ...how long at most. CLOCK_MONOTONIC. */
    struct sub_device *part; /**< Of a sub-device, owned; NULL: a virtual device that moves. */
    struct pins pins;        /**< Its own; those of its contexts count as well. */
};

/** The shared virtual memory allocations of a context, by address. Guarded by svm.c's lock. */
struct svm_table {
    struct svm_block *blocks; /**< Owned. */
    size_t count, reserved;
};

struct context {
    struct object object;
    cl_uint vdev_count;
    _Atomic uint8_t residence_index[VDEVS]; /**< Of each of vdevs[], or RESIDENCE_NONE. Changed
                                               under a closed gate. */
    struct residence *at[RESIDENCES_MAX];   /**< Or NULL. Changed under a closed gate; what a mover
                                               prepares is in no residence_index[] yet. */
    struct vdev *vdevs[VDEVS];              /**< Held. */
    /** What at[] was made ahead on, for a move that may come; or NULL. By movers; read anywhere. */
    struct device *_Atomic ready[RESIDENCES_MAX];
    cl_context_properties *properties; /**< As the program gave them, or NULL. Owned. */
    size_t property_count;             /**< Elements, the final 0 included. */
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *);
    void *notify_data;
    struct destructor *_Atomic destructors; /**< Last registered first. */
    struct pins pins;
    struct svm_table svm;
};

/**
 * The program's one platform and its virtual devices, made at the first call and never freed.
 * @count  1 to VDEVS. 0, -ENOMEM or -EALREADY.
 */
MUST_CHECK int vdevs_init(struct device *const *devices, uint32_t count);
/** Wait until vdevs_init is done. 0, or -ETIMEDOUT (@deadline_ns: CLOCK_MONOTONIC, 0 for none). */
MUST_CHECK int vdevs_wait_init(uint64_t deadline_ns);
extern struct platform *the_platform; /* NULL before vdevs_init */
extern struct vdev *the_vdevs[VDEVS];
extern uint32_t the_vdev_count;

/**
 * Enter the gate with a virtual device of @context on a device; while all are suspended, wait
 * outside the gate: what a suspended virtual device is not needed for goes on without it. Leave
 * with gate_leave. The fast path costs what gate_enter does.
 */
/** For who is inside: with one of @vdevs (bits; 0: any) on a device. */
void context_enter_slow(struct context *context, uint32_t vdevs);
static inline void context_enter(struct context *context)
{
    gate_enter();
    if (UNLIKELY(atomic_load_explicit(&context->residence_index[0], memory_order_relaxed) ==
                 RESIDENCE_NONE))
        context_enter_slow(context, 0);
}
/** Where the virtual devices are now, NULL for a suspended one; waits while all are. Not inside the
 * gate. */
void vdevs_wait(cl_uint count, struct vdev *const *vdevs, struct device **ret_devices);
/** Wake those who wait for a residence. After a resume, with the gate open. */
void context_wake(void);

/** Where objects of this context are made first: with the first virtual device that is on a device.
 * Inside the gate, after context_enter. */
static inline uint8_t context_home(const struct context *context)
{
    uint8_t residence_index =
        atomic_load_explicit(&context->residence_index[0], memory_order_relaxed);
    for (cl_uint i = 1; UNLIKELY(residence_index == RESIDENCE_NONE) && i < context->vdev_count; i++)
        residence_index = atomic_load_explicit(&context->residence_index[i], memory_order_relaxed);
    return residence_index;
}
/** True when a virtual device is in @residence_index: else what is there is a mover's alone, which
 * makes it and takes it apart with the gate open. */
static inline bool context_is_inhabited(const struct context *context, uint8_t residence_index)
{
    bool inhabited = false;
    for (cl_uint i = 0; i < context->vdev_count; i++)
        inhabited = inhabited || atomic_load_explicit(&context->residence_index[i],
                                                      memory_order_relaxed) == residence_index;
    return inhabited;
}
/** The residence at @residence_index; NULL for RESIDENCE_HOST. */
static inline struct residence *context_residence(const struct context *context,
                                                  uint8_t residence_index)
{
    return residence_index == RESIDENCE_HOST ? NULL : context->at[residence_index];
}
/** What becomes of the residence in @residence_index; RESIDENCE_DRAINING where there is none. */
static inline enum residence_life context_life(const struct context *context,
                                               uint8_t residence_index)
{
    return residence_index < RESIDENCES_MAX && context->at[residence_index]
               ? (enum residence_life)atomic_load_explicit(&context->at[residence_index]->life,
                                                           memory_order_acquire)
               : RESIDENCE_DRAINING;
}
/** True when commands run in @residence_index. One that a mover prepares, or left on demand, is
 * none. */
static inline bool context_lives(const struct context *context, uint8_t residence_index)
{
    return context_life(context, residence_index) == RESIDENCE_LIVE;
}
/** True when what is in @residence_index can be read, and stays for as long as it is needed. */
static inline bool context_is_readable(const struct context *context, uint8_t residence_index)
{
    enum residence_life life = context_life(context, residence_index);
    return life == RESIDENCE_LIVE || life == RESIDENCE_SOURCE;
}
/** One context's part in a move of one of its virtual devices: what the classes of its objects are
 * told. */
struct move_context {
    struct context *context; /**< Held. */
    int vdev_index;
    uint8_t from, to; /**< RESIDENCE_HOST: from a suspension, or to one. */
    bool made;        /**< The target residence is ours: it was made for this move. */
    bool leaves;      /**< No other virtual device of the context stays in `from`. */
    bool stays;       /**< Content that `to` lacks stays in `from`: on demand, and `leaves`. */
    bool recovers;    /**< `from` is lost, and what was given to it is given again at `to`. */
    bool returns; /**< `to`, `made` like any other, has content that some virtual device left there.
                   */
    char reason[256]; /**< Why an object cannot be used at `to`; else empty. */
    bool drained; /**< COMMIT: nothing copies any more while host memory is taken from `from`. */
    /** Of a program that did not build at `to`: a line of the log, else empty. */
    char build_log[160];
    /** That was for no fault of the program's: it may build there later. */
    bool build_passing;
};
/** True when maps go along: the driver at `to` maps what is mapped before COMMIT. */
static inline bool move_carries_maps(const struct move_context *move)
{
    return move->to != RESIDENCE_HOST && move->made && !move->returns &&
           (move->leaves || move->from == RESIDENCE_HOST);
}
/** Another virtual device lives at `to`, and the program runs: it makes real objects there itself
 *  when it first uses them. Those that are missing then are made with the gate closed. */
static inline bool move_is_busy(const struct move_context *move)
{
    return !move->made && !the_thread.gate.owner;
}
/** True when no virtual device stays in @residence_index, `from` or `to`: objects that they share
 * leave it.
 */
static inline bool move_empties(const struct move_context *move, uint8_t residence_index)
{
    return residence_index == move->from ? move->leaves : move->made;
}

/** The index of @vdev in @context, or -1. */
int context_vdev_index(const struct context *context, const struct vdev *vdev);

/** True when @vdev is in a residence that is lost. */
bool vdev_is_lost(const struct vdev *vdev);

/** Make a context with a residence for each device its virtual devices are on. Blocks on the
 * drivers. */
cl_int context_create(const cl_context_properties *properties, cl_uint vdev_count,
                      struct vdev *const *vdevs,
                      void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                      void *notify_data, struct context **ret_context);

#endif
