/** Buffers, sub-buffers, images over buffers, and several maps of each at a time. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    PARTS = 4,
    MAPS = 6,
    FAMILIES = 4,
    STEPS = 60,
    ALIGN = 4096,
    PIXEL = 4,
    VIEW_PIXELS = 512,
    BOX_MOST = 24
};

/** Bytes of a family's root that the program has mapped. */
struct held_map {
    cl_mem memory;
    size_t at, size; /* of the root */
    cl_map_flags flags;
    unsigned char *pointer; /* NULL: free */
};

/** A buffer, views of it, and the bytes that they must have. */
struct family {
    cl_mem root;
    size_t size;
    cl_mem_flags flags;
    unsigned char *want, *host; /* host: the program's memory, or NULL */
    struct {
        cl_mem memory;
        size_t origin, size;
    } parts[PARTS]; /* the first is the root itself */
    cl_mem view;    /* an image over the first bytes */
    struct held_map maps[MAPS];
};

struct play {
    struct memory_run *run;
    struct family families[FAMILIES];
    cl_command_queue queue; /* the one that commands went to last */
};

static uint32_t below(struct play *p, size_t n)
{
    return rng_below(&p->run->rng, (uint32_t)n);
}

static size_t device_alignment(const struct prog *prog)
{
    cl_uint bits = 0;
    OK(clGetDeviceInfo(prog->device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof bits, &bits, NULL));
    REQUIRE(bits / 8 <= ALIGN && ALIGN % (bits / 8) == 0);
    return bits / 8;
}

static void family_views(struct play *p, struct family *f)
{
    f->parts[0].memory = f->root;
    f->parts[0].origin = 0;
    f->parts[0].size = f->size;
    for (unsigned i = 1; i < PARTS; i++) {
        size_t origin = below(p, f->size / ALIGN) * (size_t)ALIGN;
        cl_buffer_region region = {origin, 1 + below(p, f->size - origin)};
        f->parts[i].memory =
            MADE(clCreateSubBuffer, f->root, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
        f->parts[i].origin = region.origin;
        f->parts[i].size = region.size;
    }
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = VIEW_PIXELS, .buffer = f->root};
    f->view = MADE(clCreateImage, p->run->prog.context, CL_MEM_READ_WRITE, &format, &desc, NULL);
}

static void family_make(struct play *p, struct family *f, size_t size)
{
    static const cl_mem_flags kinds[] = {0, CL_MEM_USE_HOST_PTR, CL_MEM_ALLOC_HOST_PTR,
                                         CL_MEM_COPY_HOST_PTR,
                                         CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR};
    memset(f, 0, sizeof *f);
    f->size = size;
    f->flags = kinds[below(p, sizeof kinds / sizeof *kinds)];
    f->want = prog_alloc(size);
    f->host = aligned_alloc(ALIGN, (size + ALIGN - 1) / ALIGN * ALIGN);
    REQUIRE(f->host);
    rng_fill(&p->run->rng, f->want, size);
    memcpy(f->host, f->want, size);
    bool hosted = f->flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR);
    f->root = prog_buffer(p->run->prog.context, CL_MEM_READ_WRITE | f->flags, size,
                          hosted ? f->host : NULL);
    if (!hosted)
        OK(clEnqueueWriteBuffer(p->queue, f->root, CL_TRUE, 0, size, f->want, 0, NULL, NULL));
    if (!(f->flags & CL_MEM_USE_HOST_PTR))
        memset(f->host, 0xee, size); /* it was copied */
    family_views(p, f);
}

/* Commands on bytes that are mapped are undefined (5.4.2), but for reading what is mapped so. */
static bool is_free(const struct family *f, size_t at, size_t size, bool write)
{
    for (unsigned i = 0; i < MAPS; i++) {
        const struct held_map *m = &f->maps[i];
        if (m->pointer && (write || m->flags != CL_MAP_READ) && at < m->at + m->size &&
            m->at < at + size)
            return false;
    }
    return true;
}

