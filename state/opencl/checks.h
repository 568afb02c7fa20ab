#ifndef RESEAT_STATE_OPENCL_CHECKS_H
#define RESEAT_STATE_OPENCL_CHECKS_H

#include "state/base/compiler.h"
#include "state/opencl/box.h"
#include "state/opencl/image.h"

/*
 * What the specification asks of the parameters of an enqueue call, beyond their being valid
 * handles. The library and the remote driver ask it before they give the command to anybody, so
 * that a command that waits gives its error at the call, and every device the same error. Both have
 * the callers of check_<command> generated (interpose/entry/calls.txt).
 *
 * Everything is inline, so that no struct checked_memory is built when a call is made. Pure.
 */

/** What the checks look at in a memory object. */
struct checked_memory {
    const void *object; /**< Which one it is. */
    cl_mem_flags flags;
    size_t size;
    size_t origin;                   /**< Of a sub-buffer: bytes from its root. */
    const void *root;                /**< The same for two objects that share bytes. */
    const struct image_shape *image; /**< NULL of a buffer. */
};

/** May the host read, or write, the object? */
static inline cl_int check_host_reads(cl_mem_flags flags)
{
    return flags & (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS) ? CL_INVALID_OPERATION
                                                                    : CL_SUCCESS;
}

static inline cl_int check_host_writes(cl_mem_flags flags)
{
    return flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS) ? CL_INVALID_OPERATION
                                                                   : CL_SUCCESS;
}

/* ---- buffers ---- */

/* A run of bytes of a buffer. A run of no bytes is an error before OpenCL 2.1 (5.2.2). */
static inline bool check_run_fits(struct checked_memory buffer, size_t offset, size_t size,
                                  bool empty_allowed)
{
    return range_fits(offset, size, buffer.size) && (size != 0 || empty_allowed);
}

static inline cl_int check_read_buffer(struct checked_memory buffer, size_t offset, size_t size,
                                       const void *ptr, bool empty_allowed)
{
    if (!ptr || !check_run_fits(buffer, offset, size, empty_allowed))
        return CL_INVALID_VALUE;
    return check_host_reads(buffer.flags);
}

static inline cl_int check_write_buffer(struct checked_memory buffer, size_t offset, size_t size,
                                        const void *ptr, bool empty_allowed)
{
    if (!ptr || !check_run_fits(buffer, offset, size, empty_allowed))
        return CL_INVALID_VALUE;
    return check_host_writes(buffer.flags);
}

static inline bool check_boxes_fit(struct checked_memory buffer, const size_t buffer_origin[3],
                                   const size_t host_origin[3], const size_t region[3],
                                   size_t buffer_row, size_t buffer_slice, size_t host_row,
                                   size_t host_slice)
{
    struct box box;
    return box_init(&box, host_origin, region, host_row, host_slice) &&
           box_init(&box, buffer_origin, region, buffer_row, buffer_slice) &&
           box.end <= buffer.size;
}

static inline cl_int check_read_buffer_rect(struct checked_memory buffer,
                                            const size_t buffer_origin[3],
                                            const size_t host_origin[3], const size_t region[3],
                                            size_t buffer_row, size_t buffer_slice, size_t host_row,
                                            size_t host_slice, const void *ptr)
{
    if (!ptr || !check_boxes_fit(buffer, buffer_origin, host_origin, region, buffer_row,
                                 buffer_slice, host_row, host_slice))
        return CL_INVALID_VALUE;
    return check_host_reads(buffer.flags);
}

static inline cl_int check_write_buffer_rect(struct checked_memory buffer,
                                             const size_t buffer_origin[3],
                                             const size_t host_origin[3], const size_t region[3],
                                             size_t buffer_row, size_t buffer_slice,
                                             size_t host_row, size_t host_slice, const void *ptr)
{
    if (!ptr || !check_boxes_fit(buffer, buffer_origin, host_origin, region, buffer_row,
                                 buffer_slice, host_row, host_slice))
        return CL_INVALID_VALUE;
    return check_host_writes(buffer.flags);
}

static inline cl_int check_fill_buffer(struct checked_memory buffer, size_t pattern_size,
                                       size_t offset, size_t size)
{
    if (pattern_size == 0 || (pattern_size & (pattern_size - 1)) != 0 ||
        offset % pattern_size != 0 || size % pattern_size != 0 ||
        !range_fits(offset, size, buffer.size))
        return CL_INVALID_VALUE;
    return CL_SUCCESS;
}

