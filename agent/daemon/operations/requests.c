#include "agent/daemon/operations/operations.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/protocol/common_messages.h"
#include "state/base/clock.h"
#include "state/driver/device_key.h"

#define ASK_SWEEPS     4
#define UNANSWERED_MAX 20
void report_put_program(struct frame *frame, const struct program *program)
{
    frame_map(frame, "app");
    program_put_identity(program, frame);
    frame_end(frame);
}

void report_plain(struct peer *client, const struct program *program, const char *from,
                  const char *to, const char *result, bool already)
{
    struct frame frame;

    frame_init(&frame, MSG_REPORT);
    report_put_program(&frame, program);
    frame_string(&frame, "from", from);
    frame_string(&frame, "to", to);
    frame_bool(&frame, "starting", !program->connected);
    frame_bool(&frame, "already", already);
    frame_string(&frame, "result", result);
    frame_string(&frame, "reached", "plan");
    frame_string(&frame, "reason", "");
    frame_u64(&frame, "total_ns", 0);
    frame_u64(&frame, "arrived_ns", 0);
    frame_u64(&frame, "downtime_ns", 0);
    frame_u64(&frame, "bytes", 0);
    frame_u64(&frame, "build_ns", 0);
    frame_u64(&frame, "built", 0);
    frame_u64(&frame, "drain_ns", 0);
    frame_string(&frame, "waited_for", "");
    frame_u64(&frame, "aim_ns", 0);
    frame_u64(&frame, "left", 0);
    frame_u64(&frame, "rounds", 0);
    frame_u64(&frame, "predicted_ns", 0);
    frame_array(&frame, "vdevs");
    frame_end(&frame);
    peer_send(client, &frame);
}

void report_devices(struct peer *client, const struct program *program, size_t vdev,
                    const char *result, bool already)
{
    char from[160], to[160];

    program_device_names(client->agent, program, vdev, true, from, sizeof(from));
    program_device_names(client->agent, program, vdev, false, to, sizeof(to));
    report_plain(client, program, already ? from : "", already ? from : to, result, already);
}

/** What became of a virtual device that was tried, or of all together. */
static const char *const outcome[] = {
    "vdev",         "result",     "reached",     "reason",        "already",    "lasting",
    "total_ns",     "arrived_ns", "downtime_ns", "bytes",         "left",       "rounds",
    "predicted_ns", "build_ns",   "built",       "drain_ns",      "waited_for", "aim_ns",
    "image",        "not_stored", "image_bytes", "image_written", "freed",      "not_protected",
    "not_removed",  "box"};

/* What the program reported of @op. */
static void requests_report_forward(struct peer *client, const struct operation *op,
                                    const msgpack_object *message)
{
    const msgpack_object *vdevs;
    size_t count = field_array(message, "vdevs", &vdevs);
    struct frame frame;

    frame_init(&frame, MSG_REPORT);
    report_put_program(&frame, op->program);
    frame_string(&frame, "from", op->from);
    frame_string(&frame, "to", op->to);
    frame_bool(&frame, "starting", false);
    frame_forward(&frame, message, outcome, ARRAY_SIZE(outcome));
    frame_array(&frame, "vdevs");
    for (size_t i = 0; i < count && i < PROTOCOL_VDEVS_MAX; i++) {
        frame_map(&frame, NULL);
        frame_forward(&frame, &vdevs[i], outcome, ARRAY_SIZE(outcome));
        frame_end(&frame);
    }
    frame_end(&frame);
    peer_send(client, &frame);
}

/* A program rolls back by itself when its deadline passes; this is how long we then wait to hear.
 */
#define GRACE_MS       2000
#define TIMEOUT_MS_MAX (366ull * 24 * 3600 * 1000)

/* A program that grows faster than it is asked goes with what it was granted, or not at all. */
#define TRIES_MAX 3

