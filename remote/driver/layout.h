#ifndef RESEAT_REMOTE_DRIVER_LAYOUT_H
#define RESEAT_REMOTE_DRIVER_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

/** How bytes lie in the program's memory: rows of slices. */
struct layout {
    size_t row, rows, slices; /**< Bytes of a row, and how many. */
    size_t row_pitch, slice_pitch;
};

/** Of a box of bytes with these pitches, 0: the least. */
static inline struct layout layout_of_box(const size_t region[3], size_t row, size_t slice)
{
    row = row ? row : region[0];
    return (struct layout){region[0], region[1], region[2], row, slice ? slice : row * region[1]};
}

/** Bytes of a layout, packed; false: it does not fit in 64 bits. */
bool layout_size(const struct layout *layout, size_t *ret_size);
bool layout_is_packed(const struct layout *layout);
/** Between packed bytes and the program's memory. */
void layout_gather(const struct layout *layout, void *packed, const void *memory);
void layout_scatter(const struct layout *layout, const void *packed, void *memory);
/** The same, but what is there already is not written. */
void layout_refresh(const struct layout *layout, const void *packed, void *memory);

#endif
