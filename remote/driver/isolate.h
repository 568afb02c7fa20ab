#ifndef RESEAT_REMOTE_DRIVER_ISOLATE_H
#define RESEAT_REMOTE_DRIVER_ISOLATE_H

#include "state/driver/isolated.h"

/** isolated_open_fn: what reseat's engine asks for by clGetExtensionFunctionAddress(). */
MUST_CHECK int isolate_open(const char *server, const char *icd, cl_uint room,
                            cl_platform_id *ret_platforms, cl_uint *ret_count);

/**
 * What a server has to know to open a driver as this process would: the folder that it is in, and
 * its variables but those of loaders and of ours, with the driver @icd named as the only one.
 *
 * @ret_text  Texts one after the other, each with its NUL; the caller's (free()).
 * Returns 0 or -ENOMEM.
 */
MUST_CHECK int isolate_environment(const char *icd, char **ret_text, size_t *ret_size);

#endif
