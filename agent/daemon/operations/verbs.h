#ifndef RESEAT_AGENT_DAEMON_OPERATIONS_VERBS_H
#define RESEAT_AGENT_DAEMON_OPERATIONS_VERBS_H

#include "agent/daemon/operations/operation.h"

/* The implementation of each verb of an operation, and of launches that run on several devices. */

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
/**
 * Exclude the target where @end says that it failed there, for operators' and the policy's
 * operations.
 */
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
/** Resume those of @vdevs that are suspended as soon as the program is connected. */
void resume_later(struct agent *agent, struct program *program, unsigned vdevs);
/**
 * The policy's operation @done has ended. Where it is the last that a waiting resume needs, settle
 * the resume and return the client that gets the report; otherwise NULL.
 */
struct peer *resume_ends(struct agent *agent, const struct operation *done, const char *result);
void resume_cancel(struct agent *agent, struct operation *op, bool gone);
/**
 * Cancel, for another client, all resumes that wait for @program. Returns whether there were any.
 */
bool resume_cancel_program(struct agent *agent, const struct program *program);
void resume_expire(struct agent *agent, struct operation *op);
/** Settle the waiting resumes that have succeeded or can no longer succeed. */
void resume_tick(struct agent *agent);
/** @program ended: drop its waiting resumes. */
void resume_forget(struct agent *agent, const struct program *program);

/* prewarm: devices that are made ready for programs before a possible move */

void prewarm_handle(struct peer *client, struct message *message);
/**
 * Ask a program to release a device that may not be used, or to build its new kernels on another.
 */
void prewarm_look(struct agent *agent, struct program *program);
/** True while @device is ready for a connected program. */
bool prewarm_holds(const struct agent *agent, uint32_t device);
/** Carry out the policy's step. False: it had no effect. */
bool prewarm_do(struct agent *agent, struct program *program, const struct policy_step *step);
/**
 * The device of the ledger that is ready, or being made ready, for @program; of several, the one
 * that the policy chose last. LEDGER_NONE: none.
 */
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
/**
 * Put "spread", the names of the devices that @program may use now, and "spread_free" into an open
 * map.
 */
void spreading_put_names(const struct agent *agent, const struct program *program,
                         struct frame *frame);

#endif
