#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/daemon/costs/costs.h"
#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"
#include "agent/daemon/power/power.h"
#include "state/base/clock.h"

static const struct operation_kind operation_kinds[REQUEST_VERBS] = {
    [REQUEST_MOVE] = {asking_cancel, asking_expire, NULL, admit_settle},
    [REQUEST_SUSPEND] = {asking_cancel, asking_expire, NULL, admit_settle},
    [REQUEST_RESUME] = {resume_cancel, resume_expire, NULL, admit_settle},
    [REQUEST_PREWARM] = {asking_cancel, asking_expire, NULL, prewarm_settle},
    [REQUEST_CHECKPOINT] = {asking_cancel, asking_expire, checkpointing_answered},
    [REQUEST_PROTECT] = {asking_cancel, asking_expire},
    [REQUEST_TRACE] = {tracing_cancel, tracing_expire},
    [REQUEST_DRAIN] = {followers_cancel, followers_expire},
    [REQUEST_BALANCE] = {followers_cancel, .next = rebalance_step},
    [REQUEST_WAIT] = {waiting_cancel, waiting_expire},
};

#define STEPS_MAX 256 /* Steps of one run; the remaining ones are done in the next run. */
#define TICK_MS   1000

/* See govern_is_due(). */
#define LATE_PART 8
#define LATE_MS   60000

/* Programs look for an agent twice a second, and a waiting program gives up after three seconds. */
#define AWAIT_MS 5000
/* CPU time that the policy takes for messages between two calls of govern_tick(). What is heard
 * beyond that waits for the next call: a user who sends messages without end must not keep the
 * agent from answering others. */
#define SPEND_NS (50 * NS_PER_MS)

int govern_init(struct agent *agent)
{
    struct governor *governor = calloc(1, sizeof(*governor));

    if (!governor)
        return -ENOMEM;
    if (power_init(agent)) {
        free(governor);
        return -ENOMEM;
    }
    operations_init(operation_kinds);
    agent->governor = governor;
    ledger_init(&agent->ledger);
    governor->await_until_ms = uv_now(&agent->loop) + AWAIT_MS;
    int result = limits_load(agent);
    if (result) {
        agent_log("%s: cannot read the limits of devices (%s); none hold", governor->state_path,
                  strerror(-result));
    }
    capacity_update(agent);
    return 0;
}

void govern_finish(struct agent *agent)
{
    struct governor *governor = agent->governor;

    world_finish(&governor->world);
    ledger_finish(&agent->ledger);
    power_finish(agent);
    free(governor->histories);
    free(governor);
    agent->governor = NULL;
}

void govern_remember(struct agent *agent, const struct program *program)
{
    struct governor *governor = agent->governor;
    struct ended *ended = &governor->ended[governor->ended_count % ENDED_MAX];
    const struct ledger_entry *entry = &program->vdevs[0].entry;

    if (!program->connected)
        return;
    *ended = (struct ended){.uid = program->uid,
                            .waits = program->managed.waits,
                            .waited_ms = program->managed.waited_ms};
    memcpy(ended->id, program->id, sizeof(ended->id));
    memcpy(ended->name, program->name, sizeof(ended->name));
    for (size_t i = 0; i < program->vdev_count; i++) {
        ended->wanted_peak += program->vdevs[i].wanted_peak;
        ended->held_peak += program->vdevs[i].entry.held_peak;
        ended->granted_peak += program->vdevs[i].entry.granted_peak;
    }
    costs_note_peak(agent, program->uid, program->name, ended->wanted_peak);
    if (entry->device != LEDGER_NONE) {
        const struct ledger_device *device = &agent->ledger.devices[entry->device];
        memcpy(ended->device, device->name, sizeof(ended->device));
        ended->own = device->own;
    }
    governor->ended_count++;
}

void govern_reloaded(struct agent *agent)
{
    for (struct program *program = agent->programs; program; program = program->next) {
        program_set_user(agent, program, program->peer);
        program_configure(agent, program);
    }
    capacity_update(agent);
    servers_configure(agent);
    devices_renew(agent);
}

/* ---- what follows ---- */

/** Do one step for the waiting programs, in their order. False: all continue to wait. */
static bool govern_serve_queue(struct agent *agent)
{
    struct governor *governor = agent->governor;
    struct world *world = &governor->world;

    for (uint32_t i = 0; i < world->policy.queue_count; i++) {
        uint32_t index = world->queue[i];
        struct managed *managed = &world->groups[index].program->managed;
        struct policy_step step;
        if (world->programs[index].busy_moving)
            continue;
        if (step_trim(agent, index)) {
            world->programs[index].busy_moving = true; /* Memory for it is being freed. */
            continue;
        }
        uint64_t memory = world_fill(agent, index);
        policy_answer(&world->policy, config_policy(&agent->config), index, &step);
        world_unfill(world, index, memory);
        if (step.action == POLICY_DO_WAIT || step.action == POLICY_NOTHING) {
            memcpy(managed->why, step.reason, sizeof(managed->why));
        } else if (step_do(agent, &step)) {
            managed->displaces =
                managed->displaces || (step.program != index && step.action == POLICY_DO_SPILL);
            return true;
        }
    }
    return false;
}

static bool govern_serve_others(struct agent *agent)
{
    struct governor *governor = agent->governor;
    struct policy_settings settings = *config_policy(&agent->config);
    struct policy_step step;

    settings.automatic = settings.automatic && governor->automatic;
    policy_next(&governor->world.policy, &settings, &step);
    return step.action != POLICY_NOTHING && step.action != POLICY_DO_WAIT && step_do(agent, &step);
}

