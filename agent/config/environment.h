#ifndef RESEAT_AGENT_CONFIG_ENVIRONMENT_H
#define RESEAT_AGENT_CONFIG_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"

/*
 * The environment variables that decide which devices OpenCL drivers show. Who asks for devices
 * sends theirs, so that the list is of what their programs would see, not of what the agent saw
 * when it started.
 */

/** True when "NAME=value" (or NAME) concerns drivers. */
bool environment_concerns_drivers(const char *variable);

/** Those of environ, sorted; the array is to be freed, the strings are borrowed. -ENOMEM. */
MUST_CHECK int environment_of_drivers(const char ***ret_variables, size_t *ret_count);

/**
 * The environment of the lister: @base without what concerns drivers, and of @variables, one a
 * line, only what does: a peer's word for which drivers to list must not become LD_PRELOAD.
 *
 * @ret  NULL-terminated; one block, to be freed at once. Returns 0 or -ENOMEM.
 */
MUST_CHECK int environment_for_lister(char *const *base, const char *variables, char ***ret);

#endif
