#include "state/opencl/image.h"

static size_t image_format_channels(cl_channel_order order)
{
    switch (order) {
    case CL_R:
    case CL_A:
    case CL_INTENSITY:
    case CL_LUMINANCE:
    case CL_DEPTH:
    case CL_Rx:
    case CL_DEPTH_STENCIL:
        return 1;
    case CL_RG:
    case CL_RA:
    case CL_RGx:
        return 2;
    case CL_RGB:
    case CL_RGBx:
    case CL_sRGB:
        return 3;
    case CL_RGBA:
    case CL_BGRA:
    case CL_ARGB:
    case CL_ABGR:
    case CL_sRGBx:
    case CL_sRGBA:
    case CL_sBGRA:
        return 4;
    default:
        return 0;
    }
}

size_t image_element_size(const cl_image_format *format)
{
    size_t channels = image_format_channels(format->image_channel_order);
    switch (format->image_channel_data_type) {
    case CL_SNORM_INT8:
    case CL_UNORM_INT8:
    case CL_SIGNED_INT8:
    case CL_UNSIGNED_INT8:
        return channels;
    case CL_SNORM_INT16:
    case CL_UNORM_INT16:
    case CL_SIGNED_INT16:
    case CL_UNSIGNED_INT16:
    case CL_HALF_FLOAT:
        return 2 * channels;
    case CL_SIGNED_INT32:
    case CL_UNSIGNED_INT32:
    case CL_FLOAT:
        return 4 * channels;
    case CL_UNORM_SHORT_565: /* packed: the whole pixel */
    case CL_UNORM_SHORT_555:
        return channels == 3 ? 2 : 0;
    case CL_UNORM_INT_101010:
        return channels == 3 ? 4 : 0;
    case CL_UNORM_INT_101010_2:
        return channels == 4 ? 4 : 0;
    case CL_UNORM_INT24:
        return channels == 1 ? 4 : 0;
    default:
        return 0;
    }
}

static size_t image_shape_at_least_one(size_t n)
{
    return n ? n : 1;
}

static bool image_shape_is_layered(cl_mem_object_type type)
{
    return type == CL_MEM_OBJECT_IMAGE1D_ARRAY || type == CL_MEM_OBJECT_IMAGE2D_ARRAY ||
           type == CL_MEM_OBJECT_IMAGE3D;
}

/* Rows in a slice: a 1D array's slices are its rows. */
static size_t image_shape_slice_rows(const cl_image_desc *desc)
{
    return desc->image_type == CL_MEM_OBJECT_IMAGE2D_ARRAY ||
                   desc->image_type == CL_MEM_OBJECT_IMAGE3D
               ? image_shape_at_least_one(desc->image_height)
               : 1;
}

/* @pitch is at least @least and a whole number of @units; 0 stands for @least. */
static bool image_shape_pitch_fits(size_t pitch, size_t least, size_t unit)
{
    return pitch == 0 || (pitch >= least && pitch % unit == 0);
}

/* The pitches of the program's host memory. */
static bool image_shape_host_pitches_fit(const cl_image_desc *desc, size_t element_size)
{
    size_t row = desc->image_width * element_size, slice, bytes;
    if (!image_shape_pitch_fits(desc->image_row_pitch, row, element_size))
        return false;
    row = desc->image_row_pitch ? desc->image_row_pitch : row;
    size_t layers =
        desc->image_type == CL_MEM_OBJECT_IMAGE3D ? desc->image_depth : desc->image_array_size;
    if (!image_shape_is_layered(desc->image_type))
        return !__builtin_mul_overflow(row, image_shape_at_least_one(desc->image_height), &bytes);
    if (__builtin_mul_overflow(row, image_shape_slice_rows(desc), &slice) ||
        !image_shape_pitch_fits(desc->image_slice_pitch, slice, row))
        return false;
    slice = desc->image_slice_pitch ? desc->image_slice_pitch : slice;
    return !__builtin_mul_overflow(slice, image_shape_at_least_one(layers), &bytes);
}

/* The buffer has the image's bytes. */
static bool image_shape_buffer_fits(const cl_image_desc *desc, size_t element_size, size_t size)
{
    size_t row = desc->image_width * element_size, bytes;
    if (desc->image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER)
        return desc->image_row_pitch == 0 && row <= size;
    if (!image_shape_pitch_fits(desc->image_row_pitch, row, element_size))
        return false;
    row = desc->image_row_pitch ? desc->image_row_pitch : row;
    return !__builtin_mul_overflow(row, desc->image_height, &bytes) && bytes <= size;
}

bool image_desc_valid(const cl_image_desc *desc, size_t element_size, const void *host_ptr,
                      size_t buffer_size, const struct image_shape *source)
{
    if (buffer_size)
        return desc->image_slice_pitch == 0 &&
               image_shape_buffer_fits(desc, element_size, buffer_size);
    if (source &&
        (source->desc.image_type != CL_MEM_OBJECT_IMAGE2D ||
         desc->image_type != CL_MEM_OBJECT_IMAGE2D ||
         desc->image_width != source->desc.image_width ||
         desc->image_height != source->desc.image_height || element_size != source->element_size))
        return false;
    return host_ptr ? image_shape_host_pitches_fit(desc, element_size)
                    : desc->image_row_pitch == 0 && desc->image_slice_pitch == 0;
}

