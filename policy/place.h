#ifndef RESEAT_POLICY_PLACE_H
#define RESEAT_POLICY_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Where a new program starts when nobody says. Pure: no I/O, no clock, no globals, libc only.
 */

/** In the order of preference. */
enum place_kind { PLACE_GPU, PLACE_ACCELERATOR, PLACE_CPU, PLACE_OTHER };

struct place_device {
    const char *name; /**< For the reason. Borrowed. */
    enum place_kind kind;
    uint64_t memory_total; /**< Bytes; 0: not known, counts as full. */
    uint64_t memory_used;  /**< Bytes, by all programs. */
    bool closed;           /**< Takes no new program. */
};

/**
 * Choose the kind that comes first, in it the device with the smallest share of its memory in use,
 * and of equals the first listed, so that the same snapshot always gives the same choice.
 *
 * @ret_device  Place in @devices.
 * @ret_reason  At least 256 bytes: one line that says why, or why none. Longer lines are cut.
 * Returns 0, or -ENODEV when no device is open; @ret_device is then untouched.
 */
int place_choose(const struct place_device *devices, size_t count, size_t *ret_device,
                 char *ret_reason, size_t reason_size);

/**
 * The same for one more virtual device of a program that has others: they spread over the devices
 * of the kind that comes first, evenly, and only then the share of memory decides.
 *
 * @taken  How many of the program's virtual devices start on each of @devices.
 * Returns 0 or -ENODEV, as place_choose.
 */
int place_spread(const struct place_device *devices, const unsigned *taken, size_t count,
                 size_t *ret_device);

#endif
