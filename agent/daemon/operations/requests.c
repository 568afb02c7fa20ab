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
    "vdev",          "result",   "reached",       "reason",      "already",
    "lasting",       "total_ns", "arrived_ns",    "downtime_ns", "bytes",
    "left",          "rounds",   "predicted_ns",  "build_ns",    "built",
    "drain_ns",      "aim_ns",   "image",         "not_stored",  "image_bytes",
    "image_written", "freed",    "not_protected", "not_removed", "box"};

/* What the program reported of @request. */
static void requests_report_forward(struct peer *client, const struct operation *request,
                                    const msgpack_object *message)
{
    const msgpack_object *vdevs;
    size_t count = field_array(message, "vdevs", &vdevs);
    struct frame frame;

    frame_init(&frame, MSG_REPORT);
    report_put_program(&frame, request->program);
    frame_string(&frame, "from", request->from);
    frame_string(&frame, "to", request->to);
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
    void (*settle)(struct agent *agent, const struct operation *request,
                   const struct operation_end *end);
} verbs[OPERATION_VERBS] = {
    [OPERATION_MOVE] = {MSG_MOVE, admit_settle},
    [OPERATION_SUSPEND] = {MSG_SUSPEND, admit_settle},
    [OPERATION_RESUME] = {MSG_RESUME, admit_settle},
    [OPERATION_PREWARM] = {MSG_PREWARM, prewarm_settle},
    [OPERATION_CHECKPOINT] = {.type = MSG_CHECKPOINT},
    [OPERATION_PROTECT] = {.type = MSG_PROTECT},
};

const char *operation_name(const struct operation *request)
{
    return verbs[request->verb].type;
}

void requests_settle(struct agent *agent, const struct operation *request,
                     const struct operation_end *end)
{
    if (!request->asked.dry_run && verbs[request->verb].settle)
        verbs[request->verb].settle(agent, request, end);
}

