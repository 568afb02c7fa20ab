#ifndef RESEAT_STATE_OPENCL_INFO_H
#define RESEAT_STATE_OPENCL_INFO_H

#include <CL/cl.h>
#include <stddef.h>

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

#endif
