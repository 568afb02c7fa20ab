#ifndef RESEAT_STATE_OBJECT_CONTEXT_H
#define RESEAT_STATE_OBJECT_CONTEXT_H

#include <pthread.h>

#include "state/base/threads/callback.h"
#include "state/base/threads/gate.h"
#include "state/base/vdevs.h"
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

struct platform {
    struct object object;
};

struct vdev {
    struct object object; /**< A cl_device_id of the program. */
    uint32_t index;
    struct device
        *_Atomic device; /**< Its real device; NULL: suspended. Changed with the gate closed. */
    struct device *_Atomic last; /**< The device before that. Changed with the gate closed. */
    struct device *origin; /**< The device where it started, whose properties the program was told
                              under --profile native. */
    _Atomic uint32_t moves;
    _Atomic uint64_t last_downtime_ns;
    struct device_clock clock; /**< Clock of its profiling times. */
    _Atomic bool moving;
    uint64_t granted; /**< Its share of what the program may have on `device`. Owned by budget.c. */
    bool limited;     /**< The agent limits what it may have. Owned by budget.c. */
    uint32_t retries; /**< Operations that moves wait for; owned by retry.c, like the next field. */
    uint64_t retry_until;    /**< When moves stop waiting for them. CLOCK_MONOTONIC. */
    struct sub_device *part; /**< Of a sub-device, owned; NULL: a virtual device that moves. */
    uint64_t home_ended_ns;  /**< When the last launch that could be placed ended on `device`.
                                Guarded by engine_lock, like the next. */
    const void *home_ended;  /**< The queue that it was of; only compared. */
    struct pins pins;        /**< Pins of the device itself; those of its contexts count as well. */
};

/** The shared virtual memory allocations of a context, by address. Guarded by svm.c's lock. */
struct svm_table {
    struct svm_block *blocks; /**< Owned. */
    size_t count, reserved;
};

struct context {
    struct object object;
    cl_uint vdev_count;
    _Atomic uint8_t residence_index[VDEVS]; /**< Residence of each of vdevs[], or RESIDENCE_NONE.
                                               Changed under a closed gate. */
    uint8_t residences;        /**< Elements of at[], ready[], and of the tables that the context's
                                  objects have by residence. Chosen when it is created. */
    struct residence **at;     /**< Owned; elements may be NULL. Changed under a closed gate, except
                                  that a mover adds a residence that no residence_index[] refers to
                                  yet. */
    struct vdev *vdevs[VDEVS]; /**< Held. */
    /** Owned. Device of each residence that was prewarmed for a possible move; or NULL. Written by
     * movers, read anywhere. */
    struct device *_Atomic *ready;
    cl_context_properties *properties; /**< As the program gave them, or NULL. Owned. */
    size_t property_count;             /**< Elements, the final 0 included. */
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *);
    void *notify_data;
    struct destructor *_Atomic destructors; /**< Last registered first. */
    struct pins pins;
    struct svm_table svm;
};

/**
 * Make the program's one platform and its virtual devices, at the first call. They are never freed.
 * @count  1 to VDEVS. Returns 0, -ENOMEM or -EALREADY.
 */
MUST_CHECK int vdevs_init(struct device *const *devices, uint32_t count);
/** Wait until vdevs_init is done. 0, or -ETIMEDOUT (@deadline_ns: CLOCK_MONOTONIC, 0 for none). */
MUST_CHECK int vdevs_wait_init(uint64_t deadline_ns);
extern struct platform *the_platform; /* NULL before vdevs_init */
extern struct vdev *the_vdevs[VDEVS];
extern _Atomic uint32_t the_vdev_count; /* read by vdevs_count() */
/** Number of virtual devices; 0 before vdevs_init. The thread that starts the program sets it, and
 * other threads may read it at the same time: what it counts in the_vdevs can be read then. */
static inline uint32_t vdevs_count(void)
{
    return atomic_load_explicit(&the_vdev_count, memory_order_acquire);
}

/** True when none of @vdevs (bits; 0: all of the context's) is on a device. */
bool context_is_suspended(const struct context *context, uint32_t vdevs);
/** Leave and re-enter the gate until one of @vdevs (bits; 0: any) is on a device. Called inside the
 * gate. */
void context_enter_slow(struct context *context, uint32_t vdevs);
/**
 * Enter the gate with at least one virtual device of @context on a device. While all are suspended,
 * waits outside the gate. Leave with gate_leave. The fast path costs what gate_enter does.
 */
static inline void context_enter(struct context *context)
{
    gate_enter();
    if (UNLIKELY(atomic_load_explicit(&context->residence_index[0], memory_order_relaxed) ==
                 RESIDENCE_NONE))
        context_enter_slow(context, 0);
}
/** The devices where the virtual devices are now, NULL for a suspended one; waits while all are
 * suspended. Not inside the gate. */
void vdevs_wait(cl_uint count, struct vdev *const *vdevs, struct device **ret_devices);
/** Wake threads that wait for a residence. After a resume, with the gate open. */
void context_wake(void);

/** Index of the residence where new objects of this context are made first: that of the first
 * virtual device that is on a device. Inside the gate, after context_enter. */
