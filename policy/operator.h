#ifndef RESEAT_POLICY_OPERATOR_H
#define RESEAT_POLICY_OPERATOR_H

#include "policy/view.h"

/*
 * Steps that follow from operators' commands. Each returns false if there is nothing to do.
 */

/** Empty devices that drain or are about to be removed. */
bool next_drain(struct view *view, struct policy_step *ret_step);
/** Enforce limits that were lowered. */
bool next_limit(struct view *view, struct policy_step *ret_step);
/** Move programs off devices that they may not use any more. */
bool next_unfit(struct view *view, struct policy_step *ret_step);

#endif
