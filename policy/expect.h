#ifndef RESEAT_POLICY_EXPECT_H
#define RESEAT_POLICY_EXPECT_H

#include "policy/victims.h"

/*
 * How long a program that needs room is expected to wait for it, and what its other ways take. A
 * program that has run for t is expected to run for t again (see program_pays_back()), and releases
 * what it was granted at its end; until then it grows to the peak that it reached in former runs.
 */

/**
 * Milliseconds until @program is expected to have @bytes in all, where they are not free now, if
 * nobody is made to leave: on its device, or on another one, where it has to move to then.
 * UINT64_MAX: no programs run that would release enough.
 */
uint64_t expect_room_ms(struct view *view, uint32_t program, uint64_t bytes);
/** The same for all that it needs, UINT64_MAX if the program may not wait. */
uint64_t expect_wait_ms(struct view *view, uint32_t program);
/** Milliseconds that those lose who make @room for @program, of whom the first does @step: the ways
 * off the device and back, and the time meanwhile if it is suspended. That counts half for each
 * step of priority by which @program is above it, so that the one above does not wait for ever. */
uint64_t expect_displaced_ms(struct view *view, uint32_t program, const struct room *room,
                             const struct policy_step *step);

#endif
