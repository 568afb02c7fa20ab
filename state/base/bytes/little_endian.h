#ifndef RESEAT_STATE_BASE_BYTES_LITTLE_ENDIAN_H
#define RESEAT_STATE_BASE_BYTES_LITTLE_ENDIAN_H

#include <stdint.h>

/*
 * Numbers in files and hashes: the low @size bytes of @value, 8 at most, lowest first, on any
 * machine.
 */

static inline void little_endian_put(unsigned char *bytes, uint64_t value, unsigned size)
{
    for (unsigned i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
}

static inline uint64_t little_endian_get(const unsigned char *bytes, unsigned size)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < size; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

#endif
