#include <errno.h>
#include <string.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/metrics/metrics.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"
#include "agent/daemon/power/power.h"
#include "agent/protocol/common_messages.h"
#include "state/base/clock.h"

/* Requests to programs, and programs' answers. */

#define UNANSWERED_MAX 5 /* Seconds, each with a query. */

/* After its deadline a program rolls back by itself, and has so long to report it. */
#define GRACE_MS 2000

/* After so many attempts, a growing program moves with its present grant or not at all. */
#define TRIES_MAX 3

static void asking_put_numbers(struct frame *frame, const char *key, const uint64_t *numbers,
                               size_t count)
{
    frame_array(frame, key);
    for (size_t i = 0; i < count; i++)
        frame_u64(frame, NULL, numbers[i]);
    frame_end(frame);
}

/** Write @op's grants. @again: also the known demand: the program reports if it needs more. */
static void asking_put_grants(struct frame *frame, const struct operation *op, bool again)
{
    size_t count = op->program->vdev_count;
    uint64_t most = 0, wanted[PROTOCOL_VDEVS_MAX];

    for (size_t i = 0; i < count; i++) {
        most = op->grants[i] > most ? op->grants[i] : most;
        wanted[i] = vdev_wanted(&op->program->vdevs[i]);
    }
    frame_u64(frame, "grant", op->vdev == PROGRAM_ALL_VDEVS ? most : op->grants[op->vdev]);
    if (op->vdev == PROGRAM_ALL_VDEVS)
        asking_put_numbers(frame, "grants", op->grants, count);
    if (again)
        asking_put_numbers(frame, "wanted", wanted, count);
}

void operation_take(const msgpack_object *map, struct operation *op)
{
    bool moves = op->verb <= REQUEST_RESUME;

    take_request(map, &op->asked);
    op->asked.dry_run = op->asked.dry_run && moves;
    op->asked.parks = op->asked.parks && op->verb == REQUEST_CHECKPOINT;
    /* Only the policy can say that a thread of the program waits for the move. */
    if (!moves || op->asked.manner == REQUEST_NEEDED)
        op->asked.manner = REQUEST_ASKED;
}

/** Send the request, with the configuration's values where the client set none. */
static void asking_send(struct agent *agent, struct operation *op,
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
    if (op->verb == REQUEST_PROTECT)
        asked.protection = op->program->policy.protect;
    if (!operation_enter(agent, op, OPERATION_SENT))
        return;
    frame_init(&frame, operation_name(op));
    put_request(&frame, &asked);
    if (op->target != LEDGER_NONE && op->verb != REQUEST_PREWARM)
        asking_put_grants(&frame, op, op->tries < TRIES_MAX);
    peer_send(op->program->peer, &frame);
}

int operation_begin(struct agent *agent, const struct operation *wish,
                    const struct inventory_entry *target)
{
    struct operation *op = operation_add(agent, wish);

    if (!op)
        return -ENOMEM;
    if (op->client)
        op->client->request = NULL; /* The operation notes its own events, also a refusal. */
    op->begun_ms = uv_now(&agent->loop);
    if (op->expires_ms)
        op->expires_ms += GRACE_MS;
    op->asked.vdev = wish->vdev == PROGRAM_ALL_VDEVS ? REQUEST_ALL_VDEVS : (uint32_t)wish->vdev;
    program_device_names(agent, op->program, wish->vdev, true, op->from, sizeof(op->from));
    if (target)
        snprintf(op->to, sizeof(op->to), "%s", target->name);
    else if (op->verb == REQUEST_RESUME)
        program_device_names(agent, op->program, wish->vdev, false, op->to, sizeof(op->to));
    uint64_t timeout_ms = op->asked.timeout_ms;
    op->asked.deadline_ns = timeout_ms ? clock_now_ns() + timeout_ms * 1000000 : 0;
    asking_send(agent, op, target);
    return 0;
}

static void asking_send_cancel(const struct operation *op)
{
    struct frame frame;

    frame_init(&frame, MSG_CANCEL);
    frame_u64(&frame, "request", op->asked.id);
    peer_send(op->program->peer, &frame);
}

void asking_cancel(struct agent *agent, struct operation *op, bool gone)
{
    (void)agent;
    if (gone)
        op->client = NULL;
    if (op->program->peer)
        asking_send_cancel(op);
}

