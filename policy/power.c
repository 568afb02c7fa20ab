#include "policy/power.h"

#include <stdio.h>

/** Stands for an unknown power: more than any device draws, and sums of a few do not overflow. */
#define POWER_ENDLESS    (UINT64_MAX / 1024)
#define POWER_NO_PROGRAM UINT32_MAX

/** The peak of @program above its device's idle power. */
static uint64_t power_peak(const struct power_world *world, const struct power_program *program)
{
    const struct power_device *device = &world->devices[program->device];

    if (program->peak_mw)
        return program->peak_mw;
    return device->most_mw > device->idle_mw ? device->most_mw - device->idle_mw : POWER_ENDLESS;
}

/** Power of @device when programs here draw @above_mw above idle. */
static uint64_t power_bounded(const struct power_device *device, uint64_t above_mw)
{
    uint64_t draw = device->idle_mw + device->foreign_mw + above_mw;

    return device->most_mw > device->idle_mw && draw > device->most_mw ? device->most_mw : draw;
}

/** What all devices draw: now, with the programs that were counted, and without programs. */
struct power_tally {
    uint64_t all_mw, idle_mw;
    bool kept; /**< Some device is `kept`. */
};

static struct power_tally power_tally_begin(const struct power_world *world)
{
    struct power_tally tally = {0, 0, false};

    for (uint32_t i = 0; i < world->device_count; i++) {
        world->devices[i].above_mw = 0;
        world->devices[i].kept = false;
        tally.idle_mw += power_bounded(&world->devices[i], 0);
    }
    tally.all_mw = tally.idle_mw;
    return tally;
}

static void power_tally_add(const struct power_world *world, struct power_tally *tally,
                            uint32_t program)
{
    struct power_device *device = &world->devices[world->programs[program].device];
    uint64_t before = power_bounded(device, device->above_mw);

    device->above_mw += power_peak(world, &world->programs[program]);
    device->above_mw = device->above_mw < POWER_ENDLESS ? device->above_mw : POWER_ENDLESS;
    tally->all_mw += power_bounded(device, device->above_mw) - before;
}

bool power_program_is_capped(const struct power_world *world, uint32_t program)
{
    const struct power_program *one = &world->programs[program];

    return one->device != POWER_NO_DEVICE &&
           (one->cap_mw || world->cap_mw || world->devices[one->device].cap_mw);
}

/** A cap, what would be drawn of it, and by what. */
struct power_need {
    const char *whose;
    uint64_t needs_mw, cap_mw;
};

static void power_say(char *why, const struct power_need *need, bool alone)
{
    double needs = (double)need->needs_mw / 1000, cap = (double)need->cap_mw / 1000;

    if (need->needs_mw >= POWER_ENDLESS)
        snprintf(why, POWER_REASON,
                 "it waits for power: it is not known what %s draws at most, so nothing runs there "
                 "under a cap of %.1f W",
                 need->whose, cap);
    else if (alone)
        snprintf(why, POWER_REASON,
                 "it waits until a power cap is raised: alone it has %s draw %.1f W, which is the "
                 "least that would do; the cap is %.1f W",
                 need->whose, needs, cap);
    else
        snprintf(why, POWER_REASON, "it waits for power: with it %s would draw %.1f W of %.1f W",
                 need->whose, needs, cap);
}

/**
 * True when @index, in addition to the programs that were counted or alone, fits under all caps.
 * Otherwise @ret_need is the cap that it exceeds.
 */
static bool power_fits(const struct power_world *world, const struct power_tally *tally,
                       const struct power_choice *choices, uint32_t index, bool alone,
                       struct power_need *ret_need)
{
    const struct power_program *program = &world->programs[index];
    const struct power_device *device = &world->devices[program->device];
    uint64_t peak = power_peak(world, program), own = device->idle_mw + peak;
    uint64_t others = alone ? 0 : device->above_mw, all = alone ? tally->idle_mw : tally->all_mw;
    uint64_t here = power_bounded(device, others + (!alone && choices[index].counts ? 0 : peak));

    if (device->most_mw > device->idle_mw && own > device->most_mw)
        own = device->most_mw;
    all += here - power_bounded(device, others);
    if (program->cap_mw && own > program->cap_mw)
        *ret_need = (struct power_need){device->name, own, program->cap_mw};
    else if (device->cap_mw && here > device->cap_mw)
        *ret_need = (struct power_need){device->name, here, device->cap_mw};
    else if (world->cap_mw && all > world->cap_mw)
        *ret_need = (struct power_need){here >= POWER_ENDLESS ? device->name : "the host", all,
                                        world->cap_mw};
    else
        return true;
    return false;
}

