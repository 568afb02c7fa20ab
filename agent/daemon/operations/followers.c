#include "agent/daemon/operations/operations.h"

#include <stdlib.h>
#include <string.h>

static void followers_drop_one(struct governor *governor, struct follower *follower)
{
    for (struct follower **at = &governor->followers; *at; at = &(*at)->next) {
        if (*at == follower) {
            *at = follower->next;
            break;
        }
    }
    free(follower);
}

void followers_drop(struct agent *agent, const struct peer *client)
{
    struct follower *next;

    for (struct follower *follower = agent->governor->followers; follower; follower = next) {
        next = follower->next;
        if (!client || follower->client == client)
            followers_drop_one(agent->governor, follower);
    }
}

static bool followers_concerns(const struct agent *agent, const struct follower *follower,
                               const struct operation *op)
{
    const char *name = agent->ledger.devices[follower->device].name;
    const char *at = follower->drains ? strstr(op->from, name) : op->from;
    size_t length = follower->drains ? strlen(name) : 0;

    return at && (!follower->drains ||
                  ((at == op->from || at[-1] == ',') && (at[length] == '\0' || at[length] == ',')));
}

void followers_step(struct agent *agent, const struct operation *op, const char *result,
                    const char *reason)
{
    for (struct follower *follower = agent->governor->followers; follower;
         follower = follower->next) {
        struct frame frame;
        if (!followers_concerns(agent, follower, op))
            continue;
        bool done = strcmp(result, RESULT_DONE) == 0;
        follower->done += done;
        follower->failed += strcmp(result, RESULT_ROLLED_BACK) == 0 ||
                            strcmp(result, RESULT_EXPIRED) == 0 ||
                            strcmp(result, RESULT_CANCELED) == 0;
        frame_init(&frame, MSG_STEP);
        report_put_program(&frame, op->program);
        frame_string(&frame, "from", op->from);
        frame_string(&frame, "to", op->to);
        frame_string(&frame, "result", result);
        frame_string(&frame, "reason", done ? op->why : reason);
        peer_send(follower->client, &frame);
    }
}

/** Why it is not asked, or is off other devices, where that is known, else of its last step. */
const char *drain_stay_reason(const struct agent *agent, const struct program *program)
{
    const struct managed *managed = &program->managed;
    const char *reason = managed->why[0] ? managed->why : "no other device has room for it";

    if (!program->peer)
        return "it has not found this agent yet";
    if (program->unresponsive)
        return "it does not answer (is it stopped?)";
    if (program->status.fenced)
        return program->status.right_problem;
    for (unsigned i = 0; i < managed->exclusion_count; i++)
        reason = exclusions_hold(agent, program, &managed->exclusions[i])
                     ? managed->exclusions[i].reason
                     : reason;
    return reason;
}

/** Who is left on a device that drains, and why. */
static unsigned followers_put_left(const struct agent *agent, uint32_t device, struct frame *frame)
{
    unsigned count = 0;

    frame_array(frame, "left");
    for (const struct program *program = agent->programs; program; program = program->next) {
        bool there = false;
        const char *pinned = "";
        for (size_t i = 0; i < program->vdev_count; i++) {
            if (program->vdevs[i].entry.device == device) {
                there = true;
                pinned = pinned[0] ? pinned : program->vdevs[i].pinned;
            }
        }
        if (!there)
            continue;
        frame_map(frame, NULL);
        report_put_program(frame, program);
        frame_string(frame, "reason", pinned[0] ? pinned : drain_stay_reason(agent, program));
        frame_end(frame);
        count++;
    }
    frame_end(frame);
    return count;
}

static bool followers_busy_there(const struct agent *agent, const struct follower *follower)
{
    for (const struct operation *op = agent->operations; op; op = op->next)
        if (op->verb != OPERATION_PREWARM && op->verb != OPERATION_CHECKPOINT &&
            followers_concerns(agent, follower, op))
            return true;
    if (follower->drains && prewarm_holds(agent, follower->device))
        return true;
    for (const struct program *program = agent->programs; program; program = program->next)
        if (program->managed.shrinks)
            return true;
    return false;
}

static void followers_finish(struct agent *agent, struct follower *follower)
{
    struct frame frame;

    frame_init(&frame, follower->drains ? MSG_DRAIN : MSG_BALANCE);
    if (follower->drains) {
        frame_string(&frame, "device", agent->ledger.devices[follower->device].name);
        frame_bool(&frame, "drained", true);
        followers_put_left(agent, follower->device, &frame);
    }
    frame_u64(&frame, "moved", follower->done);
    frame_u64(&frame, "failed", follower->failed);
    peer_send(follower->client, &frame);
    followers_drop_one(agent->governor, follower);
}

void followers_tick(struct agent *agent, bool (*balance)(struct agent *))
{
    struct follower *next;

    for (struct follower *follower = agent->governor->followers; follower; follower = next) {
        next = follower->next;
        if (agent->changed || followers_busy_there(agent, follower) ||
            (follower->drains && agent->ledger.devices[follower->device].drains_ms))
            continue;
        if (follower->drains || follower->done + follower->failed >= BALANCE_MAX || !balance(agent))
            followers_finish(agent, follower);
    }
}

void followers_add(struct peer *client, bool drains, uint32_t device)
{
    struct governor *governor = client->agent->governor;
    struct follower *follower = calloc(1, sizeof(*follower));

    if (!follower) {
        client_no_memory(client);
        return;
    }
    *follower = (struct follower){.client = client, .drains = drains, .device = device};
    follower->next = governor->followers;
    governor->followers = follower;
    client->agent->changed = true;
}

void followers_undone(struct agent *agent, uint32_t device)
{
    struct follower *next;

    for (struct follower *follower = agent->governor->followers; follower; follower = next) {
        next = follower->next;
        if (follower->drains && follower->device == device) {
            peer_error(follower->client, ERR_FAILED,
                       "the drain of %s was undone (reseat drain --off) when %u had moved; it "
                       "takes programs again",
                       agent->ledger.devices[device].name, follower->done);
            followers_drop_one(agent->governor, follower);
        }
    }
}
