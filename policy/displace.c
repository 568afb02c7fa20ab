#include "policy/decide_priv.h"

/* Of those on one device that would have to make room, so many are put in order before the rest is
 * taken as needed too. */
#define VICTIMS_MAX 64
#define AHEAD       4 /* Devices. */

/* A program that could make room, and how it compares with others that could. */
struct victim {
    uint32_t program;
    uint64_t gives; /* Bytes. */
    bool outranked; /* Not only behind the one that needs room. */
    int64_t rank;
};

struct search {
    struct view *view;
    uint32_t program; /* For whom. */
    bool from_waiters;
    bool leaves; /* It may go to other devices. */
    bool gives;  /* Somebody might make room for it. */
};

/* What @v can be made to give; 0: nothing. */
static uint64_t could_give(const struct search *search, uint32_t v, bool *ret_outranked)
{
    const struct view *view = search->view;
    const struct policy_program *p = program_at(view, search->program),
                                *victim = program_at(view, v);
    bool waits = victim->state == POLICY_WAITING;

    if (v == search->program || victim->pinned || victim->busy_moving || !victim->granted)
        return 0;
    *ret_outranked = false;
    if (waits && !goes_before(view, search->program, v))
        return 0;
    if (waits && search->from_waiters)
        return victim->granted;
    *ret_outranked = true;
    if (!outranks(view, p, victim))
        return 0;
    if (ways_of(view, victim) & POLICY_SUSPEND)
        return victim->granted;
    if (ways_of(view, victim) & POLICY_SPILL && victim->granted > victim->least)
        return victim->granted - victim->least;
    return 0;
}

/* The least harm first: who only waits, then the lowest rank, then the largest, for fewer steps. */
static bool is_before(const struct victim *a, const struct victim *b)
{
    if (a->outranked != b->outranked)
        return !a->outranked;
    if (a->rank != b->rank)
        return a->rank < b->rank;
    return a->gives != b->gives ? a->gives > b->gives : a->program < b->program;
}

/* The first on @device after @last; one that alone gives @enough, as little more as there is, goes
 * before its equals. */
static bool next_victim(const struct search *search, uint32_t device, const struct victim *last,
                        struct victim *ret_victim)
{
    const struct view *view = search->view;
    bool found = false;

    for (uint32_t v = device_at(view, device)->first; v != POLICY_NONE;
         v = program_at(view, v)->next) {
        struct victim candidate = {.program = v, .rank = rank_of(program_at(view, v))};

        candidate.gives = could_give(search, v, &candidate.outranked);
        if (!candidate.gives || (last && !is_before(last, &candidate)))
            continue;
        if (!found || is_before(&candidate, ret_victim))
            *ret_victim = candidate;
        found = true;
    }
    return found;
}

/* Among the equals of @victim the smallest that gives @amount as well. */
static uint32_t smallest_like(const struct search *search, uint32_t device,
                              const struct victim *victim, uint64_t amount)
{
    const struct view *view = search->view;
    uint32_t best = victim->program;
    uint64_t best_gives = victim->gives;

    for (uint32_t v = device_at(view, device)->first; v != POLICY_NONE;
         v = program_at(view, v)->next) {
        bool outranked = false;
        uint64_t gives = could_give(search, v, &outranked);

        if (gives >= amount && gives < best_gives && outranked == victim->outranked &&
            rank_of(program_at(view, v)) == victim->rank) {
            best = v;
            best_gives = gives;
        }
    }
    return best;
}

/* What those on a device could give. */
struct offer {
    uint64_t give, come; /* Bytes: in all, and of those that are about to leave. */
    uint64_t largest;    /* Of one. */
    int64_t lowest;      /* Rank, as harm. */
};

static int64_t harm_of(bool outranked, int64_t rank)
{
    return outranked ? rank : INT64_MIN + 1;
}

static struct offer could_give_all(const struct search *search, uint32_t device)
{
    const struct view *view = search->view;
    const struct policy_program *p = program_at(view, search->program);
    struct offer ret = {.lowest = INT64_MAX};

