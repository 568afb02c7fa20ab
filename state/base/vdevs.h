#ifndef RESEAT_STATE_BASE_VDEVS_H
#define RESEAT_STATE_BASE_VDEVS_H

#include <stdint.h>

/** Virtual devices of a program, at most: as many as a mask of them has bits. */
#define VDEVS 32

/** The mask of the first @count. */
static inline uint32_t vdevs_mask(uint32_t count)
{
    return (uint32_t)((UINT64_C(1) << count) - 1);
}

#endif
