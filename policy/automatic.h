#ifndef RESEAT_POLICY_AUTOMATIC_H
#define RESEAT_POLICY_AUTOMATIC_H

#include "policy/view.h"

/*
 * Moves that nobody asked for: false where there is nothing to do. @held  By minimum stay, budget
 * and where an operator put programs.
 */

bool next_regrow(struct view *view, struct policy_step *ret_step);
bool next_up(struct view *view, bool held, struct policy_step *ret_step);
bool next_down(struct view *view, bool held, struct policy_step *ret_step);
bool next_prefer(struct view *view, bool held, struct policy_step *ret_step);

/** Have a program made ready for where one of those would take it, were it not for minimum stay and
 * budget, or soon may. */
bool next_ready(struct view *view, struct policy_step *ret_step);

/** Of the devices that have more of what @program prefers the best, or NONE; @now: that it may go
 * to. */
uint32_t prefer_best(struct view *view, uint32_t program, bool now);

#endif
