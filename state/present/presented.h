#ifndef RESEAT_STATE_PRESENT_PRESENTED_H
#define RESEAT_STATE_PRESENT_PRESENTED_H

#include "state/object/context.h"
#include "state/present/present.h"

/* The answers given to this program, and the limits that its calls are checked against. */

/** What the program is told about its devices, the same for each; constant once the program runs.
 */
extern struct present the_present;

/** Limits of the_present that every launch is checked against. */
struct call_limits {
    bool uniform_groups; /**< Work-groups of one launch all have the same size. */
    bool subgroups;      /**< The device has any. */
    bool empty_commands; /**< Launches of no work-items and transfers of no bytes do nothing (2.1),
                              instead of failing. */
};
extern struct call_limits the_limits;

/** Limits of each virtual device, for launches and buffers. For a program that registered
 * (policy/reseat.h) they follow the device where the virtual device is. */
struct vdev_limits {
    struct group_limits groups;
    _Atomic uint64_t allocation; /**< Bytes of the largest buffer. */
};
extern struct vdev_limits vdev_limits[VDEVS];
/** Set the limits from one device. Not atomic as a whole. */
void vdev_limits_set(struct vdev_limits *limits, const struct devinfo *device);

/** For a context: the largest of its virtual devices' (5.2.1: "for all devices in context"). */
static inline uint64_t limits_allocation(const struct context *context)
{
    uint64_t most = 0;
    for (cl_uint i = 0; i < context->vdev_count; i++) {
        uint64_t one = atomic_load_explicit(&vdev_limits[context->vdevs[i]->index].allocation,
                                            memory_order_relaxed);
        most = one > most ? one : most;
    }
    return most;
}

/** Read the limits from the_present, for all virtual devices. */
void presented_limits_read(void);

#endif
