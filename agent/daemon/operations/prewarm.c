#include <string.h>

#include "agent/daemon/operations/verbs.h"

/*
 * Devices that are made ready for programs. Each such device has a context and the compiled
 * programs, whose memory no ledger counts. So they are released where the device is wanted for
 * something else: when it drains, when its driver has refused an allocation, and when it is no
 * longer listed. OpenCL programs that are built later are also built there, from time to time.
 */

#define PREWARM_MS 600000
#define AGAIN_MS   2000

static struct program_ready *prewarm_find(struct program *program, uint32_t device)
{
    for (size_t i = 0; i < program->ready_count; i++)
        if (program->ready[i].device == device)
            return &program->ready[i];
    return NULL;
}

bool prewarm_holds(const struct agent *agent, uint32_t device)
{
    for (struct program *program = agent->programs; program; program = program->next)
        if (program_acts(program) && prewarm_find(program, device))
            return true;
    return false;
}

/** Have @program make the device ready, or release it (@drops), for no waiting client. */
static bool prewarm_ask(struct agent *agent, struct program *program,
                        const struct inventory_entry *target, bool drops, const char *why)
{
    struct operation wish = operation_of(program, REQUEST_PREWARM, PROGRAM_ALL_VDEVS, NULL);

    wish.asked.drop = drops;
    wish.asked.timeout_ms = PREWARM_MS;
    wish.target = target ? devices_index(agent, target) : LEDGER_NONE;
    snprintf(wish.why, sizeof(wish.why), "%s", why);
    return operation_begin(agent, &wish, target) == 0;
}

/** The reason why the device may no longer be ready for @program, or NULL. */
static const char *prewarm_must_go(const struct agent *agent, const struct program *program,
                                   const struct program_ready *ready,
                                   const struct inventory_entry *entry)
{
    const struct ledger_device *device = &agent->ledger.devices[ready->device];

    if (!entry)
        return "it is not listed any more";
    if (ledger_closed(device))
        return "it is drained";
    if (ready->ours && !config_policy(&agent->config)->prewarm)
        return "the policy prewarms no devices any more";
    if (ready->ours && ready->device != program->managed.ready_for)
        return "it is more likely to go elsewhere";
    return device->tight != LEDGER_NO_LIMIT ? "its driver has no more memory" : NULL;
}

void prewarm_look(struct agent *agent, struct program *program)
{
    uint64_t now = uv_now(&agent->loop);

    if (!program_acts(program) || operation_sent(agent, program, OPERATIONS_REPORTED))
        return;
    for (size_t i = 0; i < program->ready_count; i++) {
        struct program_ready *ready = &program->ready[i];
        const struct inventory_entry *entry = devices_entry(agent, ready->device);
        const char *why = prewarm_must_go(agent, program, ready, entry);
        bool due = ready->behind && ready->behind != ready->left && !program_moving(program);
        if ((!why && !due) || (ready->asked_ms && now - ready->asked_ms < AGAIN_MS))
            continue;
        ready->asked_ms = now;
        (void)prewarm_ask(agent, program, entry, why != NULL, why ? why : "it built more since");
        return; /* One request at a time. */
    }
}

void prewarm_settle(struct agent *agent, const struct operation *op,
                    const struct operation_end *end)
{
    struct program_ready *ready = prewarm_find(op->program, op->target);

    if (op->asked.drop)
        return;
    /* The program's status came first: kernels unbuilt now remain unbuilt. */
    if (ready && strcmp(end->result, RESULT_DONE) == 0) {
        ready->left = ready->behind;
        ready->ours = ready->ours || (op->ours && op->target == op->program->managed.ready_for);
    }
    /* One that queues is not kept from being resumed there because there was no room ahead. */
    bool passing = strcmp(end->result, RESULT_ROLLED_BACK) == 0 && !end->lasting;
    if (end->moved == 0 && !(passing && program_suspended(op->program)))
        admit_fail(agent, op, end);
}

bool prewarm_do(struct agent *agent, struct program *program, const struct policy_step *step)
{
    const struct inventory_entry *target = devices_entry(agent, step->device);
    struct managed *managed = &program->managed;

    if (!target || operation_sent(agent, program, OPERATIONS_REPORTED))
        return false;
    managed->ready_for = step->device;
    managed->ready_ms = uv_now(&agent->loop);
    return prewarm_find(program, step->device) ||
           prewarm_ask(agent, program, target, false, step->reason);
}

uint32_t prewarm_device(const struct agent *agent, const struct program *program)
{
    uint32_t first = LEDGER_NONE;

    for (const struct operation *op = agent->operations; op; op = op->next)
        if (op->program == program && op->state == OPERATION_SENT && op->verb == REQUEST_PREWARM &&
            !op->asked.drop)
            return op->target;
    for (size_t i = 0; i < program->ready_count; i++) {
        uint32_t at = program->ready[i].device;
        if (at == program->managed.ready_for)
            return at;
        first = first == LEDGER_NONE ? at : first;
    }
    return first;
}

/** Check all "devices" before the program is asked. False: the client was told. */
static bool prewarm_read_targets(struct peer *client, const msgpack_object *map, bool drops,
                                 const struct inventory_entry **ret_targets, size_t *ret_count)
{
    const msgpack_object *names;
    size_t count = field_array(map, "devices", &names);
    char why[PROTOCOL_TEXT_MAX];
    uint32_t index;

    if (count > PROTOCOL_PREWARM_MAX || (count == 0 && !drops)) {
        peer_error(client, ERR_USAGE, "the request names no device, or more than %d",
                   PROTOCOL_PREWARM_MAX);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        ret_targets[i] = client_device(client, &names[i], &index);
        if (!ret_targets[i])
            return false;
        if (!drops && drain_refuses(client->agent, ret_targets[i]->name, why, sizeof(why))) {
            peer_error(client, ERR_REFUSED, "%s", why);
            return false;
        }
    }
    *ret_count = count;
    return true;
}

void prewarm_handle(struct peer *client, struct message *message)
{
    const msgpack_object *map = &message->root;
    const struct inventory_entry *targets[PROTOCOL_PREWARM_MAX] = {NULL};
    size_t vdev, count;
    struct program *program = client_running_program(client, map, "nothing to make ready", &vdev);

    if (!program)
        return;
    struct operation wish = operation_of(program, REQUEST_PREWARM, vdev, client);
    operation_take(map, &wish);
    if (!prewarm_read_targets(client, map, wish.asked.drop, targets, &count))
        return;
    /* A request for each device: the program serves them independently. */
    size_t i = 0;
    do {
        wish.target = targets[i] ? devices_index(client->agent, targets[i]) : LEDGER_NONE;
        operation_begin(client->agent, &wish, targets[i]);
    } while (++i < count);
}
