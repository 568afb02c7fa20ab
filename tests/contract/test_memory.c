#include "tests/contract/samples.h"
#include "tests/support/calls.h"

/* What 5.2 to 5.5 and 5.7 of the specification ask of memory objects and samplers, where a driver
 * is not asked, or need not say so itself. */

TestSuite(memory_objects, .init = samples_begin, .fini = samples_end, .timeout = 60);

#define MEMORY_INFO(memory, name, type)                                                            \
    ({                                                                                             \
        type value_ = 0;                                                                           \
        expect_error(clGetMemObjectInfo(memory, name, sizeof(value_), &value_, NULL), CL_SUCCESS); \
        value_;                                                                                    \
    })
#define IMAGE_INFO(memory, name)                                                                   \
    ({                                                                                             \
        size_t value_ = 0;                                                                         \
        expect_error(clGetImageInfo(memory, name, sizeof(value_), &value_, NULL), CL_SUCCESS);     \
        value_;                                                                                    \
    })

/* What clCreateSubBuffer says; nothing is left behind. */
static cl_int part_of(cl_mem buffer, cl_mem_flags flags, size_t origin, size_t size)
{
    const cl_buffer_region region = {origin, size};
    cl_int error = 1;
    cl_mem part = clCreateSubBuffer(buffer, flags, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
    cr_expect_eq(part != NULL, error == CL_SUCCESS);
    if (part)
        clReleaseMemObject(part);
    return error;
}

Test(memory_objects, parts_begin_where_the_device_said)
{
    cl_uint bits = 0;
    clGetDeviceInfo(s.device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(bits), &bits, NULL);
    const size_t align = bits / 8;
    cr_assert(align > 1 && align <= 2048);
    expect_error(part_of(s.buffer, 0, align, 64), CL_SUCCESS);
    expect_error(part_of(s.buffer, 0, 0, 1), CL_SUCCESS);
    expect_error(part_of(s.buffer, 0, align + 1, 64), CL_MISALIGNED_SUB_BUFFER_OFFSET);
    expect_error(part_of(s.buffer, 0, align / 2, 64), CL_MISALIGNED_SUB_BUFFER_OFFSET);
    /* What is wrong in itself is so before. */
    expect_error(part_of(s.buffer, 0, 4095, 2), CL_INVALID_VALUE);
    expect_error(part_of(s.buffer, 0, 1, 0), CL_INVALID_BUFFER_SIZE);
    expect_error(part_of(s.image, 0, 0, 64), CL_INVALID_MEM_OBJECT);
}

static cl_mem view_of(cl_mem source, cl_mem_flags flags, size_t width, cl_int *ret_error)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = width, .buffer = source};
    return clCreateImage(s.context, flags, &format, &desc, NULL, ret_error);
}

static cl_int try_view(cl_mem source, cl_mem_flags flags, size_t width)
{
    cl_int error = 1;
    cl_mem view = view_of(source, flags, width, &error);
    cr_expect_eq(view != NULL, error == CL_SUCCESS);
    if (view)
        clReleaseMemObject(view);
    return error;
}

