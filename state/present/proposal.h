#ifndef RESEAT_STATE_PRESENT_PROPOSAL_H
#define RESEAT_STATE_PRESENT_PROPOSAL_H

#include "state/present/carried.h"
#include "state/present/common_answers.h"

/* The state of present_build: combined answers, which may still contradict each other. */
struct proposal {
    struct common common; /**< Combines into `answers`. */
    bool native;          /**< The native profile... */
    bool pins;            /**< ...including features that pin a program. */
    uint64_t memory;      /**< Bytes of device memory to present; 0: what all devices have. */
    cl_version version;   /**< Version of OpenCL that is presented. */
    cl_version c_version; /**< Version of OpenCL C that every device compiles in full. */
    bool extensions[CARRIED_MAX]; /**< By index in carried_extensions. */
    bool features[CARRIED_MAX];   /**< By index in carried_features. */
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

/** True when the proposal still offers the extension of this name. */
bool proposal_has_extension(const struct proposal *proposal, const char *name);

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
