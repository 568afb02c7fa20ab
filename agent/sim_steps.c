#include "agent/sim_world.h"

/* How often the policy is asked for one program, and of itself, before time goes on. */
#define ASKS_MAX  64
#define NEXTS_MAX 256
/* The part of the queue that the policy sees: its head. */
#define REGION 64
/* How far the queue is gone through when memory becomes free, and how many are asked in vain. */
#define WALK_MAX 256
#define VAIN_MAX 4
/* How old what programs waited and stayed may be where nobody is asked for them. */
#define STALE_MS 10000

static struct policy_world view(const struct sim_world *world, bool queue)
{
    uint32_t count = world->queue_count < REGION ? world->queue_count : REGION;

    return (struct policy_world){.devices = world->devices,
                                 .device_count = world->trace.device_count,
                                 .programs = world->slots,
                                 .program_count = world->slot_count,
                                 .queue = world->queue,
                                 .queue_count = queue ? count : 0,
                                 .recent_moves = world->move_count};
}

static void refresh_slot(struct sim_world *world, uint32_t slot)
{
    const struct sim_program *program = &world->shared->programs[world->tasks[slot]];

    if (program->mode == SIM_QUEUED || program->mode == SIM_BLOCKED) {
        world->slots[slot].waited_s = (world->now_ms - program->since_ms) / 1000;
    }
    if (world->slots[slot].device != POLICY_NONE) {
        world->slots[slot].stayed_s = (world->now_ms - program->placed_ms) / 1000;
    }
}

static void refresh(struct sim_world *world, uint64_t stale_ms)
{
    while (world->move_count) {
        const struct sim_move *move = &world->moves[world->move_first];
        uint32_t slot = world->shared->programs[move->task].slot;
        if (move->time_ms + world->settings.budget_s * 1000 > world->now_ms) {
            break;
        }
        if (slot != SIM_NONE) {
            world->slots[slot].recent_moves--;
        }
        world->move_first = (world->move_first + 1) % world->move_room;
        world->move_count--;
    }
    if (world->now_ms - world->refreshed_ms >= stale_ms) {
        for (uint32_t i = 0; i < world->slot_count; i++) {
            refresh_slot(world, i);
        }
        world->refreshed_ms = world->now_ms;
    }
}

static void note_move(struct sim_world *world, uint32_t task)
{
    if (world->move_count == world->move_room) {
        return;
    }
    world->moves[(world->move_first + world->move_count++) % world->move_room] =
        (struct sim_move){world->now_ms, task};
    sim_slot(world, task)->recent_moves++;
}

/* ---- steps that take time ---- */

static uint64_t duration(const struct sim_world *world, uint64_t bytes)
{
    return world->options->fixed_ms + (bytes + world->options->link - 1) / world->options->link;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t step_time(const struct sim_world *world, uint32_t task, enum policy_action action,
                          uint64_t bytes)
{
    const struct policy_program *slot = sim_slot(world, task);

    switch (action) {
    case POLICY_DO_MOVE:
        return duration(world, less(bytes, slot->wanted));
    case POLICY_DO_SUSPEND:
        return duration(world, less(slot->granted, slot->wanted));
    case POLICY_DO_RESUME:
        return world->shared->programs[task].saved ? duration(world, less(bytes, slot->wanted)) : 0;
    default:
        return bytes < slot->granted ? duration(world, slot->granted - bytes) : 0;
    }
}

static void begin(struct sim_world *world, const struct policy_step *step, uint32_t asker)
{
    uint32_t task = world->tasks[step->program];
    struct sim_program *program = &world->shared->programs[task];
    struct policy_program *slot = sim_slot(world, task);
    bool to = step->action == POLICY_DO_MOVE || step->action == POLICY_DO_RESUME;
    uint64_t takes = step_time(world, task, step->action, step->bytes);

    program->waits = program->mode == SIM_BLOCKED || slot->need;
    if (program->mode == SIM_BLOCKED || program->mode == SIM_QUEUED) {
        sim_queue_remove(world, task);
    }
    program->step = step->action;
    program->asker = asker;
    program->bytes = step->bytes;
    program->target = to ? step->device : SIM_NONE;
    program->reserved = to ? step->bytes : 0;
    slot->busy_moving = true;
    if (to) {
        sim_reserve(world, step->device, step->bytes);
        sim_log(world, SIM_HOLD, task, step->device, step->bytes);
    }
    sim_set_mode(world, task, SIM_STEPPING);
    if (takes) {
        sim_push(world, world->now_ms + takes, SIM_DUE_STEP, task, program->generation);
    } else {
        sim_step_done(world, task);
    }
}

/* From the reservation into the place. */
static void arrive(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];
    struct policy_program *slot = sim_slot(world, task);

    sim_attach(world, task, program->target, program->bytes);
    world->seats[program->target].incoming--;
    program->target = SIM_NONE;
    slot->state = POLICY_RUNNING;
    slot->need = 0;
}

