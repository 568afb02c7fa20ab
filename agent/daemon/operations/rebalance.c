#include "agent/daemon/operations/drains.h"
#include "agent/daemon/operations/governor.h"
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
    struct policy_device *to = &world->devices[step->device];
    row->device = step->device;
    row->granted = step->bytes;
    row->stayed_s = 0;
    row->next = to->first;
    to->first = step->program;
    to->residents++;
    to->reserved += step->bytes;
    to->busy += row->busy;
}

static void rebalance_dry_run(struct peer *client)
{
    struct agent *agent = client->agent;
    struct world *world = &agent->governor->world;
    struct policy_step step;
    unsigned count = 0;

    if (world_build(agent)) {
        client_no_memory(client);
        return;
    }
    for (; count < BALANCE_MAX; count++) {
        policy_rebalance(&world->policy, config_policy(&agent->config), &step);
        if (step.action != POLICY_DO_MOVE)
            break;
        const struct policy_program *row = &world->programs[step.program];
        bool placed = row->device != POLICY_NONE;
        followers_tell(
            client, &(struct followed_step){.program = world->groups[step.program].program,
                                            .from = placed ? world->devices[row->device].name : "",
                                            .to = world->devices[step.device].name,
                                            .result = "",
                                            .reason = step.reason});
        rebalance_pretend(world, &step);
    }
    followers_answer(client, &(struct operation){.verb = REQUEST_BALANCE, .done = count}, false);
}

void rebalance_handle(struct peer *client, struct message *message)
{
    struct request asked;

    take_request(&message->root, &asked);
    operations_cancel(client, OPERATIONS_FOLLOWED,
                      true); /* A client follows one operation at a time. */
    if (asked.dry_run)
        rebalance_dry_run(client);
    else
        followers_add(client, REQUEST_BALANCE, LEDGER_NONE);
}
