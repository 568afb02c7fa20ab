#include "tests/contract/samples.h"

#include <stdlib.h>

#define SCRATCH_SIZE 65536

static const char *const source = "__kernel void fill(__global uint *out, uint value)"
                                  "{ out[get_global_id(0)] = value; }";

static void make_memory(struct samples *s)
{
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
    cl_int error;
    s->buffer = clCreateBuffer(s->context, CL_MEM_READ_WRITE, SAMPLE_BYTES, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS, "clCreateBuffer: %d", error);
    s->image = clCreateImage(s->context, CL_MEM_READ_WRITE, &format, &desc, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS, "clCreateImage: %d", error);
    s->sampler = clCreateSampler(s->context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &error);
    cr_assert_eq(error, CL_SUCCESS, "clCreateSampler: %d", error);
}

static void make_code(struct samples *s)
{
    const char *text = source;
    cl_int error;
    s->program = clCreateProgramWithSource(s->context, 1, &text, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS, "clCreateProgramWithSource: %d", error);
    error = clBuildProgram(s->program, 0, NULL, "", NULL, NULL);
    cr_assert_eq(error, CL_SUCCESS, "clBuildProgram: %d", error);
    s->kernel = clCreateKernel(s->program, "fill", &error);
    cr_assert_eq(error, CL_SUCCESS, "clCreateKernel: %d", error);
}

void samples_make(struct samples *ret)
{
    struct samples s = {0};
    cl_int error = clGetPlatformIDs(1, &s.platform, NULL);
    cr_assert_eq(error, CL_SUCCESS, "clGetPlatformIDs: %d", error);
    error = clGetDeviceIDs(s.platform, CL_DEVICE_TYPE_ALL, 1, &s.device, NULL);
    cr_assert_eq(error, CL_SUCCESS, "clGetDeviceIDs: %d", error);
    s.context = clCreateContext(NULL, 1, &s.device, NULL, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS, "clCreateContext: %d", error);
    s.queue = clCreateCommandQueue(s.context, s.device, 0, &error);
    cr_assert_eq(error, CL_SUCCESS, "clCreateCommandQueue: %d", error);
    make_memory(&s);
    make_code(&s);
    s.event = clCreateUserEvent(s.context, &error);
    cr_assert_eq(error, CL_SUCCESS, "clCreateUserEvent: %d", error);
    s.scratch = calloc(1, SCRATCH_SIZE);
    cr_assert_not_null(s.scratch);
    *ret = s;
}

void samples_release(struct samples *s)
{
    free(s->scratch);
    cr_expect_eq(clReleaseEvent(s->event), CL_SUCCESS);
    cr_expect_eq(clReleaseKernel(s->kernel), CL_SUCCESS);
    cr_expect_eq(clReleaseProgram(s->program), CL_SUCCESS);
    cr_expect_eq(clReleaseSampler(s->sampler), CL_SUCCESS);
    cr_expect_eq(clReleaseMemObject(s->image), CL_SUCCESS);
    cr_expect_eq(clReleaseMemObject(s->buffer), CL_SUCCESS);
    cr_expect_eq(clReleaseCommandQueue(s->queue), CL_SUCCESS);
    cr_expect_eq(clReleaseContext(s->context), CL_SUCCESS);
}
