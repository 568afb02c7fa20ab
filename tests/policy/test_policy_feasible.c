#include "tests/policy/policy_world.h"
#include "tests/support/leaks.h"

/*
 * What can be had is found, against an exhaustive search in small worlds. Guaranteed is: the head
 * of the queue is placed, with all that it needs, whenever
 *  1. a device has room for it,
 *  2. a device has room after at most three moves of different programs, each to a device with
 *     room by then, or
 *  3. on one device the programs that it outranks and that may be suspended, and those that wait
 *     behind it, hold enough between them and what is free.
 * Who is behind the head is placed at least whenever a device has room that the head cannot use.
 */
TestSuite(policy_feasible, .fini = leaks_check, .timeout = 300);

#define DEVICES  4
#define PROGRAMS 5
#define MOVES    3

/* The world as sums only, without anything of the policy's. */
struct sketch {
    unsigned devices, programs, head;
    int64_t memory[DEVICES];
    bool open[DEVICES];
    struct {
        int on; /* Device, or -1. */
        int64_t granted;
        bool may[DEVICES]; /* Go there. */
        bool moves, leaves_for_head, moved;
    } programs_[PROGRAMS];
    int64_t need_here, need; /* Of the head: more where it is, all elsewhere. */
};

static int64_t left_on(const struct sketch *s, unsigned device)
{
    int64_t left = s->memory[device];

    for (unsigned i = 0; i < s->programs; i++)
        left -= s->programs_[i].on == (int)device ? s->programs_[i].granted : 0;
    return left;
}

static bool head_fits(const struct sketch *s, bool emptied)
{
    for (unsigned d = 0; d < s->devices; d++) {
        bool here = s->programs_[s->head].on == (int)d;
        int64_t left = left_on(s, d);

        for (unsigned i = 0; emptied && i < s->programs; i++)
            left += s->programs_[i].on == (int)d && s->programs_[i].leaves_for_head
                        ? s->programs_[i].granted
                        : 0;
        if (here ? left >= s->need_here
                 : s->open[d] && s->programs_[s->head].may[d] && left >= s->need)
            return true;
    }
    return false;
}

static bool fits_after_moves(const struct sketch *s, unsigned moves)
{
    if (head_fits(s, false))
        return true;
    for (unsigned i = 0; moves && i < s->programs; i++) {
        for (unsigned d = 0; s->programs_[i].moves && !s->programs_[i].moved && d < s->devices;
             d++) {
            struct sketch then = *s;

            if ((int)d == s->programs_[i].on || !s->open[d] || !s->programs_[i].may[d] ||
                left_on(s, d) < s->programs_[i].granted)
                continue;
            then.programs_[i].on = (int)d;
            then.programs_[i].moved = true;
            if (fits_after_moves(&then, moves - 1))
                return true;
        }
    }
    return false;
}

static bool is_in_front(const struct policy_program *a, const struct policy_program *b)
{
    int rank_a = 2 * a->priority + !a->preemptible, rank_b = 2 * b->priority + !b->preemptible;

    return rank_a != rank_b ? rank_a > rank_b : a->ticket < b->ticket;
}

static void sketch(struct sketch *s, const struct world *w, unsigned head)
{
    const struct policy_program *h = &w->programs[head];

    *s = (struct sketch){
        .devices = w->world.device_count, .programs = w->world.program_count, .head = head};
    for (unsigned d = 0; d < s->devices; d++) {
        s->memory[d] = (int64_t)w->devices[d].memory;
        s->open[d] = !w->devices[d].closed;
    }
    for (unsigned i = 0; i < s->programs; i++) {
        const struct policy_program *p = &w->programs[i];
        int rank = 2 * p->priority + !p->preemptible;

        s->programs_[i].on = p->device == POLICY_NONE ? -1 : (int)p->device;
        s->programs_[i].granted = (int64_t)p->granted;
        for (unsigned d = 0; d < s->devices; d++)
            s->programs_[i].may[d] = !(w->barred[i] >> d & 1);
        s->programs_[i].moves =
            p->state == POLICY_RUNNING && !p->pinned && p->ways & POLICY_UPGRADE;
        s->programs_[i].leaves_for_head =
            i != head && !p->pinned &&
            ((p->state == POLICY_WAITING && is_in_front(h, p)) ||
             (p->state == POLICY_RUNNING && p->ways & POLICY_SUSPEND &&
              rank < 2 * h->priority + !h->preemptible));
    }
    s->need = (int64_t)(h->wanted > h->need ? h->wanted : h->need);
    s->need_here = h->device == POLICY_NONE ? 0 : (int64_t)h->need - (int64_t)h->granted;
    if (h->device != POLICY_NONE && !(h->ways & POLICY_UPGRADE))
        for (unsigned d = 0; d < s->devices; d++)
            s->programs_[head].may[d] = false;
}

