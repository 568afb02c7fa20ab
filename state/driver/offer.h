#ifndef RESEAT_STATE_DRIVER_OFFER_H
#define RESEAT_STATE_DRIVER_OFFER_H

#include "policy/plan.h"
#include "state/driver/devinfo.h"

/**
 * Compute what a device offers, for PLAN.
 *
 * memory_available is all of the device's memory; the caller lowers it by what policy keeps back.
 * Pure.
 *
 * @info  Borrowed, and so are the strings in @ret_offer, for as long.
 */
void offer_from_devinfo(const struct devinfo *info, struct plan_offer *ret_offer);

#endif
