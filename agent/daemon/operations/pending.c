#include <stdlib.h>
#include <string.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/metrics/metrics.h"
#include "agent/daemon/operations/governor.h"

/* Calls of programs that are blocked until memory is free. */

#define PENDING_MAX 256 /* Of one program: the most threads that wait at once. */

struct pending *pending_of(const struct program *program, unsigned vdevs)
{
    for (struct pending *pending = program->managed.needs; pending; pending = pending->next)
        if (vdevs & (1u << pending->vdev))
            return pending;
    return NULL;
}

static void pending_drop_one(struct agent *agent, struct pending *pending)
{
    struct managed *managed = &pending->program->managed;

    for (struct pending **at = &managed->needs; *at; at = &(*at)->next) {
        if (*at == pending) {
            *at = pending->next;
            break;
        }
    }
    managed->waiting--;
    agent->governor->waiting--;
    free(pending);
}

static void pending_answer_one(const struct program *program, uint64_t id, const char *way,
                               const char *reason)
{
    struct frame frame;

    frame_init(&frame, MSG_ANSWER);
    frame_u64(&frame, "id", id);
    frame_string(&frame, "way", way);
    frame_string(&frame, "reason", reason);
    peer_send(program->peer, &frame);
}

/**
 * A driver refused an allocation: for a while, the device's memory is what is held there now. A
 * report of another user's program has this effect only for that program (world_fill()).
 */
static void pending_note_failure(struct agent *agent, const struct program_device *vdev)
{
    if (vdev->entry.device != LEDGER_NONE) {
        struct ledger_device *device = &agent->ledger.devices[vdev->entry.device];
        device->tight = device->held;
        device->tight_until_ms = uv_now(&agent->loop) + TIGHT_MS;
        agent_log("%s: its driver has no more memory, with %llu MiB held by programs here",
                  device->name, (unsigned long long)(device->held >> 20));
    }
}

void pending_take(struct peer *peer, struct message *whole)
{
    const msgpack_object *message = &whole->root;
    struct program *program = peer->program;
    struct agent *agent = peer->agent;
    struct pending said = {
        .program = program, .id = field_u64(message, "id", 0), .since_ms = uv_now(&agent->loop)};

    take_need(message, &said);
    if (said.vdev >= program->vdev_count || program->managed.waiting >= PENDING_MAX) {
        pending_answer_one(program, said.id, WAY_REFUSE,
                           said.vdev >= program->vdev_count
                               ? "the program has no such virtual device"
                               : "too many calls of the program wait for memory");
        return;
    }
    struct pending *pending = malloc(sizeof(*pending));
    if (!pending) {
        pending_answer_one(program, said.id, WAY_REFUSE,
                           "the agent has no memory to note that the call waits");
        return;
    }
    *pending = said;
    pending->ticket = ++agent->tickets;
    struct pending **at = &program->managed.needs;
    while (*at)
        at = &(*at)->next;
    *at = pending;
    program->managed.waiting++;
    agent->governor->waiting++;
    if (pending->failed && ledger_sync_believe(program))
        pending_note_failure(agent, &program->vdevs[said.vdev]);
    agent->changed = true;
}

void pending_drop(struct agent *agent, const struct program *program)
{
    while (program->managed.needs)
        pending_drop_one(agent, program->managed.needs);
}

void pending_queue(struct agent *agent, const struct pending *pending, struct program_device *vdev)
{
    vdev->ticket = pending ? pending->ticket : ++agent->tickets;
    vdev->queued_ms = pending ? pending->since_ms : uv_now(&agent->loop);
}

void pending_reply(struct agent *agent, struct pending *pending, const char *way,
                   const char *reason)
{
    struct managed *managed = &pending->program->managed;
    struct program_device *vdev = &pending->program->vdevs[pending->vdev];
    uint64_t waited = uv_now(&agent->loop) - pending->since_ms;
    bool refused = strcmp(way, WAY_REFUSE) == 0;

    pending_answer_one(pending->program, pending->id, way, reason);
    /* Keep the higher minimum until the status includes it: the grant is not asked back. */
    if (!refused && pending->least > vdev->least)
        vdev->least = pending->least;
    vdev->earned_ms = waited;
    managed->waits++;
    managed->waited_ms += waited;
    metrics_note_wait(agent, waited);
    managed->refusals += refused;
    pending_drop_one(agent, pending);
}

void pending_answer(struct agent *agent, const struct program *program, unsigned vdevs,
                    const char *way, const char *reason)
{
    struct pending *pending;

    while ((pending = pending_of(program, vdevs)))
        pending_reply(agent, pending, way, reason);
}
