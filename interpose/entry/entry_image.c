#include "interpose/entry/entry.h"
#include "state/memory/memory.h"

/** More than any device lists for one type and access. */
#define FORMATS_MAX 512

/* 5.3.1: the format has to be one that was offered to the program, which every target has. */
static cl_int entry_image_check_format(cl_mem_flags flags, const cl_image_format *format,
                                       cl_mem_object_type type)
{
    cl_image_format formats[FORMATS_MAX];
    cl_uint count = 0;
    if (!devinfo_scalar(&the_present.device, CL_DEVICE_IMAGE_SUPPORT, CL_FALSE))
        return CL_INVALID_OPERATION;
    if (!format)
        return CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
    cl_int error = present_image_formats(&the_present, flags, type, FORMATS_MAX, formats, &count);
    if (error != CL_SUCCESS)
        return error;
    for (cl_uint i = 0; i < count && i < FORMATS_MAX; i++)
        if (formats[i].image_channel_order == format->image_channel_order &&
            formats[i].image_channel_data_type == format->image_channel_data_type)
            return CL_SUCCESS;
    return image_element_size(format) ? CL_IMAGE_FORMAT_NOT_SUPPORTED
                                      : CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
}

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
        error = entry_image_check_format(entry_image_access_flags(flags, desc), format,
                                         desc->image_type);
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