/** What each verb is called, and what follows when one has ended. */
static const struct {
    const char *type;
    void (*settle)(struct agent *agent, const struct operation *op,
                   const struct operation_end *end);
} verbs[OPERATION_VERBS] = {
    [OPERATION_MOVE] = {MSG_MOVE, admit_settle},
    [OPERATION_SUSPEND] = {MSG_SUSPEND, admit_settle},
    [OPERATION_RESUME] = {MSG_RESUME, admit_settle},
    [OPERATION_PREWARM] = {MSG_PREWARM, prewarm_settle},
    [OPERATION_CHECKPOINT] = {.type = MSG_CHECKPOINT},
    [OPERATION_PROTECT] = {.type = MSG_PROTECT},
};

const char *operation_name(const struct operation *op)
{
    return verbs[op->verb].type;
}

void requests_settle(struct agent *agent, const struct operation *op,
                     const struct operation_end *end)
{
    if (!op->asked.dry_run && verbs[op->verb].settle)
        verbs[op->verb].settle(agent, op, end);
}

static void requests_end_request(struct agent *agent, struct operation *op,
                                 const struct operation_end *end)
{
    for (struct operation **at = &agent->operations; *at; at = &(*at)->next) {
        if (*at == op) {
            *at = op->next;
            break;
        }
    }
    requests_settle(agent, op, end);
    free(op);
}

static void requests_put_numbers(struct frame *frame, const char *key, const uint64_t *numbers,
                                 size_t count)
{
    frame_array(frame, key);
    for (size_t i = 0; i < count; i++)
        frame_u64(frame, NULL, numbers[i]);
    frame_end(frame);
}

/** @again: the program may say that it has more by now. */
static void requests_put_grants(struct frame *frame, const struct operation *op, bool again)
{
    size_t count = op->program->vdev_count;
    uint64_t most = 0, wanted[PROTOCOL_VDEVS_MAX];

    for (size_t i = 0; i < count; i++) {
        most = op->grants[i] > most ? op->grants[i] : most;
        wanted[i] = vdev_wanted(&op->program->vdevs[i]);
    }
    frame_u64(frame, "grant", op->vdev == PROGRAM_ALL_VDEVS ? most : op->grants[op->vdev]);
    if (op->vdev == PROGRAM_ALL_VDEVS)
        requests_put_numbers(frame, "grants", op->grants, count);
    if (again)
        requests_put_numbers(frame, "wanted", wanted, count);
}

void requests_take(const msgpack_object *map, enum operation_verb verb, struct request *ret_asked)
{
    bool moves = verb <= OPERATION_RESUME;

    take_request(map, ret_asked);
    ret_asked->dry_run = ret_asked->dry_run && moves;
    ret_asked->parks = ret_asked->parks && verb == OPERATION_CHECKPOINT;
    /* That a thread of it waits only the policy knows. */
    if (!moves || ret_asked->manner == REQUEST_NEEDED)
        ret_asked->manner = REQUEST_ASKED;
}

/** What the client did not say is as the configuration is now. */
static void requests_send_request(const struct agent *agent, const struct operation *op,
                                  const struct inventory_entry *target)
{
    const struct policy_settings *settings = config_policy(&agent->config);
    struct request asked = op->asked;
    struct frame frame;

    asked.app[0] = asked.device[0] = '\0';
    if (target)
        device_key_format(&target->key, asked.device);
    snprintf(asked.name, sizeof(asked.name), "%.127s", strchr(op->to, ',') ? "" : op->to);
    asked.timeout_ms = 0;
    asked.strict = asked.max_downtime_ms != 0;
    if (!asked.max_downtime_ms)
        asked.max_downtime_ms = settings->max_downtime_ms;
    if (!asked.bandwidth)
        asked.bandwidth = settings->bandwidth;
    if (op->verb == OPERATION_PROTECT)
        asked.protection = op->program->policy.protect;
    frame_init(&frame, operation_name(op));
    put_request(&frame, &asked);
    if (op->target != LEDGER_NONE && op->verb != OPERATION_PREWARM)
        requests_put_grants(&frame, op, op->tries < TRIES_MAX);
    peer_send(op->program->peer, &frame);
}

