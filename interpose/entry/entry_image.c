#include "interpose/entry/entry.h"
#include "state/memory/memory.h"

/** More than any device lists for one type and access. */
#define FORMATS_MAX 512

/* 5.3.1: formats that are offered to the program, which a target has too. */
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

/* 5.3.1: the largest extents that the program was told of, for each type. */
static const struct {
    cl_mem_object_type type;
    cl_device_info width, height, depth, layers; /* 0: the type has none */
} largest[] = {
    {CL_MEM_OBJECT_IMAGE1D, CL_DEVICE_IMAGE2D_MAX_WIDTH, 0, 0, 0},
    {CL_MEM_OBJECT_IMAGE1D_BUFFER, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE, 0, 0, 0},
    {CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_DEVICE_IMAGE2D_MAX_WIDTH, 0, 0,
     CL_DEVICE_IMAGE_MAX_ARRAY_SIZE},
    {CL_MEM_OBJECT_IMAGE2D, CL_DEVICE_IMAGE2D_MAX_WIDTH, CL_DEVICE_IMAGE2D_MAX_HEIGHT, 0, 0},
    {CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_DEVICE_IMAGE2D_MAX_WIDTH, CL_DEVICE_IMAGE2D_MAX_HEIGHT, 0,
     CL_DEVICE_IMAGE_MAX_ARRAY_SIZE},
    {CL_MEM_OBJECT_IMAGE3D, CL_DEVICE_IMAGE3D_MAX_WIDTH, CL_DEVICE_IMAGE3D_MAX_HEIGHT,
     CL_DEVICE_IMAGE3D_MAX_DEPTH, 0},
};

/* Either is wrong in its own way: nothing at all, and more than there is. */
static cl_int entry_image_check_extent(size_t extent, cl_device_info name)
{
    if (name == 0)
        return CL_SUCCESS;
    if (extent == 0)
        return CL_INVALID_IMAGE_DESCRIPTOR;
    return extent <= devinfo_scalar(&the_present.device, name, UINT64_MAX) ? CL_SUCCESS
                                                                           : CL_INVALID_IMAGE_SIZE;
}

static cl_int entry_image_check_extents(const cl_image_desc *desc)
{
    size_t i = 0;
    while (i < ARRAY_SIZE(largest) && largest[i].type != desc->image_type)
        i++;
    if (i == ARRAY_SIZE(largest))
        return CL_INVALID_IMAGE_DESCRIPTOR;
    cl_int error = entry_image_check_extent(desc->image_width, largest[i].width);
    if (error == CL_SUCCESS)
        error = entry_image_check_extent(desc->image_height, largest[i].height);
    if (error == CL_SUCCESS)
        error = entry_image_check_extent(desc->image_depth, largest[i].depth);
    return error == CL_SUCCESS ? entry_image_check_extent(desc->image_array_size, largest[i].layers)
                               : error;
}

/* Access flags that the image inherits from what it is made from, for its format's sake. */
static cl_mem_flags entry_image_access_flags(cl_mem_flags flags, const cl_image_desc *desc)
{
    const cl_mem_flags access = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
    const struct memory *source = memory_get(desc->mem_object);
    return (flags & access) || !source ? flags : flags | (source->flags & access);
}

static cl_int entry_image_create_image(cl_context context, const cl_mem_properties *properties,
                                       cl_mem_flags flags, const cl_image_format *format,
                                       const cl_image_desc *desc, void *host_ptr,
                                       struct memory **ret_memory)
{
    struct context *c = context_get(context);
    if (!c)
        return CL_INVALID_CONTEXT;
    cl_int error = desc ? entry_image_check_extents(desc) : CL_INVALID_IMAGE_DESCRIPTOR;
    if (error == CL_SUCCESS)
        error = entry_image_check_format(entry_image_access_flags(flags, desc), format,
                                         desc->image_type);
    if (error != CL_SUCCESS)
        return error;
    return memory_create_image(c, properties, flags, format, desc, host_ptr, ret_memory);
}

cl_mem clCreateImageWithProperties(cl_context context, const cl_mem_properties *properties,
                                   cl_mem_flags flags, const cl_image_format *image_format,
                                   const cl_image_desc *image_desc, void *host_ptr,
                                   cl_int *errcode_ret)
{
    struct memory *memory = NULL;
    cl_int error = entry_image_create_image(context, properties, flags, image_format, image_desc,
                                            host_ptr, &memory);
    return created(memory, error, errcode_ret);
}

cl_int clGetSupportedImageFormats(cl_context context, cl_mem_flags flags,
                                  cl_mem_object_type image_type, cl_uint num_entries,
                                  cl_image_format *image_formats, cl_uint *num_image_formats)
{
    if (!context_get(context))
        return CL_INVALID_CONTEXT;
    return present_image_formats(&the_present, flags, image_type, num_entries, image_formats,
                                 num_image_formats);
}
