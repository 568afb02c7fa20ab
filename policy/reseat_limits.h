#ifndef RESEAT_POLICY_RESEAT_LIMITS_H
#define RESEAT_POLICY_RESEAT_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "policy/plan.h"
#include "policy/reseat.h"

/*
 * What programs ask for with policy/reseat.h, in the terms of PLAN: the library that they run with
 * and the agent compare it with devices in the same way. Pure.
 */

/** What @asked means to plan_fits(): 0 and no bit asks for nothing. */
void reseat_limits_plan(const struct reseat_limits *asked, struct plan_use *ret_use);

/** What a device offers, as programs are told of it. */
void reseat_limits_offered(const struct plan_offer *offer, struct reseat_limits *ret_limits);

/** The features, from 0 on: "fp64" and its bit; NULL: there are no more. */
const char *reseat_limits_feature(size_t index, uint32_t *ret_bit);

#endif
