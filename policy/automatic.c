#include "policy/policy_priv.h"

/*
 * Moves that nobody asked for. In a world that does not change they come to an end, because each
 * kind of move lowers a quantity that no other kind raises:
 *   - regrowing, and upgrading from a device where the program spills, lower the number of spilled
 *     bytes; no move here spills anything;
 *   - upgrading from a busy device lowers the sorted list of the loads above busy_high: with the
 *     program, the target is loaded less than the source was;
 *   - a move to a device that a program prefers raises how well it is matched, spills nothing, and
 *     does not raise that list: the target stays below busy_high or below the source's load;
 *   - a downgrade lowers the total price of devices in use, or their number at equal price, pushes
 *     no device above busy_high, and takes nothing that a program prefers.
 * This assumes that loads are as predicted. Where speeds were not measured they may not be. So
 *   - an upgrade to a device that was not tried has to make up for what the program loses there if
 *     the nominal speed is wrong, as wrong as those of the devices that it tried (program_risk_ms);
 *     a downgrade goes only where it is not slower even then;
 *   - a returning program is predicted from its last visit (visits_load), and the time before it
 *     may return doubles and is never below the time in which the move pays back (visits_bar_s).
 * So in T seconds in which nothing changes a program is moved at most once to each device that it
 * has not tried, and back log2(1 + T / settings.return_s) times.
 */

#define WHOLE 1000

/* Summary of all devices, to skip programs that no device could be better for. */
struct outlook {
    uint32_t speed_max, load_min, price_min;
};

static struct outlook automatic_look_out(const struct view *view)
{
    struct outlook ret = {0, UINT32_MAX, UINT32_MAX};

    for (uint32_t i = 0; i < view->world->device_count; i++) {
        const struct policy_device *d = device_at(view, i);

        if (!device_is_open(d) || !device_free(d))
            continue;
        if (d->speed > ret.speed_max)
            ret.speed_max = d->speed;
        if (d->busy < ret.load_min)
            ret.load_min = d->busy;
        if (d->price < ret.price_min)
            ret.price_min = d->price;
    }
    return ret;
}

static bool automatic_runs_free(const struct policy_program *p)
{
    return p->state == POLICY_RUNNING && !p->pinned && !p->busy_moving && p->device != POLICY_NONE;
}

static bool automatic_may_move(const struct view *view, const struct policy_program *p, bool held)
{
    const struct policy_settings *s = view->settings;

    return automatic_runs_free(p) && ways_of(view, p) & POLICY_UPGRADE &&
           (!held || (!p->kept && p->stayed_s >= s->stay_s && p->recent_moves < s->budget_program));
}

/* Bytes of it that are spilled although its quota allows them on the device. */
static uint64_t automatic_spilled(const struct policy_program *p)
{
    uint64_t most = least_of(p->wanted, p->quota);

    return most > p->granted ? most - p->granted : 0;
}

bool automatic_next_regrow(struct view *view, struct policy_step *ret_step)
{
    uint32_t best = POLICY_NONE;
    uint64_t best_bytes = 0;

    for (uint32_t i = 0; i < view->world->program_count; i++) {
        const struct policy_program *p = program_at(view, i);
        uint64_t missing = automatic_spilled(p), bytes;

        if (!missing || !automatic_runs_free(p) || device_at(view, p->device)->drains)
            continue;
        bytes = least_of(missing, room_for(view, i, p->device));
        /* A few bytes are not worth a step. */
        if (!bytes || (bytes < missing && bytes < p->wanted / 8))
            continue;
        if (best == POLICY_NONE || rank_of(p) > rank_of(program_at(view, best))) {
            best = i;
            best_bytes = bytes;
        }
    }
    if (best == POLICY_NONE)
        return false;
    step_set(ret_step, POLICY_GRANT, best, program_at(view, best)->device, best_bytes);
    step_say(ret_step, "%s has %s free, %s takes back %s of the %s that it spilled",
             device_at(view, ret_step->device)->name,
             size_text(device_free(device_at(view, ret_step->device))).text,
             program_at(view, best)->name, size_text(best_bytes).text,
             size_text(automatic_spilled(program_at(view, best))).text);
    return true;
}

