#include <string.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/messages/messages.h"
#include "agent/daemon/operations/verbs.h"

/*
 * Clients that wait for a state of a program or a device. Each has an operation that stays in the
 * state OPERATION_WAITING; whether its condition holds is checked a few times a second.
 */

struct wait_condition {
    const char *name;
    bool program, device; /* It can be waited for of a program, of a device. */
};

static const struct wait_condition conditions[] = {
    {"running", true, false}, {"suspended", true, false}, {"ended", true, false},
    {"lost", true, true},     {"idle", false, true},      {"drained", false, true},
    {"up", false, true},
};

static const struct wait_condition *waiting_find(const msgpack_object *map, bool of_program)
{
    for (size_t i = 0; i < ARRAY_SIZE(conditions); i++)
        if (field_is(map, "condition", conditions[i].name) &&
            (of_program ? conditions[i].program : conditions[i].device))
            return &conditions[i];
    return NULL;
}

static const char *waiting_device(const struct agent *agent, const struct operation *op)
{
    return op->program ? NULL : agent->ledger.devices[op->target].name;
}

static void waiting_answer(struct agent *agent, struct operation *op)
{
    const struct waited waited = {.program = op->program,
                                  .device = waiting_device(agent, op),
                                  .condition = op->condition->name};
    struct frame frame;

    frame_init(&frame, MSG_WAIT);
    put_waited(&frame, &waited);
    peer_send(op->client, &frame);
    operation_settle(agent, op, NULL);
}

/** One that was just asked to move has not said so yet; one that ended is in no list any more. */
static bool waiting_holds(const struct agent *agent, const struct operation *op)
{
    const char *wanted = op->condition->name;
    const struct program *program = op->program;

    if (program) {
        const char *state = program_state(program);
        if (strcmp(wanted, "running") != 0)
            return strcmp(state, wanted) == 0;
        return !operation_moves(agent, program) &&
               (strcmp(state, "running") == 0 || strcmp(state, "spilled") == 0);
    }
    const struct ledger_device *device = &agent->ledger.devices[op->target];
    bool idle = !device->accounts && !device->reserved, up = device->listed && !device->lost;
    return strcmp(wanted, "idle") == 0      ? idle
           : strcmp(wanted, "drained") == 0 ? device->drains && idle
           : strcmp(wanted, "up") == 0      ? up
                                            : !up;
}

void waiting_tick(struct agent *agent)
{
    for (struct operation *op = agent->operations, *next; op; op = next) {
        next = op->next;
        if (op->verb == REQUEST_WAIT && waiting_holds(agent, op))
            waiting_answer(agent, op);
    }
}

void waiting_ends(struct agent *agent, const struct program *program)
{
    for (struct operation *op = agent->operations, *next; op; op = next) {
        next = op->next;
        if (op->verb != REQUEST_WAIT || op->program != program)
            continue;
        if (strcmp(op->condition->name, "ended") == 0) {
            waiting_answer(agent, op);
        } else {
            client_refuse(op->client, ERR_GONE, program, "ended and will never be %s",
                          op->condition->name);
            operation_settle(agent, op, NULL);
        }
    }
}

void waiting_cancel(struct agent *agent, struct operation *op, bool gone)
{
    (void)gone;
    operation_settle(agent, op, NULL);
}

void waiting_expire(struct agent *agent, struct operation *op)
{
    if (op->program)
        client_refuse(op->client, ERR_EXPIRED, op->program, "is %s and was not %s in time",
                      program_state(op->program), op->condition->name);
    else
        peer_error(op->client, ERR_EXPIRED, "%s was not %s in time", waiting_device(agent, op),
                   op->condition->name);
    operation_settle(agent, op, NULL);
}

void waiting_handle(struct peer *client, struct message *message)
{
    struct operation wish = operation_of(NULL, REQUEST_WAIT, PROGRAM_ALL_VDEVS, client);
    struct agent *agent = client->agent;
    size_t vdev;

    wish.asked.timeout_ms = field_u64(&message->root, "timeout_ms", 0);
    if (!client_program_or_device(client, &message->root, &wish.program, &vdev, &wish.target))
        return;
    wish.condition = waiting_find(&message->root, wish.program != NULL);
    if (!wish.condition) {
        peer_error(client, ERR_USAGE, "%s can be waited for",
                   wish.program ? "of a program, running, suspended, lost or ended"
                                : "of a device, idle, drained, lost or up");
        return;
    }
    struct operation *op = operation_follow(agent, &wish, OPERATION_BIT(REQUEST_WAIT));
    if (op && waiting_holds(agent, op))
        waiting_answer(agent, op);
}
