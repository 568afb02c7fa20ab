#include <stdlib.h>
#include <string.h>

#include "remote/driver/commands/command.h"
#include "remote/driver/commands/transfer.h"
#include "remote/driver/objects/image.h"
#include "state/opencl/box.h"

/* Reads, writes, fills, copies, moves of memory objects. What the specification asks of their
   parameters is asked here, so that its errors come at the call. */

static struct layout transfer_box_layout(const struct box *box, const size_t region[3])
{
    return (struct layout){.row = region[0],
                           .rows = region[1],
                           .slices = region[2],
                           .row_pitch = box->row,
                           .slice_pitch = box->slice};
}

static cl_int transfer_host_access(const struct memory *memory, bool writes)
{
    cl_mem_flags no =
        CL_MEM_HOST_NO_ACCESS | (writes ? CL_MEM_HOST_READ_ONLY : CL_MEM_HOST_WRITE_ONLY);
    return memory->flags & no ? CL_INVALID_OPERATION : CL_SUCCESS;
}

/* A buffer, or an image, of the queue's context. */
static cl_int transfer_take_object(cl_command_queue queue, cl_mem handle, bool image,
                                   struct memory **ret_memory)
{
    const struct queue *q = queue_get(queue);
    struct memory *memory = memory_get(handle);
    if (!q)
        return CL_INVALID_COMMAND_QUEUE;
    if (!memory || (memory->type != CL_MEM_OBJECT_BUFFER) != image)
        return CL_INVALID_MEM_OBJECT;
    if (memory->context != q->context)
        return CL_INVALID_CONTEXT;
    *ret_memory = memory;
    return CL_SUCCESS;
}

/* ---- buffers ---- */

/* None is no error since 2.1 (5.2.2). */
static bool transfer_run_fits(cl_command_queue queue, const struct memory *buffer, size_t offset,
                              size_t size)
{
    cl_version version = queue_get(queue)->device->version;
    return range_fits(offset, size, buffer->size) &&
           (size != 0 || version >= CL_MAKE_VERSION(2, 1, 0));
}

/* A transfer of no bytes, or a fill: a marker, of that type. */
static cl_int transfer_enqueue_empty(cl_command_queue queue, cl_command_type type, cl_bool blocking,
                                     cl_uint count, const cl_event *waits, cl_event *event)
{
    struct command command;
    cl_int error =
        command_begin(&command, queue, type, blocking != CL_FALSE, false, count, waits, event);
    if (error)
        return error;
    error = command_post_nothing(&command);
    return command_end(&command, error);
}

cl_int clEnqueueReadBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_read,
                           size_t offset, size_t size, void *ptr, cl_uint num_events_in_wait_list,
                           const cl_event *event_wait_list, cl_event *event)
{
    struct memory *memory = NULL;
    cl_int error = transfer_take_object(command_queue, buffer, false, &memory);
    if (error == CL_SUCCESS && (!ptr || !transfer_run_fits(command_queue, memory, offset, size)))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = transfer_host_access(memory, false);
    if (error == CL_SUCCESS && size == 0)
        return transfer_enqueue_empty(command_queue, CL_COMMAND_READ_BUFFER, blocking_read,
                                      num_events_in_wait_list, event_wait_list, event);
    if (error)
        return error;
    return transfer_run(&(struct transfer){.queue = command_queue,
                                           .memory = memory,
                                           .type = CL_COMMAND_READ_BUFFER,
                                           .blocking = blocking_read != CL_FALSE,
                                           .offset = offset,
                                           .size = size,
                                           .bytes = ptr,
                                           .count = num_events_in_wait_list,
                                           .waits = event_wait_list},
                        event);
}

