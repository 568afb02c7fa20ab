#include "policy/power.h"
#include "tests/support/leaks.h"

TestSuite(power, .fini = leaks_check, .timeout = 120);

enum { DEVICES = 4, PROGRAMS = 8, TICK_MS = 50, DRAIN_TICKS = 3 };

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static struct power_device two[2] = {
    {.name = "small", .idle_mw = 10000, .most_mw = 60000},
    {.name = "large", .idle_mw = 20000, .most_mw = 220000},
};

static void choose(struct power_device *devices, const struct power_program *programs,
                   uint32_t count, uint64_t cap_mw, uint64_t now_ms,
                   struct power_choice *ret_choices)
{
    const struct power_world world = {devices, 2, programs, count, cap_mw, now_ms};

    power_choose(&world, ret_choices);
}

Test(power, without_a_cap_everything_runs)
{
    const struct power_program programs[2] = {{.device = 0, .wants = true},
                                              {.device = 1, .peak_mw = 900000, .wants = true}};
    struct power_choice choices[2];

    choose(two, programs, 2, POWER_NO_CAP, 0, choices);
    cr_assert(choices[0].grant && choices[1].grant);
}

Test(power, of_two_that_do_not_fit_together_one_waits_and_is_told_why)
{
    struct power_program programs[2] = {
        {.device = 0, .peak_mw = 50000, .wants = true, .since_ms = 1},
        {.device = 1, .peak_mw = 80000, .wants = true, .since_ms = 0}};
    struct power_choice choices[2];

    choose(two, programs, 2, 120000, 5, choices);
    cr_assert(choices[1].grant && !choices[0].grant);
    cr_assert_str_eq(choices[0].why,
                     "it waits for power: with it the host would draw 160.0 W of 120.0 W");
}

Test(power, what_is_not_known_counts_as_the_most_that_the_device_draws)
{
    struct power_device devices[2] = {two[0], two[1]};
    const struct power_program program = {.device = 1, .wants = true};
    struct power_choice choice;

    devices[1].cap_mw = 219999;
    choose(devices, &program, 1, POWER_NO_CAP, 0, &choice);
    cr_assert_not(choice.grant);
    devices[1].cap_mw = 220000;
    choose(devices, &program, 1, POWER_NO_CAP, 0, &choice);
    cr_assert(choice.grant);
    devices[1].most_mw = 0; /* nor is that */
    devices[1].cap_mw = UINT64_MAX / 2048;
    choose(devices, &program, 1, POWER_NO_CAP, 0, &choice);
    cr_assert_not(choice.grant);
    cr_assert(strstr(choice.why, "not known"), "%s", choice.why);
}

Test(power, power_is_granted_again_only_after_launches_have_ended)
{
    struct power_program programs[2] = {
        {.device = 1,
         .peak_mw = 80000,
         .granted = true,
         .runs = true,
         .wants = true,
         .since_ms = 0},
        {.device = 1, .peak_mw = 80000, .wants = true, .since_ms = 10}};
    struct power_device devices[2] = {two[0], two[1]};
    struct power_choice choices[2];

    devices[1].cap_mw = 150000;
    choose(devices, programs, 2, POWER_NO_CAP, POWER_SLICE_MS - 1, choices);
    cr_assert(choices[0].grant && !choices[1].grant, "its slice is not over");
    choose(devices, programs, 2, POWER_NO_CAP, POWER_SLICE_MS, choices);
    cr_assert(!choices[0].grant && !choices[1].grant, "nobody has its power yet");
    programs[0].granted = false;
    programs[0].since_ms = POWER_SLICE_MS;
    choose(devices, programs, 2, POWER_NO_CAP, POWER_SLICE_MS, choices);
    cr_assert(!choices[0].grant && !choices[1].grant, "its launches have not ended");
    programs[0].runs = false;
    choose(devices, programs, 2, POWER_NO_CAP, POWER_SLICE_MS, choices);
    cr_assert(!choices[0].grant && choices[1].grant);
}

