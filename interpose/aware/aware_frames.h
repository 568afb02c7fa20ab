#ifndef RESEAT_INTERPOSE_AWARE_AWARE_FRAMES_H
#define RESEAT_INTERPOSE_AWARE_AWARE_FRAMES_H

#include "agent/wire/protocol.h"
#include "interpose/aware/aware.h"

/* What is said between a program that registered and the agent. */

/** "aware" of a hello or a wish, into an open map: nothing where nobody is registered. */
void aware_put_wish(struct frame *frame, const struct aware_wish *wish);

/** Read a MSG_NOTICE, and have the program notified. One that says nothing known is ignored. */
void aware_take_notice(const msgpack_object *map);

#endif