/* 5.2.1 and 5.3.1: access and host access are inherited, and may not be widened. */
Test(memory_objects, views_inherit_what_may_be_done_with_them)
{
    static const struct {
        cl_mem_flags whole, part;
        cl_int error;
    } cases[] = {
        {CL_MEM_READ_ONLY, CL_MEM_READ_ONLY, CL_SUCCESS},
        {CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY, CL_INVALID_VALUE},
        {CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, CL_INVALID_VALUE},
        {CL_MEM_WRITE_ONLY, CL_MEM_READ_ONLY, CL_INVALID_VALUE},
        {CL_MEM_WRITE_ONLY, CL_MEM_READ_WRITE, CL_INVALID_VALUE},
        {CL_MEM_READ_WRITE, CL_MEM_READ_ONLY, CL_SUCCESS},
        {CL_MEM_READ_WRITE, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, CL_INVALID_VALUE},
        {CL_MEM_HOST_NO_ACCESS, CL_MEM_HOST_READ_ONLY, CL_INVALID_VALUE},
        {CL_MEM_HOST_NO_ACCESS, CL_MEM_HOST_WRITE_ONLY, CL_INVALID_VALUE},
        {CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_WRITE_ONLY, CL_INVALID_VALUE},
        {CL_MEM_HOST_WRITE_ONLY, CL_MEM_HOST_READ_ONLY, CL_INVALID_VALUE},
        {CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_NO_ACCESS, CL_SUCCESS},
        {0, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS, CL_INVALID_VALUE},
        {0, CL_MEM_USE_HOST_PTR, CL_INVALID_VALUE},
        {0, CL_MEM_ALLOC_HOST_PTR, CL_INVALID_VALUE},
        {0, CL_MEM_COPY_HOST_PTR, CL_INVALID_VALUE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cl_int error;
        cl_mem whole = MADE(clCreateBuffer, s.context, cases[i].whole, 4096, NULL);
        error = part_of(whole, cases[i].part, 0, 64);
        cr_expect_eq(error, cases[i].error, "part %zu: %d", i, error);
        error = try_view(whole, cases[i].part, 64);
        cr_expect_eq(error, cases[i].error, "view %zu: %d", i, error);
        clReleaseMemObject(whole);
    }
}

Test(memory_objects, views_keep_the_host_out_where_the_buffer_does)
{
    cl_uchar *host = s.scratch;
    const size_t zero[3] = {0}, some[3] = {4, 1, 1};
    cl_int error;
    cl_mem whole =
        MADE(clCreateBuffer, s.context, CL_MEM_USE_HOST_PTR | CL_MEM_HOST_NO_ACCESS, 4096, host);
    const cl_buffer_region region = {1024, 512};
    cl_mem part = MADE(clCreateSubBuffer, whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
    cl_mem view = view_of(whole, CL_MEM_READ_ONLY, 64, &error);
    cr_assert_eq(error, CL_SUCCESS);
    cr_expect_eq(MEMORY_INFO(part, CL_MEM_FLAGS, cl_mem_flags),
                 CL_MEM_USE_HOST_PTR | CL_MEM_HOST_NO_ACCESS);
    cr_expect_eq(MEMORY_INFO(view, CL_MEM_FLAGS, cl_mem_flags),
                 CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR | CL_MEM_HOST_NO_ACCESS);
    cr_expect_eq(MEMORY_INFO(whole, CL_MEM_HOST_PTR, void *), host);
    cr_expect_eq(MEMORY_INFO(part, CL_MEM_HOST_PTR, void *), host + 1024);
    cr_expect_eq(MEMORY_INFO(view, CL_MEM_ASSOCIATED_MEMOBJECT, cl_mem), whole);
    char bytes[64];
    size_t row;
    expect_error(clEnqueueReadBuffer(s.queue, part, CL_TRUE, 0, 16, bytes, 0, NULL, NULL),
                 CL_INVALID_OPERATION);
    expect_error(clEnqueueWriteBuffer(s.queue, part, CL_TRUE, 0, 16, bytes, 0, NULL, NULL),
                 CL_INVALID_OPERATION);
    expect_error(clEnqueueReadImage(s.queue, view, CL_TRUE, zero, some, 0, 0, bytes, 0, NULL, NULL),
                 CL_INVALID_OPERATION);
    expect_error(
        clEnqueueWriteImage(s.queue, view, CL_TRUE, zero, some, 0, 0, bytes, 0, NULL, NULL),
        CL_INVALID_OPERATION);
    cr_expect_null(clEnqueueMapImage(s.queue, view, CL_TRUE, CL_MAP_READ, zero, some, &row, NULL, 0,
                                     NULL, NULL, &error));
    cr_expect_eq(error, CL_INVALID_OPERATION);
    cr_expect_null(clEnqueueMapBuffer(s.queue, part, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, 16,
                                      0, NULL, NULL, &error));
    cr_expect_eq(error, CL_INVALID_OPERATION);
    /* The host is kept out, not the device. */
    expect_error(clEnqueueCopyBuffer(s.queue, whole, part, 0, 0, 256, 0, NULL, NULL), CL_SUCCESS);
    expect_error(clEnqueueFillBuffer(s.queue, part, "ab", 2, 0, 64, 0, NULL, NULL), CL_SUCCESS);
    expect_error(clFinish(s.queue), CL_SUCCESS);
    RELEASE(view, part, whole);
}

Test(memory_objects, host_access_is_forbidden_call_by_call)
{
    static const struct {
        cl_mem_flags flags;
        cl_int reads, writes;
    } cases[] = {
        {0, CL_SUCCESS, CL_SUCCESS},
        {CL_MEM_HOST_READ_ONLY, CL_SUCCESS, CL_INVALID_OPERATION},
        {CL_MEM_HOST_WRITE_ONLY, CL_INVALID_OPERATION, CL_SUCCESS},
        {CL_MEM_HOST_NO_ACCESS, CL_INVALID_OPERATION, CL_INVALID_OPERATION},
    };
    const size_t zero[3] = {0}, box[3] = {16, 2, 1};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char bytes[64] = {0};
        cl_int error;
        cl_mem buffer = MADE(clCreateBuffer, s.context, cases[i].flags, 256, NULL);
        expect_error(clEnqueueReadBuffer(s.queue, buffer, CL_TRUE, 0, 16, bytes, 0, NULL, NULL),
                     cases[i].reads);
        expect_error(clEnqueueReadBufferRect(s.queue, buffer, CL_TRUE, zero, zero, box, 0, 0, 0, 0,
                                             bytes, 0, NULL, NULL),
                     cases[i].reads);
        expect_error(clEnqueueWriteBuffer(s.queue, buffer, CL_TRUE, 0, 16, bytes, 0, NULL, NULL),
                     cases[i].writes);
        expect_error(clEnqueueWriteBufferRect(s.queue, buffer, CL_TRUE, zero, zero, box, 0, 0, 0, 0,
                                              bytes, 0, NULL, NULL),
                     cases[i].writes);
        static const struct {
            cl_map_flags flags;
            bool reads, writes;
        } maps[] = {{CL_MAP_READ, true, false},
                    {CL_MAP_WRITE, false, true},
                    {CL_MAP_READ | CL_MAP_WRITE, true, true},
                    {CL_MAP_WRITE_INVALIDATE_REGION, false, true},
                    {0, false, false}};
        for (size_t m = 0; m < sizeof(maps) / sizeof(maps[0]); m++) {
            cl_int want = maps[m].reads && cases[i].reads     ? cases[i].reads
                          : maps[m].writes && cases[i].writes ? cases[i].writes
                                                              : CL_SUCCESS;
            /* Without a flag: as much as may be done. */
            if (maps[m].flags == 0 && cases[i].reads && cases[i].writes)
                want = CL_INVALID_OPERATION;
            void *map = clEnqueueMapBuffer(s.queue, buffer, CL_TRUE, maps[m].flags, 0, 16, 0, NULL,
                                           NULL, &error);
            cr_expect_eq(error, want, "flags %zu, map %zu: %d", i, m, error);
            if (map)
                expect_error(clEnqueueUnmapMemObject(s.queue, buffer, map, 0, NULL, NULL),
                             CL_SUCCESS);
        }
        expect_error(clFinish(s.queue), CL_SUCCESS);
        clReleaseMemObject(buffer);
    }
}

static cl_int try_buffer(cl_mem_flags flags, size_t size, void *host)
{
    cl_int error = 1;
    cl_mem buffer = clCreateBuffer(s.context, flags, size, host, &error);
    cr_expect_eq(buffer != NULL, error == CL_SUCCESS);
    if (buffer)
        clReleaseMemObject(buffer);
    return error;
}

Test(memory_objects, buffers_take_the_flags_and_sizes_there_are)
{
    const cl_mem_properties none[] = {0}, unknown[] = {0x7777, 1, 0};
    cl_ulong most = 0;
    cl_int error;
    void *host = s.scratch;
    clGetDeviceInfo(s.device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(most), &most, NULL);
    expect_error(try_buffer(CL_MEM_READ_WRITE | CL_MEM_READ_ONLY, 64, NULL), CL_INVALID_VALUE);
    expect_error(try_buffer(CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY, 64, NULL),
                 CL_INVALID_VALUE);
    expect_error(try_buffer((cl_mem_flags)1 << 40, 64, NULL), CL_INVALID_VALUE);
    expect_error(try_buffer(CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR, 64, host),
                 CL_INVALID_VALUE);
    expect_error(try_buffer(CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, 64, host),
                 CL_INVALID_VALUE);
    expect_error(try_buffer(CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR, 64, host), CL_SUCCESS);
    expect_error(try_buffer(CL_MEM_USE_HOST_PTR, 64, NULL), CL_INVALID_HOST_PTR);
    expect_error(try_buffer(CL_MEM_COPY_HOST_PTR, 64, NULL), CL_INVALID_HOST_PTR);
    expect_error(try_buffer(CL_MEM_READ_WRITE, 64, host), CL_INVALID_HOST_PTR);
    expect_error(try_buffer(CL_MEM_ALLOC_HOST_PTR, 64, host), CL_INVALID_HOST_PTR);
    expect_error(try_buffer(0, 0, NULL), CL_INVALID_BUFFER_SIZE);
    expect_error(try_buffer(0, (size_t)most + 1, NULL), CL_INVALID_BUFFER_SIZE);
    cr_expect_null(clCreateBufferWithProperties(s.context, unknown, 0, 64, NULL, &error));
    cr_expect_eq(error, CL_INVALID_PROPERTY);
    cl_mem buffer = MADE(clCreateBufferWithProperties, s.context, none, CL_MEM_READ_ONLY, 64, NULL);
    cl_mem_properties answer[2] = {1, 1};
    size_t size = 77;
    expect_error(clGetMemObjectInfo(buffer, CL_MEM_PROPERTIES, sizeof(answer), answer, &size),
                 CL_SUCCESS);
    cr_expect(size == sizeof(none) && answer[0] == 0);
    expect_error(clGetMemObjectInfo(s.buffer, CL_MEM_PROPERTIES, sizeof(answer), answer, &size),
                 CL_SUCCESS);
    cr_expect_eq(size, 0);
    clReleaseMemObject(buffer);
}

static cl_int try_image(const cl_image_desc *desc, cl_mem_flags flags, void *host)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_int error = 1;
    cl_mem image = clCreateImage(s.context, flags, &format, desc, host, &error);
    cr_expect_eq(image != NULL, error == CL_SUCCESS);
    if (image)
        clReleaseMemObject(image);
    return error;
}

