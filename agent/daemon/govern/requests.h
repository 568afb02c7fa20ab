#ifndef RESEAT_AGENT_DAEMON_GOVERN_REQUESTS_H
#define RESEAT_AGENT_DAEMON_GOVERN_REQUESTS_H

#include "agent/daemon/agent.h"
#include "policy/decide.h"

/** A move, suspend or resume, of a client or of ours, that a program has not answered yet. */
struct request {
    struct request *next;
    uint64_t id;
    struct peer *client; /**< NULL: gone; the request is canceled, its answer unwanted. */
    struct program *program;
    unsigned seats;  /**< Of the program that it is for, as bits. */
    uint32_t target; /**< Device of the ledger; LEDGER_NONE: host memory, or not known. */
    uint64_t grants[PROTOCOL_SEATS_MAX]; /**< Bytes kept there for each seat. */
    size_t seat;                         /**< PROGRAM_ALL_SEATS, or the one of `seats`. */
    unsigned tries;                      /**< How often the program said RESULT_AGAIN. */
    uint64_t deadline_ns;                /**< CLOCK_MONOTONIC; 0: none. */
    bool chosen;                         /**< An operator named the device. */
    bool ours;                           /**< The policy asks, and no client is told. */
    bool dry_run;
    char why[POLICY_REASON]; /**< Of one of ours: the policy's reason. */
    bool taken;              /**< The device goes away, whether the program helps or not. */
    char verb[16];
    char from[160], to[160]; /**< Device names, one for each seat that it is for; "" for host
                                  memory. */
    uint64_t expires_ms;     /**< uv_now() when to stop waiting; 0: never. */
};

/**
 * Ask a connected program.
 *
 * @wish    Copied; verb, program, seats and seat are set, and what else is known.
 * @target  NULL: where it was, or host memory.
 * @timeout_ms  0: none.
 * Returns 0 or -ENOMEM.
 */
MUST_CHECK int requests_begin(struct agent *agent, const struct request *wish,
                              const struct inventory_entry *target, uint64_t timeout_ms);
/** The client wants its request canceled, or is gone. */
void requests_cancel(struct peer *client, bool gone);
/** The program sent MSG_PROGRESS or MSG_REPORT. */
void requests_progress(struct peer *peer, struct message *message);
void requests_report(struct peer *peer, struct message *message);
/** The program can answer no more: it ended, or closed its connection. */
void requests_fail(struct agent *agent, struct program *program, bool ended);
/** Cancel what a connected program is asked: it does not answer. */
void requests_give_up(struct agent *agent, struct program *program);
/** Stop waiting for programs whose deadline is well past. */
void requests_sweep(struct agent *agent);
void requests_finish(struct agent *agent);

#endif
