#ifndef RESEAT_STATE_COMMAND_TRACED_H
#define RESEAT_STATE_COMMAND_TRACED_H

#include "state/command/command.h"
#include "state/command/pieces.h"

/**
 * A launch of @kernel was given to the driver at @issued_ns, as @event (borrowed), while somebody
 * traces the program: its span is kept when it has ended. It is as long as its profile says where
 * its queue has one, and else begins when it was given.
 *
 * @piece  It is the planned piece of a launch: its name says which groups, its value how much of
 *         the launch that is, in millionths. NULL: it is a whole one.

 * Inside the gate. Where the driver tells of no ends, or there is no memory, there is no span.
 */
void traced_launch(uint64_t issued_ns, cl_event event, const struct residence *residence,
                   const struct queue *queue, const char *kernel, const struct pieces *piece);
/** The last of @pieces has ended: the span of the whole launch, with how many they were, is kept
 * where somebody traced when it began. */
void traced_pieces(const struct queue *queue, const struct pieces *pieces);

#endif
