#include "state/opencl/image_format.h"

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
