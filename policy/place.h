#ifndef RESEAT_POLICY_PLACE_H
#define RESEAT_POLICY_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The device on which a new program starts if none was named. Pure: no I/O, no clock, no globals,
 * libc only.
 */

/** In the order of preference. */
enum place_kind { PLACE_GPU, PLACE_ACCELERATOR, PLACE_CPU, PLACE_OTHER };

struct place_device {
    const char *name; /**< For the reason. Borrowed. */
    enum place_kind kind;
    uint64_t memory_total; /**< Bytes; 0: not known, counts as full. */
    uint64_t memory_used;  /**< Bytes, by all programs. */
    bool closed;           /**< Takes no new program. */
    bool small;            /**< Has no room for what the program needed in former runs. */
};

/**
 * Choose an open device: of those that are not small, if there are any, and of those of the kind
 * that comes first in the order. Among these the one with the smallest share of its memory in use,
 * then the first listed. The same input always gives the same choice.
 *
 * @ret_device  Index in @devices.
 * @ret_reason  At least 256 bytes: one line that says why, or why none. Longer lines are cut.
 * Returns 0, or -ENODEV when no device is open; @ret_device is then untouched.
 */
int place_choose(const struct place_device *devices, size_t count, size_t *ret_device,
                 char *ret_reason, size_t reason_size);

/**
 * The same for a further virtual device of a program: its virtual devices spread evenly over the
 * devices of the first kind, and the share of memory decides only between equals.
 *
 * @taken  Number of the program's virtual devices that start on each of @devices.
 * Returns 0 or -ENODEV, as place_choose.
 */
int place_spread(const struct place_device *devices, const unsigned *taken, size_t count,
                 size_t *ret_device);

#endif