static bool is_held_by_any(const struct world *w, const struct policy_program *p, bool closed_too)
{
    for (uint32_t d = 0; d < w->world.device_count; d++)
        if ((closed_too || !w->devices[d].closed) && !(*p->barred >> d & 1) &&
            p->wanted <= w->devices[d].memory)
            return true;
    return false;
}

/* Who would wait in vain has no need, or no device. */
static void end_vain_wait(struct world *w, struct policy_program *p)
{
    if (p->need <= w->devices[p->device].memory ||
        (p->ways & POLICY_UPGRADE && is_held_by_any(w, p, false)))
        return;
    if (p->ways & POLICY_SUSPEND && is_held_by_any(w, p, true)) {
        p->state = POLICY_SUSPENDED;
        p->device = POLICY_NONE;
        p->granted = 0;
    } else {
        p->state = POLICY_RUNNING;
        p->wanted = p->granted;
        p->need = 0;
    }
}

/* Everyone does nothing, so that nobody is worse off anywhere, and nobody spills. */
static void random_small_world(struct world *w, uint64_t seed)
{
    bool tight; /* All devices and programs, and most of the memory in use. */
    unsigned devices, programs;

    world_init(w, seed);
    tight = world_chance(w, 50);
    w->settings.automatic = false;
    w->settings.age_s = w->settings.stay_s = 0;
    w->settings.budget = w->settings.budget_program = UINT32_MAX;
    devices = tight ? DEVICES : 1 + (unsigned)world_random(w, DEVICES);
    for (unsigned i = 0; i < devices; i++)
        world_add_device(w, 2 + world_random(w, tight ? 6 : 9))->closed = world_chance(w, 10);
    programs = tight ? PROGRAMS : 1 + (unsigned)world_random(w, PROGRAMS);
    for (unsigned i = 0; i < programs; i++) {
        uint32_t device =
            world_chance(w, tight ? 90 : 75) ? (uint32_t)world_random(w, devices) : POLICY_NONE;
        uint64_t left = 0, wanted = 1 + world_random(w, 7);
        struct policy_program *p;

        if (device != POLICY_NONE)
            left = (w->devices[device].memory - w->devices[device].reserved) / MIB;
        p = world_add_program(w, left < wanted ? POLICY_NONE : device, wanted);
        p->busy = 0;
        p->priority = world_chance(w, 60) ? 0 : (int32_t)world_random(w, 3);
        p->preemptible = world_chance(w, 10);
        p->pinned = p->device != POLICY_NONE && world_chance(w, 10);
        p->ways = POLICY_WAIT;
        p->ways |= tight || world_chance(w, 70) ? POLICY_UPGRADE : 0;
        p->ways |= world_chance(w, 50) ? POLICY_SUSPEND : 0;
        if (!tight && world_chance(w, 15))
            w->barred[i] = world_random(w, 16);
        if (!p->pinned && p->state == POLICY_RUNNING && world_chance(w, 30))
            world_ask(w, p, 1 + world_random(w, 5));
        if (p->state == POLICY_WAITING)
            end_vain_wait(w, p);
        world_refresh(w);
    }
    world_random_wishes(w, 30);
}

