#ifndef RESEAT_STATE_PRESENT_DRAFT_H
#define RESEAT_STATE_PRESENT_DRAFT_H

#include "state/present/allow.h"
#include "state/present/meet.h"

/* What present_build works on: answers that have met, before they agree with each other. */
struct draft {
    struct meet meet;     /**< Into answers. */
    bool native;          /**< What pins a program is offered too, as the first device has it. */
    uint64_t memory;      /**< Bytes of device memory to be told; 0: what has met. */
    cl_version version;   /**< OpenCL, presented. */
    cl_version c_version; /**< OpenCL C that every device compiles in full. */
    bool extensions[ALLOW_MAX]; /**< By place in allow_extensions. */
    bool features[ALLOW_MAX];   /**< By place in allow_features. */
    struct devinfo answers;
};

/**
 * Make the answers agree with each other: an extension without its numbers goes, and so do the
 * numbers without their extension; likewise features of OpenCL C and image formats.
 *
 * Devices contradict themselves, and the least of several contradicts itself more often. Everything
 * here only takes away, but for memory that the terms name. Each change is noted in the meet's
 * reasons. Pure.
 */
void draft_agree(struct draft *draft);

/** CL_DEVICE_PROFILE: embedded where some device's is. */
bool draft_is_embedded(const struct draft *draft);

/** True when the draft still offers the extension or feature of this name. */
bool draft_has_extension(const struct draft *draft, const char *name);
bool draft_has_feature(const struct draft *draft, const char *name);

#endif
