#ifndef RESEAT_POLICY_SHIFT_H
#define RESEAT_POLICY_SHIFT_H

#include "policy/view.h"

/** Room for @bytes of the head of the queue by moving others that are no worse off then: the first
 * of the moves. False: there is none. */
bool shift_for(struct view *view, uint32_t head, uint64_t bytes, struct policy_step *ret_step);

#endif