static void suspended(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];
    struct policy_program *slot = sim_slot(world, task);

    sim_detach(world, task);
    slot->state = POLICY_SUSPENDED;
    slot->busy_moving = false;
    program->saved = true;
    sim_set_mode(world, task, SIM_QUEUED);
    sim_queue_add(world, task, !program->waits);
    world->shared->result->suspends++;
}

static void spilled(struct sim_world *world, uint32_t task)
{
    struct policy_program *slot = sim_slot(world, task);

    sim_regrant(world, task, world->shared->programs[task].bytes);
    slot->state = POLICY_RUNNING;
    slot->need = 0;
    world->shared->result->spills++;
}

void sim_step_done(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];
    struct policy_program *slot = sim_slot(world, task);
    uint32_t asker = program->asker;
    enum policy_action step = program->step;
    bool frees = step != POLICY_DO_SPILL || program->bytes < slot->granted;
    uint32_t freed = frees ? slot->device : POLICY_NONE;

    program->generation++;
    program->step = POLICY_NOTHING;
    program->asker = SIM_NONE;
    if (step == POLICY_DO_SUSPEND) {
        suspended(world, task);
    } else {
        if (step == POLICY_DO_MOVE) {
            sim_detach(world, task);
            world->shared->result->moves++;
        }
        world->shared->result->resumes += step == POLICY_DO_RESUME && program->saved;
        if (step == POLICY_DO_SPILL) {
            spilled(world, task);
        } else {
            arrive(world, task);
        }
        slot->busy_moving = false;
        program->saved = true;
        sim_set_mode(world, task, SIM_RUNNING);
    }
    if (slot->device != POLICY_NONE) {
        sim_drain(world, slot->device);
    }
    if (asker != SIM_NONE) {
        sim_ask(world, asker);
    }
    if (freed != POLICY_NONE) {
        sim_serve(world, freed);
    }
    if (step == POLICY_DO_SUSPEND) {
        /* Whoever had to make room may find it elsewhere. */
        sim_ask(world, task);
    }
}

/* ---- what the policy says ---- */

static void go_on(struct sim_world *world, uint32_t task)
{
    struct policy_program *slot = sim_slot(world, task);

    sim_queue_remove(world, task);
    slot->state = POLICY_RUNNING;
    slot->need = 0;
    sim_set_mode(world, task, SIM_RUNNING);
}

static void carry_out(struct sim_world *world, const struct policy_step *step, uint32_t asker)
{
    uint32_t task = world->tasks[step->program];
    struct policy_program *slot = &world->slots[step->program];

    switch (step->action) {
    case POLICY_GRANT:
        sim_regrant(world, task, slot->granted + step->bytes);
        if (slot->state == POLICY_WAITING && slot->granted >= slot->need) {
            go_on(world, task);
        }
        break;
    case POLICY_DO_REFUSE:
        sim_end(world, task, true);
        break;
    case POLICY_DO_SPILL:
        /* What it may have more is its own from now on. */
        if (step->bytes > slot->granted) {
            sim_regrant(world, task, step->bytes);
        }
        begin(world, step, asker);
        break;
    default:
        begin(world, step, asker);
        break;
    }
}

