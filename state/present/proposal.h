#ifndef RESEAT_STATE_PRESENT_PROPOSAL_H
#define RESEAT_STATE_PRESENT_PROPOSAL_H

#include "state/present/carried.h"
#include "state/present/common_answers.h"

/* What present_build works on: answers that have been combined, before they agree with each other.
 */
struct proposal {
    struct common common; /**< Into answers. */
    bool native;          /**< It is the first device's own... */
    bool pins;            /**< ...with what pins a program. */
    uint64_t memory;      /**< Bytes of device memory to be told; 0: what they have in common. */
    cl_version version;   /**< OpenCL, presented. */
    cl_version c_version; /**< OpenCL C that every device compiles in full. */
    bool extensions[CARRIED_MAX]; /**< By place in carried_extensions. */
    bool features[CARRIED_MAX];   /**< By place in carried_features. */
    struct devinfo answers;
};

/**
 * Make the answers agree with each other: an extension without its numbers goes, and so do the
 * numbers without their extension; likewise features of OpenCL C and image formats.
 *
 * Devices contradict themselves, and the least of several contradicts itself more often. Everything
 * here only takes away, but for memory that the terms name. Each change is noted in its
 * reasons. Pure.
 */
void proposal_agree(struct proposal *proposal);

/** CL_DEVICE_PROFILE: embedded where some device's is. */
bool proposal_is_embedded(const struct proposal *proposal);

/** True when the proposal still offers the extension or feature of this name. */
bool proposal_has_extension(const struct proposal *proposal, const char *name);
bool proposal_has_feature(const struct proposal *proposal, const char *name);

/**
 * OpenCL C to put before every source, so that macros say what the answers say (6.2.1, 6.10): a
 * compiler defines those of its own device, and a program that used what only that device has could
 * not move.
 *
 * @ret_text  The caller's (free()); "" where there is nothing to hide. It ends with a #line, so
 * that lines keep their numbers. Returns 0 or -ENOMEM. Pure.
 */
MUST_CHECK int proposal_prologue(const struct proposal *proposal, char **ret_text);

#endif
