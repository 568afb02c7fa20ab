#ifndef RESEAT_AGENT_DAEMON_OPERATIONS_DRAINS_H
#define RESEAT_AGENT_DAEMON_OPERATIONS_DRAINS_H

#include "agent/daemon/operations/operation.h"
#include "agent/daemon/servers/servers.h"

/* Devices that programs leave, and that take no new ones: drained, lost, or of a server that goes;
 * and rebalancing, whose client is told of its steps as that of a drain is. */

/*
 * Drains: an operator wants a device empty, now or at a time that programs are told of, so that
 * they can finish what they do there. Until then no new program comes, and one that says that now
 * is a good time leaves. Kept with the limits.
 */

void drain_handle(struct peer *client, struct message *message);
/** Drains that were announced and whose time has come. */
void drain_tick(struct agent *agent);
/** Tell a program of what was announced before it could be told. */
void drain_notify(const struct agent *agent, const struct program *program);
/** Why @program is not moved off the device that it is on. */
const char *drain_stay_reason(const struct agent *agent, const struct program *program);
/** True where @program said, since the drain was announced, that now is a good time to leave. */
bool drain_leaves(const struct agent *agent, const struct program *program, uint32_t device);
/**
 * True for a device that takes no new program, because an operator wants it empty, now or soon.
 *
 * @ret_reason  One line for the operator; untouched where it takes programs.
 */
bool drain_refuses(const struct agent *agent, const char *name, char *ret_reason, size_t size);

void rebalance_handle(struct peer *client, struct message *message);
/** Begin a step that makes things better. False: there is none. */
bool rebalance_step(struct agent *agent);

/** Steps of one rebalance, at most. */
#define BALANCE_MAX 256

/** @client waits for a drain of @device to end, or for a rebalance. */
void followers_add(struct peer *client, enum operation_verb verb, uint32_t device);
/** An operation of the policy ended so: those that it belongs to are told. */
void followers_step(struct agent *agent, const struct operation *op, const char *result,
                    const char *reason);
/** The drain of @device was undone: who waits for it is told. */
void followers_undone(struct agent *agent, uint32_t device);
/** End what is done, and begin the next step of a rebalance. */
void followers_tick(struct agent *agent);
void followers_cancel(struct agent *agent, struct operation *op, bool gone);

/* Devices that programs lost, which no program is sent to until they answer; and protected programs
 * that wait for another one, which the policy finds. */

/** A status of @program was read. @before: its virtual device as it was before; @device: of the
 *  ledger, where that was. */
void losses_note(struct agent *agent, struct program *program, uint32_t index,
                 const struct program_device *before, uint32_t device);
/** @program has arrived. True where it said before that it lost that device as well, while it was
 * told to be there: it waits for another one, and stays marked as lost. */
bool losses_again(struct agent *agent, struct program *program, uint32_t index);
/** A program came to the device, or failed to. */
void losses_arrived(struct agent *agent, uint32_t device);
void losses_failed(struct agent *agent, uint32_t device);
/** The list of devices was made anew, or that failed. */
void losses_listed(struct agent *agent);
/** The policy has run: a lost device that a program still waits for is asked for the first time at
 *  once. */
void losses_hurry(struct agent *agent);
void losses_tick(struct agent *agent);

/* Device servers, as programs and operators see them come and go. */

/** events.server_changed: programs that are on its devices are told, and the log is. */
void serving_changed(struct agent *agent, struct server *server);
/** @program ended: where it was on a server's device, that server is looked at. */
void serving_ended(struct agent *agent, const struct program *program);
/** events.server_leaves: its devices drain, and it is removed when no program is on them any more;
 *  or not (@leaves false). */
void serving_leaves(struct agent *agent, struct server *server, bool leaves);
/** Remove those that are to go and that no program is on. */
void serving_tick(struct agent *agent);
void server_handle(struct peer *client, struct message *message);

#endif
