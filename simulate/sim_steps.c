#include "simulate/sim_world.h"

/* Most times that the policy is asked for one program, and on its own account, before time
 * advances. */
#define ASKS_MAX  64
#define NEXTS_MAX 256
/* The part of the queue that the policy sees: its head. */
#define REGION 64
/* How far the queue is searched when memory becomes free, and how many programs may be asked in
 * vain. */
#define WALK_MAX 256
#define VAIN_MAX 4
/* Greatest age of the programs' waiting and staying times when the policy acts unasked. */
#define STALE_MS 10000
/* How long the policy leaves a program alone after a failed step. */
#define REST_MS 60000

static struct policy_world sim_steps_view(const struct sim_world *world, bool queue)
{
    uint32_t count = world->queue_count < REGION ? world->queue_count : REGION;

    return (struct policy_world){.devices = world->devices,
                                 .device_count = world->trace.device_count,
                                 .programs = world->slots,
                                 .program_count = world->slot_count,
                                 .queue = world->queue,
                                 .queue_count = queue ? count : 0,
                                 .recent_moves = world->move_count,
                                 .now_s = sim_now(world) / 1000,
                                 .link = world->options->link};
}

static void sim_steps_refresh_slot(struct sim_world *world, uint32_t slot)
{
    struct sim_program *program = &world->shared->programs[world->tasks[slot]];

    if (program->mode == SIM_QUEUED || program->mode == SIM_BLOCKED)
        world->slots[slot].waited_s = (sim_now(world) - program->since_ms) / 1000;
    world->slots[slot].age_s =
        (sim_now(world) - world->trace.tasks[world->tasks[slot]].arrive_ms) / 1000;
    if (world->slots[slot].device != POLICY_NONE) {
        world->slots[slot].stayed_s = (sim_now(world) - program->placed_ms) / 1000;
        visits_stayed(&program->visits, world->slots[slot].busy, world->slots[slot].stayed_s);
    }
    if (world->slots[slot].ready != POLICY_NONE)
        world->slots[slot].ready_s = (sim_now(world) - program->asked_ms) / 1000;
}

static void sim_steps_refresh(struct sim_world *world, uint64_t stale_ms)
{
    while (world->move_count) {
        const struct sim_move *move = &world->moves[world->move_first];
        uint32_t slot = world->shared->programs[move->task].slot;
        if (move->time_ms + world->settings.budget_s * 1000 > sim_now(world))
            break;
        if (slot != SIM_NONE)
            world->slots[slot].recent_moves--;
        world->move_first = (world->move_first + 1) % world->move_room;
        world->move_count--;
    }
    if (sim_now(world) - world->refreshed_ms >= stale_ms) {
        for (uint32_t i = 0; i < world->slot_count; i++)
            sim_steps_refresh_slot(world, i);
        world->refreshed_ms = sim_now(world);
    }
}

/* True for a step that was not necessary. */
static bool sim_steps_is_unasked(const struct sim_world *world, const struct policy_step *step)
{
    const struct policy_program *slot = &world->slots[step->program];

    return step->action == POLICY_DO_MOVE && slot->state == POLICY_RUNNING &&
           !world->devices[slot->device].drains;
}

static void sim_steps_note_move(struct sim_world *world, uint32_t task)
{
    if (world->move_count == world->move_room)
        return;
    world->moves[(world->move_first + world->move_count++) % world->move_room] =
        (struct sim_move){sim_now(world), task};
    sim_slot(world, task)->recent_moves++;
}

/* ---- steps that take time ---- */

static uint64_t sim_steps_duration(const struct sim_world *world, uint64_t bytes)
{
    return world->options->fixed_ms + (bytes + world->options->link - 1) / world->options->link;
}

