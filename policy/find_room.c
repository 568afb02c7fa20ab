#include "policy/policy_priv.h"

/* The room to reserve for the head is found like any other; that room is then not free for others.
 */
static bool find_room_is_kept(struct view *view, uint32_t program, uint32_t device);

uint64_t room_for(struct view *view, uint32_t program, uint32_t device)
{
    uint64_t free = device_free(device_at(view, device));

    if (free && find_room_is_kept(view, program, device))
        return free > view->head_bytes ? free - view->head_bytes : 0;
    return free;
}

/* ---- rooms that others would make ---- */

static int64_t find_room_score_in(const struct search *search, struct room *room)
{
    const struct policy_program *p = program_at(search->view, search->program);

    if (!room->scored)
        room->score = room->device == p->device
                          ? INT64_MAX
                          : score_of(search->view, p, room->device, room->more);
    room->scored = true;
    return room->score;
}

static bool find_room_is_better(const struct search *search, struct room *a, struct room *b)
{
    if (a->missing != b->missing)
        return a->missing < b->missing;
    if (a->rank != b->rank)
        return a->rank < b->rank;
    return a->cost_ms != b->cost_ms ? a->cost_ms < b->cost_ms
                                    : find_room_score_in(search, a) > find_room_score_in(search, b);
}

/* Replace @best by the room on @device if that is better. */
static void find_room_look_at(const struct search *search, uint32_t device, uint64_t more,
                              struct room *best)
{
    uint64_t free = room_for(search->view, search->program, device);
    struct room room = {.device = device, .victim = POLICY_NONE, .rank = INT64_MIN, .more = more};

    if (free < more && search->gives)
        weigh_victims(search, more - free, &room);
    else if (free < more)
        room.missing = more - free;
    if (best->device == POLICY_NONE || find_room_is_better(search, &room, best))
        *best = room;
}

/* The additional grant that @program needs on @device. Returns false if it cannot go there. */
static bool find_room_could_use(const struct search *search, uint32_t device, uint64_t bytes,
                                uint64_t *ret_more)
{
    struct view *view = search->view;
    const struct policy_program *p = program_at(view, search->program);
    const struct policy_device *d = device_at(view, device);
    bool own = device == p->device;

    if (own ? d->drains && !p->pinned
            : !search->leaves || !device_is_open(d) || program_barred(p, device))
        return false;
    *ret_more = bytes_more(view, search->program, device, bytes);
    return *ret_more + (own ? p->granted : 0) <= d->memory &&
           (!search->gives || !find_room_is_kept(view, search->program, device));
}

static void find_room_look_at_all(const struct search *search, uint64_t bytes, bool only_free,
                                  struct room *best)
{
    struct view *view = search->view;

    spend_visits(view, view->world->device_count + (search->gives ? view->placed : 0));
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        uint64_t more;

        if (find_room_could_use(search, i, bytes, &more) &&
            (!only_free || more <= room_for(view, search->program, i)))
            find_room_look_at(search, i, more, best);
    }
}

struct room find_room(struct view *view, uint32_t program, uint64_t bytes, bool from_waiters)
{
    struct search search = {.view = view,
                            .program = program,
                            .from_waiters = from_waiters,
                            .leaves = would_leave(view, program_at(view, program))};
    struct room best = {.device = POLICY_NONE, .victim = POLICY_NONE, .missing = UINT64_MAX};

    /* Enough is free: the programs there need not be looked at. */
    find_room_look_at_all(&search, bytes, true, &best);
    if (best.device != POLICY_NONE)
        return best;
    search.gives = could_outrank(view, program) || (from_waiters && view->any_gives);
    find_room_look_at_all(&search, bytes, false, &best);
    if (best.victim != POLICY_NONE)
        spare_victims(&search, &best);
    return best;
}

/* ---- memory reserved for the head ---- */

/* Reserve for the head the room it can have soonest. Reserve a part only if the head would take a
 * part: otherwise the reservation would change as others release memory for it, and they would
 * release it again and again. */