/* By how many thousandths a move to @device makes the program's work shorter, or cheaper; 0: it is
 * not worth a move. */
typedef uint64_t automatic_gain(const struct view *view, const struct policy_program *program,
                                uint32_t device);
static automatic_gain automatic_gain_price;

/* Moves that save money go only where the program is not slower at worst: no time is at risk. */
static struct payback automatic_payback(const struct view *view, const struct policy_program *p,
                                        uint32_t device, automatic_gain *gain)
{
    uint64_t part = gain(view, p, device), cost_ms = program_move_ms(view, p);
    uint64_t risk_ms = part && gain != automatic_gain_price ? program_risk_ms(view, p, device) : 0;

    return (struct payback){program_payback_s(cost_ms, part),
                            program_payback_s(cost_ms + risk_ms, part)};
}

/* The device of the highest score that has room for all of it and where @gain pays for the move; or
 * NONE. */
static uint32_t automatic_best_where(struct view *view, uint32_t program, automatic_gain *gain,
                                     struct payback *ret_payback)
{
    const struct policy_program *p = program_at(view, program);
    uint32_t best = POLICY_NONE;
    int64_t best_score = 0;

    spend_visits(view, view->world->device_count);
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        struct payback payback;
        int64_t score;

        if (!has_space(view, p, i) || program_stays_away(view, p, i))
            continue;
        payback = automatic_payback(view, p, i, gain);
        if (!program_pays_back(view, p, payback.all_s) || !may_take(view, program, i))
            continue;
        score = score_of(view, p, i, program_full(p));
        if (best == POLICY_NONE || score > best_score) {
            best = i;
            best_score = score;
            *ret_payback = payback;
        }
    }
    return best;
}

/* @device is above busy_high and the program contributes to that. */
static bool automatic_held_up(const struct view *view, const struct policy_program *p)
{
    return p->busy && !program_light(view, p) &&
           device_at(view, p->device)->busy > view->settings->busy_high;
}

/* The share of its work's time that a move saves, or 0 if that is below settings.gain. @then: the
 * time of the same work on the other device, as a share of its time here. */
static uint64_t automatic_gain_of(const struct view *view, double then)
{
    if (then * (WHOLE + view->settings->gain) > WHOLE)
        return 0;
    return (uint64_t)(WHOLE * (1 - then));
}

/* Computed with its predicted load on the target and with its load now, and the lower result
 * counts: whichever is right, the target will be loaded less than the source was. */
static uint64_t automatic_gain_load(const struct view *view, const struct policy_program *p,
                                    uint32_t device)
{
    const struct policy_device *from = device_at(view, p->device), *to = device_at(view, device);
    double speed = (double)program_speed_on(view, p, device) / WHOLE;
    double same = (double)(to->busy + p->busy) / ((double)from->busy * speed);
    double predicted = (double)(to->busy + program_load_on(view, p, device)) / (double)from->busy;

    return automatic_gain_of(view, same > predicted ? same : predicted) * p->busy / WHOLE;
}

/* A program that fits runs at the device's speed, one that spills at most at the share that fits.
 */
static uint64_t automatic_gain_room(const struct view *view, const struct policy_program *p,
                                    uint32_t device)
{
    const struct policy_device *from = device_at(view, p->device), *to = device_at(view, device);
    uint64_t load = to->busy + program_load_on(view, p, device);
    double speed = (double)program_speed_on(view, p, device) / WHOLE;
    double now = (double)p->granted / (double)most_of(from->busy, WHOLE);
    double then = speed * (double)p->wanted / (double)most_of(load, WHOLE);

    return then > 0 ? automatic_gain_of(view, now / then) : 0;
}

static uint64_t automatic_gain_up(const struct view *view, const struct policy_program *p,
                                  uint32_t device)
{
    return automatic_spilled(p) ? automatic_gain_room(view, p, device)
                                : automatic_gain_load(view, p, device);
}

static bool automatic_could_be_faster(const struct view *view, const struct policy_program *p,
                                      const struct outlook *outlook)
{
    const struct policy_device *from = device_at(view, p->device);
    uint64_t load;

    if (program_full(p) > view->free_max || !outlook->speed_max)
        return false;
    if (automatic_spilled(p) || p->measured)
        return true;
    load = outlook->load_min + (uint64_t)p->busy * from->speed / outlook->speed_max;
    return (uint64_t)from->busy * WHOLE >= load * (WHOLE + view->settings->gain);
}

