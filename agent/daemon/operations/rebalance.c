#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"
#include "agent/protocol/common_messages.h"

bool rebalance_step(struct agent *agent)
{
    struct governor *governor = agent->governor;
    struct policy_step step;

    if (world_build(agent))
        return false;
    policy_rebalance(&governor->world.policy, config_policy(&agent->config), &step);
    return step.action != POLICY_NOTHING && step.action != POLICY_DO_WAIT && step_do(agent, &step);
}

/** Apply a step to the copied world only, so that the policy can be asked for the next one. */
static void rebalance_pretend(struct world *world, const struct policy_step *step)
{
    struct policy_program *row = &world->programs[step->program];
    uint32_t *at;

    if (row->device != POLICY_NONE) {
        struct policy_device *from = &world->devices[row->device];
        for (at = &from->first; *at != POLICY_NONE; at = &world->programs[*at].next) {
            if (*at == step->program) {
                *at = row->next;
                break;
            }
        }
        from->residents--;
        from->reserved -= row->granted;
        from->busy -= row->busy;
    }
    bool suspends = step->action == POLICY_DO_SUSPEND;
    row->device = suspends ? POLICY_NONE : step->device;
    row->granted = suspends ? 0 : step->bytes;
    if (suspends)
        return;
    struct policy_device *to = &world->devices[step->device];
    row->stayed_s = 0;
    row->next = to->first;
    to->first = step->program;
    to->residents++;
    to->reserved += step->bytes;
    to->busy += row->busy;
}

static void rebalance_dry_run(struct peer *client, enum request_verb verb, uint32_t device)
{
    struct agent *agent = client->agent;
    struct policy_settings settings = *config_policy(&agent->config);
    bool drains = verb == REQUEST_DRAIN;
    struct world *world = &agent->governor->world;
    struct policy_step step;
    unsigned count = 0;

    if (world_build(agent)) {
        client_no_memory(client);
        return;
    }
    for (uint32_t i = 0; drains && i < world->policy.device_count; i++)
        world->devices[i].drains = i == device; /* Others may drain at the same time. */
    if (drains)
        world->devices[device].closed = true;
    settings.automatic = settings.prewarm = false;
    for (; count < BALANCE_MAX; count++) {
        if (drains)
            policy_next(&world->policy, &settings, &step);
        else
            policy_rebalance(&world->policy, config_policy(&agent->config), &step);
        if (step.action != POLICY_DO_MOVE && (!drains || step.action != POLICY_DO_SUSPEND))
            break;
        const struct policy_program *row = &world->programs[step.program];
        bool placed = row->device != POLICY_NONE, moves = step.action == POLICY_DO_MOVE;
        if (drains && row->device != device)
            break; /* The drain is complete, and the policy goes on with something else. */
        followers_tell(
            client, &(struct followed_step){.program = world->groups[step.program].program,
                                            .from = placed ? world->devices[row->device].name : "",
                                            .to = moves ? world->devices[step.device].name : "",
                                            .result = "",
                                            .reason = step.reason});
        rebalance_pretend(world, &step);
    }
    followers_answer(
        client,
        &(struct operation){.verb = verb, .target = device, .asked.dry_run = true, .done = count},
        false);
}

void rebalance_handle(struct peer *client, struct message *message)
{
    enum request_verb verb = request_verb(&message->root);
    uint32_t device = LEDGER_NONE;
    struct request asked;

    take_request(&message->root, &asked);
    /* A client follows one operation at a time. */
    operations_cancel(client, OPERATIONS_FOLLOWED, true);
    if (verb == REQUEST_DRAIN &&
        !client_device(client, field_get(&message->root, "device"), &device))
        return;
    if (asked.dry_run)
        rebalance_dry_run(client, verb, device);
    else if (verb == REQUEST_DRAIN)
        drain_request(client, device, &asked);
    else
        followers_add(client, verb, LEDGER_NONE, 0);
}
