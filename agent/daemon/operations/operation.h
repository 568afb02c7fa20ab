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

enum operation_verb {
    OPERATION_MOVE,
    OPERATION_SUSPEND,
    OPERATION_RESUME,
    OPERATION_PREWARM,
    OPERATION_CHECKPOINT,
    OPERATION_PROTECT,
    OPERATION_TRACE,
    OPERATION_DRAIN,   /**< Of a device; its program is NULL, as of a rebalance. */
    OPERATION_BALANCE, /**< Both wait for operations of the policy. */
    OPERATION_VERBS
};

/* Sets of verbs, as bits. */
#define OPERATION_BIT(verb) (1u << (verb))
#define OPERATIONS_ALL      (OPERATION_BIT(OPERATION_VERBS) - 1)
/** Those that a program answers with MSG_REPORT. */
#define OPERATIONS_REPORTED (OPERATION_BIT(OPERATION_TRACE) - 1)
/** Those whose client is told of each step of the policy that belongs to it. */
#define OPERATIONS_FOLLOWED (OPERATION_BIT(OPERATION_DRAIN) | OPERATION_BIT(OPERATION_BALANCE))

enum operation_state {
    OPERATION_WAITING, /**< It is new, or waits for room or for other operations. */
    OPERATION_SENT,    /**< The program was asked and has not answered. */
    OPERATION_SETTLED, /**< It has ended, and is in no list. */
};

/** How far an operation is: what the program said last. */
struct request_progress {
    char phase[16];         /**< "": it has said nothing yet. */
    uint64_t done, total;   /**< Bytes to be copied. */
    uint64_t builds, built; /**< Programs to be built. */
    char building[64];      /**< A kernel of the one being built, or "". */
    uint64_t round;
};

struct operation {
    struct operation *next;
    enum operation_verb verb;
    enum operation_state state; /**< Changed by operation_enter() alone. */
    struct request asked;       /**< As the client said it, and then as the program is asked. */
    struct peer *client; /**< Who is answered; NULL: it is the policy's, or its client is gone. */
    struct program *program; /**< NULL for a drain or a rebalance. */
    unsigned vdevs;          /**< Of the program that it is for, as bits. */
    uint32_t target;         /**< Device of the ledger: where to, or that drains; LEDGER_NONE: host
                                memory, or not known. */
    uint64_t grants[PROTOCOL_VDEVS_MAX]; /**< Bytes kept there for each virtual device. */
    size_t vdev;                         /**< PROGRAM_ALL_VDEVS, or the one of `vdevs`. */
    unsigned tries;                      /**< How often the program said RESULT_AGAIN. */
    bool chosen;                         /**< An operator named the device. */
    bool ours;                           /**< The policy asks, and no client is told. */
    unsigned ran;            /**< Virtual devices that were not suspended before, as bits. */
    unsigned queued;         /**< Of a resume that waits: those that would not queue without it. */
    unsigned done, failed;   /**< Of a drain or a rebalance: steps that ended so. */
    char why[POLICY_REASON]; /**< Of one of ours: the policy's reason. */
    struct request_progress progress;
    char from[160], to[160]; /**< Device names, one for each virtual device that it is for; "" for
                                host memory. */
    uint64_t payback_s;      /**< Of one of ours: how long the policy does not undo it. */
    uint64_t begun_ms;       /**< uv_now() when the program was asked first. */
    uint64_t expires_ms;     /**< uv_now() when it expires; 0: never. */
};

/** How an operation ended. */
struct operation_end {
    unsigned moved;     /**< The virtual devices, as bits, that are where they should be. */
    const char *result; /**< RESULT_... */
    const char *reason;
    bool lasting; /**< It would fail there again for as long as the program has what it has. */
};

/** The type of its message: "move". */
const char *operation_name(const struct operation *op);

/** It leaves the program where it is. */
static inline bool operation_stays(const struct operation *op)
{
    return op->asked.dry_run || op->verb == OPERATION_PREWARM ||
           (op->verb == OPERATION_CHECKPOINT && !op->asked.parks) || op->verb == OPERATION_PROTECT;
}

/* ---- its life: operation.c ---- */

/** What is particular to a verb. A function that is NULL does nothing. */
struct operation_kind {
    const char *name; /**< The type of its messages. */
    /** Its client does not want it any more; @gone: and has closed its connection. */
    void (*cancel)(struct agent *agent, struct operation *op, bool gone);
    /** Its deadline has passed: settles it. */
    void (*expire)(struct agent *agent, struct operation *op);
    /** The program has answered with @report. The operation is settled after this. */
    void (*answered)(struct agent *agent, const struct operation *op, const msgpack_object *report);
    /** What follows from its end. */
    void (*settle)(struct agent *agent, const struct operation *op,
                   const struct operation_end *end);
    /** Begin its next step. False: there is none. */
    bool (*next)(struct agent *agent);
};
/** Before any other call here. @kinds  One for each verb; for as long as the process. */
void operations_init(const struct operation_kind *kinds);

