#include "policy/policy_priv.h"

#define AGES 32 /* Classes of age: powers of two, in seconds. */

/* Memory that running programs of one class of age will release. */
struct age {
    uint64_t bytes, most_s;
};

static unsigned expect_age_of(uint64_t age_s)
{
    unsigned age = age_s ? 64 - (unsigned)__builtin_clzll(age_s) : 0;

    return age < AGES ? age : AGES - 1;
}

/* Seconds until @more bytes are free on @device; UINT64_MAX: never. */
static uint64_t expect_on(struct view *view, uint32_t program, uint32_t device, uint64_t more)
{
    uint64_t free = room_for(view, program, device), grow = 0, bytes = 0;
    struct age ages[AGES] = {0};

    for (uint32_t v = device_at(view, device)->first; v != POLICY_NONE;
         v = program_at(view, v)->next) {
        const struct policy_program *p = program_at(view, v);
        struct age *age = &ages[expect_age_of(p->age_s)];

        if (v == program || p->state != POLICY_RUNNING)
            continue;
        age->bytes += p->granted;
        age->most_s = most_of(age->most_s, p->age_s);
        /* A program's own peak is believed for its own user only. */
        if (p->owner == program_at(view, program)->owner && p->peak > p->granted)
            grow += p->peak - p->granted;
    }
    more += least_of(grow, free);
    for (unsigned i = 0; i < AGES; i++) {
        bytes += ages[i].bytes;
        if (ages[i].bytes && bytes + free >= more)
            return ages[i].most_s;
    }
    return UINT64_MAX;
}

static bool expect_may_use(const struct view *view, const struct policy_program *p, uint32_t device,
                           uint64_t more)
{
    const struct policy_device *d = device_at(view, device);

    if (device == p->device)
        return !d->drains && p->granted + more <= d->memory;
    return would_leave(view, p) && device_is_open(d) && !program_barred(p, device) &&
           more <= d->memory;
}

static uint64_t expect_room(struct view *view, uint32_t program, uint64_t bytes)
{
    const struct policy_program *p = program_at(view, program);
    uint64_t least_ms = UINT64_MAX;

    if (bytes > p->quota)
        return UINT64_MAX;
    spend_visits(view, view->world->device_count);
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        uint64_t more = bytes_more(view, program, i, bytes), s;

        if (!expect_may_use(view, p, i, more) || more <= room_for(view, program, i))
            continue;
        s = expect_on(view, program, i, more);
        if (s < UINT64_MAX / 2000)
            least_ms =
                least_of(least_ms, 1000 * s + (i == p->device ? 0 : program_move_ms(view, p)));
    }
    return least_ms;
}

uint64_t expect_room_ms(struct view *view, uint32_t program, uint64_t bytes)
{
    if (view->expected.program != program || view->expected.bytes != bytes)
        view->expected =
            (struct policy_expected){program, bytes, expect_room(view, program, bytes)};
    return view->expected.ms;
}

uint64_t expect_wait_ms(struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);

    return p->state == POLICY_SUSPENDED || ways_of(view, p) & POLICY_WAIT
               ? expect_room_ms(view, program, program_full(p))
               : UINT64_MAX;
}

uint64_t expect_displaced_ms(struct view *view, uint32_t program, const struct room *room,
                             const struct policy_step *step)
{
    const struct policy_program *p = program_at(view, program),
                                *victim = program_at(view, step->program);
    int64_t above = (rank_of(p) - rank_of(victim) + 1) / 2;
    uint64_t away_ms;

    if (step->action != POLICY_DO_SUSPEND)
        return room->cost_ms;
    away_ms = least_of(1000 * least_of(p->age_s, UINT64_MAX / 1000),
                       expect_room_ms(view, program, program_full(p)));
    return room->cost_ms + (away_ms >> (above < 0 ? 0 : above > 63 ? 63 : above));
}
