#include "tests/contract/samples.h"

#include <stdlib.h>

#include "tests/support/calls.h"
#include "tests/support/leaks.h"

#define SCRATCH_SIZE 65536

static const char *const source = "__kernel void fill(__global uint *out, uint value)"
                                  "{ out[get_global_id(0)] = value; }";

static void make_memory(struct samples *of)
{
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
    of->buffer = MADE(clCreateBuffer, of->context, CL_MEM_READ_WRITE, SAMPLE_BYTES, NULL);
    of->image = MADE(clCreateImage, of->context, CL_MEM_READ_WRITE, &format, &desc, NULL);
    of->sampler = MADE(clCreateSampler, of->context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST);
}

static void make_code(struct samples *of)
{
    of->program = BUILT(of->context, source, "");
    of->kernel = MADE(clCreateKernel, of->program, "fill");
}

void samples_make(struct samples *ret)
{
    struct samples made = {0};
    OK(clGetPlatformIDs(1, &made.platform, NULL));
    OK(clGetDeviceIDs(made.platform, CL_DEVICE_TYPE_ALL, 1, &made.device, NULL));
    made.context = MADE(clCreateContext, NULL, 1, &made.device, NULL, NULL);
    made.queue = MADE(clCreateCommandQueue, made.context, made.device, 0);
    make_memory(&made);
    make_code(&made);
    made.event = MADE(clCreateUserEvent, made.context);
    made.scratch = calloc(1, SCRATCH_SIZE);
    cr_assert_not_null(made.scratch);
    *ret = made;
}

void samples_release(struct samples *samples)
{
    free(samples->scratch);
    RELEASE(samples->event, samples->kernel, samples->program, samples->sampler, samples->image,
            samples->buffer, samples->queue, samples->context);
}

struct samples s;

void samples_begin(void)
{
    samples_make(&s);
}

void samples_end(void)
{
    samples_release(&s);
    memset(&s, 0, sizeof(s));
    leaks_check();
}
