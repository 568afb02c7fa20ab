#include "policy/view.h"

/* The limit of visits: the larger of a constant and a multiple of the number of devices. */
#define VISITS_MIN   32768
#define VISITS_TIMES 8

bool goes_before(const struct view *view, uint32_t a, uint32_t b)
{
    const struct policy_program *pa = program_at(view, a), *pb = program_at(view, b);
    int64_t rank_a = rank_waited(view, pa), rank_b = rank_waited(view, pb);

    if (rank_a != rank_b)
        return rank_a > rank_b;
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
    /* A program that spills there already needs only what its call needs. */
    if (bytes == program_full(p))
        bytes = p->need;
    return bytes > p->granted ? bytes - p->granted : 0;
}

bool is_overdue(const struct view *view, const struct policy_program *program)
{
    uint64_t deadline = view->settings->wait_deadline_s;

    return deadline && program->need && program->waited_s >= deadline;
}

static bool view_stays_able(const struct view *view, uint32_t program, uint64_t bytes)
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
    return program->device == POLICY_NONE || ways_of(view, program) & POLICY_UPGRADE;
}

static unsigned view_row_of(uint64_t bytes)
{
    return bytes ? 64 - (unsigned)__builtin_clzll(bytes) : 0;
}

static uint64_t view_bytes_on(const struct policy_device *device, enum policy_measure measure)
{
    if (measure == POLICY_FREE)
        return device_free(device);
    return measure == POLICY_LIFTED ? most_of(device->whole, device->memory) : device->memory;
}

static bool view_is_measured(const struct policy_device *device, enum policy_measure measure)
{
    return measure >= POLICY_CLOSED || device_is_open(device);
}

static void view_sort_devices(struct view *view, enum policy_measure measure)
{
    uint64_t(*rows)[POLICY_SORTED / 64] = view->sorted[measure];
    uint32_t count = (uint32_t)least_of(view->world->device_count, POLICY_SORTED);

    for (uint32_t i = 0; i < count; i++) {
        const struct policy_device *d = device_at(view, i);

        if (view_is_measured(d, measure))
            rows[view_row_of(view_bytes_on(d, measure))][i / 64] |= UINT64_C(1) << i % 64;
    }
    for (unsigned row = 64; row > 0; row--)
        for (uint32_t i = 0; i * 64 < count; i++)
            rows[row - 1][i] |= rows[row][i];
}

/* Called for thousands of programs in one decision, each barred from different devices. All devices
 * of the row above have enough, so only the rest of this row is compared one by one. */
bool device_has(const struct view *view, enum policy_measure measure,
                const struct policy_program *program, uint64_t bytes, uint32_t except)
{
    const uint64_t(*row)[POLICY_SORTED / 64] = &view->sorted[measure][view_row_of(bytes)];
    uint32_t count = view->world->device_count;

    for (uint32_t i = 0; i < count && i < POLICY_SORTED; i += 64) {
        uint64_t may = program->barred ? ~program->barred[i / 64] : UINT64_MAX;

        if (except / 64 == i / 64)
            may &= ~(UINT64_C(1) << except % 64);
        if (row[1][i / 64] & may)
            return true;
        for (uint64_t left = row[0][i / 64] & may; left; left &= left - 1)
            if (view_bytes_on(device_at(view, i + (uint32_t)__builtin_ctzll(left)), measure) >=
                bytes)
                return true;
    }
    for (uint32_t i = POLICY_SORTED; i < count; i++) {
        const struct policy_device *d = device_at(view, i);

        if (view_bytes_on(d, measure) >= bytes && view_is_measured(d, measure) && i != except &&
            !program_barred(program, i))
            return true;
    }
    return false;
}

bool could_hold(const struct view *view, uint32_t program, uint64_t bytes, unsigned flags)
{
    const struct policy_program *p = program_at(view, program);
    unsigned leaving = POLICY_UPGRADE | (flags & COULD_LEAVE ? POLICY_SUSPEND : 0);

    if (bytes > p->quota && !(flags & COULD_LIFTED))
        return false;
    if (bytes <= p->quota && view_stays_able(view, program, bytes))
        return true;
    if (p->device != POLICY_NONE && !(ways_of(view, p) & leaving) && !(flags & COULD_LIFTED))
        return false;
    if (flags & COULD_LIFTED)
        return device_has(view, POLICY_LIFTED, p, bytes, POLICY_NONE);
    if (flags & COULD_CLOSED)
        return device_has(view, POLICY_CLOSED, p, bytes, POLICY_NONE);
    return bytes <= view->memory_max &&
           (p->barred ? device_has(view, POLICY_MEMORY, p, bytes, POLICY_NONE) : view->open > 0);
}

/* The first program that some device could hold: one that fits nowhere must not block others. */
static uint32_t view_find_head(const struct view *view)
{
    const struct policy_world *world = view->world;
    uint32_t first = POLICY_NONE;

    for (uint32_t i = 0; i < world->queue_count; i++) {
        uint32_t program = world->queue[i];
        const struct policy_program *p = program_at(view, program);

        /* Without aging the queue is in order except for preemptible programs. */
        if (first != POLICY_NONE && !view->settings->age_s &&
            p->priority < program_at(view, first)->priority)
            break;
        if (!p->busy_moving && (first == POLICY_NONE || goes_before(view, program, first)) &&
            could_hold(view, program, bytes_at_least(view, p), 0))
            first = program;
    }
    return first;
}

static void view_look_at_devices(struct view *view)
{
    for (uint32_t i = 0; i < view->world->device_count; i++) {
        const struct policy_device *d = device_at(view, i);

        if (!device_is_open(d))
            continue;
        view->open++;
        view->memory_max = most_of(view->memory_max, d->memory);
        view->free_max = most_of(view->free_max, device_free(d));
    }
}

static void view_look_at_programs(struct view *view)
{
    for (uint32_t i = 0; i < view->world->program_count; i++) {
        const struct policy_program *p = program_at(view, i);

        if (p->device == POLICY_NONE)
            continue;
        view->placed++;
        view->any_gives |= p->busy_moving || p->state == POLICY_WAITING;
        if (!p->pinned && p->granted && rank_of(p) < view->lowest_rank)
            view->lowest_rank = rank_of(p);
    }
}

void view_init(struct view *view, const struct policy_world *world,
               const struct policy_settings *settings)
{
    *view = (struct view){.world = world,
                          .settings = settings,
                          .lowest_rank = INT64_MAX,
                          .head_device = POLICY_NONE,
                          .expected = {.program = POLICY_NONE},
                          .reader = POLICY_NONE};
    view_look_at_devices(view);
    for (unsigned i = 0; i < POLICY_MEASURES; i++)
        view_sort_devices(view, (enum policy_measure)i);
    view_look_at_programs(view);
    view->head = view_find_head(view);
    view->visits = most_of(VISITS_MIN, (uint64_t)VISITS_TIMES * world->device_count);
}
