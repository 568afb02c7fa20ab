#ifndef RESEAT_STATE_PRESENT_PRESENT_H
#define RESEAT_STATE_PRESENT_PRESENT_H

#include "state/driver/devinfo.h"
#include "state/present/reasons.h"

/*
 * What the program is told about its device and platform. Built once, then constant: the answers
 * never change during the program's life, wherever it moves. Reading is free of locks.
 */

enum present_profile {
    /** What every device offers, under a virtual device's name; and the most memory of any. */
    PRESENT_PORTABLE,
    /** The same, but for memory: what every device has. */
    PRESENT_COMMON,
    /** The first device's own, less what cannot be carried. */
    PRESENT_NATIVE,
};

/** What whoever starts the program may say. */
struct present_terms {
    enum present_profile profile;
    cl_device_type type; /**< Reported as CL_DEVICE_TYPE; 0: the first device's own. */
    uint64_t memory;     /**< Bytes of device memory; PRESENT_PORTABLE only. 0: the most of any. */
    /** Its drivers are in other processes, where none of its addresses mean anything: what pins a
     * program is not there, whatever the profile. */
    bool isolated;
};

struct present {
    struct devinfo device;   /**< Answers of clGetDeviceInfo, and image formats. */
    struct devinfo platform; /**< Answers of clGetPlatformInfo. */
    cl_version version;      /**< Of both, as CL_MAKE_VERSION. */
    char *prologue;          /**< Goes before every source: see proposal_prologue. */
};

/**
 * Decide the answers.
 *
 * OpenCL 2.x is presented as 1.2: it requires shared virtual memory, pipes and device queues, which
 * are not carried, and only 3.0 lets a device leave them out. So is a 3.0 that leaves a query
 * of 3.0 without an answer. Devices before 1.2, which nothing moves to, take no part, but for the
 * first.
 *
 * Memory is the exception to what every device offers: what does not fit where the program is makes
 * it move, or wait, or spill. An object is as large as the device with the most memory takes it; of
 * memory that the terms name, at least what OpenCL requires of so much (4.2).
 *
 * @devices  What each device says of itself, image formats included (a device without them is
 *           taken to have no images); [0] is the one that the program starts on. Borrowed.
 * @terms    Borrowed.
 * @ret      Owned by the caller (present_finish).
 * Returns 0, -EINVAL (no device) or -ENOMEM. Pure.
 */
MUST_CHECK int present_build(const struct devinfo *const *devices, size_t count,
                             const struct present_terms *terms, struct present *ret);
/**
 * The same, and why each answer is what it is.
 *
 * @ret_reasons  Of the devices in the order of @devices; owned by the caller (reasons_finish).
 * NULL: nobody asks.
 */
MUST_CHECK int present_explain(const struct devinfo *const *devices, size_t count,
                               const struct present_terms *terms, struct present *ret,
                               struct reasons *ret_reasons);
void present_finish(struct present *present);

/**
 * clGetDeviceInfo (4.2). Answers that are handles or counts (CL_DEVICE_PLATFORM, PARENT_DEVICE,
 * REFERENCE_COUNT) belong to the entry point and give CL_INVALID_VALUE here, as do parameters that
 * the presented version and extensions do not have.
 */
cl_int present_device_info(const struct present *present, cl_device_info name,
                           size_t param_value_size, void *param_value, size_t *ret_size);
/** clGetPlatformInfo (4.1). */
cl_int present_platform_info(const struct present *present, cl_platform_info name,
                             size_t param_value_size, void *param_value, size_t *ret_size);
/** clGetSupportedImageFormats (5.3.2.1). */
cl_int present_image_formats(const struct present *present, cl_mem_flags flags,
                             cl_mem_object_type type, cl_uint num_entries,
                             cl_image_format *image_formats, cl_uint *ret_count);

#endif
