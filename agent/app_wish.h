#ifndef RESEAT_AGENT_APP_WISH_H
#define RESEAT_AGENT_APP_WISH_H

#include "agent/apps.h"

/* Programs that registered with policy/reseat.h: what they ask for, and what they are told. */

/** Read "aware" of a hello or a MSG_WISH; without it the program is not registered. */
void app_take_wish(struct app *app, const msgpack_object *map);
/** "aware" of an open map: an object of what it asks for, or nothing. */
void app_put_wish(const struct app *app, struct frame *frame);

/**
 * A client wants a program notified (MSG_NOTICE with "app"). Answered at once: that it was sent, or
 * an error. The program need not do anything about it.
 */
void app_notify(struct peer *client, const msgpack_object *map);

#endif
