/** Images of all types and formats: transfers, copies, fills, maps, kernels. */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMATS_MOST = 256, STEPS = 10 };

/* A format, and the bytes that a fill with @color leaves in a pixel. */
struct format {
    cl_image_format format;
    size_t pixel;
    const char *reads;  /* the suffix of the kernel that copies it exactly, or NULL */
    unsigned char ones; /* what a byte of a channel of 1.0 is, for normalised ones */
    bool required;      /* of every device, so that it counts in the checksum */
};

static const struct format formats[] = {
    {{CL_RGBA, CL_UNORM_INT8}, 4, NULL, 0xff, true},
    {{CL_RGBA, CL_UNORM_INT16}, 8, NULL, 0xff, true},
    {{CL_RGBA, CL_SIGNED_INT8}, 4, "i", 0, true},
    {{CL_RGBA, CL_SIGNED_INT16}, 8, "i", 0, true},
    {{CL_RGBA, CL_SIGNED_INT32}, 16, "i", 0, true},
    {{CL_RGBA, CL_UNSIGNED_INT8}, 4, "ui", 0, true},
    {{CL_RGBA, CL_UNSIGNED_INT16}, 8, "ui", 0, true},
    {{CL_RGBA, CL_UNSIGNED_INT32}, 16, "ui", 0, true},
    {{CL_RGBA, CL_HALF_FLOAT}, 8, NULL, 0, true},
    {{CL_RGBA, CL_FLOAT}, 16, "f", 0, true},
    {{CL_BGRA, CL_UNORM_INT8}, 4, NULL, 0xff, false},
    {{CL_R, CL_UNSIGNED_INT8}, 1, "ui", 0, false},
    {{CL_R, CL_UNSIGNED_INT16}, 2, "ui", 0, false},
    {{CL_R, CL_FLOAT}, 4, "f", 0, false},
    {{CL_RG, CL_SIGNED_INT16}, 4, "i", 0, false},
    {{CL_RG, CL_FLOAT}, 8, "f", 0, false},
    {{CL_DEPTH, CL_FLOAT}, 4, NULL, 0, false},
    {{CL_DEPTH, CL_UNORM_INT16}, 2, NULL, 0xff, false},
};

struct type {
    cl_mem_object_type type;
    const char *kernel;
    size_t most[3];
    bool layered; /* has a slice pitch */
};

static const struct type types[] = {
    {CL_MEM_OBJECT_IMAGE1D, "copy_1d", {40, 1, 1}, false},
    {CL_MEM_OBJECT_IMAGE2D, "copy_2d", {24, 12, 1}, false},
    {CL_MEM_OBJECT_IMAGE3D, NULL, {12, 9, 5}, true},
    {CL_MEM_OBJECT_IMAGE1D_ARRAY, "copy_1d_array", {24, 7, 1}, true},
    {CL_MEM_OBJECT_IMAGE2D_ARRAY, "copy_2d_array", {12, 9, 5}, true},
};

/* An image and the pixels that it must have, packed. */
struct picture {
    const struct type *type;
    const struct format *format;
    cl_mem image;
    size_t dims[3], size;
    size_t row, slice; /* of host, as the image takes them: layers of a 1D array are slices */
    unsigned char *want;
    unsigned char *host; /* CL_MEM_USE_HOST_PTR's, or NULL */
};

static bool is_offered(struct memory_run *run, const struct type *type, const struct format *f)
{
    cl_image_format all[FORMATS_MOST];
    cl_uint count = 0;
    if (f->format.image_channel_order == CL_DEPTH && type->type != CL_MEM_OBJECT_IMAGE2D &&
        type->type != CL_MEM_OBJECT_IMAGE2D_ARRAY)
        return false;
    OK(clGetSupportedImageFormats(run->prog.context, CL_MEM_READ_WRITE, type->type, FORMATS_MOST,
                                  all, &count));
    for (cl_uint i = 0; i < count && i < FORMATS_MOST; i++)
        if (memcmp(&all[i], &f->format, sizeof *all) == 0)
            return true;
    if (f->required)
        prog_fail("a required image format is missing");
    return false;
}

