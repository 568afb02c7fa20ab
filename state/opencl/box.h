#ifndef RESEAT_STATE_OPENCL_BOX_H
#define RESEAT_STATE_OPENCL_BOX_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Ranges and boxes of bytes in a buffer or in host memory, as clEnqueue…Buffer and …BufferRect take
 * them (OpenCL 3.0, 5.2.2). Pure.
 */

/** True when [offset, offset + size) lies in @all bytes. */
bool range_fits(size_t offset, size_t size, size_t all);
/** @ret: a * b + c. False when it does not fit. */
bool multiply_add(size_t a, size_t b, size_t c, size_t *ret);

struct box {
    size_t row, slice; /**< Pitches. */
    size_t start, end;
};

/** False for a box that the specification refuses: no origin or region (NULL), an empty one, or
 *  pitches that do not fit it. A pitch of 0 stands for the least. */
bool box_init(struct box *box, const size_t origin[3], const size_t region[3], size_t row,
              size_t slice);
/** Do two boxes of one buffer with the same pitches have a byte in common? */
bool box_overlaps(const struct box *a, const struct box *b, const size_t region[3]);

#endif
