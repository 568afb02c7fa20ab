#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_TRACE_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_TRACE_H

#include "agent/protocol/protocol.h"

/*
 * The program's end of a trace: what went on in the engine (state/base/span.h), sent while it does.
 * By the control thread.
 */

/** Begin or end a trace, as MSG_TRACE says. */
void control_trace_take(const msgpack_object *map);
/** How often, in milliseconds, control_trace_serve is to be called; 0: nothing is traced. */
unsigned control_trace_ms(void);
/** Give the spans that there are to @send, which finishes the frame. The last frame of a trace is
 * sent after its end was requested, or when its time is over. */
void control_trace_serve(void *data, void (*send)(void *data, struct frame *frame));
/** The reader is gone: end the trace. */
void control_trace_drop(void);

#endif