void govern_run(struct agent *agent)
{
    struct governor *governor = agent->governor;

    if (governor->running || agent->stopping || !agent->changed || ledger_sync_awaited(agent))
        return;
    governor->running = true;
    governor->looks = true;
    governor->stirred = governor->stirred || !governor->automatic;
    for (unsigned i = 0; i < STEPS_MAX && agent->changed; i++) {
        agent->changed = false;
        if (world_build(agent))
            break;
        agent->changed = step_quota(agent) || govern_serve_queue(agent) ||
                         govern_serve_others(agent) || agent->changed;
        governor->stirred = governor->stirred || agent->changed;
        if (!agent->changed)
            losses_hurry(agent);
    }
    governor->running = false;
    governor->automatic = false;
    spreading_share(agent);
    followers_tick(agent);
}

/** CPU time of this thread. */
static uint64_t govern_cpu_ns(void)
{
    struct timespec now = {0};

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void govern_heard(struct agent *agent)
{
    struct governor *governor = agent->governor;

    governor->stirred = true;
    if (governor->spent_ns >= SPEND_NS)
        return;
    uint64_t began = govern_cpu_ns();
    govern_run(agent);
    governor->spent_ns += govern_cpu_ns() - began;
}

static void govern_sample(struct agent *agent)
{
    struct governor *governor = agent->governor;
    const struct ledger *ledger = &agent->ledger;
    uint64_t now = uv_now(&agent->loop);

    if (ledger->count > governor->history_count) {
        struct history *grown =
            realloc(governor->histories, ledger->count * sizeof(*governor->histories));
        if (!grown)
            return;
        memset(grown + governor->history_count, 0,
               (ledger->count - governor->history_count) * sizeof(*grown));
        governor->histories = grown;
        governor->history_count = ledger->count;
    }
    for (uint32_t i = 0; i < ledger->count; i++) {
        history_add(&governor->histories[i], now, ledger->devices[i].reserved,
                    ledger->devices[i].held);
        if (i < governor->world.policy.device_count && governor->world.devices[i].residents)
            agent->ledger.devices[i].used_ms = now;
    }
}

static void govern_sample_program(struct program *program, uint64_t now)
{
    uint64_t granted = 0, held = 0;

    for (size_t i = 0; i < program->vdev_count; i++) {
        granted += ledger_reserved(&program->vdevs[i].entry);
        held += program->vdevs[i].entry.held;
        visits_stayed(&program->vdevs[i].visits, program->vdevs[i].busy,
                      (now - program->vdevs[i].placed_ms) / 1000);
    }
    if (program->connected)
        history_add(&program->managed.history, now, granted, held);
}

/** Do the due work of all programs in one pass (no cache holds them). @tick: each second. */
static void govern_look(struct agent *agent, bool tick)
{
    for (struct program *program = agent->programs, *next; program; program = next) {
        next = program->next;
        if (tick && program_sweep(agent, program))
            continue;
        if (tick) {
            govern_sample_program(program, uv_now(&agent->loop));
            liveness_look(agent, program);
        }
        grants_look(agent, program);
        /* Before prewarming: a device that is forbidden must not be made ready again. */
        spreading_look(agent, program);
        prewarm_look(agent, program);
        protecting_look(agent, program);
        checkpointing_look(agent, program);
        costs_look(agent, program);
    }
    agent->governor->looks = false;
}

/**
 * True when the policy may decide otherwise than at the last tick on which it ran. Where nothing
 * has been heard since, nobody waits and nothing is capped, only time has passed, and all times
 * that the policy looks at began when something was heard. So it runs again when a part more of the
 * time since then has passed: its decisions are late by that part of the time that they depend on,
 * and by LATE_MS, at most.
 */
static bool govern_is_due(struct agent *agent)
{
    struct governor *governor = agent->governor;
    uint64_t now = uv_now(&agent->loop);

    if (agent->changed || governor->stirred || agent->operations || power_is_at_work(agent) ||
        governor->waiting || governor->world.policy.queue_count)
        governor->stirred_ms = now;
    if (governor->automatic_ms <= governor->stirred_ms)
        return true;
    uint64_t quiet = (governor->automatic_ms - governor->stirred_ms) / LATE_PART;
    return now - governor->automatic_ms >= (quiet < LATE_MS ? quiet : LATE_MS);
}

void govern_tick(struct agent *agent)
{
    struct governor *governor = agent->governor;
    uint64_t now = uv_now(&agent->loop);
    bool tick = now - governor->ticked_ms >= TICK_MS;

    governor->spent_ns = 0;
    if (tick)
        peers_sweep(agent);
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        struct ledger_device *device = &agent->ledger.devices[i];
        if (device->tight != LEDGER_NO_LIMIT && now >= device->tight_until_ms) {
            device->tight = LEDGER_NO_LIMIT;
            agent->changed = true;
        }
    }
    drain_tick(agent);
    serving_tick(agent);
    resume_tick(agent);
    waiting_tick(agent);
    losses_tick(agent);
    if (tick) {
        governor->ticked_ms = now;
        govern_sample(agent);
    }
    if (tick && govern_is_due(agent)) {
        governor->automatic = true;
        governor->automatic_ms = now;
        governor->stirred = false;
        agent->changed = true;
    }
    govern_run(agent);
    power_tick(agent);
    if (tick || governor->looks)
        govern_look(agent, tick);
}
