#ifndef RESEAT_STATE_COMMAND_ELSEWHERE_H
#define RESEAT_STATE_COMMAND_ELSEWHERE_H

#include "state/command/command.h"

/*
 * Reads where the bytes are. A command that only reads an object into the program's memory runs in
 * the residence that has the latest bytes, though its queue is in another one: nothing is copied
 * between devices, and only what is read crosses a link. A marker holds its place in its own
 * queue: once that has ended the read is given as a command of parts (parts.h).
 */

/** True when @command, COMMAND_ABSENT in @residence_index, can read elsewhere. Inside the gate. */
bool elsewhere_can(const struct command *command, uint8_t residence_index);

/**
 * The event of a marker behind all that @command has to come after, so far as the driver of
 * @residence knows of it; watched. @since: when the program enqueued the command, by the host's
 * clock. The caller owns a hold. NULL where that cannot be had. Inside the gate.
 */
struct event *elsewhere_mark(const struct command *command, struct residence *residence,
                             uint8_t residence_index, cl_uint waits, struct event *const *wait_list,
                             uint64_t since);

/**
 * @marker has ended: give @command to where its bytes are. @event, DEFERRED, is its own; it is
 * ISSUED then. CL_SUCCESS, the command's error, or COMMAND_ABSENT: it is to run where its queue is.
 * Inside the gate.
 */
cl_int elsewhere_give(struct command *command, struct event *marker, struct event *event);

#endif