static uint64_t sim_steps_less(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t sim_steps_carries(const struct sim_world *world, uint32_t task, uint64_t bytes)
{
    return sim_task(world, task)->more ? sim_size(world, task)
                                       : sim_steps_less(bytes, sim_slot(world, task)->wanted);
}

/* Fixed time of a move; less if the device was made ready before. Making ready takes as long, but
 * while the program runs. */
static uint64_t sim_steps_fixed(const struct sim_world *world, uint32_t task, uint32_t device)
{
    bool ready =
        sim_slot(world, task)->ready == device && device != POLICY_NONE &&
        sim_now(world) - world->shared->programs[task].asked_ms >= world->options->fixed_ms;

    return ready ? 0 : world->options->fixed_ms;
}

/* Time to bring a program to a device, from another device, host memory or storage. */
static uint64_t sim_steps_bring(struct sim_world *world, uint32_t task, uint32_t device,
                                uint64_t bytes)
{
    const struct sim_program *program = &world->shared->programs[task];
    const struct policy_program *slot = sim_slot(world, task);
    uint32_t to = sim_node(world, device);
    uint32_t from = slot->device != POLICY_NONE ? sim_node(world, slot->device) : program->home;

    bytes = sim_steps_carries(world, task, bytes);
    if (from == SIM_NONE) {
        return program->kept
                   ? world->options->fixed_ms + sim_store(world, to, sim_size(world, task))
                   : 0;
    }
    if (from != to) {
        world->shared->result->between++;
        return world->options->fixed_ms + sim_send_over(world, from, to, bytes);
    }
    return sim_steps_duration(world, bytes) - world->options->fixed_ms +
           sim_steps_fixed(world, task, device);
}

static uint64_t sim_steps_step_time(struct sim_world *world, uint32_t task,
                                    const struct policy_step *step)
{
    const struct policy_program *slot = sim_slot(world, task);

    switch (step->action) {
    case POLICY_DO_MOVE:
    case POLICY_DO_RESUME:
        return sim_steps_bring(world, task, step->device, step->bytes);
    case POLICY_DO_SUSPEND:
        return sim_steps_duration(world, sim_steps_less(slot->granted, slot->wanted));
    default:
        return step->bytes < slot->granted ? sim_steps_duration(world, slot->granted - step->bytes)
                                           : 0;
    }
}

static void sim_steps_begin(struct sim_world *world, const struct policy_step *step, uint32_t asker)
{
    uint32_t task = world->tasks[step->program];
    struct sim_program *program = &world->shared->programs[task];
    struct policy_program *slot = sim_slot(world, task);
    bool to = step->action == POLICY_DO_MOVE || step->action == POLICY_DO_RESUME;
    uint64_t takes = sim_steps_step_time(world, task, step);

    program->waits = program->mode == SIM_BLOCKED || slot->need;
    program->unasked = asker == SIM_NONE && sim_steps_is_unasked(world, step);
    program->payback_s = step->payback_s;
    program->begun_ms = sim_now(world);
    if (program->mode == SIM_BLOCKED || program->mode == SIM_QUEUED)
        sim_queue_remove(world, task);
    program->step = step->action;
    program->asker = asker;
    program->bytes = step->bytes;
    program->target = to ? step->device : SIM_NONE;
    program->reserved = to ? step->bytes : 0;
    program->brings = step->action == POLICY_DO_RESUME && takes;
    slot->busy_moving = true;
    if (to) {
        sim_reserve(world, step->device, step->bytes);
        sim_log(world, SIM_HOLD, task, step->device, step->bytes);
        sim_reserve_others(world, task, sim_node(world, step->device), program->target_others);
    }
    sim_set_mode(world, task, SIM_STEPPING);
    if (takes)
        sim_push(world, sim_now(world) + takes, SIM_DUE_STEP, task, program->generation);
    else
        sim_step_done(world, task);
}

/* Move the program from the reservation to the device. */
static void sim_steps_arrive(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];
    struct policy_program *slot = sim_slot(world, task);

    sim_attach(world, task, program->target, program->bytes);
    slot->ready = POLICY_NONE; /* the program moved, to this or another device */
    slot->ready_s = UINT64_MAX;
    world->uses[program->target].incoming--;
    program->target = program->home = SIM_NONE;
    slot->state = POLICY_RUNNING;
    slot->need = 0;
}