cl_int clEnqueueWriteBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_write,
                            size_t offset, size_t size, const void *ptr,
                            cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                            cl_event *event)
{
    struct memory *memory = NULL;
    cl_int error = transfer_take_object(command_queue, buffer, false, &memory);
    if (error == CL_SUCCESS && (!ptr || !transfer_run_fits(command_queue, memory, offset, size)))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = transfer_host_access(memory, true);
    if (error == CL_SUCCESS && size == 0)
        return transfer_enqueue_empty(command_queue, CL_COMMAND_WRITE_BUFFER, blocking_write,
                                      num_events_in_wait_list, event_wait_list, event);
    if (error)
        return error;
    return transfer_run(&(struct transfer){.queue = command_queue,
                                           .memory = memory,
                                           .type = CL_COMMAND_WRITE_BUFFER,
                                           .blocking = blocking_write != CL_FALSE,
                                           .offset = offset,
                                           .size = size,
                                           .bytes = (void *)ptr,
                                           .count = num_events_in_wait_list,
                                           .waits = event_wait_list},
                        event);
}

#define SIZE3(array)                                                                               \
    {                                                                                              \
        (array)[0], (array)[1], (array)[2]                                                         \
    }

cl_int clEnqueueReadBufferRect(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_read,
                               const size_t *buffer_origin, const size_t *host_origin,
                               const size_t *region, size_t buffer_row_pitch,
                               size_t buffer_slice_pitch, size_t host_row_pitch,
                               size_t host_slice_pitch, void *ptr, cl_uint num_events_in_wait_list,
                               const cl_event *event_wait_list, cl_event *event)
{
    struct memory *memory = NULL;
    struct command command;
    struct box device, host;
    cl_int error = transfer_take_object(command_queue, buffer, false, &memory);
    if (error == CL_SUCCESS &&
        (!ptr || !box_init(&device, buffer_origin, region, buffer_row_pitch, buffer_slice_pitch) ||
         !box_init(&host, host_origin, region, host_row_pitch, host_slice_pitch) ||
         device.end > memory->size))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = transfer_host_access(memory, false);
    if (error == CL_SUCCESS)
        error =
            command_begin_transfer(&command, command_queue, CL_COMMAND_READ_BUFFER_RECT,
                                   blocking_read, num_events_in_wait_list, event_wait_list, event);
    if (error)
        return error;
    const struct layout layout = transfer_box_layout(&host, region);
    command_aim(&command, (char *)ptr + host.start, &layout);
    error = POST(memory->base.client, read_rect,
                 {.command = command.head,
                  .buffer = handle_id(memory),
                  .origin = SIZE3(buffer_origin),
                  .region = SIZE3(region),
                  .row_pitch = device.row,
                  .slice_pitch = device.slice});
    return command_end(&command, error);
}

cl_int clEnqueueWriteBufferRect(cl_command_queue command_queue, cl_mem buffer,
                                cl_bool blocking_write, const size_t *buffer_origin,
                                const size_t *host_origin, const size_t *region,
                                size_t buffer_row_pitch, size_t buffer_slice_pitch,
                                size_t host_row_pitch, size_t host_slice_pitch, const void *ptr,
                                cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                cl_event *event)
{
    struct memory *memory = NULL;
    struct command command;
    struct box device, host;
    const void *content = NULL;
    size_t size = 0;
    void *owned = NULL;
    cl_int error = transfer_take_object(command_queue, buffer, false, &memory);
    if (error == CL_SUCCESS &&
        (!ptr || !box_init(&device, buffer_origin, region, buffer_row_pitch, buffer_slice_pitch) ||
         !box_init(&host, host_origin, region, host_row_pitch, host_slice_pitch) ||
         device.end > memory->size))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = transfer_host_access(memory, true);
    if (error == CL_SUCCESS)
        error =
            command_begin_transfer(&command, command_queue, CL_COMMAND_WRITE_BUFFER_RECT,
                                   blocking_write, num_events_in_wait_list, event_wait_list, event);
    if (error)
        return error;
    const struct layout layout = transfer_box_layout(&host, region);
    error =
        command_fill(&command, (const char *)ptr + host.start, &layout, &content, &size, &owned);
    if (error)
        return command_end(&command, error);
    error = POST(memory->base.client, write_rect,
                 {.command = command.head,
                  .buffer = handle_id(memory),
                  .origin = SIZE3(buffer_origin),
                  .region = SIZE3(region),
                  .row_pitch = device.row,
                  .slice_pitch = device.slice,
                  .content = content,
                  .content_size = content ? size : 0});
    free(owned);
    return command_end(&command, error);
}