bool sim_ask(struct sim_world *world, uint32_t task)
{
    const struct sim_program *program = &world->shared->programs[task];
    bool any = false;

    refresh(world, STALE_MS);
    for (int i = 0; i < ASKS_MAX && (program->mode == SIM_QUEUED || program->mode == SIM_BLOCKED);
         i++) {
        struct policy_world seen = view(world, true);
        struct policy_step step;
        refresh_slot(world, program->slot);
        policy_answer(&seen, &world->settings, program->slot, &step);
        if (step.action == POLICY_NOTHING || step.action == POLICY_DO_WAIT) {
            return any;
        }
        bool own = world->tasks[step.program] == task;
        carry_out(world, &step, own ? SIM_NONE : task);
        any = true;
        if (!own) {
            return any;
        }
    }
    return any;
}

/* Whether someone has to be told to leave. */
static bool is_to_drain(const struct sim_world *world, uint32_t device)
{
    uint32_t at = world->devices[device].drains ? world->devices[device].first : POLICY_NONE;

    while (at != POLICY_NONE && world->slots[at].busy_moving) {
        at = world->slots[at].next;
    }
    return at != POLICY_NONE;
}

void sim_drain(struct sim_world *world, uint32_t device)
{
    refresh(world, STALE_MS);
    for (int i = 0; i < NEXTS_MAX && is_to_drain(world, device); i++) {
        struct policy_world seen = view(world, false);
        struct policy_step step;
        policy_next(&seen, &world->settings, &step);
        if (step.action == POLICY_NOTHING || step.action == POLICY_DO_WAIT) {
            return;
        }
        carry_out(world, &step, SIM_NONE);
    }
}

void sim_next(struct sim_world *world)
{
    refresh(world, 0);
    for (int i = 0; i < NEXTS_MAX; i++) {
        struct policy_world seen = view(world, true);
        struct policy_step step;
        policy_next(&seen, &world->settings, &step);
        if (step.action == POLICY_NOTHING || step.action == POLICY_DO_WAIT) {
            return;
        }
        const struct policy_program *slot = &world->slots[step.program];
        if (step.action == POLICY_DO_MOVE && slot->state == POLICY_RUNNING &&
            !world->devices[slot->device].drains) {
            note_move(world, world->tasks[step.program]);
        }
        carry_out(world, &step, SIM_NONE);
    }
}

/* Whether what is free on a device might do for one that waits: the policy is asked only then. */
static bool might_do(const struct sim_world *world, uint32_t slot, uint32_t device)
{
    const struct policy_program *program = &world->slots[slot];
    const struct policy_device *d = &world->devices[device];
    uint64_t free = d->reserved < d->memory ? d->memory - d->reserved : 0;
    uint64_t least = program->ways & POLICY_SPILL ? program->least : program->wanted;

    if (program->device == device) {
        return free > 0;
    }
    return free >= least && !(program->barred && program->barred[device / 64] >> (device % 64) & 1);
}

void sim_serve(struct sim_world *world, uint32_t device)
{
    uint32_t at = 0;

    for (int walked = 0, vain = 0; walked < WALK_MAX && vain < VAIN_MAX; walked++) {
        if (at >= world->queue_count || world->devices[device].closed) {
            return;
        }
        uint32_t slot = world->queue[at], before = world->queue_count;
        bool asked = might_do(world, slot, device);
        bool done = asked && sim_ask(world, world->tasks[slot]);
        vain += asked && !done;
        /* Whoever was served is out of the queue. */
        at += !done || world->queue_count >= before;
    }
}

/* ---- ends ---- */