void image_shape_init(struct image_shape *shape, const cl_image_format *format,
                      const cl_image_desc *desc, size_t element_size)
{
    shape->format = *format;
    shape->desc = *desc;
    shape->element_size = element_size;
    shape->dims[0] = image_shape_at_least_one(desc->image_width);
    shape->dims[1] = shape->dims[2] = 1;
    switch (desc->image_type) {
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
        shape->dims[1] = image_shape_at_least_one(desc->image_array_size);
        break;
    case CL_MEM_OBJECT_IMAGE2D:
        shape->dims[1] = image_shape_at_least_one(desc->image_height);
        break;
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
        shape->dims[1] = image_shape_at_least_one(desc->image_height);
        shape->dims[2] = image_shape_at_least_one(desc->image_array_size);
        break;
    case CL_MEM_OBJECT_IMAGE3D:
        shape->dims[1] = image_shape_at_least_one(desc->image_height);
        shape->dims[2] = image_shape_at_least_one(desc->image_depth);
        break;
    default:
        break;
    }
    size_t row = shape->dims[0] * element_size;
    shape->row_pitch = desc->image_row_pitch ? desc->image_row_pitch : row;
    if (desc->image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY) {
        /* Its slices are its rows (5.3.1.3), counted on axis 1. */
        shape->slice_pitch = desc->image_slice_pitch ? desc->image_slice_pitch : shape->row_pitch;
        shape->row_pitch = shape->slice_pitch;
        shape->size = shape->slice_pitch * shape->dims[1];
    } else {
        size_t slice = shape->row_pitch * shape->dims[1];
        bool given = image_shape_is_layered(desc->image_type) && desc->image_slice_pitch;
        shape->slice_pitch = given ? desc->image_slice_pitch : slice;
        shape->size = shape->slice_pitch * shape->dims[2];
    }
}

struct range image_range(const struct image_shape *shape, const size_t origin[3],
                         const size_t region[3])
{
    size_t begin = origin[2] * shape->slice_pitch + origin[1] * shape->row_pitch +
                   origin[0] * shape->element_size;
    return (struct range){begin, begin + (region[2] - 1) * shape->slice_pitch +
                                     (region[1] - 1) * shape->row_pitch +
                                     region[0] * shape->element_size};
}

size_t image_slice_argument(const struct image_shape *shape)
{
    return image_shape_is_layered(shape->desc.image_type) ? shape->slice_pitch : 0;
}

size_t image_row_answer(const struct image_shape *shape)
{
    if (shape->desc.image_type != CL_MEM_OBJECT_IMAGE1D_ARRAY)
        return shape->row_pitch;
    return shape->desc.image_row_pitch ? shape->desc.image_row_pitch
                                       : shape->dims[0] * shape->element_size;
}

struct range image_packed_range(const struct image_shape *shape, const size_t region[3],
                                size_t offset)
{
    return (struct range){offset, offset + shape->element_size * region[0] * region[1] * region[2]};
}

struct image_pitches image_host_pitches(const struct image_shape *shape, const size_t region[3],
                                        size_t row, size_t slice)
{
    row = row ? row : region[0] * shape->element_size;
    /* The layers of a 1D array are a slice pitch apart, and dims[1] counts them. */
    if (shape->desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY && slice)
        row = slice;
    return (struct image_pitches){row, slice ? slice : row * region[1]};
}

bool image_pitches_fit(const struct image_shape *shape, const size_t region[3], size_t row,
                       size_t slice)
{
    size_t width = region[0] * shape->element_size, bytes;
    if (row != 0 && row < width)
        return false;
    row = row != 0 ? row : width;
    switch (shape->desc.image_type) {
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
    case CL_MEM_OBJECT_IMAGE3D:
        if (slice != 0 && (!multiply_add(row, region[1], 0, &bytes) || slice < bytes))
            return false;
        break;
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
        if (slice != 0 && slice < row)
            return false;
        break;
    default:
        if (slice != 0)
            return false;
    }
    struct image_pitches pitches = image_host_pitches(shape, region, row, slice);
    return multiply_add(pitches.row, region[1], 0, &bytes) &&
           multiply_add(pitches.slice, region[2], 0, &bytes);
}

struct range image_host_range(const struct image_shape *shape, const size_t region[3], size_t row,
                              size_t slice)
{
    struct image_pitches pitches = image_host_pitches(shape, region, row, slice);
    return (struct range){0, (region[2] - 1) * pitches.slice + (region[1] - 1) * pitches.row +
                                 region[0] * shape->element_size};
}

size_t image_extent(const struct image_shape *shape, cl_image_info name)
{
    switch (shape->desc.image_type) {
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
        return name == CL_IMAGE_ARRAY_SIZE ? shape->dims[1] : 0;
    case CL_MEM_OBJECT_IMAGE2D:
        return name == CL_IMAGE_HEIGHT ? shape->dims[1] : 0;
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
        return name == CL_IMAGE_HEIGHT       ? shape->dims[1]
               : name == CL_IMAGE_ARRAY_SIZE ? shape->dims[2]
                                             : 0;
    case CL_MEM_OBJECT_IMAGE3D:
        return name == CL_IMAGE_HEIGHT  ? shape->dims[1]
               : name == CL_IMAGE_DEPTH ? shape->dims[2]
                                        : 0;
    default:
        return 0;
    }
}

size_t image_color_size(const struct image_shape *shape)
{
    return shape->format.image_channel_order == CL_DEPTH ? sizeof(cl_float) : sizeof(cl_float4);
}
