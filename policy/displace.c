#include "policy/decide_priv.h"

#define LISTS_AHEAD 4 /* Devices. */

static int64_t score_in(const struct search *search, struct room *room)
{
    const struct policy_program *p = program_at(search->view, search->program);

    if (!room->scored)
        room->score = room->device == p->device
                          ? INT64_MAX
                          : score_of(search->view, p, room->device, room->more);
    room->scored = true;
    return room->score;
}

static bool is_better(const struct search *search, struct room *a, struct room *b)
{
    if (a->missing != b->missing)
        return a->missing < b->missing;
    if (a->rank != b->rank)
        return a->rank < b->rank;
    if (a->count != b->count)
        return a->count < b->count;
    return a->bytes != b->bytes ? a->bytes < b->bytes : score_in(search, a) > score_in(search, b);
}

/* Keeps @device in @best where it is better. */
static void look_at(const struct search *search, uint32_t device, uint64_t more, struct room *best)
{
    uint64_t free = room_for(search->view, search->program, device);
    struct room room = {.device = device, .victim = POLICY_NONE, .rank = INT64_MIN, .more = more};

    if (free < more) {
        uint64_t lack = more - free;
        struct offer offer = {0};

        if (search->gives)
            offer = offer_on(search, device);
        if (offer.come >= lack) {
            room.count = 1;
        } else if (offer.give < lack - offer.come) {
            room.missing = lack - offer.come - offer.give;
        } else {
            room.lack = lack - offer.come;
            if (offer_is_worse(&offer, room.lack, best))
                return;
            weigh_victims(search, &offer, &room);
        }
    }
    if (best->device == POLICY_NONE || is_better(search, &room, best))
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

static inline void prefetch_first(const struct view *view, uint32_t device)
{
    if (device_at(view, device)->first != POLICY_NONE)
        __builtin_prefetch(program_at(view, device_at(view, device)->first));
}

static void look_at_all(struct search *search, uint64_t bytes, bool only_free, struct room *best)
{
    struct view *view = search->view;
    bool lists = search->gives && view->world->device_count > TABLE_DEVICES;

    view->looks -= least_of(view->looks, view->world->device_count);
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        uint64_t more;

        /* The list's first is far from that of the device before. */
        if (lists && i + LISTS_AHEAD < view->world->device_count)
            prefetch_first(view, i + LISTS_AHEAD);
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
    struct search search = search_for(view, program, from_waiters);
    struct room best = {.device = POLICY_NONE, .victim = POLICY_NONE, .missing = UINT64_MAX};

    /* Where it is free there is no need to look at who is there. */
    look_at_all(&search, bytes, true, &best);
    if (best.device != POLICY_NONE)
        return best;
    search.gives = gives_any(&search);
    look_at_all(&search, bytes, false, &best);
    if (best.lack)
        name_victim(&search, &best);
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
            uint64_t gives = most_of(room->amount, device_at(view, room->device)->step);

            step_set(ret_step, POLICY_DO_SPILL, room->victim, room->device,
                     v->granted - least_of(gives, v->granted - v->least));
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
