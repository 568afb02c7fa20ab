#ifndef RESEAT_AGENT_DOCTOR_SHELL_SCRIPT_H
#define RESEAT_AGENT_DOCTOR_SHELL_SCRIPT_H

#include "state/base/compiler.h"

/** Takes one command: a program and its arguments, NULL-terminated. Returns 0 or -errno. */
typedef int shell_each(void *context, char *const *words);

/**
 * Call @each for every command in a text that a shell runs.
 *
 * Returns 0, -ENOMEM, or the first error of @each; what cannot be read has no commands.
 */
MUST_CHECK int shell_commands(const char *path, shell_each *each, void *context);

#endif
