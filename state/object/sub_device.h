#ifndef RESEAT_STATE_OBJECT_SUB_DEVICE_H
#define RESEAT_STATE_OBJECT_SUB_DEVICE_H

#include "state/object/context.h"

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
