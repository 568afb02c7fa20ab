/** Bad handles and sizes at every command, and at what makes objects. */
#include "badinput.h"

enum { BYTES = 256, HUGE_BYTES_SHIFT = 56 };

static unsigned char host[BYTES];
static const size_t zero[3], one[3] = {1, 1, 1}, box[3] = {4, 1, 1}, aside[3] = {1, 0, 0};

static void CL_CALLBACK native(void *data)
{
    (void)data;
}

/** Every command on queue @q and memory @m (image @i), which must end with @want. */
static void all_commands(struct bad *b, cl_command_queue q, cl_mem m, cl_mem i, cl_uint n,
                         const cl_event *waits, cl_int want)
{
    const cl_uint pattern[4] = {0};

    EXPECT(b, want, clEnqueueReadBuffer(q, m, CL_TRUE, 0, 4, host, n, waits, NULL));
    EXPECT(b, want, clEnqueueWriteBuffer(q, m, CL_TRUE, 0, 4, host, n, waits, NULL));
    EXPECT(
        b, want,
        clEnqueueReadBufferRect(q, m, CL_TRUE, zero, zero, box, 0, 0, 0, 0, host, n, waits, NULL));
    EXPECT(
        b, want,
        clEnqueueWriteBufferRect(q, m, CL_TRUE, zero, zero, box, 0, 0, 0, 0, host, n, waits, NULL));
    EXPECT(b, want, clEnqueueFillBuffer(q, m, pattern, 4, 0, 4, n, waits, NULL));
    EXPECT(b, want, clEnqueueCopyBuffer(q, m, m, 0, 8, 4, n, waits, NULL));
    EXPECT(b, want, clEnqueueCopyBufferRect(q, m, m, zero, box, box, 0, 0, 0, 0, n, waits, NULL));
    EXPECT(b, want, clEnqueueReadImage(q, i, CL_TRUE, zero, one, 0, 0, host, n, waits, NULL));
    EXPECT(b, want, clEnqueueWriteImage(q, i, CL_TRUE, zero, one, 0, 0, host, n, waits, NULL));
    EXPECT(b, want, clEnqueueFillImage(q, i, pattern, zero, one, n, waits, NULL));
    EXPECT(b, want, clEnqueueCopyImage(q, i, i, zero, aside, one, n, waits, NULL));
    EXPECT(b, want, clEnqueueCopyImageToBuffer(q, i, m, zero, one, 0, n, waits, NULL));
    EXPECT(b, want, clEnqueueCopyBufferToImage(q, m, i, 0, zero, one, n, waits, NULL));
    EXPECT_NONE(b, want,
                clEnqueueMapBuffer(q, m, CL_TRUE, CL_MAP_READ, 0, 4, n, waits, NULL, &b->err));
    size_t row, slice;
    EXPECT_NONE(b, want,
                clEnqueueMapImage(q, i, CL_TRUE, CL_MAP_READ, zero, one, &row, &slice, n, waits,
                                  NULL, &b->err));
    EXPECT(b, want, clEnqueueMigrateMemObjects(q, 1, &m, 0, n, waits, NULL));
}

