#ifndef RESEAT_STATE_COMMAND_ELSEWHERE_H
#define RESEAT_STATE_COMMAND_ELSEWHERE_H

#include "state/command/command.h"

/*
 * Commands that read where the bytes are, in another residence than their queue's. No replica is
 * brought, and only what is read crosses a link. A marker keeps the command's place in its own
 * queue. When that has ended, so has all that the command must follow: whoever wrote the bytes,
 * too. What else the other residence was given is not waited for.
 *
 * - A command that only reads an object into the program's memory runs in the residence with the
 *   latest bytes, as a command of parts (parts.h).
 * - A copy between buffers passes: the driver copies from one residence to the other (between.h).
 *   It has an event of its own, whose parts are the driver's two commands. Where it fails, the
 *   bytes are brought after all, and the command is given to its own queue.
 */

/** So many copies of a queue pass at once. */
#define ELSEWHERE_PASSING 4

/** True when @command, COMMAND_ABSENT in @residence_index, can read elsewhere. Inside the gate. */
bool elsewhere_can(const struct command *command, uint8_t residence_index);

/** True when @command is a copy whose source need not be brought to @residence_index. Inside the
 * gate, or with it closed. */
bool elsewhere_copies(const struct command *command, uint8_t residence_index);

/**
 * Enqueue a marker behind the commands that @queue's driver has, and behind @wait_list as far as
 * that driver knows it. @since: when the program enqueued what the marker stands for, by the host's
 * clock.
 *
 * Returns the marker's watched event, which the caller holds; NULL if that is not possible. Inside
 * the gate.
 */
struct event *elsewhere_mark(struct queue *queue, struct residence *residence,
                             uint8_t residence_index, cl_uint waits, struct event *const *wait_list,
                             uint64_t since);

/**
 * After @marker has ended: give @command to the residence that has its bytes. Its event @event is
 * DEFERRED before and ISSUED afterwards. CL_SUCCESS, the command's error, or COMMAND_ABSENT: it
 * must run in its queue's residence. Inside the gate.
 */
cl_int elsewhere_give(struct command *command, struct event *marker, struct event *event);
/**
 * After @marker has ended: have the copy @command pass to @residence_index, its queue's. Returns
 * its own event, watched, which the caller holds; NULL: it must be brought. Inside the gate.
 */
struct event *elsewhere_pass(struct command *command, struct event *marker,
                             uint8_t residence_index);
/** @passed, from elsewhere_pass, has succeeded: so ends the program's @event, which is DEFERRED. */
void elsewhere_passed(struct event *passed, struct event *event);

#endif
