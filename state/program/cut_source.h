#ifndef RESEAT_STATE_PROGRAM_CUT_SOURCE_H
#define RESEAT_STATE_PROGRAM_CUT_SOURCE_H

#include <stddef.h>
#include <stdint.h>

/* How a piece of a launch is told where in the launch it is: program_cut.h. */

/** Launches with sizes or offsets from here on do not fit into the word. */
#define CUT_SIZE_MAX ((size_t)1 << 28)

/**
 * The offset of the third dimension, of a launch that is cut along @dim (0, or 1 of 2 or 3).
 * @value  Of one dimension: its offset. Else its size along @dim, where the offset is 0.
 */
static inline size_t cut_word(uint32_t dims, uint32_t dim, size_t value)
{
    return value << 3 | dims << 1 | dim;
}

/** The text in front of a program's source. An option that defines a word of it changes what it
 * says.
 */
extern const char cut_source[];

#endif
