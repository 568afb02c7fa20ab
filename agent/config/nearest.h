#ifndef RESEAT_AGENT_CONFIG_NEAREST_H
#define RESEAT_AGENT_CONFIG_NEAREST_H

#include <stddef.h>

/**
 * The name that somebody who wrote @name may have meant. Pure.
 *
 * @most  How many letters may have to change, come or go; SIZE_MAX: any number.
 * Returns the one of @count @names that is most like it; NULL where none is so near.
 */
const char *nearest_name(const char *name, const char *const *names, size_t count, size_t most);

#endif
