#ifndef RESEAT_STATE_DRIVER_DEVINFO_H
#define RESEAT_STATE_DRIVER_DEVINFO_H

#include <CL/cl_icd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "state/opencl/launch.h"

/*
 * What a device tells about itself, as bytes: all answers of clGetDeviceInfo that the headers
 * define (4.2 of the OpenCL 3.0 specification), and its image formats (5.3.2). One table has each
 * parameter's type and how the answers of several devices are combined.
 */

/** How the portable profile combines the answers of several devices. */
enum devinfo_rule {
    DEVINFO_MIN,      /**< Unsigned: the least (limits). */
    DEVINFO_MAX,      /**< Unsigned: the largest (alignments). */
    DEVINFO_MAX_ALL,  /**< Unsigned: the largest, or 0 (unsupported) where any says 0. */
    DEVINFO_AND,      /**< Bit-field or cl_bool: what all have. */
    DEVINFO_MEMORY,   /**< Unsigned: what the device with the most memory says. */
    DEVINFO_MIN_EACH, /**< Array of size_t: the least, element by element. */
    DEVINFO_NAMES,    /**< Space-separated names: those in all. */
    DEVINFO_VERSIONS, /**< cl_name_version array: names in all, with the least version. */
    DEVINFO_PAIRS,    /**< cl_name_version array where a name repeats: pairs of name and version in
                         all. */
    DEVINFO_FIRST,    /**< The first device's. */
    DEVINFO_OURS, /**< Never a device's own: present.c gives it (name, vendor, type, platform...).
                   */
    DEVINFO_PINS, /**< Not carried: as DEVINFO_NONE, but under --profile native the first device's.
                     Its use pins the program (pin.h). */
    DEVINFO_NONE, /**< Not carried between devices: answered as "unsupported" (SVM, pipes...). */
};

struct devinfo_param {
    cl_device_info name;
    const char *word; /**< "CL_DEVICE_MAX_WORK_GROUP_SIZE". */
    enum devinfo_rule rule;
    uint8_t size;   /**< Of one element: a scalar, a cl_name_version, a UUID; 0 for strings. */
    uint32_t since; /**< OpenCL version that has it, CL_MAKE_VERSION; 0: no version. */
    const char *extension; /**< Extension that defines it too, or alone; NULL: none. */
};

/** The table, sorted by name. */
extern const struct devinfo_param devinfo_params[];
extern const size_t devinfo_param_count;

/** Largest answer taken from a driver or a file. */
#define DEVINFO_VALUE_MAX (1u << 20)
/** Most image formats of one type. */
#define DEVINFO_FORMATS_MAX 4096

struct devinfo_value {
    cl_device_info name;
    uint32_t size;
    uint8_t *bytes; /**< Owned; a NUL that @size does not count follows. */
};

struct devinfo_formats {
    cl_mem_flags flags; /**< CL_MEM_READ_ONLY, _WRITE_ONLY, _READ_WRITE, _KERNEL_READ_AND_WRITE. */
    cl_mem_object_type type;
    uint32_t count;
    cl_image_format *formats;
};

struct devinfo {
    size_t value_count;
    struct devinfo_value
        *values; /**< Sorted by name; a parameter that the device refuses is absent. */
    size_t format_count;
    struct devinfo_formats *formats;
};

/** The row of a parameter, or NULL. Static. */
const struct devinfo_param *devinfo_param_find(cl_device_info name);

/**
 * Ask @device for everything in the table that its version or extensions have.
 *
 * Formats need a context, so they are asked apart. Blocks on the driver.
 * @ret_info  Owned by the caller (devinfo_finish).
 * Returns 0, -ENOMEM, or -EIO (the device does not even tell its version).
 */
MUST_CHECK int devinfo_query(const cl_icd_dispatch *cl, cl_device_id device,
                             struct devinfo *ret_info);

/**
 * Add the image formats of @device (5.3.2) to @info, in a context that is made and released here.
 *
 * A device without images has none. Blocks on the driver, for a GPU a quarter of a second.
 * Returns 0, -ENOMEM, or -EIO (no context); @info is then unchanged.
 */
MUST_CHECK int devinfo_query_formats(const cl_icd_dispatch *cl, cl_platform_id platform,
                                     cl_device_id device, struct devinfo *info);

/** Release what @info owns and leave it empty. */
void devinfo_finish(struct devinfo *info);

/** The bytes of one answer, or NULL. Borrowed. */
const struct devinfo_value *devinfo_find(const struct devinfo *info, cl_device_info name);
/** Of a list of names with versions: how many; 0 of NULL. */
size_t devinfo_list_count(const struct devinfo_value *list);
/** One of them. A copy, since answers are not aligned; its name always ends. */
cl_name_version devinfo_list_entry(const struct devinfo_value *list, size_t at);
/** A scalar answer of 1 to 8 bytes, or @fallback where the device gave none. */
uint64_t devinfo_scalar(const struct devinfo *info, cl_device_info name, uint64_t fallback);
/** A string answer, or "". Borrowed. */
const char *devinfo_string(const struct devinfo *info, cl_device_info name);
/** Both are of one name, vendor and driver version, so that their floats are equal to the last bit.
 */
bool devinfo_same_model(const struct devinfo *one, const struct devinfo *other);
/** True when the space-separated CL_DEVICE_EXTENSIONS has this name. */
bool devinfo_has_extension(const struct devinfo *info, const char *extension);
/** True when the space-separated @names has @name as a whole word. */
bool devinfo_names_have(const char *names, const char *name);
/** CL_DEVICE_VERSION as CL_MAKE_VERSION(major, minor, 0); 1.0 where it cannot be read. */
cl_version devinfo_version(const struct devinfo *info);
/** CL_DEVICE_OPENCL_C_VERSION, likewise. */
cl_version devinfo_c_version(const struct devinfo *info);
/** One of CL_DEVICE_MAX_WORK_ITEM_SIZES, or @fallback where the device does not say it. */
size_t devinfo_item_size(const struct devinfo *info, size_t dimension, size_t fallback);

/** The formats of images of that type and access; NULL: none. Borrowed. */
const struct devinfo_formats *devinfo_formats_of(const struct devinfo *info, cl_mem_flags access,
                                                 cl_mem_object_type type);
/** @list may be NULL. */
bool devinfo_formats_have(const struct devinfo_formats *list, const cl_image_format *format);

/** Missing answers mean no limit. Not atomic as a whole. */
void devinfo_group_limits(const struct devinfo *info, struct group_limits *ret_limits);

#endif
