#ifndef RESEAT_AGENT_DAEMON_OPERATIONS_DRAINS_H
#define RESEAT_AGENT_DAEMON_OPERATIONS_DRAINS_H

#include "agent/daemon/operations/operation.h"
#include "agent/daemon/servers/servers.h"

/*
 * Devices that programs leave and to which no new program comes: drained devices, lost devices, and
 * those of a server that is to be removed. Also rebalancing, whose client follows its steps as the
 * client of a drain does.
 */

/*
 * Drains: an operator wants a device empty, now or at an announced time, so that programs can
 * finish their work there. Until then no new program comes, and a program leaves early when it
 * reports a good time for it. Drains are stored with the limits.
 */

/** Begin or undo a drain of @device for @client, as it asked. */
void drain_request(struct peer *client, uint32_t device, const struct request *asked);
/** Begin the announced drains whose time has come. */
void drain_tick(struct agent *agent);
/** Tell a program of drains that were announced before it could be told. */
void drain_notify(const struct agent *agent, const struct program *program);
/** The reason why @program is not moved off its device. */
const char *drain_stay_reason(const struct agent *agent, const struct program *program);
/** True where @program has reported a good time to leave since the drain was announced. */
bool drain_leaves(const struct agent *agent, const struct program *program, uint32_t device);
/**
 * True for a device to which no new program may come, because of a drain, begun or announced.
 *
 * @ret_reason  One line for the operator; untouched where the device accepts programs.
 */
bool drain_refuses(const struct agent *agent, const char *name, char *ret_reason, size_t size);

/** A client's drain or rebalance; with "dry_run" it is only told the steps. */
void rebalance_handle(struct peer *client, struct message *message);
/** Begin a step that improves the distribution. False: there is none. */
bool rebalance_step(struct agent *agent);

/** The most steps of one rebalance. */
#define BALANCE_MAX 256

/**
 * Let @client wait for the end of a drain of @device, or of a rebalance; for @timeout_ms, or with 0
 * for any time.
 */
void followers_add(struct peer *client, enum request_verb verb, uint32_t device,
                   uint64_t timeout_ms);
/** A step of the policy as a client is told of it. */
struct followed_step {
    const struct program *program;
    const char *from, *to; /**< Names of devices, or "". */
    const char *result;    /**< RESULT_..., or "" of a step that is not done. */
    const char *reason;
};
void followers_tell(struct peer *client, const struct followed_step *step);
/** An operation of the policy has ended: tell the clients that follow it. */
void followers_step(struct agent *agent, const struct operation *op, const char *result,
                    const char *reason);
/** Answer a drain or a rebalance @op. @drained: the device takes no programs any more. */
void followers_answer(struct peer *client, const struct operation *op, bool drained);
/** The drain of @device was cancelled: tell the clients that wait for it. */
void followers_undone(struct agent *agent, uint32_t device);
/** End the operations that are complete, and begin the next step of a rebalance. */
void followers_tick(struct agent *agent);
void followers_cancel(struct agent *agent, struct operation *op, bool gone);
void followers_expire(struct agent *agent, struct operation *op);

/*
 * Devices that programs lost, to which no program is sent until they answer; and protected programs
 * that wait for another device, which the policy selects.
 */

/**
 * A status of @program was read. @was_lost, @sought: whether the virtual device was lost, and
 * waited for another device, before that. @device: its device then, in the ledger.
 */
void losses_note(struct agent *agent, struct program *program, uint32_t index, bool was_lost,
                 bool sought, uint32_t device);
/**
 * @program has arrived. True where it already reported that it lost this device too, while it was
 *       told to be there: it waits for another one and stays marked as lost.
 */
bool losses_again(struct agent *agent, struct program *program, uint32_t index);
/** A program came to the device, or failed to. */
void losses_arrived(struct agent *agent, uint32_t device);
void losses_failed(struct agent *agent, uint32_t device);
/** A listing of the devices has ended, successfully or not. */
void losses_listed(struct agent *agent);
/**
 * The policy has run: a lost device for which a program still waits gets its first query at once.
 */
void losses_hurry(struct agent *agent);
void losses_tick(struct agent *agent);

/* The state of device servers, reported to programs and operators. */

/** events.server_changed: tell the programs on the server's devices, and log the change. */
void serving_changed(struct agent *agent, struct server *server);
/** @program ended: where it was on a server's device, have that server probed. */
void serving_ended(struct agent *agent, const struct program *program);
/**
 * events.server_leaves: drain the server's devices, and remove the server when no program is on
 * them any more. @leaves false: cancel that.
 */
void serving_leaves(struct agent *agent, struct server *server, bool leaves);
/** Remove the servers that are to be removed and whose devices have no programs. */
void serving_tick(struct agent *agent);
void server_handle(struct peer *client, struct message *message);
/** True for a MSG_SERVER that does not only list servers. */
bool server_changes(struct peer *client, const msgpack_object *map);

#endif
