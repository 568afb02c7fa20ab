#ifndef RESEAT_AGENT_DAEMON_OPERATIONS_OPERATION_H
#define RESEAT_AGENT_DAEMON_OPERATIONS_OPERATION_H

#include "agent/daemon/clients.h"
#include "agent/daemon/devices/device_list.h"
#include "agent/protocol/request.h"

/*
 * Operations: what a client or the policy wants of a program, or an operator of a device, from the
 * time the agent takes it until it has ended. All are in agent->operations.
 *
 *            ┌────────── the program has more memory than the agent knew ──────────┐
 *            ↓                                                                     │
 *   WAITING ───── operation_begin() asks the program ──────────────────────────→ SENT
 *      └─────────→ SETTLED ←─── answer, deadline, no answer, the program ended ────┘
 *
 * An answer, an expiry or a cancellation of what is settled is of nobody: it finds no operation.
 */

/* Sets of verbs, as bits. */
#define OPERATION_BIT(verb) (1u << (verb))
#define OPERATIONS_ALL      (OPERATION_BIT(REQUEST_VERBS) - 1)
/** Verbs that a program answers with MSG_REPORT. */
#define OPERATIONS_REPORTED (OPERATION_BIT(REQUEST_TRACE) - 1)
/** Verbs whose client is told of each step of the policy that belongs to the operation. */
#define OPERATIONS_FOLLOWED (OPERATION_BIT(REQUEST_DRAIN) | OPERATION_BIT(REQUEST_BALANCE))

enum operation_state {
    OPERATION_WAITING, /**< It is new, or waits for memory or for other operations. */
    OPERATION_SENT,    /**< The program was asked and has not answered. */
    OPERATION_SETTLED, /**< It has ended, and is in no list. */
};

/** The progress of an operation, as the program last reported it. */
struct request_progress {
    char phase[16];         /**< "": not reported yet. */
    uint64_t done, total;   /**< Bytes to be copied. */
    uint64_t builds, built; /**< Programs to be built. */
    char building[64];      /**< A kernel of the program that is being built, or "". */
    uint64_t round;
};

struct operation {
    struct operation *next;
    enum request_verb verb;
    enum operation_state state; /**< Changed only by operation_enter(). */
    /** The client's request, completed to the request that the program gets. */
    struct request asked;
    /** The client that gets the answer; NULL: the policy asked, or the client does not wait. */
    struct peer *client;
    struct program *program; /**< NULL for a drain, a rebalance, or a wait for a device. */
    /** Of a wait: what it waits for. */
    const struct wait_condition *condition;
    unsigned vdevs; /**< Bits: the program's virtual devices that the operation is for. */
    /** Ledger index of the target or drained device; LEDGER_NONE: host memory or unknown. */
    uint32_t target;
    /** Bytes reserved on the target for each virtual device. */
    uint64_t grants[PROTOCOL_VDEVS_MAX];
    size_t vdev;    /**< PROGRAM_ALL_VDEVS, or the one of `vdevs`. */
    pid_t by_pid;   /**< The client's process, also when it has disconnected; 0: none. */
    uid_t by_uid;   /**< Its user. */
    unsigned tries; /**< How often the program answered RESULT_AGAIN. */
    bool chosen;    /**< An operator named the device. */
    bool ours;      /**< The policy asked; no client is answered. */
    unsigned ran;   /**< Bits: virtual devices that were not suspended before. */
    /** Of a resume that waits: the virtual devices that queue only because of it. */
    unsigned queued;
    /** Of a drain or a rebalance: number of steps that succeeded and that failed. */
    unsigned done, failed;
    char why[POLICY_REASON]; /**< The policy's reason, for an operation of the policy. */
    struct request_progress progress;
    /** Device names, one for each virtual device of the operation; "" for host memory. */
    char from[PROTOCOL_TEXT_MAX], to[PROTOCOL_TEXT_MAX];
    /** For an operation of the policy: the time for which the policy does not reverse it. */
    uint64_t payback_s;
    uint64_t begun_ms;   /**< uv_now() when the program was first asked. */
    uint64_t expires_ms; /**< uv_now() when it expires; 0: never. */
};

/** How an operation ended. */
struct operation_end {
    unsigned moved;     /**< Bits: the virtual devices that are now where they should be. */
    const char *result; /**< RESULT_... */
    const char *reason;
    bool lasting; /**< It would fail there again until the program's objects change. */
};

/** The type of the operation's message: "move". */
static inline const char *operation_name(const struct operation *op)
{
    return request_verbs[op->verb];
}

/** True for operations that do not move the program. */
static inline bool operation_stays(const struct operation *op)
{
    return op->asked.dry_run || op->verb == REQUEST_PREWARM ||
           (op->verb == REQUEST_CHECKPOINT && !op->asked.parks) || op->verb == REQUEST_PROTECT;
}

/* ---- its life: operation.c ---- */

/** The functions of one verb. A function that is NULL does nothing. */
struct operation_kind {
    /** The client cancels the operation. @gone: because it closed its connection. */
    void (*cancel)(struct agent *agent, struct operation *op, bool gone);
    /** The deadline has passed: settle the operation. */
    void (*expire)(struct agent *agent, struct operation *op);
    /** The program has answered with @report. The caller settles the operation afterwards. */
    void (*answered)(struct agent *agent, const struct operation *op, const msgpack_object *report);
    /** The consequences of the operation's end. */
    void (*settle)(struct agent *agent, const struct operation *op,
                   const struct operation_end *end);
    /** Begin the operation's next step. False: there is none. */
    bool (*next)(struct agent *agent);
};
/**
 * Must be called before any other function here.
 *
 * @kinds  One for each verb; must stay valid as long as the process runs.
 */
