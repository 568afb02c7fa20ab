#ifndef RESEAT_INTERPOSE_CHECK_H
#define RESEAT_INTERPOSE_CHECK_H

#include "state/memory.h"

/*
 * What the specification asks of the parameters of an enqueue call, beyond their being valid
 * handles. It is asked here and not of the driver, so that a held command gives its error at the
 * call, and every driver the same one. check_<command> of calls_generated.h is defined here too.
 */

/** Bytes that the fill_color of clEnqueueFillImage points to for @image (5.3.3). */
size_t image_color_size(const struct memory *image);

/** CL_SUCCESS, or CL_INVALID_VALUE when origin and region do not lie in @image (5.3.3). */
cl_int check_image_region(const struct memory *image, const size_t origin[3],
                          const size_t region[3]);

/** CL_SUCCESS, or CL_INVALID_OPERATION when @memory's CL_MEM_HOST_* flags forbid it. */
cl_int check_host_reads(const struct memory *memory);
cl_int check_host_writes(const struct memory *memory);

#endif
