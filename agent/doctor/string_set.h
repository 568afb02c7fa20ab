#ifndef RESEAT_AGENT_DOCTOR_STRING_SET_H
#define RESEAT_AGENT_DOCTOR_STRING_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"

/** Strings in the order in which they were added, each once. */
struct strings {
    char **items;
    size_t count;
};

void strings_finish(struct strings *strings);
/** Returns 0 or -ENOMEM. One that is there already is not added again. */
MUST_CHECK int strings_add(struct strings *strings, const char *text);
bool strings_have(const struct strings *strings, const char *text);

#endif
