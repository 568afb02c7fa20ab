#ifndef RESEAT_INTERPOSE_ENTRY_ENTRY_H
#define RESEAT_INTERPOSE_ENTRY_ENTRY_H

#include "interpose/entry/calls.h"
#include "interpose/entry/start.h"
#include "state/object/context.h"
#include "state/opencl/info.h"

/* What the hand-written entry points have in common. */

/** NULL stands for the only platform there is, as with the loaders that programs are used to. */
static inline struct platform *platform_get(cl_platform_id handle)
{
    return handle ? object_get(handle, OBJECT_PLATFORM) : the_platform;
}
static inline struct vdev *vdev_get(cl_device_id handle)
{
    return object_get(handle, OBJECT_DEVICE);
}
static inline struct context *context_get(cl_context handle)
{
    return object_get(handle, OBJECT_CONTEXT);
}

/** What a call that creates returns: @object, or NULL with the error. */
static inline void *entry_created(void *object, cl_int error, cl_int *errcode_ret)
{
    if (errcode_ret)
        *errcode_ret = error;
    return error == CL_SUCCESS ? object : NULL;
}

/** The program's arguments of a clGet*Info call. */
struct info_request {
    size_t param_value_size;
    void *param_value;
    size_t *ret_size;
};

static inline cl_int info_bytes(const struct info_request *request, const void *value, size_t size)
{
    return info_answer(value, size, request->param_value_size, request->param_value,
                       request->ret_size);
}
static inline cl_int info_uint(const struct info_request *request, cl_uint value)
{
    return info_bytes(request, &value, sizeof(value));
}
static inline cl_int info_size(const struct info_request *request, size_t value)
{
    return info_bytes(request, &value, sizeof(value));
}
/** Any 64-bit one: bit-fields and times. */
static inline cl_int info_ulong(const struct info_request *request, cl_ulong value)
{
    return info_bytes(request, &value, sizeof(value));
}
/** The program's own pointer, or a handle that needs no reference to be valid. */
static inline cl_int info_pointer(const struct info_request *request, const void *value)
{
    return info_bytes(request, &value, sizeof(value));
}
/** A handle to what an object is made of; NULL is allowed. */
static inline cl_int info_object(const struct info_request *request, void *object)
{
    return info_pointer(request, object_lend(object));
}

#endif
