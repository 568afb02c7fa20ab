#include "remote/driver/objects/image.h"

#include <stdlib.h>
#include <string.h>

#include "state/opencl/image.h"

#define ACCESS (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY)

/* ---- formats ---- */

static const struct devinfo_formats *image_device_list(const struct device_object *device,
                                                       cl_mem_flags access, cl_mem_object_type type)
{
    const struct devinfo *info = &device->answers->info;
    for (size_t i = 0; i < info->format_count; i++)
        if (info->formats[i].type == type && info->formats[i].flags == access)
            return &info->formats[i];
    return NULL;
}

static bool image_lists(const struct devinfo_formats *list, const cl_image_format *format)
{
    for (uint32_t i = 0; list && i < list->count; i++)
        if (!memcmp(&list->formats[i], format, sizeof(*format)))
            return true;
    return false;
}

/* Of those that a device has: does any other of the context's have it? Contexts offer the union. */
static cl_int image_context_formats(const struct context *context, cl_mem_flags flags,
                                    cl_mem_object_type type, cl_image_format **ret_formats,
                                    cl_uint *ret_count)
{
    cl_mem_flags access = flags & (ACCESS | CL_MEM_KERNEL_READ_AND_WRITE);
    if (access & CL_MEM_KERNEL_READ_AND_WRITE)
        access = CL_MEM_KERNEL_READ_AND_WRITE;
    else if (!access)
        access = CL_MEM_READ_WRITE;
    cl_image_format *formats = NULL;
    cl_uint count = 0;
    for (cl_uint d = 0; d < context->device_count; d++) {
        const struct devinfo_formats *list = image_device_list(context->devices[d], access, type);
        if (!list)
            continue;
        cl_image_format *more = reallocarray(formats, count + list->count + 1, sizeof(*formats));
        if (!more) {
            free(formats);
            return CL_OUT_OF_HOST_MEMORY;
        }
        formats = more;
        const struct devinfo_formats before = {.count = count, .formats = formats};
        for (uint32_t i = 0; i < list->count; i++)
            if (!image_lists(&before, &list->formats[i]))
                formats[count++] = list->formats[i];
    }
    *ret_formats = formats;
    *ret_count = count;
    return CL_SUCCESS;
}

static bool image_is_image_type(cl_mem_object_type type)
{
    return type >= CL_MEM_OBJECT_IMAGE2D && type <= CL_MEM_OBJECT_IMAGE1D_BUFFER;
}

cl_int clGetSupportedImageFormats(cl_context context, cl_mem_flags flags,
                                  cl_mem_object_type image_type, cl_uint num_entries,
                                  cl_image_format *image_formats, cl_uint *num_image_formats)
{
    const struct context *c = context_get(context);
    cl_image_format *formats = NULL;
    cl_uint count = 0;
    if (!c)
        return CL_INVALID_CONTEXT;
    if (memory_check_flags(flags) || !image_is_image_type(image_type) ||
        (image_formats && num_entries == 0))
        return CL_INVALID_VALUE;
    cl_int error = image_context_formats(c, flags, image_type, &formats, &count);
    if (error)
        return error;
    if (image_formats && count)
        memcpy(image_formats, formats,
               (num_entries < count ? num_entries : count) * sizeof(*formats));
    if (num_image_formats)
        *num_image_formats = count;
    free(formats);
    return CL_SUCCESS;
}

static cl_int image_check_format(const struct context *context, cl_mem_flags flags,
                                 const cl_image_format *format, cl_mem_object_type type)
{
    cl_image_format *formats = NULL;
    cl_uint count = 0;
    bool images = false;
    for (cl_uint i = 0; i < context->device_count; i++)
        images = images || device_number(context->devices[i], CL_DEVICE_IMAGE_SUPPORT);
    if (!images)
        return CL_INVALID_OPERATION;
    if (!format || image_element_size(format) == 0)
        return CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
    cl_int error = image_context_formats(context, flags, type, &formats, &count);
    const struct devinfo_formats list = {.count = count, .formats = formats};
    if (error == CL_SUCCESS && !image_lists(&list, format))
        error = CL_IMAGE_FORMAT_NOT_SUPPORTED;
    free(formats);
    return error;
}

