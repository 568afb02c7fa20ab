#include <string.h>

#include "agent/daemon/event_log.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"

/* Carries out the policy's steps, as messages to programs and requests like operators'. */

#define SHRINK_MS 10000
#define TRIM_MS   1000
#define FRESH_MS  1000
#define STEP_MS   600000 /* The deadline of a move by the policy. */

/* ---- steps ---- */

static uint64_t steps_granted_of(const struct group *group)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < group->program->vdev_count; i++)
        bytes += group->vdevs & (1u << i) ? ledger_reserved(&group->program->vdevs[i].entry) : 0;
    return bytes;
}

/** Grant what it needs, and a further step where enough is free. */
static bool steps_do_grant(struct agent *agent, const struct group *group,
                           const struct policy_step *step)
{
    struct pending *pending = pending_of(group->program, group->vdevs);
    const struct program_device *vdev = &group->program->vdevs[group->vdev];
    uint64_t granted = steps_granted_of(group),
             quota = limits_quota(agent, group->program, group->vdevs);

    if (vdev->entry.device == LEDGER_NONE || (!pending && !step->bytes))
        return false;
    const struct ledger_device *device = &agent->ledger.devices[vdev->entry.device];
    uint64_t bytes = ledger_round(device, step->bytes), room = ledger_free(device);
    if (group->program->managed.displaces && bytes < ledger_step(device)) {
        /* Grant up to a step of the freed memory, which would be returned and asked for again. */
        bytes = room < ledger_step(device) ? room : ledger_step(device);
        bytes = bytes > step->bytes ? bytes : step->bytes;
    }
    group->program->managed.displaces = false;
    if (bytes > step->bytes && granted + bytes > quota)
        bytes = granted + step->bytes > quota ? step->bytes : quota - granted;
    grants_add(agent, group->program, group->vdev, bytes);
    if (pending)
        pending_reply(agent, pending, WAY_AGAIN, step->reason);
    return true;
}

/** Limit the program to so many bytes; its waiting call continues by spilling. */
static bool steps_do_spill(struct agent *agent, const struct group *group,
                           const struct policy_step *step)
{
    struct pending *pending = pending_of(group->program, group->vdevs);
    uint64_t granted = steps_granted_of(group);

    if (!pending && step->bytes >= granted)
        return false;
    if (step->bytes > granted) {
        grants_add(agent, group->program, group->vdev, step->bytes - granted);
    } else if (step->bytes < granted) {
        for (uint32_t i = 0; i < group->program->vdev_count; i++)
            if (group->vdevs & (1u << i))
                grants_shrink(agent, group->program, i, step->bytes, SHRINK_MS, false);
    }
    if (pending)
        pending_reply(agent, pending, WAY_SPILL, step->reason);
    return true;
}

/** Divide @bytes among the virtual devices of a group in proportion to what they want. */
static void steps_share_out(const struct group *group, uint64_t bytes, uint64_t *ret_grants)
{
    uint64_t wanted = 0, given = 0;

    for (uint32_t i = 0; i < group->program->vdev_count; i++) {
        ret_grants[i] = 0;
        wanted += group->vdevs & (1u << i) ? group->program->vdevs[i].wanted : 0;
    }
    for (uint32_t i = 0; i < group->program->vdev_count; i++) {
        if (group->vdevs & (1u << i) && wanted) {
            ret_grants[i] = (uint64_t)((double)bytes *
                                       ((double)group->program->vdevs[i].wanted / (double)wanted));
            ret_grants[i] = ret_grants[i] < bytes - given ? ret_grants[i] : bytes - given;
            given += ret_grants[i];
        }
    }
    ret_grants[group->vdev] += bytes - given;
}

/** Send a request for each virtual device of the group, which are served in turn. */
static bool steps_ask(struct agent *agent, const struct group *group,
                      const struct policy_step *step, enum request_verb verb)
{
    const struct inventory_entry *target = devices_entry(agent, step->device);
    uint64_t grants[PROTOCOL_VDEVS_MAX];
    bool any = false;

    if (verb != REQUEST_SUSPEND && !target)
        return false;
    steps_share_out(group, step->bytes, grants);
    for (uint32_t i = 0; i < group->program->vdev_count; i++) {
        /* A program that seeks a device after a loss moves from the lost one. */
        bool seeks = group->program->vdevs[i].seeks;
        struct operation op = operation_of(group->program, seeks ? REQUEST_MOVE : verb, i, NULL);
        op.asked.timeout_ms = STEP_MS;
        op.asked.manner = seeks ? REQUEST_NEEDED : REQUEST_ASKED;
        op.target = target ? step->device : LEDGER_NONE;
        op.chosen = group->program->vdevs[i].only == step->device && step->device != LEDGER_NONE;
        op.payback_s = step->payback_s;
        op.grants[i] = grants[i];
        if (!(group->vdevs & op.vdevs))
            continue;
        memcpy(op.why, step->reason, sizeof(op.why));
        if (operation_begin(agent, &op, target))
            continue;
        if (target)
            ledger_keep(&agent->ledger, &group->program->vdevs[i].entry, step->device, grants[i]);
        any = true;
    }
    return any;
}