void asking_expire(struct agent *agent, struct operation *op)
{
    client_refuse(op->client, ERR_EXPIRED, op->program,
                  "did not answer within the deadline; it rolls back by itself when it runs again "
                  "(is it stopped?)");
    operation_settle(
        agent, op,
        &(struct operation_end){.result = RESULT_EXPIRED, .reason = "it did not answer in time"});
}

/** The operation that @message of @program answers. NULL: it is settled, or another's. */
static struct operation *asking_answered(const struct program *program,
                                         const msgpack_object *message)
{
    struct operation *op = program->peer->agent->operations;
    uint64_t id = field_u64(message, "request", 0);

    while (op && (op->asked.id != id || op->program != program || op->state != OPERATION_SENT ||
                  !(OPERATIONS_REPORTED & OPERATION_BIT(op->verb))))
        op = op->next;
    return op;
}

/** True while the program, which has the request, moves to or prepares another device. */
static bool asking_moves(const struct operation *op, const struct program *program)
{
    return op->program == program && op->state == OPERATION_SENT &&
           (!operation_stays(op) || op->verb == REQUEST_PREWARM);
}

bool asking_cancel_program(struct agent *agent, const struct program *program)
{
    bool any = false;

    for (struct operation *op = agent->operations; op; op = op->next) {
        if (!asking_moves(op, program) || !program->peer)
            continue;
        asking_send_cancel(op);
        any = true;
    }
    return any;
}

int asking_adjust(struct agent *agent, const struct program *program, const struct request *asked)
{
    int error = -ENOENT;

    for (struct operation *op = agent->operations; op; op = op->next) {
        const char *phase = op->progress.phase;
        struct request change = {.id = op->asked.id,
                                 .bandwidth = asked->bandwidth,
                                 .max_downtime_ms = asked->max_downtime_ms};
        struct frame frame;
        if (!asking_moves(op, program) || op->verb > REQUEST_RESUME || !program->peer)
            continue;
        if (strcmp(phase, "commit") == 0 || strcmp(phase, "resume") == 0) {
            error = error ? -EALREADY : 0;
            continue;
        }
        /* Kept for the case that the request is sent again: asking_start_over(). */
        if (asked->bandwidth)
            op->asked.bandwidth = asked->bandwidth;
        if (asked->max_downtime_ms)
            op->asked.max_downtime_ms = asked->max_downtime_ms;
        frame_init(&frame, MSG_ADJUST);
        put_request(&frame, &change);
        peer_send(program->peer, &frame);
        error = 0;
    }
    return error;
}

void asking_progress(struct peer *peer, struct message *whole)
{
    const msgpack_object *message = &whole->root;
    struct operation *op = asking_answered(peer->program, message);
    char phase[sizeof(op->progress.phase)];
    struct frame frame;

    if (!op)
        return;
    memcpy(phase, op->progress.phase, sizeof(phase));
    take_progress(message, &op->progress);
    if (strcmp(phase, op->progress.phase) != 0)
        operation_note(peer->agent, op, op->progress.phase, "");
    if (!op->client)
        return;
    frame_init(&frame, MSG_PROGRESS);
    frame_string(&frame, "to", op->to);
    agent_put_progress(&frame, &op->progress);
    peer_send(op->client, &frame);
}

const struct operation *asking_moving(const struct agent *agent, const struct program *program)
{
    const struct operation *op = agent->operations;

    while (op && !asking_moves(op, program))
        op = op->next;
    return op;
}

/** The virtual devices that the operation moved, as bits. */
static unsigned asking_moved_vdevs(const struct operation *op, const msgpack_object *message)
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

/** The program has more memory than the agent knew: decide its grant on the target again. */
static void asking_start_over(struct agent *agent, struct operation *op)
{
    const struct inventory_entry *target = devices_entry(agent, op->target);
    char error[PROTOCOL_TEXT_MAX];

    if (op->ours || (!op->client && !op->asked.detach)) {
        /* The policy decides again by itself. */
        operation_settle(agent, op,
                         &(struct operation_end){
                             .result = RESULT_AGAIN,
                             .reason = "it allocated more meanwhile; the decision is made again"});
        return;
    }
    struct operation_end end = {.result = RESULT_AGAIN, .reason = ""};
    operation_release(agent, op, &end);
    if (!operation_enter(agent, op, OPERATION_WAITING))
        return;
    if (!target || op->tries == TRIES_MAX) {
        client_refuse(op->client, ERR_FAILED, op->program,
                      "does not say what became of it, and may be where it was; see reseat ps");
        end.result = RESULT_UNKNOWN;
        operation_settle(agent, op, &end);
    } else if (admit_request(agent, op, target, error, sizeof(error))) {
        if (op->client)
            peer_error(op->client, ERR_REFUSED, "%s", error);
        end = (struct operation_end){.result = RESULT_REFUSED, .reason = error};
        operation_settle(agent, op, &end);
    } else {
        op->tries++;
        asking_send(agent, op, target);
    }
}

