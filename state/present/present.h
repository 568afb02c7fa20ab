#ifndef RESEAT_STATE_PRESENT_PRESENT_H
#define RESEAT_STATE_PRESENT_PRESENT_H

#include "state/driver/devinfo.h"
#include "state/present/reasons.h"

/*
 * What the program is told about its device and platform. Built once, then constant for the
 * program's life, wherever it moves. Read without locks.
 */

enum present_profile {
    /** What every device offers, under the name of a virtual device, but with the memory of the
     * largest one. */
    PRESENT_PORTABLE,
    /** The same, but with the memory that every device has. */
    PRESENT_COMMON,
    /** The first device's own answers, except what cannot be carried. */
    PRESENT_NATIVE,
};

/** Settings given when the program is started. */
struct present_terms {
    enum present_profile profile;
    cl_device_type type; /**< Reported as CL_DEVICE_TYPE; 0: the first device's own. */
    uint64_t memory; /**< Bytes of device memory to present; PRESENT_PORTABLE only. 0: that of the
                        largest device. */
    /** The program's drivers are in other processes, where its addresses mean nothing: features
     * that would pin the program are not offered, whatever the profile. */
    bool isolated;
};

struct present {
    struct devinfo device;   /**< Answers of clGetDeviceInfo, and image formats. */
    struct devinfo platform; /**< Answers of clGetPlatformInfo. */
    cl_version version;      /**< Version of both, as CL_MAKE_VERSION. */
    char *prologue;          /**< Text put before every source: see proposal_prologue. */
};

/**
 * Decide the answers.
 *
 * OpenCL 2.x is presented as 1.2, because it requires shared virtual memory, pipes and device
 * queues, which cannot be carried; only 3.0 makes them optional. A 3.0 that does not answer some
 * query of 3.0 is presented as 1.2 as well. Devices older than 1.2, which cannot be a move's
 * target, are ignored, except for the first device.
 *
 * Memory is an exception: what does not fit on the present device makes the program move, wait or
 * spill. The largest object is that of the device with the most memory; with memory given in
 * @terms, at least what OpenCL requires for so much (4.2).
 *
 * @devices  Answers of each device, image formats included (a device without formats is taken to
 *           have no images); [0] is the one that the program starts on. Borrowed.
 * @terms    Borrowed.
 * @ret      Owned by the caller (present_finish).
 * Returns 0, -EINVAL (no device) or -ENOMEM. Pure.
 */
MUST_CHECK int present_build(const struct devinfo *const *devices, size_t count,
                             const struct present_terms *terms, struct present *ret);
/**
 * The same, with the reason for each answer.
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
/** 5.3.1: the format of an image has to be one that is offered for its type and flags. */
cl_int present_check_format(const struct present *present, cl_mem_flags flags,
                            cl_mem_object_type type, const cl_image_format *format);

#endif
