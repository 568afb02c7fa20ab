#ifndef RESEAT_STATE_BASE_MEMORY_PAST_CACHES_H
#define RESEAT_STATE_BASE_MEMORY_PAST_CACHES_H

#include <stddef.h>

/** Copy to memory that no processor will read soon: large copies bypass the caches, so that their
 * content stays and no line is read before it is written. The ranges must not overlap. The bytes
 * are visible to threads that are told of them afterwards. */
void copy_past_caches(char *to, const char *from, size_t size);

#endif
