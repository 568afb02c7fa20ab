#include "tests/policy/policy_world.h"

#include "tests/support/cases.h"

uint64_t world_random(struct world *world, uint64_t below)
{
    world->random ^= world->random << 13;
    world->random ^= world->random >> 7;
    world->random ^= world->random << 17;
    return world->random % below;
}

bool world_chance(struct world *world, unsigned percent)
{
    return world_random(world, 100) < percent;
}

void world_init(struct world *world, uint64_t seed)
{
    memset(world, 0, sizeof(*world));
    settings_init(&world->settings);
    world->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    world->world.devices = world->devices;
    world->world.programs = world->programs;
    world->world.queue = world->queue;
    for (unsigned i = 0; i < WORLD_DEVICES; i++)
        snprintf(world->names[i], sizeof(world->names[i]), "gpu%u", i);
    for (unsigned i = 0; i < WORLD_PROGRAMS; i++)
        snprintf(world->names[WORLD_DEVICES + i], sizeof(world->names[0]), "p%u", i);
}

struct policy_device *world_add_device(struct world *world, uint64_t memory)
{
    uint32_t index = world->world.device_count++;
    struct policy_device *device = &world->devices[index];

    cr_assert_lt(index, WORLD_DEVICES);
    *device = (struct policy_device){.name = world->names[index],
                                     .memory = memory * MIB,
                                     .speed = 1000,
                                     .price = 1000,
                                     .first = POLICY_NONE,
                                     .has = &world->has[index]};
    return device;
}

struct policy_program *world_add_program(struct world *world, uint32_t device, uint64_t wanted)
{
    uint32_t index = world->world.program_count++;
    struct policy_program *program = &world->programs[index];

    cr_assert_lt(index, WORLD_PROGRAMS);
    *program = (struct policy_program){
        .name = world->names[WORLD_DEVICES + index],
        .state = device == POLICY_NONE ? POLICY_SUSPENDED : POLICY_RUNNING,
        .device = device,
        .granted = device == POLICY_NONE ? 0 : wanted * MIB,
        .wanted = wanted * MIB,
        .least = wanted * MIB,
        .quota = UINT64_MAX,
        .ticket = device == POLICY_NONE ? ++world->ticket : 0,
        .stayed_s = 100,
        .age_s = 100000,
        .busy = 500,
        .ways = POLICY_UPGRADE | POLICY_SPILL | POLICY_WAIT | POLICY_SUSPEND,
        .barred = &world->barred[index],
        .ready = POLICY_NONE,
        .ready_s = UINT64_MAX,
        .visits = &world->visits[index],
    };
    world_refresh(world);
    return program;
}

void world_ask(struct world *world, struct policy_program *program, uint64_t more)
{
    cr_assert_eq(program->state, POLICY_RUNNING);
    program->state = POLICY_WAITING;
    program->need = program->granted + more * MIB;
    program->wanted += more * MIB;
    program->ticket = ++world->ticket;
    program->waited_s = 0;
    world_refresh(world);
}

void world_end(struct world *world, struct policy_program *program)
{
    *program = (struct policy_program){.name = program->name,
                                       .state = POLICY_STOPPED,
                                       .device = POLICY_NONE,
                                       .barred = program->barred};
    world_refresh(world);
}

void world_prefer(struct world *world, struct policy_program *program,
                  const struct reseat_limits *prefers)
{
    struct reseat_limits *own = &world->prefers[world_id(world, program)];

    *own = *prefers;
    own->memory *= MIB;
    program->prefers = own;
}

static struct reseat_limits random_limits(struct world *world)
{
    return (struct reseat_limits){
        .memory = world_random(world, 18),
        .allocation = world_random(world, 4),
        .local_memory = world_random(world, 4),
        .work_group_size = world_random(world, 4),
        .compute_units = (uint32_t)world_random(world, 4),
        .features = (uint32_t)world_random(world, 8),
    };
}

void world_random_wishes(struct world *world, unsigned percent)
{
    for (uint32_t i = 0; i < world->world.device_count; i++)
        world->has[i] = random_limits(world);
    for (uint32_t i = 0; i < world->world.program_count; i++) {
        struct reseat_limits prefers = random_limits(world);

        /* Few of all these: else no device is better in one and worse in none. */
        prefers.memory *= world_chance(world, 50);
        prefers.allocation *= world_chance(world, 20);
        prefers.local_memory *= world_chance(world, 20);
        prefers.work_group_size *= world_chance(world, 20);
        prefers.compute_units *= world_chance(world, 40);
        prefers.features *= world_chance(world, 30);
        if (world_chance(world, percent))
            world_prefer(world, &world->programs[i], &prefers);
    }
}

uint32_t world_id(const struct world *world, const struct policy_program *program)
{
    return (uint32_t)(program - world->programs);
}

static bool is_queued(const struct policy_program *program)
{
    return program->state == POLICY_WAITING || program->state == POLICY_SUSPENDED;
}

