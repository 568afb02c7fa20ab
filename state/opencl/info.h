#ifndef RESEAT_STATE_OPENCL_INFO_H
#define RESEAT_STATE_OPENCL_INFO_H

#include <CL/cl.h>
#include <stddef.h>

/*
 * Answers of clGet*Info calls, and what calls that create return. Pure.
 */

/**
 * Answer a clGet*Info call in the specification's way (4.1 and every table like it).
 *
 * @value            The answer's bytes; may be NULL when @size is 0.
 * @param_value_size, param_value, ret_size  The program's arguments, any of them absent.
 * Returns CL_SUCCESS, or CL_INVALID_VALUE when @param_value is given and too small for the answer;
 * nothing is written then.
 */
static inline cl_int info_answer(const void *value, size_t size, size_t param_value_size,
                                 void *param_value, size_t *ret_size)
{
    if (param_value && param_value_size < size)
        return CL_INVALID_VALUE;
    if (param_value && size)
        __builtin_memcpy(param_value, value, size);
    if (ret_size)
        *ret_size = size;
    return CL_SUCCESS;
}

/** The program's arguments of a clGet*Info call. */
struct info_request {
    size_t size;
    void *value;
    size_t *ret_size;
};

static inline cl_int info_bytes(const struct info_request *request, const void *value, size_t size)
{
    return info_answer(value, size, request->size, request->value, request->ret_size);
}
static inline cl_int info_text(const struct info_request *request, const char *text)
{
    return info_bytes(request, text, __builtin_strlen(text) + 1);
}
/** Any number of 32 bits. */
static inline cl_int info_uint(const struct info_request *request, cl_uint value)
{
    return info_bytes(request, &value, sizeof(value));
}
static inline cl_int info_size(const struct info_request *request, size_t value)
{
    return info_bytes(request, &value, sizeof(value));
}
/** Any number of 64 bits: bit-fields and times. */
static inline cl_int info_ulong(const struct info_request *request, cl_ulong value)
{
    return info_bytes(request, &value, sizeof(value));
}
/** The program's own pointer, or a handle that needs no reference to be valid. */
static inline cl_int info_pointer(const struct info_request *request, const void *value)
{
    return info_bytes(request, &value, sizeof(value));
}

/** What a call that creates returns: @object, or NULL with the error. */
static inline void *created(void *object, cl_int error, cl_int *errcode_ret)
{
    if (errcode_ret)
        *errcode_ret = error;
    return error == CL_SUCCESS ? object : NULL;
}

#endif
