#include "policy/power.h"

#include <stdio.h>

/** Stands for an unknown power: more than any device draws, and sums of a few do not overflow. */
#define POWER_ENDLESS (UINT64_MAX / 1024)

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

    return device->most_mw && draw > device->most_mw ? device->most_mw : draw;
}

/**
 * Power of @device while @more and the programs whose choice `counts` launch. NULL @choices: only
 * @more.
 */
static uint64_t power_device_draw(const struct power_world *world, uint32_t device,
                                  const struct power_choice *choices, uint32_t more)
{
    uint64_t above = 0;

    for (uint32_t i = 0; i < world->program_count; i++)
        if (world->programs[i].device == device && ((choices && choices[i].counts) || i == more))
            above += power_peak(world, &world->programs[i]);
    return power_bounded(&world->devices[device], above);
}

uint64_t power_draw(const struct power_world *world, uint32_t device)
{
    uint64_t above = 0;

    for (uint32_t i = 0; i < world->program_count; i++)
        if (world->programs[i].device == device && world->programs[i].runs)
            above += power_peak(world, &world->programs[i]);
    return power_bounded(&world->devices[device], above);
}

bool power_is_capped(const struct power_world *world, uint32_t program)
{
    const struct power_program *one = &world->programs[program];

    return one->device != POWER_NO_DEVICE &&
           (one->cap_mw || world->cap_mw || world->devices[one->device].cap_mw);
}

static void power_say(char *why, const char *whose, uint64_t needs_mw, uint64_t cap_mw)
{
    if (needs_mw >= POWER_ENDLESS)
        snprintf(why, POWER_REASON,
                 "it waits for power: it is not known what %s draws at most, so nothing runs there "
                 "under a cap "
                 "of %.1f W",
                 whose, (double)cap_mw / 1000);
    else
        snprintf(why, POWER_REASON, "it waits for power: with it %s would draw %.1f W of %.1f W",
                 whose, (double)needs_mw / 1000, (double)cap_mw / 1000);
}

/**
 * True when @index fits under all caps beside the programs whose choice `counts`; otherwise
 * @ret_why names the cap that it exceeds.
 */
static bool power_fits(const struct power_world *world, const struct power_choice *choices,
                       uint32_t index, char *ret_why)
{
    const struct power_program *program = &world->programs[index];
    const struct power_device *device = &world->devices[program->device];
    uint64_t own = device->idle_mw + power_peak(world, program);
    uint64_t here = power_device_draw(world, program->device, choices, index), all = 0;

    if (program->cap_mw && own > program->cap_mw) {
        power_say(ret_why, device->name, own, program->cap_mw);
        return false;
    }
    if (device->cap_mw && here > device->cap_mw) {
        power_say(ret_why, device->name, here, device->cap_mw);
        return false;
    }
    for (uint32_t i = 0; i < world->device_count; i++)
        all += power_device_draw(world, i, choices, index);
    if (world->cap_mw && all > world->cap_mw) {
        power_say(ret_why, here >= POWER_ENDLESS ? device->name : "the host", all, world->cap_mw);
        return false;
    }
    ret_why[0] = '\0';
    return true;
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

/** True when a program that waits longer must get the power that @index would use. */
static bool power_is_kept(const struct power_world *world, const struct power_choice *choices,
                          uint32_t index)
{
    for (uint32_t i = 0; i < world->program_count; i++)
        if (choices[i].keeps &&
            (world->cap_mw || world->programs[i].device == world->programs[index].device))
            return true;
    return false;
}

/**
 * Choose the programs that should launch, in order, each if it fits beside those chosen before it.
 * If a waiting program would fit alone but does not fit now, no later waiting program is chosen
 * that shares a cap with it: otherwise small programs could starve it.
 */
static void power_choose_all(const struct power_world *world, struct power_choice *choices)
{
    char ignored[POWER_REASON];

    for (uint32_t i = 0; i < world->program_count; i++) {
        const struct power_program *program = &world->programs[i];
        bool draws = program->device != POWER_NO_DEVICE && (program->wants || program->granted);
        bool free = draws && !power_is_capped(world, i);
        choices[i] = (struct power_choice){.seen = !draws || free, .chosen = free, .counts = free};
    }
    for (uint32_t i; (i = power_next(world, choices)) != POWER_NO_PROGRAM;) {
        struct power_choice *choice = &choices[i];
        bool waits = !world->programs[i].granted;
        choice->seen = true;
        choice->chosen = power_fits(world, choices, i, choice->why);
        choice->keeps = waits && !choice->chosen && power_fits(world, NULL, i, ignored);
        if (waits && choice->chosen && power_is_kept(world, choices, i)) {
            choice->chosen = false;
            snprintf(choice->why, POWER_REASON,
                     "it waits for power behind a program that waits longer");
        }
        choice->counts = choice->chosen;
    }
}

void power_choose(const struct power_world *world, struct power_choice *ret_choices)
{
    power_choose_all(world, ret_choices);
    /* A program whose grant is withdrawn draws power until its launches have ended. */
    for (uint32_t i = 0; i < world->program_count; i++)
        ret_choices[i].counts = world->programs[i].device != POWER_NO_DEVICE &&
                                (world->programs[i].runs || world->programs[i].granted);
    for (uint32_t i = 0; i < world->program_count; i++) {
        struct power_choice *choice = &ret_choices[i];
        if (!choice->chosen)
            continue;
        choice->grant = world->programs[i].granted || !power_is_capped(world, i) ||
                        power_fits(world, ret_choices, i, choice->why);
        if (choice->grant)
            choice->counts = true;
        else
            snprintf(choice->why, POWER_REASON,
                     "it waits until launches of others have ended, whose power it gets");
    }
}

/** Power of @device, or with POWER_NO_DEVICE of the host, while only @program launches. */
static uint64_t power_alone(const struct power_world *world, uint32_t program, uint32_t device)
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < world->device_count; i++)
        if (device == POWER_NO_DEVICE || i == device)
            all += power_device_draw(world, i, NULL, program);
    return all;
}

uint64_t power_least(const struct power_world *world, uint32_t device)
{
    uint64_t least = POWER_ENDLESS;
    bool any = false;

    for (uint32_t i = 0; i < world->program_count; i++) {
        const struct power_program *one = &world->programs[i];
        if (one->device == POWER_NO_DEVICE || (device != POWER_NO_DEVICE && one->device != device))
            continue;
        uint64_t draw = power_alone(world, i, device);
        least = draw < least ? draw : least;
        any = true;
    }
    if (!any)
        return power_alone(world, POWER_NO_PROGRAM, device) +
               1; /* leaves some power for launches */
    return least < POWER_ENDLESS ? least : 0;
}
