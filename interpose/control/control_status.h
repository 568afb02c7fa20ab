#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_STATUS_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_STATUS_H

#include "agent/protocol/protocol.h"

/** Pack the message that tells the agent the program's present state. @ret_frame is owned by the
 * caller. */
void control_status_pack(struct frame *ret_frame);

#endif