/* ---- shapes ---- */

/* 5.3.1: extents of each type, in the order of its coordinates, and how far they go. */
static const struct shape {
    cl_mem_object_type type;
    cl_device_info most[3]; /* 0: it has no such coordinate. */
    int layers;             /* Which of them is the array's; -1: none. */
} shapes[] = {
    {CL_MEM_OBJECT_IMAGE1D, {CL_DEVICE_IMAGE2D_MAX_WIDTH}, -1},
    {CL_MEM_OBJECT_IMAGE1D_BUFFER, {CL_DEVICE_IMAGE_MAX_BUFFER_SIZE}, -1},
    {CL_MEM_OBJECT_IMAGE1D_ARRAY, {CL_DEVICE_IMAGE2D_MAX_WIDTH, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE}, 1},
    {CL_MEM_OBJECT_IMAGE2D, {CL_DEVICE_IMAGE2D_MAX_WIDTH, CL_DEVICE_IMAGE2D_MAX_HEIGHT}, -1},
    {CL_MEM_OBJECT_IMAGE2D_ARRAY,
     {CL_DEVICE_IMAGE2D_MAX_WIDTH, CL_DEVICE_IMAGE2D_MAX_HEIGHT, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE},
     2},
    {CL_MEM_OBJECT_IMAGE3D,
     {CL_DEVICE_IMAGE3D_MAX_WIDTH, CL_DEVICE_IMAGE3D_MAX_HEIGHT, CL_DEVICE_IMAGE3D_MAX_DEPTH},
     -1},
};

static const struct shape *image_shape_of(cl_mem_object_type type)
{
    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
        if (shapes[i].type == type)
            return &shapes[i];
    return NULL;
}

static cl_int image_take_dims(const struct context *context, const cl_image_desc *desc,
                              size_t dims[3])
{
    const struct shape *shape = image_shape_of(desc->image_type);
    const size_t given[3] = {desc->image_width, desc->image_height, desc->image_depth};
    if (!shape)
        return CL_INVALID_IMAGE_DESCRIPTOR;
    for (int i = 0; i < 3; i++) {
        bool fits = false;
        dims[i] = 1;
        if (!shape->most[i])
            continue;
        dims[i] = i == shape->layers ? desc->image_array_size : given[i];
        if (dims[i] == 0)
            return CL_INVALID_IMAGE_DESCRIPTOR;
        for (cl_uint d = 0; d < context->device_count; d++)
            fits = fits || dims[i] <= device_number(context->devices[d], shape->most[i]);
        if (!fits)
            return i == shape->layers ? CL_INVALID_IMAGE_DESCRIPTOR : CL_INVALID_IMAGE_SIZE;
    }
    return CL_SUCCESS;
}

/* Pitches of what the program gave, or of a buffer. */
static cl_int image_take_pitches(const cl_image_desc *desc, const struct memory *parent,
                                 const void *host, struct memory *image)
{
    size_t least = image->dims[0] * image->element;
    bool layered = image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    bool deep = image->type == CL_MEM_OBJECT_IMAGE2D_ARRAY || image->type == CL_MEM_OBJECT_IMAGE3D;
    size_t row = desc->image_row_pitch, slice = desc->image_slice_pitch;
    if (!host && !parent && (row || slice))
        return CL_INVALID_IMAGE_DESCRIPTOR;
    if (row && (row < least || row % image->element))
        return CL_INVALID_IMAGE_DESCRIPTOR;
    row = row ? row : least;
    size_t plane = layered ? row : row * image->dims[1];
    if (slice && (layered || deep) && (slice < plane || slice % row))
        return CL_INVALID_IMAGE_DESCRIPTOR;
    image->row_pitch = row;
    image->slice_pitch = !layered && !deep ? 0 : slice ? slice : plane;
    return CL_SUCCESS;
}