/**
 * True when @a comes before @b. The order is: programs within their slice, waiting programs,
 * programs whose slice is over; among equals, the one that was granted or waits for longer.
 */
static bool power_is_before(const struct power_world *world, uint32_t a, uint32_t b)
{
    const struct power_program *one = &world->programs[a], *other = &world->programs[b];
    unsigned ranks[2];

    for (int i = 0; i < 2; i++) {
        const struct power_program *program = i ? other : one;
        bool over = world->now_ms - program->since_ms >= POWER_SLICE_MS;
        ranks[i] = program->granted ? (over ? 2 : 0) : 1;
    }
    if (ranks[0] != ranks[1])
        return ranks[0] < ranks[1];
    return one->since_ms != other->since_ms ? one->since_ms < other->since_ms : a < b;
}

/** The first program in that order that is not `seen`; POWER_NO_PROGRAM: none. */
static uint32_t power_next(const struct power_world *world, const struct power_choice *choices)
{
    uint32_t best = POWER_NO_PROGRAM;

    for (uint32_t i = 0; i < world->program_count; i++)
        if (!choices[i].seen && (best == POWER_NO_PROGRAM || power_is_before(world, i, best)))
            best = i;
    return best;
}

/**
 * Choose the programs that should launch, in order, each if it fits beside those chosen before it.
 * If a waiting program would fit alone but does not fit now, no later waiting program is chosen
 * that shares a cap with it: otherwise small programs could starve it.
 */
static void power_choose_all(const struct power_world *world, struct power_choice *choices)
{
    struct power_tally tally = power_tally_begin(world);

    for (uint32_t i = 0; i < world->program_count; i++) {
        const struct power_program *program = &world->programs[i];
        bool draws = program->device != POWER_NO_DEVICE && (program->wants || program->granted);
        bool free = draws && !power_program_is_capped(world, i);
        choices[i] = (struct power_choice){.seen = !draws || free, .chosen = free};
        if (free)
            power_tally_add(world, &tally, i);
    }
    for (uint32_t i; (i = power_next(world, choices)) != POWER_NO_PROGRAM;) {
        struct power_device *device = &world->devices[world->programs[i].device];
        struct power_choice *choice = &choices[i];
        struct power_need need, lone;
        bool waits = !world->programs[i].granted;
        choice->seen = true;
        choice->chosen = power_fits(world, &tally, choices, i, false, &need);
        if (!choice->chosen) {
            bool never = !power_fits(world, &tally, choices, i, true, &lone);
            choice->least_mw = never ? lone.needs_mw : 0;
            power_say(choice->why, never ? &lone : &need, never);
            device->kept = device->kept || (waits && !never);
            tally.kept = tally.kept || (waits && !never);
        } else if (waits && (world->cap_mw ? tally.kept : device->kept)) {
            choice->chosen = false;
            snprintf(choice->why, POWER_REASON,
                     "it waits for power behind a program that waits longer");
        } else {
            power_tally_add(world, &tally, i);
        }
    }
}

void power_choose(const struct power_world *world, struct power_choice *ret_choices)
{
    power_choose_all(world, ret_choices);
    struct power_tally tally = power_tally_begin(world);
    /* A program whose grant is withdrawn draws power until its launches have ended. */
    for (uint32_t i = 0; i < world->program_count; i++) {
        const struct power_program *program = &world->programs[i];
        ret_choices[i].counts =
            program->device != POWER_NO_DEVICE && (program->runs || program->granted);
        if (ret_choices[i].counts)
            power_tally_add(world, &tally, i);
    }
    for (uint32_t i = 0; i < world->program_count; i++) {
        struct power_choice *choice = &ret_choices[i];
        struct power_need need;
        if (!choice->chosen)
            continue;
        choice->grant = world->programs[i].granted || !power_program_is_capped(world, i) ||
                        power_fits(world, &tally, ret_choices, i, false, &need);
        if (!choice->grant)
            snprintf(choice->why, POWER_REASON,
                     "it waits until launches of others have ended, whose power it gets");
        else if (!choice->counts)
            power_tally_add(world, &tally, i);
        choice->counts = choice->counts || choice->grant;
    }
}