static void requests_end_request(struct agent *agent, struct operation *request,
                                 const struct operation_end *end)
{
    for (struct operation **at = &agent->requests; *at; at = &(*at)->next) {
        if (*at == request) {
            *at = request->next;
            break;
        }
    }
    requests_settle(agent, request, end);
    free(request);
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
static void requests_put_grants(struct frame *frame, const struct operation *request, bool again)
{
    size_t count = request->program->vdev_count;
    uint64_t most = 0, wanted[PROTOCOL_VDEVS_MAX];

    for (size_t i = 0; i < count; i++) {
        most = request->grants[i] > most ? request->grants[i] : most;
        wanted[i] = vdev_wanted(&request->program->vdevs[i]);
    }
    frame_u64(frame, "grant",
              request->vdev == PROGRAM_ALL_VDEVS ? most : request->grants[request->vdev]);
    if (request->vdev == PROGRAM_ALL_VDEVS)
        requests_put_numbers(frame, "grants", request->grants, count);
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
static void requests_send_request(const struct agent *agent, const struct operation *request,
                                  const struct inventory_entry *target)
{
    const struct policy_settings *settings = config_policy(&agent->config);
    struct request asked = request->asked;
    struct frame frame;

    asked.app[0] = asked.device[0] = '\0';
    if (target)
        device_key_format(&target->key, asked.device);
    snprintf(asked.name, sizeof(asked.name), "%.127s", strchr(request->to, ',') ? "" : request->to);
    asked.timeout_ms = 0;
    asked.strict = asked.max_downtime_ms != 0;
    if (!asked.max_downtime_ms)
        asked.max_downtime_ms = settings->max_downtime_ms;
    if (!asked.bandwidth)
        asked.bandwidth = settings->bandwidth << 20;
    if (request->verb == OPERATION_PROTECT)
        asked.protection = request->program->policy.protect;
    frame_init(&frame, operation_name(request));
    put_request(&frame, &asked);
    if (request->target != LEDGER_NONE && request->verb != OPERATION_PREWARM)
        requests_put_grants(&frame, request, request->tries < TRIES_MAX);
    peer_send(request->program->peer, &frame);
}

int requests_begin(struct agent *agent, const struct operation *wish,
                   const struct inventory_entry *target)
{
    struct operation *request = malloc(sizeof(*request));
    struct program *program = wish->program;

    if (!request)
        return -ENOMEM;
    *request = *wish;
    request->begun_ms = uv_now(&agent->loop);
    request->asked.id = ++agent->next_request;
    request->asked.vdev =
        wish->vdev == PROGRAM_ALL_VDEVS ? REQUEST_ALL_VDEVS : (uint32_t)wish->vdev;
    program_device_names(agent, program, wish->vdev, true, request->from, sizeof(request->from));
    if (target)
        snprintf(request->to, sizeof(request->to), "%s", target->name);
    else if (request->verb == OPERATION_RESUME)
        program_device_names(agent, program, wish->vdev, false, request->to, sizeof(request->to));
    uint64_t timeout_ms = wish->asked.timeout_ms;
    timeout_ms = timeout_ms < TIMEOUT_MS_MAX ? timeout_ms : TIMEOUT_MS_MAX;
    request->expires_ms = timeout_ms ? uv_now(&agent->loop) + timeout_ms + GRACE_MS : 0;
    request->asked.deadline_ns = timeout_ms ? clock_now_ns() + timeout_ms * 1000000 : 0;
    request->next = agent->requests;
    agent->requests = request;
    bool stays = request_stays(request) && !target;
    agent_log("%s: %s%s%s%s%s asked by %s %d", program->id, operation_name(request),
              stays ? "" : " from ",
              stays              ? ""
              : request->from[0] ? request->from
                                 : "memory",
              stays ? "" : " to ",
              stays            ? ""
              : request->to[0] ? request->to
                               : "memory",
              request->ours ? "policy of agent" : "pid",
              request->client ? (int)request->client->pid : (int)getpid());
    requests_send_request(agent, request, target);
    return 0;
}

static void requests_send_cancel(const struct operation *request)
{
    struct frame frame;

    frame_init(&frame, MSG_CANCEL);
    frame_u64(&frame, "request", request->asked.id);
    peer_send(request->program->peer, &frame);
}

void requests_cancel(struct peer *client, bool gone)
{
    struct agent *agent = client->agent;

    for (struct operation *request = agent->requests; request; request = request->next) {
        if (request->client != client)
            continue;
        if (gone)
            request->client = NULL;
        if (request->program->peer)
            requests_send_cancel(request);
    }
}

/** The request that @message of @program answers, or NULL: nobody may answer for another program.
 */
static struct operation *requests_request_of(struct program *program, const msgpack_object *message)
{
    struct operation *request = program->peer->agent->requests;
    uint64_t id = field_u64(message, "request", 0);

    while (request && (request->asked.id != id || request->program != program))
        request = request->next;
    return request;
}

/** It is on its way to another device, or one is made ready for it. */
static bool requests_request_moves(const struct operation *request)
{
    return !request_stays(request) || request->verb == OPERATION_PREWARM;
}

static void requests_put_phase(struct frame *frame, const struct operation *request)
{
    const struct request_progress *progress = &request->progress;

    frame_string(frame, "to", request->to);
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

    for (struct operation *request = agent->requests; request; request = request->next) {
        if (request->program != program || !requests_request_moves(request) || !program->peer)
            continue;
        requests_send_cancel(request);
        any = true;
    }
    return any;
}

void requests_progress(struct peer *peer, struct message *whole)
{
    const msgpack_object *message = &whole->root;
    struct operation *request = requests_request_of(peer->program, message);
    struct frame frame;

    if (!request)
        return;
    struct request_progress *progress = &request->progress;
    field_string(message, "phase", progress->phase, sizeof(progress->phase));
    field_text(message, "building", progress->building, sizeof(progress->building));
    progress->done = field_u64(message, "done", 0);
    progress->total = field_u64(message, "total", 0);
    progress->builds = field_u64(message, "builds", 0);
    progress->built = field_u64(message, "built", 0);
    progress->round = field_u64(message, "round", 0);
    if (!request->client)
        return;
    frame_init(&frame, MSG_PROGRESS);
    requests_put_phase(&frame, request);
    peer_send(request->client, &frame);
}

void requests_put_progress(const struct agent *agent, const struct program *program,
                           struct frame *frame)
{
    const struct operation *request = agent->requests;

    while (request && (request->program != program || !requests_request_moves(request)))
        request = request->next;
    if (!request)
        return;
    frame_map(frame, "move");
    frame_string(frame, "verb", operation_name(request));
    requests_put_phase(frame, request);
    frame_end(frame);
}

/** The virtual devices that are where they should be, as bits. */
static unsigned requests_moved_vdevs(const struct operation *request, const msgpack_object *message)
{
    const msgpack_object *vdevs;
    size_t count = field_array(message, "vdevs", &vdevs);
    bool done = field_is(message, "result", RESULT_DONE);
    unsigned moved = count ? 0 : done ? request->vdevs : 0;

    for (size_t i = 0; i < count && i < PROTOCOL_VDEVS_MAX; i++) {
        uint64_t vdev = field_u64(&vdevs[i], "vdev", 0);
        if (vdev < PROTOCOL_VDEVS_MAX && field_is(&vdevs[i], "result", RESULT_DONE))
            moved |= 1u << vdev;
    }
    return moved & request->vdevs;
}

/** The program has more than we knew: what it may have there is decided anew. */
static void requests_start_over(struct agent *agent, struct operation *request)
{
    const struct inventory_entry *target = devices_entry(agent, request->target);
    char error[PROTOCOL_TEXT_MAX];

    if (request->ours || !request->client) {
        /* The policy sees for itself. */
        requests_end_request(
            agent, request,
            &(struct operation_end){.result = RESULT_AGAIN,
                                    .reason =
                                        "it allocated more meanwhile; the decision is made again"});
        return;
    }
    struct operation_end end = {.result = RESULT_AGAIN, .reason = ""};
    requests_settle(agent, request, &end);
    if (!target || request->tries == TRIES_MAX) {
        peer_error(request->client, ERR_FAILED,
                   "program %s (pid %d) does not say what became of it, and may be where it was; "
                   "see reseat ps",
                   request->program->name, (int)request->program->pid);
        end.result = RESULT_UNKNOWN;
        requests_end_request(agent, request, &end);
    } else if (admit_request(agent, request, target, error, sizeof(error))) {
        peer_error(request->client, ERR_REFUSED, "%s", error);
        requests_end_request(agent, request, &end);
    } else {
        request->tries++;
        requests_send_request(agent, request, target);
    }
}

void requests_report(struct peer *peer, struct message *whole)
{
    const msgpack_object *message = &whole->root;
    struct agent *agent = peer->agent;
    struct operation *request = requests_request_of(peer->program, message);
    char result[PROTOCOL_WORD_MAX], reason[PROTOCOL_TEXT_MAX];

    if (!request)
        return;
    if (field_is(message, "result", RESULT_AGAIN)) {
        requests_start_over(agent, request);
        return;
    }
    field_string(message, "result", result, sizeof(result));
    field_text(message, "reason", reason, sizeof(reason));
    agent_log("%s: %s %s%s%s", peer->program->id, operation_name(request), result,
              reason[0] ? ": " : "", reason);
    if (request->reported)
        request->reported(agent, request, message);
    if (request->asked.parks)
        resume_later(agent, peer->program, request->ran);
    struct peer *client = request->client || !request->ours || request_stays(request)
                              ? request->client
                              : resume_ends(agent, request, result);
    if (client)
        requests_report_forward(client, request, message);
    requests_end_request(agent, request,
                         &(struct operation_end){.moved = requests_moved_vdevs(request, message),
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

    for (struct operation *request = agent->requests; request; request = next) {
        next = request->next;
        if (request->program != program)
            continue;
        if (request->client) {
            peer_error(request->client, code, "program %s (pid %d) %s the %s%s", program->name,
                       (int)program->pid, does, operation_name(request), follows);
        }
        if (program->peer)
            requests_send_cancel(request);
        requests_end_request(agent, request,
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

    for (struct operation *request = agent->requests; request; request = next) {
        next = request->next;
        if (!request->expires_ms || uv_now(&agent->loop) < request->expires_ms)
            continue;
        if (request->client) {
            peer_error(request->client, ERR_EXPIRED,
                       "program %s (pid %d) did not answer within the deadline; it rolls back by "
                       "itself when it runs again (is it stopped?)",
                       request->program->name, (int)request->program->pid);
        }
        requests_end_request(agent, request,
                             &(struct operation_end){.result = RESULT_EXPIRED,
                                                     .reason = "it did not answer in time"});
    }
}

void requests_finish(struct agent *agent)
{
    while (agent->requests) {
        struct operation *request = agent->requests;
        agent->requests = request->next;
        free(request);
    }
}

/*
 * A program answers a query at once, however long a request takes it: one of its threads does
 * nothing else. In sweeps (250 ms), so that a stop of the agent itself counts for nothing.
 */

static bool requests_is_awaited(const struct agent *agent, const struct program *program)
{
    for (const struct operation *request = agent->requests; request; request = request->next)
        if (request->program == program)
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
