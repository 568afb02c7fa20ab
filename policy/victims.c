#include "policy/policy_priv.h"

/* At most so many candidates on one device are sorted; the others are taken as they come. */
#define VICTIMS_MAX 64

/* Programs on a device that count as one visit. */
#define WALK_PART 32

/* A program that could make room, and how it ranks among the candidates. */
struct victim {
    uint32_t program;
    bool outranked; /* False: it only waits behind the program that needs room. */
    uint64_t gives; /* Bytes. */
    int64_t rank;
};

/* The first candidates in order of harm. */
struct victims {
    struct victim list[VICTIMS_MAX];
    unsigned count;
};

/* Bytes that an outranked program can be made to release. */
static uint64_t victims_gives_outranked(const struct view *view,
                                        const struct policy_program *victim)
{
    unsigned ways = ways_of(view, victim);

    if (ways & POLICY_SUSPEND)
        return victim->granted;
    if (ways & POLICY_SPILL && victim->granted > victim->least)
        return victim->granted - victim->least;
    return 0;
}

static bool victims_search_outranks(const struct search *search,
                                    const struct policy_program *victim)
{
    return rank_outranks(search->view, rank_of(program_at(search->view, search->program)), victim);
}

/* Bytes that @v can be made to release; 0: none. */
static uint64_t victims_could_give(const struct search *search, uint32_t v, bool *ret_outranked)
{
    const struct view *view = search->view;
    const struct policy_program *victim = program_at(view, v);
    bool waits = victim->state == POLICY_WAITING;

    if (v == search->program || victim->pinned || victim->busy_moving || !victim->granted)
        return 0;
    if (waits && !goes_before(view, search->program, v))
        return 0;
    *ret_outranked = !(waits && search->from_waiters);
    if (!*ret_outranked)
        return victim->granted;
    return victims_search_outranks(search, victim) ? victims_gives_outranked(view, victim) : 0;
}

/* Least harm first: waiting programs, then the lowest rank, then the largest for fewer steps. */
static bool victims_is_before(const struct victim *a, const struct victim *b)
{
    if (a->outranked != b->outranked)
        return !a->outranked;
    if (a->rank != b->rank)
        return a->rank < b->rank;
    return a->gives != b->gives ? a->gives > b->gives : a->program < b->program;
}

static void victims_keep_first(struct victims *victims, const struct victim *victim)
{
    unsigned at = victims->count;

    if (at == VICTIMS_MAX && !victims_is_before(victim, &victims->list[at - 1]))
        return;
    at -= at == VICTIMS_MAX;
    victims->count = at + 1;
    for (; at && victims_is_before(victim, &victims->list[at - 1]); at--)
        victims->list[at] = victims->list[at - 1];
    victims->list[at] = *victim;
}

/*
 * Take victims in order of harm until they release enough. The last of them is indispensable, so it
 * is displaced first: afterwards the search runs again, and smaller victims before it are spared if
 * they are not needed.
 */
static void victims_take_victims(const struct view *view, const struct victims *victims,
                                 struct room *room)
{
    const struct victim *last;

    do {
        last = &victims->list[room->count++];
        room->cost_ms += program_move_ms(view, program_at(view, last->program));
        if (last->gives >= room->amount)
            break;
        room->amount -= last->gives;
    } while (room->count < victims->count);
    room->outranked = last->outranked;
    room->rank = last->outranked ? last->rank : INT64_MIN + 1;
    room->victim = last->program;
}

void weigh_victims(const struct search *search, uint64_t lack, struct room *room)
{
    const struct view *view = search->view;
    struct victims victims;
    uint64_t give = 0, come = 0; /* Bytes to be released: in all, and already under way. */

    victims.count = 0;
    for (uint32_t v = device_at(view, room->device)->first; v != POLICY_NONE;
         v = program_at(view, v)->next) {
        const struct policy_program *p = program_at(view, v);
        struct victim victim = {.program = v, .rank = rank_of(p)};

        if (p->busy_moving && v != search->program && !p->silent &&
            (search->from_waiters || victims_search_outranks(search, p)))
            come += p->granted;
        victim.gives = victims_could_give(search, v, &victim.outranked);
        give += victim.gives;
        if (victim.gives)
            victims_keep_first(&victims, &victim);
    }
    if (come >= lack) {
        room->count = 1;
    } else if (come + give < lack) {
        room->missing = lack - come - give;
    } else {
        room->amount = lack - come;
        victims_take_victims(view, &victims, room);
    }
}

/* Among equals of the last victim, choose the smallest that still releases enough. */
void spare_victims(const struct search *search, struct room *room)
{
    const struct view *view = search->view;
    int64_t rank = rank_of(program_at(view, room->victim));
    bool like = false;
    uint64_t best_gives = victims_could_give(search, room->victim, &like);

    for (uint32_t v = device_at(view, room->device)->first; v != POLICY_NONE;
         v = program_at(view, v)->next) {
        bool outranked = false;
        uint64_t gives = victims_could_give(search, v, &outranked);

        if (gives >= room->amount && gives < best_gives && outranked == like &&
            rank_of(program_at(view, v)) == rank) {
            room->victim = v;
            best_gives = gives;
        }
    }
}

/* ---- upper bounds by rank ---- */

/* Bytes that a program of @rank could gain on @device: free ones, ones being released, and ones of
 * programs it outranks. */
static uint64_t victims_reach_on(const struct view *view, int64_t rank, uint32_t device)
{
    uint64_t reach = device_free(device_at(view, device));

    for (uint32_t v = device_at(view, device)->first; v != POLICY_NONE;
         v = program_at(view, v)->next) {
        const struct policy_program *victim = program_at(view, v);

        if (!rank_outranks(view, rank, victim))
            continue;
        if (victim->busy_moving)
            reach += victim->granted;
        else if (!victim->pinned)
            reach += victims_gives_outranked(view, victim);
    }
    return reach;
}

/* An upper bound that tells quickly when a search cannot succeed. Cached for two ranks, since
 * preemptible and other programs alternate in the queue. */
static uint64_t victims_reach_most(struct view *view, int64_t rank)
{
    struct policy_reach *reach = &view->reach[rank & 1];

    if (reach->known && reach->rank == rank)
        return reach->most;
    *reach = (struct policy_reach){.known = true, .rank = rank};
    for (uint32_t i = 0; i < view->world->device_count; i++)
        if (device_is_open(device_at(view, i)))
            reach->most = most_of(reach->most, victims_reach_on(view, rank, i));
    spend_visits(view, view->placed);
    return reach->most;
}

bool could_make_room(struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);
    int64_t rank = rank_of(p);
    uint64_t full = program_full(p);

    if (!could_outrank(view, program))
        return false;
    if (would_leave(view, p) && full <= victims_reach_most(view, rank))
        return true;
    if (p->device == POLICY_NONE)
        return false;
    spend_visits(view, device_at(view, p->device)->residents / WALK_PART);
    return bytes_more(view, program, p->device, full) <= victims_reach_on(view, rank, p->device);
}
