#ifndef RESEAT_POLICY_DISPLACE_H
#define RESEAT_POLICY_DISPLACE_H

#include "policy/find_room.h"

/** The step by which @room's victim makes room for @program. */
void displace(struct view *view, uint32_t program, const struct room *room,
              struct policy_step *ret_step);

#endif
