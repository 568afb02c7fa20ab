#ifndef RESEAT_REMOTE_DRIVER_SESSION_ENVIRONMENT_H
#define RESEAT_REMOTE_DRIVER_SESSION_ENVIRONMENT_H

#include <stddef.h>

#include "state/base/compiler.h"

/**
 * What a server has to know to open a driver as this process would: the folder that it is in, and
 * its variables but those of loaders and of ours, with the driver @icd named as the only one.
 *
 * @ret_text  Texts one after the other, each with its NUL; the caller's (free()).
 * Returns 0 or -ENOMEM.
 */
MUST_CHECK int environment_tell(const char *icd, char **ret_text, size_t *ret_size);

#endif
