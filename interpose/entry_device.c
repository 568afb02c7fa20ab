#include "interpose/entry_device.h"

#include "interpose/entry.h"

#define TYPES                                                                                      \
    (CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU |                            \
     CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM)

static bool is_meant(uint32_t index, cl_device_type type)
{
    cl_device_type ours = devinfo_scalar(&the_present.device, CL_DEVICE_TYPE, 0);
    if (type == CL_DEVICE_TYPE_ALL)
        return !(ours & CL_DEVICE_TYPE_CUSTOM);
    return (ours & type & ~CL_DEVICE_TYPE_DEFAULT) ||
           ((type & CL_DEVICE_TYPE_DEFAULT) && index == 0);
}

cl_int device_select(cl_device_type type, struct seat **ret_seats, cl_uint *ret_count)
{
    if (type != CL_DEVICE_TYPE_ALL && (type == 0 || (type & ~(cl_device_type)TYPES) != 0))
        return CL_INVALID_DEVICE_TYPE;
    cl_uint count = 0;
    for (uint32_t i = 0; i < the_seat_count; i++)
        if (is_meant(i, type))
            ret_seats[count++] = the_seats[i];
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
    struct seat *seats[SEATS];
    cl_uint count;
    cl_int error = device_select(device_type, seats, &count);
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
        devices[i] = (cl_device_id)seats[i];
    if (num_devices)
        *num_devices = count;
    return CL_SUCCESS;
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info param_name, size_t param_value_size,
                       void *param_value, size_t *param_value_size_ret)
{
    const struct info_request request = {param_value_size, param_value, param_value_size_ret};
    if (!seat_get(device))
        return CL_INVALID_DEVICE;
    switch (param_name) {
    case CL_DEVICE_PLATFORM:
        return info_pointer(&request, the_platform);
    case CL_DEVICE_PARENT_DEVICE:
        return info_pointer(&request, NULL);
    case CL_DEVICE_REFERENCE_COUNT:
        return info_uint(&request, 1);
    default:
        return present_device_info(&the_present, param_name, param_value_size, param_value,
                                   param_value_size_ret);
    }
}

/* 4.2: the reference count of a root device does not change. */
cl_int clRetainDevice(cl_device_id device)
{
    return seat_get(device) ? CL_SUCCESS : CL_INVALID_DEVICE;
}

cl_int clReleaseDevice(cl_device_id device)
{
    return seat_get(device) ? CL_SUCCESS : CL_INVALID_DEVICE;
}

/* 4.3.1: no way of partitioning is offered, so every property is one that is not supported. */
cl_int clCreateSubDevices(cl_device_id in_device, const cl_device_partition_property *properties,
                          cl_uint num_devices, cl_device_id *out_devices, cl_uint *num_devices_ret)
{
    (void)properties, (void)num_devices, (void)out_devices, (void)num_devices_ret;
    return seat_get(in_device) ? CL_INVALID_VALUE : CL_INVALID_DEVICE;
}
