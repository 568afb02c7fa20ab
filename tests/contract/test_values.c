#include <stdint.h>

#include "tests/contract/samples.h"
#include "tests/support/calls.h"
#include "tests/support/leaks.h"

/* Values that are wrong beside handles that are right, and handles that are bad where
 * the other cases do not look: in a list, in properties, as an argument's value. */

#define BYTES            4096 /* Of the buffer. */
#define HUGE_BYTES_SHIFT 56

static const char source[] = "__kernel void one(__global uint *a, uint k, __local uint *l) {\n"
                             "    a[get_global_id(0)] = k + l[0];\n"
                             "}\n";
static unsigned char host[BYTES];
static cl_uint answer[256];
static const size_t zero[3], one[3] = {1, 1, 1}, box[3] = {4, 1, 1}, aside[3] = {1, 0, 0};
static cl_program program;
static cl_kernel kernel;
static cl_int error;

#define EXPECT(want, call)      expect((call), want, #call)
#define EXPECT_NONE(want, call) (error = CL_SUCCESS, expect_none((call), want, #call))

static void expect(cl_int got, cl_int want, const char *call)
{
    cr_expect_eq(got, want, "%s gave %d, not %d", call, got, want);
}

static void expect_none(const void *got, cl_int want, const char *call)
{
    cr_expect_null(got, "%s made something", call);
    expect(error, want, call);
}

static void make(void)
{
    const char *text = source;

    samples_make(&s);
    program = MADE(clCreateProgramWithSource, s.context, 1, &text, NULL);
    OK(clBuildProgram(program, 1, &s.device, "", NULL, NULL));
    kernel = MADE(clCreateKernel, program, "one");
}

/* What all of this was done beside still works. */
static void release(void)
{
    cl_uint word = 1, got = 0;

    cr_expect_eq(clEnqueueWriteBuffer(s.queue, s.buffer, CL_TRUE, 0, 4, &word, 0, NULL, NULL), 0);
    cr_expect_eq(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 0, 4, &got, 0, NULL, NULL), 0);
    cr_expect_eq(got, word);
    RELEASE(kernel, program);
    samples_release(&s);
    leaks_check();
}

TestSuite(values, .init = make, .fini = release, .timeout = 60);

static void CL_CALLBACK ignore_event(cl_event event, cl_int status, void *data)
{
    (void)event;
    (void)status;
    (void)data;
}

/* ---- handles ---- */

