/** Buffers: copies, fills, rectangles, sub-buffers, maps, host pointers. */
#include "stress.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, RECT_ROW = 64, RECT_ROWS = 32, RECT_SLICES = 4, HELD_BYTES = 8192 };

void stress_copies(struct worker *w)
{
    size_t n = w->elements, size = n * sizeof(uint32_t);
    unsigned char *host = prog_alloc(size), *other = prog_alloc(size), *late = prog_alloc(size);
    cl_mem a = prog_buffer(w->prog->context, CL_MEM_READ_WRITE, size, NULL);
    cl_mem b = prog_buffer(w->prog->context, CL_MEM_READ_WRITE, size, NULL);
    uint32_t pattern[4];

    rng_fill(&w->rng, host, size);
    rng_fill(&w->rng, other, size);
    rng_fill(&w->rng, pattern, sizeof pattern);
    OK(clEnqueueWriteBuffer(w->queue, a, CL_FALSE, 0, size, host, 0, NULL, NULL));
    OK(clEnqueueWriteBuffer(w->queue, b, CL_TRUE, 0, size, other, 0, NULL, NULL));
    for (unsigned i = 0; i < 8; i++) {
        size_t from = rng_below(&w->rng, (uint32_t)size), to = rng_below(&w->rng, (uint32_t)size);
        size_t room = size - (from > to ? from : to);
        size_t part = 1 + rng_below(&w->rng, (uint32_t)room);
        OK(clEnqueueCopyBuffer(w->queue, i % 2 ? b : a, i % 2 ? a : b, from, to, part, 0, NULL,
                               NULL));
        memcpy((i % 2 ? host : other) + to, (i % 2 ? other : host) + from, part);
    }
    size_t at = rng_below(&w->rng, (uint32_t)(size / sizeof pattern / 2)) * sizeof pattern;
    size_t filled = (size - at) / sizeof pattern / 2 * sizeof pattern;
    OK(clEnqueueFillBuffer(w->queue, a, pattern, sizeof pattern, at, filled, 0, NULL, NULL));
    for (size_t i = 0; i < filled; i += sizeof pattern)
        memcpy(host + at + i, pattern, sizeof pattern);

    cl_event read;
    OK(clEnqueueMigrateMemObjects(w->queue, 1, &a, 0, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(w->queue, a, CL_FALSE, 0, size, late, 0, NULL, &read));
    OK(clFlush(w->queue));
    stress_verify(w, "copied", b, other, size);
    OK(clWaitForEvents(1, &read));
    prog_same("read without blocking", late, host, size);
    sum_bytes(&w->sum, late, size);
    RELEASE(read, a, b);
    free(host);
    free(other);
    free(late);
}

struct box {
    size_t origin[3], size[3];
};

static struct box random_box(struct rng *r)
{
    const uint32_t most[3] = {RECT_ROW, RECT_ROWS, RECT_SLICES};
    struct box b;

    for (int i = 0; i < 3; i++) {
        b.origin[i] = rng_below(r, most[i]);
        b.size[i] = 1 + rng_below(r, most[i] - (uint32_t)b.origin[i]);
    }
    return b;
}

static size_t at(const size_t origin[3], size_t x, size_t y, size_t z)
{
    return ((origin[2] + z) * RECT_ROWS + origin[1] + y) * RECT_ROW + origin[0] + x;
}

static void copy_box(unsigned char *to, const size_t to_origin[3], const unsigned char *from,
                     const size_t from_origin[3], const size_t size[3])
{
    for (size_t z = 0; z < size[2]; z++)
        for (size_t y = 0; y < size[1]; y++)
            memcpy(to + at(to_origin, 0, y, z), from + at(from_origin, 0, y, z), size[0]);
}

void stress_rects(struct worker *w)
{
    enum { BYTES = RECT_ROW * RECT_ROWS * RECT_SLICES, SLICE = RECT_ROW * RECT_ROWS };
    unsigned char *host = prog_alloc(BYTES), *device = prog_alloc(BYTES), *back = prog_alloc(BYTES);
    struct box in = random_box(&w->rng), out = random_box(&w->rng), move = random_box(&w->rng);
    size_t zero[3] = {0, 0, 0};

    rng_fill(&w->rng, host, BYTES);
    rng_fill(&w->rng, device, BYTES);
    cl_mem a =
        prog_buffer(w->prog->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, device);
    cl_mem b = prog_buffer(w->prog->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, host);
    OK(clEnqueueWriteBufferRect(w->queue, a, CL_FALSE, in.origin, in.origin, in.size, RECT_ROW,
                                SLICE, RECT_ROW, SLICE, host, 0, NULL, NULL));
    copy_box(device, in.origin, host, in.origin, in.size);
    OK(clEnqueueCopyBufferRect(w->queue, a, b, move.origin, zero, move.size, RECT_ROW, SLICE,
                               RECT_ROW, SLICE, 0, NULL, NULL));
    memcpy(back, host, BYTES);
    copy_box(back, zero, device, move.origin, move.size);
    stress_verify(w, "copied rectangle", b, back, BYTES);
    memset(back, 0, BYTES);
    OK(clEnqueueReadBufferRect(w->queue, a, CL_TRUE, out.origin, out.origin, out.size, RECT_ROW,
                               SLICE, RECT_ROW, SLICE, back, 0, NULL, NULL));
    memset(host, 0, BYTES);
    copy_box(host, out.origin, device, out.origin, out.size);
    prog_same("read rectangle", back, host, BYTES);
    stress_verify(w, "written rectangle", a, device, BYTES);
    RELEASE(a, b);
    free(host);
    free(device);
    free(back);
}

void stress_subbuffers(struct worker *w)
{
    cl_uint align_bits;
    uint32_t *host;

    OK(clGetDeviceInfo(w->prog->device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof align_bits,
                       &align_bits, NULL));
    size_t align = align_bits / 8 ? align_bits / 8 : sizeof(uint32_t);
    size_t part = (w->elements * sizeof(uint32_t) + align - 1) / align * align;
    size_t words = part / sizeof(uint32_t), key = 1 + rng_below(&w->rng, 1000);
    cl_mem parent = stress_random_buffer(w, CL_MEM_READ_WRITE, 4 * words, &host);
    cl_mem subs[4];
    for (size_t i = 0; i < 4; i++) {
        cl_buffer_region region = {i * part, part};
        subs[i] = MADE(clCreateSubBuffer, parent, i == 0 ? CL_MEM_READ_ONLY : 0,
                       CL_BUFFER_CREATE_TYPE_REGION, &region);
    }
    stress_enqueue(w, w->queue, subs[0], subs[2], words, (uint32_t)key, 0, NULL, NULL);
    stress_scramble(host, host + 2 * words, words, (uint32_t)key);
    stress_verify(w, "sub-buffer after a kernel", subs[2], host + 2 * words, part);
    OK(clEnqueueCopyBuffer(w->queue, subs[2], subs[3], 0, 0, part / 2, 0, NULL, NULL));
    memcpy(host + 3 * words, host + 2 * words, part / 2);
    OK(clEnqueueWriteBuffer(w->queue, parent, CL_TRUE, part, part / 2, host, 0, NULL, NULL));
    memcpy(host + words, host, part / 2);
    stress_verify(w, "sub-buffer after a write to its parent", subs[1], host + words, part);
    /* The parent lives on through its sub-buffers. */
    OK(clReleaseMemObject(parent));
    for (size_t i = 0; i < 4; i++)
        stress_verify(w, "sub-buffer without its parent", subs[i], host + i * words, part);
    for (size_t i = 0; i < 4; i++)
        OK(clReleaseMemObject(subs[i]));
    free(host);
}

static unsigned char *map(struct worker *w, cl_mem mem, cl_map_flags flags, size_t offset,
                          size_t size)
{
    unsigned char *p =
        MADE(clEnqueueMapBuffer, w->queue, mem, CL_TRUE, flags, offset, size, 0, NULL, NULL);
    return p;
}

static void unmap(struct worker *w, cl_mem mem, void *p)
{
    OK(clEnqueueUnmapMemObject(w->queue, mem, p, 0, NULL, NULL));
}

/** Maps of every kind on @mem, whose content is @host, then a kernel over the result. */
static void map_round(struct worker *w, cl_mem mem, uint32_t *host, const char *what)
{
    size_t n = w->elements, size = n * sizeof(uint32_t);
    uint32_t key = (uint32_t)rng_next(&w->rng);
    size_t offset = rng_below(&w->rng, (uint32_t)(size / 2)), part = size / 4;

    unsigned char *p = map(w, mem, CL_MAP_READ, 0, size);
    prog_same(what, p, host, size);
    unsigned char *q = map(w, mem, CL_MAP_READ, offset, part);
    prog_same(what, q, (unsigned char *)host + offset, part);
    unmap(w, mem, p);
    prog_same(what, q, (unsigned char *)host + offset, part);
    unmap(w, mem, q);

    p = map(w, mem, CL_MAP_WRITE, offset, part);
    rng_fill(&w->rng, p, part);
    memcpy((unsigned char *)host + offset, p, part);
    unmap(w, mem, p);
    stress_enqueue(w, w->queue, mem, mem, n, key, 0, NULL, NULL);
    stress_scramble(host, host, n, key);

    p = map(w, mem, CL_MAP_WRITE_INVALIDATE_REGION, offset, part);
    rng_fill(&w->rng, p, part);
    memcpy((unsigned char *)host + offset, p, part);
    unmap(w, mem, p);
    p = map(w, mem, CL_MAP_READ | CL_MAP_WRITE, 0, part);
    for (size_t i = 0; i < part; i++)
        p[i] ^= 0x5a;
    memcpy(host, p, part);
    unmap(w, mem, p);
    stress_verify(w, what, mem, host, size);
}

void stress_maps(struct worker *w)
{
    uint32_t *host;
    cl_mem mem = stress_random_buffer(w, CL_MEM_READ_WRITE, w->elements, &host);

    map_round(w, mem, host, "mapped buffer");
    OK(clFinish(w->queue));
    OK(clReleaseMemObject(mem));
    free(host);
}

void stress_heldmap(struct worker *w)
{
    if (!w->held) {
        w->held_want = prog_alloc(HELD_BYTES);
        rng_fill(&w->rng, w->held_want, HELD_BYTES);
        w->held = prog_buffer(w->prog->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                              HELD_BYTES, w->held_want);
        w->held_at = map(w, w->held, CL_MAP_READ, 0, HELD_BYTES);
        return;
    }
    /* Whatever happened since, the pointer is valid and shows the same bytes. */
    prog_same("map held since an earlier round", w->held_at, w->held_want, HELD_BYTES);
    unmap(w, w->held, (void *)w->held_at);
    stress_verify(w, "buffer that was mapped for long", w->held, w->held_want, HELD_BYTES);
    OK(clReleaseMemObject(w->held));
    free(w->held_want);
    w->held = NULL;
}

void stress_hostptr(struct worker *w)
{
    size_t n = w->elements, size = n * sizeof(uint32_t);
    uint32_t key = (uint32_t)rng_next(&w->rng), *host;
    cl_mem a = stress_random_buffer(w, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, n, &host);

    map_round(w, a, host, "page-locked buffer");
    unsigned char *mine = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE);
    REQUIRE(mine != NULL);
    memcpy(mine, host, size);
    cl_mem b = prog_buffer(w->prog->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, size, mine);
    void *told;
    OK(clGetMemObjectInfo(b, CL_MEM_HOST_PTR, sizeof told, &told, NULL));
    REQUIRE(told == mine);
    stress_enqueue(w, w->queue, b, b, n, key, 0, NULL, NULL);
    stress_scramble(host, host, n, key);
    unsigned char *p = map(w, b, CL_MAP_READ, 0, size);
    REQUIRE(p == mine);
    prog_same("program's own memory", mine, host, size);
    unmap(w, b, p);
    map_round(w, b, host, "buffer in the program's memory");
    OK(clFinish(w->queue));
    RELEASE(a, b);
    free(mine);
    free(host);
}