/* A part of the family and a range of it; at counts from the root. */
struct range {
    cl_mem memory;
    size_t offset, size, at;
};

static bool pick_range(struct play *p, struct family *f, bool write, struct range *ret)
{
    unsigned i = below(p, PARTS);
    size_t most = f->parts[i].size < 20000 || below(p, 8) == 0 ? f->parts[i].size : 20000;
    ret->size = 1 + below(p, most);
    ret->offset = below(p, f->parts[i].size - ret->size + 1);
    ret->memory = f->parts[i].memory;
    ret->at = f->parts[i].origin + ret->offset;
    return is_free(f, ret->at, ret->size, write);
}

static void do_write(struct play *p, struct family *f)
{
    struct range r;
    if (!pick_range(p, f, true, &r))
        return;
    rng_fill(&p->run->rng, f->want + r.at, r.size);
    OK(clEnqueueWriteBuffer(p->queue, r.memory, below(p, 2), r.offset, r.size, f->want + r.at, 0,
                            NULL, NULL));
    OK(clFinish(p->queue)); /* the model's bytes may change next */
}

static void do_read(struct play *p, struct family *f)
{
    struct range r;
    if (!pick_range(p, f, false, &r))
        return;
    unsigned char *got = prog_alloc(r.size);
    prog_read(p->queue, r.memory, r.offset, r.size, got);
    prog_same("a read", got, f->want + r.at, r.size);
    sum_bytes(&p->run->sum, got, r.size);
    free(got);
}

static void do_fill(struct play *p, struct family *f)
{
    unsigned char pattern[128];
    struct range r;
    size_t unit = (size_t)1 << below(p, 8);
    if (!pick_range(p, f, true, &r) || r.size < 2 * unit)
        return;
    size_t skip = (unit - r.offset % unit) % unit;
    size_t size = (r.size - skip) / unit * unit;
    rng_fill(&p->run->rng, pattern, unit);
    OK(clEnqueueFillBuffer(p->queue, r.memory, pattern, unit, r.offset + skip, size, 0, NULL,
                           NULL));
    for (size_t i = 0; i < size; i++)
        f->want[r.at + skip + i] = pattern[i % unit];
}

static void do_copy(struct play *p, struct family *f)
{
    struct family *to = &p->families[below(p, FAMILIES)];
    struct range a, b;
    if (!pick_range(p, f, false, &a) || !pick_range(p, to, true, &b))
        return;
    size_t size = a.size < b.size ? a.size : b.size;
    cl_int want = CL_SUCCESS;
    if (f == to && a.at < b.at + size && b.at < a.at + size)
        want = CL_MEM_COPY_OVERLAP;
    cl_int got =
        clEnqueueCopyBuffer(p->queue, a.memory, b.memory, a.offset, b.offset, size, 0, NULL, NULL);
    /* Not every driver looks at what two parts of one buffer share. */
    if (want == CL_MEM_COPY_OVERLAP && a.memory != b.memory && got == CL_SUCCESS)
        prog_fail("a copy within one buffer may not overlap");
    REQUIRE(got == want);
    if (want == CL_SUCCESS)
        memcpy(to->want + b.at, f->want + a.at, size);
}

/* A box of bytes in a range, with pitches. */
struct box {
    size_t origin[3], row, slice, bytes;
};

static void pick_box(struct play *p, const size_t region[3], struct box *ret)
{
    for (int i = 0; i < 3; i++)
        ret->origin[i] = below(p, 3);
    bool tight = below(p, 3) == 0;
    ret->row = tight ? region[0] : region[0] + ret->origin[0] + below(p, 9);
    ret->slice = ret->row * (tight ? region[1] : region[1] + ret->origin[1] + below(p, 3));
    if (tight)
        ret->origin[0] = ret->origin[1] = 0;
    ret->bytes =
        (ret->origin[2] + region[2]) * ret->slice + (ret->origin[1] + region[1]) * ret->row;
}

static size_t box_at(const struct box *box, size_t y, size_t z)
{
    return (box->origin[2] + z) * box->slice + (box->origin[1] + y) * box->row + box->origin[0];
}

