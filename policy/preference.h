#ifndef RESEAT_POLICY_PREFERENCE_H
#define RESEAT_POLICY_PREFERENCE_H

#include "policy/view.h"

/*
 * How well devices match what programs prefer (policy_program.prefers). All but prefer_keeps() need
 * a program that has preferences.
 */

/** @device matches no worse than the program's device. */
bool prefer_keeps(const struct view *view, const struct policy_program *program, uint32_t device);
/** @device has no less of anything preferred, and more of something by settings.gain. */
bool prefer_better(const struct view *view, const struct policy_program *program, uint32_t device);
/** @device has everything preferred. */
bool prefer_met(const struct view *view, const struct policy_program *program, uint32_t device);
/** Average match in thousandths. */
uint32_t prefer_part(const struct view *view, const struct policy_program *program,
                     uint32_t device);
/** Bytes that must be free on @device for the program to use what it prefers. */
uint64_t prefer_room(const struct view *view, const struct policy_program *program,
                     uint32_t device);
struct prefer_text {
    char text[160];
};
/** What its device lacks, or everything preferred if it lacks nothing: "8 GiB and fp64". */
struct prefer_text prefer_text(const struct view *view, const struct policy_program *program);

#endif