static cl_int image_check_parent(const struct memory *image, const struct memory *parent,
                                 const cl_image_desc *desc)
{
    bool buffer = parent->type == CL_MEM_OBJECT_BUFFER;
    size_t size = image->row_pitch * (image->dims[1] - 1) + image->dims[0] * image->element;
    if (desc->image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER)
        return !buffer                                          ? CL_INVALID_IMAGE_DESCRIPTOR
               : image->dims[0] * image->element > parent->size ? CL_INVALID_IMAGE_SIZE
                                                                : CL_SUCCESS;
    if (desc->image_type != CL_MEM_OBJECT_IMAGE2D)
        return CL_INVALID_IMAGE_DESCRIPTOR;
    if (buffer)
        return size > parent->size ? CL_INVALID_IMAGE_SIZE : CL_SUCCESS;
    return parent->type == CL_MEM_OBJECT_IMAGE2D && parent->dims[0] == image->dims[0] &&
                   parent->dims[1] == image->dims[1]
               ? CL_SUCCESS
               : CL_INVALID_IMAGE_DESCRIPTOR;
}

bool image_has(const struct memory *image, const size_t origin[3], const size_t region[3])
{
    for (int i = 0; i < 3; i++)
        if (region[i] == 0 || origin[i] > image->dims[i] || region[i] > image->dims[i] - origin[i])
            return false;
    return true;
}

bool image_layout(const struct memory *image, const size_t region[3], size_t row_pitch,
                  size_t slice_pitch, struct layout *ret_layout)
{
    bool layered = image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    bool deep = image->type == CL_MEM_OBJECT_IMAGE2D_ARRAY || image->type == CL_MEM_OBJECT_IMAGE3D;
    size_t row = region[0] * image->element;
    if ((row_pitch && row_pitch < row) || (slice_pitch && !layered && !deep))
        return false;
    row_pitch = row_pitch ? row_pitch : row;
    size_t plane = layered ? row_pitch : row_pitch * region[1];
    if (slice_pitch && slice_pitch < plane)
        return false;
    slice_pitch = slice_pitch ? slice_pitch : plane;
    *ret_layout = (struct layout){
        .row = row,
        .rows = region[1],
        .slices = region[2],
        .row_pitch = layered ? slice_pitch : row_pitch,
        .slice_pitch = slice_pitch,
    };
    return true;
}

/* ---- making ---- */

static cl_int image_post_image(struct memory *image, const cl_image_desc *desc, const void *host)
{
    struct layout layout;
    size_t size = 0;
    void *packed = NULL;
    if (host) {
        if (!image_layout(image, image->dims, image->row_pitch, image->slice_pitch, &layout) ||
            !layout_size(&layout, &size))
            return CL_INVALID_IMAGE_SIZE;
        packed = malloc(size);
        if (!packed)
            return CL_OUT_OF_HOST_MEMORY;
        layout_gather(&layout, packed, host);
    }
    cl_int error = POST(image->base.client, create_image,
                        {.memory = handle_id(image),
                         .context = handle_id(image->context),
                         .flags = image->flags,
                         .order = image->format.image_channel_order,
                         .data_type = image->format.image_channel_data_type,
                         .type = image->type,
                         .size = {desc->image_width, desc->image_height, desc->image_depth},
                         .layers = desc->image_array_size,
                         .row_pitch = desc->image_row_pitch,
                         .parent = handle_id(image->parent),
                         .content = packed,
                         .content_size = size});
    image->told = error == CL_SUCCESS;
    free(packed);
    return error;
}