static void sim_steps_suspended(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];
    struct policy_program *slot = sim_slot(world, task);

    program->home = sim_node(world, slot->device);
    slot->ready = POLICY_NONE;
    slot->ready_s = UINT64_MAX;
    sim_detach(world, task);
    sim_host_keep(world, task, program->home, sim_task(world, task)->host + slot->wanted);
    slot->state = POLICY_SUSPENDED;
    slot->busy_moving = false;
    sim_set_mode(world, task, SIM_QUEUED);
    sim_queue_add(world, task, !program->waits);
    world->shared->result->suspends++;
}

static void sim_steps_spilled(struct sim_world *world, uint32_t task)
{
    struct policy_program *slot = sim_slot(world, task);

    sim_regrant(world, task, world->shared->programs[task].bytes);
    slot->state = POLICY_RUNNING;
    slot->need = 0;
    world->shared->result->spills++;
}

void sim_go_on(struct sim_world *world, uint32_t task)
{
    sim_slot(world, task)->busy_moving =
        sim_task(world, task)->more || world->shared->programs[task].rests;
    sim_set_mode(world, task, SIM_RUNNING);
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
        sim_steps_suspended(world, task);
    } else {
        if (step == POLICY_DO_MOVE) {
            const struct policy_visit left = {.device = slot->device,
                                              .busy = slot->busy,
                                              .left_s = sim_now(world) / 1000,
                                              .bar_s = program->payback_s,
                                              .by_policy = program->unasked};
            visits_moved(&program->visits, &left, program->target, world->settings.return_s);
            slot->move_ms = (uint32_t)(sim_now(world) - program->begun_ms);
            sim_detach(world, task);
            world->shared->result->moves++;
        }
        world->shared->result->resumes += program->brings;
        if (step == POLICY_DO_SPILL)
            sim_steps_spilled(world, task);
        else
            sim_steps_arrive(world, task);
        sim_host_keep(world, task, sim_node(world, slot->device), sim_in_host(world, task));
        sim_go_on(world, task);
    }
    if (slot->device != POLICY_NONE)
        sim_drain(world, slot->device);
    if (asker != SIM_NONE)
        sim_ask(world, asker);
    if (freed != POLICY_NONE)
        sim_serve(world, freed);
    if (step == POLICY_DO_SUSPEND) {
        /* The program that needed room may find it elsewhere. */
        sim_ask(world, task);
    }
}

/* ---- what the policy says ---- */

static void sim_steps_granted(struct sim_world *world, uint32_t task)
{
    struct policy_program *slot = sim_slot(world, task);

    sim_queue_remove(world, task);
    slot->state = POLICY_RUNNING;
    slot->need = 0;
    sim_set_mode(world, task, SIM_RUNNING);
}

/* Take the host memory that a step needs. False if there is no room, or if the host memory is about
 * to be taken away. */
static bool sim_steps_is_affordable(struct sim_world *world, const struct policy_step *step)
{
    uint32_t task = world->tasks[step->program];
    const struct policy_program *slot = &world->slots[step->program];
    uint64_t wanted = slot->wanted, bytes = step->bytes;
    uint32_t node;

    if (step->action == POLICY_DO_SUSPEND) {
        node = sim_node(world, slot->device);
        bytes = 0;
        if (world->hosts[node].phase != SIM_UP)
            return false;
    } else if (step->action == POLICY_DO_SPILL) {
        node = sim_node(world, slot->device);
    } else {
        node = sim_node(world, step->device);
    }
    return sim_host_take(world, task, node,
                         sim_task(world, task)->host + (wanted > bytes ? wanted - bytes : 0));
}