void asking_report(struct peer *peer, struct message *whole)
{
    const msgpack_object *message = &whole->root;
    struct agent *agent = peer->agent;
    struct operation *op = asking_answered(peer->program, message);
    char result[PROTOCOL_WORD_MAX], reason[PROTOCOL_TEXT_MAX];

    if (!op)
        return;
    if (field_is(message, "result", RESULT_AGAIN)) {
        asking_start_over(agent, op);
        return;
    }
    field_string(message, "result", result, sizeof(result));
    field_text(message, "reason", reason, sizeof(reason));
    operation_answered(agent, op, message);
    if (!operation_stays(op))
        metrics_note_move(agent, message);
    struct peer *client = op->client || !op->ours || operation_stays(op)
                              ? op->client
                              : resume_ends(agent, op, result);
    if (client)
        report_forward(client, op, message);
    operation_settle(agent, op,
                     &(struct operation_end){.moved = asking_moved_vdevs(op, message),
                                             .result = result,
                                             .reason = reason,
                                             .lasting = field_bool(message, "lasting", false)});
}

/**
 * End all operations sent to @program, none of which will be answered. Each waiting client gets an
 * error with @code, composed of @does (what the program did), the operation's name and @follows.
 */
static void asking_end_all(struct agent *agent, struct program *program, const char *code,
                           const char *does, const char *follows, const char *result,
                           const char *reason)
{
    for (struct operation *op = agent->operations, *next; op; op = next) {
        next = op->next;
        if (op->program != program || op->state != OPERATION_SENT ||
            !(OPERATIONS_REPORTED & OPERATION_BIT(op->verb)))
            continue;
        client_refuse(op->client, code, program, "%s the %s%s", does, operation_name(op), follows);
        if (program->peer)
            asking_send_cancel(op);
        operation_settle(agent, op, &(struct operation_end){.result = result, .reason = reason});
    }
}

void asking_unreachable(struct agent *agent, struct program *program, bool ended)
{
    asking_end_all(agent, program, ERR_GONE,
                   ended ? "ended during" : "closed its connection to the agent during",
                   "; nothing is left to do for it", ended ? RESULT_ENDED : RESULT_UNKNOWN,
                   ended ? "the program ended" : "the program closed its connection to the agent");
}

/* ---- programs that do not answer ---- */

/*
 * A program answers a query at once, however long a request takes, because a thread of it does
 * nothing else. Unanswered queries are counted, one a second, so that a pause of the agent itself
 * does not count.
 */

/** End its requests with errors to waiting clients; the policy then chooses others. */
static void asking_give_up(struct agent *agent, struct program *program)
{
    program->unanswered = 0;
    program->unresponsive = true;
    event_log_program(agent, program, "unresponsive",
                      "does not answer; nothing is asked of it until it does");
    asking_end_all(agent, program, ERR_EXPIRED, "does not answer (is it stopped?);", " is canceled",
                   RESULT_EXPIRED, "it does not answer (is it stopped?)");
    program->managed.shrinks = false;
    agent->changed = true;
}

void liveness_heard(struct agent *agent, struct program *program)
{
    program->unanswered = 0;
    if (program->unresponsive) {
        program->unresponsive = false;
        event_log_program(agent, program, "responsive", "answers again");
        agent->changed = true;
    }
}

void liveness_look(struct agent *agent, struct program *program)
{
    struct frame frame;

    bool owes = program->managed.shrinks || power_awaits(program) ||
                operation_sent(agent, program, OPERATIONS_REPORTED);

    if (!program->peer || !owes) {
        program->unanswered = 0;
    } else if (++program->unanswered == UNANSWERED_MAX) {
        asking_give_up(agent, program);
    } else {
        frame_init(&frame, MSG_QUERY);
        peer_send(program->peer, &frame);
    }
}
