#ifndef RESEAT_STATE_COMMAND_ELSEWHERE_H
#define RESEAT_STATE_COMMAND_ELSEWHERE_H

#include "state/command/command.h"

/*
 * Reads in the residence that has the bytes. A command that only reads an object into the program's
 * memory runs in the residence with the latest bytes, even if its queue is in another one: nothing
 * is copied between devices, and only what is read crosses a link. A marker keeps its place in its
 * own queue: when that has ended, the read is given as a command of parts (parts.h).
 */

/** True when @command, COMMAND_ABSENT in @residence_index, can read elsewhere. Inside the gate. */
bool elsewhere_can(const struct command *command, uint8_t residence_index);

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

#endif