static bool goes_first(const struct policy_program *a, const struct policy_program *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->ticket < b->ticket;
}

static void refresh_queue(struct world *world)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < world->world.program_count; i++) {
        uint32_t at = count;

        if (!is_queued(&world->programs[i]))
            continue;
        for (; at && goes_first(&world->programs[i], &world->programs[world->queue[at - 1]]); at--)
            world->queue[at] = world->queue[at - 1];
        world->queue[at] = i;
        count++;
    }
    world->world.queue_count = count;
}

static uint64_t promised_on(const struct world *world, uint32_t device)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < world->world.program_count; i++) {
        const struct policy_step *step = &world->promises[i];
        uint64_t granted = world->programs[i].granted;

        if (step->action == POLICY_NOTHING || step->device != device)
            continue;
        if (step->action == POLICY_DO_MOVE || step->action == POLICY_DO_RESUME)
            sum += step->bytes;
        else if (step->action == POLICY_DO_SPILL && step->bytes > granted)
            sum += step->bytes - granted;
    }
    return sum;
}

void world_refresh(struct world *world)
{
    for (uint32_t i = 0; i < world->world.device_count; i++) {
        world->devices[i].reserved = world->devices[i].busy = world->devices[i].residents = 0;
        world->devices[i].first = POLICY_NONE;
    }
    for (uint32_t i = 0; i < world->world.program_count; i++) {
        struct policy_program *program = &world->programs[i];
        struct policy_device *device;

        if (program->device == POLICY_NONE)
            continue;
        device = &world->devices[program->device];
        device->reserved += program->granted;
        device->busy += program->busy;
        device->residents++;
        program->next = device->first;
        device->first = i;
    }
    for (uint32_t i = 0; i < world->world.device_count; i++)
        world->devices[i].reserved += promised_on(world, i);
    refresh_queue(world);
}

void world_promise(struct world *world, const struct policy_step *step)
{
    world->promises[step->program] = *step;
    world_refresh(world);
}

/* What a device has left, from the programs alone. */
static uint64_t left_on(const struct world *world, uint32_t device)
{
    uint64_t memory = world->devices[device].memory, promised = promised_on(world, device);

    memory -= promised < memory ? promised : memory;
    for (uint32_t i = 0; i < world->world.program_count; i++) {
        const struct policy_program *program = &world->programs[i];

        if (program->device == device)
            memory -= program->granted < memory ? program->granted : memory;
    }
    return memory;
}

static uint64_t all_of(const struct policy_program *program)
{
    return program->wanted > program->need ? program->wanted : program->need;
}

static void check_target(const struct world *world, const struct policy_program *program,
                         const struct policy_step *step)
{
    const struct policy_device *device;

    cr_assert_lt(step->device, world->world.device_count, "%s", step->reason);
    device = &world->devices[step->device];
    cr_assert_neq(step->device, program->device, "%s", step->reason);
    cr_assert(!program->pinned || program->device == POLICY_NONE, "pinned moves: %s", step->reason);
    cr_assert(!device->closed && !device->drains, "closed: %s", step->reason);
    cr_assert(!(*program->barred >> step->device & 1), "barred: %s", step->reason);
    cr_assert_leq(step->bytes, left_on(world, step->device), "over capacity: %s", step->reason);
    cr_assert_leq(step->bytes, program->quota, "over quota: %s", step->reason);
    if (step->bytes < all_of(program)) {
        cr_assert(program->ways & POLICY_SPILL, "may not spill: %s", step->reason);
        cr_assert_geq(step->bytes, program->least, "below least: %s", step->reason);
    }
}

