#include "policy/policy_priv.h"

#include <stdio.h>

/* Take a program off its device for an operator, whatever its ways. */
static void operator_leave(struct view *view, uint32_t program, const char *why,
                           struct policy_step *ret_step)
{
    const struct policy_program *p = program_at(view, program);
    const struct policy_device *d = device_at(view, p->device);
    uint64_t full = program_full(p), most = least_of(full, p->quota);
    uint32_t to = pick_fitting(view, program, full);

    if (to == POLICY_NONE && p->ways & POLICY_SPILL)
        to = pick_roomiest(view, program, least_of(p->least, most), most);
    if (to == POLICY_NONE) {
        step_set(ret_step, POLICY_DO_SUSPEND, program, POLICY_NONE, 0);
        step_say(ret_step, "%s %s; no other device that it runs on has %s free for %s", d->name,
                 why, size_text(full).text, p->name);
        return;
    }
    step_set(ret_step, POLICY_DO_MOVE, program, to, least_of(room_for(view, program, to), most));
    step_say(ret_step, "%s %s; %s has %s free, %s ", d->name, why, device_at(view, to)->name,
             size_text(device_free(device_at(view, to))).text, p->name);
    if (ret_step->bytes < full)
        step_say(ret_step, "spills there with %s of %s", size_text(ret_step->bytes).text,
                 size_text(full).text);
    else
        step_say(ret_step, "fits with %s", size_text(full).text);
}

/* Whether another device has room for @p, or at least for the smallest grant it can go on with. */
static bool operator_could_leave(struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);
    uint64_t full = program_full(p);

    return has_room(view, program,
                    p->ways & POLICY_SPILL ? least_of(p->least, least_of(full, p->quota)) : full);
}

/* Move programs that announced that now is a good time to leave, if another device has room. */
static bool operator_leave_early(struct view *view, const struct policy_device *d,
                                 struct policy_step *ret_step)
{
    uint32_t first = POLICY_NONE;

    for (uint32_t v = d->first; v != POLICY_NONE; v = program_at(view, v)->next) {
        const struct policy_program *p = program_at(view, v);

        if (p->leaves && !p->pinned && !p->busy_moving &&
            (first == POLICY_NONE || rank_of(p) > rank_of(program_at(view, first))) &&
            operator_could_leave(view, v))
            first = v;
    }
    if (first == POLICY_NONE)
        return false;
    operator_leave(view, first, "will be taken", ret_step);
    return ret_step->action == POLICY_DO_MOVE;
}

/*
 * Move programs that may not use their device any more, since they ask for more than before or an
 * operator restricted them to other devices. They move when an allowed device has room, within the
 * minimum stay and the budget.
 */
bool operator_next_unfit(struct view *view, struct policy_step *ret_step)
{
    uint32_t first = POLICY_NONE;
    char why[POLICY_REASON / 2];

    for (uint32_t i = 0; i < view->world->program_count && view->visits; i++) {
        const struct policy_program *p = program_at(view, i);

        if (p->barred && p->state == POLICY_RUNNING && p->device != POLICY_NONE && !p->pinned &&
            !p->busy_moving && program_barred(p, p->device) &&
            p->recent_moves < view->settings->budget_program &&
            (first == POLICY_NONE || rank_of(p) > rank_of(program_at(view, first))) &&
            operator_could_leave(view, i))
            first = i;
    }
    if (first == POLICY_NONE)
        return false;
    snprintf(why, sizeof(why), "no longer meets the requirements of %.80s",
             program_at(view, first)->name);
    operator_leave(view, first, why, ret_step);
    return ret_step->action == POLICY_DO_MOVE;
}

bool operator_next_drain(struct view *view, struct policy_step *ret_step)
{
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        const struct policy_device *d = device_at(view, i);
        uint32_t first = POLICY_NONE;

        /* The highest rank goes first, since it then has the choice of free devices. */
        for (uint32_t v = d->drains ? d->first : POLICY_NONE; v != POLICY_NONE;
             v = program_at(view, v)->next) {
            const struct policy_program *p = program_at(view, v);

            if (p->pinned || p->busy_moving)
                continue;
            if (first == POLICY_NONE || rank_of(p) > rank_of(program_at(view, first)))
                first = v;
        }
        if (first != POLICY_NONE) {
            operator_leave(view, first, "is drained", ret_step);
            return true;
        }
        if (d->closed && !d->drains && operator_leave_early(view, d, ret_step))
            return true;
    }
    return false;
}

static bool operator_could_shrink(const struct policy_program *p)
{
    return p->ways & POLICY_SPILL && p->granted > p->least;
}

/* Lowest rank first; of equals the one that releases most. */
static bool operator_gives_before(const struct policy_program *a, const struct policy_program *b,
                                  bool shrinks)
{
    uint64_t gives_a = a->granted - (shrinks ? a->least : 0);
    uint64_t gives_b = b->granted - (shrinks ? b->least : 0);

    return rank_of(a) != rank_of(b) ? rank_of(a) < rank_of(b) : gives_a > gives_b;
}

/* The programs on a device that could release memory. */
struct givers {
    uint64_t going;       /* Bytes that are being released. */
    uint32_t keeps, goes; /* First to shrink, and first to leave; or NONE. */
};

static const struct givers no_givers = {.keeps = POLICY_NONE, .goes = POLICY_NONE};

static void operator_givers_add(const struct view *view, uint32_t program, struct givers *givers)
{
    const struct policy_program *p = program_at(view, program);

    if (p->busy_moving && !p->silent)
        givers->going += p->granted;
    if (p->pinned || p->busy_moving || !p->granted)
        return;
    if (operator_could_shrink(p) &&
        (givers->keeps == POLICY_NONE ||
         operator_gives_before(p, program_at(view, givers->keeps), true)))
        givers->keeps = program;
    if (givers->goes == POLICY_NONE ||
        operator_gives_before(p, program_at(view, givers->goes), false))
        givers->goes = program;
}

static struct givers operator_givers_on(struct view *view, uint32_t device)
{
    struct givers ret = no_givers;

    for (uint32_t v = device_at(view, device)->first; v != POLICY_NONE;
         v = program_at(view, v)->next)
        operator_givers_add(view, v, &ret);
    return ret;
}

/* Programs hold more than the device's limit: those that can spill do, then those of the lowest
 * rank leave. Memory that is being released is waited for. */
static bool operator_keep_limit(struct view *view, uint32_t device, struct policy_step *ret_step)
{
    const struct policy_device *d = device_at(view, device);
    uint64_t excess = d->reserved - d->memory;
    struct givers givers = operator_givers_on(view, device);

    if (givers.going >= excess)
        return false;
    excess -= givers.going;
    if (givers.keeps != POLICY_NONE) {
        const struct policy_program *p = program_at(view, givers.keeps);

        step_set(ret_step, POLICY_DO_SPILL, givers.keeps, device,
                 most_of(p->least, p->granted - least_of(excess, p->granted)));
        step_say(ret_step, "%s may be used up to %s, %s are granted: %s keeps %s there", d->name,
                 size_text(d->memory).text, size_text(d->reserved).text, p->name,
                 size_text(ret_step->bytes).text);
        return true;
    }
    if (givers.goes == POLICY_NONE)
        return false;
    operator_leave(view, givers.goes, "holds more than its limit", ret_step);
    return true;
}

bool operator_next_limit(struct view *view, struct policy_step *ret_step)
{
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        const struct policy_device *d = device_at(view, i);

        if (!d->drains && d->reserved > d->memory && operator_keep_limit(view, i, ret_step))
            return true;
    }
    return false;
}
