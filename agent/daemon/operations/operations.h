#ifndef RESEAT_AGENT_DAEMON_GOVERN_GOVERN_H
#define RESEAT_AGENT_DAEMON_GOVERN_GOVERN_H

#include "agent/daemon/clients.h"
#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/devices/ledger.h"
#include "agent/daemon/servers/servers.h"
#include "agent/protocol/request.h"
#include "policy/decide.h"

/*
 * The agent's side of policy: tells it the world (devices, programs, who waits), and has done what
 * it decides. Whatever happens sets agent->changed; govern_run() then does what follows.
 */

/** Reads the operator's limits. The configuration is there. Returns 0 or -ENOMEM. */
MUST_CHECK int govern_init(struct agent *agent);
void govern_finish(struct agent *agent);

/** The configuration is another: for devices, and for programs that run. */
void govern_reloaded(struct agent *agent);

/** @program ended: what it needed is kept for `reseat report`. */
void govern_remember(struct agent *agent, const struct program *program);

/** Do what follows from all that happened. */
void govern_run(struct agent *agent);
/** The same for what follows from time. Called a few times a second. */
void govern_tick(struct agent *agent);

/* The world as the policy sees it, and whose each of its programs is. */

/** The virtual devices of a program that are on one device, or one that is on none: one program to
 *  the policy. */
struct group {
    struct program *program;
    uint32_t vdev;  /**< The first. */
    unsigned vdevs; /**< All, as bits. */
};

struct world {
    struct policy_world policy;
    struct policy_device *devices;
    struct policy_program *programs;
    struct group *groups;
    uint32_t *queue;
    uint64_t *barred;             /**< Of each program, as many words as there are devices for. */
    struct reseat_limits *offers; /**< Of each device. */
    struct policy_visits *visits; /**< By group. */
};

/** Make the governor's world as things are now. Returns 0 or -ENOMEM. */
MUST_CHECK int world_build(struct agent *agent);
void world_finish(struct world *world);
/**
 * Between these the program at @index is answered. To one that is not believed
 * (ledger_sync_believe()) and whose driver had no more, for TIGHT_MS its device is full; to nobody
 * else.
 *
 * Returns what world_unfill() is given.
 */
uint64_t world_fill(const struct agent *agent, uint32_t index);
void world_unfill(struct world *world, uint32_t index, uint64_t memory);
/** For so long a device counts as full whose driver had no more memory. */
#define TIGHT_MS 30000
/** The program of the world that @vdev of @program is in, or POLICY_NONE. */
uint32_t world_find(const struct world *world, const struct program *program, uint32_t vdev);

/** A program that ended, and what it needed. */
#define ENDED_MAX 32
struct ended {
    uid_t uid;
    char id[32], name[64], device[32];
    uint64_t wanted_peak, held_peak, granted_peak, own, waits, waited_ms;
};

#define GOVERN_MOVES_MAX 1024

struct follower;
struct tracer;
struct pending;
struct resume;

/** What the agent keeps for the policy beside programs and the ledger. */
struct governor {
    struct resume *resumes;
    struct history *histories; /**< Of the ledger's devices. */
    uint32_t history_count;
    struct pending *needs;
    uint64_t events;         /**< Announcements and wishes, to tell which was first. */
    uint64_t await_until_ms; /**< From then on programs of an agent before are not waited for. */
    uint64_t moved_ms[GOVERN_MOVES_MAX]; /**< When a program was last moved by policy. */
    unsigned moved;
    struct world world;
    struct follower *followers;
    struct tracer *tracers;
    struct ended ended[ENDED_MAX];
    unsigned ended_count;
    char state_path[PATH_MAX];
    bool running, automatic;
    uint64_t ticked_ms;
};

/** How far a request is: what the program said last. */
struct request_progress {
    char phase[16];         /**< "": it has said nothing yet. */
    uint64_t done, total;   /**< Bytes to be copied. */
    uint64_t builds, built; /**< Programs to be built. */
    char building[64];      /**< A kernel of the one being built, or "". */
    uint64_t round;
};

/** What a program is asked to do; messages.txt has the types. */
enum operation_verb {
    OPERATION_MOVE,
    OPERATION_SUSPEND,
    OPERATION_RESUME,
    OPERATION_PREWARM,
    OPERATION_CHECKPOINT,
    OPERATION_PROTECT,
    OPERATION_VERBS
};

