#include "policy/decide_priv.h"

/* Off a device at the operator's word: a program is not asked which ways out it would like. */
static void leave(struct view *view, uint32_t program, const char *why,
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
        step_say(ret_step, "%s %s; no other device has %s free for %s", d->name, why,
                 size_text(full).text, p->name);
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

/* Those that would rather leave now than when they have to: only to where there is room. */
static bool leave_early(struct view *view, const struct policy_device *d,
                        struct policy_step *ret_step)
{
    const struct policy_program *first = NULL;

    for (uint32_t v = d->first; v != POLICY_NONE; v = program_at(view, v)->next) {
        const struct policy_program *p = program_at(view, v);
        struct policy_step step;

        if (!p->leaves || p->pinned || p->busy_moving || (first && rank_of(p) <= rank_of(first)))
            continue;
        leave(view, v, "will be taken", &step);
        if (step.action != POLICY_DO_MOVE)
            continue;
        *ret_step = step;
        first = p;
    }
    return first;
}

bool next_drain(struct view *view, struct policy_step *ret_step)
{
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        const struct policy_device *d = device_at(view, i);
        uint32_t first = POLICY_NONE;

        /* The most important has the choice of what is free elsewhere. */
        for (uint32_t v = d->drains ? d->first : POLICY_NONE; v != POLICY_NONE;
             v = program_at(view, v)->next) {
            const struct policy_program *p = program_at(view, v);

            if (p->pinned || p->busy_moving)
                continue;
            if (first == POLICY_NONE || rank_of(p) > rank_of(program_at(view, first)))
                first = v;
        }
        if (first != POLICY_NONE) {
            leave(view, first, "is drained", ret_step);
            return true;
        }
        if (d->closed && !d->drains && leave_early(view, d, ret_step))
            return true;
    }
    return false;
}

static bool could_shrink(const struct policy_program *p)
{
    return p->ways & POLICY_SPILL && p->granted > p->least;
}

/* The least important; of equals the one that gives the most. */
static bool gives_before(const struct policy_program *a, const struct policy_program *b,
                         bool shrinks)
{
    uint64_t gives_a = a->granted - (shrinks ? a->least : 0);
    uint64_t gives_b = b->granted - (shrinks ? b->least : 0);

    return rank_of(a) != rank_of(b) ? rank_of(a) < rank_of(b) : gives_a > gives_b;
}

static uint32_t first_to_give(const struct view *view, const struct policy_device *d, bool shrinks)
{
    uint32_t first = POLICY_NONE;

    for (uint32_t v = d->first; v != POLICY_NONE; v = program_at(view, v)->next) {
        const struct policy_program *p = program_at(view, v);

        if (p->pinned || p->busy_moving || !p->granted || (shrinks && !could_shrink(p)))
            continue;
        if (first == POLICY_NONE || gives_before(p, program_at(view, first), shrinks))
            first = v;
    }
    return first;
}

/* Programs there hold more than they may: those that can keep a part elsewhere do, then the least
 * important leave. What is about to leave anyhow is waited for. */
static bool keep_limit(struct view *view, uint32_t device, struct policy_step *ret_step)
{
    const struct policy_device *d = device_at(view, device);
    uint64_t excess = d->reserved - d->memory, going = 0;
    uint32_t v;

    for (v = d->first; v != POLICY_NONE; v = program_at(view, v)->next)
        going += program_at(view, v)->busy_moving ? program_at(view, v)->granted : 0;
    if (going >= excess)
        return false;
    excess -= going;
    v = first_to_give(view, d, true);
    if (v != POLICY_NONE) {
        const struct policy_program *p = program_at(view, v);

        step_set(ret_step, POLICY_DO_SPILL, v, device,
                 most_of(p->least, p->granted - least_of(excess, p->granted)));
        step_say(ret_step, "%s may be used up to %s, %s are granted: %s keeps %s there", d->name,
                 size_text(d->memory).text, size_text(d->reserved).text, p->name,
                 size_text(ret_step->bytes).text);
        return true;
    }
    v = first_to_give(view, d, false);
    if (v == POLICY_NONE)
        return false;
    leave(view, v, "holds more than its limit", ret_step);
    return true;
}

bool next_limit(struct view *view, struct policy_step *ret_step)
{
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        const struct policy_device *d = device_at(view, i);

        if (!d->drains && d->reserved > d->memory && keep_limit(view, i, ret_step))
            return true;
    }
    return false;
}