static inline cl_int check_copy_buffer(struct checked_memory from, struct checked_memory to,
                                       size_t src_offset, size_t dst_offset, size_t size,
                                       bool empty_allowed)
{
    if (!check_run_fits(from, src_offset, size, empty_allowed) ||
        !check_run_fits(to, dst_offset, size, empty_allowed))
        return CL_INVALID_VALUE;
    size_t a = from.origin + src_offset, b = to.origin + dst_offset;
    return from.root == to.root && a < b + size && b < a + size ? CL_MEM_COPY_OVERLAP : CL_SUCCESS;
}

static inline cl_int check_copy_buffer_rect(struct checked_memory from, struct checked_memory to,
                                            const size_t src_origin[3], const size_t dst_origin[3],
                                            const size_t region[3], size_t src_row,
                                            size_t src_slice, size_t dst_row, size_t dst_slice)
{
    struct box a, b;
    if (!box_init(&a, src_origin, region, src_row, src_slice) ||
        !box_init(&b, dst_origin, region, dst_row, dst_slice) || a.end > from.size ||
        b.end > to.size)
        return CL_INVALID_VALUE;
    if (a.row != b.row || a.slice != b.slice)
        return from.object == to.object ? CL_INVALID_VALUE : CL_SUCCESS;
    if (from.root != to.root)
        return CL_SUCCESS;
    a.start += from.origin;
    a.end += from.origin;
    b.start += to.origin;
    b.end += to.origin;
    return box_overlaps(&a, &b, region) ? CL_MEM_COPY_OVERLAP : CL_SUCCESS;
}

/* ---- images ---- */

/** Does a region lie in an image, and is it not empty (5.3.3)? */
static inline bool image_has(const struct image_shape *image, const size_t origin[3],
                             const size_t region[3])
{
    for (int i = 0; i < 3; i++)
        if (region[i] == 0 || !range_fits(origin[i], region[i], image->dims[i]))
            return false;
    return true;
}

static inline cl_int check_read_image(struct checked_memory image, const size_t origin[3],
                                      const size_t region[3], size_t row_pitch, size_t slice_pitch,
                                      const void *ptr)
{
    if (!ptr || !image_has(image.image, origin, region) ||
        !image_pitches_fit(image.image, region, row_pitch, slice_pitch))
        return CL_INVALID_VALUE;
    return check_host_reads(image.flags);
}

static inline cl_int check_write_image(struct checked_memory image, const size_t origin[3],
                                       const size_t region[3], size_t row_pitch, size_t slice_pitch,
                                       const void *ptr)
{
    if (!ptr || !image_has(image.image, origin, region) ||
        !image_pitches_fit(image.image, region, row_pitch, slice_pitch))
        return CL_INVALID_VALUE;
    return check_host_writes(image.flags);
}

static inline cl_int check_fill_image(struct checked_memory image, const size_t origin[3],
                                      const size_t region[3])
{
    return image_has(image.image, origin, region) ? CL_SUCCESS : CL_INVALID_VALUE;
}

static inline cl_int check_copy_image(struct checked_memory from, struct checked_memory to,
                                      const size_t src_origin[3], const size_t dst_origin[3],
                                      const size_t region[3])
{
    const cl_image_format *a = &from.image->format, *b = &to.image->format;
    if (a->image_channel_order != b->image_channel_order ||
        a->image_channel_data_type != b->image_channel_data_type)
        return CL_IMAGE_FORMAT_MISMATCH;
    if (!image_has(from.image, src_origin, region) || !image_has(to.image, dst_origin, region))
        return CL_INVALID_VALUE;
    if (from.object != to.object)
        return CL_SUCCESS;
    for (int i = 0; i < 3; i++)
        if (src_origin[i] >= dst_origin[i] + region[i] ||
            dst_origin[i] >= src_origin[i] + region[i])
            return CL_SUCCESS;
    return CL_MEM_COPY_OVERLAP;
}