void sim_end(struct sim_world *world, uint32_t task, bool refused)
{
    const struct sim_task *t = &world->trace.tasks[task];
    struct sim_program *program = &world->shared->programs[task];

    sim_settle(world, task);
    if (program->mode == SIM_QUEUED || program->mode == SIM_BLOCKED) {
        sim_queue_remove(world, task);
    }
    if (refused) {
        world->shared->lost += program->progress;
        world->shared->lost_us += program->progress / 1000 * t->share;
        sim_log(world, SIM_LOSE, task, SIM_NONE, program->progress);
        sim_log(world, SIM_REFUSE, task, SIM_NONE, 0);
        world->shared->result->refused++;
    } else {
        world->shared->asked += t->work;
        world->shared->asked_us += t->work / 1000 * t->share;
        sim_log(world, SIM_END, task, SIM_NONE, 0);
        world->shared->waits[world->shared->result->finished++] = program->waited_ms;
        world->shared->took_ms += (double)(world->now_ms - t->arrive_ms);
        world->shared->result->end_ms = world->now_ms;
    }
    if (sim_slot(world, task)->device != POLICY_NONE) {
        sim_detach(world, task);
    }
    sim_leave(world, task);
}

/* Back to what was saved: its last checkpoint, or nothing. */
static void terminate(struct sim_world *world, uint32_t task)
{
    const struct sim_task *t = &world->trace.tasks[task];
    struct sim_program *program = &world->shared->programs[task];
    struct policy_program *slot = sim_slot(world, task);
    uint64_t step = world->options->checkpoint_ms * 1000;

    sim_settle(world, task);
    if (program->target != SIM_NONE) {
        sim_unreserve(world, program->target, program->reserved);
        sim_log(world, SIM_HOLD, task, program->target, 0);
        program->target = SIM_NONE;
    }
    if (program->mode == SIM_BLOCKED) {
        sim_queue_remove(world, task);
    }
    sim_detach(world, task);
    uint64_t lost = step ? program->progress % step : program->progress;
    program->progress -= lost;
    program->lost += lost;
    world->shared->lost += lost;
    world->shared->lost_us += lost / 1000 * t->share;
    sim_log(world, SIM_LOSE, task, SIM_NONE, lost);
    for (program->grown = 0; program->grown < t->steps; program->grown++) {
        if (program->progress < sim_milestone(world, task)) {
            break;
        }
    }
    program->generation++;
    program->step = POLICY_NOTHING;
    program->saved = program->progress > 0;
    slot->state = POLICY_SUSPENDED;
    slot->need = 0;
    slot->busy_moving = false;
    slot->wanted = sim_wanted(world, task);
    slot->least = slot->wanted / SIM_LEAST_PART;
    sim_set_mode(world, task, SIM_QUEUED);
    sim_queue_add(world, task, true);
    world->shared->result->terminations++;
}

/* The target of a step is gone: the program is where it was. */
static void roll_back(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];
    bool queues = program->step == POLICY_DO_RESUME || program->waits;

    sim_unreserve(world, program->target, program->reserved);
    sim_log(world, SIM_HOLD, task, program->target, 0);
    program->target = SIM_NONE;
    program->generation++;
    sim_slot(world, task)->busy_moving = false;
    sim_set_mode(world, task,
                 program->step == POLICY_DO_RESUME ? SIM_QUEUED
                 : program->waits                  ? SIM_BLOCKED
                                                   : SIM_RUNNING);
    program->step = POLICY_NOTHING;
    if (queues) {
        sim_queue_add(world, task, false);
    }
}

void sim_device_lost(struct sim_world *world, uint32_t device)
{
    const struct policy_device *d = &world->devices[device];

    while (d->first != POLICY_NONE) {
        uint32_t task = world->tasks[d->first];
        sim_settle(world, task);
        if (world->shared->programs[task].progress >= world->trace.tasks[task].work) {
            sim_end(world, task, false);
        } else {
            terminate(world, task);
            sim_ask(world, task);
        }
    }
    for (uint32_t i = 0; i < world->slot_count && world->seats[device].incoming; i++) {
        if (world->shared->programs[world->tasks[i]].target == device) {
            roll_back(world, world->tasks[i]);
        }
    }
}