void bad_commands_queue(struct bad *b)
{
    cl_command_queue x = bad_handle(b, b->good.queue, b->freed.queue, b->good.mem);
    cl_mem m = b->good.mem;
    cl_event event;

    all_commands(b, x, m, b->good.image, 0, NULL, CL_INVALID_COMMAND_QUEUE);
    EXPECT(b, CL_INVALID_COMMAND_QUEUE, clEnqueueUnmapMemObject(x, m, host, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE,
           clEnqueueNDRangeKernel(x, b->good.kernel, 1, NULL, one, NULL, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE, clEnqueueTask(x, b->good.kernel, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE,
           clEnqueueNativeKernel(x, native, NULL, 0, 0, NULL, NULL, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE, clEnqueueMarkerWithWaitList(x, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE, clEnqueueBarrierWithWaitList(x, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE, clEnqueueMarker(x, &event));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE, clEnqueueBarrier(x));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE, clEnqueueWaitForEvents(x, 1, &b->good.event));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE,
           clEnqueueSVMFree(x, 1, (void *[]){host}, NULL, NULL, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE,
           clEnqueueSVMMemcpy(x, CL_TRUE, host, host + BYTES / 2, 4, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE, clEnqueueSVMMemFill(x, host, host, 1, 4, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE,
           clEnqueueSVMMap(x, CL_TRUE, CL_MAP_READ, host, 4, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE, clEnqueueSVMUnmap(x, host, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_COMMAND_QUEUE,
           clEnqueueSVMMigrateMem(x, 1, (const void *[]){host}, NULL, 0, 0, NULL, NULL));
}

void bad_commands_mem(struct bad *b)
{
    cl_mem m = bad_handle(b, b->good.mem, b->freed.mem, b->good.queue);
    cl_mem i = bad_handle(b, b->good.image, b->freed.image, b->good.queue);

    all_commands(b, b->good.queue, m, i, 0, NULL, CL_INVALID_MEM_OBJECT);
    EXPECT(b, CL_INVALID_MEM_OBJECT,
           clEnqueueUnmapMemObject(b->good.queue, m, host, 0, NULL, NULL));
}

void bad_commands_wait(struct bad *b)
{
    cl_event x = bad_handle(b, b->good.event, b->freed.event, b->good.mem);
    const cl_int want = CL_INVALID_EVENT_WAIT_LIST;
    cl_command_queue q = b->good.queue;

    all_commands(b, q, b->good.mem, b->good.image, 1, &x, want);
    EXPECT(b, want, clEnqueueMarkerWithWaitList(q, 1, &x, NULL));
    EXPECT(b, want, clEnqueueBarrierWithWaitList(q, 1, &x, NULL));
    if (b->how != HOW_NULL)
        return;
    /* The list and its length contradict each other. */
    all_commands(b, q, b->good.mem, b->good.image, 1, NULL, want);
    all_commands(b, q, b->good.mem, b->good.image, 0, &b->good.event, want);
    EXPECT(b, want, clEnqueueMarkerWithWaitList(q, 1, NULL, NULL));
    EXPECT(b, want, clEnqueueBarrierWithWaitList(q, 0, &b->good.event, NULL));
}

void bad_sizes_objects(struct bad *b)
{
    const cl_context c = b->good.context;
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8}, none = {0, 0};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
    const cl_image_desc flat = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 0};
    const cl_buffer_region beyond = {0, BYTES + 1}, empty = {0, 0};
    const cl_mem_flags both = CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY;
    const cl_context_properties nonsense[] = {0x7fff, 1, 0};
    const cl_queue_properties strange[] = {0x7fff, 1, 0};

    EXPECT_NONE(b, CL_INVALID_VALUE, clCreateContext(NULL, 0, NULL, NULL, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_PROPERTY,
                clCreateContext(nonsense, 1, &b->prog.device, NULL, NULL, &b->err));
    EXPECT_NONE(
        b, CL_INVALID_VALUE,
        clCreateCommandQueue(c, b->prog.device, (cl_command_queue_properties)1 << 40, &b->err));
    EXPECT_NONE(b, CL_INVALID_VALUE,
                clCreateCommandQueueWithProperties(c, b->prog.device, strange, &b->err));
    EXPECT_NONE(b, CL_INVALID_BUFFER_SIZE, clCreateBuffer(c, CL_MEM_READ_WRITE, 0, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_BUFFER_SIZE,
                clCreateBuffer(c, CL_MEM_READ_WRITE, (size_t)1 << HUGE_BYTES_SHIFT, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_VALUE, clCreateBuffer(c, both, 4, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_HOST_PTR, clCreateBuffer(c, CL_MEM_USE_HOST_PTR, 4, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_HOST_PTR, clCreateBuffer(c, CL_MEM_READ_WRITE, 4, host, &b->err));
    EXPECT_NONE(b, CL_INVALID_VALUE,
                clCreateSubBuffer(b->good.mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &beyond, &b->err));
    EXPECT_NONE(b, CL_INVALID_BUFFER_SIZE,
                clCreateSubBuffer(b->good.mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &empty, &b->err));
    EXPECT_NONE(b, CL_INVALID_VALUE,
                clCreateSubBuffer(b->good.mem, 0, CL_BUFFER_CREATE_TYPE_REGION, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_IMAGE_FORMAT_DESCRIPTOR,
                clCreateImage(c, CL_MEM_READ_WRITE, NULL, &desc, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_IMAGE_FORMAT_DESCRIPTOR,
                clCreateImage(c, CL_MEM_READ_WRITE, &none, &desc, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_IMAGE_DESCRIPTOR,
                clCreateImage(c, CL_MEM_READ_WRITE, &format, NULL, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_IMAGE_DESCRIPTOR,
                clCreateImage(c, CL_MEM_READ_WRITE, &format, &flat, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_VALUE,
                clCreateSampler(c, CL_FALSE, 0x7fff, CL_FILTER_NEAREST, &b->err));
}

void bad_sizes_programs(struct bad *b)
{
    const struct objects *o = &b->good;
    const char *source = "__kernel void k(void) {}", *nothing = NULL, *broken = "not a program";
    cl_uint word = 0;
    const unsigned char binary[4] = {1, 2, 3, 4}, *binaries = binary;
    const size_t size = sizeof binary, no_size = 0;
    cl_int status;

    EXPECT_NONE(b, CL_INVALID_VALUE, clCreateProgramWithSource(o->context, 0, NULL, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_VALUE,
                clCreateProgramWithSource(o->context, 1, &nothing, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_VALUE,
                clCreateProgramWithBinary(o->context, 0, NULL, &size, &binaries, NULL, &b->err));
    EXPECT_NONE(b, CL_INVALID_VALUE,
                clCreateProgramWithBinary(o->context, 1, &b->prog.device, &no_size, &binaries,
                                          &status, &b->err));
    EXPECT_NONE(b, CL_INVALID_BINARY,
                clCreateProgramWithBinary(o->context, 1, &b->prog.device, &size, &binaries, &status,
                                          &b->err));
    EXPECT(b, CL_INVALID_BINARY, status);
    EXPECT_NONE(b, CL_INVALID_KERNEL_NAME, clCreateKernel(o->program, "no such kernel", &b->err));
    EXPECT_NONE(b, CL_INVALID_VALUE, clCreateKernel(o->program, NULL, &b->err));

    cl_program fresh = clCreateProgramWithSource(o->context, 1, &source, NULL, &b->err);
    MUST(b->err);
    EXPECT_NONE(b, CL_INVALID_PROGRAM_EXECUTABLE, clCreateKernel(fresh, "k", &b->err));
    EXPECT(b, CL_INVALID_VALUE, clBuildProgram(fresh, 0, &b->prog.device, "", NULL, NULL));
    EXPECT(b, CL_INVALID_VALUE, clBuildProgram(fresh, 1, NULL, "", NULL, NULL));
    EXPECT(b, CL_INVALID_VALUE, clBuildProgram(fresh, 1, &b->prog.device, "", NULL, &word));
    MUST(clReleaseProgram(fresh));
    cl_program wrong = clCreateProgramWithSource(o->context, 1, &broken, NULL, &b->err);
    MUST(b->err);
    EXPECT(b, CL_BUILD_PROGRAM_FAILURE, clBuildProgram(wrong, 1, &b->prog.device, "", NULL, NULL));
    MUST(clReleaseProgram(wrong));
    /* A program with kernels attached is not rebuilt. */
    EXPECT(b, CL_INVALID_OPERATION, clBuildProgram(o->program, 1, &b->prog.device, "", NULL, NULL));

    EXPECT(b, CL_INVALID_ARG_INDEX, clSetKernelArg(o->kernel, 9, sizeof word, &word));
    EXPECT(b, CL_INVALID_ARG_SIZE, clSetKernelArg(o->kernel, 1, 3, &word));
    EXPECT(b, CL_INVALID_ARG_SIZE, clSetKernelArg(o->kernel, 0, 1, &o->mem));
    EXPECT(b, CL_INVALID_ARG_SIZE, clSetKernelArg(o->kernel, 2, 0, NULL));
    EXPECT(b, CL_INVALID_ARG_VALUE, clSetKernelArg(o->kernel, 1, sizeof word, NULL));
    EXPECT(b, CL_INVALID_ARG_VALUE, clSetKernelArg(o->kernel, 2, sizeof word, &word));
}

void bad_sizes_commands(struct bad *b)
{
    const struct objects *o = &b->good;
    const cl_uint word = 0;
    const size_t many[3] = {1, 1, 99}, global = 4, none = 0;
    cl_mem other = prog_buffer(b->prog.context, CL_MEM_READ_WRITE, BYTES, NULL);

    EXPECT(b, CL_INVALID_VALUE,
           clEnqueueReadBuffer(o->queue, o->mem, CL_TRUE, 0, BYTES + 1, host, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_VALUE,
           clEnqueueReadBuffer(o->queue, o->mem, CL_TRUE, SIZE_MAX, 2, host, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_VALUE,
           clEnqueueReadBuffer(o->queue, o->mem, CL_TRUE, 0, 4, NULL, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_VALUE,
           clEnqueueWriteBuffer(o->queue, o->mem, CL_TRUE, BYTES, 1, host, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_VALUE,
           clEnqueueFillBuffer(o->queue, o->mem, host, 3, 0, 6, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_VALUE,
           clEnqueueFillBuffer(o->queue, o->mem, host, 4, 0, 6, 0, NULL, NULL));
    EXPECT(b, CL_MEM_COPY_OVERLAP,
           clEnqueueCopyBuffer(o->queue, o->mem, o->mem, 0, 2, 4, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_VALUE,
           clEnqueueReadImage(o->queue, o->image, CL_TRUE, zero, many, 0, 0, host, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_VALUE, clEnqueueUnmapMemObject(o->queue, o->mem, host, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_CONTEXT,
           clEnqueueReadBuffer(o->queue, other, CL_TRUE, 0, 4, host, 0, NULL, NULL));
    EXPECT_NONE(b, CL_INVALID_VALUE,
                clEnqueueMapBuffer(o->queue, o->mem, CL_TRUE, CL_MAP_READ, 0, BYTES + 1, 0, NULL,
                                   NULL, &b->err));
    EXPECT_NONE(
        b, CL_INVALID_VALUE,
        clEnqueueMapBuffer(o->queue, o->mem, CL_TRUE, 1u << 20, 0, 4, 0, NULL, NULL, &b->err));

    cl_int err;
    cl_kernel unset = clCreateKernel(o->program, "one", &err);
    MUST(err);
    EXPECT(b, CL_INVALID_KERNEL_ARGS,
           clEnqueueNDRangeKernel(o->queue, unset, 1, NULL, &global, NULL, 0, NULL, NULL));
    prog_arg(unset, 0, sizeof o->mem, &o->mem);
    prog_arg(unset, 1, sizeof word, &word);
    prog_arg(unset, 2, sizeof word, NULL);
    EXPECT(b, CL_INVALID_WORK_DIMENSION,
           clEnqueueNDRangeKernel(o->queue, unset, 0, NULL, &global, NULL, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_WORK_DIMENSION,
           clEnqueueNDRangeKernel(o->queue, unset, 4, NULL, &global, NULL, 0, NULL, NULL));
    EXPECT(b, CL_INVALID_WORK_ITEM_SIZE,
           clEnqueueNDRangeKernel(o->queue, unset, 1, NULL, &global, (size_t[]){(size_t)1 << 30}, 0,
                                  NULL, NULL));
    EXPECT(b, CL_INVALID_WORK_GROUP_SIZE,
           clEnqueueNDRangeKernel(o->queue, unset, 1, NULL, &global, &none, 0, NULL, NULL));
    MUST(clReleaseKernel(unset));
    MUST(clReleaseMemObject(other));
}
