#ifndef RESEAT_REMOTE_DRIVER_ANSWER_H
#define RESEAT_REMOTE_DRIVER_ANSWER_H

#include "remote/driver/handle.h"
#include "state/opencl/info.h"

/** Answer with words, numbers, handles. */
struct request {
    size_t size;
    void *value;
    size_t *ret_size;
};
static inline cl_int request_bytes(const struct request *request, const void *value, size_t size)
{
    return info_answer(value, size, request->size, request->value, request->ret_size);
}
static inline cl_int request_text(const struct request *request, const char *text)
{
    return request_bytes(request, text, __builtin_strlen(text) + 1);
}
static inline cl_int request_uint(const struct request *request, cl_uint value)
{
    return request_bytes(request, &value, sizeof(value));
}
static inline cl_int request_size(const struct request *request, size_t value)
{
    return request_bytes(request, &value, sizeof(value));
}
static inline cl_int request_ulong(const struct request *request, cl_ulong value)
{
    return request_bytes(request, &value, sizeof(value));
}
static inline cl_int request_handle(const struct request *request, const void *handle)
{
    return request_bytes(request, &handle, sizeof(handle));
}

/** An object was made, but its message was not posted: nothing of it stays. */
static inline void *created_if(void *object, cl_int error, cl_int *errcode)
{
    if (error && object)
        handle_release(object);
    return created(object, error, errcode);
}

#endif
