#ifndef RESEAT_AGENT_CONFIG_BYTES_H
#define RESEAT_AGENT_CONFIG_BYTES_H

#include <stddef.h>
#include <stdint.h>

/** For people: "1.5 GiB". */
void bytes_text(uint64_t bytes, char *ret, size_t size);

#endif