cl_int clEnqueueFillBuffer(cl_command_queue command_queue, cl_mem buffer, const void *pattern,
                           size_t pattern_size, size_t offset, size_t size,
                           cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                           cl_event *event)
{
    struct memory *memory = NULL;
    struct command command;
    cl_int error = transfer_take_object(command_queue, buffer, false, &memory);
    if (error == CL_SUCCESS && (!pattern || pattern_size == 0 || pattern_size > 128 ||
                                (pattern_size & (pattern_size - 1)) || offset % pattern_size ||
                                size % pattern_size || !range_fits(offset, size, memory->size)))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS && size == 0)
        return transfer_enqueue_empty(command_queue, CL_COMMAND_FILL_BUFFER, CL_FALSE,
                                      num_events_in_wait_list, event_wait_list, event);
    if (error == CL_SUCCESS)
        error = command_begin(&command, command_queue, CL_COMMAND_FILL_BUFFER, false, false,
                              num_events_in_wait_list, event_wait_list, event);
    if (error)
        return error;
    error = POST(memory->base.client, fill_buffer,
                 {.command = command.head,
                  .buffer = handle_id(memory),
                  .offset = offset,
                  .size = size,
                  .pattern = pattern,
                  .pattern_size = pattern_size});
    return command_end(&command, error);
}

static const struct memory *transfer_root(const struct memory *memory)
{
    return memory->type == CL_MEM_OBJECT_BUFFER && memory->parent ? memory->parent : memory;
}

cl_int clEnqueueCopyBuffer(cl_command_queue command_queue, cl_mem src_buffer, cl_mem dst_buffer,
                           size_t src_offset, size_t dst_offset, size_t size,
                           cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                           cl_event *event)
{
    struct memory *source = NULL, *target = NULL;
    struct command command;
    cl_int error = transfer_take_object(command_queue, src_buffer, false, &source);
    if (error == CL_SUCCESS)
        error = transfer_take_object(command_queue, dst_buffer, false, &target);
    if (error == CL_SUCCESS && (!transfer_run_fits(command_queue, source, src_offset, size) ||
                                !transfer_run_fits(command_queue, target, dst_offset, size)))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS && transfer_root(source) == transfer_root(target)) {
        size_t a = source->origin + src_offset, b = target->origin + dst_offset;
        if (a < b + size && b < a + size)
            error = CL_MEM_COPY_OVERLAP;
    }
    if (error == CL_SUCCESS && size == 0)
        return transfer_enqueue_empty(command_queue, CL_COMMAND_COPY_BUFFER, CL_FALSE,
                                      num_events_in_wait_list, event_wait_list, event);
    if (error == CL_SUCCESS)
        error = command_begin(&command, command_queue, CL_COMMAND_COPY_BUFFER, false, false,
                              num_events_in_wait_list, event_wait_list, event);
    if (error)
        return error;
    error = POST(source->base.client, copy_buffer,
                 {.command = command.head,
                  .source = handle_id(source),
                  .target = handle_id(target),
                  .source_offset = src_offset,
                  .target_offset = dst_offset,
                  .size = size});
    return command_end(&command, error);
}

