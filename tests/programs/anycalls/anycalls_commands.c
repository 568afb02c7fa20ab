/** Random commands on buffers, images and maps; each with one wrong argument, if any. */
#include "anycalls.h"

#include <stdlib.h>
#include <string.h>

/** Where a range of @size bytes begins and how long it is, of whole words. */
static void range(struct any *a, size_t size, size_t *ret_at, size_t *ret_size)
{
    size_t words = size / 4;

    *ret_at = rng_below(&a->rng, (uint32_t)words) * 4;
    *ret_size = (1 + rng_below(&a->rng, (uint32_t)(words - *ret_at / 4))) * 4;
}

/** A command that blocks must not wait for the program. */
static cl_bool blocking(struct any *a)
{
    any_release_user(a);
    return CL_TRUE;
}

/** What is mapped belongs to the program until it is unmapped. */
static bool is_mapped(const struct mem *m)
{
    return m->mapped || (m->parent && m->parent->mapped);
}

/** Either queue. Nothing orders one after the other, so the first has to be done. */
static cl_command_queue either_queue(struct any *a)
{
    unsigned which = rng_below(&a->rng, 2);

    any_release_user(a);
    if (which)
        MUST(clFinish(a->queues[0]));
    return a->queues[which];
}

void any_transfer(struct any *a, bool wrong)
{
    struct mem *m = any_mem(a, true, false);
    unsigned char bytes[BYTES];
    size_t at, size;

    if (!m || is_mapped(m))
        return;
    range(a, m->size, &at, &size);
    rng_fill(&a->rng, bytes, size);
    uint32_t which = wrong ? 1 + rng_below(&a->rng, 4) : 0;
    cl_command_queue queue = which == 1 ? NULL : either_queue(a);
    if (which == 2)
        size = m->size - at + 4;
    cl_mem mem = which == 3 ? NULL : m->mem;
    void *host = which == 4 ? NULL : bytes;
    cl_bool block = blocking(a);
    if (any_one_in(a, 2)) {
        cl_int err = clEnqueueReadBuffer(queue, mem, block, at, size, host, 0, NULL, any_event(a));
        any_note(a, "clEnqueueReadBuffer", err, bytes, err ? 0 : size);
    } else {
        cl_int err = clEnqueueWriteBuffer(queue, mem, block, at, size, host, 0, NULL, any_event(a));
        any_note(a, "clEnqueueWriteBuffer", err, NULL, 0);
    }
}

void any_rect(struct any *a, bool wrong)
{
    enum { ROW = 32, ROWS = 4 };
    struct mem *m = any_mem(a, true, false);
    unsigned char bytes[ROW * ROWS * 2];

    if (!m || is_mapped(m) || m->size < (size_t)ROW * ROWS * 2)
        return;
    size_t of_buffer[3] = {rng_below(&a->rng, ROW / 2), rng_below(&a->rng, ROWS / 2), 0};
    size_t of_host[3] = {rng_below(&a->rng, ROW / 2), rng_below(&a->rng, ROWS / 2), 0};
    size_t region[3] = {1 + rng_below(&a->rng, ROW / 2), 1 + rng_below(&a->rng, ROWS / 2),
                        1 + rng_below(&a->rng, 2)};
    uint32_t which = wrong ? 1 + rng_below(&a->rng, 3) : 0;
    rng_fill(&a->rng, bytes, sizeof bytes);
    if (which == 1)
        region[1] = 0;
    if (which == 2)
        of_buffer[1] = m->size;
    size_t pitch = which == 3 ? 1 : ROW;
    region[0] += which == 3;
    cl_bool block = blocking(a);
    if (any_one_in(a, 2)) {
        cl_int err = clEnqueueReadBufferRect(a->queues[0], m->mem, block, of_buffer, of_host,
                                             region, pitch, (size_t)ROW * ROWS, ROW,
                                             (size_t)ROW * ROWS, bytes, 0, NULL, any_event(a));
        any_note(a, "clEnqueueReadBufferRect", err, bytes, sizeof bytes);
    } else {
        cl_int err = clEnqueueWriteBufferRect(a->queues[0], m->mem, block, of_buffer, of_host,
                                              region, pitch, (size_t)ROW * ROWS, ROW,
                                              (size_t)ROW * ROWS, bytes, 0, NULL, any_event(a));
        any_note(a, "clEnqueueWriteBufferRect", err, NULL, 0);
    }
}

void any_copy_rect(struct any *a, bool wrong)
{
    enum { ROW = 64, ROWS = 2 };
    struct mem *from = any_mem(a, true, false), *to = any_mem(a, true, false);
    size_t from_at[3] = {rng_below(&a->rng, ROW / 2), 0, 0}, to_at[3] = {0, 1, 0};
    size_t region[3] = {1 + rng_below(&a->rng, ROW / 2), 1, 1 + rng_below(&a->rng, 2)};

    if (!from || !to || from == to || from->parent || to->parent || is_mapped(from) ||
        is_mapped(to) || from->size < (size_t)ROW * ROWS * 2 || to->size < (size_t)ROW * ROWS * 2)
        return;
    if (wrong)
        to_at[1] = to->size;
    cl_int err =
        clEnqueueCopyBufferRect(a->queues[0], from->mem, to->mem, from_at, to_at, region, ROW,
                                (size_t)ROW * ROWS, ROW, (size_t)ROW * ROWS, 0, NULL, any_event(a));
    any_note(a, "clEnqueueCopyBufferRect", err, region, sizeof region);
}