int requests_begin(struct agent *agent, const struct operation *wish,
                   const struct inventory_entry *target)
{
    struct operation *op = malloc(sizeof(*op));
    struct program *program = wish->program;

    if (!op)
        return -ENOMEM;
    *op = *wish;
    op->begun_ms = uv_now(&agent->loop);
    op->asked.id = ++agent->next_operation;
    op->asked.vdev = wish->vdev == PROGRAM_ALL_VDEVS ? REQUEST_ALL_VDEVS : (uint32_t)wish->vdev;
    program_device_names(agent, program, wish->vdev, true, op->from, sizeof(op->from));
    if (target)
        snprintf(op->to, sizeof(op->to), "%s", target->name);
    else if (op->verb == OPERATION_RESUME)
        program_device_names(agent, program, wish->vdev, false, op->to, sizeof(op->to));
    uint64_t timeout_ms = wish->asked.timeout_ms;
    timeout_ms = timeout_ms < TIMEOUT_MS_MAX ? timeout_ms : TIMEOUT_MS_MAX;
    op->expires_ms = timeout_ms ? uv_now(&agent->loop) + timeout_ms + GRACE_MS : 0;
    op->asked.deadline_ns = timeout_ms ? clock_now_ns() + timeout_ms * 1000000 : 0;
    op->next = agent->operations;
    agent->operations = op;
    bool stays = operation_stays(op) && !target;
    agent_log(
        "%s: %s%s%s%s%s asked by %s %d", program->id, operation_name(op), stays ? "" : " from ",
        stays         ? ""
        : op->from[0] ? op->from
                      : "memory",
        stays ? "" : " to ",
        stays       ? ""
        : op->to[0] ? op->to
                    : "memory",
        op->ours ? "policy of agent" : "pid", op->client ? (int)op->client->pid : (int)getpid());
    requests_send_request(agent, op, target);
    return 0;
}

static void requests_send_cancel(const struct operation *op)
{
    struct frame frame;

    frame_init(&frame, MSG_CANCEL);
    frame_u64(&frame, "request", op->asked.id);
    peer_send(op->program->peer, &frame);
}

void requests_cancel(struct peer *client, bool gone)
{
    struct agent *agent = client->agent;

    for (struct operation *op = agent->operations; op; op = op->next) {
        if (op->client != client)
            continue;
        if (gone)
            op->client = NULL;
        if (op->program->peer)
            requests_send_cancel(op);
    }
}

/** The request that @message of @program answers, or NULL: nobody may answer for another program.
 */
static struct operation *requests_request_of(struct program *program, const msgpack_object *message)
{
    struct operation *op = program->peer->agent->operations;
    uint64_t id = field_u64(message, "request", 0);

    while (op && (op->asked.id != id || op->program != program))
        op = op->next;
    return op;
}

/** It is on its way to another device, or one is made ready for it. */
static bool requests_request_moves(const struct operation *op)
{
    return !operation_stays(op) || op->verb == OPERATION_PREWARM;
}

static void requests_put_phase(struct frame *frame, const struct operation *op)
{
    const struct request_progress *progress = &op->progress;

    frame_string(frame, "to", op->to);
    frame_string(frame, "phase", progress->phase);
    frame_u64(frame, "done", progress->done);
    frame_u64(frame, "total", progress->total);
    frame_u64(frame, "builds", progress->builds);
    frame_u64(frame, "built", progress->built);
    frame_string(frame, "building", progress->building);
    frame_u64(frame, "round", progress->round);
}

bool requests_cancel_program(struct agent *agent, const struct program *program)
{
    bool any = false;

    for (struct operation *op = agent->operations; op; op = op->next) {
        if (op->program != program || !requests_request_moves(op) || !program->peer)
            continue;
        requests_send_cancel(op);
        any = true;
    }
    return any;
}

