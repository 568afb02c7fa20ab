#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_ENGINE_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_ENGINE_H

#include "interpose/control/control_frames.h"

/* What the agent tells the engine or the program, and gets no answer to. */

/** MSG_WARM: how much host memory to keep ready. */
void control_take_warm(const msgpack_object *map);
/** MSG_SPREAD: the devices that may run parts of long launches. */
void control_take_spread(const msgpack_object *map);
/** MSG_COSTS: what launches draw, as far as the agent knows. */
void control_take_costs(const msgpack_object *map);
/** MSG_NOTICE: notify the program. A notice of an unknown kind is ignored. */
void control_take_notice(const msgpack_object *map);
/** Keep the lease that this process had before it called exec(). */
void control_follow_lease(const struct control_lease *lease);

#endif
