#ifndef RESEAT_POLICY_SCORE_H
#define RESEAT_POLICY_SCORE_H

#include "policy/view.h"

/*
 * What a device is worth to a program.
 */

/** It does most of its work elsewhere: less busy than settings.busy_low. */
bool program_light(const struct view *view, const struct policy_program *program);
/** Thousandths of @device's time that the program would keep it busy: as it did when it was there,
 * or else by how fast the devices are said to be. */
uint64_t program_load_on(const struct view *view, const struct policy_program *program,
                         uint32_t device);
int64_t score_of(const struct view *view, const struct policy_program *program, uint32_t device,
                 uint64_t bytes);
/** It is as fast there, or uses so little that it makes no difference, where its device and that
 * one are that busy with it here. */
bool is_no_worse(const struct view *view, const struct policy_program *program, uint32_t device,
                 uint64_t from_busy, uint64_t to_busy);

#endif
