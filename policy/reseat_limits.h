#ifndef RESEAT_POLICY_RESEAT_LIMITS_H
#define RESEAT_POLICY_RESEAT_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "policy/plan.h"
#include "policy/reseat.h"

/*
 * What programs ask for through policy/reseat.h, converted for plan_fits(): the library and the
 * agent compare it with devices in the same way. Pure.
 */

/** Convert @asked; 0 and clear bits ask for nothing. */
void reseat_limits_plan(const struct reseat_limits *asked, struct plan_use *ret_use);

/** Convert a device's offer to the form that programs are told. */
void reseat_limits_offered(const struct plan_offer *offer, struct reseat_limits *ret_limits);

/** Name and bit of the feature at @index ("fp64"); NULL past the last one. */
const char *reseat_limits_feature(size_t index, uint32_t *ret_bit);

#endif
