#ifndef RESEAT_POLICY_SCORE_H
#define RESEAT_POLICY_SCORE_H

#include "policy/view.h"

/*
 * What a device is worth to a program.
 */

/** It uses less of its device than settings.busy_low. */
bool program_light(const struct view *view, const struct policy_program *program);
/** Thousandths of @device's time that the program would use: measured on its last visit, or else
 * estimated from the devices' nominal speeds. */
uint64_t program_load_on(const struct view *view, const struct policy_program *program,
                         uint32_t device);
int64_t score_of(const struct view *view, const struct policy_program *program, uint32_t device,
                 uint64_t bytes);
/** Moving the program to @device does not slow it down. @from_busy, @to_busy: how busy its device
 * and @device are while it is where it is. */
bool is_no_worse(const struct view *view, const struct policy_program *program, uint32_t device,
                 uint64_t from_busy, uint64_t to_busy);

#endif