void requests_progress(struct peer *peer, struct message *whole)
{
    const msgpack_object *message = &whole->root;
    struct operation *op = requests_request_of(peer->program, message);
    struct frame frame;

    if (!op)
        return;
    struct request_progress *progress = &op->progress;
    field_string(message, "phase", progress->phase, sizeof(progress->phase));
    field_text(message, "building", progress->building, sizeof(progress->building));
    progress->done = field_u64(message, "done", 0);
    progress->total = field_u64(message, "total", 0);
    progress->builds = field_u64(message, "builds", 0);
    progress->built = field_u64(message, "built", 0);
    progress->round = field_u64(message, "round", 0);
    if (!op->client)
        return;
    frame_init(&frame, MSG_PROGRESS);
    requests_put_phase(&frame, op);
    peer_send(op->client, &frame);
}

void requests_put_progress(const struct agent *agent, const struct program *program,
                           struct frame *frame)
{
    const struct operation *op = agent->operations;

    while (op && (op->program != program || !requests_request_moves(op)))
        op = op->next;
    if (!op)
        return;
    frame_map(frame, "move");
    frame_string(frame, "verb", operation_name(op));
    requests_put_phase(frame, op);
    frame_end(frame);
}

/** The virtual devices that are where they should be, as bits. */
static unsigned requests_moved_vdevs(const struct operation *op, const msgpack_object *message)
{
    const msgpack_object *vdevs;
    size_t count = field_array(message, "vdevs", &vdevs);
    bool done = field_is(message, "result", RESULT_DONE);
    unsigned moved = count ? 0 : done ? op->vdevs : 0;

    for (size_t i = 0; i < count && i < PROTOCOL_VDEVS_MAX; i++) {
        uint64_t vdev = field_u64(&vdevs[i], "vdev", 0);
        if (vdev < PROTOCOL_VDEVS_MAX && field_is(&vdevs[i], "result", RESULT_DONE))
            moved |= 1u << vdev;
    }
    return moved & op->vdevs;
}

/** The program has more than we knew: what it may have there is decided anew. */
static void requests_start_over(struct agent *agent, struct operation *op)
{
    const struct inventory_entry *target = devices_entry(agent, op->target);
    char error[PROTOCOL_TEXT_MAX];

    if (op->ours || !op->client) {
        /* The policy sees for itself. */
        requests_end_request(
            agent, op,
            &(struct operation_end){.result = RESULT_AGAIN,
                                    .reason =
                                        "it allocated more meanwhile; the decision is made again"});
        return;
    }
    struct operation_end end = {.result = RESULT_AGAIN, .reason = ""};
    requests_settle(agent, op, &end);
    if (!target || op->tries == TRIES_MAX) {
        peer_error(op->client, ERR_FAILED,
                   "program %s (pid %d) does not say what became of it, and may be where it was; "
                   "see reseat ps",
                   op->program->name, (int)op->program->pid);
        end.result = RESULT_UNKNOWN;
        requests_end_request(agent, op, &end);
    } else if (admit_request(agent, op, target, error, sizeof(error))) {
        peer_error(op->client, ERR_REFUSED, "%s", error);
        requests_end_request(agent, op, &end);
    } else {
        op->tries++;
        requests_send_request(agent, op, target);
    }
}

void requests_report(struct peer *peer, struct message *whole)
{
    const msgpack_object *message = &whole->root;
    struct agent *agent = peer->agent;
    struct operation *op = requests_request_of(peer->program, message);
    char result[PROTOCOL_WORD_MAX], reason[PROTOCOL_TEXT_MAX];

    if (!op)
        return;
    if (field_is(message, "result", RESULT_AGAIN)) {
        requests_start_over(agent, op);
        return;
    }
    field_string(message, "result", result, sizeof(result));
    field_text(message, "reason", reason, sizeof(reason));
    agent_log("%s: %s %s%s%s", peer->program->id, operation_name(op), result, reason[0] ? ": " : "",
              reason);
    if (op->reported)
        op->reported(agent, op, message);
    if (op->asked.parks)
        resume_later(agent, peer->program, op->ran);
    struct peer *client = op->client || !op->ours || operation_stays(op)
                              ? op->client
                              : resume_ends(agent, op, result);
    if (client)
        requests_report_forward(client, op, message);
    requests_end_request(agent, op,
                         &(struct operation_end){.moved = requests_moved_vdevs(op, message),
                                                 .result = result,
                                                 .reason = reason,
                                                 .lasting = field_bool(message, "lasting", false)});
}