/* 5.3.1.3: pitches are of the host's memory, and whole numbers of what they count. */
Test(memory_objects, pitches_of_images_fit_their_rows)
{
    static const struct {
        cl_image_desc desc;
        bool host;
        cl_int error;
    } cases[] = {
#define FLAT(row, slice)                                                                           \
    {.image_type = CL_MEM_OBJECT_IMAGE2D,                                                          \
     .image_width = 8,                                                                             \
     .image_height = 4,                                                                            \
     .image_row_pitch = row,                                                                       \
     .image_slice_pitch = slice}
#define DEEP(row, slice)                                                                           \
    {                                                                                              \
        .image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = 8, .image_height = 4,                  \
        .image_depth = 3, .image_row_pitch = row, .image_slice_pitch = slice                       \
    }
#define ROWS(row, slice)                                                                           \
    {                                                                                              \
        .image_type = CL_MEM_OBJECT_IMAGE1D_ARRAY, .image_width = 8, .image_array_size = 4,        \
        .image_row_pitch = row, .image_slice_pitch = slice                                         \
    }
        {FLAT(0, 0), false, CL_SUCCESS},
        {FLAT(32, 0), false, CL_INVALID_IMAGE_DESCRIPTOR},
        {FLAT(0, 128), false, CL_INVALID_IMAGE_DESCRIPTOR},
        {FLAT(32, 0), true, CL_SUCCESS},
        {FLAT(40, 0), true, CL_SUCCESS},
        {FLAT(28, 0), true, CL_INVALID_IMAGE_DESCRIPTOR},
        {FLAT(34, 0), true, CL_INVALID_IMAGE_DESCRIPTOR},
        {FLAT(SIZE_MAX - 3, 0), true, CL_INVALID_IMAGE_DESCRIPTOR},
        {DEEP(0, 0), true, CL_SUCCESS},
        {DEEP(40, 160), true, CL_SUCCESS},
        {DEEP(40, 200), true, CL_SUCCESS},
        {DEEP(40, 120), true, CL_INVALID_IMAGE_DESCRIPTOR},
        {DEEP(40, 180), true, CL_INVALID_IMAGE_DESCRIPTOR},
        {DEEP(0, 128), false, CL_INVALID_IMAGE_DESCRIPTOR},
        {DEEP(32, ((size_t)1 << 63)), true, CL_INVALID_IMAGE_DESCRIPTOR},
        {ROWS(0, 0), true, CL_SUCCESS},
        {ROWS(0, 64), true, CL_SUCCESS},
        {ROWS(0, 16), true, CL_INVALID_IMAGE_DESCRIPTOR},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cl_int error = try_image(&cases[i].desc, cases[i].host ? CL_MEM_COPY_HOST_PTR : 0,
                                 cases[i].host ? s.scratch : NULL);
        cr_expect_eq(error, cases[i].error, "case %zu: %d", i, error);
    }
}

