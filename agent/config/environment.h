#ifndef RESEAT_AGENT_CONFIG_ENVIRONMENT_H
#define RESEAT_AGENT_CONFIG_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"

/*
 * The environment variables that decide which devices OpenCL drivers show. A client that asks for
 * devices sends its own variables, so that the list shows the devices that its programs would see,
 * which may differ from those that the agent saw when it started.
 */

/** True when "NAME=value" (or NAME) concerns drivers. */
bool environment_concerns_drivers(const char *variable);

/** environ's driver variables, sorted and borrowed, in an array to free. 0 or -ENOMEM. */
MUST_CHECK int environment_of_drivers(const char ***ret_variables, size_t *ret_count);

/**
 * Compose the lister's environment: @base without its driver variables, and the driver variables of
 * @variables (one a line). Other variables of @variables are dropped: a client must not be able to
 * set LD_PRELOAD.
 *
 * @ret  NULL-terminated, in one block, which the caller frees with one call.
 * Returns 0 or -ENOMEM.
 */
MUST_CHECK int environment_for_lister(char *const *base, const char *variables, char ***ret);

#endif
