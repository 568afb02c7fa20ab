#include "policy/policy_priv.h"

/*
 * Make room for the head of the queue by moving other programs to devices where they are no worse
 * off. Sequences of up to MOVES_MAX moves of different programs are tried, each to a device that
 * has room by then. Worlds of any size try one move, within VISITS_MAX; worlds small enough for
 * all sequences of two within that limit try more. The step is the first move; the next call finds
 * the rest of the sequence again.
 */
#define MOVES_MAX  3
#define VISITS_MAX 16384

struct move {
    uint32_t program, to;
};

struct shift {
    struct view *view;
    uint32_t program; /* The head. */
    uint64_t bytes;   /* The total grant it needs. */
    struct move moves[MOVES_MAX];
    unsigned count;
    uint32_t visits; /* Remaining of VISITS_MAX. */
};

static bool shift_is_moved(const struct shift *shift, uint32_t program)
{
    for (unsigned i = 0; i < shift->count; i++)
        if (shift->moves[i].program == program)
            return true;
    return false;
}

/* Free bytes on a device after the moves so far. */
static inline uint64_t shift_free_then(const struct shift *shift, uint32_t device)
{
    uint64_t plus = device_free(device_at(shift->view, device)), minus = 0;

    for (unsigned i = 0; i < shift->count; i++) {
        const struct policy_program *p = program_at(shift->view, shift->moves[i].program);

        plus += p->device == device ? p->granted : 0;
        minus += shift->moves[i].to == device ? program_full(p) : 0;
    }
    return plus - least_of(plus, minus);
}

static inline bool shift_outranks(const struct view *view, const struct policy_program *program,
                                  const struct policy_program *victim)
{
    return rank_outranks(view, rank_of(program), victim);
}

/* Programs that the head does not outrank are moved only within minimum stay and budget. */
static bool shift_may_shift(const struct shift *shift, uint32_t program)
{
    const struct view *view = shift->view;
    const struct policy_settings *s = view->settings;
    const struct policy_program *p = program_at(view, program);

    if (p->state != POLICY_RUNNING || p->busy_moving || p->device == POLICY_NONE || !p->granted ||
        !(ways_of(view, p) & POLICY_UPGRADE) || program_full(p) > p->quota ||
        device_free(device_at(view, p->device)) + p->granted > device_at(view, p->device)->memory ||
        shift_is_moved(shift, program))
        return false;
    return shift_outranks(view, program_at(view, shift->program), p) ||
           (p->stayed_s >= s->stay_s && p->recent_moves < s->budget_program &&
            view->world->recent_moves + shift->count < s->budget);
}

/* Load of a device after the moves so far, at @most or at least: a moved program may use as much
 * time there as it does now, or as nominal speeds predict. */
static inline uint64_t shift_busy_then(const struct shift *shift, uint32_t device, bool most)
{
    uint64_t plus = device_at(shift->view, device)->busy, minus = 0;

    for (unsigned i = 0; i < shift->count; i++) {
        const struct policy_program *p = program_at(shift->view, shift->moves[i].program);
        uint64_t load = program_load_on(shift->view, p, device);

        minus += p->device == device ? p->busy : 0;
        if (shift->moves[i].to == device)
            plus += most ? most_of(load, p->busy) : least_of(load, p->busy);
    }
    return plus - least_of(plus, minus);
}

static bool shift_may_shift_to(const struct shift *shift, uint32_t program, uint32_t device)
{
    const struct view *view = shift->view;
    const struct policy_program *p = program_at(view, program);

    return device != p->device && device_is_open(device_at(view, device)) &&
           shift_free_then(shift, device) >= program_full(p) && !program_barred(p, device) &&
           (shift_outranks(view, program_at(view, shift->program), p) ||
            (!program_stays_away(view, p, device) &&
             is_no_worse(view, p, device, shift_busy_then(shift, p->device, false),
                         shift_busy_then(shift, device, true))));
}

/* Whether the head would fit on @device if @program left it. */
static bool shift_would_do(const struct shift *shift, uint32_t program, uint32_t device)
{
    const struct view *view = shift->view;
    const struct policy_program *head = program_at(view, shift->program);
    const struct policy_device *d = device_at(view, device);

    if (device == head->device
            ? d->drains
            : !device_is_open(d) || program_barred(head, device) || !would_leave(view, head))
        return false;
    return shift_free_then(shift, device) + program_at(view, program)->granted >=
           bytes_more(view, shift->program, device, shift->bytes);
}

/* A quick test before shift_would_do, made for every program. */
static bool shift_frees_enough(const struct shift *shift, uint32_t program)
{
    const struct view *view = shift->view;
    const struct policy_program *p = program_at(view, program);

    return p->device != POLICY_NONE &&
           shift_free_then(shift, p->device) + p->granted >=
               bytes_more(view, shift->program, p->device, shift->bytes);
}

/* A quick test that excludes most devices before any move: no room, or too busy. */
static inline bool shift_is_useless(const struct shift *shift, const struct policy_program *p,
                                    uint32_t device, bool minds)
{
    const struct view *view = shift->view;
    const struct policy_device *from = device_at(view, p->device), *to = device_at(view, device);

    return !shift->count &&
           (!has_space(view, p, device) ||
            (minds && program_speed_on(view, p, device) * most_of(from->busy, 1000) <
                          1000 * most_of(to->busy, 1000)));
}

