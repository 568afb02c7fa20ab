#include <stdlib.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/event_log.h"
#include "agent/daemon/operations/operation.h"

#define TIMEOUT_MS_MAX (366ull * 24 * 3600 * 1000)

static const struct operation_kind *verbs; /* Written once, by operations_init(). */

void operations_init(const struct operation_kind *kinds)
{
    verbs = kinds;
}

/* ---- states ---- */

/** For each state, the states that may follow it, as bits. */
static const unsigned following[] = {
    [OPERATION_WAITING] = 1u << OPERATION_SENT | 1u << OPERATION_SETTLED,
    [OPERATION_SENT] = 1u << OPERATION_WAITING | 1u << OPERATION_SETTLED,
    [OPERATION_SETTLED] = 0,
};

void operation_note(struct agent *agent, const struct operation *op, const char *state,
                    const char *reason)
{
    const struct ledger_device *device =
        !op->program && op->target != LEDGER_NONE ? &agent->ledger.devices[op->target] : NULL;
    bool moves = !operation_stays(op) || op->to[0];
    struct event event = {.what = operation_name(op),
                          .state = state,
                          .program = op->program,
                          .device = device ? device->name : NULL,
                          .from = op->program && moves ? op->from : NULL,
                          .to = op->program && moves ? op->to : NULL,
                          .reason = reason,
                          .by = op->by_pid                           ? "command"
                                : op->asked.manner == REQUEST_NEEDED ? "program"
                                                                     : "policy",
                          .by_pid = op->by_pid,
                          .by_uid = op->by_uid};

    if (!op->asked.dry_run)
        event_log_add(agent, &event);
}

bool operation_enter(struct agent *agent, struct operation *op, enum operation_state state)
{
    if (!(following[op->state] & 1u << state)) {
        agent_log("operation %llu (%s) is in state %d and cannot enter %d: a defect of the agent",
                  (unsigned long long)op->asked.id, operation_name(op), (int)op->state, (int)state);
        return false;
    }
    op->state = state;
    if (state == OPERATION_SENT && !op->tries)
        operation_note(agent, op, "begun", op->why);
    return true;
}

struct operation operation_of(struct program *program, enum request_verb verb, size_t vdev,
                              struct peer *client)
{
    return (struct operation){
        .verb = verb,
        .client = client,
        .by_pid = client ? client->pid : 0,
        .by_uid = client ? client->uid : 0,
        .program = program,
        .vdev = vdev,
        .vdevs = !program                    ? 0
                 : vdev == PROGRAM_ALL_VDEVS ? vdevs_mask((uint32_t)program->vdev_count)
                                             : 1u << vdev,
        .target = LEDGER_NONE,
        .ours = client == NULL,
    };
}

struct operation *operation_add(struct agent *agent, const struct operation *wish)
{
    struct operation *op = malloc(sizeof(*op));

    if (!op && wish->client)
        client_no_memory(wish->client);
    if (!op)
        return NULL;
    *op = *wish;
    op->state = OPERATION_WAITING;
    op->asked.id = ++agent->next_operation;
    /* A client may send any number; the deadline is the present time plus this. */
    if (op->asked.timeout_ms > TIMEOUT_MS_MAX)
        op->asked.timeout_ms = TIMEOUT_MS_MAX;
    if (op->asked.timeout_ms)
        op->expires_ms = uv_now(&agent->loop) + op->asked.timeout_ms;
    op->next = agent->operations;
    agent->operations = op;
    return op;
}

void operation_release(struct agent *agent, const struct operation *op,
                       const struct operation_end *end)
{
    if (!op->asked.dry_run && verbs[op->verb].settle)
        verbs[op->verb].settle(agent, op, end);
}

void operation_answered(struct agent *agent, const struct operation *op,
                        const msgpack_object *report)
{
    if (verbs[op->verb].answered)
        verbs[op->verb].answered(agent, op, report);
}

bool operation_next(struct agent *agent, const struct operation *op)
{
    return verbs[op->verb].next && verbs[op->verb].next(agent);
}

void operation_settle(struct agent *agent, struct operation *op, const struct operation_end *end)
{
    if (!operation_enter(agent, op, OPERATION_SETTLED))
        return;
    if (end)
        operation_note(agent, op, end->result,
                       end->reason && end->reason[0] ? end->reason : op->why);
    struct operation **at = &agent->operations;
    while (*at != op)
        at = &(*at)->next;
    *at = op->next;
    if (end)
        operation_release(agent, op, end);
    free(op);
}

struct operation *operation_follow(struct agent *agent, const struct operation *wish,
                                   unsigned verb_bits)
{
    operations_cancel(wish->client, verb_bits, true);
    return operation_add(agent, wish);
}

/* All operations. */

struct operation *operation_sent(const struct agent *agent, const struct program *program,
                                 unsigned verb_bits)
{
    struct operation *op = agent->operations;

    while (op && (op->program != program || op->state != OPERATION_SENT ||
                  !(verb_bits & OPERATION_BIT(op->verb))))
        op = op->next;
    return op;
}

bool operation_moves(const struct agent *agent, const struct program *program)
{
    for (const struct operation *op = agent->operations; op; op = op->next)
        if (op->program == program && op->state == OPERATION_SENT && !operation_stays(op))
            return true;
    return false;
}

void operations_cancel(struct peer *client, unsigned verb_bits, bool gone)
{
    for (struct operation *op = client->agent->operations, *next; op; op = next) {
        next = op->next;
        if (op->client == client && verb_bits & OPERATION_BIT(op->verb))
            verbs[op->verb].cancel(client->agent, op, gone);
    }
}

void operations_expire(struct agent *agent)
{
    for (struct operation *op = agent->operations, *next; op; op = next) {
        next = op->next;
        if (op->expires_ms && uv_now(&agent->loop) >= op->expires_ms && verbs[op->verb].expire)
            verbs[op->verb].expire(agent, op);
    }
}

void operations_finish(struct agent *agent)
{
    while (agent->operations)
        operation_settle(agent, agent->operations, NULL);
}

/* ---- reports to clients: MSG_REPORT ---- */

void report_put_program(struct frame *frame, const struct program *program)
{
    frame_map(frame, "app");
    put_identity(frame, program);
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
    blank_outcome(&frame);
    frame_array(&frame, "vdevs");
    frame_end(&frame);
    peer_send(client, &frame);
}

void report_devices(struct peer *client, const struct program *program, size_t vdev,
                    const char *result, bool already)
{
    char from[PROTOCOL_TEXT_MAX], to[PROTOCOL_TEXT_MAX];

    program_device_names(client->agent, program, vdev, true, from, sizeof(from));
    program_device_names(client->agent, program, vdev, false, to, sizeof(to));
    report_plain(client, program, already ? from : "", already ? from : to, result, already);
}

void report_forward(struct peer *client, const struct operation *op, const msgpack_object *message)
{
    struct frame frame;

    frame_init(&frame, MSG_REPORT);
    report_put_program(&frame, op->program);
    frame_string(&frame, "from", op->from);
    frame_string(&frame, "to", op->to);
    frame_bool(&frame, "starting", false);
    relay_report(&frame, message);
    peer_send(client, &frame);
}
