#ifndef RESEAT_AGENT_DAEMON_GOVERN_GRANTS_H
#define RESEAT_AGENT_DAEMON_GOVERN_GRANTS_H

#include "agent/daemon/programs/registry.h"

/* Bytes of device memory that programs are granted, and what they give back of them. */

/** MSG_GRANT, and so much more in the account of @seat. */
void grants_add(struct agent *agent, struct program *program, uint32_t seat, uint64_t bytes);
/** MSG_SHRINK: @seat is to keep to @bytes in all, and has so long to say what it gives. @trims:
 *  it is asked only for what it does not use. */
void grants_shrink(struct agent *agent, struct program *program, uint32_t seat, uint64_t bytes,
                   uint64_t patience_ms, bool trims);
/** A shrink whose time is over: nothing came back. A program that withheld may be asked again. */
void grants_tick(struct agent *agent);
/** MSG_RETURN. */
void grants_return(struct peer *peer, struct message *message);

#endif
