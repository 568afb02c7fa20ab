#ifndef RESEAT_STATE_OPENCL_IMAGE_FORMAT_H
#define RESEAT_STATE_OPENCL_IMAGE_FORMAT_H

#include <CL/cl.h>
#include <stddef.h>

/** Bytes per element of an image format (OpenCL 3.0, 5.3.1.1); 0 for an order and a type that do
 * not go together, or that we do not know. Pure. */
size_t image_element_size(const cl_image_format *format);

#endif