static void automatic_say_up(const struct view *view, struct policy_step *step)
{
    const struct policy_program *p = program_at(view, step->program);
    const struct policy_device *from = device_at(view, p->device),
                               *to = device_at(view, step->device);

    if (automatic_spilled(p))
        step_say(step, "%s spills %s on %s; %s has %s free for all of it", p->name,
                 size_text(automatic_spilled(p)).text, from->name, to->name,
                 size_text(device_free(to)).text);
    else
        step_say(step, "%s is busy %u%% of the time, %s is %u%% at %.2f times its speed%s",
                 from->name, from->busy / 10, to->name, to->busy / 10,
                 (double)program_speed_on(view, p, step->device) / WHOLE,
                 program_is_measured(p, step->device) ? " as measured" : "");
}

/* The device to upgrade @program to, or NONE. */
static uint32_t automatic_up_to(struct view *view, uint32_t program, const struct outlook *outlook,
                                struct payback *ret_payback)
{
    const struct policy_program *p = program_at(view, program);

    return (automatic_spilled(p) || automatic_held_up(view, p)) &&
                   automatic_could_be_faster(view, p, outlook)
               ? automatic_best_where(view, program, automatic_gain_up, ret_payback)
               : POLICY_NONE;
}

bool automatic_next_up(struct view *view, bool held, struct policy_step *ret_step)
{
    struct outlook outlook = automatic_look_out(view);
    uint32_t best = POLICY_NONE, best_to = POLICY_NONE;
    struct payback payback = {0};

    for (uint32_t i = 0; i < view->world->program_count && view->visits; i++) {
        const struct policy_program *p = program_at(view, i);
        struct payback own = {0};
        uint32_t to;

        if (!automatic_may_move(view, p, held) ||
            (best != POLICY_NONE && rank_of(p) <= rank_of(program_at(view, best))))
            continue;
        to = automatic_up_to(view, i, &outlook, &own);
        if (to != POLICY_NONE) {
            best = i;
            best_to = to;
            payback = own;
        }
    }
    if (best == POLICY_NONE)
        return false;
    step_set(ret_step, POLICY_DO_MOVE, best, best_to, program_full(program_at(view, best)));
    ret_step->payback_s = payback.own_s;
    automatic_say_up(view, ret_step);
    return true;
}

/* What a move to a slower device saves: the target is cheaper, or is shared so that the present
 * device becomes free. 0 if the target would not stay well below busy_high. */
static uint64_t automatic_gain_price(const struct view *view, const struct policy_program *p,
                                     uint32_t device)
{
    const struct policy_settings *s = view->settings;
    const struct policy_device *from = device_at(view, p->device), *to = device_at(view, device);
    uint64_t busy, gain = 0;

    if (to->price > from->price || (uint64_t)to->busy + p->busy > s->busy_high)
        return 0;
    if (from->residents == 1 && to->residents)
        gain = WHOLE;
    else if (to->price < from->price)
        gain = automatic_gain_of(view, (double)to->price / (double)from->price);
    if (!gain)
        return 0;
    busy = program_load_at_worst(view, p, device);
    return busy <= (s->busy_low + s->busy_high) / 2 &&
                   to->busy + most_of(busy, p->busy) <= s->busy_high &&
                   prefer_keeps(view, p, device)
               ? gain
               : 0;
}

static bool automatic_could_save(const struct view *view, const struct policy_program *p,
                                 const struct outlook *outlook)
{
    const struct policy_device *from = device_at(view, p->device);

    return program_full(p) <= view->free_max && outlook->price_min <= from->price &&
           (from->residents == 1 || outlook->price_min < from->price);
}

/* The device to downgrade @program to, or NONE. */
static uint32_t automatic_down_to(struct view *view, uint32_t program,
                                  const struct outlook *outlook, struct payback *ret_payback)
{
    const struct policy_program *p = program_at(view, program);

    return program_light(view, p) && !automatic_spilled(p) && automatic_could_save(view, p, outlook)
               ? automatic_best_where(view, program, automatic_gain_price, ret_payback)
               : POLICY_NONE;
}

