
#include "interpose/entry/entry.h"

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