static void sim_steps_rest(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];

    sim_slot(world, task)->busy_moving = program->rests = true;
    sim_push(world, sim_now(world) + REST_MS, SIM_DUE_REST, task, 0);
}

bool sim_carry_out(struct sim_world *world, const struct policy_step *step, uint32_t asker)
{
    uint32_t task = world->tasks[step->program];
    struct policy_program *slot = &world->slots[step->program];

    switch (step->action) {
    case POLICY_GRANT:
        sim_regrant(world, task, slot->granted + step->bytes);
        if (slot->state == POLICY_WAITING && slot->granted >= slot->need)
            sim_steps_granted(world, task);
        sim_host_keep(world, task, sim_node(world, slot->device), sim_in_host(world, task));
        return true;
    case POLICY_DO_REFUSE:
        sim_end(world, task, true);
        return true;
    case POLICY_DO_PREWARM: /* it runs on */
        slot->ready = step->device;
        slot->ready_s = 0;
        world->shared->programs[task].asked_ms = sim_now(world);
        world->shared->result->prewarms++;
        return true;
    default:
        break;
    }
    if (!sim_steps_is_affordable(world, step)) {
        sim_steps_rest(world, task);
        return false;
    }
    /* Memory that a spill leaves it beyond its grant is granted from now on. */
    if (step->action == POLICY_DO_SPILL && step->bytes > slot->granted)
        sim_regrant(world, task, step->bytes);
    sim_steps_begin(world, step, asker);
    return true;
}

bool sim_ask(struct sim_world *world, uint32_t task)
{
    const struct sim_program *program = &world->shared->programs[task];
    bool any = false;

    sim_steps_refresh(world, STALE_MS);
    for (int i = 0; i < ASKS_MAX && (program->mode == SIM_QUEUED || program->mode == SIM_BLOCKED);
         i++) {
        if (program->slot == SIM_NONE || world->slots[program->slot].busy_moving)
            return any;
        struct policy_world seen = sim_steps_view(world, true);
        struct policy_step step;
        sim_steps_refresh_slot(world, program->slot);
        policy_answer(&seen, &world->settings, program->slot, &step);
        if (step.action == POLICY_NOTHING || step.action == POLICY_DO_WAIT)
            return any;
        bool own = world->tasks[step.program] == task;
        if (!sim_carry_out(world, &step, own ? SIM_NONE : task))
            return any;
        any = true;
        if (!own)
            return any;
    }
    return any;
}

/* True when some program must be told to leave. */
static bool sim_steps_is_to_drain(const struct sim_world *world, uint32_t device)
{
    uint32_t at = world->devices[device].drains ? world->devices[device].first : POLICY_NONE;

    while (at != POLICY_NONE && world->slots[at].busy_moving)
        at = world->slots[at].next;
    return at != POLICY_NONE;
}

void sim_drain(struct sim_world *world, uint32_t device)
{
    sim_steps_refresh(world, STALE_MS);
    for (int i = 0; i < NEXTS_MAX && sim_steps_is_to_drain(world, device); i++) {
        struct policy_world seen = sim_steps_view(world, false);
        struct policy_step step;
        policy_next(&seen, &world->settings, &step);
        if (step.action == POLICY_NOTHING || step.action == POLICY_DO_WAIT)
            return;
        sim_carry_out(world, &step, SIM_NONE);
    }
}

bool sim_next(struct sim_world *world)
{
    bool any = false;

    sim_steps_refresh(world, 0);
    for (int i = 0; i < NEXTS_MAX; i++) {
        struct policy_world seen = sim_steps_view(world, true);
        struct policy_step step;
        policy_next(&seen, &world->settings, &step);
        if (step.action == POLICY_NOTHING || step.action == POLICY_DO_WAIT)
            break;
        if (sim_steps_is_unasked(world, &step))
            sim_steps_note_move(world, world->tasks[step.program]);
        any = sim_carry_out(world, &step, SIM_NONE) || any;
    }
    return any;
}

