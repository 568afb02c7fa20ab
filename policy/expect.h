#ifndef RESEAT_POLICY_EXPECT_H
#define RESEAT_POLICY_EXPECT_H

#include "policy/victims.h"

/*
 * Predicts how long a program must wait for memory, and what the alternatives cost. A program that
 * has run for a time t is expected to run for t again (see program_pays_back()) and to release its
 * grant at its end. Until then it is expected to grow to the peak of its earlier runs.
 */

/**
 * Milliseconds until @program can have @bytes in total without any program being displaced, either
 * on its own device or, including the move, on another one. Only for devices where they are not
 * free now. UINT64_MAX: the running programs would not release enough.
 */
uint64_t expect_room_ms(struct view *view, uint32_t program, uint64_t bytes);
/** The same for all memory that @program needs; UINT64_MAX if it may not wait. */
uint64_t expect_wait_ms(struct view *view, uint32_t program);
/**
 * Milliseconds lost by the programs displaced to make @room for @program: their moves off the
 * device and back and, if the first @step suspends its program, the time that it is suspended. That
 * time is halved for each step of priority by which @program is above the suspended one, so that
 * the program of higher priority does not wait forever.
 */
uint64_t expect_displaced_ms(struct view *view, uint32_t program, const struct room *room,
                             const struct policy_step *step);

#endif