/** A request, of a client or of the policy, that a program has not answered yet. */
struct operation {
    struct operation *next;
    enum operation_verb verb;
    struct request asked; /**< As the client said it, and then as the program is asked. */
    struct peer *client;  /**< NULL: gone; the operation is canceled, its answer unwanted. */
    struct program *program;
    unsigned vdevs;  /**< Of the program that it is for, as bits. */
    uint32_t target; /**< Device of the ledger; LEDGER_NONE: host memory, or not known. */
    uint64_t grants[PROTOCOL_VDEVS_MAX]; /**< Bytes kept there for each virtual device. */
    size_t vdev;                         /**< PROGRAM_ALL_VDEVS, or the one of `vdevs`. */
    unsigned tries;                      /**< How often the program said RESULT_AGAIN. */
    bool chosen;                         /**< An operator named the device. */
    bool ours;                           /**< The policy asks, and no client is told. */
    unsigned ran;            /**< Virtual devices that were not suspended before, as bits. */
    char why[POLICY_REASON]; /**< Of one of ours: the policy's reason. */
    uint64_t payback_s;      /**< Of one of ours: how long the policy does not undo it. */
    uint64_t begun_ms;       /**< uv_now() when it began. */
    struct request_progress progress;
    char from[160], to[160]; /**< Device names, one for each virtual device that it is for; "" for
                                host memory. */
    /** Who asked is told what the program reports of it; or NULL. */
    void (*reported)(struct agent *agent, const struct operation *op, const msgpack_object *report);
    uint64_t expires_ms; /**< uv_now() when to stop waiting; 0: never. */
};

/** Read what a client asks, but for what is not a client's to say. */
void requests_take(const msgpack_object *map, enum operation_verb verb, struct request *ret_asked);
/** The type of its message: "move". */
const char *operation_name(const struct operation *op);

/** It leaves the program where it is. */
static inline bool operation_stays(const struct operation *op)
{
    return op->asked.dry_run || op->verb == OPERATION_PREWARM ||
           (op->verb == OPERATION_CHECKPOINT && !op->asked.parks) || op->verb == OPERATION_PROTECT;
}

/**
 * Ask a connected program.
 *
 * @wish    Copied; verb, program, virtual devices and virtual device are set, and what else is
 * known.
 * @target  NULL: where it was, or host memory.
 * Returns 0 or -ENOMEM.
 */
MUST_CHECK int requests_begin(struct agent *agent, const struct operation *wish,
                              const struct inventory_entry *target);
/** The client wants its request canceled, or is gone. */
void requests_cancel(struct peer *client, bool gone);
/** Another client wants what moves @program canceled, whoever asked for it. Returns false where
 *  nothing moves it. */
bool requests_cancel_program(struct agent *agent, const struct program *program);
/** "move": where @program is being moved, and how far that is; nothing where it stays. */
void requests_put_progress(const struct agent *agent, const struct program *program,
                           struct frame *frame);
/** The program sent MSG_PROGRESS or MSG_REPORT. */
void requests_progress(struct peer *peer, struct message *message);
void requests_report(struct peer *peer, struct message *message);
/** The program can answer no more: it ended, or closed its connection. */
void requests_fail(struct agent *agent, struct program *program, bool ended);
/** Stop waiting for programs whose deadline is well past. */
void requests_sweep(struct agent *agent);
void requests_finish(struct agent *agent);

/* What clients are told of their moves, suspends and resumes: MSG_REPORT. */

/** "program": which program it is. */
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

/* Room for what operators ask, and what becomes of room that was kept when a request ends. */

/**
 * Keep room for a move or a resume to @target (of the inventory).
 *
 * @op  Its program, virtual devices and dry_run are set; what is granted is added.
 * Returns 0, or -ENOSPC or -EBUSY (the device drains) with one line for the operator.
 */
MUST_CHECK int admit_request(struct agent *agent, struct operation *op,
                             const struct inventory_entry *target, char *ret_error, size_t size);
