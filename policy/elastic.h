#ifndef RESEAT_POLICY_ELASTIC_H
#define RESEAT_POLICY_ELASTIC_H

#include "policy/decide.h"

/*
 * Devices that nobody uses, for the long launches of programs that may be spread over free devices.
 * Like the decisions of decide.h: no I/O, no clock, no allocation.
 */

/** For so long nobody must have used a device: one that a program just left may be wanted again. */
#define ELASTIC_FREE_S 2

/**
 * Give each free device to one program with policy_program.elastic. A device is free when it takes
 * programs, none is on it or comes to it, and none that waits could be placed on it. A program may
 * have it if all its objects fit there and, without any_float, if its own device is of the same
 * model. Of several programs the one of the highest priority has it, then the one with the fewest.
 *
 * Devices are taken back by calling this again: the copies there are of no program's memory, so
 * whoever is placed on the device finds all of it.
 *
 * @ret_programs  For each device: the program that it is given to, or POLICY_NONE.
 */
void elastic_share(const struct policy_world *world, uint32_t *ret_programs);

#endif