cl_int clEnqueueCopyBufferRect(cl_command_queue command_queue, cl_mem src_buffer, cl_mem dst_buffer,
                               const size_t *src_origin, const size_t *dst_origin,
                               const size_t *region, size_t src_row_pitch, size_t src_slice_pitch,
                               size_t dst_row_pitch, size_t dst_slice_pitch,
                               cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                               cl_event *event)
{
    struct memory *source = NULL, *target = NULL;
    struct command command;
    struct box a, b;
    cl_int error = transfer_take_object(command_queue, src_buffer, false, &source);
    if (error == CL_SUCCESS)
        error = transfer_take_object(command_queue, dst_buffer, false, &target);
    if (error == CL_SUCCESS && (!box_init(&a, src_origin, region, src_row_pitch, src_slice_pitch) ||
                                !box_init(&b, dst_origin, region, dst_row_pitch, dst_slice_pitch) ||
                                a.end > source->size || b.end > target->size ||
                                (source == target && (a.row != b.row || a.slice != b.slice))))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS && transfer_root(source) == transfer_root(target) && a.row == b.row &&
        a.slice == b.slice) {
        struct box from = a, to = b;
        from.start += source->origin;
        from.end += source->origin;
        to.start += target->origin;
        to.end += target->origin;
        if (box_overlaps(&from, &to, region))
            error = CL_MEM_COPY_OVERLAP;
    }
    if (error == CL_SUCCESS)
        error = command_begin(&command, command_queue, CL_COMMAND_COPY_BUFFER_RECT, false, false,
                              num_events_in_wait_list, event_wait_list, event);
    if (error)
        return error;
    error = POST(source->base.client, copy_rect,
                 {.command = command.head,
                  .source = handle_id(source),
                  .target = handle_id(target),
                  .source_origin = SIZE3(src_origin),
                  .target_origin = SIZE3(dst_origin),
                  .region = SIZE3(region),
                  .source_row = a.row,
                  .source_slice = a.slice,
                  .target_row = b.row,
                  .target_slice = b.slice});
    return command_end(&command, error);
}

/* ---- images ---- */

cl_int clEnqueueReadImage(cl_command_queue command_queue, cl_mem image, cl_bool blocking_read,
                          const size_t *origin, const size_t *region, size_t row_pitch,
                          size_t slice_pitch, void *ptr, cl_uint num_events_in_wait_list,
                          const cl_event *event_wait_list, cl_event *event)
{
    struct memory *memory = NULL;
    struct command command;
    struct layout layout;
    cl_int error = transfer_take_object(command_queue, image, true, &memory);
    if (error == CL_SUCCESS && (!ptr || !origin || !region || !image_has(memory, origin, region) ||
                                !image_layout(memory, region, row_pitch, slice_pitch, &layout)))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = transfer_host_access(memory, false);
    if (error == CL_SUCCESS)
        error =
            command_begin_transfer(&command, command_queue, CL_COMMAND_READ_IMAGE, blocking_read,
                                   num_events_in_wait_list, event_wait_list, event);
    if (error)
        return error;
    command_aim(&command, ptr, &layout);
    error = POST(memory->base.client, read_image,
                 {.command = command.head,
                  .image = handle_id(memory),
                  .origin = SIZE3(origin),
                  .region = SIZE3(region)});
    return command_end(&command, error);
}

cl_int clEnqueueWriteImage(cl_command_queue command_queue, cl_mem image, cl_bool blocking_write,
                           const size_t *origin, const size_t *region, size_t input_row_pitch,
                           size_t input_slice_pitch, const void *ptr,
                           cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                           cl_event *event)
{
    struct memory *memory = NULL;
    struct command command;
    struct layout layout;
    const void *content = NULL;
    size_t size = 0;
    void *owned = NULL;
    cl_int error = transfer_take_object(command_queue, image, true, &memory);
    if (error == CL_SUCCESS &&
        (!ptr || !origin || !region || !image_has(memory, origin, region) ||
         !image_layout(memory, region, input_row_pitch, input_slice_pitch, &layout)))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = transfer_host_access(memory, true);
    if (error == CL_SUCCESS)
        error =
            command_begin_transfer(&command, command_queue, CL_COMMAND_WRITE_IMAGE, blocking_write,
                                   num_events_in_wait_list, event_wait_list, event);
    if (error)
        return error;
    error = command_fill(&command, ptr, &layout, &content, &size, &owned);
    if (error)
        return command_end(&command, error);
    error = POST(memory->base.client, write_image,
                 {.command = command.head,
                  .image = handle_id(memory),
                  .origin = SIZE3(origin),
                  .region = SIZE3(region),
                  .content = content,
                  .content_size = content ? size : 0});
    free(owned);
    return command_end(&command, error);
}

