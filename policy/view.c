#include <string.h>

#include "policy/decide_priv.h"

bool goes_before(const struct view *view, uint32_t a, uint32_t b)
{
    const struct policy_program *pa = program_at(view, a), *pb = program_at(view, b);
    int less = rank_waited_less(view, pb, rank_waited(view, pa));

    if (less)
        return less < 0;
    return pa->ticket != pb->ticket ? pa->ticket < pb->ticket : a < b;
}

bool waits_behind_head(const struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);

    if (view->head == POLICY_NONE || program == view->head)
        return false;
    if (program_queues(p))
        return goes_before(view, view->head, program);
    return rank_of(p) <= rank_waited(view, program_at(view, view->head));
}

uint64_t bytes_at_least(const struct view *view, const struct policy_program *program)
{
    return ways_of(view, program) & POLICY_SPILL ? least_of(program->least, program_full(program))
                                                 : program_full(program);
}

uint64_t bytes_more(const struct view *view, uint32_t program, uint32_t device, uint64_t bytes)
{
    const struct policy_program *p = program_at(view, program);

    if (device != p->device)
        return bytes;
    /* What is spilled there already needs no more than its call. */
    if (bytes == program_full(p))
        bytes = p->need;
    return bytes > p->granted ? bytes - p->granted : 0;
}

static bool stays_able(const struct view *view, uint32_t program, uint64_t bytes)
{
    const struct policy_program *p = program_at(view, program);
    const struct policy_device *own;

    if (p->device == POLICY_NONE)
        return false;
    own = device_at(view, p->device);
    return (!own->drains || p->pinned) &&
           p->granted + bytes_more(view, program, p->device, bytes) <= own->memory;
}

bool would_leave(const struct view *view, const struct policy_program *program)
{
    if (program->device == POLICY_NONE)
        return true;
    for (unsigned i = 0; i < POLICY_WAYS; i++) {
        unsigned way = view->settings->order[i] & ways_of(view, program);

        if (way & (POLICY_UPGRADE | POLICY_WAIT))
            return way == POLICY_UPGRADE;
    }
    return false;
}

/* Looked through so often to no end, the devices are worth putting in order. */
#define VAIN_MAX 4

static bool is_held(struct view *view, const struct policy_program *p, uint64_t bytes,
                    unsigned flags)
{
    static const uint32_t none[2] = {POLICY_NONE, POLICY_NONE};
    bool closed = flags & COULD_CLOSED, lifted = flags & COULD_LIFTED;

    if (!closed && !lifted && !p->barred)
        return view->open > 0;
    if (!lifted && view->vain >= VAIN_MAX && view->world->device_count <= TABLE_DEVICES)
        return shelf_has(view, closed ? SHELF_ALL : SHELF_MEMORY, bytes, p->barred, none);
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        const struct policy_device *d = device_at(view, i);

        if ((device_open(d) || closed) && !program_barred(p, i) &&
            bytes <= (lifted ? most_of(d->whole, d->memory) : d->memory))
            return true;
    }
    view->vain++;
    return false;
}

bool could_hold(struct view *view, uint32_t program, uint64_t bytes, unsigned flags)
{
    const struct policy_program *p = program_at(view, program);
    unsigned leaving = POLICY_UPGRADE | (flags & COULD_LEAVE ? POLICY_SUSPEND : 0);

    if (bytes > p->quota && !(flags & COULD_LIFTED))
        return false;
    if (bytes <= p->quota && stays_able(view, program, bytes))
        return true;
    if (p->device != POLICY_NONE && !(ways_of(view, p) & leaving) && !(flags & COULD_LIFTED))
        return false;
    if (bytes > view->memory_max && !(flags & (COULD_CLOSED | COULD_LIFTED)))
        return false;
    return is_held(view, p, bytes, flags);
}

/* The first of those that some device could hold: who fits nowhere must not hold up others. */
static uint32_t find_head(struct view *view)
{
    const struct policy_world *world = view->world;
    uint32_t first = POLICY_NONE;
    int64_t rank = INT64_MIN;

    for (uint32_t i = 0; i < world->queue_count; i++) {
        uint32_t program = world->queue[i];
        const struct policy_program *p = program_at(view, program);

        prefetch_queued(view, i);
        if (first != POLICY_NONE) {
            /* Without aging the queue is in order but for what is preemptible. */
            if (!view->settings->age_s && p->priority < program_at(view, first)->priority)
                break;
            if (rank_waited_less(view, p, rank) < 0 || !goes_before(view, program, first))
                continue;
        }
        if (p->busy_moving)
            continue;
        if (!could_hold(view, program, bytes_at_least(view, p), 0)) {
            if (program < MARKS)
                view->tables->unheld[program / 64] |= UINT64_C(1) << program % 64;
            continue;
        }
        first = program;
        rank = rank_waited(view, p);
    }
    return first;
}

bool spills_first(struct view *view, uint32_t program)
{
    const struct policy_program *p = program_at(view, program);
    unsigned ways = ways_of(view, p);

    if (!(ways & POLICY_SPILL))
        return false;
    for (unsigned i = 0; i < POLICY_WAYS; i++) {
        unsigned way = view->settings->order[i] & ways;

        if (way == POLICY_SPILL)
            return true;
        if (way == POLICY_WAIT)
            break;
    }
    return !could_hold(view, program, program_full(p), 0);
}

/* What the head gets where it can be had soonest is not given to those behind it. A part, only
 * where it would take that: or what is kept would change with what others give up for it, and they
 * would give it up again and again. */
static void keep_for_head(struct view *view)
{
    const struct policy_program *p = program_at(view, view->head);
    uint64_t full = program_full(p), least = bytes_at_least(view, p);
    uint64_t bytes = could_hold(view, view->head, full, 0) ? full : least;
    struct room room = find_room(view, view->head, bytes, true);

    if (room.missing && least < bytes && spills_first(view, view->head)) {
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

uint32_t kept_from(struct view *view, uint32_t program)
{
    if (view->asked != program) {
        view->asked = program;
        view->asked_behind = waits_behind_head(view, program);
    }
    if (!view->asked_behind)
        return POLICY_NONE;
    if (!view->kept) {
        view->kept = true;
        keep_for_head(view);
    }
    return view->head_device;
}

bool is_kept(struct view *view, uint32_t program, uint32_t device)
{
    return device == kept_from(view, program);
}

void view_init(struct view *view, struct tables *tables, const struct policy_world *world,
               const struct policy_settings *settings)
{
    *view = (struct view){.world = world,
                          .settings = settings,
                          .tables = tables,
                          .head = POLICY_NONE,
                          .head_device = POLICY_NONE,
                          .asked = POLICY_NONE,
                          .offered = {{.program = POLICY_NONE}, {.program = POLICY_NONE}}};
    for (unsigned i = 0; i < POLICY_WAYS; i++)
        view->ways |= settings->order[i];
    for (uint32_t i = 0; i < world->device_count; i++) {
        const struct policy_device *d = &world->devices[i];

        if (!device_open(d))
            continue;
        view->open++;
        view->memory_max = most_of(view->memory_max, d->memory);
        view->free_max = most_of(view->free_max, device_free(d));
    }
    memset(tables->unheld, 0, least_of(world->program_count / 64 + 1, MARKS / 64) * 8);
    view->head = find_head(view);
    view->looks = most_of(LOOKS_MIN, (uint64_t)LOOKS_TIMES * world->device_count);
}
