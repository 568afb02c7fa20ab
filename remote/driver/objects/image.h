#ifndef RESEAT_REMOTE_DRIVER_OBJECTS_IMAGE_H
#define RESEAT_REMOTE_DRIVER_OBJECTS_IMAGE_H

#include "remote/driver/objects/objects.h"

/** What memory objects of all kinds have in common (memory.c). */
cl_int memory_check_flags(cl_mem_flags flags);
cl_int memory_take_list(const cl_mem_properties *properties);
struct memory *memory_create(struct context *context, cl_mem_object_type type, cl_mem_flags flags,
                             struct memory *parent);

/** Does a region lie in an image, and not be empty (5.3.3)? */
bool image_has(const struct memory *image, const size_t origin[3], const size_t region[3]);
/** How a region of an image lies in host memory with these pitches, 0: packed. False: they do not
 *  fit it (5.3.3). */
bool image_layout(const struct memory *image, const size_t region[3], size_t row_pitch,
                  size_t slice_pitch, struct layout *ret_layout);

#endif