/** How an operation ended. */
struct operation_end {
    unsigned moved;     /**< The virtual devices, as bits, that are where they should be. */
    const char *result; /**< RESULT_... */
    const char *reason;
    bool lasting; /**< It would fail there again for as long as the program has what it has. */
};
/** What follows from the end of an operation, which is not in agent->requests any more: of what its
 *  verb does. Nothing of a dry run. */
void requests_settle(struct agent *agent, const struct operation *op,
                     const struct operation_end *end);
/** The same of one that moves a program, or suspends it. */
void admit_settle(struct agent *agent, const struct operation *op, const struct operation_end *end);
/** Whoever asked: the target is one where @end says that it failed. */
void admit_fail(struct agent *agent, const struct operation *op, const struct operation_end *end);

/* What programs say of what they have, kept in the ledger. */

/** MSG_STATUS: how it is. */
/**
 * Whether what @program says of itself and of devices counts for other programs: it is root's or of
 * the agent's own user. What others hold counts as far as it was granted, and a device that they
 * say is lost, or has no more memory, is so to them alone.
 */
bool ledger_sync_believe(const struct program *program);
void ledger_sync_status(struct peer *peer, struct message *message);
/** It connected. @first: as never before. Fields go into the open welcome. */
void ledger_sync_welcome(struct agent *agent, struct program *program, bool first,
                         const msgpack_object *hello, struct frame *welcome);
/** Programs of an agent before have yet to say what they have: what is free is not known. */
bool ledger_sync_awaited(const struct agent *agent);

/* Bytes of device memory that programs are granted, and what they give back of them. */

/** MSG_GRANT, and so much more in the entry of @vdev. */
void grants_add(struct agent *agent, struct program *program, uint32_t vdev, uint64_t bytes);
/** MSG_SHRINK: @vdev is to keep to @bytes in all, and has so long to say what it gives. @trims:
 *  it is asked only for what it does not use. */
void grants_shrink(struct agent *agent, struct program *program, uint32_t vdev, uint64_t bytes,
                   uint64_t patience_ms, bool trims);
/** A shrink whose time is over: nothing came back. A program that withheld may be asked again. */
void grants_tick(struct agent *agent);
/** MSG_RETURN. */
void grants_return(struct peer *peer, struct message *message);

/** A thread of a program that is blocked until there is room. */
struct pending {
    struct pending *next; /**< In the order in which they came. */
    struct program *program;
    uint32_t vdev;
    uint64_t id;
    uint64_t total;         /**< Bytes that it must be granted in all. */
    uint64_t least, wanted; /**< As MSG_NEED says. */
    bool owns;              /**< It needs them for what it has already. */
    bool failed;            /**< The driver had no more, whatever was granted. */
    uint64_t ticket;
    uint64_t since_ms;
};

/** MSG_NEED. */
void pending_take(struct peer *peer, struct message *message);
/** The oldest of those of @program on those virtual devices (as bits), or NULL. */
struct pending *pending_of(const struct agent *agent, const struct program *program,
                           unsigned vdevs);
/** Its turn begins when that of @pending did, or now where there is none (NULL). */
void pending_queue(struct agent *agent, const struct pending *pending, struct program_device *vdev);
/** Tell the program how its call goes on (WAY_...), and forget it. */
void pending_reply(struct agent *agent, struct pending *pending, const char *way,
                   const char *reason);
/** Answer what @program waits for on those virtual devices. */
void pending_answer(struct agent *agent, const struct program *program, unsigned vdevs,
                    const char *way, const char *reason);
/** All of @program, or of everyone with NULL, unanswered. */
void pending_drop(struct agent *agent, const struct program *program);

/* Devices that a program is kept off for a while, and programs that are left alone for a while. */

/** A step of @program failed: leave it alone, for longer each time. */
void exclusions_rest(struct agent *agent, struct program *program);
/** Keep @program off the device for as long as @cause asks for, with @reason for the operator. */
void exclusions_add(struct agent *agent, struct program *program, uint32_t device,
                    enum program_exclusion_cause cause, const char *reason);
/** Whether that still keeps @program off the device. */
bool exclusions_hold(const struct agent *agent, const struct program *program,
                     const struct program_exclusion *exclusion);

/** The list of devices, or the configuration, is another: what programs may have is kept with it,
 *  and they are told what there is more of. */
