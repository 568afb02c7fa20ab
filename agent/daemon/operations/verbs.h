#ifndef RESEAT_AGENT_DAEMON_OPERATIONS_VERBS_H
#define RESEAT_AGENT_DAEMON_OPERATIONS_VERBS_H

#include "agent/daemon/operations/operation.h"

/* What each verb of an operation does; and programs that spread launches over devices. */

/** For operations_init(). */
extern const struct operation_kind operation_kinds[OPERATION_VERBS];

/* ---- move, suspend, resume ---- */

void move_handle(struct peer *client, struct message *message);
void suspend_handle(struct peer *client, struct message *message);
void resume_handle(struct peer *client, struct message *message);

/**
 * Keep room for a move or a resume to @target (of the inventory).
 *
 * @op  Its program, virtual devices and dry_run are set; what is granted is added.
 * Returns 0, or -ENOSPC or -EBUSY (the device drains) with one line for the operator.
 */
MUST_CHECK int admit_request(struct agent *agent, struct operation *op,
                             const struct inventory_entry *target, char *ret_error, size_t size);
/** What follows from the end of one that moves a program, or suspends it. */
void admit_settle(struct agent *agent, const struct operation *op, const struct operation_end *end);
/** Whoever asked: the target is one where @end says that it failed. */
void admit_fail(struct agent *agent, const struct operation *op, const struct operation_end *end);

/**
 * A resume that finds no room now waits: its program queues, and its client is told of that, and
 * when it has a device.
 *
 * @only   The device of the ledger that it is to go to, or LEDGER_NONE: any.
 * @why    There is no room; one line.
 */
void resume_queue(const struct operation *wish, uint32_t only, const char *why);
/** The program queues, and no client waits for it. */
void resume_hand_back(struct peer *client, struct program *program, size_t vdev, unsigned vdevs,
                      uint32_t only);
/** Those of @vdevs that are suspended by now come back as soon as the program is there. */
void resume_later(struct agent *agent, struct program *program, unsigned vdevs);
/** The policy's operation @done ended so: settles the resume that waits for it as the last that it
 *  needs, and returns the client that is to have the report; or NULL. */
struct peer *resume_ends(struct agent *agent, const struct operation *done, const char *result);
void resume_cancel(struct agent *agent, struct operation *op, bool gone);
/** Another client cancels all that wait for @program. Returns whether any did. */
bool resume_cancel_program(struct agent *agent, const struct program *program);
void resume_expire(struct agent *agent, struct operation *op);
/** Settle those that wait for what has come, or cannot come any more. */
void resume_tick(struct agent *agent);
/** @program ended. */
void resume_forget(struct agent *agent, const struct program *program);

/* ---- prewarm: devices that programs are made ready for, ahead of a move that may come ---- */

void prewarm_handle(struct peer *client, struct message *message);
/** Have programs let go of devices that are not to be used, and keep up with what they build. */
void prewarm_tick(struct agent *agent);
/** True while a program that answers is ready for @device. */
bool prewarm_holds(const struct agent *agent, uint32_t device);
/** A step of the policy. False: nothing came of it. */
bool prewarm_do(struct agent *agent, struct program *program, const struct policy_step *step);
/** What @program is ready for, or is being made ready for, of the ledger; of several the one that
 *  the policy named last. LEDGER_NONE: nothing. */
uint32_t prewarm_device(const struct agent *agent, const struct program *program);
void prewarm_settle(struct agent *agent, const struct operation *op,
                    const struct operation_end *end);

/* ---- checkpoint, protect, trace ---- */

void checkpointing_handle(struct peer *client, struct message *message);
/** Have those made that are due. */
void checkpointing_tick(struct agent *agent);
void checkpointing_answered(struct agent *agent, const struct operation *op,
                            const msgpack_object *report);
/** "checkpoints" of an open map: what @program makes again and again. */
void checkpointing_put(const struct agent *agent, const struct program *program,
                       struct frame *frame);

void protecting_handle(struct peer *client, struct message *message);
/** Tell programs that say they are protected in another way than they are to be. */
void protecting_tick(struct agent *agent);
/** "protect" and "loss" of an open map: what @program says of that. */
void protecting_put(const struct agent *agent, const struct program *program, struct frame *frame);

void trace_handle(struct peer *client, struct message *message);
/** MSG_SPANS of a program go on to the client that traces it. */
void tracing_spans(struct peer *peer, struct message *message);
void tracing_cancel(struct agent *agent, struct operation *op, bool gone);
void tracing_expire(struct agent *agent, struct operation *op);
/** @program ended, or its connection did. */
void tracing_ends(struct agent *agent, const struct program *program);

/* ---- spread: programs whose long launches are done on other devices too ---- */

/**
 * The devices that the field @key of a client's request names; each once.
 *
 * Returns 0, or -ENODEV, -ENOTUNIQ, -EBUSY (one drains) or -E2BIG, with a line for the operator in
 * @ret_error.
 */
MUST_CHECK int spreading_read(const struct agent *agent, const msgpack_object *map, const char *key,
                              struct program_spread *ret_spread, char *ret_error,
                              size_t error_size);
void spreading_handle(struct peer *client, struct message *message);
/** Tell @program, if it is connected, where its launches may be done now. */
void spreading_tell(const struct agent *agent, struct program *program);
/** Tell programs what has changed of that: devices drain, fill up, and come back. */
void spreading_tick(struct agent *agent);
/** "spread" of an open map: the names of the devices that @program may use now. */
void spreading_put_names(const struct agent *agent, const struct program *program,
                         struct frame *frame);

#endif
