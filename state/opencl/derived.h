#ifndef RESEAT_STATE_OPENCL_DERIVED_H
#define RESEAT_STATE_OPENCL_DERIVED_H

#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#include <CL/cl.h>
#include <stdlib.h>
#include <string.h>

/*
 * Calls that are other calls with other arguments, as interpose/entry/calls.txt names them
 * ("derived"): for the generated calls of the library and of the remote driver, each of which calls
 * its own.
 */

/* The calls of 1.1 have sizes where 1.2 has a descriptor, and an error of their own for them. */
static inline cl_mem derived_image(cl_context context, cl_mem_flags flags,
                                   const cl_image_format *format, const cl_image_desc *desc,
                                   void *host_ptr, cl_int *errcode_ret)
{
    cl_int error = CL_SUCCESS;
    cl_mem image = clCreateImage(context, flags, format, desc, host_ptr, &error);
    if (errcode_ret)
        *errcode_ret = error == CL_INVALID_IMAGE_DESCRIPTOR ? CL_INVALID_IMAGE_SIZE : error;
    return image;
}

static inline cl_mem derived_image_2d(cl_context context, cl_mem_flags flags,
                                      const cl_image_format *format, size_t width, size_t height,
                                      size_t row_pitch, void *host_ptr, cl_int *errcode_ret)
{
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D,
                                .image_width = width,
                                .image_height = height,
                                .image_row_pitch = row_pitch};
    return derived_image(context, flags, format, &desc, host_ptr, errcode_ret);
}

static inline cl_mem derived_image_3d(cl_context context, cl_mem_flags flags,
                                      const cl_image_format *format, size_t width, size_t height,
                                      size_t depth, size_t row_pitch, size_t slice_pitch,
                                      void *host_ptr, cl_int *errcode_ret)
{
    /* A depth of 1 is wrong here, and right where there is a descriptor. */
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE3D,
                                .image_width = width,
                                .image_height = height,
                                .image_depth = depth > 1 ? depth : 0,
                                .image_row_pitch = row_pitch,
                                .image_slice_pitch = slice_pitch};
    return derived_image(context, flags, format, &desc, host_ptr, errcode_ret);
}

/* One by one, by the names that the driver lists. Drivers before 1.2 list none: they could make all
 * at once, but the next device's driver might give them in another order. */
static inline cl_int derived_kernels(cl_program program, cl_uint room, cl_kernel *kernels,
                                     cl_uint *ret_count)
{
    size_t count = 0, size = 0, made = 0;
    cl_int error = clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof(count), &count, NULL);
    if (error == CL_SUCCESS && kernels && room < count)
        return CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, 0, NULL, &size);
    char *names = malloc(size + 1), *rest = names, *name;
    if (error == CL_SUCCESS)
        error = names ? clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, size, names, NULL)
                      : CL_OUT_OF_HOST_MEMORY;
    while (kernels && error == CL_SUCCESS && made < count && (name = strsep(&rest, ";"))) {
        kernels[made] = clCreateKernel(program, name, &error);
        made += error == CL_SUCCESS;
    }
    while (error && made)
        clReleaseKernel(kernels[--made]);
    free(names);
    if (error == CL_SUCCESS && ret_count)
        *ret_count = (cl_uint)count;
    return error;
}

/* What is wrong with the list has another error where it is a wait list. */
static inline cl_int derived_wait_for_events(cl_command_queue queue, cl_uint count,
                                             const cl_event *events)
{
    cl_int error = clEnqueueBarrierWithWaitList(queue, count, events, NULL);
    return error == CL_INVALID_EVENT_WAIT_LIST ? CL_INVALID_EVENT : error;
}

#endif
