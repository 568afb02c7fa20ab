#ifndef RESEAT_STATE_OPENCL_IMAGE_H
#define RESEAT_STATE_OPENCL_IMAGE_H

#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>

#include "state/opencl/box.h"

/** Bytes per element of an image format (OpenCL 3.0, 5.3.1.1); 0 for an order and a type that do
 * not go together, or that we do not know. Pure. */
size_t image_element_size(const cl_image_format *format);

/** How an image lies in host memory. */
struct image_shape {
    cl_image_format format;
    cl_image_desc desc; /**< Normalised: pitches filled in, mem_object is the virtual buffer. */
    size_t element_size;
    size_t dims[3]; /**< Extent as origin/region count it; arrays use the layer's axis. */
    size_t row_pitch, slice_pitch; /**< Of the host copy; of the program's pointer if it gave one.
                                        A 1D array's are the same: the distance of its layers. */
    size_t size;                   /**< Bytes of the host copy. */
};

/** Bytes of a row and slice in the host copy, and elements, of one image. */
void image_shape_init(struct image_shape *shape, const cl_image_format *format,
                      const cl_image_desc *desc, size_t element_size);
/** From the first to the last byte of a region. */
struct range image_range(const struct image_shape *shape, const size_t origin[3],
                         const size_t region[3]);
/** As many bytes as a region has, packed, from @offset of a buffer on. */
struct range image_packed_range(const struct image_shape *shape, const size_t region[3],
                                size_t offset);
/** 5.3.3: pitches of the host memory that a region is read into or written from, which together is
 * no larger than an address space. */
bool image_pitches_fit(const struct image_shape *shape, const size_t region[3], size_t row,
                       size_t slice);
/** The distances, in that host memory, of what dims[1] and dims[2] count. A pitch of 0 stands for
 * the least. */
struct image_pitches {
    size_t row, slice;
};
struct image_pitches image_host_pitches(const struct image_shape *shape, const size_t region[3],
                                        size_t row, size_t slice);
/** From the first to the last byte of a region in that host memory, counted from its first. */
struct range image_host_range(const struct image_shape *shape, const size_t region[3], size_t row,
                              size_t slice);
/** The slice pitch that calls take for it: 0 where an image has no slices (5.3.3). */
size_t image_slice_argument(const struct image_shape *shape);
/** The row pitch that the program is told: of a 1D array not the distance of its layers. */
size_t image_row_answer(const struct image_shape *shape);
/** What clGetImageInfo answers (5.3.6) for CL_IMAGE_HEIGHT, _DEPTH or _ARRAY_SIZE: 0 where images
 * of this type have no such extent. */
size_t image_extent(const struct image_shape *shape, cl_image_info name);
/** Bytes of the color that clEnqueueFillImage takes (5.3.3). */
size_t image_color_size(const struct image_shape *shape);
/** 5.3.1.3: pitches that fit the extents, and the object that the image is made from, if any: a
 * buffer of so many bytes, or an image. */
bool image_desc_valid(const cl_image_desc *desc, size_t element_size, const void *host_ptr,
                      size_t buffer_size, const struct image_shape *source);

#endif