/* Every command with a wait list that is none. */
static void try_waits(cl_uint n, const cl_event *waits)
{
    const cl_command_queue q = s.queue;
    const cl_mem m = s.buffer, i = s.image;
    const cl_uint pattern[4] = {0};

    EXPECT(CL_INVALID_EVENT_WAIT_LIST,
           clEnqueueReadBuffer(q, m, CL_TRUE, 0, 4, host, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST,
           clEnqueueWriteBuffer(q, m, CL_TRUE, 0, 4, host, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueReadBufferRect(q, m, CL_TRUE, zero, zero, box, 0, 0,
                                                               0, 0, host, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueWriteBufferRect(q, m, CL_TRUE, zero, zero, box, 0,
                                                                0, 0, 0, host, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueFillBuffer(q, m, pattern, 4, 0, 4, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueCopyBuffer(q, m, m, 0, 8, 4, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST,
           clEnqueueCopyBufferRect(q, m, m, zero, box, box, 0, 0, 0, 0, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST,
           clEnqueueReadImage(q, i, CL_TRUE, zero, one, 0, 0, host, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST,
           clEnqueueWriteImage(q, i, CL_TRUE, zero, one, 0, 0, host, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST,
           clEnqueueFillImage(q, i, pattern, zero, one, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST,
           clEnqueueCopyImage(q, i, i, zero, aside, one, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST,
           clEnqueueCopyImageToBuffer(q, i, m, zero, one, 0, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST,
           clEnqueueCopyBufferToImage(q, m, i, 0, zero, one, n, waits, NULL));
    EXPECT_NONE(CL_INVALID_EVENT_WAIT_LIST,
                clEnqueueMapBuffer(q, m, CL_TRUE, CL_MAP_READ, 0, 4, n, waits, NULL, &error));
    size_t row, slice;
    EXPECT_NONE(CL_INVALID_EVENT_WAIT_LIST,
                clEnqueueMapImage(q, i, CL_TRUE, CL_MAP_READ, zero, one, &row, &slice, n, waits,
                                  NULL, &error));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueMigrateMemObjects(q, 1, &m, 0, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueMarkerWithWaitList(q, n, waits, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueBarrierWithWaitList(q, n, waits, NULL));
}

static cl_event freed_event(void)
{
    cl_event event = clCreateUserEvent(s.context, &error);

    cr_expect_eq(clReleaseEvent(event), CL_SUCCESS);
    return event;
}

Test(values, wait_lists_hold_as_many_events_as_they_say)
{
    static char foreign[256];
    cl_event bad[] = {NULL,
                      (cl_event)foreign,
                      (cl_event)(uintptr_t)0x1000,
                      (cl_event)((char *)s.event + 4),
                      freed_event(),
                      (cl_event)s.buffer};

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        try_waits(1, &bad[i]);
    try_waits(1, NULL);
    try_waits(0, &s.event);
}

Test(values, properties_and_arguments_name_objects_that_there_are)
{
    static char foreign[256];
    void *bad[] = {foreign, (void *)(uintptr_t)0x1000, s.queue};
    cl_mem freed = MADE(clCreateBuffer, s.context, CL_MEM_READ_WRITE, BYTES, NULL);

    EXPECT(CL_SUCCESS, clSetKernelArg(kernel, 0, sizeof freed, &freed));
    OK(clReleaseMemObject(freed));
    EXPECT(CL_INVALID_MEM_OBJECT, clSetKernelArg(kernel, 0, sizeof freed, &freed));
    EXPECT(CL_SUCCESS, clSetKernelArg(kernel, 0, sizeof freed, NULL));
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                    (cl_context_properties)bad[i], 0};
        EXPECT_NONE(CL_INVALID_PLATFORM,
                    clCreateContext(properties, 1, &s.device, NULL, NULL, &error));
        EXPECT_NONE(CL_INVALID_PLATFORM,
                    clCreateContextFromType(properties, CL_DEVICE_TYPE_ALL, NULL, NULL, &error));
        EXPECT(CL_INVALID_MEM_OBJECT, clSetKernelArg(kernel, 0, sizeof(bad[i]), &bad[i]));
    }
}

/* ---- values ---- */

Test(values, questions_need_a_name_and_room)
{
    const cl_uint none = 0xffff;
    cl_uint n;

    EXPECT(CL_INVALID_VALUE, clGetPlatformIDs(0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clGetPlatformIDs(0, (cl_platform_id *)answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetPlatformInfo(s.platform, none, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetPlatformInfo(s.platform, CL_PLATFORM_NAME, 1, answer, NULL));
    EXPECT(CL_INVALID_DEVICE_TYPE, clGetDeviceIDs(s.platform, 1u << 20, 0, NULL, &n));
    EXPECT(CL_INVALID_VALUE,
           clGetDeviceIDs(s.platform, CL_DEVICE_TYPE_ALL, 0, (cl_device_id *)answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetDeviceInfo(s.device, none, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetDeviceInfo(s.device, CL_DEVICE_TYPE, 1, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetContextInfo(s.context, none, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetContextInfo(s.context, CL_CONTEXT_DEVICES, 1, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetCommandQueueInfo(s.queue, none, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetCommandQueueInfo(s.queue, CL_QUEUE_CONTEXT, 1, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetMemObjectInfo(s.buffer, none, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetMemObjectInfo(s.buffer, CL_MEM_SIZE, 1, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetImageInfo(s.image, none, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT,
           clGetImageInfo(s.buffer, CL_IMAGE_WIDTH, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetSamplerInfo(s.sampler, none, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetProgramInfo(program, none, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetProgramInfo(program, CL_PROGRAM_SOURCE, 1, answer, NULL));
    EXPECT(CL_INVALID_VALUE,
           clGetProgramBuildInfo(program, s.device, none, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetKernelInfo(kernel, none, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_ARG_INDEX,
           clGetKernelArgInfo(kernel, 9, CL_KERNEL_ARG_NAME, sizeof answer, answer, NULL));
    EXPECT(CL_KERNEL_ARG_INFO_NOT_AVAILABLE,
           clGetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_NAME, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_VALUE,
           clGetKernelWorkGroupInfo(kernel, s.device, none, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clGetEventInfo(s.event, none, sizeof answer, answer, NULL));
    EXPECT(CL_PROFILING_INFO_NOT_AVAILABLE,
           clGetEventProfilingInfo(s.event, CL_PROFILING_COMMAND_END, sizeof answer, answer, NULL));
    EXPECT(CL_INVALID_VALUE, clSetEventCallback(s.event, CL_COMPLETE, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clSetEventCallback(s.event, 99, ignore_event, NULL));
    EXPECT(CL_INVALID_VALUE, clSetUserEventStatus(s.event, CL_RUNNING));
    EXPECT(CL_INVALID_VALUE, clSetMemObjectDestructorCallback(s.buffer, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clSetContextDestructorCallback(s.context, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clWaitForEvents(0, NULL));
}

Test(values, objects_are_made_of_sizes_and_flags_there_are)
{
    const cl_context c = s.context;
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8}, none = {0, 0};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
    const cl_image_desc flat = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 0};
    const cl_buffer_region beyond = {0, BYTES + 1}, empty = {0, 0};
    const cl_mem_flags both = CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY;
    const cl_context_properties nonsense[] = {0x7fff, 1, 0};
    const cl_queue_properties strange[] = {0x7fff, 1, 0};

    EXPECT_NONE(CL_INVALID_VALUE, clCreateContext(NULL, 0, NULL, NULL, NULL, &error));
    EXPECT_NONE(CL_INVALID_PROPERTY, clCreateContext(nonsense, 1, &s.device, NULL, NULL, &error));
    EXPECT_NONE(CL_INVALID_VALUE,
                clCreateCommandQueue(c, s.device, (cl_command_queue_properties)1 << 40, &error));
    EXPECT_NONE(CL_INVALID_VALUE, clCreateCommandQueueWithProperties(c, s.device, strange, &error));
    EXPECT_NONE(CL_INVALID_BUFFER_SIZE, clCreateBuffer(c, CL_MEM_READ_WRITE, 0, NULL, &error));
    EXPECT_NONE(CL_INVALID_BUFFER_SIZE,
                clCreateBuffer(c, CL_MEM_READ_WRITE, (size_t)1 << HUGE_BYTES_SHIFT, NULL, &error));
    EXPECT_NONE(CL_INVALID_VALUE, clCreateBuffer(c, both, 4, NULL, &error));
    EXPECT_NONE(CL_INVALID_HOST_PTR, clCreateBuffer(c, CL_MEM_USE_HOST_PTR, 4, NULL, &error));
    EXPECT_NONE(CL_INVALID_HOST_PTR, clCreateBuffer(c, CL_MEM_READ_WRITE, 4, host, &error));
    EXPECT_NONE(CL_INVALID_VALUE,
                clCreateSubBuffer(s.buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &beyond, &error));
    EXPECT_NONE(CL_INVALID_BUFFER_SIZE,
                clCreateSubBuffer(s.buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &empty, &error));
    EXPECT_NONE(CL_INVALID_VALUE,
                clCreateSubBuffer(s.buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, NULL, &error));
    EXPECT_NONE(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR,
                clCreateImage(c, CL_MEM_READ_WRITE, NULL, &desc, NULL, &error));
    EXPECT_NONE(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR,
                clCreateImage(c, CL_MEM_READ_WRITE, &none, &desc, NULL, &error));
    EXPECT_NONE(CL_INVALID_IMAGE_DESCRIPTOR,
                clCreateImage(c, CL_MEM_READ_WRITE, &format, NULL, NULL, &error));
    EXPECT_NONE(CL_INVALID_IMAGE_DESCRIPTOR,
                clCreateImage(c, CL_MEM_READ_WRITE, &format, &flat, NULL, &error));
    EXPECT_NONE(CL_INVALID_VALUE, clCreateSampler(c, CL_FALSE, 0x7fff, CL_FILTER_NEAREST, &error));
}

Test(values, programs_and_arguments_are_what_the_source_says)
{
    const char *text = "__kernel void k(void) {}", *nothing = NULL, *broken = "not a program";
    cl_uint word = 0;
    const unsigned char binary[4] = {1, 2, 3, 4}, *binaries = binary;
    const size_t size = sizeof binary, no_size = 0;
    cl_int status;

    EXPECT_NONE(CL_INVALID_VALUE, clCreateProgramWithSource(s.context, 0, NULL, NULL, &error));
    EXPECT_NONE(CL_INVALID_VALUE, clCreateProgramWithSource(s.context, 1, &nothing, NULL, &error));
    EXPECT_NONE(CL_INVALID_VALUE,
                clCreateProgramWithBinary(s.context, 0, NULL, &size, &binaries, NULL, &error));
    EXPECT_NONE(CL_INVALID_VALUE, clCreateProgramWithBinary(s.context, 1, &s.device, &no_size,
                                                            &binaries, &status, &error));
    EXPECT_NONE(CL_INVALID_BINARY, clCreateProgramWithBinary(s.context, 1, &s.device, &size,
                                                             &binaries, &status, &error));
    EXPECT(CL_INVALID_BINARY, status);
    EXPECT_NONE(CL_INVALID_KERNEL_NAME, clCreateKernel(program, "no such kernel", &error));
    EXPECT_NONE(CL_INVALID_VALUE, clCreateKernel(program, NULL, &error));

    cl_program fresh = MADE(clCreateProgramWithSource, s.context, 1, &text, NULL);
    EXPECT_NONE(CL_INVALID_PROGRAM_EXECUTABLE, clCreateKernel(fresh, "k", &error));
    EXPECT(CL_INVALID_VALUE, clBuildProgram(fresh, 0, &s.device, "", NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clBuildProgram(fresh, 1, NULL, "", NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clBuildProgram(fresh, 1, &s.device, "", NULL, &word));
    cr_expect_eq(clReleaseProgram(fresh), CL_SUCCESS);
    cl_program wrong = MADE(clCreateProgramWithSource, s.context, 1, &broken, NULL);
    EXPECT(CL_BUILD_PROGRAM_FAILURE, clBuildProgram(wrong, 1, &s.device, "", NULL, NULL));
    cr_expect_eq(clReleaseProgram(wrong), CL_SUCCESS);
    /* A program with kernels attached is not rebuilt. */
    EXPECT(CL_INVALID_OPERATION, clBuildProgram(program, 1, &s.device, "", NULL, NULL));

    EXPECT(CL_INVALID_ARG_INDEX, clSetKernelArg(kernel, 9, sizeof word, &word));
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 1, 3, &word));
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 0, 1, &s.buffer));
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 2, 0, NULL));
    EXPECT(CL_INVALID_MEM_OBJECT, clSetKernelArg(kernel, 0, sizeof s.image, &s.image));
    EXPECT(CL_INVALID_ARG_VALUE, clSetKernelArg(kernel, 1, sizeof word, NULL));
    EXPECT(CL_INVALID_ARG_VALUE, clSetKernelArg(kernel, 2, sizeof word, &word));
}

Test(values, commands_lie_in_their_objects)
{
    const cl_uint word = 0;
    const size_t many[3] = {1, 1, 99}, global = 4, none = 0;
    cl_context context = clCreateContext(NULL, 1, &s.device, NULL, NULL, &error);
    cl_mem other = clCreateBuffer(context, CL_MEM_READ_WRITE, BYTES, NULL, &error);

    EXPECT(CL_INVALID_VALUE,
           clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 0, BYTES + 1, host, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE,
           clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, SIZE_MAX, 2, host, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE,
           clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 0, 4, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE,
           clEnqueueWriteBuffer(s.queue, s.buffer, CL_TRUE, BYTES, 1, host, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueFillBuffer(s.queue, s.buffer, host, 3, 0, 6, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueFillBuffer(s.queue, s.buffer, host, 4, 0, 6, 0, NULL, NULL));
    EXPECT(CL_MEM_COPY_OVERLAP,
           clEnqueueCopyBuffer(s.queue, s.buffer, s.buffer, 0, 2, 4, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE,
           clEnqueueReadImage(s.queue, s.image, CL_TRUE, zero, many, 0, 0, host, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueUnmapMemObject(s.queue, s.buffer, host, 0, NULL, NULL));
    EXPECT(CL_INVALID_CONTEXT,
           clEnqueueReadBuffer(s.queue, other, CL_TRUE, 0, 4, host, 0, NULL, NULL));
    EXPECT_NONE(CL_INVALID_VALUE, clEnqueueMapBuffer(s.queue, s.buffer, CL_TRUE, CL_MAP_READ, 0,
                                                     BYTES + 1, 0, NULL, NULL, &error));
    EXPECT_NONE(CL_INVALID_VALUE, clEnqueueMapBuffer(s.queue, s.buffer, CL_TRUE, 1u << 20, 0, 4, 0,
                                                     NULL, NULL, &error));

    cl_kernel unset = clCreateKernel(program, "one", &error);
    EXPECT(CL_INVALID_KERNEL_ARGS,
           clEnqueueNDRangeKernel(s.queue, unset, 1, NULL, &global, NULL, 0, NULL, NULL));
    OK(clSetKernelArg(unset, 0, sizeof s.buffer, &s.buffer));
    OK(clSetKernelArg(unset, 1, sizeof word, &word));
    OK(clSetKernelArg(unset, 2, sizeof word, NULL));
    EXPECT(CL_INVALID_WORK_DIMENSION,
           clEnqueueNDRangeKernel(s.queue, unset, 0, NULL, &global, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_WORK_DIMENSION,
           clEnqueueNDRangeKernel(s.queue, unset, 4, NULL, &global, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_WORK_ITEM_SIZE,
           clEnqueueNDRangeKernel(s.queue, unset, 1, NULL, &global, (size_t[]){(size_t)1 << 30}, 0,
                                  NULL, NULL));
    EXPECT(CL_INVALID_WORK_GROUP_SIZE,
           clEnqueueNDRangeKernel(s.queue, unset, 1, NULL, &global, &none, 0, NULL, NULL));
    RELEASE(unset, other, context);
}
