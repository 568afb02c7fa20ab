#ifndef RESEAT_STATE_PRESENT_CARRIED_H
#define RESEAT_STATE_PRESENT_CARRIED_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The extensions and features, beyond the core, that a program can keep when it moves between
 * devices. This is a list of what is allowed: an extension that nobody has examined is not offered.
 */

/** Room for either list. */
#define CARRIED_MAX 64

extern const char *const carried_extensions[];
extern const size_t carried_extension_count;
/** Features of OpenCL C 3.0 (the __opencl_c_ macros). */
extern const char *const carried_features[];
extern const size_t carried_feature_count;

/** Why an extension or a feature that is not in its list is left out. Static. */
const char *carried_refusal(const char *name);

/** Index of a name in its list, or -1. */
int carried_extension_find(const char *name);
int carried_feature_find(const char *name);

#endif
