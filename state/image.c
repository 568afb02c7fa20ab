#include "state/memory.h"

static size_t channels_of(cl_channel_order order)
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
    size_t channels = channels_of(format->image_channel_order);
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
        return 2;
    case CL_UNORM_INT_101010:
    case CL_UNORM_INT_101010_2:
    case CL_UNORM_INT24:
        return 4;
    default:
        return 0;
    }
}

static size_t at_least_one(size_t n)
{
    return n ? n : 1;
}

void image_shape_init(struct image_shape *shape, const cl_image_format *format,
                      const cl_image_desc *desc, size_t element_size)
{
    shape->format = *format;
    shape->desc = *desc;
    shape->element_size = element_size;
    shape->dims[0] = at_least_one(desc->image_width);
    shape->dims[1] = shape->dims[2] = 1;
    switch (desc->image_type) {
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
        shape->dims[1] = at_least_one(desc->image_array_size);
        break;
    case CL_MEM_OBJECT_IMAGE2D:
        shape->dims[1] = at_least_one(desc->image_height);
        break;
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
        shape->dims[1] = at_least_one(desc->image_height);
        shape->dims[2] = at_least_one(desc->image_array_size);
        break;
    case CL_MEM_OBJECT_IMAGE3D:
        shape->dims[1] = at_least_one(desc->image_height);
        shape->dims[2] = at_least_one(desc->image_depth);
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
        shape->slice_pitch = desc->image_slice_pitch ? desc->image_slice_pitch : slice;
        shape->size = shape->slice_pitch * shape->dims[2];
    }
}

size_t image_slice_argument(const struct image_shape *shape)
{
    switch (shape->desc.image_type) {
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
    case CL_MEM_OBJECT_IMAGE3D:
        return shape->slice_pitch;
    default:
        return 0;
    }
}
