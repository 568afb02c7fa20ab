/** What plugged.c opens: uses OpenCL, leaves nothing of its own behind, and is closed. */
#include <CL/cl.h>

#include "plugin_part.h"

enum { WORDS = 1024 };

static const char *const source = "__kernel void add(__global uint *a, uint k) {\n"
                                  "    a[get_global_id(0)] += k + get_global_id(0);\n"
                                  "}\n";

static cl_int run(cl_context context, cl_command_queue queue, cl_kernel kernel, cl_uint k,
                  cl_uint *ret_wrong)
{
    cl_uint words[WORDS] = {0};
    const size_t items = WORDS;
    cl_int err;
    cl_mem mem = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof words, words, &err);

    if (err || (err = clSetKernelArg(kernel, 0, sizeof mem, &mem)) ||
        (err = clSetKernelArg(kernel, 1, sizeof k, &k)) ||
        (err = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL)) ||
        (err = clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL)))
        return err;
    *ret_wrong = 0;
    for (cl_uint i = 0; i < WORDS; i++)
        *ret_wrong += words[i] != k + i;
    return clReleaseMemObject(mem);
}

__attribute__((visibility("default"))) cl_int plugin_use(cl_uint k, cl_uint *ret_wrong)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_int err = clGetPlatformIDs(1, &platform, NULL);

    if (!err)
        err = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    if (err)
        return err;
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
    if (err)
        return err;
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &err);
    cl_program program =
        err ? NULL : clCreateProgramWithSource(context, 1, (const char **)&source, NULL, &err);
    if (!err)
        err = clBuildProgram(program, 0, NULL, "", NULL, NULL);
    cl_kernel kernel = err ? NULL : clCreateKernel(program, "add", &err);
    if (!err)
        err = run(context, queue, kernel, k, ret_wrong);
    if (err)
        return err;
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    return clReleaseContext(context);
}