static void find_room_keep_for_head(struct view *view)
{
    const struct policy_program *p = program_at(view, view->head);
    uint64_t full = program_full(p), least = bytes_at_least(view, p);
    uint64_t bytes = could_hold(view, view->head, full, 0) ? full : least;
    struct room room = find_room(view, view->head, bytes, true);

    if (room.missing && least < bytes && ways_of(view, p) & POLICY_SPILL) {
        struct room smaller = find_room(view, view->head, least, true);

        if (!smaller.missing) {
            room = smaller;
            bytes = least;
        }
    }
    view->head_device = room.device;
    if (room.device != POLICY_NONE)
        view->head_bytes = bytes_more(view, view->head, room.device, bytes);
}

uint32_t device_kept(struct view *view)
{
    if (!view->kept) {
        view->kept = true;
        find_room_keep_for_head(view);
    }
    return view->head_device;
}

static uint32_t find_room_kept_from(struct view *view, uint32_t program)
{
    return waits_behind_head(view, program) ? device_kept(view) : POLICY_NONE;
}

static bool find_room_is_kept(struct view *view, uint32_t program, uint32_t device)
{
    return (!view->kept || device == view->head_device) &&
           device == find_room_kept_from(view, program);
}

/* ---- free room ---- */

bool has_room(struct view *view, uint32_t program, uint64_t bytes)
{
    const struct policy_program *p = program_at(view, program);
    uint32_t kept;

    if (bytes > view->free_max || bytes > p->quota ||
        !device_has(view, POLICY_FREE, p, bytes, POLICY_NONE))
        return false;
    kept = find_room_kept_from(view, program);
    return device_has(view, POLICY_FREE, p, bytes, kept) ||
           (kept != POLICY_NONE && device_is_open(device_at(view, kept)) &&
            !program_barred(p, kept) && room_for(view, program, kept) >= bytes);
}

uint32_t pick_fitting(struct view *view, uint32_t program, uint64_t bytes)
{
    const struct policy_program *p = program_at(view, program);
    uint64_t peak = most_of(bytes, least_of(p->peak, p->quota));
    uint32_t best = POLICY_NONE;
    bool best_lasts = false;
    int64_t best_score = 0;

    if (bytes > view->free_max || bytes > p->quota)
        return POLICY_NONE;
    spend_visits(view, view->world->device_count);
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        const struct policy_device *d = device_at(view, i);
        uint64_t room;
        int64_t score;
        bool lasts;

        if (!device_is_open(d) || i == p->device || device_free(d) < bytes ||
            program_barred(p, i) || (room = room_for(view, program, i)) < bytes)
            continue;
        lasts = room >= peak;
        score = score_of(view, p, i, bytes);
        if (best != POLICY_NONE && lasts <= best_lasts) {
            const struct policy_device *b = device_at(view, best);

            if (lasts < best_lasts || score < best_score ||
                (score == best_score && (d->residents > b->residents ||
                                         (d->residents == b->residents && d->kind >= b->kind))))
                continue;
        }
        best = i;
        best_lasts = lasts;
        best_score = score;
    }
    return best;
}

uint32_t pick_roomiest(struct view *view, uint32_t program, uint64_t least, uint64_t full)
{
    const struct policy_program *p = program_at(view, program);
    uint32_t best = POLICY_NONE;
    uint64_t best_room = 0;
    int64_t best_score = 0;

    if (least > view->free_max || least > p->quota)
        return POLICY_NONE;
    spend_visits(view, view->world->device_count);
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        uint64_t room;
        int64_t score;

        if (!device_is_open(device_at(view, i)) || i == p->device || program_barred(p, i))
            continue;
        room = least_of(room_for(view, program, i), full);
        if (room < least)
            continue;
        score = score_of(view, p, i, room);
        if (best == POLICY_NONE || room > best_room || (room == best_room && score > best_score)) {
            best = i;
            best_room = room;
            best_score = score;
        }
    }
    return best;
}

bool may_take(struct view *view, uint32_t program, uint32_t device)
{
    const struct policy_program *p = program_at(view, program);

    return has_space(view, p, device) && program_full(p) <= p->quota &&
           !program_barred(p, device) &&
           room_for(view, program, device) >= most_of(program_full(p), least_of(p->peak, p->quota));
}