Test(power, a_programs_own_cap_is_compared_with_its_device_and_itself)
{
    struct power_program programs[2] = {
        {.device = 1, .peak_mw = 80000, .cap_mw = 100000, .wants = true},
        {.device = 1, .peak_mw = 90000, .wants = true}};
    struct power_choice choices[2];

    choose(two, programs, 2, POWER_NO_CAP, 0, choices);
    cr_assert(choices[0].grant && choices[1].grant, "another program is not its concern");
    programs[0].cap_mw = 99999;
    choose(two, programs, 2, POWER_NO_CAP, 0, choices);
    cr_assert(!choices[0].grant && choices[1].grant);
}

Test(power, the_least_is_exactly_what_would_fit)
{
    struct power_device devices[2] = {two[0], two[1]};
    struct power_program programs[2] = {{.device = 0, .peak_mw = 30000, .wants = true},
                                        {.device = 1, .peak_mw = 25000, .wants = true}};
    struct power_world world = {devices, 2, programs, 2, POWER_NO_CAP, 0};
    struct power_choice choices[2];

    devices[0].foreign_mw = 1000;
    world.cap_mw = 56000;
    power_choose(&world, choices);
    cr_assert(!choices[0].grant && choices[1].grant);
    cr_assert_eq(choices[0].least_mw, 61000);
    world.cap_mw--;
    power_choose(&world, choices);
    cr_assert(!choices[0].grant && !choices[1].grant);
    cr_assert_eq(choices[1].least_mw, 56000);
    cr_assert(strstr(choices[1].why, "alone it has the host draw 56.0 W, which is the least"), "%s",
              choices[1].why);
    devices[0].cap_mw = 40999;
    power_choose(&world, choices);
    cr_assert_eq(choices[0].least_mw, 41000);
}

/* ---- random worlds, in which launches draw up to their peaks ---- */

struct sim {
    struct power_device devices[DEVICES];
    struct power_program programs[PROGRAMS];
    uint32_t device_count, program_count;
    uint64_t cap_mw, now_ms;
    unsigned draining[PROGRAMS]; /* ticks until its launches have ended */
    uint64_t granted_ms[PROGRAMS];
};

static struct power_world sim_world(struct sim *s)
{
    return (struct power_world){s->devices,       s->device_count, s->programs,
                                s->program_count, s->cap_mw,       s->now_ms};
}

static void sim_init(struct sim *s, uint64_t *state)
{
    memset(s, 0, sizeof(*s));
    s->device_count = 1 + (uint32_t)(next_random(state) % DEVICES);
    s->program_count = 1 + (uint32_t)(next_random(state) % PROGRAMS);
    for (uint32_t i = 0; i < s->device_count; i++) {
        struct power_device *d = &s->devices[i];
        *d = (struct power_device){.name = "d", .idle_mw = next_random(state) % 50000};
        d->most_mw = d->idle_mw + 50000 + next_random(state) % 300000;
        d->cap_mw = next_random(state) % 3 ? 0 : d->idle_mw + next_random(state) % 200000;
        d->foreign_mw = next_random(state) % 4 ? 0 : next_random(state) % 20000;
    }
    for (uint32_t i = 0; i < s->program_count; i++) {
        struct power_program *p = &s->programs[i];
        *p = (struct power_program){.device = (uint32_t)(next_random(state) % s->device_count)};
        const struct power_device *d = &s->devices[p->device];
        p->peak_mw =
            next_random(state) % 4 ? 1 + next_random(state) % (d->most_mw - d->idle_mw) : 0;
        p->cap_mw = next_random(state) % 4 ? 0 : d->idle_mw + next_random(state) % 200000;
        p->wants = true;
    }
    s->cap_mw = next_random(state) % 2 ? 0 : 100000 + next_random(state) % 800000;
}

/** What is drawn at one moment: by each that runs up to its peak, if that is honest. */
static uint64_t sim_draws(const struct sim *s, uint32_t device, uint64_t *state)
{
    const struct power_device *d = &s->devices[device];
    uint64_t draw = d->idle_mw + d->foreign_mw;

    for (uint32_t i = 0; i < s->program_count; i++) {
        const struct power_program *p = &s->programs[i];
        uint64_t peak = p->peak_mw ? p->peak_mw : d->most_mw - d->idle_mw;
        if (p->device == device && p->runs)
            draw += next_random(state) % 2 ? peak : next_random(state) % (peak + 1);
    }
    return draw < d->most_mw ? draw : d->most_mw;
}

