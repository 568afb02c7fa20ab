#include <string.h>

#include "policy/decide_priv.h"

/* Who could make room for another, and what with. */

/* Of those on one device that would have to make room, so many are put in order before the rest is
 * taken as needed too. */
#define VICTIMS_MAX 64

/* A program that could make room, and how it compares with others that could. */
struct victim {
    uint32_t program;
    bool outranked; /* Not only behind the one that needs room. */
    uint64_t gives; /* Bytes. */
    int64_t rank;
};

/* The first of them. */
struct victims {
    struct victim list[VICTIMS_MAX];
    unsigned count;
};

/* What one that is outranked can be made to give. */
static uint64_t gives_outranked(const struct view *view, const struct policy_program *victim)
{
    unsigned ways = ways_of(view, victim);

    if (ways & POLICY_SUSPEND)
        return victim->granted;
    if (ways & POLICY_SPILL && victim->granted > victim->least)
        return victim->granted - victim->least;
    return 0;
}

/* As goes_before, whose first is the same each time. */
static bool search_goes_before(const struct search *search, uint32_t v)
{
    const struct policy_program *p = program_at(search->view, search->program),
                                *victim = program_at(search->view, v);
    int less = rank_waited_less(search->view, victim, search->rank_waited);

    if (less)
        return less < 0;
    return p->ticket != victim->ticket ? p->ticket < victim->ticket : search->program < v;
}

