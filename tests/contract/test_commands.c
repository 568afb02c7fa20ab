#include "tests/contract/samples.h"
#include "tests/support/calls.h"

/* What the entry points answer by themselves: information, and errors that no driver is asked
 * for.
 */

TestSuite(commands, .init = samples_begin, .fini = samples_end, .timeout = 60);

Test(commands, transfers_beyond_the_end_are_refused)
{
    char bytes[64];
    const size_t huge = SIZE_MAX - 8;
    expect_error(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 4090, 7, bytes, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 16, huge, bytes, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, huge, 16, bytes, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 0, 16, NULL, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clEnqueueWriteBuffer(s.queue, s.buffer, CL_TRUE, 4096, 1, bytes, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clEnqueueReadBuffer(s.queue, s.image, CL_TRUE, 0, 4, bytes, 0, NULL, NULL),
                 CL_INVALID_MEM_OBJECT);
    expect_error(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 4032, 64, bytes, 0, NULL, NULL),
                 CL_SUCCESS);
}

/* OpenCL 3.0: nothing to do is not an error; some drivers say it is. */
Test(commands, transfers_of_nothing_are_commands)
{
    char bytes[16] = {0};
    cl_int error;
    cl_event gate = clCreateUserEvent(s.context, &error), done[4];
    cr_assert_eq(error, CL_SUCCESS);
    expect_error(
        clEnqueueReadBuffer(s.queue, s.buffer, CL_FALSE, 4096, 0, bytes, 1, &gate, &done[0]),
        CL_SUCCESS);
    expect_error(clEnqueueWriteBuffer(s.queue, s.buffer, CL_FALSE, 7, 0, bytes, 0, NULL, &done[1]),
                 CL_SUCCESS);
    expect_error(clEnqueueCopyBuffer(s.queue, s.buffer, s.buffer, 16, 16, 0, 0, NULL, &done[2]),
                 CL_SUCCESS);
    expect_error(clEnqueueFillBuffer(s.queue, s.buffer, bytes, 8, 16, 0, 0, NULL, &done[3]),
                 CL_SUCCESS);
    static const cl_command_type types[] = {CL_COMMAND_READ_BUFFER, CL_COMMAND_WRITE_BUFFER,
                                            CL_COMMAND_COPY_BUFFER, CL_COMMAND_FILL_BUFFER};
    for (int opened = 0; opened < 2; opened++) {
        for (size_t i = 0; i < 4; i++) {
            cl_command_type type = 0;
            cl_int status = CL_INVALID_VALUE;
            clGetEventInfo(done[i], CL_EVENT_COMMAND_TYPE, sizeof(type), &type, NULL);
            clGetEventInfo(done[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status,
                           NULL);
            cr_expect_eq(type, types[i]);
            cr_expect(opened ? status == CL_COMPLETE : status > CL_COMPLETE, "%zu: %d", i, status);
        }
        expect_error(clSetUserEventStatus(gate, CL_COMPLETE),
                     opened ? CL_INVALID_OPERATION : CL_SUCCESS);
        expect_error(clFinish(s.queue), CL_SUCCESS);
    }
    for (size_t i = 0; i < 4; i++)
        clReleaseEvent(done[i]);
    clReleaseEvent(gate);
    expect_error(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 0, 0, bytes, 0, NULL, NULL),
                 CL_SUCCESS);
    expect_error(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 0, 0, NULL, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 4097, 0, bytes, 0, NULL, NULL),
                 CL_INVALID_VALUE);
}

Test(commands, copies_beyond_either_end_are_refused)
{
    cl_mem small = MADE(clCreateBuffer, s.context, CL_MEM_READ_WRITE, 64, NULL);
#define COPY(from, to, a, b, size) clEnqueueCopyBuffer(s.queue, from, to, a, b, size, 0, NULL, NULL)
    expect_error(COPY(s.buffer, small, 4032, 0, 64), CL_SUCCESS);
    expect_error(COPY(s.buffer, small, 4033, 0, 64), CL_INVALID_VALUE);
    expect_error(COPY(s.buffer, small, 0, 1, 64), CL_INVALID_VALUE);
    expect_error(COPY(small, s.buffer, 1, 0, 64), CL_INVALID_VALUE);
    expect_error(COPY(small, s.buffer, SIZE_MAX, 0, 2), CL_INVALID_VALUE);
#undef COPY
    clReleaseMemObject(small);
}