static void do_rect(struct play *p, struct family *f)
{
    size_t region[3];
    struct box in, out;
    for (int i = 0; i < 3; i++)
        region[i] = 1 + below(p, i == 0 ? BOX_MOST : 4);
    pick_box(p, region, &in);
    pick_box(p, region, &out);
    unsigned i = below(p, PARTS);
    bool write = below(p, 2);
    if (in.bytes > f->parts[i].size || !is_free(f, f->parts[i].origin, in.bytes, write))
        return;
    unsigned char *want = f->want + f->parts[i].origin, *host = prog_alloc(out.bytes);
    rng_fill(&p->run->rng, host, out.bytes);
    /* Pitches that are what they would be anyway may be left out. */
    bool left_out = in.row == region[0] && in.slice == region[0] * region[1];
    size_t row = left_out ? 0 : in.row, slice = left_out ? 0 : in.slice;
    if (write)
        OK(clEnqueueWriteBufferRect(p->queue, f->parts[i].memory, CL_TRUE, in.origin, out.origin,
                                    region, row, slice, out.row, out.slice, host, 0, NULL, NULL));
    else
        OK(clEnqueueReadBufferRect(p->queue, f->parts[i].memory, CL_TRUE, in.origin, out.origin,
                                   region, row, slice, out.row, out.slice, host, 0, NULL, NULL));
    for (size_t z = 0; z < region[2]; z++)
        for (size_t y = 0; y < region[1]; y++) {
            unsigned char *a = want + box_at(&in, y, z), *b = host + box_at(&out, y, z);
            if (write)
                memcpy(a, b, region[0]);
            else
                prog_same("a box", b, a, region[0]);
        }
    free(host);
}

static void do_copy_rect(struct play *p, struct family *f)
{
    struct family *to = &p->families[below(p, FAMILIES)];
    size_t region[3];
    struct box in, out;
    for (int i = 0; i < 3; i++)
        region[i] = 1 + below(p, i == 0 ? BOX_MOST : 4);
    pick_box(p, region, &in);
    pick_box(p, region, &out);
    if (f == to || in.bytes > f->size || out.bytes > to->size || !is_free(f, 0, in.bytes, false) ||
        !is_free(to, 0, out.bytes, true))
        return;
    OK(clEnqueueCopyBufferRect(p->queue, f->root, to->root, in.origin, out.origin, region, in.row,
                               in.slice, out.row, out.slice, 0, NULL, NULL));
    for (size_t z = 0; z < region[2]; z++)
        for (size_t y = 0; y < region[1]; y++)
            memcpy(to->want + box_at(&out, y, z), f->want + box_at(&in, y, z), region[0]);
}

static void do_kernel(struct play *p, struct family *f)
{
    unsigned i = below(p, PARTS);
    size_t size = f->parts[i].size < 4096 ? f->parts[i].size : 4096;
    if (!is_free(f, f->parts[i].origin, size, true))
        return;
    cl_kernel kernel = prog_kernel(p->run->program, "mix_bytes");
    cl_uchar key = (cl_uchar)below(p, 256);
    prog_arg(kernel, 0, sizeof(cl_mem), &f->parts[i].memory);
    prog_arg(kernel, 1, sizeof key, &key);
    memory_launch(p->queue, kernel, (const size_t[3]){size, 1, 1});
    for (size_t at = 0; at < size; at++) {
        unsigned char *b = &f->want[f->parts[i].origin + at];
        *b = (unsigned char)(*b * 3 + key + at);
    }
    OK(clReleaseKernel(kernel));
}

static void do_add(struct play *p, struct family *f)
{
    struct family *to = &p->families[below(p, FAMILIES)];
    size_t size = f->size < to->size ? f->size : to->size;
    size = size < 4096 ? size : 4096;
    if (f == to || !is_free(f, 0, size, false) || !is_free(to, 0, size, true))
        return;
    cl_kernel kernel = prog_kernel(p->run->program, "add_bytes");
    ARGS(kernel, f->root, to->root);
    memory_launch(p->queue, kernel, (const size_t[3]){size, 1, 1});
    for (size_t at = 0; at < size; at++)
        to->want[at] = (unsigned char)(to->want[at] + f->want[at]);
    OK(clReleaseKernel(kernel));
}