bool automatic_next_down(struct view *view, bool held, struct policy_step *ret_step)
{
    struct outlook outlook = automatic_look_out(view);

    for (uint32_t i = 0; i < view->world->program_count && view->visits; i++) {
        const struct policy_program *p = program_at(view, i);
        const struct policy_device *from, *to;
        struct payback payback = {0};
        uint32_t device;

        if (!automatic_may_move(view, p, held))
            continue;
        device = automatic_down_to(view, i, &outlook, &payback);
        if (device == POLICY_NONE)
            continue;
        from = device_at(view, p->device);
        to = device_at(view, device);
        step_set(ret_step, POLICY_DO_MOVE, i, device, program_full(p));
        ret_step->payback_s = payback.own_s;
        step_say(ret_step, "%s keeps %s busy %u%% of the time; %s ", p->name, from->name,
                 p->busy / 10, to->name);
        if (to->price < from->price)
            step_say(ret_step, "suffices at %u%% of the price",
                     (unsigned)((uint64_t)to->price * 100 / from->price));
        else
            step_say(ret_step, "has room beside others, and %s is free then", from->name);
        return true;
    }
    return false;
}

/* False when the move would push the target above busy_high and make it busier than the present
 * device is. */
static bool automatic_is_no_busier(const struct view *view, const struct policy_program *p,
                                   uint32_t device)
{
    const struct policy_device *from = device_at(view, p->device), *to = device_at(view, device);
    uint64_t load = to->busy + most_of(program_load_on(view, p, device), p->busy);

    return load <= view->settings->busy_high ||
           (program_speed_on(view, p, device) >= WHOLE && load <= from->busy);
}

static bool automatic_may_go(struct view *view, uint32_t program, uint32_t device)
{
    const struct policy_program *p = program_at(view, program);

    return may_take(view, program, device) && !program_stays_away(view, p, device) &&
           prefer_better(view, p, device) &&
           room_for(view, program, device) >= prefer_room(view, p, device) &&
           is_no_worse(view, p, device, device_at(view, p->device)->busy,
                       device_at(view, device)->busy) &&
           automatic_is_no_busier(view, p, device);
}

uint32_t prefer_best(struct view *view, uint32_t program, bool now)
{
    const struct policy_program *p = program_at(view, program);
    uint32_t best = POLICY_NONE, best_part = 0;
    int64_t best_score = 0;

    spend_visits(view, view->world->device_count);
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        uint32_t part;
        int64_t score;

        if (now ? !automatic_may_go(view, program, i)
                : i == p->device || !device_is_open(device_at(view, i)) || program_barred(p, i) ||
                      device_at(view, i)->memory < program_full(p) || !prefer_better(view, p, i))
            continue;
        part = prefer_part(view, p, i);
        score = score_of(view, p, i, program_full(p));
        if (best == POLICY_NONE || part > best_part || (part == best_part && score > best_score)) {
            best = i;
            best_part = part;
            best_score = score;
        }
    }
    return best;
}

bool automatic_next_prefer(struct view *view, bool held, struct policy_step *ret_step)
{
    uint32_t best = POLICY_NONE, best_to = POLICY_NONE;
    const struct policy_program *p;

    for (uint32_t i = 0; i < view->world->program_count && view->visits; i++) {
        uint32_t to;

        p = program_at(view, i);
        if (!p->prefers || !automatic_may_move(view, p, held) || prefer_met(view, p, p->device) ||
            (best != POLICY_NONE && rank_of(p) <= rank_of(program_at(view, best))))
            continue;
        to = prefer_best(view, i, true);
        if (to != POLICY_NONE) {
            best = i;
            best_to = to;
        }
    }
    if (best == POLICY_NONE)
        return false;
    p = program_at(view, best);
    step_set(ret_step, POLICY_DO_MOVE, best, best_to, program_full(p));
    step_say(ret_step, "%s prefers %s; %s has ", p->name, prefer_text(view, p).text,
             device_at(view, best_to)->name);
    if (prefer_met(view, p, best_to))
        step_say(ret_step, "them");
    else
        step_say(ret_step, "more of that than %s", device_at(view, p->device)->name);
    return true;
}

