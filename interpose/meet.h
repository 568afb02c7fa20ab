#ifndef RESEAT_INTERPOSE_MEET_H
#define RESEAT_INTERPOSE_MEET_H

#include "state/devinfo.h"

/* How the answers of several devices combine into what all of them offer. Pure. */

/**
 * Combine the answers to one parameter into @answers, as its row in the table says.
 *
 * A parameter that some device does not answer, or answers in another size, is left out, and so are
 * those of kind DEVINFO_OURS. DEVINFO_NONE and DEVINFO_PINS give zero, "" or an empty list.
 * Returns 0 or -ENOMEM.
 */
MUST_CHECK int meet_param(const struct devinfo *const *devices, size_t count,
                          const struct devinfo_param *param, struct devinfo *answers);

/** Combine image formats: for each access and type, those of the first that all have. */
MUST_CHECK int meet_formats(const struct devinfo *const *devices, size_t count,
                            struct devinfo *answers);

/**
 * The least version of @name in the cl_name_version lists that have it.
 *
 * @ret_in_all  False when some list lacks it or is absent.
 * Returns 0 when no list has it.
 */
cl_version meet_name_version(const struct devinfo *const *devices, size_t count,
                             cl_device_info list, const char *name, bool *ret_in_all);

#endif