void any_copy(struct any *a, bool wrong)
{
    struct mem *from = any_mem(a, true, false), *to = any_mem(a, true, false);

    if (!from || !to || is_mapped(from) || is_mapped(to))
        return;
    size_t size = from->size < to->size ? from->size : to->size;
    /* Parts of one buffer might overlap. */
    if (from == to || from->parent || to->parent)
        return;
    if (wrong && any_one_in(a, 2))
        size = 2 * (from->size + to->size);
    else if (wrong)
        from = NULL;
    cl_int err = clEnqueueCopyBuffer(a->queues[0], from ? from->mem : NULL, to->mem, 0, 0, size, 0,
                                     NULL, any_event(a));
    any_note(a, "clEnqueueCopyBuffer", err, &size, sizeof size);
}

void any_fill(struct any *a, bool wrong)
{
    static const size_t sizes[] = {1, 2, 4, 8, 16};
    struct mem *m = any_mem(a, true, false);
    unsigned char pattern[16];

    if (!m || is_mapped(m))
        return;
    size_t unit = sizes[rng_below(&a->rng, 5)], units = m->size / unit;
    size_t at = rng_below(&a->rng, (uint32_t)units);
    size_t size = (1 + rng_below(&a->rng, (uint32_t)(units - at))) * unit;
    rng_fill(&a->rng, pattern, sizeof pattern);
    uint32_t which = wrong ? 1 + rng_below(&a->rng, 3) : 0;
    cl_int err = clEnqueueFillBuffer(a->queues[0], m->mem, which == 1 ? NULL : pattern,
                                     which == 2 ? 3 : unit, at * unit,
                                     which == 3 ? m->size + unit : size, 0, NULL, any_event(a));
    any_note(a, "clEnqueueFillBuffer", err, pattern, unit);
}

/** A region of an image, where it begins included. */
static void part(struct any *a, const struct mem *m, size_t ret_origin[3], size_t ret_region[3])
{
    for (unsigned i = 0; i < 3; i++) {
        ret_origin[i] = rng_below(&a->rng, (uint32_t)m->region[i]);
        ret_region[i] = 1 + rng_below(&a->rng, (uint32_t)(m->region[i] - ret_origin[i]));
    }
}

void any_image(struct any *a, bool wrong)
{
    struct mem *m = any_mem(a, false, true);
    unsigned char bytes[IMAGE_BYTES];
    size_t origin[3], region[3];
    cl_uint color[4];

    if (!m || is_mapped(m))
        return;
    part(a, m, origin, region);
    rng_fill(&a->rng, bytes, sizeof bytes);
    /* POCL 3.1 takes regions of nothing, and NULL for what is to be written. */
    if (wrong)
        region[0] = m->region[0] + 1;
    /* Rows and slices in the program's memory may be apart. */
    size_t row = any_one_in(a, 2) && m->region[1] > 1 ? WIDTH * m->pixel : 0;
    size_t slice = row && m->region[2] > 1 ? HEIGHT * row : 0;
    cl_bool block = blocking(a);
    cl_int err;
    /* POCL 3.1 crashes where it fills an image over a buffer. */
    switch (rng_below(&a->rng, m->parent ? 2 : 3)) {
    case 0:
        err = clEnqueueReadImage(a->queues[0], m->mem, block, origin, region, row, slice, bytes, 0,
                                 NULL, any_event(a));
        any_note(a, "clEnqueueReadImage", err, bytes, err ? 0 : sizeof bytes);
        break;
    case 1:
        err = clEnqueueWriteImage(a->queues[0], m->mem, block, origin, region, row, slice, bytes, 0,
                                  NULL, any_event(a));
        any_note(a, "clEnqueueWriteImage", err, NULL, 0);
        break;
    default:
        for (unsigned i = 0; i < 4; i++)
            color[i] = bytes[i];
        err =
            clEnqueueFillImage(a->queues[0], m->mem, color, origin, region, 0, NULL, any_event(a));
        any_note(a, "clEnqueueFillImage", err, color, sizeof color);
        break;
    }
}

void any_image_copy(struct any *a, bool wrong)
{
    struct mem *image = any_mem(a, false, true), *buffer = any_mem(a, true, false);
    size_t origin[3], region[3];
    cl_int err;

    /* POCL 3.1 crashes on parts of buffers here. */
    if (!image || !buffer || image->parent || buffer->parent || is_mapped(image) ||
        is_mapped(buffer))
        return;
    part(a, image, origin, region);
    if (region[0] * region[1] * region[2] * image->pixel > buffer->size)
        return;
    if (wrong)
        region[0] = IMAGE_BYTES;
    if (any_one_in(a, 2)) {
        err = clEnqueueCopyImageToBuffer(a->queues[0], image->mem, buffer->mem, origin, region, 0,
                                         0, NULL, any_event(a));
        any_note(a, "clEnqueueCopyImageToBuffer", err, NULL, 0);
    } else {
        err = clEnqueueCopyBufferToImage(a->queues[0], buffer->mem, image->mem, 0, origin, region,
                                         0, NULL, any_event(a));
        any_note(a, "clEnqueueCopyBufferToImage", err, NULL, 0);
    }
}

