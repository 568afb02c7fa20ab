#include "state/object/context.h"

#include <stdlib.h>
#include <string.h>

/*
 * The real sub-device is leaked (1 KiB): POCL's threads still read a queue's device after its
 * commands were waited for and queue and device were released, and no call tells when they are
 * done.
 */
void sub_device_destroy(struct sub_device *part)
{
    if (!part)
        return;
    object_unhold(part->parent);
    free(part->properties);
    free(part);
}

/* Number of elements of the partition that a list names, with the 0 that ends it. */
static size_t sub_device_list_length(const cl_device_partition_property *properties)
{
    size_t count = 2;
    if (properties[0] == CL_DEVICE_PARTITION_BY_COUNTS)
        for (count = 1; properties[count] != CL_DEVICE_PARTITION_BY_COUNTS_LIST_END; count++)
            ;
    return count + 1;
}

/* Make an unpublished virtual device for a sub-device of @parent, which is pinned. Inside the gate.
 */
static struct vdev *sub_device_vdev_new(struct vdev *parent,
                                        const cl_device_partition_property *properties)
{
    struct vdev *vdev = object_create(OBJECT_DEVICE);
    struct sub_device *part = calloc(1, sizeof(*part));
    size_t count = sub_device_list_length(properties);
    cl_device_partition_property *copy = calloc(count, sizeof(*copy));
    if (!vdev || !part || !copy) {
        free(copy);
        free(part);
        if (vdev)
            object_discard(vdev);
        return NULL;
    }
    memcpy(copy, properties, count * sizeof(*copy));
    part->properties = copy;
    part->property_count = count;
    part->parent = parent;
    object_hold(parent);
    part->device = *atomic_load(&parent->device);
    /* Memory on sub-devices is not counted: a pinned program cannot spill. */
    memset(&part->device.budget, 0, sizeof(part->device.budget));
    vdev->part = part;
    vdev->index = parent->index;
    vdev->device = vdev->last = vdev->origin = &part->device;
    device_clock_inherit(&vdev->clock, &parent->clock);
    pin_take(&parent->pins, PIN_SUB_DEVICES);
    return vdev;
}

/* Undo sub_device_vdev_new. */
static void sub_device_vdev_discard(struct vdev *vdev)
{
    if (!vdev)
        return;
    pin_drop(&vdev->part->parent->pins, PIN_SUB_DEVICES);
    sub_device_destroy(vdev->part);
    object_discard(vdev);
}

static bool sub_device_can_divide(const struct device *device, cl_device_partition_property kind)
{
    const struct devinfo_value *kinds = devinfo_find(&device->info, CL_DEVICE_PARTITION_PROPERTIES);
    cl_device_partition_property one;
    bool found = false;
    for (size_t at = 0; kinds && !found && at + sizeof(one) <= kinds->size; at += sizeof(one)) {
        memcpy(&one, kinds->bytes + at, sizeof(one));
        found = one == kind;
    }
    return found;
}

/* Enter the gate with @parent on a device that can be divided so. */
static cl_int sub_device_enter(struct vdev *parent, cl_device_partition_property kind,
                               bool *ret_stray)
{
    struct device *device;
    do {
        vdevs_wait(1, &parent, &device);
        gate_enter();
        device = atomic_load(&parent->device);
        if (device && sub_device_can_divide(device, kind))
            return CL_SUCCESS;
        gate_leave();
    } while (!device);
    *ret_stray = true;
    return CL_DEVICE_PARTITION_FAILED;
}

/* Make @count real sub-devices, each with its virtual device. Inside the gate. */
static cl_int sub_device_divide(struct vdev *parent, const cl_device_partition_property *properties,
                                cl_uint count, struct vdev **ret_vdevs)
{
    const struct device *device = atomic_load(&parent->device);
    struct vdev *vdevs[VDEVS] = {NULL};
    cl_device_id ids[VDEVS];
    cl_int error = CL_SUCCESS;
    for (cl_uint i = 0; i < count && error == CL_SUCCESS; i++)
        if (!(vdevs[i] = sub_device_vdev_new(parent, properties)))
            error = CL_OUT_OF_HOST_MEMORY;
    if (error == CL_SUCCESS)
        error = device->cl->clCreateSubDevices(device->id, properties, count, ids, NULL);
    for (cl_uint i = 0; i < count; i++) {
        if (error == CL_SUCCESS) {
            vdevs[i]->part->device.id = ids[i];
            object_publish(vdevs[i]);
            ret_vdevs[i] = vdevs[i];
        } else {
            sub_device_vdev_discard(vdevs[i]);
        }
    }
    return error;
}

cl_int sub_device_create(struct vdev *parent, const cl_device_partition_property *properties,
                         cl_uint count, struct vdev **ret_vdevs, cl_uint *ret_count,
                         bool *ret_stray)
{
    cl_uint made = 0;
    *ret_stray = false;
    cl_int error = sub_device_enter(parent, properties[0], ret_stray);
    if (error != CL_SUCCESS)
        return error;
    struct device *device = atomic_load(&parent->device);
    error = device->cl->clCreateSubDevices(device->id, properties, 0, NULL, &made);
    if (error == CL_SUCCESS && made > VDEVS)
        error = CL_DEVICE_PARTITION_FAILED;
    if (error == CL_SUCCESS && ret_vdevs)
        error = count < made ? CL_INVALID_VALUE
                             : sub_device_divide(parent, properties, made, ret_vdevs);
    gate_leave();
    if (error == CL_SUCCESS && ret_count)
        *ret_count = made;
    return error;
}