/* A region of an image, and as many bytes, packed, at @offset of a buffer. */
static inline cl_int check_image_and_buffer(struct checked_memory image,
                                            struct checked_memory buffer, const size_t origin[3],
                                            const size_t region[3], size_t offset)
{
    if (!image_has(image.image, origin, region))
        return CL_INVALID_VALUE;
    size_t bytes = image.image->element_size * region[0] * region[1] * region[2];
    return range_fits(offset, bytes, buffer.size) ? CL_SUCCESS : CL_INVALID_VALUE;
}

static inline cl_int check_copy_image_to_buffer(struct checked_memory image,
                                                struct checked_memory buffer,
                                                const size_t src_origin[3], const size_t region[3],
                                                size_t dst_offset)
{
    return check_image_and_buffer(image, buffer, src_origin, region, dst_offset);
}

static inline cl_int check_copy_buffer_to_image(struct checked_memory buffer,
                                                struct checked_memory image, size_t src_offset,
                                                const size_t dst_origin[3], const size_t region[3])
{
    return check_image_and_buffer(image, buffer, dst_origin, region, src_offset);
}

/* ---- maps ---- */

/**
 * 5.2.4, 5.3.3 and 5.5.3: a map's region, and the access that the host asks for.
 *
 * @flags  0 is not valid, but drivers take it and programs use it: it is set to all access that the
 *         object allows.
 */
static inline cl_int check_map(struct checked_memory memory, const size_t origin[3],
                               const size_t region[3], cl_map_flags *flags)
{
    const cl_map_flags writes = CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
    bool fits = memory.image ? image_has(memory.image, origin, region)
                             : check_run_fits(memory, origin[0], region[0], false);
    if (!fits || (*flags & ~(CL_MAP_READ | writes)) ||
        ((*flags & CL_MAP_WRITE_INVALIDATE_REGION) && (*flags & (CL_MAP_READ | CL_MAP_WRITE))))
        return CL_INVALID_VALUE;
    cl_map_flags allowed = (check_host_reads(memory.flags) ? 0 : CL_MAP_READ) |
                           (check_host_writes(memory.flags) ? 0 : writes);
    if (*flags == 0)
        *flags = allowed & (CL_MAP_READ | CL_MAP_WRITE);
    return *flags == 0 || (*flags & ~allowed) ? CL_INVALID_OPERATION : CL_SUCCESS;
}

/** The context of a memory object; NULL where the handle is not valid. */
typedef const void *memory_context(cl_mem memory);

/** 5.5.4: the objects and flags of clEnqueueMigrateMemObjects. @context: of the queue. */
static inline cl_int check_migration(cl_uint count, const cl_mem *objects,
                                     cl_mem_migration_flags flags, const void *context,
                                     memory_context *context_of)
{
    const cl_mem_migration_flags known =
        CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
    if (count == 0 || !objects || (flags & ~known))
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < count; i++) {
        const void *of = context_of(objects[i]);
        if (!of)
            return CL_INVALID_MEM_OBJECT;
        if (of != context)
            return CL_INVALID_CONTEXT;
    }
    return CL_SUCCESS;
}

/* ---- events ---- */

/** The context of an event; NULL where the handle is not valid. */
typedef const void *event_context(cl_event event);

/** @invalid: the error for a handle that is not valid. */
static ALWAYS_INLINE cl_int check_events(cl_uint count, const cl_event *events, const void *context,
                                         event_context *context_of, cl_int invalid)
{
    for (cl_uint i = 0; i < count; i++) {
        const void *of = context_of(events[i]);
        if (!of)
            return invalid;
        if (of != context)
            return CL_INVALID_CONTEXT;
    }
    return CL_SUCCESS;
}

/** 5.11: the wait list of a command. @context: of its queue. */
static ALWAYS_INLINE cl_int check_wait_list(cl_uint count, const cl_event *list,
                                            const void *context, event_context *context_of)
{
    if ((count == 0) != (list == NULL))
        return CL_INVALID_EVENT_WAIT_LIST;
    return check_events(count, list, context, context_of, CL_INVALID_EVENT_WAIT_LIST);
}

/** 5.11: the list of clWaitForEvents. */
static inline cl_int check_awaited(cl_uint count, const cl_event *events, event_context *context_of)
{
    if (count == 0 || !events)
        return CL_INVALID_VALUE;
    return check_events(count, events, context_of(events[0]), context_of, CL_INVALID_EVENT);
}

#endif
