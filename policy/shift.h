#ifndef RESEAT_POLICY_SHIFT_H
#define RESEAT_POLICY_SHIFT_H

#include "policy/view.h"

/** Make room for @bytes of the head of the queue by moving programs that are no worse off
 * afterwards. Writes the first of the moves. Returns false if there are none. */
bool shift_for(struct view *view, uint32_t head, uint64_t bytes, struct policy_step *ret_step);

#endif