void capacity_update(struct agent *agent);

/*
 * What operators set: the memory of a device that programs may have, devices that are drained, and
 * how much one program may have. That of devices is kept in a file, that of programs with them.
 */

/** Returns 0, or -errno: none hold. Blocks on the file, as limits_save(). */
int limits_load(struct agent *agent);
MUST_CHECK int limits_save(const struct agent *agent);
/** MSG_LIMIT of a client. */
/** What @program may have on a device: its limit, or what it could not go on without if that is
 * more. */
uint64_t limits_quota(const struct program *program);

void limits_handle(struct peer *client, struct message *message);

/* Programs that are stopped, or hang, answer nothing: nobody waits for them for long. */

/** @program said something, whatever it was. */
void liveness_heard(struct agent *agent, struct program *program);
/** Ask those of whom something is wanted whether they are there; give up who has not been for long.
 */
void liveness_sweep(struct agent *agent);

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
/** Why @program is not moved off where it is, where that is known. */
const char *drain_stay_reason(const struct agent *agent, const struct program *program);
/** True where @program said, since the drain was announced, that now is a good time to leave. */
bool drain_leaves(const struct agent *agent, const struct program *program, uint32_t device);
/**
 * True for a device that takes no new program, because an operator wants it empty, now or soon.
 *
 * @ret_reason  One line for the operator; untouched where it takes programs.
 */
bool drain_refuses(const struct agent *agent, const char *name, char *ret_reason, size_t size);

/** MSG_BALANCE of a client. */
void rebalance_handle(struct peer *client, struct message *message);
/** Begin a step that makes things better. False: there is none. */
bool rebalance_step(struct agent *agent);

/* Clients that follow a drain or a rebalance: told of each step, and of the end. */

/** Steps of one rebalance, at most. */
#define BALANCE_MAX 256

/** A client that follows a drain or a rebalance. */
struct follower {
    struct follower *next;
    struct peer *client;
    bool drains;     /**< Else it balances. */
    uint32_t device; /**< That drains. */
    unsigned done, failed;
};

/** @client follows a drain of @device, or (@drains false) a rebalance; told of the end of it. */
void followers_add(struct peer *client, bool drains, uint32_t device);
/** A request of ours ended so. */
void followers_step(struct agent *agent, const struct operation *op, const char *result,
                    const char *reason);
/** Who follows the drain of @device is told that there is none any more. */
void followers_undone(struct agent *agent, uint32_t device);
/** End what is done. @balance: begin a step of a rebalance; false: there is none. */
void followers_tick(struct agent *agent, bool (*balance)(struct agent *agent));
/** All of @client, or of everyone with NULL, untold. */
void followers_drop(struct agent *agent, const struct peer *client);

/*
 * Devices that programs lost, which nobody is sent to until they answer; and protected programs
 * that wait for another one, which the policy finds.
 */

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
/** The policy has run: what those wait for that lost it is asked for the first time at once. */
void losses_hurry(struct agent *agent);
void losses_tick(struct agent *agent);

/** MSG_PROTECT of a client. */
void protecting_handle(struct peer *client, struct message *message);
/** Tell programs that say they are protected in another way than they are to be. */
void protecting_tick(struct agent *agent);
/** "protect" and "loss" of an open map: what @program says of that. */
void protecting_put(const struct agent *agent, const struct program *program, struct frame *frame);

/** MSG_CHECKPOINT of a client. */
void checkpointing_handle(struct peer *client, struct message *message);
/** Have those made that are due. */
void checkpointing_tick(struct agent *agent);
/** "checkpoints" of an open map: what @program makes again and again. */
void checkpointing_put(const struct agent *agent, const struct program *program,
                       struct frame *frame);
/** MSG_MOVE, MSG_SUSPEND and MSG_RESUME of a client. */
void move_handle(struct peer *client, struct message *message);
void suspend_handle(struct peer *client, struct message *message);
void resume_handle(struct peer *client, struct message *message);

/* Clients that trace programs, one a program: what it says of itself goes on to them. */