/* Through the image that lies over the buffer. */
static void do_view(struct play *p, struct family *f)
{
    size_t x = below(p, VIEW_PIXELS), n = 1 + below(p, VIEW_PIXELS - x);
    const size_t origin[3] = {x, 0, 0}, region[3] = {n, 1, 1};
    unsigned char got[VIEW_PIXELS * PIXEL];
    bool write = below(p, 2) && !p->run->no_views;
    if (!is_free(f, x * PIXEL, n * PIXEL, write) || !is_free(f, 0, VIEW_PIXELS * PIXEL, false))
        return;
    if (write) {
        rng_fill(&p->run->rng, f->want + x * PIXEL, n * PIXEL);
        OK(clEnqueueWriteImage(p->queue, f->view, CL_TRUE, origin, region, 0, 0,
                               f->want + x * PIXEL, 0, NULL, NULL));
    }
    if (!p->run->no_views) {
        OK(clEnqueueReadImage(p->queue, f->view, CL_TRUE, origin, region, 0, 0, got, 0, NULL,
                              NULL));
        prog_same("an image over a buffer", got, f->want + x * PIXEL, n * PIXEL);
    }
    cl_mem out = prog_buffer(p->run->prog.context, CL_MEM_WRITE_ONLY, sizeof got, NULL);
    cl_kernel kernel = prog_kernel(p->run->program, "view_bytes");
    prog_arg(kernel, 0, sizeof f->view, &f->view);
    prog_arg(kernel, 1, sizeof out, &out);
    memory_launch(p->queue, kernel, (const size_t[3]){VIEW_PIXELS, 1, 1});
    prog_read(p->queue, out, 0, sizeof got, got);
    prog_same("a kernel's view of a buffer", got, f->want, sizeof got);
    RELEASE(kernel, out);
}

/* Drivers differ in what a map of a part counts for the whole. */
static void expect_count(const struct family *f)
{
    bool any = false;
    cl_uint count = 99;
    for (unsigned m = 0; m < MAPS; m++)
        any = any || f->maps[m].pointer;
    OK(clGetMemObjectInfo(f->root, CL_MEM_MAP_COUNT, sizeof count, &count, NULL));
    if (!any && count != 0)
        prog_fail("a map count of %u, with nothing mapped", count);
}

static void do_map(struct play *p, struct family *f)
{
    static const cl_map_flags kinds[] = {CL_MAP_READ, CL_MAP_WRITE, CL_MAP_READ | CL_MAP_WRITE,
                                         CL_MAP_WRITE_INVALIDATE_REGION};
    struct held_map *m = &f->maps[below(p, MAPS)];
    cl_map_flags flags = kinds[below(p, 4)];
    bool blocking = below(p, 2);
    struct range r;
    cl_event event;
    if (m->pointer || !pick_range(p, f, flags != CL_MAP_READ, &r))
        return;
    unsigned char *pointer = MADE(clEnqueueMapBuffer, p->queue, r.memory, blocking, flags, r.offset,
                                  r.size, 0, NULL, &event);
    if (!blocking)
        OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    *m = (struct held_map){r.memory, r.at, r.size, flags, pointer};
    if (f->flags & CL_MEM_USE_HOST_PTR)
        REQUIRE(pointer == f->host + r.at);
    if (flags & CL_MAP_READ)
        prog_same("a map", pointer, f->want + r.at, r.size);
    for (unsigned i = 0; i < MAPS; i++) /* one address for one byte */
        if (f->maps[i].pointer && f->flags & CL_MEM_USE_HOST_PTR)
            REQUIRE(f->maps[i].pointer - f->maps[i].at == pointer - r.at);
    if (flags != CL_MAP_READ)
        rng_fill(&p->run->rng, f->want + r.at, r.size);
    if (flags != CL_MAP_READ) /* now, or when it is unmapped */
        memcpy(pointer, f->want + r.at, below(p, 2) ? r.size : r.size / 2);
    expect_count(f);
}

