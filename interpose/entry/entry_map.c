#include "state/command/map.h"

#include "interpose/entry/entry.h"

static cl_int entry_map_check_owners(cl_command_queue queue, cl_mem object, bool image)
{
    const struct queue *q = queue_get(queue);
    const struct memory *memory = memory_get(object);
    if (!q)
        return CL_INVALID_COMMAND_QUEUE;
    if (!memory || (memory->image != NULL) != image)
        return CL_INVALID_MEM_OBJECT;
    return memory->context == q->context ? CL_SUCCESS : CL_INVALID_CONTEXT;
}

void *clEnqueueMapBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_map,
                         cl_map_flags map_flags, size_t offset, size_t size,
                         cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                         cl_event *event, cl_int *errcode_ret)
{
    void *pointer = NULL;
    const size_t origin[3] = {offset, 0, 0}, region[3] = {size, 1, 1};
    struct memory *memory = memory_get(buffer);
    cl_int error = entry_map_check_owners(command_queue, buffer, false);
    if (error == CL_SUCCESS)
        error = map_enqueue(queue_get(command_queue), memory, map_flags, origin, region,
                            blocking_map != CL_FALSE, num_events_in_wait_list, event_wait_list,
                            event, NULL, NULL, &pointer);
    return created(pointer, error, errcode_ret);
}

void *clEnqueueMapImage(cl_command_queue command_queue, cl_mem image, cl_bool blocking_map,
                        cl_map_flags map_flags, const size_t *origin, const size_t *region,
                        size_t *image_row_pitch, size_t *image_slice_pitch,
                        cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                        cl_event *event, cl_int *errcode_ret)
{
    void *pointer = NULL;
    struct memory *memory = memory_get(image);
    cl_int error = entry_map_check_owners(command_queue, image, true);
    if (error == CL_SUCCESS && (!origin || !region || !image_row_pitch ||
                                (image_slice_argument(memory->image) && !image_slice_pitch)))
        error = CL_INVALID_VALUE;
    if (error == CL_SUCCESS)
        error = map_enqueue(queue_get(command_queue), memory, map_flags, origin, region,
                            blocking_map != CL_FALSE, num_events_in_wait_list, event_wait_list,
                            event, image_row_pitch, image_slice_pitch, &pointer);
    return created(pointer, error, errcode_ret);
}

cl_int clEnqueueUnmapMemObject(cl_command_queue command_queue, cl_mem memobj, void *mapped_ptr,
                               cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                               cl_event *event)
{
    struct queue *queue = queue_get(command_queue);
    struct memory *memory = memory_get(memobj);
    if (!queue)
        return CL_INVALID_COMMAND_QUEUE;
    if (!memory)
        return CL_INVALID_MEM_OBJECT;
    if (memory->context != queue->context)
        return CL_INVALID_CONTEXT;
    if (!mapped_ptr)
        return CL_INVALID_VALUE;
    return map_unmap(queue, memory, mapped_ptr, num_events_in_wait_list, event_wait_list, event);
}
