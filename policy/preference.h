#ifndef RESEAT_POLICY_PREFERENCE_H
#define RESEAT_POLICY_PREFERENCE_H

#include "policy/view.h"

/*
 * What programs said that they would make use of (policy_program.prefers), and what devices have of
 * it. All but the first are of those that said so.
 */

/** No less of it there than where the program is. */
bool prefer_keeps(const struct view *view, const struct policy_program *program, uint32_t device);
/** No less of anything there, and more of something, by the gain. */
bool prefer_better(const struct view *view, const struct policy_program *program, uint32_t device);
/** All of it is there. */
bool prefer_met(const struct view *view, const struct policy_program *program, uint32_t device);
/** Thousandths of it, on average, that are there. */
uint32_t prefer_part(const struct view *view, const struct policy_program *program,
                     uint32_t device);
/** Bytes that have to be free there so that it could make use of them. */
uint64_t prefer_room(const struct view *view, const struct policy_program *program,
                     uint32_t device);
struct prefer_text {
    char text[160];
};
/** What is missing where it is, or all where nothing is: "8 GiB and fp64". */
struct prefer_text prefer_text(const struct view *view, const struct policy_program *program);

#endif
