#include "interpose/entry/entry.h"
#include "state/object/lost.h"

static bool entry_context_is_platform(cl_platform_id platform)
{
    return object_get(platform, OBJECT_PLATFORM) != NULL;
}

/* The virtual devices that a list of handles names, each once. */
static cl_int entry_context_collect_vdevs(cl_uint count, const cl_device_id *devices,
                                          struct vdev **ret_vdevs, cl_uint *ret_count)
{
    cl_uint used = 0;
    for (cl_uint i = 0; i < count; i++) {
        struct vdev *vdev = vdev_get(devices[i]);
        if (!vdev)
            return CL_INVALID_DEVICE;
        cl_uint at = 0;
        while (at < used && ret_vdevs[at] != vdev)
            at++;
        if (at == VDEVS) /* with sub-devices there may be more */
            return CL_OUT_OF_RESOURCES;
        if (at == used)
            ret_vdevs[used++] = vdev;
    }
    *ret_count = used;
    return CL_SUCCESS;
}

/* If the device is lost, a protected program gets the context on another one. */
static cl_int entry_context_create(const cl_context_properties *properties, cl_uint count,
                                   struct vdev *const *vdevs,
                                   void(CL_CALLBACK *notify)(const char *, const void *, size_t,
                                                             void *),
                                   void *data, struct context **ret_context)
{
    cl_int error;
    do
        error = context_create(properties, count, vdevs, notify, data, ret_context);
    while (error != CL_SUCCESS && vdevs_outlive(count, vdevs, error));
    return error;
}

cl_context clCreateContext(const cl_context_properties *properties, cl_uint num_devices,
                           const cl_device_id *devices,
                           void(CL_CALLBACK *pfn_notify)(const char *, const void *, size_t,
                                                         void *),
                           void *user_data, cl_int *errcode_ret)
{
    struct context *context = NULL;
    struct vdev *vdevs[VDEVS];
    cl_uint count = 0;
    cl_platform_id platform;
    cl_int error = context_properties_check(properties, entry_context_is_platform, &platform);
    if (error == CL_SUCCESS && (!devices || num_devices == 0 || (!pfn_notify && user_data)))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = entry_context_collect_vdevs(num_devices, devices, vdevs, &count);
    if (error == CL_SUCCESS)
        error = entry_context_create(properties, count, vdevs, pfn_notify, user_data, &context);
    return created(context, error, errcode_ret);
}

cl_context
clCreateContextFromType(const cl_context_properties *properties, cl_device_type device_type,
                        void(CL_CALLBACK *pfn_notify)(const char *, const void *, size_t, void *),
                        void *user_data, cl_int *errcode_ret)
{
    struct context *context = NULL;
    struct vdev *vdevs[VDEVS];
    cl_uint count = 0;
    cl_platform_id platform;
    cl_int error = start() == 0
                       ? context_properties_check(properties, entry_context_is_platform, &platform)
                       : CL_INVALID_PLATFORM;
    if (error == CL_SUCCESS && !pfn_notify && user_data)
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = device_select(device_type, vdevs, &count);
    if (error == CL_SUCCESS)
        error = entry_context_create(properties, count, vdevs, pfn_notify, user_data, &context);
    return created(context, error, errcode_ret);
}

cl_int context_answer_devices(const struct context *context, const struct info_request *request)
{
    for (cl_uint i = 0; i < context->vdev_count; i++)
        object_lend(context->vdevs[i]);
    return info_bytes(request, context->vdevs, context->vdev_count * sizeof(context->vdevs[0]));
}

cl_int context_set_destructor(struct context *context,
                              void(CL_CALLBACK *pfn_notify)(cl_context, void *), void *user_data)
{
    if (!pfn_notify)
        return CL_INVALID_VALUE;
    return destructor_add(&context->destructors, (void(CL_CALLBACK *)(void *, void *))pfn_notify,
                          context, user_data) == 0
               ? CL_SUCCESS
               : CL_OUT_OF_HOST_MEMORY;
}
