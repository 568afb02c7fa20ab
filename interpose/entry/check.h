#ifndef RESEAT_INTERPOSE_ENTRY_CHECK_H
#define RESEAT_INTERPOSE_ENTRY_CHECK_H

#include "state/memory/memory.h"

/*
 * What the specification asks of the parameters of an enqueue call, beyond their being valid
 * handles. It is asked here and not of the driver, so that a deferred command gives its error at
 * the call, and every driver the same one. check_<command> of calls_generated.h is defined here
 * too.
 */

/** Bytes that the fill_color of clEnqueueFillImage points to for @image (5.3.3). */
size_t image_color_size(const struct memory *image);

#endif
