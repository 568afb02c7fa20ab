#include "interpose/entry/entry.h"
#include "state/command/command.h"
#include "state/memory/memory.h"

/* 5.2.1: the limit is the one that the program was told. A buffer that exceeds only the limit of
 * its present device is no error. */
cl_int buffer_create(struct context *context, const cl_mem_properties *properties,
                     cl_mem_flags flags, size_t size, void *host_ptr, struct memory **ret_memory)
{
    if (UNLIKELY(size > limits_allocation(context)))
        return CL_INVALID_BUFFER_SIZE;
    return memory_create_buffer(context, properties, flags, size, host_ptr, ret_memory);
}

cl_int sub_buffer_create(struct memory *buffer, cl_mem_flags flags, cl_buffer_create_type type,
                         const void *info, struct memory **ret_memory)
{
    size_t alignment = devinfo_scalar(&the_present.device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 8) / 8;
    return memory_create_sub_buffer(buffer, flags, type, info, alignment, ret_memory);
}

cl_int memory_set_destructor(struct memory *memory, void(CL_CALLBACK *pfn_notify)(cl_mem, void *),
                             void *user_data)
{
    if (!pfn_notify)
        return CL_INVALID_VALUE;
    return memory_add_destructor(memory, pfn_notify, user_data) == 0 ? CL_SUCCESS
                                                                     : CL_OUT_OF_HOST_MEMORY;
}

cl_int clReleaseMemObject(cl_mem memobj)
{
    struct memory *memory = memory_get(memobj);
    return memory && memory_release(memory) ? CL_SUCCESS : CL_INVALID_MEM_OBJECT;
}

/* ---- images ---- */

/* A limit, as the program was told. */
static uint64_t entry_image_most(const void *told, cl_device_info limit)
{
    return devinfo_scalar(told, limit, UINT64_MAX);
}

/* Add the access flags that the image inherits from its source: formats depend on them. */
static cl_mem_flags entry_image_access_flags(cl_mem_flags flags, const cl_image_desc *desc)
{
    const struct memory *source = memory_get(desc->mem_object);
    return (flags & MEMORY_ACCESS) || !source ? flags : flags | (source->flags & MEMORY_ACCESS);
}

cl_int image_create(struct context *context, const cl_mem_properties *properties,
                    cl_mem_flags flags, const cl_image_format *format, const cl_image_desc *desc,
                    void *host_ptr, struct memory **ret_memory)
{
    cl_int error = desc ? image_extents_check(desc, entry_image_most, &the_present.device)
                        : CL_INVALID_IMAGE_DESCRIPTOR;
    if (error == CL_SUCCESS)
        error = present_check_format(&the_present, entry_image_access_flags(flags, desc),
                                     desc->image_type, format);
    return error ? error
                 : memory_create_image(context, properties, flags, format, desc, host_ptr,
                                       ret_memory);
}

cl_int image_formats_list(struct context *context, cl_mem_flags flags, cl_mem_object_type type,
                          cl_uint num_entries, cl_image_format *formats, cl_uint *ret_count)
{
    (void)context;
    return present_image_formats(&the_present, flags, type, num_entries, formats, ret_count);
}

/* ---- maps ---- */

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