static bool sim_is_exceeded(const struct sim *s, uint64_t *state)
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < s->device_count; i++) {
        uint64_t draw = sim_draws(s, i, state);
        bool runs = false;
        for (uint32_t j = 0; j < s->program_count; j++)
            runs = runs || (s->programs[j].device == i && s->programs[j].runs);
        if (s->devices[i].cap_mw && runs && draw > s->devices[i].cap_mw)
            return true;
        all += draw;
    }
    bool any = false;
    for (uint32_t j = 0; j < s->program_count; j++)
        any = any || s->programs[j].runs;
    return s->cap_mw && any && all > s->cap_mw;
}

static void sim_step(struct sim *s, uint64_t *state)
{
    struct power_world world = sim_world(s);
    struct power_choice choices[PROGRAMS];

    for (uint32_t i = 0; i < s->program_count; i++) {
        struct power_program *p = &s->programs[i];
        if (!p->granted && p->runs && s->draining[i]-- == 0)
            p->runs = false;
    }
    power_choose(&world, choices);
    for (uint32_t i = 0; i < s->program_count; i++) {
        struct power_program *p = &s->programs[i];
        if (choices[i].grant != p->granted)
            p->since_ms = s->now_ms;
        if (choices[i].grant) {
            p->runs = true;
            s->granted_ms[i] = s->now_ms;
        } else if (p->granted) {
            s->draining[i] = (unsigned)(next_random(state) % DRAIN_TICKS);
        }
        p->granted = choices[i].grant;
    }
    s->now_ms += TICK_MS;
}

static bool sim_fits_alone(const struct sim *s, uint32_t index)
{
    struct sim alone = *s;
    struct power_choice choices[PROGRAMS];

    for (uint32_t i = 0; i < s->program_count; i++)
        alone.programs[i].wants = alone.programs[i].granted = alone.programs[i].runs = false;
    alone.programs[index].wants = true;
    struct power_world world = sim_world(&alone);
    power_choose(&world, choices);
    return choices[index].grant;
}

Test(power, in_random_worlds_no_cap_is_exceeded_and_nobody_waits_forever)
{
    /* Each waits for at most a slice and a drain of each other one. */
    const uint64_t most_ms = (PROGRAMS + 1) * (POWER_SLICE_MS + (DRAIN_TICKS + 2) * TICK_MS);
    unsigned waited = 0, never = 0;

    for (uint64_t world = 0; world < 2000; world++) {
        uint64_t state = world * 77 + 5;
        struct sim s;
        sim_init(&s, &state);
        for (unsigned tick = 0; tick < 400; tick++) {
            sim_step(&s, &state);
            cr_assert_not(sim_is_exceeded(&s, &state), "world %lu, tick %u", (unsigned long)world,
                          tick);
            for (uint32_t i = 0; i < s.program_count; i++) {
                bool late = s.now_ms - s.granted_ms[i] > most_ms;
                cr_assert(!late || !sim_fits_alone(&s, i), "world %lu: program %u waits for %lu ms",
                          (unsigned long)world, i, (unsigned long)(s.now_ms - s.granted_ms[i]));
                waited += !s.programs[i].granted;
                never += late;
            }
        }
    }
    cr_assert(waited > 10000 && never > 1000, "the worlds are too easy");
}

Test(power, a_cap_that_is_lowered_is_kept_once_launches_have_ended)
{
    for (uint64_t world = 0; world < 500; world++) {
        uint64_t state = world * 13 + 1;
        struct sim s;
        sim_init(&s, &state);
        for (unsigned tick = 0; tick < 200; tick++) {
            if (tick % 40 == 39) {
                s.cap_mw = 50000 + next_random(&state) % 500000;
                s.devices[0].cap_mw = s.devices[0].idle_mw + next_random(&state) % 100000;
            }
            sim_step(&s, &state);
            if (tick % 40 < 40 - 1 && tick % 40 > DRAIN_TICKS + 1)
                cr_assert_not(sim_is_exceeded(&s, &state), "world %lu, tick %u",
                              (unsigned long)world, tick);
        }
    }
}
