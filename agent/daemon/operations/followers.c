#include <string.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/operations/verbs.h"

/*
 * Clients that follow a drain or a rebalance. Each has an operation that belongs to no program and
 * waits for operations of the policy. The client is told of each of these, and of the end.
 */

static bool followers_is_one(const struct operation *op)
{
    return op->verb == REQUEST_DRAIN || op->verb == REQUEST_BALANCE;
}

void followers_cancel(struct agent *agent, struct operation *op, bool gone)
{
    if (gone)
        operation_settle(agent, op, NULL);
}

/** True where @op moves a program off what @follower drains; of a rebalance, always. */
static bool followers_concerns(const struct agent *agent, const struct operation *follower,
                               const struct operation *op)
{
    if (follower->verb == REQUEST_BALANCE)
        return true;
    const char *name = agent->ledger.devices[follower->target].name, *at = strstr(op->from, name);
    size_t length = strlen(name);

    return at && (at == op->from || at[-1] == ',') && (at[length] == '\0' || at[length] == ',');
}

void followers_tell(struct peer *client, const struct followed_step *step)
{
    struct frame frame;

    frame_init(&frame, MSG_STEP);
    put_step(&frame, step);
    peer_send(client, &frame);
}

void followers_step(struct agent *agent, const struct operation *op, const char *result,
                    const char *reason)
{
    for (struct operation *follower = agent->operations; follower; follower = follower->next) {
        if (!followers_is_one(follower) || !followers_concerns(agent, follower, op))
            continue;
        bool done = strcmp(result, RESULT_DONE) == 0;
        follower->done += done;
        follower->failed += strcmp(result, RESULT_ROLLED_BACK) == 0 ||
                            strcmp(result, RESULT_EXPIRED) == 0 ||
                            strcmp(result, RESULT_CANCELED) == 0;
        followers_tell(follower->client,
                       &(struct followed_step){.program = op->program,
                                               .from = op->from,
                                               .to = op->to,
                                               .result = result,
                                               .reason = done ? op->why : reason});
    }
}

/**
 * The programs that are still on a draining device, with the reasons; LEDGER_NONE: none.
 *
 * @stuck  Only those that will stay there, as the others have not been asked.
 */
static void followers_put_left(const struct agent *agent, uint32_t device, bool stuck,
                               struct frame *frame)
{
    frame_array(frame, "left");
    for (const struct program *program = agent->programs; program; program = program->next) {
        bool there = false;
        const char *pinned = "";
        for (size_t i = 0; device != LEDGER_NONE && i < program->vdev_count; i++) {
            if (program->vdevs[i].entry.device == device) {
                there = true;
                pinned = pinned[0] ? pinned : program->vdevs[i].pinned;
            }
        }
        if (!there || (stuck && !pinned[0] && program_acts(program)))
            continue;
        frame_map(frame, NULL);
        report_put_program(frame, program);
        frame_string(frame, "reason", pinned[0] ? pinned : drain_stay_reason(agent, program));
        frame_end(frame);
    }
    frame_end(frame);
}

/** True while an operation is in progress for which @follower waits. */
static bool followers_waits(const struct agent *agent, const struct operation *follower)
{
    const unsigned counted =
        OPERATIONS_REPORTED & ~OPERATION_BIT(REQUEST_PREWARM) & ~OPERATION_BIT(REQUEST_CHECKPOINT);

    for (const struct operation *op = agent->operations; op; op = op->next)
        if (op->state == OPERATION_SENT && counted & OPERATION_BIT(op->verb) &&
            followers_concerns(agent, follower, op))
            return true;
    if (follower->verb == REQUEST_DRAIN && (agent->ledger.devices[follower->target].drains_ms ||
                                            prewarm_holds(agent, follower->target)))
        return true;
    for (const struct program *program = agent->programs; program; program = program->next)
        if (program->managed.shrinks)
            return true;
    return false;
}

void followers_answer(struct peer *client, const struct operation *op, bool drained)
{
    struct agent *agent = client->agent;
    struct frame frame;

    frame_init(&frame, operation_name(op));
    if (op->verb == REQUEST_DRAIN) {
        frame_string(&frame, "device", agent->ledger.devices[op->target].name);
        frame_bool(&frame, "drained", drained);
        frame_bool(&frame, "cordoned", agent->ledger.devices[op->target].cordoned);
        followers_put_left(agent, drained || op->asked.dry_run ? op->target : LEDGER_NONE,
                           op->asked.dry_run, &frame);
    }
    frame_u64(&frame, "moved", op->done);
    frame_u64(&frame, "failed", op->failed);
    peer_send(client, &frame);
}

void followers_tick(struct agent *agent)
{
    for (struct operation *op = agent->operations, *next; op; op = next) {
        next = op->next;
        if (!followers_is_one(op) || agent->changed || followers_waits(agent, op))
            continue;
        if (op->done + op->failed < BALANCE_MAX && operation_next(agent, op))
            continue;
        char reason[64];
        followers_answer(op->client, op, true);
        snprintf(reason, sizeof(reason), "%u moved, %u failed to", op->done, op->failed);
        operation_settle(agent, op,
                         &(struct operation_end){.result = RESULT_DONE, .reason = reason});
    }
}

void followers_expire(struct agent *agent, struct operation *op)
{
    peer_error(op->client, ERR_EXPIRED,
               "%u have moved off %s in time, and others have not; it stays drained (reseat drain "
               "%s --off)",
               op->done, agent->ledger.devices[op->target].name,
               agent->ledger.devices[op->target].name);
    operation_settle(
        agent, op,
        &(struct operation_end){.result = RESULT_EXPIRED, .reason = "its command waits no longer"});
}

void followers_add(struct peer *client, enum request_verb verb, uint32_t device,
                   uint64_t timeout_ms)
{
    struct agent *agent = client->agent;
    struct operation wish = operation_of(NULL, verb, PROGRAM_ALL_VDEVS, client);

    wish.asked.timeout_ms = timeout_ms;
    wish.target = device;
    agent->changed = operation_add(agent, &wish) || agent->changed;
}

void followers_undone(struct agent *agent, uint32_t device)
{
    for (struct operation *op = agent->operations, *next; op; op = next) {
        next = op->next;
        if (op->verb == REQUEST_DRAIN && op->target == device) {
            peer_error(op->client, ERR_FAILED,
                       "the drain of %s was undone (reseat drain --off) when %u had moved; it "
                       "takes programs again",
                       agent->ledger.devices[device].name, op->done);
            operation_settle(agent, op, NULL);
        }
    }
}
