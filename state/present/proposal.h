#ifndef RESEAT_STATE_PRESENT_PROPOSAL_H
#define RESEAT_STATE_PRESENT_PROPOSAL_H

#include <stdbool.h>
#include <stddef.h>

#include "state/driver/devinfo.h"
#include "state/present/reasons.h"

/*
 * The extensions and features, beyond the core, that a program can keep when it moves between
 * devices. This is a list of what is allowed: an extension that nobody has examined is not offered.
 */

/** Room for the list. */
#define CARRIED_MAX 96

/** Extensions, then features of OpenCL C 3.0 (the __opencl_c_ macros). */
extern const char *const carried_names[];
extern const size_t carried_count;

static inline enum reason_kind carried_kind(const char *name)
{
    return name[0] == '_' ? REASON_FEATURE : REASON_EXTENSION;
}

/** Why a name that is not in the list is left out. Static. */
const char *carried_refusal(const char *name);

/** Index of a name in the list, or -1. */
int carried_find(const char *name);

/* Builds a struct devinfo of our own, answer by answer; devinfo_find and the other readers read it.
 */

/** Set or replace one answer; @bytes are copied. Returns 0 or -ENOMEM. */
MUST_CHECK int reply_set(struct devinfo *info, cl_device_info name, const void *bytes, size_t size);
/** The same for a string, with its NUL. */
MUST_CHECK int reply_set_string(struct devinfo *info, cl_device_info name, const char *text);
/** The same for an unsigned number of @size bytes, 4 or 8. */
MUST_CHECK int reply_set_scalar(struct devinfo *info, cl_device_info name, uint64_t value,
                                size_t size);

/** Change a scalar answer in place, keeping its size; does nothing where there is none. */
void reply_change(struct devinfo *info, cl_device_info name, uint64_t value);
/** Keep the first @size bytes of an answer that has more. */
void reply_shorten(struct devinfo *info, cl_device_info name, size_t size);
/** Remove one answer. */
void reply_drop(struct devinfo *info, cl_device_info name);

/* Combines the answers of several devices into what all of them offer. Pure. */

/** The devices, and the results. All borrowed. */
struct common {
    const struct devinfo *const *devices;
    size_t count;
    bool least_memory; /**< DEVINFO_MEMORY parameters are the least of all. */
    struct devinfo *answers;
    struct reasons *reasons; /**< Or NULL. */
};

/** True when the device gives this parameter an answer that its row in the table allows. */
bool common_answers(const struct devinfo *device, const struct devinfo_param *param);

/**
 * Combine the answers to one parameter, as its row in the table says.
 *
 * An ability that some device does not mention counts as missing. Any other parameter that some
 * device does not answer, or answers in another size, is left out, and so are those of kind
 * DEVINFO_OURS. DEVINFO_NONE and DEVINFO_PINS give zero, "" or an empty list. Returns 0 or -ENOMEM.
 */
MUST_CHECK int common_param(const struct common *common, const struct devinfo_param *param);

/** Combine image formats: for each access and type, the first device's formats that all devices
 * have. */
MUST_CHECK int common_formats(const struct common *common);

/**
 * The least version of @name in the cl_name_version lists that have it.
 *
 * @ret_in_all  False when some list lacks it or is absent.
 * Returns 0 when no list has it.
 */
cl_version common_name_version(const struct common *common, cl_device_info list, const char *name,
                               bool *ret_in_all);

/** True when all devices have this extension or feature; notes which have not. */
bool common_name(const struct common *common, const char *name);

/* The state of present_build: combined answers, which may still contradict each other. */
struct proposal {
    struct common common;    /**< Combines into `answers`. */
    bool native;             /**< The native profile... */
    bool pins;               /**< ...including features that pin a program. */
    uint64_t memory;         /**< Bytes of device memory to present; 0: what all devices have. */
    cl_version version;      /**< Version of OpenCL that is presented. */
    cl_version c_version;    /**< Version of OpenCL C that every device compiles in full. */
    bool names[CARRIED_MAX]; /**< Which are offered, by index in carried_names. */
    struct devinfo answers;
};

/**
 * Make the answers consistent: an extension without its parameters is dropped, and so are
 * parameters without their extension; the same for features of OpenCL C and image formats.
 *
 * Single devices contradict themselves, and combined answers do so more often. Everything is only
 * reduced, except memory that the terms give. Each change is noted in the reasons. Pure.
 */
void proposal_agree(struct proposal *proposal);

/** True when CL_DEVICE_PROFILE is EMBEDDED_PROFILE, as it is for some device. */
bool proposal_is_embedded(const struct proposal *proposal);

/** True when the proposal still offers the extension or feature of this name. */
bool proposal_has(const struct proposal *proposal, const char *name);

/**
 * The OpenCL C text put before every source, so that macros agree with the answers (6.2.1, 6.10). A
 * compiler defines the macros of its own device, and a program that used what only that device has
 * could not move.
 *
 * @ret_text  Owned by the caller (free()); "" where there is nothing to hide. It ends with a #line,
 *            so
 * that lines keep their numbers. Returns 0 or -ENOMEM. Pure.
 */
MUST_CHECK int proposal_prologue(const struct proposal *proposal, char **ret_text);

#endif