static void check_step(const struct world *world, const struct policy_step *step)
{
    const struct policy_program *program = &world->programs[step->program];
    uint64_t left = program->device == POLICY_NONE ? 0 : left_on(world, program->device);

    cr_assert_lt(step->program, world->world.program_count);
    cr_assert_neq(program->state, POLICY_STOPPED, "left alone: %s", step->reason);
    cr_assert(!program->busy_moving, "under way: %s", step->reason);
    cr_assert(*step->reason && !strchr(step->reason, '\n'));
    cr_assert_lt(strlen(step->reason), POLICY_REASON - 1, "cut: %s", step->reason);
    switch (step->action) {
    case POLICY_GRANT:
        cr_assert_eq(step->device, program->device);
        cr_assert_leq(step->bytes, left, "over capacity: %s", step->reason);
        cr_assert_leq(program->granted + step->bytes, program->quota, "over quota: %s",
                      step->reason);
        cr_assert_geq(program->granted + step->bytes, program->need, "%s", step->reason);
        break;
    case POLICY_DO_MOVE:
        cr_assert(program->state == POLICY_RUNNING || program->state == POLICY_WAITING);
        check_target(world, program, step);
        break;
    case POLICY_DO_SPILL:
        cr_assert_eq(step->device, program->device);
        cr_assert(!program->pinned && program->ways & POLICY_SPILL, "%s", step->reason);
        cr_assert_geq(step->bytes, program->least, "below least: %s", step->reason);
        cr_assert_leq(step->bytes, program->quota, "over quota: %s", step->reason);
        if (step->bytes > program->granted)
            cr_assert_leq(step->bytes - program->granted, left, "over capacity: %s", step->reason);
        break;
    case POLICY_DO_SUSPEND:
        cr_assert(program->state == POLICY_RUNNING || program->state == POLICY_WAITING);
        cr_assert(!program->pinned, "pinned is suspended: %s", step->reason);
        break;
    case POLICY_DO_RESUME:
        cr_assert_eq(program->state, POLICY_SUSPENDED, "%s", step->reason);
        check_target(world, program, step);
        break;
    case POLICY_DO_PREWARM:
        cr_assert(program->state == POLICY_RUNNING || program->state == POLICY_SUSPENDED, "%s",
                  step->reason);
        cr_assert_neq(step->device, program->device, "%s", step->reason);
        cr_assert_neq(step->device, program->ready, "%s", step->reason);
        cr_assert_eq(step->bytes, 0, "%s", step->reason);
        break;
    case POLICY_DO_REFUSE:
    case POLICY_DO_WAIT:
        cr_assert(is_queued(program), "%s", step->reason);
        break;
    case POLICY_NOTHING:
        break;
    }
}

static void place(struct world *world, struct policy_program *program,
                  const struct policy_step *step)
{
    const struct policy_visit left = {.device = program->device,
                                      .busy = program->busy,
                                      .left_s = world->world.now_s,
                                      .bar_s = step->payback_s,
                                      .by_policy = program->device != POLICY_NONE &&
                                                   program->state == POLICY_RUNNING &&
                                                   !world->devices[program->device].drains};

    if (program->device != POLICY_NONE)
        visits_moved(&world->visits[world_id(world, program)], &left, step->device,
                     world->settings.return_s);
    if (world->scales && program->device != POLICY_NONE)
        program->busy = (uint32_t)((uint64_t)program->busy * world->devices[program->device].speed /
                                   world->devices[step->device].speed);
    program->device = step->device;
    program->granted = step->bytes;
    program->state = POLICY_RUNNING;
    program->need = program->stayed_s = 0;
    program->ready = POLICY_NONE;
    program->ready_s = UINT64_MAX;
}

void world_do(struct world *world, const struct policy_step *step)
{
    struct policy_program *program = &world->programs[step->program];

    check_step(world, step);
    switch (step->action) {
    case POLICY_GRANT:
        program->granted += step->bytes;
        program->state = POLICY_RUNNING;
        program->need = 0;
        break;
    case POLICY_DO_MOVE:
        world->moved++;
        place(world, program, step);
        break;
    case POLICY_DO_RESUME:
        place(world, program, step);
        break;
    case POLICY_DO_SPILL:
        program->granted = step->bytes;
        program->state = POLICY_RUNNING;
        program->need = 0;
        break;
    case POLICY_DO_SUSPEND:
        world->suspended++;
        if (program->state == POLICY_RUNNING) {
            program->ticket = ++world->ticket;
            program->waited_s = 0;
        }
        program->state = POLICY_SUSPENDED;
        program->device = POLICY_NONE;
        program->granted = program->stayed_s = 0;
        break;
    case POLICY_DO_REFUSE:
        program->need = 0;
        if (program->state == POLICY_WAITING)
            program->state = POLICY_RUNNING;
        break;
    case POLICY_DO_PREWARM:
        program->ready = step->device;
        program->ready_s = 0;
        break;
    case POLICY_DO_WAIT:
    case POLICY_NOTHING:
        break;
    }
    world_refresh(world);
}

unsigned world_settle(struct world *world, unsigned limit)
{
    struct policy_step step;
    unsigned count = 0;

    for (;; count++) {
        policy_next(&world->world, &world->settings, &step);
        if (step.action == POLICY_NOTHING)
            return count;
        cr_assert_neq(step.action, POLICY_DO_WAIT);
        cr_assert_lt(count, limit, "no end: %s: %s", policy_action_name(step.action), step.reason);
        world_do(world, &step);
    }
}

void world_pass(struct world *world, uint64_t seconds)
{
    world->world.now_s += seconds;
    for (uint32_t i = 0; i < world->world.program_count; i++) {
        world->programs[i].stayed_s += seconds;
        world->programs[i].age_s += seconds;
        visits_stayed(&world->visits[i], world->programs[i].busy, world->programs[i].stayed_s);
        if (world->programs[i].ready_s != UINT64_MAX)
            world->programs[i].ready_s += seconds;
        if (is_queued(&world->programs[i]))
            world->programs[i].waited_s += seconds;
    }
}
