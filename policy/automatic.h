#ifndef RESEAT_POLICY_AUTOMATIC_H
#define RESEAT_POLICY_AUTOMATIC_H

#include "policy/view.h"

/*
 * Moves that nobody asked for. Each returns false if there is nothing to do. @held: respect the
 * minimum stay, the budget, and operators' placements.
 */

bool next_regrow(struct view *view, struct policy_step *ret_step);
bool next_up(struct view *view, bool held, struct policy_step *ret_step);
bool next_down(struct view *view, bool held, struct policy_step *ret_step);
bool next_prefer(struct view *view, bool held, struct policy_step *ret_step);

/** After how many seconds a move has made up for what it takes: by itself, and with the time that
 * the program loses if the device, which it has not tried, is slower than it is said to be. */
struct payback {
    uint64_t own_s, all_s;
};

/** The device to which one of the above would move @program if the move paid back within the time
 * that the program is expected to run, and when it would; or NONE. */
uint32_t next_unpaid(struct view *view, uint32_t program, struct payback *ret_payback);

/** Prewarm the first in the queue for the device whose memory is kept for it. */
bool next_ready_queued(struct view *view, struct policy_step *ret_step);
/** Prewarm a program for the device to which one of the above would move it but for minimum stay
 * and budget, or soon may. */
bool next_ready(struct view *view, struct policy_step *ret_step);

/** The best of the devices that match @program's preferences better, or NONE. @now: only devices
 * that it may go to at once. */
uint32_t prefer_best(struct view *view, uint32_t program, bool now);

#endif
