#include "state/command/map.h"

#include "interpose/entry/entry.h"

cl_int map_buffer(struct queue *queue, struct memory *memory, cl_bool blocking, cl_map_flags flags,
                  size_t offset, size_t size, cl_uint waits, const cl_event *wait_list,
                  cl_event *ret_event, void **ret_pointer)
{
    const size_t origin[3] = {offset, 0, 0}, region[3] = {size, 1, 1};
    return map_enqueue(queue, memory, flags, origin, region, blocking != CL_FALSE, waits, wait_list,
                       ret_event, NULL, NULL, ret_pointer);
}

cl_int map_image(struct queue *queue, struct memory *memory, cl_bool blocking, cl_map_flags flags,
                 const size_t *origin, const size_t *region, size_t *ret_row_pitch,
                 size_t *ret_slice_pitch, cl_uint waits, const cl_event *wait_list,
                 cl_event *ret_event, void **ret_pointer)
{
    if (!origin || !region || !ret_row_pitch ||
        (image_slice_argument(memory->image) && !ret_slice_pitch))
        return CL_INVALID_VALUE;
    return map_enqueue(queue, memory, flags, origin, region, blocking != CL_FALSE, waits, wait_list,
                       ret_event, ret_row_pitch, ret_slice_pitch, ret_pointer);
}