/* The device to which @program would be moved unasked, or NONE. */
static uint32_t automatic_next_to(struct view *view, uint32_t program,
                                  const struct outlook *outlook, struct payback *ret_payback)
{
    const struct policy_program *p = program_at(view, program);
    uint32_t to = automatic_up_to(view, program, outlook, ret_payback);

    if (to == POLICY_NONE && p->prefers && !prefer_met(view, p, p->device))
        to = prefer_best(view, program, true);
    return to == POLICY_NONE ? automatic_down_to(view, program, outlook, ret_payback) : to;
}

uint32_t automatic_next_unpaid(struct view *view, uint32_t program, struct payback *ret_payback)
{
    struct outlook outlook = automatic_look_out(view);
    uint32_t to;

    if (!view->visits || automatic_next_to(view, program, &outlook, ret_payback) != POLICY_NONE)
        return POLICY_NONE;
    view->asked = true;
    *ret_payback = (struct payback){0};
    to = automatic_next_to(view, program, &outlook, ret_payback);
    view->asked = false;
    return to != POLICY_NONE &&
                   program_pays_back(view, program_at(view, program), ret_payback->all_s)
               ? POLICY_NONE
               : to;
}

/* Whether @program may be prewarmed for @device now: within the budget, and at no cost to programs
 * that run there, by the context's memory, by the time of building, or on the link. */
static bool automatic_may_prewarm(struct view *view, uint32_t program, uint32_t device)
{
    const struct policy_settings *s = view->settings;
    const struct policy_device *d = device_at(view, device);
    uint32_t others = 0;

    if (program_at(view, program)->ready == device ||
        program_at(view, program)->ready_s < s->stay_s || d->busy > s->busy_high ||
        device_free(d) < d->memory / WHOLE * s->prewarm_free)
        return false;
    spend_visits(view, view->world->program_count / 32);
    for (uint32_t i = 0; i < view->world->program_count; i++) {
        const struct policy_program *p = program_at(view, i);

        if (p->busy_moving && p->device == device)
            return false;
        others += i != program && p->ready == device;
    }
    return others < s->prewarm_most;
}

bool next_ready_queued(struct view *view, struct policy_step *ret_step)
{
    uint32_t program = view->head, device;

    if (program == POLICY_NONE || program_at(view, program)->state != POLICY_SUSPENDED)
        return false;
    device = device_kept(view);
    if (device == POLICY_NONE || !device_is_open(device_at(view, device)) ||
        !automatic_may_prewarm(view, program, device))
        return false;
    step_set(ret_step, POLICY_DO_PREWARM, program, device, 0);
    step_say(ret_step, "%s is first in the queue and %s is kept for it: it is prewarmed there",
             program_at(view, program)->name, device_at(view, device)->name);
    return true;
}

/*
 * The likely next move is the one that only the minimum stay or the budget prevents, or one with
 * half the required gain (view.near). A program stays prewarmed for a device for the minimum stay,
 * so that it is not prewarmed for two devices in turns.
 */
bool automatic_next_ready(struct view *view, struct policy_step *ret_step)
{
    const struct policy_settings *own = view->settings;
    struct outlook outlook = automatic_look_out(view);
    uint32_t to = POLICY_NONE, i = 0;
    struct payback payback;

    view->near = *own;
    view->near.gain -= own->gain / 2;
    view->near.busy_high -= own->busy_high / 10;
    view->settings = &view->near;
    for (; i < view->world->program_count && view->visits; i++) {
        const struct policy_program *p = program_at(view, i);

        if (!automatic_may_move(view, p, false) || p->kept)
            continue;
        to = automatic_next_to(view, i, &outlook, &payback);
        if (to != POLICY_NONE && automatic_may_prewarm(view, i, to))
            break;
        to = POLICY_NONE;
    }
    view->settings = own;
    if (to == POLICY_NONE)
        return false;
    step_set(ret_step, POLICY_DO_PREWARM, i, to, 0);
    step_say(ret_step, "%s is likely to move from %s to %s next: it is prewarmed there",
             program_at(view, i)->name, device_at(view, program_at(view, i)->device)->name,
             device_at(view, to)->name);
    return true;
}
