#ifndef RESEAT_AGENT_DAEMON_OPERATIONS_VERBS_H
#define RESEAT_AGENT_DAEMON_OPERATIONS_VERBS_H

#include "agent/daemon/operations/operation.h"
#include "agent/daemon/servers/servers.h"

/*
 * The implementation of each verb of an operation, of launches that run on several devices, and of
 * what empties devices without a request: losses, and servers that are removed.
 */

/* move, suspend, resume */

void moving_handle(struct peer *client, struct message *message);

/**
 * Reserve memory for a move or a resume to @target (of the inventory).
 *
 * @op  Its program, virtual devices and dry_run are set; the function adds the grants.
 * Returns 0, or -ENOSPC or -EBUSY (the device drains) with one line for the operator.
 */
MUST_CHECK int admit_request(struct agent *agent, struct operation *op,
                             const struct inventory_entry *target, char *ret_error, size_t size);
/** Apply the consequences of the end of an operation that moves or suspends a program. */
void admit_settle(struct agent *agent, const struct operation *op, const struct operation_end *end);
/** Exclude the target where @end says that it failed there, whoever asked. */
void admit_fail(struct agent *agent, const struct operation *op, const struct operation_end *end);

/**
 * Let a resume wait that finds no free memory: its program queues, and its client is told so, and
 * is told again when the program has a device.
 *
 * @only   The device of the ledger to which it is to go, or LEDGER_NONE: any.
 * @why    Why there is no memory; one line.
 */
void resume_queue(const struct operation *wish, uint32_t only, const char *why);
/** Let the program queue without a client that waits for it. */
void resume_hand_back(struct peer *client, struct program *program, size_t vdev, unsigned vdevs,
                      uint32_t only);
/**
 * Let those virtual devices of @program queue that are suspended.
 *
 * @only  As in resume_queue().
 * Returns, as bits, those that did not queue before.
 */
unsigned resume_later(struct agent *agent, struct program *program, unsigned vdevs, uint32_t only);
/**
 * The policy's operation @done has ended. Where it is the last that a waiting resume needs, settle
 * the resume and return the client that gets the report; otherwise NULL.
 */
struct peer *resume_ends(struct agent *agent, const struct operation *done, const char *result);
void resume_cancel(struct agent *agent, struct operation *op, bool gone);
/** Cancel, for another client, all resumes that wait for @program. True: there were any. */
bool resume_cancel_program(struct agent *agent, const struct program *program);
void resume_expire(struct agent *agent, struct operation *op);
/** Settle the waiting resumes that have succeeded or can no longer succeed. */
void resume_tick(struct agent *agent);
/** @program ended: drop its waiting resumes. */
void resume_forget(struct agent *agent, const struct program *program);

/* prewarm: devices that are made ready for programs before a possible move */

void prewarm_handle(struct peer *client, struct message *message);
/** Have a program release a device that it may not use, or build new kernels on one. */
void prewarm_look(struct agent *agent, struct program *program);
/** True while @device is ready for a connected program. */
bool prewarm_holds(const struct agent *agent, uint32_t device);
/** Carry out the policy's step. False: it had no effect. */
bool prewarm_do(struct agent *agent, struct program *program, const struct policy_step *step);
/** The device ready or being made ready; of several the policy's last. LEDGER_NONE: none. */
uint32_t prewarm_device(const struct agent *agent, const struct program *program);
void prewarm_settle(struct agent *agent, const struct operation *op,
                    const struct operation_end *end);

/* checkpoint, protect, trace */

void checkpointing_handle(struct peer *client, struct message *message);
/** Start the periodic image that is due. */
void checkpointing_look(struct agent *agent, struct program *program);
void checkpointing_answered(struct agent *agent, const struct operation *op,
                            const msgpack_object *report);

void protecting_handle(struct peer *client, struct message *message);
/** Tell a program that reports another protection than it is to have. */
void protecting_look(struct agent *agent, struct program *program);

void trace_handle(struct peer *client, struct message *message);
/** Forward a program's MSG_SPANS to the client that traces it. */
void tracing_spans(struct peer *peer, struct message *message);
void tracing_cancel(struct agent *agent, struct operation *op, bool gone);
void tracing_expire(struct agent *agent, struct operation *op);
/** @program ended, or its connection did: end its traces. */
void tracing_ends(struct agent *agent, const struct program *program);

/* wait: clients that wait for a state of a program or a device */

void waiting_handle(struct peer *client, struct message *message);
/** Answer the clients for which the state has come. */
void waiting_tick(struct agent *agent);
/** @program ended: answer who waits for it. */
void waiting_ends(struct agent *agent, const struct program *program);
void waiting_cancel(struct agent *agent, struct operation *op, bool gone);
void waiting_expire(struct agent *agent, struct operation *op);

/* spread: programs whose long launches also run on other devices */

/**
 * Read the devices that the field @key of a client's request names, without duplicates; "free"
 * alone: those that nobody uses.
 *
 * Returns 0, or -ENODEV, -ENOTUNIQ, -EBUSY (one drains) or -E2BIG, with a line for the operator in
 * @ret_error.
 */
MUST_CHECK int spreading_read(struct agent *agent, const msgpack_object *map, const char *key,
                              struct program_spread *ret_spread, char *ret_error,
                              size_t error_size);
void spreading_handle(struct peer *client, struct message *message);
/** Tell @program, if it is connected, which devices its launches may use now. */
void spreading_tell(const struct agent *agent, struct program *program);
/** Tell a program of changes to these devices: one drains, is full, or is available again. */
void spreading_look(struct agent *agent, struct program *program);
/** Give free devices to the programs that may use them, and take back those that are not free. */
void spreading_share(struct agent *agent);
/** Put "spread" (the devices that @program may use now) and "spread_free" into an open map. */
void spreading_put_names(const struct agent *agent, const struct program *program,
                         struct frame *frame);

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

/** Let @client wait for a drain of @device or a rebalance; @timeout_ms 0: any time. */
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
/** The policy has run: query lost devices for which a program still waits at once. */
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
