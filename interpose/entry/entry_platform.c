#include <stdlib.h>
#include <string.h>

#include "interpose/entry/entry.h"

cl_int clGetPlatformIDs(cl_uint num_entries, cl_platform_id *platforms, cl_uint *num_platforms)
{
    if ((!platforms && !num_platforms) || (platforms && num_entries == 0))
        return CL_INVALID_VALUE;
    if (start() != 0) {
        /* Set as loaders do, because programs read it even after an error. */
        if (num_platforms)
            *num_platforms = 0;
        return CL_PLATFORM_NOT_FOUND_KHR;
    }
    if (platforms)
        platforms[0] = (cl_platform_id)the_platform;
    if (num_platforms)
        *num_platforms = 1;
    return CL_SUCCESS;
}

cl_int clGetPlatformInfo(cl_platform_id platform, cl_platform_info param_name,
                         size_t param_value_size, void *param_value, size_t *param_value_size_ret)
{
    if (start() != 0 || !platform_get(platform))
        return CL_INVALID_PLATFORM;
    return present_platform_info(&the_present, param_name, param_value_size, param_value,
                                 param_value_size_ret);
}

/*
 * 4.3: device and host clocks are not offered as synchronised; they would not stay so in a move.
 * Then that is the error, whatever else is wrong.
 */
cl_int clGetHostTimer(cl_device_id device, cl_ulong *host_timestamp)
{
    (void)host_timestamp;
    return vdev_get(device) ? CL_INVALID_OPERATION : CL_INVALID_DEVICE;
}

cl_int clGetDeviceAndHostTimer(cl_device_id device, cl_ulong *device_timestamp,
                               cl_ulong *host_timestamp)
{
    (void)device_timestamp, (void)host_timestamp;
    return vdev_get(device) ? CL_INVALID_OPERATION : CL_INVALID_DEVICE;
}

static int entry_platform_compare_address(const void *name, const void *entry)
{
    return strcmp(name, ((const struct call_address *)entry)->name);
}

/* Opens nothing: loaders ask before the program has made a call. */
void *clGetExtensionFunctionAddress(const char *func_name)
{
    const struct call_address *found =
        func_name ? bsearch(func_name, calls_addresses, calls_address_count,
                            sizeof(calls_addresses[0]), entry_platform_compare_address)
                  : NULL;
    return found ? (void *)(uintptr_t)found->address : NULL;
}

void *clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *func_name)
{
    if (!object_get(platform, OBJECT_PLATFORM))
        return NULL;
    return clGetExtensionFunctionAddress(func_name);
}

/*
 * The roads in, beside our exported symbols: a loader that was told of us as a vendor's driver
 * (cl_khr_icd), and one that was told of us as a layer (CL/cl_layer.h). Whichever a call takes, its
 * handles are ours, so one that takes two is handled at the first and never passed on.
 */

cl_int clIcdGetPlatformIDsKHR(cl_uint num_entries, cl_platform_id *platforms,
                              cl_uint *num_platforms)
{
    return clGetPlatformIDs(num_entries, platforms, num_platforms);
}

cl_int clGetLayerInfo(cl_layer_info param_name, size_t param_value_size, void *param_value,
                      size_t *param_value_size_ret)
{
    const struct info_request request = {param_value_size, param_value, param_value_size_ret};
    switch (param_name) {
    case CL_LAYER_API_VERSION:
        return info_uint(&request, CL_LAYER_API_VERSION_100);
    case CL_LAYER_NAME:
        return info_bytes(&request, "reseat", sizeof("reseat"));
    default:
        return CL_INVALID_VALUE;
    }
}

/* What lies behind the loader is never called: we open the vendors' drivers ourselves. */
cl_int clInitLayer(cl_uint num_entries, const cl_icd_dispatch *target_dispatch,
                   cl_uint *num_entries_ret, const cl_icd_dispatch **layer_dispatch_ret)
{
    if (!target_dispatch || !num_entries_ret || !layer_dispatch_ret)
        return CL_INVALID_VALUE;
    (void)num_entries;
    *layer_dispatch_ret = &calls_dispatch;
    *num_entries_ret = sizeof(calls_dispatch) / sizeof(void *);
    return CL_SUCCESS;
}