void operations_init(const struct operation_kind *kinds);

/**
 * A new operation that is in no list yet. The caller completes it and passes it to
 * operation_begin(), operation_add() or operation_follow().
 *
 * @program  NULL: the operation is of a device.
 * @vdev    One of the program's, or PROGRAM_ALL_VDEVS.
 * @client  NULL: the policy asks.
 */
struct operation operation_of(struct program *program, enum request_verb verb, size_t vdev,
                              struct peer *client);
/**
 * Add a copy of @wish in the state OPERATION_WAITING, which expires after its timeout, if it has
 * one. NULL: no memory; its client was told.
 */
struct operation *operation_add(struct agent *agent, const struct operation *wish);
/** As operation_add(), of a client that follows one operation of these verbs at a time. */
struct operation *operation_follow(struct agent *agent, const struct operation *wish,
                                   unsigned verb_bits);
/**
 * Change the state, and note the event that the program was asked. Returns false and changes
 * nothing where the new state cannot follow the present one.
 */
bool operation_enter(struct agent *agent, struct operation *op, enum operation_state state);
/**
 * Note an event of the operation, unless it is a dry run.
 *
 * @state  As struct event has it.
 */
void operation_note(struct agent *agent, const struct operation *op, const char *state,
                    const char *reason);
/** The program answered with @report: call the verb's function, before settling. */
void operation_answered(struct agent *agent, const struct operation *op,
                        const msgpack_object *report);
/**
 * End the operation: remove it from the list, apply the consequences of its end, and free it.
 *
 * @end  NULL: no consequences.
 */
void operation_settle(struct agent *agent, struct operation *op, const struct operation_end *end);
/** Apply only an end's consequences, for an operation never added or to be sent again. */
void operation_release(struct agent *agent, const struct operation *op,
                       const struct operation_end *end);

/** Begin the next step of an operation that the policy does in steps. False: there is none. */
bool operation_next(struct agent *agent, const struct operation *op);

/** An unanswered operation of @program with one of these verbs; or NULL. */
struct operation *operation_sent(const struct agent *agent, const struct program *program,
                                 unsigned verb_bits);
/** True when @program was asked for a change of its device and has not answered. */
bool operation_moves(const struct agent *agent, const struct program *program);
/** Cancel @client's operations with these verbs. @gone: it disconnected, gets no answer. */
void operations_cancel(struct peer *client, unsigned verb_bits, bool gone);
/** End the operations whose deadline has passed. All deadlines of operations are checked here. */
void operations_expire(struct agent *agent);
void operations_finish(struct agent *agent);

/* ---- what is asked of programs, and what they answer: asking.c ---- */

/** Read a client's request for the verb of @op, without fields reserved to the agent. */
void operation_take(const msgpack_object *map, struct operation *op);
/**
 * Ask a connected program.
 *
 * @wish    Copied.
 * @target  NULL: the previous device, or host memory.
 * Returns 0, or -ENOMEM; the client was told.
 */
int operation_begin(struct agent *agent, const struct operation *wish,
                    const struct inventory_entry *target);
/** Ask the program to cancel the operation. The program's answer ends it. */
void asking_cancel(struct agent *agent, struct operation *op, bool gone);
void asking_expire(struct agent *agent, struct operation *op);
/** Cancel what moves @program, whoever asked for it. False: nothing does. */
bool asking_cancel_program(struct agent *agent, const struct program *program);
/**
 * Change the bandwidth and the maximum downtime of the move, suspend or resume of @program that
 * is under way, whoever asked for it.
 *
 * @asked  Only these two are used; 0: leave it as it is.
 * Returns 0, -ENOENT (there is none) or -EALREADY (nothing is left to copy).
 */
MUST_CHECK int asking_adjust(struct agent *agent, const struct program *program,
                             const struct request *asked);
/** The program can no longer answer: it ended, or closed its connection. */
void asking_unreachable(struct agent *agent, struct program *program, bool ended);
/** Handle MSG_PROGRESS or MSG_REPORT from a program. */
void asking_progress(struct peer *peer, struct message *message);
void asking_report(struct peer *peer, struct message *message);
/** What moves @program to another device, or prepares one; or NULL. */
const struct operation *asking_moving(const struct agent *agent, const struct program *program);

/** @program sent a message of any type. */
void liveness_heard(struct agent *agent, struct program *program);
/** Each second: query a program that owes an answer, give up one silent for long. */
void liveness_look(struct agent *agent, struct program *program);

/* ---- what clients are told: MSG_REPORT ---- */

/** Put "app": the identity of the program. */
void report_put_program(struct frame *frame, const struct program *program);
/**
 * Report to @client on a request that did not need the program.
 *
 * @from, @to  Device names.
 * @result     RESULT_...
 * @already    The program was already there.
 */
void report_plain(struct peer *client, const struct program *program, const char *from,
                  const char *to, const char *result, bool already);
/** As report_plain(), with the devices of @vdev or of PROGRAM_ALL_VDEVS. */
void report_devices(struct peer *client, const struct program *program, size_t vdev,
                    const char *result, bool already);
/** Forward to @client the program's report on @op. */
void report_forward(struct peer *client, const struct operation *op, const msgpack_object *message);

#endif
