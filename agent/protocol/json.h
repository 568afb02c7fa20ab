#ifndef RESEAT_AGENT_PROTOCOL_JSON_H
#define RESEAT_AGENT_PROTOCOL_JSON_H

#include <jansson.h>

#include "agent/protocol/protocol.h"

/* Messages as JSON, as commands and browsers show them. */

/** Create a JSON string from a text that is not ours, made safe. Returns NULL without memory. */
json_t *json_text(const char *bytes, size_t size);
/** A message as JSON, without its type, its texts made safe. NULL: no memory. */
json_t *json_message(const struct message *message);

#endif
