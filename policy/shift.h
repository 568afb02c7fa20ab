#ifndef RESEAT_POLICY_SHIFT_H
#define RESEAT_POLICY_SHIFT_H

#include "policy/find_room.h"

/* How room is made: by moves that cost nobody anything, and by displacing a victim. */

/** Make room for @bytes of the head of the queue by moving programs that are no worse off
 * afterwards. Writes the first of the moves. Returns false if there are none. */
bool shift_for(struct view *view, uint32_t head, uint64_t bytes, struct policy_step *ret_step);

/** The step by which @room's victim makes room for @program. */
void displace(struct view *view, uint32_t program, const struct room *room,
              struct policy_step *ret_step);

#endif
