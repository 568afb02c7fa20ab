#ifndef RESEAT_STATE_COMMAND_TRACED_H
#define RESEAT_STATE_COMMAND_TRACED_H

#include "state/command/command.h"
#include "state/command/pieces.h"

/**
 * A launch of @kernel was given to the driver at @issued_ns, as @event (borrowed), while the
 * program is traced: record its span when it has ended. The span's length is from profiling if the
 * queue has it; otherwise the span begins when the launch was given.
 *
 * @piece  The piece of a launch: the span's name has its groups, its value the share of the launch
 *         in millionths. NULL: a whole launch.
 *
 * Inside the gate. No span is recorded if the driver does not report the end, or memory is short.
 */
void traced_launch(uint64_t issued_ns, cl_event event, const struct residence *residence,
                   const struct queue *queue, const char *kernel, const struct pieces *piece);
/** The last of @pieces has ended: record the span of the whole launch, with their number, if the
 * program was traced when it began. */
void traced_pieces(const struct queue *queue, const struct pieces *pieces);

#endif