static inline uint8_t context_home(const struct context *context)
{
    uint8_t residence_index =
        atomic_load_explicit(&context->residence_index[0], memory_order_relaxed);
    for (cl_uint i = 1; UNLIKELY(residence_index == RESIDENCE_NONE) && i < context->vdev_count; i++)
        residence_index = atomic_load_explicit(&context->residence_index[i], memory_order_relaxed);
    return residence_index;
}
/** True when a virtual device is in @residence_index. Otherwise only a mover uses the residence,
 * and makes and releases it with the gate open. */
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
/** State of the residence in @residence_index; RESIDENCE_DRAINING where there is none. */
static inline enum residence_life context_life(const struct context *context,
                                               uint8_t residence_index)
{
    return residence_index < context->residences && context->at[residence_index]
               ? (enum residence_life)atomic_load_explicit(&context->at[residence_index]->life,
                                                           memory_order_acquire)
               : RESIDENCE_DRAINING;
}
/** True when commands run in @residence_index: not in one that a mover prepares, nor in one left on
 * demand. */
static inline bool context_lives(const struct context *context, uint8_t residence_index)
{
    return context_life(context, residence_index) == RESIDENCE_LIVE;
}
/** True when replicas in @residence_index can be read and stay as long as they are needed. */
static inline bool context_is_readable(const struct context *context, uint8_t residence_index)
{
    enum residence_life life = context_life(context, residence_index);
    return life == RESIDENCE_LIVE || life == RESIDENCE_SOURCE;
}
/** True when replicas in @residence_index are kept: not on a lost device, nor in a residence that
 * was made ahead of a move, which no command reads and which may be released at any time. */
static inline bool context_keeps(const struct context *context, uint8_t residence_index)
{
    enum residence_life life = context_life(context, residence_index);
    return life != RESIDENCE_DRAINING && life != RESIDENCE_LOST &&
           !atomic_load_explicit(&context->ready[residence_index], memory_order_relaxed);
}
/** One context in a move of one of its virtual devices, as passed to the classes of its objects. */
struct move_context {
    struct context *context; /**< Held. */
    int vdev_index;
    uint8_t from, to; /**< RESIDENCE_HOST: a resume, or a suspend. */
    bool made;        /**< The move owns the target residence: it was made for this move. */
    bool leaves;      /**< No other virtual device of the context stays in `from`. */
    bool stays;       /**< On demand, and `leaves`: content that `to` lacks stays in `from`. */
    bool recovers;    /**< `from` is lost, and the journal is replayed at `to`. */
    bool returns; /**< `to` is a former source: `made` is set, and it has content that some virtual
                     device left there. */
    char reason[256]; /**< Why an object cannot be used at `to`; else empty. */
    bool drained; /**< During COMMIT: no copies run any more while host memory is taken from `from`.
                   */
    /** For a program that did not build at `to`: a line of the build log, else empty. */
    char build_log[160];
    /** The build failed for a reason that may pass. */
    bool build_passing;
};
/** True when mappings are carried along: the driver at `to` maps what is mapped before COMMIT. */
static inline bool move_carries_maps(const struct move_context *move)
{
    return move->to != RESIDENCE_HOST && move->made && !move->returns &&
           (move->leaves || move->from == RESIDENCE_HOST);
}
/** True when another virtual device lives at `to` and the program runs. The program then makes
 * missing real objects there itself when it first uses them; those still missing are made with the
 * gate closed. */
static inline bool move_is_busy(const struct move_context *move)
{
    return !move->made && !the_thread.gate.owner;
}
/** True when no virtual device stays in @residence_index (`from` or `to`), so that shared objects
 * are removed from it. */
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

/*
 * Sub-devices (4.3): parts of a real device. Each is a virtual device of its own, which never
 * moves: a context that holds it has a residence on the real sub-device. The virtual device that
 * was divided is pinned while one of its parts lives.
 */

/** Additional state of a virtual device that is a sub-device. */
struct sub_device {
    struct vdev *parent;                      /**< Held. */
    struct device device;                     /**< The parent's, with the real sub-device's handle,
                                               *  which is never released. */
    cl_device_partition_property *properties; /**< As the program gave them. Owned. */
    size_t property_count;                    /**< With the 0 that ends it. */
};

/**
 * clCreateSubDevices.
 *
 * @properties  The first one is among those that the program was told of.
 * @count       Room in @ret_vdevs, which may be NULL.
 * @ret_vdevs   Published, with one reference of the program's.
 * @ret_count   How many there are, or would be. May be NULL.
 * @ret_stray  Set when @parent is on a device that cannot be divided: move it home (move_home) and
 *             try again. Always written.
 *
 * Waits while @parent is suspended; not inside the gate. Other outputs are untouched on failure.
 * More than VDEVS parts give CL_DEVICE_PARTITION_FAILED, since a context takes no more devices.
 */
cl_int sub_device_create(struct vdev *parent, const cl_device_partition_property *properties,
                         cl_uint count, struct vdev **ret_vdevs, cl_uint *ret_count,
                         bool *ret_stray);

/** Free the state of a virtual device that was a sub-device. NULL is allowed. */
void sub_device_destroy(struct sub_device *part);

#endif
