#include "state/program/kernel.h"

#include <stdlib.h>
#include <string.h>

#include "interpose/entry/entry.h"
#include "state/object/lost.h"

/* clCreateKernel and what follows from it (5.9 of the OpenCL 3.0 specification). */

cl_int kernel_answer_attributes(struct kernel *kernel, const struct info_request *request)
{
    const void *value;
    size_t size;
    unsigned tries = 0;
    cl_int error;
    do
        error = kernel_attributes(kernel, &value, &size);
    while (error != CL_SUCCESS && context_outlives(kernel->context, error, &tries));
    return error ? error : info_bytes(request, value, size);
}

cl_int clGetKernelArgInfo(cl_kernel handle, cl_uint index, cl_kernel_arg_info name,
                          size_t param_value_size, void *param_value, size_t *ret_size)
{
    struct kernel *kernel = kernel_get(handle);
    const void *value;
    size_t size;
    if (!kernel)
        return CL_INVALID_KERNEL;
    if (index >= kernel->arg_count)
        return CL_INVALID_ARG_INDEX;
    if (!program_tells_parameters(kernel->program))
        return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
    unsigned tries = 0;
    cl_int error;
    do
        error = kernel_arg_info(kernel, index, name, &value, &size);
    while (error != CL_SUCCESS && context_outlives(kernel->context, error, &tries));
    return error ? error : info_answer(value, size, param_value_size, param_value, ret_size);
}

/* 5.9.3: the device has to be one that the kernel was built for. If that is only one, it may be
 * NULL.
 */
static int entry_kernel_vdev_of(const struct kernel *kernel, cl_device_id handle)
{
    const struct context *context = kernel->context;
    uint32_t vdevs = atomic_load(&kernel->program->executable);
    int index = -1;
    if (!handle)
        return vdevs && (vdevs & (vdevs - 1)) == 0 ? __builtin_ctz(vdevs) : -1;
    const struct vdev *vdev = vdev_get(handle);
    if (vdev)
        index = context_vdev_index(context, vdev);
    return index >= 0 && vdevs & (1u << index) ? index : -1;
}

cl_int kernel_answer_group(struct kernel *kernel, cl_device_id device,
                           cl_kernel_work_group_info name, size_t param_value_size,
                           void *param_value, size_t *ret_size)
{
    const void *value;
    size_t size;
    int vdev = entry_kernel_vdev_of(kernel, device);
    if (vdev < 0)
        return CL_INVALID_DEVICE;
    unsigned tries = 0;
    cl_int error;
    do
        error = kernel_work_group_info(kernel, (cl_uint)vdev, name, &value, &size);
    while (error != CL_SUCCESS && context_outlives(kernel->context, error, &tries));
    /* Never more than the limit of the device that the program was told. */
    bool bounded =
        name == CL_KERNEL_WORK_GROUP_SIZE || name == CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE;
    size_t most = vdev_limits[kernel->context->vdevs[vdev]->index].groups.items;
    if (error == CL_SUCCESS && bounded && size == sizeof(size_t) && most &&
        *(const size_t *)value > most)
        value = &most;
    return error ? error : info_answer(value, size, param_value_size, param_value, ret_size);
}

cl_int kernel_answer_sub_group(struct kernel *kernel, cl_device_id device,
                               cl_kernel_sub_group_info name, size_t input_value_size,
                               const void *input_value, size_t param_value_size, void *param_value,
                               size_t *ret_size)
{
    const void *value;
    size_t size;
    int vdev = entry_kernel_vdev_of(kernel, device);
    if (vdev < 0)
        return CL_INVALID_DEVICE;
    if (!the_limits.subgroups)
        return CL_INVALID_OPERATION;
    unsigned tries = 0;
    cl_int error;
    do
        error = kernel_sub_group_info(kernel, (cl_uint)vdev, name, input_value_size, input_value,
                                      &value, &size);
    while (error != CL_SUCCESS && context_outlives(kernel->context, error, &tries));
    return error ? error : info_answer(value, size, param_value_size, param_value, ret_size);
}