/** MSG_TRACE of a client. */
void trace_handle(struct peer *client, struct message *message);
/** MSG_SPANS of a program. */
void tracing_spans(struct peer *peer, struct message *message);
/** @client has enough; @gone: and is not told. */
void tracing_cancel(struct agent *agent, const struct peer *client, bool gone);
/** @program ended, or its connection did. */
void tracing_ends(struct agent *agent, const struct program *program);
/** End traces of programs that do not. */
void tracing_tick(struct agent *agent);
void tracing_finish(struct agent *agent);

/* Devices that programs are made ready for, ahead of a move that may come. */

/** MSG_PREWARM of a client. */
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
/** A request that prewarms ended so. */
void prewarm_settle(struct agent *agent, const struct operation *op,
                    const struct operation_end *end);

/* Device servers, as programs and operators see them come and go. */

/** events.server_changed: programs that are on its devices are told, and the log is. */
void serving_changed(struct agent *agent, struct server *server);
/** @program ended: where it was on a server's device, that server is looked at. */
void serving_ended(struct agent *agent, const struct program *program);
/** events.server_leaves: its devices drain, and when nobody is there any more it is removed; or
 * not.
 */
void serving_leaves(struct agent *agent, struct server *server, bool leaves);
/** Remove those that are to go and that nobody is on. */
void serving_tick(struct agent *agent);
/** MSG_SERVER of a client. */
void server_handle(struct peer *client, struct message *message);

/* Programs whose long launches are done on other devices too. */

/**
 * The devices that "spread" or "devices", called @key, of a client's request names; each once.
 *
 * Returns 0, or -ENODEV, -ENOTUNIQ, -EBUSY (one drains) or -E2BIG, with a line for the operator in
 * @ret_error.
 */
MUST_CHECK int spreading_read(const struct agent *agent, const msgpack_object *map, const char *key,
                              struct program_spread *ret_spread, char *ret_error,
                              size_t error_size);
/** MSG_SPREAD of a client. */
void spreading_handle(struct peer *client, struct message *message);
/** Tell @program, if it is connected, where its launches may be done now. */
void spreading_tell(const struct agent *agent, struct program *program);
/** Tell programs what has changed of that: devices drain, fill up, and come back. */
void spreading_tick(struct agent *agent);
/** "spread" of an open map: the names of the devices that @program may use now. */
void spreading_put_names(const struct agent *agent, const struct program *program,
                         struct frame *frame);

/*
 * Programs that operators resume and that find no room: they queue as those that the policy
 * suspended do, and the policy resumes them. Who asked waits for that, or not.
 */

/**
 * A resume that finds no room now: the program queues, and @client is told when it has a device.
 *
 * @vdevs  Of those the ones that are suspended.
 * @only   The device of the ledger that it is to go to, or LEDGER_NONE: any.
 * @why    There is no room; one line.
 */
void resume_queue(struct peer *client, struct program *program, size_t vdev, unsigned vdevs,
                  uint32_t only, uint64_t timeout_ms, const char *why);
/** The same, where nobody waits for it. */
void resume_hand_back(struct peer *client, struct program *program, size_t vdev, unsigned vdevs,
                      uint32_t only);
/** Who is to be told that @op of ours ended so, as the last that it waited for; or NULL. */
/** Those of @vdevs that are suspended by now come back as soon as the program is there. */
void resume_later(struct agent *agent, struct program *program, unsigned vdevs);
struct peer *resume_ends(struct agent *agent, const struct operation *op, const char *result);
/** Who waits does not any more; @gone: nor is told. */
void resume_cancel(struct agent *agent, const struct peer *client, bool gone);
/** The same of all that wait for @program, for another client. Returns whether any did. */
bool resume_cancel_program(struct agent *agent, const struct program *program);
/** As time passes, and things change. */
void resume_tick(struct agent *agent);
/** @program ended. */
void resume_forget(struct agent *agent, const struct program *program);
void resume_finish(struct agent *agent);

/* Steps of the policy, carried out: as messages to programs and as requests, like operators'. */

/** Do one step of the world as it is; false when nothing came of it. */
bool step_do(struct agent *agent, const struct policy_step *step);
/** Have those who do not use what they were granted return it, where @index of the world needs it.
 */
bool step_trim(struct agent *agent, uint32_t index);
/** Have one that has more than its quota give back what is too much. False: there is none. */
bool step_quota(struct agent *agent);

#endif