/* What the type does not use is not sent: the server computes sizes from what is. */
static cl_image_desc image_only_used(const cl_image_desc *given)
{
    cl_image_desc desc = *given;
    const struct shape *shape = image_shape_of(desc.image_type);
    if (!shape->most[1] || shape->layers == 1)
        desc.image_height = 0;
    if (!shape->most[2] || shape->layers == 2)
        desc.image_depth = 0;
    if (shape->layers < 0)
        desc.image_array_size = 0;
    return desc;
}

/* Are 2D images made from buffers by any device? */
static bool image_takes_buffers(const struct context *context)
{
    for (cl_uint i = 0; i < context->device_count; i++)
        if (devinfo_names_have(context->devices[i]->extensions, "cl_khr_image2d_from_buffer"))
            return true;
    return false;
}

static cl_int image_create_image(cl_context context, const cl_mem_properties *properties,
                                 cl_mem_flags flags, const cl_image_format *format,
                                 const cl_image_desc *desc, void *host, struct memory **ret_image)
{
    struct context *c = context_get(context);
    size_t dims[3];
    if (!c)
        return CL_INVALID_CONTEXT;
    cl_int error = memory_take_list(properties);
    if (error == CL_SUCCESS)
        error = memory_check_flags(flags);
    if (error == CL_SUCCESS && !format)
        error = CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
    if (error == CL_SUCCESS)
        error = desc ? image_take_dims(c, desc, dims) : CL_INVALID_IMAGE_DESCRIPTOR;
    if (error)
        return error;
    struct memory *parent = memory_get(desc->mem_object);
    if ((desc->mem_object && !parent) || (parent && parent->context != c) || desc->num_mip_levels ||
        desc->num_samples || (desc->image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER && !parent))
        return CL_INVALID_IMAGE_DESCRIPTOR;
    if (parent && parent->type == CL_MEM_OBJECT_BUFFER &&
        desc->image_type == CL_MEM_OBJECT_IMAGE2D && !image_takes_buffers(c))
        return CL_INVALID_OPERATION;
    if (parent && !(flags & ACCESS))
        flags |= parent->flags & ACCESS;
    error = image_check_format(c, flags, format, desc->image_type);
    if (error)
        return error;
    if (!host != !(flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)))
        return CL_INVALID_HOST_PTR;
    struct memory *image = memory_create(c, desc->image_type, flags, parent);
    if (!image)
        return CL_OUT_OF_HOST_MEMORY;
    if (parent)
        image->flags |= parent->flags & CL_MEM_USE_HOST_PTR;
    image->format = *format;
    image->desc = image_only_used(desc);
    image->element = image_element_size(format);
    memcpy(image->dims, dims, sizeof(dims));
    image->list = list_copy(properties, sizeof(*properties), &image->list_size);
    error = image_take_pitches(desc, parent, host, image);
    if (error == CL_SUCCESS && parent)
        error = image_check_parent(image, parent, desc);
    size_t rows = dims[1] * dims[2];
    image->size =
        image->slice_pitch
            ? image->slice_pitch * (image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? dims[1] : dims[2])
            : image->row_pitch * rows;
    if (flags & CL_MEM_USE_HOST_PTR)
        image->host = host;
    else if (parent && (parent->flags & CL_MEM_USE_HOST_PTR))
        image->host = parent->host;
    if (error == CL_SUCCESS)
        error = image_post_image(image, &image->desc, host);
    if (error)
        handle_release(image);
    else
        *ret_image = image;
    return error;
}

cl_mem clCreateImage(cl_context context, cl_mem_flags flags, const cl_image_format *image_format,
                     const cl_image_desc *image_desc, void *host_ptr, cl_int *errcode_ret)
{
    struct memory *image = NULL;
    cl_int error =
        image_create_image(context, NULL, flags, image_format, image_desc, host_ptr, &image);
    return created(image, error, errcode_ret);
}