cl_int clEnqueueFillImage(cl_command_queue command_queue, cl_mem image, const void *fill_color,
                          const size_t *origin, const size_t *region,
                          cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                          cl_event *event)
{
    struct memory *memory = NULL;
    struct command command;
    cl_int error = transfer_take_object(command_queue, image, true, &memory);
    if (error == CL_SUCCESS &&
        (!fill_color || !origin || !region || !image_has(memory, origin, region)))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = command_begin(&command, command_queue, CL_COMMAND_FILL_IMAGE, false, false,
                              num_events_in_wait_list, event_wait_list, event);
    if (error)
        return error;
    bool depth = memory->format.image_channel_order == CL_DEPTH;
    error = POST(memory->base.client, fill_image,
                 {.command = command.head,
                  .image = handle_id(memory),
                  .origin = SIZE3(origin),
                  .region = SIZE3(region),
                  .color = fill_color,
                  .color_size = depth ? sizeof(cl_float) : sizeof(cl_float4)});
    return command_end(&command, error);
}

cl_int clEnqueueCopyImage(cl_command_queue command_queue, cl_mem src_image, cl_mem dst_image,
                          const size_t *src_origin, const size_t *dst_origin, const size_t *region,
                          cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                          cl_event *event)
{
    struct memory *source = NULL, *target = NULL;
    struct command command;
    cl_int error = transfer_take_object(command_queue, src_image, true, &source);
    if (error == CL_SUCCESS)
        error = transfer_take_object(command_queue, dst_image, true, &target);
    if (error == CL_SUCCESS && memcmp(&source->format, &target->format, sizeof(source->format)))
        error = CL_IMAGE_FORMAT_MISMATCH;
    if (error == CL_SUCCESS &&
        (!src_origin || !dst_origin || !region || !image_has(source, src_origin, region) ||
         !image_has(target, dst_origin, region)))
        error = CL_INVALID_VALUE;
    bool overlap = error == CL_SUCCESS && source == target;
    for (int i = 0; overlap && i < 3; i++)
        overlap =
            src_origin[i] < dst_origin[i] + region[i] && dst_origin[i] < src_origin[i] + region[i];
    if (overlap)
        error = CL_MEM_COPY_OVERLAP;
    if (error == CL_SUCCESS)
        error = command_begin(&command, command_queue, CL_COMMAND_COPY_IMAGE, false, false,
                              num_events_in_wait_list, event_wait_list, event);
    if (error)
        return error;
    error = POST(source->base.client, copy_image,
                 {.command = command.head,
                  .source = handle_id(source),
                  .target = handle_id(target),
                  .source_origin = SIZE3(src_origin),
                  .target_origin = SIZE3(dst_origin),
                  .region = SIZE3(region)});
    return command_end(&command, error);
}

/* A region of an image, and as many bytes of a buffer, packed. */
static cl_int transfer_take_both(cl_command_queue queue, cl_mem image, cl_mem buffer,
                                 const size_t *origin, const size_t *region, size_t offset,
                                 struct memory **ret_image, struct memory **ret_buffer)
{
    struct layout layout;
    size_t size = 0;
    cl_int error = transfer_take_object(queue, image, true, ret_image);
    if (error == CL_SUCCESS)
        error = transfer_take_object(queue, buffer, false, ret_buffer);
    if (error == CL_SUCCESS &&
        (!origin || !region || !image_has(*ret_image, origin, region) ||
         !image_layout(*ret_image, region, 0, 0, &layout) || !layout_size(&layout, &size) ||
         !range_fits(offset, size, (*ret_buffer)->size)))
        error = CL_INVALID_VALUE;
    return error;
}