/* True when the free memory of a device might suffice for a waiting program: the policy is only
 * asked then. */
static bool sim_steps_might_do(const struct sim_world *world, uint32_t slot, uint32_t device)
{
    const struct policy_program *program = &world->slots[slot];
    const struct policy_device *d = &world->devices[device];
    uint64_t free = d->reserved < d->memory ? d->memory - d->reserved : 0;
    uint64_t least = program->ways & POLICY_SPILL ? program->least : program->wanted;

    if (program->device == device)
        return free > 0;
    return free >= least && !(program->barred && program->barred[device / 64] >> (device % 64) & 1);
}

void sim_serve(struct sim_world *world, uint32_t device)
{
    uint32_t at = 0;

    for (int walked = 0, vain = 0; walked < WALK_MAX && vain < VAIN_MAX; walked++) {
        if (at >= world->queue_count || world->devices[device].closed)
            break;
        uint32_t slot = world->queue[at], before = world->queue_count;
        bool asked = sim_steps_might_do(world, slot, device);
        bool done = asked && sim_ask(world, world->tasks[slot]);
        vain += asked && !done;
        /* A program that was served has left the queue. */
        at += !done || world->queue_count >= before;
    }
    world->shared->offer(world, device);
}

/* ---- ends ---- */

/* Remove a program from its device and cell; memory that was reserved for it elsewhere becomes
 * free. */
static void sim_steps_take_out(struct sim_world *world, uint32_t task)
{
    struct sim_program *program = &world->shared->programs[task];

    if (program->mode == SIM_QUEUED || program->mode == SIM_BLOCKED)
        sim_queue_remove(world, task);
    if (program->target != SIM_NONE) {
        sim_unreserve(world, program->target, program->reserved);
        sim_log(world, SIM_HOLD, task, program->target, 0);
        sim_unreserve_others(world, task, sim_node(world, program->target), program->target_others);
        program->target = SIM_NONE;
        program->target_others = 0;
    }
    if (sim_slot(world, task)->device != POLICY_NONE)
        sim_detach(world, task);
    sim_host_keep(world, task, SIM_NONE, 0);
    program->home = SIM_NONE;
    program->step = POLICY_NOTHING;
    program->asker = SIM_NONE;
    program->saves = program->leaves = program->rests = program->waits = false;
    sim_leave(world, task);
}

void sim_end(struct sim_world *world, uint32_t task, bool refused)
{
    const struct sim_task *t = &world->trace.tasks[task];
    struct sim_program *program = &world->shared->programs[task];

    sim_settle(world, task);
    if (refused) {
        program->kept = 0;
        sim_lose(world, task);
        sim_log(world, SIM_REFUSE, task, SIM_NONE, 0);
        world->shared->result->refused++;
    } else {
        world->shared->asked += t->work;
        world->shared->asked_us += t->work / 1000 * t->share * (t->more + 1u);
        sim_log(world, SIM_END, task, SIM_NONE, 0);
        world->shared->waits[world->shared->result->finished++] = program->waited_ms;
        world->shared->took_ms += (double)(sim_now(world) - t->arrive_ms);
        world->shared->result->end_ms = sim_now(world);
    }
    sim_steps_take_out(world, task);
    program->mode = SIM_GONE;
    world->shared->present--;
}

void sim_put_off(struct sim_world *world, uint32_t task)
{
    const struct sim_task *t = sim_task(world, task);
    struct sim_program *program = &world->shared->programs[task];

    sim_settle(world, task);
    sim_steps_take_out(world, task);
    sim_lose(world, task);
    for (program->grown = 0; program->grown < t->steps; program->grown++)
        if (program->progress < sim_milestone(world, task))
            break;
    program->mode = SIM_QUEUED;
    program->since_ms = sim_now(world);
}
