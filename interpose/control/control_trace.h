#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_TRACE_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_TRACE_H

#include "agent/protocol/protocol.h"

/*
 * The program's end of a trace: what went on in the engine (state/base/span.h), sent while it does.
 * By the control thread.
 */

/** MSG_TRACE: begin, or end. */
void control_trace_take(const msgpack_object *map);
/** How often, in milliseconds, control_trace_serve is to be called; 0: nothing is traced. */
unsigned control_trace_ms(void);
/** Give what there is to @send, which finishes it. The trace ends when it was told to, or its time
 *  is over: then that is the last frame. */
void control_trace_serve(void *data, void (*send)(void *data, struct frame *frame));
/** Nobody reads any more. */
void control_trace_drop(void);

#endif
