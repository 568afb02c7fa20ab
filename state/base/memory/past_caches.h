#ifndef RESEAT_STATE_BASE_MEMORY_PAST_CACHES_H
#define RESEAT_STATE_BASE_MEMORY_PAST_CACHES_H

#include <stddef.h>

/** Copy to memory that no processor reads soon: what is much goes past the caches, so that what is
 *  there stays, and no line is read before it is written. The two do not overlap. What is copied is
 *  there for whoever is told afterwards. */
void copy_past_caches(char *to, const char *from, size_t size);

#endif
