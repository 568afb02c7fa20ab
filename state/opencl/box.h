#ifndef RESEAT_STATE_OPENCL_BOX_H
#define RESEAT_STATE_OPENCL_BOX_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Ranges and boxes of bytes in a buffer or in host memory, as clEnqueue…Buffer and …BufferRect take
 * them (OpenCL 3.0, 5.2.2). Pure.
 */

/** Bytes [begin, end) of an object. */
struct range {
    size_t begin, end;
};

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
/** From the first to the last byte of a box that box_init() takes. */
static inline struct range box_range(const size_t origin[3], const size_t region[3], size_t row,
                                     size_t slice)
{
    row = row ? row : region[0];
    slice = slice ? slice : row * region[1];
    size_t begin = origin[2] * slice + origin[1] * row + origin[0];
    return (struct range){begin,
                          begin + (region[2] - 1) * slice + (region[1] - 1) * row + region[0]};
}
/** Do two boxes of one buffer with the same pitches have a byte in common? */
bool box_overlaps(const struct box *a, const struct box *b, const size_t region[3]);

#endif