    for (uint32_t v = device_at(view, device)->first; v != POLICY_NONE;
         v = program_at(view, v)->next) {
        const struct policy_program *victim = program_at(view, v);
        bool outranked = false;
        uint64_t gives = could_give(search, v, &outranked);
        int64_t harm = harm_of(outranked, rank_of(victim));

        ret.give += gives;
        ret.largest = most_of(ret.largest, gives);
        if (gives && harm < ret.lowest)
            ret.lowest = harm;
        if (victim->busy_moving && v != search->program &&
            (search->from_waiters || outranks(view, p, victim)))
            ret.come += victim->granted;
    }
    return ret;
}

/*
 * Victims are taken in the order of harm until there is enough. The last of them is one that cannot
 * be done without, so it is the one to displace now: when it is gone, the question is asked again,
 * and the small ones in front of it are spared if they were not needed.
 */
static void take_victims(const struct search *search, uint64_t lack, struct room *room)
{
    struct victim victim = {.program = POLICY_NONE}, last = victim;
    uint64_t left = lack;

    for (room->count = 0; room->count < VICTIMS_MAX; room->count++) {
        if (!next_victim(search, room->device, room->count ? &last : NULL, &victim))
            break;
        last = victim;
        room->bytes += victim.gives;
        if (victim.gives >= left) {
            room->count++;
            break;
        }
        left -= victim.gives;
    }
    room->amount = left;
    room->outranked = last.outranked;
    room->rank = harm_of(last.outranked, last.rank);
    room->victim = smallest_like(search, room->device, &last, left);
}

static bool is_better(const struct room *a, const struct room *b)
{
    if (a->missing != b->missing)
        return a->missing < b->missing;
    if (a->rank != b->rank)
        return a->rank < b->rank;
    if (a->count != b->count)
        return a->count < b->count;
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->score > b->score;
}

/* More harm than @best for sure. */
static bool is_worse(const struct offer *offer, uint64_t lack, const struct room *best)
{
    if (best->device == POLICY_NONE || best->missing || offer->lowest < best->rank)
        return false;
    return offer->lowest > best->rank || (best->count <= 1 && offer->largest < lack);
}

/* Keeps @device in @best where it is better. */
static void look_at(const struct search *search, uint32_t device, uint64_t more, struct room *best)
{
    struct view *view = search->view;
    const struct policy_program *p = program_at(view, search->program);
    uint64_t free = room_for(view, search->program, device);
    struct room room = {.device = device, .victim = POLICY_NONE, .rank = INT64_MIN};
    struct offer offer = {0};

    if (free < more) {
        uint64_t lack = more - free;

        if (search->gives)
            offer = could_give_all(search, device);
        if (offer.come >= lack) {
            room.count = 1;
        } else if (offer.give < lack - offer.come) {
            room.missing = lack - offer.come - offer.give;
        } else if (is_worse(&offer, lack - offer.come, best)) {
            return;
        } else {
            take_victims(search, lack - offer.come, &room);
        }
    }
    room.score = device == p->device ? INT64_MAX : score_of(view, p, device, more);
    if (best->device == POLICY_NONE || is_better(&room, best))
        *best = room;
}

/* Bytes that @program would have to get on @device; false where it cannot go at all. */
static bool could_use(const struct search *search, uint32_t device, uint64_t bytes,
                      uint64_t *ret_more)
{
    struct view *view = search->view;
    const struct policy_program *p = program_at(view, search->program);
    const struct policy_device *d = device_at(view, device);
    bool own = device == p->device;

    if (own ? d->drains && !p->pinned
            : !search->leaves || !device_open(d) || program_barred(p, device))
        return false;
    *ret_more = bytes_more(view, search->program, device, bytes);
    return *ret_more + (own ? p->granted : 0) <= d->memory &&
           (!search->gives || !is_kept(view, search->program, device));
}

/* Who is there, all devices together: to see at once where nobody makes room for anybody. */
static const struct crowd *look_around(struct view *view)
{
    struct crowd *crowd = &view->crowd;

    if (crowd->known)
        return crowd;
    *crowd = (struct crowd){.known = true, .lowest = INT64_MAX};
    for (uint32_t i = 0; i < view->world->program_count; i++) {
        const struct policy_program *p = program_at(view, i);

        if (p->device == POLICY_NONE)
            continue;
        crowd->count++;
        crowd->gives |= p->busy_moving || p->state == POLICY_WAITING;
        if (!p->pinned && p->granted && rank_of(p) < crowd->lowest)
            crowd->lowest = rank_of(p);
    }
    return crowd;
}