/**
 * One that is nowhere yet, to be completed and given to operation_begin() or operation_add().
 *
 * @vdev    One of the program's, or PROGRAM_ALL_VDEVS.
 * @client  NULL: the policy wants it.
 */
struct operation operation_of(struct program *program, enum operation_verb verb, size_t vdev,
                              struct peer *client);
/** A copy of @wish that waits; NULL: no memory. */
struct operation *operation_add(struct agent *agent, const struct operation *wish);
/** Change its state. False, and nothing is changed, where that state may not follow. */
bool operation_enter(struct operation *op, enum operation_state state);
/** The program answered it with @report: what its verb makes of that, before it is settled. */
void operation_answered(struct agent *agent, const struct operation *op,
                        const msgpack_object *report);
/**
 * End it: it is removed, what follows from its end is done, and it is freed.
 *
 * @end  NULL: nothing follows.
 */
void operation_settle(struct agent *agent, struct operation *op, const struct operation_end *end);
/** What follows from an end, alone: of one that was never added, or that is to be sent again. */
void operation_release(struct agent *agent, const struct operation *op,
                       const struct operation_end *end);

/** Begin the next step of one that is done in steps of the policy. False: there is none. */
bool operation_next(struct agent *agent, const struct operation *op);

/** One of those verbs that @program was asked and has not answered; or NULL. */
struct operation *operation_sent(const struct agent *agent, const struct program *program,
                                 unsigned verb_bits);
/** Whether @program was asked something that changes where it is, and has not answered. */
bool operation_moves(const struct agent *agent, const struct program *program);
/** @client wants its operations of these verbs canceled; @gone: and cannot be told of them. */
void operations_cancel(struct peer *client, unsigned verb_bits, bool gone);
/** End those whose deadline has passed: the one clock of all operations. */
void operations_expire(struct agent *agent);
void operations_finish(struct agent *agent);

/* ---- what is asked of programs, and what they answer: asking.c ---- */

/** Read what a client asks, but for what is not a client's to say. @op has its verb. */
void operation_take(const msgpack_object *map, struct operation *op);
/**
 * Ask a connected program.
 *
 * @wish    Copied.
 * @target  NULL: where it was, or host memory.
 * Returns 0 or -ENOMEM.
 */
MUST_CHECK int operation_begin(struct agent *agent, const struct operation *wish,
                               const struct inventory_entry *target);
/** The program is to cancel it, and answers then. */
void asking_cancel(struct agent *agent, struct operation *op, bool gone);
void asking_expire(struct agent *agent, struct operation *op);
/** Another client wants what moves @program canceled, whoever asked for it. Returns false where
 *  nothing moves it. */
bool asking_cancel_program(struct agent *agent, const struct program *program);
/** The program can answer no more: it ended, or closed its connection. */
void asking_unreachable(struct agent *agent, struct program *program, bool ended);
/** The program sent MSG_PROGRESS or MSG_REPORT. */
void asking_progress(struct peer *peer, struct message *message);
void asking_report(struct peer *peer, struct message *message);
/** "move": where @program is being moved, and how far that is; nothing where it stays. */
void asking_put_progress(const struct agent *agent, const struct program *program,
                         struct frame *frame);

/** @program said something, whatever it was. */
void liveness_heard(struct agent *agent, struct program *program);
/** Ask programs that owe an answer whether they are there; give up those that were not for long. */
void liveness_sweep(struct agent *agent);

/* ---- what clients are told: MSG_REPORT, reports.c ---- */

/** "app": which program it is. */
void report_put_program(struct frame *frame, const struct program *program);
/**
 * What the program was not asked for.
 *
 * @from, @to  Devices.
 * @result     RESULT_...
 * @already    It was there.
 */
void report_plain(struct peer *client, const struct program *program, const char *from,
                  const char *to, const char *result, bool already);
/** The same of the devices of @vdev, or of all with PROGRAM_ALL_VDEVS. */
void report_devices(struct peer *client, const struct program *program, size_t vdev,
                    const char *result, bool already);
/** What the program reported of @op. */
void report_forward(struct peer *client, const struct operation *op, const msgpack_object *message);

#endif