bool step_do(struct agent *agent, const struct policy_step *step)
{
    const struct world *world = &agent->governor->world;

    if (step->program >= world->policy.program_count)
        return false;
    struct group group = world->groups[step->program];
    struct event event = event_of(NULL, "policy", policy_action_name(step->action));
    if (!group.program->peer || world->programs[step->program].busy_moving)
        return false;
    memcpy(group.program->managed.why, step->reason, sizeof(group.program->managed.why));
    /* The obstacle may be temporary: a program without a waiting call stays in the queue. */
    if (step->action == POLICY_DO_REFUSE && !pending_of(group.program, group.vdevs))
        return false;
    event.program = group.program;
    event.reason = step->reason;
    event_log_add(agent, &event);
    switch (step->action) {
    case POLICY_GRANT:
        return steps_do_grant(agent, &group, step);
    case POLICY_DO_SPILL:
        return steps_do_spill(agent, &group, step);
    case POLICY_DO_MOVE:
        return steps_ask(agent, &group, step, REQUEST_MOVE);
    case POLICY_DO_RESUME:
        return steps_ask(agent, &group, step, REQUEST_RESUME);
    case POLICY_DO_SUSPEND:
        return steps_ask(agent, &group, step, REQUEST_SUSPEND);
    case POLICY_DO_PREWARM:
        return prewarm_do(agent, group.program, step);
    case POLICY_DO_REFUSE:
        pending_reply(agent, pending_of(group.program, group.vdevs), WAY_REFUSE, step->reason);
        return true;
    case POLICY_NOTHING:
    case POLICY_DO_WAIT:
        break;
    }
    return false;
}

/* ---- what is granted and not used ---- */

/** Bytes of @device that @program can return without spilling. */
static uint64_t steps_slack_of(const struct agent *agent, const struct program *program,
                               uint32_t device)
{
    uint64_t now = uv_now(&agent->loop), slack = 0;

    if (!program_acts(program) || program->managed.waiting || program_moving(program) ||
        (program->managed.trimmed_ms && now - program->managed.trimmed_ms < TRIM_MS))
        return 0;
    for (size_t i = 0; i < program->vdev_count; i++) {
        const struct program_device *vdev = &program->vdevs[i];
        if (vdev->granted_ms && now - vdev->granted_ms < FRESH_MS)
            return 0; /* It is about to use them. */
        if (vdev->entry.device == device && vdev->limited && vdev->entry.target == LEDGER_NONE)
            slack += ledger_reserved(&vdev->entry) - vdev->entry.held;
    }
    return slack;
}

static void steps_trim(struct agent *agent, struct program *program, uint32_t device)
{
    uint64_t held = 0;

    for (size_t i = 0; i < program->vdev_count; i++)
        held += program->vdevs[i].entry.device == device ? program->vdevs[i].entry.held : 0;
    for (uint32_t i = 0; i < program->vdev_count; i++) {
        const struct ledger_entry *entry = &program->vdevs[i].entry;
        if (entry->device == device && entry->granted > entry->held)
            grants_shrink(agent, program, i, held, TRIM_MS / 2, true);
    }
    program->managed.trimmed_ms = uv_now(&agent->loop);
}

/** True when @bytes will be free on @device as others, now asked, return unused memory. */
static bool steps_trim_device(struct agent *agent, const struct program *program, uint32_t device,
                              uint64_t bytes)
{
    const struct ledger_device *own = &agent->ledger.devices[device];
    uint64_t room = ledger_free(own), slack = 0;
    bool under_way = false;

    if (room >= bytes || own->reserved > ledger_capacity(own))
        return false;
    for (const struct program *other = agent->programs; other; other = other->next) {
        slack += other == program ? 0 : steps_slack_of(agent, other, device);
        for (size_t i = 0; other != program && i < other->vdev_count; i++) {
            under_way =
                under_way || (other->managed.shrinks && other->vdevs[i].entry.device == device);
        }
    }
    if (under_way)
        return true;
    if (room + slack < bytes)
        return false;
    for (struct program *other = agent->programs; other && room < bytes; other = other->next) {
        uint64_t own_slack = other == program ? 0 : steps_slack_of(agent, other, device);
        if (own_slack) {
            steps_trim(agent, other, device);
            room += own_slack;
        }
    }
    return true;
}

bool step_trim(struct agent *agent, uint32_t index)
{
    const struct world *world = &agent->governor->world;
    const struct policy_program *one = &world->programs[index];
    const struct program *program = world->groups[index].program;

    if (one->device != POLICY_NONE) {
        return one->need <= one->quota &&
               steps_trim_device(agent, program, one->device,
                                 one->need > one->granted ? one->need - one->granted : 0);
    }
    uint64_t bytes = one->wanted > one->need ? one->wanted : one->need;
    for (uint32_t i = 0; i < world->policy.device_count; i++)
        if (ledger_free(&agent->ledger.devices[i]) >= bytes && !world->devices[i].closed &&
            !(one->barred[i / 64] & 1ull << (i % 64)))
            return false;
    for (uint32_t i = 0; i < world->policy.device_count; i++)
        if (!world->devices[i].closed && !(one->barred[i / 64] & 1ull << (i % 64)) &&
            steps_trim_device(agent, program, i, bytes))
            return true;
    return false;
}

/** Programs whose quota the operator lowered. The policy does not handle them. */
bool step_quota(struct agent *agent)
{
    const struct world *world = &agent->governor->world;

    for (uint32_t i = 0; i < world->policy.program_count; i++) {
        const struct policy_program *one = &world->programs[i];
        const struct group *group = &world->groups[i];
        if (one->granted <= one->quota || one->busy_moving || one->pinned ||
            !(one->ways & POLICY_SPILL))
            continue;
        snprintf(group->program->managed.why, sizeof(group->program->managed.why),
                 "it has more than its limit allows and keeps to that");
        for (uint32_t vdev = 0; vdev < group->program->vdev_count; vdev++)
            if (group->vdevs & (1u << vdev))
                grants_shrink(agent, group->program, vdev, one->quota, SHRINK_MS, false);
        return true;
    }
    return false;
}