/** None of what @program is asked will be answered; who asked is told that it @does so with its
 *  verb, and what @follows. */
static void requests_end_all(struct agent *agent, struct program *program, const char *code,
                             const char *does, const char *follows, const char *result,
                             const char *reason)
{
    struct operation *next;

    for (struct operation *op = agent->operations; op; op = next) {
        next = op->next;
        if (op->program != program)
            continue;
        if (op->client) {
            peer_error(op->client, code, "program %s (pid %d) %s the %s%s", program->name,
                       (int)program->pid, does, operation_name(op), follows);
        }
        if (program->peer)
            requests_send_cancel(op);
        requests_end_request(agent, op,
                             &(struct operation_end){.result = result, .reason = reason});
    }
}

void requests_fail(struct agent *agent, struct program *program, bool ended)
{
    requests_end_all(agent, program, ERR_GONE,
                     ended ? "ended during" : "closed its connection to the agent during",
                     "; nothing is left to do for it", ended ? RESULT_ENDED : RESULT_UNKNOWN,
                     ended ? "the program ended"
                           : "the program closed its connection to the agent");
}

/* Cancel what a connected program is asked: it does not answer. */
static void requests_give_up(struct agent *agent, struct program *program)
{
    requests_end_all(agent, program, ERR_EXPIRED, "does not answer (is it stopped?);",
                     " is canceled", RESULT_EXPIRED, "it does not answer (is it stopped?)");
}

void requests_sweep(struct agent *agent)
{
    struct operation *next;

    for (struct operation *op = agent->operations; op; op = next) {
        next = op->next;
        if (!op->expires_ms || uv_now(&agent->loop) < op->expires_ms)
            continue;
        if (op->client) {
            peer_error(op->client, ERR_EXPIRED,
                       "program %s (pid %d) did not answer within the deadline; it rolls back by "
                       "itself when it runs again (is it stopped?)",
                       op->program->name, (int)op->program->pid);
        }
        requests_end_request(agent, op,
                             &(struct operation_end){.result = RESULT_EXPIRED,
                                                     .reason = "it did not answer in time"});
    }
}

void requests_finish(struct agent *agent)
{
    while (agent->operations) {
        struct operation *op = agent->operations;
        agent->operations = op->next;
        free(op);
    }
}

/*
 * A program answers a query at once, however long a request takes it: one of its threads does
 * nothing else. In sweeps (250 ms), so that a stop of the agent itself counts for nothing.
 */

static bool requests_is_awaited(const struct agent *agent, const struct program *program)
{
    for (const struct operation *op = agent->operations; op; op = op->next)
        if (op->program == program)
            return true;
    return program->managed.shrinks;
}

/** Who waits for it is told, and others are asked in its place. */
static void requests_begin_one(struct agent *agent, struct program *program)
{
    program->unanswered = 0;
    program->unresponsive = true;
    agent_log("%s: %s (pid %d) does not answer; nothing is asked of it until it does", program->id,
              program->name, (int)program->pid);
    requests_give_up(agent, program);
    program->managed.shrinks = false;
    agent->changed = true;
}

void liveness_heard(struct agent *agent, struct program *program)
{
    program->unanswered = 0;
    if (program->unresponsive) {
        program->unresponsive = false;
        agent_log("%s: %s (pid %d) answers again", program->id, program->name, (int)program->pid);
        agent->changed = true;
    }
}

void liveness_sweep(struct agent *agent)
{
    for (struct program *program = agent->programs; program; program = program->next) {
        struct frame frame;
        if (!program->peer || !requests_is_awaited(agent, program)) {
            program->unanswered = 0;
        } else if (++program->unanswered == UNANSWERED_MAX) {
            requests_begin_one(agent, program);
        } else if (program->unanswered % ASK_SWEEPS == 0) {
            frame_init(&frame, MSG_QUERY);
            peer_send(program->peer, &frame);
        }
    }
}