void any_copy_image(struct any *a, bool wrong)
{
    struct mem *from = any_mem(a, false, true), *to = any_mem(a, false, true);
    size_t from_origin[3], to_origin[3], region[3], other[3];

    if (!from || !to || from == to || from->parent || to->parent || is_mapped(from) ||
        is_mapped(to) || from->type != to->type || from->pixel != to->pixel)
        return;
    part(a, from, from_origin, region);
    part(a, to, to_origin, other);
    for (unsigned i = 0; i < 3; i++)
        region[i] = region[i] < other[i] ? region[i] : other[i];
    if (wrong)
        region[0] = IMAGE_BYTES;
    cl_int err = clEnqueueCopyImage(a->queues[0], from->mem, to->mem, from_origin, to_origin,
                                    region, 0, NULL, any_event(a));
    any_note(a, "clEnqueueCopyImage", err, region, sizeof region);
}

/** Fold in what is mapped, row by row, and write other bytes where @write. */
static void use_image_map(struct any *a, const struct mem *m, unsigned char *p, size_t row,
                          size_t slice, const size_t region[3], bool write)
{
    /* The slices of an array of 1D images are its rows. */
    size_t pitch = m->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? slice : row;

    for (size_t z = 0; z < region[2]; z++) {
        for (size_t y = 0; y < region[1]; y++) {
            unsigned char *at = p + z * slice + y * pitch;
            any_note(a, "row", CL_SUCCESS, at, region[0] * m->pixel);
            if (write)
                rng_fill(&a->rng, at, region[0] * m->pixel);
        }
    }
}

void any_map_image(struct any *a, bool wrong)
{
    struct mem *m = any_mem(a, false, true);
    size_t origin[3], region[3], row = 0, slice = 0;
    bool write = any_one_in(a, 2);
    cl_int err = CL_SUCCESS;

    if (!m || is_mapped(m))
        return;
    part(a, m, origin, region);
    if (wrong)
        region[0] = m->region[0] + 1;
    cl_bool block = blocking(a);
    unsigned char *p = clEnqueueMapImage(a->queues[0], m->mem, block,
                                         write ? CL_MAP_READ | CL_MAP_WRITE : CL_MAP_READ, origin,
                                         region, &row, &slice, 0, NULL, any_event(a), &err);
    any_note(a, "clEnqueueMapImage", err, NULL, 0);
    if (!p)
        return;
    use_image_map(a, m, p, row, slice, region, write);
    MUST(clEnqueueUnmapMemObject(a->queues[0], m->mem, p, 0, NULL, any_event(a)));
}

void any_map(struct any *a, bool wrong)
{
    static const cl_map_flags ways[] = {CL_MAP_READ, CL_MAP_READ | CL_MAP_WRITE,
                                        CL_MAP_WRITE_INVALIDATE_REGION};
    struct mem *m = any_mem(a, true, false);
    struct map *map = a->maps;
    cl_int err = CL_SUCCESS;
    size_t at, size;

    while (map < a->maps + MAPS && map->mem)
        map++;
    if (!m || map == a->maps + MAPS || m->mapped || m->children || m->parent)
        return;
    range(a, m->size, &at, &size);
    cl_map_flags how = ways[rng_below(&a->rng, 3)];
    if (wrong)
        size = m->size + 4;
    cl_bool block = blocking(a);
    unsigned char *p =
        clEnqueueMapBuffer(a->queues[0], m->mem, block, how, at, size, 0, NULL, any_event(a), &err);
    any_note(a, "clEnqueueMapBuffer", err, p && how != ways[2] ? p : NULL,
             p && how != ways[2] ? size : 0);
    if (!p)
        return;
    if (how != CL_MAP_READ)
        rng_fill(&a->rng, p, size);
    m->mapped++;
    *map = (struct map){m, p, size};
}

void any_unmap(struct any *a, bool wrong)
{
    struct map *map = &a->maps[rng_below(&a->rng, MAPS)];
    cl_int err;

    if (!map->mem)
        return;
    if (wrong) {
        err = clEnqueueUnmapMemObject(a->queues[0], map->mem->mem, NULL, 0, NULL, NULL);
        any_note(a, "clEnqueueUnmapMemObject", err, NULL, 0);
        return;
    }
    err = clEnqueueUnmapMemObject(a->queues[0], map->mem->mem, map->at, 0, NULL, any_event(a));
    any_note(a, "clEnqueueUnmapMemObject", err, NULL, 0);
    map->mem->mapped--;
    *map = (struct map){0};
}