bool could_outrank(struct view *view, uint32_t program)
{
    return rank_of(program_at(view, program)) > look_around(view)->lowest;
}

static inline void prefetch_first(const struct view *view, uint32_t device)
{
    if (device_at(view, device)->first != POLICY_NONE)
        __builtin_prefetch(program_at(view, device_at(view, device)->first));
}

static void look_at_all(struct search *search, uint64_t bytes, bool only_free, struct room *best)
{
    struct view *view = search->view;

    view->looks -= least_of(view->looks, view->world->device_count);
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        uint64_t more;

        /* The list's first is far from that of the device before. */
        if (search->gives && i + AHEAD < view->world->device_count)
            prefetch_first(view, i + AHEAD);
        if (!could_use(search, i, bytes, &more) ||
            (only_free && more > room_for(view, search->program, i)))
            continue;
        look_at(search, i, more, best);
    }
}

/*
 * Where @bytes could be had for @program with the least harm, or where the fewest are missing.
 * Nothing is found for one behind the head on the device that the head waits for.
 */
struct room find_room(struct view *view, uint32_t program, uint64_t bytes, bool from_waiters)
{
    struct search search = {.view = view,
                            .program = program,
                            .from_waiters = from_waiters,
                            .leaves = would_leave(view, program_at(view, program))};
    struct room best = {.device = POLICY_NONE, .victim = POLICY_NONE, .missing = UINT64_MAX};

    /* Where it is free there is no need to look at who is there. */
    look_at_all(&search, bytes, true, &best);
    if (best.device != POLICY_NONE)
        return best;
    search.gives = could_outrank(view, program) || (from_waiters && view->crowd.gives);
    if (search.gives)
        view->looks -= least_of(view->looks, view->crowd.count);
    look_at_all(&search, bytes, false, &best);
    return best;
}

/* What happens to @victim, in the order that settings give; what only waits gives all it has. */
static void displace_how(struct view *view, const struct room *room, struct policy_step *ret_step)
{
    const struct policy_program *v = program_at(view, room->victim);
    unsigned ways = ways_of(view, v);
    bool enough = v->granted >= v->least && v->granted - v->least >= room->amount;

    for (unsigned i = 0; room->outranked && i < POLICY_WAYS; i++) {
        unsigned way = view->settings->order[i] & ways;
        uint32_t to;

        if (way == POLICY_UPGRADE) {
            to = pick_fitting(view, room->victim, program_full(v));
            if (to != POLICY_NONE) {
                step_set(ret_step, POLICY_DO_MOVE, room->victim, to, program_full(v));
                return;
            }
        } else if (way == POLICY_SPILL && enough) {
            step_set(ret_step, POLICY_DO_SPILL, room->victim, room->device,
                     v->granted - room->amount);
            return;
        } else if (way == POLICY_SUSPEND) {
            break;
        }
    }
    if (room->outranked && !(ways & POLICY_SUSPEND))
        step_set(ret_step, POLICY_DO_SPILL, room->victim, room->device, v->least);
    else
        step_set(ret_step, POLICY_DO_SUSPEND, room->victim, POLICY_NONE, 0);
}

void displace(struct view *view, uint32_t program, const struct room *room,
              struct policy_step *ret_step)
{
    const struct policy_program *p = program_at(view, program), *v;
    const struct policy_device *d = device_at(view, room->device);

    v = program_at(view, room->victim);
    displace_how(view, room, ret_step);
    step_say(ret_step, "%s needs %s on %s, which has %s free of %s: ", p->name,
             size_text(most_of(p->need, p->wanted)).text, d->name, size_text(device_free(d)).text,
             size_text(d->memory).text);
    if (ret_step->action == POLICY_DO_MOVE)
        step_say(ret_step, "%s moves to %s", v->name, device_at(view, ret_step->device)->name);
    else if (ret_step->action == POLICY_DO_SPILL)
        step_say(ret_step, "%s keeps %s there", v->name, size_text(ret_step->bytes).text);
    else
        step_say(ret_step, "%s is suspended", v->name);
    if (!room->outranked)
        step_say(ret_step, ", it waits behind");
    else if (v->priority < p->priority)
        step_say(ret_step, ", its priority is %d against %d", v->priority, p->priority);
    else
        step_say(ret_step, ", it is preemptible");
}
