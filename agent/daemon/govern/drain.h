#ifndef RESEAT_AGENT_DAEMON_GOVERN_DRAIN_H
#define RESEAT_AGENT_DAEMON_GOVERN_DRAIN_H

#include "agent/daemon/programs/registry.h"

/*
 * Devices that an operator wants empty: now, or at a time that programs are told of, so that they
 * can be done with what they do there. Until then no new program comes, and who says that now is a
 * good time leaves. Kept with the limits.
 */

/** MSG_DRAIN of a client. */
void drain_handle(struct peer *client, struct message *message);
/** Drains that were announced and whose time has come. */
void drain_tick(struct agent *agent);
/** Tell a program of what was announced before it could be told. */
void drain_notify(const struct agent *agent, const struct program *program);
/** True where @program said, since the drain was announced, that now is a good time to leave. */
bool drain_leaves(const struct agent *agent, const struct program *program, uint32_t device);
/**
 * True for a device that takes no new program, because an operator wants it empty, now or soon.
 *
 * @ret_reason  One line for the operator; untouched where it takes programs.
 */
bool drain_refuses(const struct agent *agent, const char *name, char *ret_reason, size_t size);

#endif
