#ifndef RESEAT_POLICY_PLAN_H
#define RESEAT_POLICY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * PLAN of a move: whether a device can run a program, by comparing what the program has used so far
 * with what the device offers. Pure: no I/O, no clock, no globals, libc only.
 */

/** What a program has used: high-water marks since it started. Zero means never used. */
struct plan_use {
    uint64_t work_group_size;    /**< Work-items, the largest local size launched. */
    uint64_t work_item_sizes[3]; /**< Per dimension, the largest local size launched. */
    uint32_t work_dimensions;
    uint32_t compute_units;    /**< Only if the program asks for a number; use does not raise it. */
    uint64_t local_memory;     /**< Bytes, static and dynamic of the largest launch. */
    uint64_t largest_object;   /**< Bytes, of live objects. */
    uint64_t device_memory;    /**< Bytes, of all live objects together. */
    uint64_t parameter_size;   /**< Bytes, of the largest kernel's arguments. */
    uint64_t origin_alignment; /**< Bits: the strictest alignment that every sub-buffer's origin
                                  keeps to; 0 without sub-buffers. */
    bool images;
    uint64_t image2d[2], image3d[3], image_buffer, image_array; /**< Pixels, and layers. */
    uint32_t read_images, write_images, samplers;               /**< The most in one kernel. */
    bool fp64, fp16, int64_atomics, il, non_uniform, subgroups;
    const char *const *extensions; /**< Names that program sources enable; borrowed. */
    size_t extension_count;
    uint32_t c_version;    /**< -cl-std asked for, as CL_MAKE_VERSION; 0: none. */
    uint32_t address_bits; /**< Of pointers in kernels; must be equal. 0: not known. */
    bool stated;           /**< The fields say what the program asks for, not what it has used. */
    const struct plan_offer *served; /**< The device it has run on, or NULL. Values above this
                                        device's offer count as not needed. Borrowed. */
};

/** What a device offers, in the same units. limits.served is NULL. */
struct plan_offer {
    struct plan_use limits;    /**< The largest values it can serve. */
    uint64_t memory_available; /**< Bytes that the policy grants this program there. */
    const char *extensions;    /**< CL_DEVICE_EXTENSIONS; NULL is none. Borrowed. */
    const char *name;          /**< For the reason. Borrowed. */
};

/**
 * Returns true if @offer meets @use. Otherwise writes one line that names the limit, the value used
 * and the value offered.
 *
 * @ret_reason  At least 256 bytes; untouched on success. Longer lines are cut.
 */
bool plan_fits(const struct plan_use *use, const struct plan_offer *offer, char *ret_reason,
               size_t reason_size);

#endif