/* The first in the queue that some device could ever hold. */
static int head_of(const struct world *w)
{
    int head = -1;

    for (unsigned i = 0; i < w->world.program_count; i++) {
        const struct policy_program *p = &w->programs[i];
        struct sketch s;
        bool possible;

        if (p->state != POLICY_WAITING && p->state != POLICY_SUSPENDED)
            continue;
        sketch(&s, w, i);
        for (unsigned k = 0; k < s.programs; k++)
            s.programs_[k].granted = k == i ? s.programs_[k].granted : 0;
        possible = head_fits(&s, false);
        if (possible && (head < 0 || is_in_front(p, &w->programs[head])))
            head = (int)i;
    }
    return head;
}

Test(policy_feasible, the_head_of_the_queue_gets_what_can_be_had)
{
    unsigned at_once = 0, by_moves = 0, by_three = 0, by_leaving = 0, never = 0;

    for (uint64_t seed = 1; seed <= 60000; seed++) {
        bool direct, moved, emptied;
        struct sketch s;
        struct world w;
        int head;

        random_small_world(&w, seed);
        head = head_of(&w);
        if (head < 0)
            continue;
        sketch(&s, &w, (unsigned)head);
        direct = head_fits(&s, false);
        moved = fits_after_moves(&s, MOVES);
        emptied = head_fits(&s, true);
        at_once += direct;
        by_moves += moved && !direct;
        by_three += moved && !fits_after_moves(&s, MOVES - 1);
        by_leaving += emptied && !moved;
        never += !moved && !emptied;
        if (direct) {
            struct policy_step step;

            policy_answer(&w.world, &w.settings, (uint32_t)head, &step);
            cr_assert_eq(step.program, (uint32_t)head, "seed %lu: %s", seed, step.reason);
            cr_assert(step.action == POLICY_GRANT || step.action == POLICY_DO_MOVE ||
                          step.action == POLICY_DO_RESUME,
                      "seed %lu: %s", seed, step.reason);
        }
        world_settle(&w, 100);
        if (moved || emptied)
            cr_assert_eq(w.programs[head].state, POLICY_RUNNING, "seed %lu: p%d is not placed",
                         seed, head);
    }
    fprintf(stderr, "at once %u, by moves %u (of three %u), by leaving %u, not at all %u", at_once,
            by_moves, by_three, by_leaving, never);
    cr_expect_gt(at_once, 1000);
    cr_expect_gt(by_moves, 1000);
    cr_expect_gt(by_three, 10);
    cr_expect_gt(by_leaving, 1000);
    cr_expect_gt(never, 1000);
}

Test(policy_feasible, who_is_behind_gets_what_the_head_cannot_use)
{
    unsigned behind = 0, looked_at = 0;

    for (uint64_t seed = 1; seed <= 40000; seed++) {
        struct sketch s, of_head;
        struct world w;
        int head;

        random_small_world(&w, seed);
        world_settle(&w, 100);
        head = head_of(&w);
        if (head < 0)
            continue;
        sketch(&of_head, &w, (unsigned)head);
        for (unsigned i = 0; i < w.world.program_count; i++) {
            const struct policy_program *p = &w.programs[i];

            if ((int)i == head || (p->state != POLICY_WAITING && p->state != POLICY_SUSPENDED))
                continue;
            behind++;
            sketch(&s, &w, i);
            for (unsigned d = 0; d < s.devices; d++) {
                bool useless =
                    of_head.programs_[head].on != (int)d &&
                    (!of_head.programs_[head].may[d] || of_head.need > of_head.memory[d]);

                looked_at += useless;
                cr_assert(!useless || s.programs_[i].on == (int)d || !s.open[d] ||
                              !s.programs_[i].may[d] || left_on(&s, d) < s.need,
                          "seed %lu: p%u is not placed on gpu%u", seed, i, d);
            }
        }
    }
    cr_expect_gt(behind, 1000);
    cr_expect_gt(looked_at, 1000);
}
