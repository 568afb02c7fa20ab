#ifndef RESEAT_POLICY_STEP_H
#define RESEAT_POLICY_STEP_H

#include "policy/view.h"

/*
 * Building a step and the text of its reason.
 */

#define LIKE_PRINTF(at, first) __attribute__((format(printf, at, first)))

struct size_text {
    char text[24];
};
/** "1.5 GiB". */
struct size_text size_text(uint64_t bytes);
/** Set all but the reason, which becomes empty. */
void step_set(struct policy_step *ret_step, enum policy_action action, uint32_t program,
              uint32_t device, uint64_t bytes);
/** Append to the reason; text that does not fit is cut. */
void step_say(struct policy_step *step, const char *format, ...) LIKE_PRINTF(2, 3);
/** "gpu0 has 1.2 GiB free of 8 GiB, x264 needs 3 GiB more". */
void step_say_lack(const struct view *view, uint32_t program, struct policy_step *step);

#endif