static void unmap(struct play *p, struct family *f, struct held_map *m)
{
    if (m->flags != CL_MAP_READ)
        memcpy(m->pointer, f->want + m->at, m->size);
    prog_same("what was mapped", m->pointer, f->want + m->at, m->size);
    OK(clEnqueueUnmapMemObject(p->queue, m->memory, m->pointer, 0, NULL, NULL));
    m->pointer = NULL;
    OK(clFinish(p->queue));
    expect_count(f);
}

static void do_unmap(struct play *p, struct family *f)
{
    struct held_map *m = &f->maps[below(p, MAPS)];
    if (m->pointer)
        unmap(p, f, m);
}

static void do_migrate(struct play *p, struct family *f)
{
    static const cl_mem_migration_flags kinds[] = {
        0, CL_MIGRATE_MEM_OBJECT_HOST, CL_MIGRATE_MEM_OBJECT_HOST,
        CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED};
    cl_mem all[FAMILIES];
    unsigned kind = below(p, 3); /* the last one would leave nothing to compare */
    (void)f;
    for (unsigned i = 0; i < FAMILIES; i++)
        all[i] = p->families[i].root;
    OK(clEnqueueMigrateMemObjects(p->queue, 1 + below(p, FAMILIES), all, kinds[kind], 0, NULL,
                                  NULL));
}

static void do_switch(struct play *p, struct family *f)
{
    (void)f;
    OK(clFinish(p->queue));
    p->queue = p->queue == p->run->other ? p->run->prog.queue : p->run->other;
}

static void family_end(struct play *p, struct family *f)
{
    unsigned char *got = prog_alloc(f->size);
    for (unsigned i = 0; i < MAPS; i++)
        if (f->maps[i].pointer)
            unmap(p, f, &f->maps[i]);
    prog_read(p->queue, f->root, 0, f->size, got);
    prog_same("the whole of it", got, f->want, f->size);
    sum_bytes(&p->run->sum, got, f->size < 65536 ? f->size : 65536);
    OK(clFinish(p->queue));
    /* Parts keep what they are of. */
    bool first = below(p, 2);
    if (first)
        OK(clReleaseMemObject(f->root));
    for (unsigned i = 1; i < PARTS; i++) {
        prog_read(p->queue, f->parts[i].memory, 0, f->parts[i].size, got);
        prog_same("a part", got, f->want + f->parts[i].origin, f->parts[i].size);
        OK(clReleaseMemObject(f->parts[i].memory));
    }
    OK(clReleaseMemObject(f->view));
    if (!first)
        OK(clReleaseMemObject(f->root));
    memset(f->host, 0xdd, f->size);
    free(got);
    free(f->host);
    free(f->want);
}

void memory_buffers(struct memory_run *run)
{
    static void (*const deeds[])(struct play *, struct family *) = {
        do_write, do_read, do_fill, do_copy, do_rect,  do_copy_rect, do_kernel,
        do_add,   do_view, do_map,  do_map,  do_unmap, do_migrate,   do_switch};
    static struct play p;

    p.run = run;
    p.queue = run->prog.queue;
    (void)device_alignment(&run->prog);
    for (unsigned i = 0; i < FAMILIES; i++) /* the last is worth being copied ahead */
        family_make(&p, &p.families[i],
                    i + 1 < FAMILIES ? 8192 + below(&p, 100000) : ((size_t)9 << 20) + 5);
    for (unsigned step = 0; step < STEPS; step++)
        deeds[below(&p, sizeof deeds / sizeof *deeds)](&p, &p.families[below(&p, FAMILIES)]);
    for (unsigned i = 0; i < FAMILIES; i++)
        family_end(&p, &p.families[i]);
}