Test(commands, boxes_beyond_the_end_are_refused)
{
    char bytes[4096];
    const size_t zero[3] = {0}, region[3] = {8, 4, 2}, none[3] = {8, 0, 2};
    const size_t far[3] = {SIZE_MAX / 2, SIZE_MAX / 2, SIZE_MAX / 2};
#define READ(origin, region, row, slice)                                                           \
    clEnqueueReadBufferRect(s.queue, s.buffer, CL_TRUE, origin, zero, region, row, slice, 0, 0,    \
                            bytes, 0, NULL, NULL)
    expect_error(READ(zero, region, 0, 0), CL_SUCCESS);
    expect_error(READ(zero, region, 512, 2048), CL_SUCCESS);
    expect_error(READ(zero, region, 512, 3072), CL_INVALID_VALUE);
    expect_error(READ(zero, region, 7, 0), CL_INVALID_VALUE);
    expect_error(READ(zero, region, 8, 31), CL_INVALID_VALUE);
    expect_error(READ(zero, region, 8, 36), CL_INVALID_VALUE);
    expect_error(READ(zero, none, 0, 0), CL_INVALID_VALUE);
    expect_error(READ(far, region, 64, 4096), CL_INVALID_VALUE);
    expect_error(READ(zero, far, 0, 0), CL_INVALID_VALUE);
    expect_error(READ(NULL, region, 0, 0), CL_INVALID_VALUE);
    expect_error(READ(zero, NULL, 0, 0), CL_INVALID_VALUE);
#undef READ
}

