#ifndef RESEAT_AGENT_DAEMON_GOVERN_GOVERN_H
#define RESEAT_AGENT_DAEMON_GOVERN_GOVERN_H

#include "agent/daemon/agent.h"
#include "agent/daemon/devices/ledger.h"

/*
 * The agent's side of policy: tells it the world (devices, programs, who waits), and has done what
 * it decides. What happens is told to the functions here; govern_run() then does what follows.
 */

struct program;
struct program_device;
struct request;

/** Reads the operator's limits. The configuration is there. Returns 0 or -ENOMEM. */
MUST_CHECK int govern_init(struct agent *agent);
void govern_finish(struct agent *agent);

/* ---- what happens ---- */

/** A program is known; it has accounts from now on, until govern_forget(). */
void govern_know(struct agent *agent, struct program *program);
/** It has its name: what the configuration says of that holds, where nobody says otherwise. */
void govern_named(struct agent *agent, struct program *program);
/** The same once more, as the configuration is now. */
void govern_configure(struct agent *agent, struct program *program);
/** What a later agent has to know of its place in the queue. */
void govern_put_queued(const struct agent *agent, const struct program *program,
                       struct frame *frame);
/** An earlier agent may have had it queue: it keeps its place. Before it connects. */
void govern_take_queued(struct agent *agent, struct program *program, const msgpack_object *map);
void govern_forget(struct agent *agent, struct program *program);
/** It connected. @first: as never before. Fields go into the open welcome. */
void govern_welcome(struct agent *agent, struct program *program, bool first,
                    const msgpack_object *hello, struct frame *welcome);
/** What it said of its seats has been read. */
void govern_status(struct agent *agent, struct program *program);
/** Its connection ended; it asks again what it waited for. */
void govern_lost(struct agent *agent, struct program *program);
/** It does not answer any more, or does again. */
void govern_liveness(struct agent *agent, struct program *program);
/** Its index in the ledger, or LEDGER_NONE without memory for it. */
uint32_t govern_index(const struct agent *agent, const struct inventory_entry *entry);
/** The device of an account by its name in the inventory; NULL: not listed. */
const struct inventory_entry *govern_entry(const struct agent *agent, uint32_t device);
/** Bytes that it has, on its device and in host memory, as last heard. */
uint64_t govern_wanted(const struct program_device *seat);
/** It is welcome, and was told so. */
void govern_greeted(struct agent *agent, const struct program *program);
/** MSG_WISH. */
void govern_wish(struct agent *agent, struct program *program, const msgpack_object *message);
/** MSG_NEED and MSG_RETURN; false: it is none of these. */
bool govern_message(struct agent *agent, struct program *program, const msgpack_object *message);
/** The list of devices is another. */
void govern_devices(struct agent *agent);
/** The configuration is another: for devices, and for programs that run. */
void govern_reloaded(struct agent *agent);

/** Do what follows from all that happened. */
void govern_run(struct agent *agent);
/** The same for what follows from time. Called a few times a second. */
void govern_tick(struct agent *agent);

/* ---- requests of operators and of ours ---- */

/**
 * Keep room for a move or a resume to @target (of the inventory).
 *
 * @request  Its program, seats and dry_run are set; what is granted is added.
 * Returns 0, or -ENOSPC or -EBUSY (the device drains) with one line for the operator.
 */
MUST_CHECK int govern_admit(struct agent *agent, struct request *request,
                            const struct inventory_entry *target, char *ret_error, size_t size);
/**
 * A request ended, however that was, and is not in agent->requests any more.
 *
 * @moved    The seats, as bits, that are where they should be.
 * @result   RESULT_...
 * @lasting  It would fail there again for as long as the program has what it has.
 */
void govern_settle(struct agent *agent, const struct request *request, unsigned moved,
                   const char *result, const char *reason, bool lasting);

/**
 * A resume that finds no room now: the program queues, and @client is told when it has a device.
 *
 * @seats  Of those the ones that are suspended.
 * @only   The device of the ledger that it is to go to, or LEDGER_NONE: any.
 * @why    There is no room; one line.
 */
void resume_queue(struct peer *client, struct program *program, size_t seat, unsigned seats,
                  uint32_t only, uint64_t timeout_ms, const char *why);
/** The same, where nobody waits for it. */
void resume_hand_back(struct peer *client, struct program *program, size_t seat, unsigned seats,
                      uint32_t only);
/** Who is to be told that @request of ours ended so, as the last that it waited for; or NULL. */
struct peer *resume_ends(struct agent *agent, const struct request *request, const char *result);
/** Who waits does not any more; @gone: nor is told. */
void resume_cancel(struct agent *agent, const struct peer *client, bool gone);

/* ---- what clients ask ---- */

/** MSG_LIMIT, MSG_DRAIN, MSG_BALANCE, MSG_EXPLAIN, MSG_USE; false: it is none of these. */
bool govern_client(struct peer *client, struct message *message);
/** A client is gone. */
void govern_client_gone(struct agent *agent, const struct peer *client);

/**
 * Where the virtual devices of a new program start: as device_place(), but by what is in use, and
 * -EBUSY where one that is named drains. Where all drain it is as if none did.
 */
MUST_CHECK int govern_place(struct agent *agent, const struct device_wish *wish,
                            const struct inventory_entry **ret_entries, char *ret_error,
                            size_t error_size);
/**
 * True for a device that takes no new program, because an operator wants it empty, now or soon.
 *
 * @ret_reason  One line for the operator; untouched where it takes programs.
 */
bool govern_drains(const struct agent *agent, const char *name, char *ret_reason, size_t size);

/** The ledger's fields of a device and of a program's seat, into an open map. */
void govern_describe_device(const struct agent *agent, const char *name, struct frame *frame);
void govern_describe_program(const struct agent *agent, const struct program *program,
                             struct frame *frame);

#endif
