#ifndef RESEAT_STATE_OPENCL_LAUNCH_H
#define RESEAT_STATE_OPENCL_LAUNCH_H

#include <CL/cl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Launches (5.8), and what the specification asks of their sizes, for the library and the remote
 * driver. Inline, because every launch of the program is checked. Pure.
 */

/** Limits of a work-group: those told to the program, or those of a device. */
struct group_limits {
    _Atomic size_t items;    /**< CL_DEVICE_MAX_WORK_GROUP_SIZE. */
    _Atomic size_t sizes[3]; /**< CL_DEVICE_MAX_WORK_ITEM_SIZES. */
};

/** The index space of a launch. */
struct launch_space {
    uint32_t dims;                         /**< 1 to 3. */
    const size_t *offset, *global, *local; /**< Borrowed. @offset may be NULL: zeroes. @local may be
                                              NULL: the driver chooses. */
    size_t items;                          /**< Work-items of a work-group; 0 without @local. */
    const struct group_limits
        *presented; /**< Limits that the program was told. Static; NULL: none. */
    bool uneven;    /**< The last work-groups are smaller than the others. */
};

/** Most work-groups have a power of two of work-items, which a mask tests without a slow division.
 */
static inline bool launch_divides(size_t global, size_t local)
{
    return (local & (local - 1)) == 0 ? (global & (local - 1)) == 0 : global % local == 0;
}

/** What clEnqueueNDRangeKernel checks the sizes against. */
struct launch_rules {
    const struct group_limits *limits;
    const size_t *required;    /**< The kernel's reqd_work_group_size, three; or NULL. */
    const cl_version *version; /**< Of the device; read where it matters, which is seldom. */
    size_t largest;            /**< No index may exceed it. */
};

/* Dimensions that the launch leaves out are 1. */
static inline bool launch_is_required(const struct launch_space *space, const size_t *required)
{
    for (cl_uint i = 0; i < 3; i++)
        if (required[i] != (space->local && i < space->dims ? space->local[i] : 1))
            return false;
    return space->local != NULL;
}

/**
 * Check the sizes of a launch (5.10). Whether its work-groups may be uneven is left to the caller.
 *
 * @space  Its `items` and `uneven` are set, and `local` where the kernel alone says what it is.
 * @ret_empty  It has no work-items: there is nothing to launch.
 */
static ALWAYS_INLINE cl_int check_launch(struct launch_space *space,
                                         const struct launch_rules *rules, bool *ret_empty)
{
    bool empty = space->global == NULL, too_large = false, too_far = false, uneven = false;
    size_t items = 1, end;
    if (UNLIKELY(space->dims < 1 || space->dims > 3))
        return CL_INVALID_WORK_DIMENSION;
    /* Up to 1.2 the program has to give it. Since 2.0 it may leave it out, and drivers do not agree
     * about what happens then. */
    if (UNLIKELY(rules->required != NULL) && !space->local &&
        *rules->version >= CL_MAKE_VERSION(2, 0, 0))
        space->local = rules->required;
    for (cl_uint i = 0; i < space->dims; i++) {
        size_t offset = space->offset ? space->offset[i] : 0;
        size_t global = space->global ? space->global[i] : 0;
        size_t local = space->local ? space->local[i] : 1;
        if (UNLIKELY(local == 0 || __builtin_mul_overflow(items, local, &items)))
            return CL_INVALID_WORK_GROUP_SIZE;
        if (UNLIKELY(local > atomic_load_explicit(&rules->limits->sizes[i], memory_order_relaxed)))
            return CL_INVALID_WORK_ITEM_SIZE;
        empty |= global == 0;
        too_large |= global > rules->largest;
        too_far |= __builtin_add_overflow(offset, global, &end) || end > rules->largest;
        uneven |= !launch_divides(global, local);
    }
    if (UNLIKELY(items > atomic_load_explicit(&rules->limits->items, memory_order_relaxed)))
        return CL_INVALID_WORK_GROUP_SIZE;
    space->items = space->local ? items : 0;
    space->uneven = uneven;
    *ret_empty = empty;
    /* A launch of no work-items is an error before OpenCL 2.1. */
    if (UNLIKELY(too_large || (empty && *rules->version < CL_MAKE_VERSION(2, 1, 0))))
        return CL_INVALID_GLOBAL_WORK_SIZE;
    if (UNLIKELY(empty))
        return CL_SUCCESS;
    if (UNLIKELY(too_far))
        return CL_INVALID_GLOBAL_OFFSET;
    return UNLIKELY(rules->required != NULL) && !launch_is_required(space, rules->required)
               ? CL_INVALID_WORK_GROUP_SIZE
               : CL_SUCCESS;
}

#endif
