#include "tests/contract/samples.h"

#include <stdlib.h>

#include "tests/support/calls.h"

#define SCRATCH_SIZE 65536

static const char *const source = "__kernel void fill(__global uint *out, uint value)"
                                  "{ out[get_global_id(0)] = value; }";

static void make_memory(struct samples *s)
{
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
    s->buffer = MADE(clCreateBuffer, s->context, CL_MEM_READ_WRITE, SAMPLE_BYTES, NULL);
    s->image = MADE(clCreateImage, s->context, CL_MEM_READ_WRITE, &format, &desc, NULL);
    s->sampler = MADE(clCreateSampler, s->context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST);
}

static void make_code(struct samples *s)
{
    const char *text = source;
    s->program = MADE(clCreateProgramWithSource, s->context, 1, &text, NULL);
    OK(clBuildProgram(s->program, 0, NULL, "", NULL, NULL));
    s->kernel = MADE(clCreateKernel, s->program, "fill");
}

void samples_make(struct samples *ret)
{
    struct samples s = {0};
    OK(clGetPlatformIDs(1, &s.platform, NULL));
    OK(clGetDeviceIDs(s.platform, CL_DEVICE_TYPE_ALL, 1, &s.device, NULL));
    s.context = MADE(clCreateContext, NULL, 1, &s.device, NULL, NULL);
    s.queue = MADE(clCreateCommandQueue, s.context, s.device, 0);
    make_memory(&s);
    make_code(&s);
    s.event = MADE(clCreateUserEvent, s.context);
    s.scratch = calloc(1, SCRATCH_SIZE);
    cr_assert_not_null(s.scratch);
    *ret = s;
}

void samples_release(struct samples *s)
{
    free(s->scratch);
    RELEASE(s->event, s->kernel, s->program, s->sampler, s->image, s->buffer, s->queue, s->context);
}