static bool shift_search_last(struct shift *shift, uint32_t program)
{
    const struct view *view = shift->view;
    const struct policy_program *p = program_at(view, program);
    struct move *move = &shift->moves[shift->count];
    bool minds =
        !shift_outranks(view, program_at(view, shift->program), p) && !program_light(view, p);
    int64_t best_score = 0;
    bool found = false;

    if (!shift_would_do(shift, program, p->device))
        return false;
    for (uint32_t to = 0; to < view->world->device_count && shift->visits; to++) {
        int64_t score;

        shift->visits--;
        if (shift_is_useless(shift, p, to, minds) || !shift_may_shift_to(shift, program, to))
            continue;
        score = score_of(view, p, to, program_full(p));
        if (!found || score > best_score) {
            *move = (struct move){program, to};
            best_score = score;
        }
        found = true;
    }
    return found;
}

static bool shift_search(struct shift *shift, unsigned left)
{
    for (uint32_t p = 0; p < shift->view->world->program_count && shift->visits; p++) {
        if ((left == 1 && !shift_frees_enough(shift, p)) || !shift_may_shift(shift, p))
            continue;
        if (left == 1) {
            if (shift_search_last(shift, p))
                return true;
            continue;
        }
        for (uint32_t to = 0; to < shift->view->world->device_count && shift->visits; to++) {
            shift->visits--;
            if (!shift_may_shift_to(shift, p, to))
                continue;
            shift->moves[shift->count++] = (struct move){p, to};
            if (shift_search(shift, left - 1))
                return true;
            shift->count--;
        }
    }
    return false;
}

bool shift_for(struct view *view, uint32_t program, uint64_t bytes, struct policy_step *ret_step)
{
    struct shift shift = {.view = view, .program = program, .bytes = bytes, .visits = VISITS_MAX};
    uint64_t pairs = (uint64_t)view->world->program_count * view->world->device_count;
    unsigned most = pairs * pairs <= VISITS_MAX ? MOVES_MAX : 1;
    const struct policy_program *p;

    for (unsigned count = 1; count <= most; count++) {
        if (!shift_search(&shift, count))
            continue;
        p = program_at(view, shift.moves[0].program);
        step_set(ret_step, POLICY_DO_MOVE, shift.moves[0].program, shift.moves[0].to,
                 program_full(p));
        step_say(ret_step, "%s needs %s: %s makes room on %s, %s has %s free for it",
                 program_at(view, program)->name, size_text(bytes).text, p->name,
                 device_at(view, p->device)->name, device_at(view, ret_step->device)->name,
                 size_text(device_free(device_at(view, ret_step->device))).text);
        return true;
    }
    return false;
}

/* ---- displacing a victim ---- */

/* The victim moves, or else spills, or else is suspended: in the order of what that takes of its
 * time. A victim that waits releases all it has. */
static void displace_how(struct view *view, const struct room *room, struct policy_step *ret_step)
{
    const struct policy_program *v = program_at(view, room->victim);
    unsigned ways = ways_of(view, v);
    bool enough = v->granted >= v->least && v->granted - v->least >= room->amount;
    uint32_t to = room->outranked && ways & POLICY_UPGRADE
                      ? pick_fitting(view, room->victim, program_full(v))
                      : POLICY_NONE;

    if (to != POLICY_NONE) {
        step_set(ret_step, POLICY_DO_MOVE, room->victim, to, program_full(v));
    } else if (room->outranked && ways & POLICY_SPILL && enough) {
        uint64_t gives = most_of(room->amount, device_at(view, room->device)->step);

        step_set(ret_step, POLICY_DO_SPILL, room->victim, room->device,
                 v->granted - least_of(gives, v->granted - v->least));
    } else if (room->outranked && !(ways & POLICY_SUSPEND)) {
        step_set(ret_step, POLICY_DO_SPILL, room->victim, room->device, v->least);
    } else {
        step_set(ret_step, POLICY_DO_SUSPEND, room->victim, POLICY_NONE, 0);
    }
}

void displace(struct view *view, uint32_t program, const struct room *room,
              struct policy_step *ret_step)
{
    const struct policy_program *p = program_at(view, program), *v;
    const struct policy_device *d = device_at(view, room->device);
    const char *victim = name_for(view, room->victim, room->victim);

    v = program_at(view, room->victim);
    displace_how(view, room, ret_step);
    step_say(ret_step,
             "%s needs %s on %s, which has %s free of %s: ", name_for(view, program, room->victim),
             size_text(most_of(p->need, p->wanted)).text, d->name, size_text(device_free(d)).text,
             size_text(d->memory).text);
    if (ret_step->action == POLICY_DO_MOVE)
        step_say(ret_step, "%s moves to %s", victim, device_at(view, ret_step->device)->name);
    else if (ret_step->action == POLICY_DO_SPILL)
        step_say(ret_step, "%s keeps %s there", victim, size_text(ret_step->bytes).text);
    else
        step_say(ret_step, "%s is suspended", victim);
    if (!room->outranked)
        step_say(ret_step, ", it waits behind");
    else if (v->priority < p->priority)
        step_say(ret_step, ", its priority is %d against %d", v->priority, p->priority);
    else
        step_say(ret_step, ", it is preemptible");
}
