#ifndef RESEAT_STATE_BASE_ARRAY_H
#define RESEAT_STATE_BASE_ARRAY_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/compiler.h"

#define ARRAY_LEAST 8 /* A power of two. */

static inline size_t size_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/**
 * Make room for one more element behind the first @count of an array that grows by doubling.
 *
 * @array_pointer  Address of the array's pointer, which is NULL before the first element; free()
 *                 the array. Call this before each element is added; elements may be removed
 *                 freely.
 * Returns false without memory; the array is then unchanged.
 */
MUST_CHECK static inline bool array_make_room(void *array_pointer, size_t count, size_t size)
{
    void *array;
    if (count != 0 && (count < ARRAY_LEAST || (count & (count - 1)) != 0))
        return true;
    memcpy(&array, array_pointer, sizeof(array));
    array = reallocarray(array, count ? 2 * count : ARRAY_LEAST, size);
    if (!array)
        return false;
    memcpy(array_pointer, &array, sizeof(array));
    return true;
}

/**
 * Allocate an array of @count zeroed elements unless that has been done before; free() it.
 *
 * @array_pointer  Address of the array's pointer, which is NULL before.
 * Returns false without memory.
 */
MUST_CHECK static inline bool array_allot(void *array_pointer, size_t count, size_t size)
{
    void *array;
    memcpy(&array, array_pointer, sizeof(array));
    if (!array)
        array = calloc(count, size);
    memcpy(array_pointer, &array, sizeof(array));
    return array != NULL;
}

#endif