Test(commands, boxes_are_copied_within_both_buffers)
{
    const size_t zero[3] = {0}, last[3] = {0, 0, 63}, past[3] = {0, 0, 64}, region[3] = {8, 8, 1};
    const size_t none[3] = {8, 0, 1};
    cl_mem other = MADE(clCreateBuffer, s.context, CL_MEM_READ_WRITE, 4096, NULL);
#define COPY(from, to, region, row, slice)                                                         \
    clEnqueueCopyBufferRect(s.queue, s.buffer, other, from, to, region, row, slice, 8, 64, 0,      \
                            NULL, NULL)
    expect_error(COPY(zero, zero, region, 8, 64), CL_SUCCESS);
    expect_error(COPY(last, last, region, 8, 64), CL_SUCCESS);
    expect_error(COPY(past, zero, region, 8, 64), CL_INVALID_VALUE);
    expect_error(COPY(zero, past, region, 8, 64), CL_INVALID_VALUE);
    expect_error(COPY(zero, zero, none, 8, 64), CL_INVALID_VALUE);
    expect_error(COPY(zero, zero, region, 7, 64), CL_INVALID_VALUE);
    expect_error(COPY(zero, zero, region, 8, 60), CL_INVALID_VALUE);
    /* 5.2.4: within one buffer the pitches are the same. */
    const size_t later[3] = {0, 0, 20};
    expect_error(clEnqueueCopyBufferRect(s.queue, s.buffer, s.buffer, zero, later, region, 8, 64,
                                         16, 128, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clFinish(s.queue), CL_SUCCESS);
#undef COPY
    char bytes[4096];
#define WRITE(origin, region, row, slice)                                                          \
    clEnqueueWriteBufferRect(s.queue, s.buffer, CL_TRUE, origin, zero, region, row, slice, 0, 0,   \
                             bytes, 0, NULL, NULL)
    memset(bytes, 0, sizeof(bytes));
    expect_error(WRITE(last, region, 8, 64), CL_SUCCESS);
    expect_error(WRITE(past, region, 8, 64), CL_INVALID_VALUE);
    expect_error(WRITE(zero, none, 8, 64), CL_INVALID_VALUE);
    expect_error(WRITE(zero, region, 7, 64), CL_INVALID_VALUE);
#undef WRITE
    clReleaseMemObject(other);
}

Test(commands, patterns_have_a_size_that_divides)
{
    char pattern[256] = {0};
    const size_t wrong[] = {0, 3, 12, 256, SIZE_MAX};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect_error(
            clEnqueueFillBuffer(s.queue, s.buffer, pattern, wrong[i], 0, 768, 0, NULL, NULL),
            CL_INVALID_VALUE);
    expect_error(clEnqueueFillBuffer(s.queue, s.buffer, pattern, 8, 4, 16, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clEnqueueFillBuffer(s.queue, s.buffer, pattern, 8, 0, 20, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clEnqueueFillBuffer(s.queue, s.buffer, NULL, 8, 0, 16, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clEnqueueFillBuffer(s.queue, s.buffer, pattern, 128, 0, 4096, 0, NULL, NULL),
                 CL_SUCCESS);
}

/* Which bytes of the buffer a box covers, one by one. */
static void paint(unsigned char *bytes, const size_t at[3], const size_t region[3], size_t row,
                  size_t slice, unsigned char bit)
{
    for (size_t z = 0; z < region[2]; z++)
        for (size_t y = 0; y < region[1]; y++)
            for (size_t x = 0; x < region[0]; x++)
                bytes[(at[2] + z) * slice + (at[1] + y) * row + at[0] + x] |= bit;
}

static bool share_bytes(const size_t a[3], const size_t b[3], const size_t region[3], size_t row,
                        size_t slice)
{
    unsigned char bytes[4096] = {0};
    paint(bytes, a, region, row, slice, 1);
    paint(bytes, b, region, row, slice, 2);
    for (size_t i = 0; i < sizeof(bytes); i++)
        if (bytes[i] == 3)
            return true;
    return false;
}

Test(commands, boxes_of_one_buffer_may_not_overlap)
{
    unsigned overlapping = 0, apart = 0;
    const size_t row = 8, slice = 64;
    srand(1);
    for (int i = 0; i < 20000; i++) {
        const size_t region[3] = {1 + (size_t)rand() % 5, 1 + (size_t)rand() % 5,
                                  1 + (size_t)rand() % 3};
        const size_t a[3] = {(size_t)rand() % (9 - region[0]), (size_t)rand() % (9 - region[1]),
                             (size_t)rand() % 3};
        const size_t b[3] = {(size_t)rand() % (9 - region[0]), (size_t)rand() % (9 - region[1]),
                             (size_t)rand() % 3};
        bool shared = share_bytes(a, b, region, row, slice);
        cl_int error = clEnqueueCopyBufferRect(s.queue, s.buffer, s.buffer, a, b, region, row,
                                               slice, row, slice, 0, NULL, NULL);
        cr_assert_eq(error, shared ? CL_MEM_COPY_OVERLAP : CL_SUCCESS,
                     "%zu,%zu,%zu to %zu,%zu,%zu of %zu,%zu,%zu gave %d", a[0], a[1], a[2], b[0],
                     b[1], b[2], region[0], region[1], region[2], error);
        overlapping += shared;
        apart += !shared;
    }
    cr_expect_gt(overlapping, 1000);
    cr_expect_gt(apart, 1000);
    expect_error(clEnqueueCopyBuffer(s.queue, s.buffer, s.buffer, 0, 15, 16, 0, NULL, NULL),
                 CL_MEM_COPY_OVERLAP);
    expect_error(clEnqueueCopyBuffer(s.queue, s.buffer, s.buffer, 0, 16, 16, 0, NULL, NULL),
                 CL_SUCCESS);
    expect_error(clFinish(s.queue), CL_SUCCESS);
}

Test(commands, image_regions_lie_in_the_image)
{
    unsigned char bytes[8 * 8 * 4];
    const float color[4] = {0};
    const size_t zero[3] = {0}, all[3] = {8, 8, 1}, wide[3] = {9, 8, 1}, deep[3] = {8, 8, 2};
    const size_t flat[3] = {8, 8, 0}, one[3] = {1, 0, 0}, up[3] = {0, 0, 1};
#define READ(origin, region, row, slice)                                                           \
    clEnqueueReadImage(s.queue, s.image, CL_TRUE, origin, region, row, slice, bytes, 0, NULL, NULL)
    expect_error(READ(zero, all, 0, 0), CL_SUCCESS);
    expect_error(READ(zero, all, 32, 0), CL_SUCCESS);
    expect_error(READ(zero, all, 31, 0), CL_INVALID_VALUE);
    /* A pitch with which later rows would lie before the pointer. */
    expect_error(READ(zero, all, SIZE_MAX - 15, 0), CL_INVALID_VALUE);
    expect_error(READ(zero, all, 0, 256), CL_INVALID_VALUE);
    expect_error(READ(zero, wide, 0, 0), CL_INVALID_VALUE);
    expect_error(READ(zero, deep, 0, 0), CL_INVALID_VALUE);
    expect_error(READ(zero, flat, 0, 0), CL_INVALID_VALUE);
    expect_error(READ(one, all, 0, 0), CL_INVALID_VALUE);
    expect_error(READ(up, all, 0, 0), CL_INVALID_VALUE);
#undef READ
#define WRITE(origin, region, row, slice)                                                          \
    clEnqueueWriteImage(s.queue, s.image, CL_TRUE, origin, region, row, slice, bytes, 0, NULL, NULL)
    expect_error(WRITE(zero, all, 0, 0), CL_SUCCESS);
    expect_error(WRITE(zero, all, 31, 0), CL_INVALID_VALUE);
    expect_error(WRITE(zero, all, SIZE_MAX - 15, 0), CL_INVALID_VALUE);
    expect_error(WRITE(zero, all, 0, 256), CL_INVALID_VALUE);
    expect_error(WRITE(zero, wide, 0, 0), CL_INVALID_VALUE);
    expect_error(WRITE(one, all, 0, 0), CL_INVALID_VALUE);
#undef WRITE
    expect_error(
        clEnqueueWriteImage(s.queue, s.image, CL_TRUE, zero, all, 0, 0, NULL, 0, NULL, NULL),
        CL_INVALID_VALUE);
    expect_error(clEnqueueFillImage(s.queue, s.image, color, one, all, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clEnqueueCopyImage(s.queue, s.image, s.image, zero, zero, all, 0, NULL, NULL),
                 CL_MEM_COPY_OVERLAP);
    const size_t half[3] = {4, 8, 1}, right[3] = {4, 0, 0}, far[3] = {5, 0, 0};
    expect_error(clEnqueueCopyImage(s.queue, s.image, s.image, zero, right, half, 0, NULL, NULL),
                 CL_SUCCESS);
    expect_error(clEnqueueCopyImage(s.queue, s.image, s.image, zero, far, half, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clEnqueueCopyImage(s.queue, s.image, s.image, far, zero, half, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(
        clEnqueueCopyImageToBuffer(s.queue, s.image, s.buffer, zero, all, 4000, 0, NULL, NULL),
        CL_INVALID_VALUE);
    expect_error(
        clEnqueueCopyBufferToImage(s.queue, s.buffer, s.image, 3840, zero, all, 0, NULL, NULL),
        CL_SUCCESS);
}

Test(commands, a_held_command_gives_its_error_at_the_call)
{
    char bytes[16];
    cl_event event = (cl_event)bytes;
    expect_error(
        clEnqueueReadBuffer(s.queue, s.buffer, CL_FALSE, 4090, 16, bytes, 1, &s.event, &event),
        CL_INVALID_VALUE);
    cr_expect_eq(event, (cl_event)bytes, "an output was touched by a call that failed");
    clSetUserEventStatus(s.event, CL_COMPLETE);
}

Test(commands, commands_keep_what_the_program_may_change_after_the_call)
{
    unsigned char pattern = 7, out[64], in[64];
    size_t zero[3] = {0}, region[3] = {8, 8, 1};
    cl_mem moved = s.buffer;
    memset(out, 0x33, sizeof(out));
    expect_error(clEnqueueFillBuffer(s.queue, s.buffer, &pattern, 1, 64, 64, 1, &s.event, NULL),
                 CL_SUCCESS);
    expect_error(clEnqueueWriteBufferRect(s.queue, s.buffer, CL_FALSE, zero, zero, region, 0, 0, 0,
                                          0, out, 1, &s.event, NULL),
                 CL_SUCCESS);
    expect_error(clEnqueueMigrateMemObjects(s.queue, 1, &moved, 0, 1, &s.event, NULL), CL_SUCCESS);
    pattern = 9;
    memset(zero, 0xff, sizeof(zero));
    memset(region, 0, sizeof(region));
    moved = NULL;
    expect_error(clSetUserEventStatus(s.event, CL_COMPLETE), CL_SUCCESS);
    expect_error(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 0, 64, in, 0, NULL, NULL),
                 CL_SUCCESS);
    cr_expect_arr_eq(in, out, 64);
    expect_error(clEnqueueReadBuffer(s.queue, s.buffer, CL_TRUE, 64, 64, in, 0, NULL, NULL),
                 CL_SUCCESS);
    for (int i = 0; i < 64; i++)
        cr_assert_eq(in[i], 7);
}

Test(commands, answers_need_room_and_a_name)
{
    cl_uint count = 77;
    size_t size = 77;
    expect_error(clGetContextInfo(s.context, CL_CONTEXT_NUM_DEVICES, 3, &count, &size),
                 CL_INVALID_VALUE);
    cr_expect(count == 77 && size == 77, "an output was touched by a call that failed");
    expect_error(clGetContextInfo(s.context, 0x7777, sizeof(count), &count, &size),
                 CL_INVALID_VALUE);
    expect_error(clGetContextInfo(s.context, CL_CONTEXT_NUM_DEVICES, 0, NULL, NULL), CL_SUCCESS);
    expect_error(clGetContextInfo(s.context, CL_CONTEXT_NUM_DEVICES, sizeof(count), &count, &size),
                 CL_SUCCESS);
    cr_expect(count == 1 && size == sizeof(cl_uint));
    expect_error(clGetImageInfo(s.buffer, CL_IMAGE_WIDTH, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    expect_error(clGetPlatformIDs(0, &s.platform, NULL), CL_INVALID_VALUE);
    expect_error(clGetDeviceIDs(s.platform, 0, 0, NULL, &count), CL_INVALID_DEVICE_TYPE);
}

Test(commands, objects_keep_to_the_sizes_that_were_told)
{
    cl_ulong allocation = 0;
    size_t width = 0;
    cl_int error;
    const cl_image_format format = {CL_RGBA, CL_UNORM_INT8}, none = {CL_RGBA, 0x7777};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
    clGetDeviceInfo(s.device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(allocation), &allocation, NULL);
    clGetDeviceInfo(s.device, CL_DEVICE_IMAGE2D_MAX_WIDTH, sizeof(width), &width, NULL);
    cr_expect_null(clCreateBuffer(s.context, 0, (size_t)allocation + 1, NULL, &error));
    cr_expect_eq(error, CL_INVALID_BUFFER_SIZE);
    cr_expect_null(clCreateBuffer(s.context, 0, 0, NULL, &error));
    cr_expect_eq(error, CL_INVALID_BUFFER_SIZE);
    cr_expect_null(clCreateImage(s.context, 0, &none, &desc, NULL, &error));
    cr_expect_eq(error, CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
    desc.image_width = width + 1;
    cr_expect_null(clCreateImage(s.context, 0, &format, &desc, NULL, &error));
    cr_expect_eq(error, CL_INVALID_IMAGE_SIZE);
    desc.image_width = 0;
    cr_expect_null(clCreateImage(s.context, 0, &format, &desc, NULL, &error));
    cr_expect_eq(error, CL_INVALID_IMAGE_DESCRIPTOR);
    desc.image_type = CL_MEM_OBJECT_BUFFER;
    cr_expect_null(clCreateImage(s.context, 0, &format, &desc, NULL, &error));
    cr_expect_eq(error, CL_INVALID_IMAGE_DESCRIPTOR);
    cr_expect_null(clCreateImage2D(s.context, 0, &format, 8, 0, 0, NULL, &error));
    cr_expect_eq(error, CL_INVALID_IMAGE_SIZE);
}

Test(commands, objects_say_what_they_were_made_of)
{
    cl_context context = NULL;
    cl_mem parent = NULL;
    size_t size = 0, offset = 0, pitch = 0, height = 1;
    const cl_buffer_region region = {1024, 256};
    cl_mem part = MADE(clCreateSubBuffer, s.buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
    clGetMemObjectInfo(part, CL_MEM_SIZE, sizeof(size), &size, NULL);
    clGetMemObjectInfo(part, CL_MEM_OFFSET, sizeof(offset), &offset, NULL);
    clGetMemObjectInfo(part, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof(parent), &parent, NULL);
    clGetMemObjectInfo(part, CL_MEM_CONTEXT, sizeof(context), &context, NULL);
    cr_expect(size == 256 && offset == 1024 && parent == s.buffer && context == s.context);
    clReleaseMemObject(part);

    clGetImageInfo(s.image, CL_IMAGE_WIDTH, sizeof(size), &size, NULL);
    clGetImageInfo(s.image, CL_IMAGE_HEIGHT, sizeof(height), &height, NULL);
    clGetImageInfo(s.image, CL_IMAGE_ROW_PITCH, sizeof(pitch), &pitch, NULL);
    clGetImageInfo(s.image, CL_IMAGE_DEPTH, sizeof(offset), &offset, NULL);
    cr_expect(size == 8 && height == 8 && pitch == 32 && offset == 0);
}

Test(commands, objects_keep_alive_what_they_are_made_of)
{
    cl_int error;
    cl_context context = clCreateContext(NULL, 1, &s.device, NULL, NULL, &error), asked = NULL;
    cl_command_queue queue = MADE(clCreateCommandQueue, context, s.device, 0);
    expect_error(clReleaseContext(context), CL_SUCCESS);
    expect_error(clRetainContext(context), CL_INVALID_CONTEXT);
    clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(asked), &asked, NULL);
    cr_expect_eq(asked, context);
    cl_mem buffer = clCreateBuffer(asked, 0, 64, NULL, &error);
    cr_expect_eq(error, CL_SUCCESS);
    expect_error(clRetainContext(asked), CL_SUCCESS);
    RELEASE(buffer, queue, asked);
    expect_error(clReleaseContext(asked), CL_INVALID_CONTEXT);
}

static void CL_CALLBACK count_context(cl_context context, void *data)
{
    (void)context;
    ++*(int *)data;
}

static void CL_CALLBACK count_memory(cl_mem memory, void *data)
{
    (void)memory;
    ++*(int *)data;
}

Test(commands, destructor_callbacks_come_once_each)
{
    int contexts = 0, memories = 0;
    cl_int error;
    cl_context context = clCreateContext(NULL, 1, &s.device, NULL, NULL, &error);
    cl_mem buffer = MADE(clCreateBuffer, context, 0, 64, NULL);
    expect_error(clSetContextDestructorCallback(context, count_context, &contexts), CL_SUCCESS);
    expect_error(clSetContextDestructorCallback(context, count_context, &contexts), CL_SUCCESS);
    expect_error(clSetMemObjectDestructorCallback(buffer, count_memory, &memories), CL_SUCCESS);
    clReleaseContext(context);
    cr_expect_eq(contexts, 0, "a memory object still needs its context");
    clReleaseMemObject(buffer);
    cr_expect_eq(memories, 1);
    cr_expect_eq(contexts, 2);
}

Test(commands, maps_lie_in_the_object)
{
    const size_t zero[3] = {0}, all[3] = {8, 8, 1}, wide[3] = {9, 8, 1};
    size_t row = 0, slice = 77;
    cl_int error;
#define MAP(offset, size, flags)                                                                   \
    clEnqueueMapBuffer(s.queue, s.buffer, CL_TRUE, flags, offset, size, 0, NULL, NULL, &error)
    cr_expect_null(MAP(0, 0, CL_MAP_READ));
    cr_expect_eq(error, CL_INVALID_VALUE);
    cr_expect_null(MAP(4096, 1, CL_MAP_READ));
    cr_expect_eq(error, CL_INVALID_VALUE);
    cr_expect_null(MAP(1, SIZE_MAX, CL_MAP_READ));
    cr_expect_eq(error, CL_INVALID_VALUE);
    cr_expect_null(MAP(0, 16, CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION));
    cr_expect_eq(error, CL_INVALID_VALUE);
#undef MAP
    void *map = clEnqueueMapImage(s.queue, s.image, CL_TRUE, CL_MAP_READ, zero, wide, &row, &slice,
                                  0, NULL, NULL, &error);
    cr_expect_null(map);
    cr_expect_eq(error, CL_INVALID_VALUE);
    cr_expect(row == 0 && slice == 77);
    map = clEnqueueMapImage(s.queue, s.image, CL_TRUE, CL_MAP_READ, zero, all, &row, &slice, 0,
                            NULL, NULL, &error);
    cr_expect_not_null(map);
    cr_expect(row >= 32 && slice == 0);
    expect_error(clEnqueueUnmapMemObject(s.queue, s.buffer, map, 0, NULL, NULL), CL_INVALID_VALUE);
    expect_error(clEnqueueUnmapMemObject(s.queue, s.image, map, 0, NULL, NULL), CL_SUCCESS);
    expect_error(clEnqueueUnmapMemObject(s.queue, s.image, map, 0, NULL, NULL), CL_INVALID_VALUE);
    expect_error(clFinish(s.queue), CL_SUCCESS);
}

Test(commands, launches_keep_to_the_limits_that_were_told)
{
    const size_t one = 1, zero = 0, huge = (size_t)1 << 40;
    const size_t group[3] = {4096, 4096, 1};
    cl_uint value = 3;
    clSetKernelArg(s.kernel, 0, sizeof(s.buffer), &s.buffer);
    clSetKernelArg(s.kernel, 1, sizeof(value), &value);
#define LAUNCH(dims, global, local)                                                                \
    clEnqueueNDRangeKernel(s.queue, s.kernel, dims, NULL, global, local, 0, NULL, NULL)
    expect_error(LAUNCH(0, &one, NULL), CL_INVALID_WORK_DIMENSION);
    expect_error(LAUNCH(4, group, NULL), CL_INVALID_WORK_DIMENSION);
    expect_error(LAUNCH(1, &one, &zero), CL_INVALID_WORK_GROUP_SIZE);
    expect_error(LAUNCH(1, &huge, &huge), CL_INVALID_WORK_ITEM_SIZE);
    expect_error(LAUNCH(3, group, group), CL_INVALID_WORK_GROUP_SIZE);
    /* OpenCL 3.0: nothing to do is not an error. */
    expect_error(LAUNCH(1, &zero, NULL), CL_SUCCESS);
    expect_error(LAUNCH(1, NULL, NULL), CL_SUCCESS);
#undef LAUNCH
    expect_error(clFinish(s.queue), CL_SUCCESS);
}

/* Java's int, and C's, become 64 bits with the sign's bit before them. */
Test(commands, all_devices_may_be_asked_for_with_a_sign)
{
    const cl_device_type type = (cl_device_type)(int64_t)(int32_t)CL_DEVICE_TYPE_ALL;
    cl_device_id device = NULL;
    cl_uint count = 0;
    cr_assert_eq(type, UINT64_MAX);
    expect_error(clGetDeviceIDs(s.platform, type, 1, &device, &count), CL_SUCCESS);
    cr_expect_eq(count, 1);
    cr_expect_eq(device, s.device);
    cl_context context = MADE(clCreateContextFromType, NULL, type, NULL, NULL);
    expect_error(clReleaseContext(context), CL_SUCCESS);
    expect_error(clGetDeviceIDs(s.platform, type & ~UINT64_C(0x100), 1, &device, &count),
                 CL_INVALID_DEVICE_TYPE);
}
