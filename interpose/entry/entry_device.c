#include "interpose/aware/aware.h"
#include "interpose/entry/entry.h"
#include "state/move/move.h"
#include "state/object/context.h"

#define TYPES                                                                                      \
    (CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU |                            \
     CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM)

/* A program that keeps CL_DEVICE_TYPE_ALL in a signed number of 32 bits passes 64 of them. */
static bool entry_device_is_all(cl_device_type type)
{
    return type == CL_DEVICE_TYPE_ALL || type == ~(cl_device_type)0;
}

static bool entry_device_is_meant(uint32_t index, cl_device_type type)
{
    cl_device_type ours = devinfo_scalar(&the_present.device, CL_DEVICE_TYPE, 0);
    if (entry_device_is_all(type))
        return !(ours & CL_DEVICE_TYPE_CUSTOM);
    return (ours & type & ~CL_DEVICE_TYPE_DEFAULT) ||
           ((type & CL_DEVICE_TYPE_DEFAULT) && index == 0);
}

cl_int device_select(cl_device_type type, struct vdev **ret_vdevs, cl_uint *ret_count)
{
    if (!entry_device_is_all(type) && (type == 0 || (type & ~(cl_device_type)TYPES) != 0))
        return CL_INVALID_DEVICE_TYPE;
    cl_uint count = 0;
    for (uint32_t i = 0; i < vdevs_count(); i++)
        if (entry_device_is_meant(i, type))
            ret_vdevs[count++] = the_vdevs[i];
    if (count == 0)
        return CL_DEVICE_NOT_FOUND;
    *ret_count = count;
    return CL_SUCCESS;
}

cl_int clGetDeviceIDs(cl_platform_id platform, cl_device_type device_type, cl_uint num_entries,
                      cl_device_id *devices, cl_uint *num_devices)
{
    if (start() != 0 || !platform_get(platform))
        return CL_INVALID_PLATFORM;
    struct vdev *vdevs[VDEVS] = {NULL};
    cl_uint count;
    cl_int error = device_select(device_type, vdevs, &count);
    if (error == CL_INVALID_DEVICE_TYPE)
        return error;
    if ((!devices && !num_devices) || (devices && num_entries == 0))
        return CL_INVALID_VALUE;
    if (error != CL_SUCCESS) {
        if (num_devices)
            *num_devices = 0;
        return error;
    }
    for (cl_uint i = 0; devices && i < count && i < num_entries; i++)
        devices[i] = (cl_device_id)vdevs[i];
    if (num_devices)
        *num_devices = count;
    return CL_SUCCESS;
}

/* Answers that are a sub-device's own (table 5, 4.3). All others are its parent's. */
static cl_int entry_device_part_info(const struct vdev *vdev, cl_device_info name,
                                     const struct info_request *request)
{
    const struct sub_device *part = vdev->part;
    switch (name) {
    case CL_DEVICE_PARENT_DEVICE:
        return info_object(request, part->parent);
    case CL_DEVICE_REFERENCE_COUNT:
        return info_uint(request, object_refs(vdev));
    case CL_DEVICE_PARTITION_TYPE:
        return info_bytes(request, part->properties,
                          part->property_count * sizeof(part->properties[0]));
    case CL_DEVICE_MAX_COMPUTE_UNITS:
    case CL_DEVICE_PARTITION_MAX_SUB_DEVICES:
    case CL_DEVICE_PARTITION_PROPERTIES:
    case CL_DEVICE_PARTITION_AFFINITY_DOMAIN:
        return part->device.cl->clGetDeviceInfo(part->device.id, name, request->size,
                                                request->value, request->ret_size);
    default:
        return CL_INVALID_VALUE;
    }
}

static bool entry_device_is_of_part(cl_device_info name)
{
    return name == CL_DEVICE_PARENT_DEVICE || name == CL_DEVICE_REFERENCE_COUNT ||
           name == CL_DEVICE_MAX_COMPUTE_UNITS ||
           (name >= CL_DEVICE_PARTITION_MAX_SUB_DEVICES && name <= CL_DEVICE_PARTITION_TYPE);
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info param_name, size_t param_value_size,
                       void *param_value, size_t *param_value_size_ret)
{
    const struct info_request request = {param_value_size, param_value, param_value_size_ret};
    const struct vdev *vdev = vdev_get(device);
    const struct devinfo_value *answer;
    if (!vdev)
        return CL_INVALID_DEVICE;
    if (vdev->part && entry_device_is_of_part(param_name))
        return entry_device_part_info(vdev, param_name, &request);
    switch (param_name) {
    case CL_DEVICE_PLATFORM:
        return info_pointer(&request, the_platform);
    case CL_DEVICE_PARENT_DEVICE:
        return info_pointer(&request, NULL);
    case CL_DEVICE_REFERENCE_COUNT:
        return info_uint(&request, 1);
    default:
        answer = aware_answer(vdev->index, param_name);
        if (answer)
            return info_bytes(&request, answer->bytes, answer->size);
        return present_device_info(&the_present, param_name, param_value_size, param_value,
                                   param_value_size_ret);
    }
}

/* 4.2, 4.3: the reference count of a root device does not change, that of a sub-device does. */
cl_int clRetainDevice(cl_device_id device)
{
    struct vdev *vdev = vdev_get(device);
    if (!vdev)
        return CL_INVALID_DEVICE;
    if (vdev->part)
        object_retain(vdev);
    return CL_SUCCESS;
}

cl_int clReleaseDevice(cl_device_id device)
{
    struct vdev *vdev = vdev_get(device);
    return vdev && (!vdev->part || object_release(vdev)) ? CL_SUCCESS : CL_INVALID_DEVICE;
}

/* 4.3.1: a way of partitioning that the device was not said to have is not supported. */
static bool entry_device_is_offered(const struct vdev *vdev, cl_device_partition_property kind)
{
    cl_device_partition_property kinds[16];
    size_t size = 0;
    if (clGetDeviceInfo((cl_device_id)(uintptr_t)vdev, CL_DEVICE_PARTITION_PROPERTIES,
                        sizeof(kinds), kinds, &size) != CL_SUCCESS)
        return false;
    for (size_t i = 0; i < size / sizeof(kinds[0]); i++)
        if (kinds[i] == kind && kind != 0)
            return true;
    return false;
}

cl_int clCreateSubDevices(cl_device_id in_device, const cl_device_partition_property *properties,
                          cl_uint num_devices, cl_device_id *out_devices, cl_uint *num_devices_ret)
{
    struct vdev *vdev = vdev_get(in_device);
    struct vdev *vdevs[VDEVS] = {NULL};
    cl_uint count;
    if (!vdev)
        return CL_INVALID_DEVICE;
    if (!properties || !entry_device_is_offered(vdev, properties[0]))
        return CL_INVALID_VALUE;
    bool stray;
    cl_int error;
    do
        error = sub_device_create(vdev, properties, num_devices, out_devices ? vdevs : NULL, &count,
                                  &stray);
    while (stray && move_home(vdev));
    if (error != CL_SUCCESS)
        return error;
    for (cl_uint i = 0; out_devices && i < count; i++)
        out_devices[i] = (cl_device_id)vdevs[i];
    if (num_devices_ret)
        *num_devices_ret = count;
    return CL_SUCCESS;
}
