#ifndef RESEAT_AGENT_CLI_HELP_H
#define RESEAT_AGENT_CLI_HELP_H

#include "agent/cli/verb.h"

/* What verbs say of themselves, from their rows. */

/** The list of all verbs. */
void help_print_all(const struct verb *const *verbs, FILE *to);
/** A verb with its options, on stdout; "config": each that begins so. False: there is none. */
bool help_print(const struct verb *const *verbs, const char *name);
/** All rows: an array of objects. NULL without memory. */
json_t *help_json(const struct verb *const *verbs);

#endif