/* Random pixels; as floats, numbers that no copy rounds. */
static void paint(struct memory_run *run, const struct format *f, unsigned char *to, size_t size)
{
    if (f->format.image_channel_data_type != CL_FLOAT) {
        rng_fill(&run->rng, to, size);
        if (f->format.image_channel_data_type == CL_HALF_FLOAT)
            for (size_t i = 1; i < size; i += 2)
                to[i] &= 0x3f; /* finite */
        return;
    }
    for (size_t i = 0; i < size; i += 4) {
        float value = f->format.image_channel_order == CL_DEPTH
                          ? (float)rng_below(&run->rng, 256) / 256
                          : (float)rng_below(&run->rng, 100000);
        memcpy(to + i, &value, 4);
    }
}

static size_t packed_at(const struct picture *p, size_t x, size_t y, size_t z)
{
    return ((z * p->dims[1] + y) * p->dims[0] + x) * p->format->pixel;
}

/* Where a pixel lies in memory with @row and @slice as calls take them. */
static size_t pitched_at(const struct picture *p, size_t row, size_t slice, size_t y, size_t z)
{
    return p->type->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? y * slice : z * slice + y * row;
}

static void describe(struct memory_run *run, struct picture *p, bool pitched, cl_image_desc *desc)
{
    cl_mem_object_type type = p->type->type;
    *desc = (cl_image_desc){.image_type = type, .image_width = p->dims[0]};
    if (type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
        desc->image_array_size = p->dims[1];
    else if (type != CL_MEM_OBJECT_IMAGE1D)
        desc->image_height = p->dims[1];
    if (type == CL_MEM_OBJECT_IMAGE2D_ARRAY)
        desc->image_array_size = p->dims[2];
    if (type == CL_MEM_OBJECT_IMAGE3D)
        desc->image_depth = p->dims[2];
    p->row = p->dims[0] * p->format->pixel;
    if (pitched)
        p->row += rng_below(&run->rng, 4) * p->format->pixel;
    bool rows_are_slices = type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    p->slice = p->row * (rows_are_slices ? 1 : p->dims[1]);
    if (pitched && p->type->layered && !rows_are_slices) /* POCL 3.1 takes rows for layers */
        p->slice += p->row * rng_below(&run->rng, 3);
    if (pitched) {
        desc->image_row_pitch = p->row;
        desc->image_slice_pitch = p->type->layered ? p->slice : 0;
    }
}

static void check_info(const struct picture *p, bool pitched)
{
    size_t row = 0, width = 0, slice = 0, pixel = 0;
    cl_uint refs = 0;
    OK(clGetImageInfo(p->image, CL_IMAGE_ROW_PITCH, sizeof row, &row, NULL));
    OK(clGetImageInfo(p->image, CL_IMAGE_SLICE_PITCH, sizeof slice, &slice, NULL));
    OK(clGetImageInfo(p->image, CL_IMAGE_WIDTH, sizeof width, &width, NULL));
    OK(clGetImageInfo(p->image, CL_IMAGE_ELEMENT_SIZE, sizeof pixel, &pixel, NULL));
    OK(clGetMemObjectInfo(p->image, CL_MEM_REFERENCE_COUNT, sizeof refs, &refs, NULL));
    REQUIRE(width == p->dims[0] && pixel == p->format->pixel && refs == 1);
    REQUIRE(row >= width * pixel && (p->type->layered || slice == 0));
    if (pitched)
        REQUIRE(row == p->row);
}

static void picture_make(struct memory_run *run, struct picture *p, const struct type *type,
                         const struct format *format, const size_t dims[3])
{
    static const cl_mem_flags kinds[] = {0, CL_MEM_COPY_HOST_PTR, CL_MEM_USE_HOST_PTR,
                                         CL_MEM_ALLOC_HOST_PTR};
    const size_t zero[3] = {0};
    cl_mem_flags flags = kinds[rng_below(&run->rng, 4)];
    bool hosted = flags & (CL_MEM_COPY_HOST_PTR | CL_MEM_USE_HOST_PTR);
    bool pitched = hosted && rng_below(&run->rng, 2);
    cl_image_desc desc;
    cl_int err;

    memset(p, 0, sizeof *p);
    p->type = type;
    p->format = format;
    memcpy(p->dims, dims, sizeof p->dims);
    p->size = dims[0] * dims[1] * dims[2] * format->pixel;
    p->want = prog_alloc(p->size);
    paint(run, format, p->want, p->size);
    describe(run, p, pitched, &desc);
    size_t layers = type->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? dims[1] : dims[2];
    size_t bytes = (p->slice * layers + 4095) / 4096 * 4096;
    unsigned char *host = aligned_alloc(4096, bytes);
    REQUIRE(host != NULL);
    memset(host, 0xcc, bytes);
    for (size_t z = 0; z < dims[2]; z++)
        for (size_t y = 0; y < dims[1]; y++)
            memcpy(host + pitched_at(p, p->row, p->slice, y, z), p->want + packed_at(p, 0, y, z),
                   dims[0] * format->pixel);
    p->image = clCreateImage(run->prog.context, CL_MEM_READ_WRITE | flags, &format->format, &desc,
                             hosted ? host : NULL, &err);
    if (err)
        prog_fail("no image of type %x and format %x %x: %d", type->type,
                  format->format.image_channel_order, format->format.image_channel_data_type, err);
    check_info(p, pitched);
    if (!hosted)
        OK(clEnqueueWriteImage(run->prog.queue, p->image, CL_TRUE, zero, p->dims, 0, 0, p->want, 0,
                               NULL, NULL));
    if (flags & CL_MEM_USE_HOST_PTR)
        p->host = host;
    else
        free(host);
}

static void picture_end(struct memory_run *run, struct picture *p)
{
    OK(clReleaseMemObject(p->image));
    OK(clFinish(run->prog.queue));
    free(p->host);
    free(p->want);
}

static void pick_region(struct memory_run *run, const struct picture *p, size_t origin[3],
                        size_t region[3])
{
    for (int i = 0; i < 3; i++) {
        origin[i] = rng_below(&run->rng, (uint32_t)p->dims[i]);
        region[i] = 1 + rng_below(&run->rng, (uint32_t)(p->dims[i] - origin[i]));
    }
}

/* Copy a region of the model from, or compare it with, memory of @row and @slice. */
static void each_row(const struct picture *p, const size_t origin[3], const size_t region[3],
                     unsigned char *memory, size_t row, size_t slice, bool write, const char *what)
{
    size_t bytes = region[0] * p->format->pixel;
    for (size_t z = 0; z < region[2]; z++)
        for (size_t y = 0; y < region[1]; y++) {
            unsigned char *there = memory + pitched_at(p, row, slice, y, z);
            unsigned char *here = p->want + packed_at(p, origin[0], origin[1] + y, origin[2] + z);
            if (write)
                memcpy(here, there, bytes);
            else
                prog_same(what, there, here, bytes);
        }
}

static void transfer(struct memory_run *run, struct picture *p)
{
    size_t origin[3], region[3];
    bool write = rng_below(&run->rng, 2), tight = rng_below(&run->rng, 2);
    pick_region(run, p, origin, region);
    size_t row = region[0] * p->format->pixel;
    row += tight ? 0 : rng_below(&run->rng, 5) * p->format->pixel;
    bool rows_are_slices = p->type->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    size_t slice = row * (rows_are_slices ? 1 : region[1]);
    if (p->type->layered && !rows_are_slices && !tight)
        slice += row * rng_below(&run->rng, 3);
    size_t size = slice * (rows_are_slices ? region[1] : region[2]);
    unsigned char *host = prog_alloc(size);
    paint(run, p->format, host, size);
    size_t give_row = tight ? 0 : row, give_slice = tight || !p->type->layered ? 0 : slice;
    if (write)
        OK(clEnqueueWriteImage(run->prog.queue, p->image, CL_TRUE, origin, region, give_row,
                               give_slice, host, 0, NULL, NULL));
    else
        OK(clEnqueueReadImage(run->prog.queue, p->image, CL_TRUE, origin, region, give_row,
                              give_slice, host, 0, NULL, NULL));
    each_row(p, origin, region, host, row, slice, write, "a region of an image");
    free(host);
}

static void map(struct memory_run *run, struct picture *p)
{
    static const cl_map_flags kinds[] = {CL_MAP_READ, CL_MAP_READ | CL_MAP_WRITE,
                                         CL_MAP_WRITE_INVALIDATE_REGION};
    cl_map_flags flags = kinds[rng_below(&run->rng, 3)];
    size_t origin[3], region[3], row = 0, slice = 77;
    pick_region(run, p, origin, region);
    unsigned char *at = MADE(clEnqueueMapImage, run->prog.queue, p->image, CL_TRUE, flags, origin,
                             region, &row, &slice, 0, NULL, NULL);
    REQUIRE(row >= region[0] * p->format->pixel && (p->type->layered ? slice != 0 : slice == 0));
    if (p->host) {
        REQUIRE(row == p->row && (!p->type->layered || slice == p->slice));
        size_t offset = pitched_at(p, p->row, p->slice, origin[1], origin[2]);
        REQUIRE(at == p->host + offset + origin[0] * p->format->pixel);
    }
    if (flags & CL_MAP_READ)
        each_row(p, origin, region, at, row, slice, false, "a map of an image");
    if (flags != CL_MAP_READ) {
        size_t bytes = region[0] * p->format->pixel;
        for (size_t z = 0; z < region[2]; z++)
            for (size_t y = 0; y < region[1]; y++)
                paint(run, p->format, at + pitched_at(p, row, slice, y, z), bytes);
        each_row(p, origin, region, at, row, slice, true, "");
    }
    OK(clEnqueueUnmapMemObject(run->prog.queue, p->image, at, 0, NULL, NULL));
}

/* What one channel of a fill leaves. */
static void fill_channel(const struct format *f, unsigned value, unsigned char *to, size_t size)
{
    float real = (float)value;
    switch (f->format.image_channel_data_type) {
    case CL_FLOAT:
        memcpy(to, &real, 4);
        break;
    case CL_HALF_FLOAT:
        to[0] = 0;
        to[1] = value ? 0x3c : 0;
        break;
    default:
        memset(to, value && f->ones ? f->ones : 0, size);
        if (!f->ones)
            to[0] = (unsigned char)value;
    }
}

static void fill(struct memory_run *run, struct picture *p)
{
    const struct format *f = p->format;
    cl_image_format format = f->format;
    size_t origin[3], region[3],
        channels = format.image_channel_order == CL_RGBA || format.image_channel_order == CL_BGRA
                       ? 4
                   : format.image_channel_order == CL_RG ? 2
                                                         : 1;
    unsigned values[4];
    unsigned char pixel[16] = {0};
    union {
        cl_float4 f;
        cl_uint4 u;
    } color;
    bool real = f->ones || format.image_channel_data_type == CL_FLOAT ||
                format.image_channel_data_type == CL_HALF_FLOAT;
    pick_region(run, p, origin, region);
    for (int i = 0; i < 4; i++) {
        values[i] = rng_below(&run->rng, real ? 2 : 100);
        if (real)
            color.f.s[i] = (float)values[i];
        else
            color.u.s[i] = values[i];
    }
    for (size_t i = 0; i < channels; i++) {
        size_t from = format.image_channel_order == CL_BGRA && i != 3 ? 2 - i : i;
        fill_channel(f, values[from], pixel + i * f->pixel / channels, f->pixel / channels);
    }
    OK(clEnqueueFillImage(run->prog.queue, p->image, &color, origin, region, 0, NULL, NULL));
    for (size_t z = 0; z < region[2]; z++)
        for (size_t y = 0; y < region[1]; y++)
            for (size_t x = 0; x < region[0]; x++)
                memcpy(p->want + packed_at(p, origin[0] + x, origin[1] + y, origin[2] + z), pixel,
                       f->pixel);
}

static void copy(struct memory_run *run, struct picture *from, struct picture *to)
{
    size_t a[3], b[3], region[3];
    pick_region(run, from, a, region);
    for (int i = 0; i < 3; i++)
        b[i] = rng_below(&run->rng, (uint32_t)(to->dims[i] - region[i] + 1));
    OK(clEnqueueCopyImage(run->prog.queue, from->image, to->image, a, b, region, 0, NULL, NULL));
    for (size_t z = 0; z < region[2]; z++)
        for (size_t y = 0; y < region[1]; y++)
            memcpy(to->want + packed_at(to, b[0], b[1] + y, b[2] + z),
                   from->want + packed_at(from, a[0], a[1] + y, a[2] + z),
                   region[0] * from->format->pixel);
}

/* Out to a buffer, and from there back to another place. */
static void through_buffer(struct memory_run *run, struct picture *p)
{
    size_t a[3], b[3], region[3];
    pick_region(run, p, a, region);
    size_t bytes = region[0] * region[1] * region[2] * p->format->pixel, at = 64;
    cl_mem buffer = prog_buffer(run->prog.context, CL_MEM_READ_WRITE, at + bytes, NULL);
    unsigned char *got = prog_alloc(bytes);
    OK(clEnqueueCopyImageToBuffer(run->prog.queue, p->image, buffer, a, region, at, 0, NULL, NULL));
    prog_read(run->prog.queue, buffer, at, bytes, got);
    size_t row = region[0] * p->format->pixel;
    for (size_t z = 0; z < region[2]; z++)
        for (size_t y = 0; y < region[1]; y++)
            prog_same("an image in a buffer", got + (z * region[1] + y) * row,
                      p->want + packed_at(p, a[0], a[1] + y, a[2] + z), row);
    for (int i = 0; i < 3; i++)
        b[i] = rng_below(&run->rng, (uint32_t)(p->dims[i] - region[i] + 1));
    OK(clEnqueueCopyBufferToImage(run->prog.queue, buffer, p->image, at, b, region, 0, NULL, NULL));
    for (size_t z = 0; z < region[2]; z++)
        for (size_t y = 0; y < region[1]; y++)
            memcpy(p->want + packed_at(p, b[0], b[1] + y, b[2] + z),
                   got + (z * region[1] + y) * row, row);
    OK(clReleaseMemObject(buffer));
    free(got);
}

static void by_kernel(struct memory_run *run, struct picture *from, struct picture *to)
{
    char name[32];
    if (!from->type->kernel || !from->format->reads)
        return;
    snprintf(name, sizeof name, "%s_%s", from->type->kernel, from->format->reads);
    cl_kernel kernel = prog_kernel(run->program, name);
    prog_arg(kernel, 0, sizeof from->image, &from->image);
    prog_arg(kernel, 1, sizeof to->image, &to->image);
    memory_launch(run->prog.queue, kernel, from->dims);
    OK(clReleaseKernel(kernel));
    memcpy(to->want, from->want, from->size);
}

static void check(struct memory_run *run, const struct picture *p)
{
    const size_t zero[3] = {0};
    unsigned char *got = prog_alloc(p->size);
    OK(clEnqueueReadImage(run->prog.queue, p->image, CL_TRUE, zero, p->dims, 0, 0, got, 0, NULL,
                          NULL));
    prog_same("an image", got, p->want, p->size);
    if (p->format->required)
        sum_bytes(&run->sum, got, p->size);
    free(got);
}

static void one_format(struct memory_run *run, const struct type *type, const struct format *format)
{
    struct picture pictures[2];
    size_t dims[3];
    for (int i = 0; i < 3; i++)
        dims[i] = type->most[i] == 1 ? 1 : 2 + rng_below(&run->rng, (uint32_t)type->most[i] - 1);
    for (int i = 0; i < 2; i++)
        picture_make(run, &pictures[i], type, format, dims);
    for (int step = 0; step < STEPS; step++) {
        unsigned which = rng_below(&run->rng, 2);
        struct picture *p = &pictures[which], *other = &pictures[1 - which];
        switch (rng_below(&run->rng, 6)) {
        case 0:
            transfer(run, p);
            break;
        case 1:
            map(run, p);
            break;
        case 2:
            fill(run, p);
            break;
        case 3:
            copy(run, p, other);
            break;
        case 4:
            through_buffer(run, p);
            break;
        default:
            by_kernel(run, p, other);
        }
    }
    for (int i = 0; i < 2; i++) {
        check(run, &pictures[i]);
        picture_end(run, &pictures[i]);
    }
}

void memory_images(struct memory_run *run)
{
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
            struct rng before = run->rng;
            if (is_offered(run, &types[t], &formats[f]))
                one_format(run, &types[t], &formats[f]);
            /* Where others are not offered, what follows is the same all the same. */
            run->rng = before;
            (void)rng_next(&run->rng);
        }
}