cl_int clEnqueueCopyImageToBuffer(cl_command_queue command_queue, cl_mem src_image,
                                  cl_mem dst_buffer, const size_t *src_origin, const size_t *region,
                                  size_t dst_offset, cl_uint num_events_in_wait_list,
                                  const cl_event *event_wait_list, cl_event *event)
{
    struct memory *image = NULL, *buffer = NULL;
    struct command command;
    cl_int error = transfer_take_both(command_queue, src_image, dst_buffer, src_origin, region,
                                      dst_offset, &image, &buffer);
    if (error == CL_SUCCESS)
        error = command_begin(&command, command_queue, CL_COMMAND_COPY_IMAGE_TO_BUFFER, false,
                              false, num_events_in_wait_list, event_wait_list, event);
    if (error)
        return error;
    error = POST(image->base.client, copy_to_buffer,
                 {.command = command.head,
                  .image = handle_id(image),
                  .buffer = handle_id(buffer),
                  .origin = SIZE3(src_origin),
                  .region = SIZE3(region),
                  .offset = dst_offset});
    return command_end(&command, error);
}

cl_int clEnqueueCopyBufferToImage(cl_command_queue command_queue, cl_mem src_buffer,
                                  cl_mem dst_image, size_t src_offset, const size_t *dst_origin,
                                  const size_t *region, cl_uint num_events_in_wait_list,
                                  const cl_event *event_wait_list, cl_event *event)
{
    struct memory *image = NULL, *buffer = NULL;
    struct command command;
    cl_int error = transfer_take_both(command_queue, dst_image, src_buffer, dst_origin, region,
                                      src_offset, &image, &buffer);
    if (error == CL_SUCCESS)
        error = command_begin(&command, command_queue, CL_COMMAND_COPY_BUFFER_TO_IMAGE, false,
                              false, num_events_in_wait_list, event_wait_list, event);
    if (error)
        return error;
    error = POST(image->base.client, copy_to_image,
                 {.command = command.head,
                  .buffer = handle_id(buffer),
                  .image = handle_id(image),
                  .offset = src_offset,
                  .origin = SIZE3(dst_origin),
                  .region = SIZE3(region)});
    return command_end(&command, error);
}

cl_int clEnqueueMigrateMemObjects(cl_command_queue command_queue, cl_uint num_mem_objects,
                                  const cl_mem *mem_objects, cl_mem_migration_flags flags,
                                  cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                  cl_event *event)
{
    const cl_mem_migration_flags known =
        CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
    const struct queue *queue = queue_get(command_queue);
    struct command command;
    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (num_mem_objects == 0 || !mem_objects || (flags & ~known))
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < num_mem_objects; i++) {
        const struct memory *memory = memory_get(mem_objects[i]);
        if (!memory)
            return CL_INVALID_MEM_OBJECT;
        if (memory->context != queue->context)
            return CL_INVALID_CONTEXT;
    }
    uint64_t *ids = calloc(num_mem_objects, sizeof(*ids));
    if (!ids)
        return CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < num_mem_objects; i++)
        ids[i] = handle_id(memory_get(mem_objects[i]));
    cl_int error = command_begin(&command, command_queue, CL_COMMAND_MIGRATE_MEM_OBJECTS, false,
                                 false, num_events_in_wait_list, event_wait_list, event);
    if (error == CL_SUCCESS) {
        error = POST(command.queue->base.client, migrate,
                     {.command = command.head,
                      .flags = flags,
                      .objects = ids,
                      .objects_count = num_mem_objects});
        error = command_end(&command, error);
    }
    free(ids);
    return error;
}