Test(memory_objects, views_lie_in_their_buffer)
{
    expect_error(try_view(s.buffer, 0, 1024), CL_SUCCESS);
    expect_error(try_view(s.buffer, 0, 1025), CL_INVALID_IMAGE_DESCRIPTOR);
    expect_error(try_view(s.image, 0, 16), CL_INVALID_IMAGE_DESCRIPTOR);
    expect_error(try_view((cl_mem)&s, 0, 16), CL_INVALID_IMAGE_DESCRIPTOR);
    expect_error(try_view(NULL, 0, 16), CL_INVALID_IMAGE_DESCRIPTOR);
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D,
                          .image_width = 16,
                          .image_height = 64,
                          .image_row_pitch = 128,
                          .mem_object = s.buffer};
    expect_error(try_image(&desc, 0, NULL), CL_INVALID_IMAGE_DESCRIPTOR);
    desc.image_height = 16;
    desc.image_row_pitch = 62;
    expect_error(try_image(&desc, 0, NULL), CL_INVALID_IMAGE_DESCRIPTOR);
    desc.image_row_pitch = SIZE_MAX / 16 + 4;
    expect_error(try_image(&desc, 0, NULL), CL_INVALID_IMAGE_DESCRIPTOR);
}

/* 5.3.6: the pitches that were given, and of each type what it has. */
Test(memory_objects, images_tell_the_pitches_that_they_were_given)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc rows = {.image_type = CL_MEM_OBJECT_IMAGE1D_ARRAY,
                                .image_width = 8,
                                .image_array_size = 4,
                                .image_row_pitch = 40,
                                .image_slice_pitch = 80};
    const cl_image_desc deep = {.image_type = CL_MEM_OBJECT_IMAGE3D,
                                .image_width = 8,
                                .image_height = 4,
                                .image_depth = 3,
                                .image_row_pitch = 40,
                                .image_slice_pitch = 200};
    const size_t zero[3] = {0}, layers[3] = {8, 4, 1}, box[3] = {8, 4, 3}, at[3] = {2, 1, 1},
                 part[3] = {3, 2, 2};
    size_t row = 0, slice = 0;
    cl_int error;
    cl_mem image = MADE(clCreateImage, s.context, CL_MEM_USE_HOST_PTR, &format, &rows, s.scratch);
    cr_expect_eq(IMAGE_INFO(image, CL_IMAGE_ROW_PITCH), 40);
    cr_expect_eq(IMAGE_INFO(image, CL_IMAGE_SLICE_PITCH), 80);
    cr_expect_eq(IMAGE_INFO(image, CL_IMAGE_ARRAY_SIZE), 4);
    cr_expect_eq(IMAGE_INFO(image, CL_IMAGE_HEIGHT), 0);
    cr_expect_eq(MEMORY_INFO(image, CL_MEM_HOST_PTR, void *), s.scratch);
    char *map = clEnqueueMapImage(s.queue, image, CL_TRUE, CL_MAP_READ, zero, layers, &row, &slice,
                                  0, NULL, NULL, &error);
    cr_expect(map == s.scratch && row == 40 && slice == 80);
    expect_error(clEnqueueUnmapMemObject(s.queue, image, map, 0, NULL, NULL), CL_SUCCESS);
    expect_error(clFinish(s.queue), CL_SUCCESS);
    clReleaseMemObject(image);

    image = MADE(clCreateImage, s.context, CL_MEM_USE_HOST_PTR, &format, &deep, s.scratch);
    cr_expect_eq(IMAGE_INFO(image, CL_IMAGE_ROW_PITCH), 40);
    cr_expect_eq(IMAGE_INFO(image, CL_IMAGE_SLICE_PITCH), 200);
    cr_expect_eq(IMAGE_INFO(image, CL_IMAGE_ARRAY_SIZE), 0);
    cr_expect_eq(IMAGE_INFO(image, CL_IMAGE_DEPTH), 3);
    map = clEnqueueMapImage(s.queue, image, CL_TRUE, CL_MAP_READ, at, part, &row, &slice, 0, NULL,
                            NULL, &error);
    cr_expect(map == (char *)s.scratch + 200 + 40 + 8 && row == 40 && slice == 200);
    expect_error(clEnqueueUnmapMemObject(s.queue, image, map, 0, NULL, NULL), CL_SUCCESS);
    cr_expect_null(clEnqueueMapImage(s.queue, image, CL_TRUE, CL_MAP_READ, zero, box, &row, NULL, 0,
                                     NULL, NULL, &error));
    cr_expect_eq(error, CL_INVALID_VALUE);
    expect_error(clFinish(s.queue), CL_SUCCESS);
    clReleaseMemObject(image);
}

