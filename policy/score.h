#ifndef RESEAT_POLICY_SCORE_H
#define RESEAT_POLICY_SCORE_H

#include "policy/view.h"

/*
 * What a device is worth to a program.
 */

/** It uses less of its device than settings.busy_low. */
bool program_light(const struct view *view, const struct policy_program *program);
/** Most of the program's time was measured on its device and on @device. */
bool program_is_measured(const struct policy_program *program, uint32_t device);
/** How fast the program would run alone on @device, in thousandths of its speed where it is:
 * measured, or else the ratio of the devices' nominal speeds. The program is on a device. */
uint64_t program_speed_on(const struct view *view, const struct policy_program *program,
                          uint32_t device);
/** Thousandths of @device's time that the program would use: seen on its last visit, or else what
 * follows from program_speed_on(). */
uint64_t program_load_on(const struct view *view, const struct policy_program *program,
                         uint32_t device);
/** The same if the nominal speeds are as wrong as they may be, and @device is slower for it. */
uint64_t program_load_at_worst(const struct view *view, const struct policy_program *program,
                               uint32_t device);
/** By which factor, in thousandths, program_speed_on() may be wrong: 1000 where it was measured;
 * elsewhere as wrong as nominal speeds were for the program on the devices where it was. */
uint64_t program_speed_off(const struct view *view, const struct policy_program *program,
                           uint32_t device);
int64_t score_of(const struct view *view, const struct policy_program *program, uint32_t device,
                 uint64_t bytes);
/** Milliseconds that a move of the program takes: as its last one, but no longer than its bytes
 * need where the link of its device was measured; before its first move, what its bytes need. */
uint64_t program_move_ms(const struct view *view, const struct policy_program *program);
/** Milliseconds of work that the program loses on @device before the policy may move it back, if
 * the device is as much slower than its nominal speed as it may be. */
uint64_t program_risk_ms(const struct view *view, const struct policy_program *program,
                         uint32_t device);
/** Seconds after which a move that makes the program's work shorter, or cheaper, by @gain
 * thousandths has made up for @cost_ms; UINT64_MAX: never. */
static inline uint64_t program_payback_s(uint64_t cost_ms, uint64_t gain)
{
    return gain ? cost_ms / gain : UINT64_MAX;
}
/** It is expected to run long enough for that: as long again as it has run. How long a program
 * still runs is unknown, and run times have heavy tails, in which age is the best estimate
 * (Harchol- Balter and Downey, Exploiting Process Lifetime Distributions for Dynamic Load
 * Balancing, 1997). */
static inline bool program_pays_back(const struct view *view, const struct policy_program *program,
                                     uint64_t payback_s)
{
    return payback_s != UINT64_MAX && (view->asked || payback_s <= program->age_s);
}
/** Moving the program to @device does not slow it down. @from_busy, @to_busy: how busy its device
 * and @device are while it is where it is. */
bool is_no_worse(const struct view *view, const struct policy_program *program, uint32_t device,
                 uint64_t from_busy, uint64_t to_busy);

#endif
