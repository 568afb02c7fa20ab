#ifndef RESEAT_POLICY_ANSWER_H
#define RESEAT_POLICY_ANSWER_H

#include "policy/view.h"

/** See policy_answer(). */
void answer(struct view *view, uint32_t program, struct policy_step *ret_step);

#endif