/* What @v can be made to give; 0: nothing. */
static uint64_t could_give(const struct search *search, uint32_t v, bool *ret_outranked)
{
    const struct view *view = search->view;
    const struct policy_program *victim = program_at(view, v);
    bool waits = victim->state == POLICY_WAITING;

    if (v == search->program || victim->pinned || victim->busy_moving || !victim->granted)
        return 0;
    if (waits && !search_goes_before(search, v))
        return 0;
    *ret_outranked = !(waits && search->from_waiters);
    if (!*ret_outranked)
        return victim->granted;
    return rank_outranks(view, search->rank, victim) ? gives_outranked(view, victim) : 0;
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

static int64_t harm_of(bool outranked, int64_t rank)
{
    return outranked ? rank : INT64_MIN + 1;
}

/* ---- all of a device ---- */

static void offer_give(struct offer *offer, uint64_t gives, int64_t harm)
{
    offer->give += gives;
    if (harm > offer->lowest) {
        offer->second = harm < offer->second ? harm : offer->second;
        offer->rest_largest = most_of(offer->rest_largest, gives);
        return;
    }
    if (harm < offer->lowest) {
        offer->second = offer->lowest;
        offer->lowest = harm;
        offer->rest_largest = most_of(offer->rest_largest, offer->low_largest);
        offer->low_give = offer->low_largest = 0;
        offer->low_count = 0;
    }
    offer->low_give += gives;
    offer->low_largest = most_of(offer->low_largest, gives);
    offer->low_count++;
}

static void offer_add(const struct search *search, uint32_t v, struct offer *offer)
{
    const struct view *view = search->view;
    const struct policy_program *victim = program_at(view, v);
    bool outranked = false;
    uint64_t gives;

    if (victim->busy_moving) {
        if (v != search->program && !victim->silent &&
            (search->from_waiters || rank_outranks(view, search->rank, victim)))
            offer->come += victim->granted;
        return;
    }
    gives = could_give(search, v, &outranked);
    if (gives)
        offer_give(offer, gives, harm_of(outranked, rank_of(victim)));
}

static const struct offer no_offer = {.lowest = INT64_MAX, .second = INT64_MAX};

static void crowd_add(struct crowd *crowd, const struct policy_program *p)
{
    crowd->count++;
    crowd->gives |= p->busy_moving || p->state == POLICY_WAITING;
    if (!p->pinned && p->granted && rank_of(p) < crowd->lowest)
        crowd->lowest = rank_of(p);
}

/* By all programs in their order, which is quicker than by the devices' lists; and who is there,
 * all devices together, to see at once where nobody makes room for anybody. */
static void offer_all(const struct search *search)
{
    struct view *view = search->view;
    unsigned slot = search->program == view->head;
    struct offer *offers = view->tables->offers[slot];
    struct crowd crowd = {.known = true, .lowest = INT64_MAX};
    bool many = view->world->device_count > TABLE_DEVICES;

    for (uint32_t i = 0; i < view->world->device_count && !many; i++)
        offers[i] = no_offer;
    for (uint32_t v = 0; v < view->world->program_count; v++) {
        const struct policy_program *victim = program_at(view, v);

        if (victim->device == POLICY_NONE)
            continue;
        crowd_add(&crowd, victim);
        if (!many && (rank_of(victim) < search->rank || victim->busy_moving ||
                      victim->state == POLICY_WAITING))
            offer_add(search, v, &offers[victim->device]);
    }
    view->looks -= least_of(view->looks, crowd.count);
    view->crowd = crowd;
    view->offered[slot] = (struct offered){search->program, search->rank, search->from_waiters};
}

/* Where nobody waits and nobody is about to leave it is all the same to those of one rank. */
static bool is_offered(const struct search *search)
{
    const struct view *view = search->view;
    const struct offered *offered = &view->offered[search->program == view->head];

    if (offered->program == POLICY_NONE)
        return false;
    return view->crowd.gives ? offered->program == search->program &&
                                   offered->from_waiters == search->from_waiters
                             : offered->rank == search->rank;
}

struct offer offer_on(const struct search *search, uint32_t device)
{
    const struct view *view = search->view;
    struct offer ret = no_offer;

    if (view->world->device_count <= TABLE_DEVICES) {
        if (!is_offered(search))
            offer_all(search);
        return view->tables->offers[search->program == view->head][device];
    }
    for (uint32_t v = device_at(view, device)->first; v != POLICY_NONE;
         v = program_at(view, v)->next)
        offer_add(search, v, &ret);
    return ret;
}

struct search search_for(struct view *view, uint32_t program, bool from_waiters)
{
    const struct policy_program *p = program_at(view, program);

    return (struct search){.view = view,
                           .program = program,
                           .rank = rank_of(p),
                           .rank_waited = rank_waited(view, p),
                           .from_waiters = from_waiters,
                           .leaves = would_leave(view, p)};
}

bool gives_any(const struct search *search)
{
    const struct crowd *crowd = &search->view->crowd;

    if (!crowd->known)
        offer_all(search);
    return search->rank > crowd->lowest || (search->from_waiters && crowd->gives);
}

bool could_outrank(struct view *view, uint32_t program)
{
    struct search search;

    if (view->crowd.known)
        return rank_of(program_at(view, program)) > view->crowd.lowest;
    search = search_for(view, program, false);
    return gives_any(&search);
}

bool offer_is_worse(const struct offer *offer, uint64_t lack, const struct room *best)
{
    bool low = offer->low_give >= lack || offer->low_count >= VICTIMS_MAX;
    int64_t rank = low ? offer->lowest : offer->second;
    uint64_t rest = low ? lack : lack - offer->low_give;
    uint64_t largest = low ? offer->low_largest : offer->rest_largest;
    uint32_t count = low ? 0 : offer->low_count;

    if (best->device == POLICY_NONE || best->missing || rank < best->rank)
        return false;
    if (rank > best->rank)
        return true;
    if (best->count >= VICTIMS_MAX)
        return false;
    return count >= best->count || (rest - 1) / largest >= best->count - count;
}

/* ---- one after the other ---- */

static void keep_first(struct victims *victims, const struct victim *victim)
{
    unsigned at = victims->count;

    if (at == VICTIMS_MAX && !is_before(victim, &victims->list[at - 1]))
        return;
    at -= at == VICTIMS_MAX;
    victims->count = at + 1;
    for (; at && is_before(victim, &victims->list[at - 1]); at--)
        victims->list[at] = victims->list[at - 1];
    victims->list[at] = *victim;
}

/*
 * Victims are taken in the order of harm until there is enough. The last of them is one that cannot
 * be done without, so it is the one to displace now: when it is gone, the question is asked again,
 * and the small ones in front of it are spared if they were not needed.
 */
static void take_victims(const struct search *search, struct room *room)
{
    const struct view *view = search->view;
    struct victims victims;
    struct victim last = {.program = POLICY_NONE};

    victims.count = 0;
    for (uint32_t v = device_at(view, room->device)->first; v != POLICY_NONE;
         v = program_at(view, v)->next) {
        struct victim victim = {.program = v, .rank = rank_of(program_at(view, v))};

        victim.gives = could_give(search, v, &victim.outranked);
        if (victim.gives)
            keep_first(&victims, &victim);
    }
    room->amount = room->lack;
    for (room->count = 0, room->bytes = 0; room->count < victims.count;) {
        last = victims.list[room->count++];
        room->bytes += last.gives;
        if (last.gives >= room->amount)
            break;
        room->amount -= last.gives;
    }
    room->outranked = last.outranked;
    room->rank = harm_of(last.outranked, last.rank);
    room->victim = last.program;
}

void weigh_victims(const struct search *search, const struct offer *offer, struct room *room)
{
    bool ranked = offer->lowest != harm_of(false, 0); /* Who only waits has ranks within. */

    if (offer->low_largest < room->lack || (!ranked && offer->low_count > 1)) {
        take_victims(search, room);
        return;
    }
    /* One is enough, and the largest goes first: no need to look for it yet. */
    room->rank = offer->lowest;
    room->count = 1;
    room->bytes = offer->low_largest;
}

/* Among the equals of the last victim the smallest that gives as much as it has to as well. */
void name_victim(const struct search *search, struct room *room)
{
    const struct view *view = search->view;
    bool like = false;
    uint64_t best_gives;
    int64_t rank;

    if (room->victim == POLICY_NONE)
        take_victims(search, room);
    rank = rank_of(program_at(view, room->victim));
    best_gives = could_give(search, room->victim, &like);
    for (uint32_t v = device_at(view, room->device)->first; v != POLICY_NONE;
         v = program_at(view, v)->next) {
        bool outranked = false;
        uint64_t gives = could_give(search, v, &outranked);

        if (gives >= room->amount && gives < best_gives && outranked == like &&
            rank_of(program_at(view, v)) == rank) {
            room->victim = v;
            best_gives = gives;
        }
    }
}

/* ---- what a rank could have at most ---- */

/*
 * Bytes that any program of @rank could have on each device, in addition to what it has: free, or
 * of those that it outranks, or about to be. An upper bound, from which it is seen at once that a
 * search would be in vain.
 */
static void reach_find(struct view *view, int64_t rank)
{
    uint64_t *reach = view->tables->reach[rank & 1], most = 0;

    for (uint32_t i = 0; i < view->world->device_count; i++)
        reach[i] = device_free(device_at(view, i));
    for (uint32_t v = 0; v < view->world->program_count; v++) {
        const struct policy_program *victim = program_at(view, v);

        if (victim->device == POLICY_NONE || !rank_outranks(view, rank, victim))
            continue;
        if (victim->busy_moving)
            reach[victim->device] += victim->granted;
        else if (!victim->pinned)
            reach[victim->device] += gives_outranked(view, victim);
    }
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        if (device_open(device_at(view, i)))
            most = most_of(most, reach[i]);
    }
    view->looks -= least_of(view->looks, view->crowd.count);
    view->reach_known[rank & 1] = true;
    view->reach_rank[rank & 1] = rank;
    view->reach_most[rank & 1] = most;
}

bool could_make_room(struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);
    int64_t rank = rank_of(p);
    uint64_t full = program_full(p);

    if (!could_outrank(view, program))
        return false;
    if (view->world->device_count > TABLE_DEVICES)
        return true;
    if (!view->reach_known[rank & 1] || view->reach_rank[rank & 1] != rank)
        reach_find(view, rank);
    if (p->device != POLICY_NONE &&
        bytes_more(view, program, p->device, full) <= view->tables->reach[rank & 1][p->device])
        return true;
    return would_leave(view, p) && full <= view->reach_most[rank & 1];
}