/* 5.4.2: counts, addresses, and which of several maps an unmap ends. */
Test(memory_objects, several_maps_of_one_object_end_one_by_one)
{
    cl_int error;
    char *maps[3];
    const size_t from[3] = {0, 0, 100}, size[3] = {64, 256, 64};
    char pattern = 9;
    expect_error(clEnqueueFillBuffer(s.queue, s.buffer, &pattern, 1, 0, 4096, 0, NULL, NULL),
                 CL_SUCCESS);
    for (int i = 0; i < 3; i++) {
        maps[i] = MADE(clEnqueueMapBuffer, s.queue, s.buffer, i == 1, CL_MAP_READ, from[i], size[i],
                       0, NULL, NULL);
        cr_expect_eq(MEMORY_INFO(s.buffer, CL_MEM_MAP_COUNT, cl_uint), (cl_uint)i + 1);
    }
    expect_error(clFinish(s.queue), CL_SUCCESS);
    cr_expect(maps[1] == maps[0] && maps[2] == maps[0] + 100);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(maps[i][0], pattern);
    expect_error(clEnqueueUnmapMemObject(s.queue, s.buffer, maps[0] + 1, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clEnqueueUnmapMemObject(s.queue, s.buffer, &error, 0, NULL, NULL),
                 CL_INVALID_VALUE);
    for (int i = 0; i < 3; i++)
        expect_error(clEnqueueUnmapMemObject(s.queue, s.buffer, maps[i], 0, NULL, NULL),
                     CL_SUCCESS);
    expect_error(clEnqueueUnmapMemObject(s.queue, s.buffer, maps[0], 0, NULL, NULL),
                 CL_INVALID_VALUE);
    expect_error(clFinish(s.queue), CL_SUCCESS);
    cr_expect_eq(MEMORY_INFO(s.buffer, CL_MEM_MAP_COUNT, cl_uint), 0);
}

/* Unmapped before its own map was given to a driver: wrong, but no harm to us. */
Test(memory_objects, an_unmap_may_overtake_its_map)
{
    cl_event gate = MADE(clCreateUserEvent, s.context);
    cl_command_queue other = MADE(clCreateCommandQueue, s.context, s.device, 0);
    void *map =
        MADE(clEnqueueMapBuffer, s.queue, s.buffer, CL_FALSE, CL_MAP_WRITE, 0, 64, 1, &gate, NULL);
    expect_error(clEnqueueUnmapMemObject(other, s.buffer, map, 0, NULL, NULL), CL_SUCCESS);
    expect_error(clFinish(other), CL_SUCCESS);
    cr_expect_eq(MEMORY_INFO(s.buffer, CL_MEM_MAP_COUNT, cl_uint), 0);
    expect_error(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
    expect_error(clFinish(s.queue), CL_SUCCESS);
    expect_error(clEnqueueUnmapMemObject(other, s.buffer, map, 0, NULL, NULL), CL_INVALID_VALUE);
    RELEASE(other, gate);
}

Test(memory_objects, a_map_that_failed_was_never_there)
{
    cl_int error;
    cl_event gate = clCreateUserEvent(s.context, &error), ended;
    cr_assert_eq(error, CL_SUCCESS);
    MADE(clEnqueueMapBuffer, s.queue, s.buffer, CL_FALSE, CL_MAP_WRITE, 0, 64, 1, &gate, &ended);
    cr_expect_eq(MEMORY_INFO(s.buffer, CL_MEM_MAP_COUNT, cl_uint), 1);
    expect_error(clSetUserEventStatus(gate, -5), CL_SUCCESS);
    expect_error(clWaitForEvents(1, &ended), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_expect_eq(MEMORY_INFO(s.buffer, CL_MEM_MAP_COUNT, cl_uint), 0);
    cr_expect_null(clEnqueueMapBuffer(s.queue, s.buffer, CL_TRUE, CL_MAP_WRITE, 0, 64, 1, &gate,
                                      NULL, &error));
    cr_expect_eq(error, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_expect_eq(MEMORY_INFO(s.buffer, CL_MEM_MAP_COUNT, cl_uint), 0);
    RELEASE(ended, gate);
}

Test(memory_objects, samplers_are_what_their_properties_say)
{
    static const struct {
        cl_sampler_properties list[7];
        cl_int error;
        cl_bool normalized;
        cl_addressing_mode addressing;
        cl_filter_mode filter;
    } cases[] = {
        {{0}, CL_SUCCESS, CL_TRUE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST},
        {{CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, 0},
         CL_SUCCESS,
         CL_TRUE,
         CL_ADDRESS_CLAMP,
         CL_FILTER_LINEAR},
        {{CL_SAMPLER_ADDRESSING_MODE, CL_ADDRESS_NONE, CL_SAMPLER_NORMALIZED_COORDS, CL_FALSE, 0},
         CL_SUCCESS,
         CL_FALSE,
         CL_ADDRESS_NONE,
         CL_FILTER_NEAREST},
        {.list = {CL_SAMPLER_ADDRESSING_MODE, 0x9999, 0}, .error = CL_INVALID_VALUE},
        {.list = {CL_SAMPLER_NORMALIZED_COORDS, 2, 0}, .error = CL_INVALID_VALUE},
        {.list = {CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, CL_SAMPLER_FILTER_MODE,
                  CL_FILTER_LINEAR, 0},
         .error = CL_INVALID_VALUE},
        {.list = {0x7777, 1, 0}, .error = CL_INVALID_VALUE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cl_int error;
        cl_sampler sampler = clCreateSamplerWithProperties(s.context, cases[i].list, &error);
        cr_expect_eq(error, cases[i].error, "case %zu: %d", i, error);
        if (!sampler)
            continue;
        cl_bool normalized = 7;
        cl_addressing_mode addressing = 7;
        cl_filter_mode filter = 7;
        cl_sampler_properties list[7] = {1};
        size_t size = 0;
        clGetSamplerInfo(sampler, CL_SAMPLER_NORMALIZED_COORDS, sizeof(normalized), &normalized,
                         NULL);
        clGetSamplerInfo(sampler, CL_SAMPLER_ADDRESSING_MODE, sizeof(addressing), &addressing,
                         NULL);
        clGetSamplerInfo(sampler, CL_SAMPLER_FILTER_MODE, sizeof(filter), &filter, NULL);
        clGetSamplerInfo(sampler, CL_SAMPLER_PROPERTIES, sizeof(list), list, &size);
        cr_expect_eq(normalized, cases[i].normalized);
        cr_expect_eq(addressing, cases[i].addressing);
        cr_expect_eq(filter, cases[i].filter);
        cr_expect(size > 0 && memcmp(list, cases[i].list, size) == 0);
        expect_error(clReleaseSampler(sampler), CL_SUCCESS);
    }
}