cl_mem clCreateImageWithProperties(cl_context context, const cl_mem_properties *properties,
                                   cl_mem_flags flags, const cl_image_format *image_format,
                                   const cl_image_desc *image_desc, void *host_ptr,
                                   cl_int *errcode_ret)
{
    struct memory *image = NULL;
    cl_int error =
        image_create_image(context, properties, flags, image_format, image_desc, host_ptr, &image);
    return created(image, error, errcode_ret);
}

/* The calls of 1.1 have sizes where 1.2 has a descriptor, and an error of their own for them. */
static cl_mem image_create_sized(cl_context context, cl_mem_flags flags,
                                 const cl_image_format *format, const cl_image_desc *desc,
                                 bool sized, void *host, cl_int *errcode)
{
    struct memory *image = NULL;
    cl_int error = context_get(context) ? CL_INVALID_IMAGE_SIZE : CL_INVALID_CONTEXT;
    if (error != CL_INVALID_CONTEXT && sized)
        error = image_create_image(context, NULL, flags, format, desc, host, &image);
    if (error == CL_INVALID_IMAGE_DESCRIPTOR)
        error = CL_INVALID_IMAGE_SIZE;
    return created(image, error, errcode);
}

cl_mem clCreateImage2D(cl_context context, cl_mem_flags flags, const cl_image_format *image_format,
                       size_t image_width, size_t image_height, size_t image_row_pitch,
                       void *host_ptr, cl_int *errcode_ret)
{
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D,
                                .image_width = image_width,
                                .image_height = image_height,
                                .image_row_pitch = image_row_pitch};
    bool sized = image_width != 0 && image_height != 0;
    return image_create_sized(context, flags, image_format, &desc, sized, host_ptr, errcode_ret);
}

cl_mem clCreateImage3D(cl_context context, cl_mem_flags flags, const cl_image_format *image_format,
                       size_t image_width, size_t image_height, size_t image_depth,
                       size_t image_row_pitch, size_t image_slice_pitch, void *host_ptr,
                       cl_int *errcode_ret)
{
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE3D,
                                .image_width = image_width,
                                .image_height = image_height,
                                .image_depth = image_depth,
                                .image_row_pitch = image_row_pitch,
                                .image_slice_pitch = image_slice_pitch};
    bool sized = image_width != 0 && image_height != 0 && image_depth > 1;
    return image_create_sized(context, flags, image_format, &desc, sized, host_ptr, errcode_ret);
}

cl_int clGetImageInfo(cl_mem image, cl_image_info param_name, size_t param_value_size,
                      void *param_value, size_t *param_value_size_ret)
{
    const struct request request = {param_value_size, param_value, param_value_size_ret};
    const struct memory *m = memory_get(image);
    if (!m || !image_is_image_type(m->type))
        return CL_INVALID_MEM_OBJECT;
    switch (param_name) {
    case CL_IMAGE_FORMAT:
        return request_bytes(&request, &m->format, sizeof(m->format));
    case CL_IMAGE_ELEMENT_SIZE:
        return request_size(&request, m->element);
    case CL_IMAGE_ROW_PITCH:
        return request_size(&request, m->row_pitch);
    case CL_IMAGE_SLICE_PITCH:
        return request_size(&request, m->slice_pitch);
    case CL_IMAGE_WIDTH:
        return request_size(&request, m->dims[0]);
    case CL_IMAGE_HEIGHT:
        return request_size(&request, m->desc.image_height);
    case CL_IMAGE_DEPTH:
        return request_size(&request, m->desc.image_depth);
    case CL_IMAGE_ARRAY_SIZE:
        return request_size(&request, m->desc.image_array_size);
    case CL_IMAGE_BUFFER:
        return request_handle(
            &request, m->parent && m->parent->type == CL_MEM_OBJECT_BUFFER ? m->parent : NULL);
    case CL_IMAGE_NUM_MIP_LEVELS:
    case CL_IMAGE_NUM_SAMPLES:
        return request_uint(&request, 0);
    default:
        return CL_INVALID_VALUE;
    }
}
