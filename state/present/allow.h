#ifndef RESEAT_STATE_PRESENT_ALLOW_H
#define RESEAT_STATE_PRESENT_ALLOW_H

#include <stdbool.h>
#include <stddef.h>

/*
 * What can be carried from device to device, of what devices offer beside the core. A list of what
 * is allowed, not of what is refused: an extension that nobody has thought about stays out.
 */

/** Room for either list. */
#define ALLOW_MAX 64

extern const char *const allow_extensions[];
extern const size_t allow_extension_count;
/** Features of OpenCL C 3.0 (the __opencl_c_ macros). */
extern const char *const allow_features[];
extern const size_t allow_feature_count;

/** Why an extension or a feature that is not in its list is left out. Static. */
const char *allow_refusal(const char *name);

/** The place of a name in its list, or -1. */
int allow_extension_find(const char *name);
int allow_feature_find(const char *name);

#endif
