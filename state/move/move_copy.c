#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/memory/pages.h"
#include "state/budget/budget.h"
#include "state/memory/mapping.h"
#include "state/memory/replica.h"
#include "state/move/move_priv.h"
#include "state/move/source.h"
#include "state/object/lost.h"

/* Progress is reported after each slice of this many bytes. */
#define SLICE ((uint64_t)512 << 20)
/* The same while commands may bring bytes: they wait for a slice to end. */
#define SLICE_SHARED ((uint64_t)16 << 20)
/* A resume of fewer bytes is not on demand: they are copied before anybody would notice. */
#define ON_DEMAND_FROM ((uint64_t)256 << 20)

/* The roots of one context with bytes that the target lacks; each is held. */
struct roots {
    struct memory **roots;
    uint64_t *versions;
    size_t count;
    uint64_t bytes;
    uint8_t from; /* index of the residence that they are read from */
};

static bool move_copy_takes_one_thread(const struct context *context, uint8_t residence_index)
{
    return residence_index != RESIDENCE_HOST && context->at[residence_index]->runs_in_caller;
}

static bool move_copy_is_in_place(const struct context *context, uint8_t residence_index)
{
    return residence_index == RESIDENCE_HOST || context->at[residence_index]->in_place;
}

/* True when nothing can be copied ahead: source and target work on the same host bytes, or a driver
 * that runs commands in the calling thread would be used by the copies and the program at once. */
static bool move_copy_nothing_ahead(const struct move_context *entry, uint8_t from)
{
    const struct context *context = entry->context;
    if (move_copy_takes_one_thread(context, from) || move_copy_takes_one_thread(context, entry->to))
        return true;
    return move_copy_is_in_place(context, from) && move_copy_is_in_place(context, entry->to);
}

/* True when content is fetched after COMMIT. */
static bool move_copy_waits(const struct move *move, const struct move_context *entry)
{
    return move->on_demand && !move_copy_nothing_ahead(entry, entry->from);
}

/* Iterates over the residences that content of @entry is read from: the source of the move, then
 * sources that the virtual device left on demand, unless content is fetched after COMMIT. *@cursor
 * is 0 at first. RESIDENCE_NONE: no more. */
static uint8_t move_copy_next_origin(const struct move *move, const struct move_context *entry,
                                     unsigned *cursor)
{
    uint64_t left =
        move_copy_waits(move, entry) ? 0 : source_residences(move->vdev, entry->context);
    unsigned at = (*cursor)++;
    if (at == 0)
        return entry->from;
    for (; at <= entry->context->residences; at = (*cursor)++)
        if (at - 1 != entry->to && (left >> (at - 1)) & 1)
            return (uint8_t)(at - 1);
    return RESIDENCE_NONE;
}

static void move_copy_roots_finish(struct roots *roots)
{
    for (size_t i = 0; i < roots->count; i++) {
        extents_unwatch(roots->roots[i]);
        atomic_store(&roots->roots[i]->collected, false);
        object_unhold(roots->roots[i]);
    }
    free(roots->roots);
    free(roots->versions);
}

static int move_copy_roots_push(struct roots *roots, struct memory *root, bool ahead)
{
    if (!array_make_room(&roots->roots, roots->count, sizeof(root)) ||
        !array_make_room(&roots->versions, roots->count, sizeof(roots->versions[0])))
        return -ENOMEM;
    object_hold(root);
    atomic_store(&root->collected, true);
    roots->versions[roots->count] = ahead ? extents_watch(root) : atomic_load(&root->version);
    roots->roots[roots->count++] = root;
    return 0;
}

/* True when @memory exists in the target and copying to it does not write memory of the program,
 * which only the program's commands may do (L4). */
static bool move_copy_can_arrive(const struct move_context *entry, const struct memory *memory)
{
    return memory->real[entry->to] && !memory_would_write(memory, entry->to);
}

/* True when no virtual device stays in @from, which is the source of this move or of an earlier one
 * on demand. */
static bool move_copy_is_left(const struct move_context *entry, uint8_t from)
{
    return entry->leaves || from != entry->from;
}

/* Counts bytes of @memory to be read from @from. */
typedef uint64_t (*counter)(const struct move_context *entry, const struct memory *memory,
                            uint8_t from);

/*
 * Bytes that go to the target. What another virtual device wrote last stays in that one's
 * residence, and a command that needs it brings it (R2).
 */
static uint64_t move_copy_goes_along(const struct move_context *entry, const struct memory *memory,
                                     uint8_t from)
{
    return (entry->to == RESIDENCE_HOST ? move_copy_is_left(entry, from)
                                        : move_copy_can_arrive(entry, memory))
               ? replica_lacking(memory, from, entry->to)
               : 0;
}

/* Bytes that do not fit in the target and that only the source has: they go to host memory. */
static uint64_t move_copy_stays_in_host(const struct move_context *entry,
                                        const struct memory *memory, uint8_t from)
{
    return entry->to != RESIDENCE_HOST && move_copy_is_left(entry, from) &&
                   !move_copy_can_arrive(entry, memory)
               ? replica_lacking(memory, from, RESIDENCE_HOST)
               : 0;
}

/* True for content that cannot be fetched later: a mapping changes without a command, and SVM has
 * no other memory. */
static bool move_copy_is_urgent(const struct memory *memory)
{
    return map_any(memory->root) || memory->uses_svm;
}

static uint64_t move_copy_goes_at_once(const struct move_context *entry,
                                       const struct memory *memory, uint8_t from)
{
    return move_copy_is_urgent(memory) ? move_copy_goes_along(entry, memory, from) : 0;
}

static uint64_t move_copy_stays_in_host_at_once(const struct move_context *entry,
                                                const struct memory *memory, uint8_t from)
{
    return move_copy_is_urgent(memory) ? move_copy_stays_in_host(entry, memory, from) : 0;
}

/* Bytes to be copied to host memory where the source works in place: most of them are there
 * already. */
static uint64_t move_copy_goes_to_host(const struct move_context *entry,
                                       const struct memory *memory, uint8_t from)
{
    return move_copy_is_left(entry, from) ? replica_lacking(memory, from, RESIDENCE_HOST) : 0;
}

/*
 * Collect the roots with bytes to copy, as @count counts them. Gate closed, so that each version
 * that is read includes all commands given so far.
 *
 * @ahead  The program runs while they are copied.
 */
static int move_copy_roots_collect(const struct move_context *entry, uint8_t from, counter count,
                                   bool ahead, struct roots *ret_roots)
{
    struct roots roots = {.from = move_source(entry, from)};
    uintptr_t cursor = 0;
    struct memory *memory;
    int error = 0;
    while (error == 0 && (memory = object_next(OBJECT_MEMORY, &cursor))) {
        bool own = memory->context == entry->context && memory->root == memory;
        uint64_t bytes = own ? count(entry, memory, roots.from) : 0;
        if (bytes != 0)
            error = move_copy_roots_push(&roots, memory, ahead);
        roots.bytes += bytes;
        object_unhold(memory);
    }
    if (error == 0)
        *ret_roots = roots;
    else
        move_copy_roots_finish(&roots);
    return error;
}

/* True when fresh host pages are needed for some of the roots. */
static bool move_copy_take_fresh(const struct roots *roots)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < roots->count; i++)
        bytes += memory_host_need(roots->roots[i]);
    return bytes > pages_warm();
}

/* True when the running program's commands may bring bytes from the same sources, or to the
 * residences in use, during the copies. */
static bool move_copy_is_shared(const struct move *move, const struct move_context *entry)
{
    return entry->returns || source_residences(move->vdev, entry->context) != 0;
}

/* -ENODEV: the residence to read from was lost meanwhile; collect again. */
static int move_copy_refresh(struct move *move, const struct move_context *entry, uint8_t to,
                             const struct roots *roots, bool quiet)
{
    uint8_t from = roots->from;
    struct transfer_limits limits = move->limits;
    limits.throttle =
        quiet ? NULL : &move->throttle; /* the bandwidth limit does not apply in a pause */
    limits.series = &move->series;
    limits.fresh = move_copy_take_fresh(roots);
    move->series.total = roots->bytes;
    int error = 0;
    bool shared = !quiet && move_copy_is_shared(move, entry);
    uint64_t slice = shared ? SLICE_SHARED : SLICE;
    for (size_t at = 0; error == 0 && at < roots->count;) {
        size_t count = 0;
        for (uint64_t bytes = 0; at + count < roots->count && (count == 0 || bytes < slice);
             count++)
            bytes += roots->roots[at + count]->size;
        struct replica_batch batch = {
            .context = entry->context,
            .from = from,
            .to = to,
            .quiet = quiet,
            .roots = roots->roots + at,
            .versions = quiet ? NULL : roots->versions + at,
            .count = count,
            .limits = &limits,
        };
        uint64_t bytes = 0, copied = 0, same = 0;
        cl_int reason = CL_SUCCESS;
        batch.copied = &copied;
        batch.shared = &same;
        if (shared)
            budget_copy_begin();
        error = replica_refresh(&batch, &bytes, &reason);
        if (shared)
            budget_copy_end();
        if (error == -EIO && from != RESIDENCE_HOST &&
            residence_failed(entry->context->at[from], reason))
            return -ENODEV;
        if (error == -EIO)
            error = move_fail(move, error, "copying failed (OpenCL error %d)", reason);
        if (error == 0) {
            move->refreshed += copied;
            move->report->bytes += copied > same ? copied - same : 0;
        }
        at += count;
        move_tell(move);
    }
    return error;
}

/* One round over one context while the program runs: a copy counts only if nobody wrote the object
 * meanwhile. */
static int move_copy_ahead_round(struct move *move, const struct move_context *entry, uint8_t from,
                                 uint64_t least, uint64_t *ret_ns)
{
    struct roots roots = {0};
    struct move_markers markers = {0};
    int error = move_close_gate(move);
    if (error != 0)
        return error;
    uint64_t closed = clock_now_ns();
    error = move_copy_roots_collect(entry, from, move_copy_goes_along, true, &roots);
    bool goes = error == 0 && roots.bytes != 0 && roots.bytes >= least;
    if (goes)
        error = move_markers_put(move, &markers);
    gate_open();
    move->report->downtime_ns += clock_now_ns() - closed;
    if (error == 0 && goes) {
        move->total += roots.bytes;
        error = move_markers_await(move, &markers);
        uint64_t began = clock_now_ns(), slept = move->throttle.slept_ns;
        if (error == 0)
            error = move_copy_refresh(move, entry, entry->to, &roots, false);
        *ret_ns += clock_now_ns() - began - (move->throttle.slept_ns - slept);
    }
    move_markers_finish(&markers);
    move_copy_roots_finish(&roots);
    return error == -ENODEV ? 0 : error;
}

int move_copy_round(struct move *move, uint64_t least, uint64_t *ret_bytes, uint64_t *ret_ns)
{
    uint64_t before = move->refreshed;
    int error = 0;
    *ret_ns = 0;
    for (size_t i = 0; error == 0 && i < move->context_count; i++) {
        const struct move_context *entry = &move->contexts[i];
        unsigned cursor = 0;
        uint8_t from;
        while (error == 0 && (from = move_copy_next_origin(move, entry, &cursor)) != RESIDENCE_NONE)
            if (!move_copy_nothing_ahead(entry, from))
                error = move_copy_ahead_round(move, entry, from, least, ret_ns);
    }
    *ret_bytes = move->refreshed - before;
    return error;
}

uint64_t move_left(const struct move *move)
{
    uint64_t bytes = 0;
    uintptr_t cursor = 0;
    struct memory *memory;
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory)) {
        size_t i = 0;
        while (i < move->context_count && move->contexts[i].context != memory->context)
            i++;
        if (i == move->context_count || memory->root != memory)
            continue;
        const struct move_context *entry = &move->contexts[i];
        unsigned next = 0;
        uint8_t from;
        while ((from = move_copy_next_origin(move, entry, &next)) != RESIDENCE_NONE) {
            if (move_copy_nothing_ahead(entry, from) ||
                (move_copy_waits(move, entry) && !move_copy_is_urgent(memory)))
                continue;
            from = move_source(entry, from);
            if (move_copy_goes_along(entry, memory, from) != 0)
                bytes += replica_differing(memory, from, entry->to);
            bytes += move_copy_stays_in_host(entry, memory, from);
        }
    }
    return bytes;
}

bool move_is_on_demand(const struct move *move)
{
    switch (move->target ? move->request->fetch : MOVE_FETCH_WHOLE) {
    case MOVE_FETCH_ON_DEMAND:
        return true;
    case MOVE_FETCH_WHOLE:
        return false;
    case MOVE_FETCH_AUTO:
        break;
    }
    return move->resumes && (move->on_demand || move_left(move) >= ON_DEMAND_FROM);
}

static bool move_copy_has_arrival(const struct object_class *class)
{
    return class->arrive != NULL;
}

static int move_copy_arrive(struct move *move, const struct object_class *class,
                            struct object *object, struct move_context *entry)
{
    cl_int error = class->arrive(object, entry);
    return error == CL_SUCCESS ? 0
                               : move_fail_object(move, class, object, entry, "made ready", error);
}

/* Set kernel arguments, and map what the program has mapped. */
static int move_copy_arrive_all(struct move *move)
{
    static const struct move_walk all = {.takes = move_copy_has_arrival, .act = move_copy_arrive};
    int error = move->target ? move_walk(move, &all) : 0;
    for (size_t i = 0; error == 0 && i < move->context_count; i++) {
        const struct move_context *entry = &move->contexts[i];
        struct residence *to = move_carries_maps(entry) ? entry->context->at[entry->to] : NULL;
        cl_int failed = to ? residence_await_queue(to, to->io) : CL_SUCCESS;
        if (failed != CL_SUCCESS)
            error = move_fail(move, -EIO, "%s does not map what is mapped (OpenCL error %d)",
                              device_name(move->target), failed);
    }
    return error;
}

static int move_copy_group(struct move *move, const struct move_context *entry, uint8_t from,
                           uint8_t to, counter count)
{
    int error;
    do {
        struct roots roots = {0};
        error = move_copy_roots_collect(entry, from, count, false, &roots);
        if (error == 0) {
            move->total += roots.bytes;
            error = move_copy_refresh(move, entry, to, &roots, true);
        }
        move_copy_roots_finish(&roots);
    } while (error == -ENODEV);
    return error;
}

/* Copy everything that is at @from. */
static int move_copy_all(struct move *move, const struct move_context *entry, uint8_t from)
{
    int error = move_copy_group(move, entry, from, entry->to, move_copy_goes_along);
    return error == 0 ? move_copy_group(move, entry, from, RESIDENCE_HOST, move_copy_stays_in_host)
                      : error;
}

/* Copy only what cannot be fetched later. The rest stays where it is: in host memory, or in the
 * source, unless that is lost (nothing can be fetched from it) or works in place (its bytes are in
 * host memory anyway). */
static int move_copy_urgent(struct move *move, struct move_context *entry)
{
    bool healthy = entry->from != RESIDENCE_HOST && move_source(entry, entry->from) == entry->from;
    bool in_place = move_copy_is_in_place(entry->context, entry->from);
    int error = move_copy_group(move, entry, entry->from, entry->to, move_copy_goes_at_once);
    if (error == 0)
        error = move_copy_group(move, entry, entry->from, RESIDENCE_HOST,
                                move_copy_stays_in_host_at_once);
    if (error == 0 && healthy && in_place)
        error = move_copy_group(move, entry, entry->from, RESIDENCE_HOST, move_copy_goes_to_host);
    entry->stays = healthy && entry->leaves && !in_place;
    return error;
}

int move_copy_rest(struct move *move)
{
    int error = 0;
    for (size_t i = 0; error == 0 && i < move->context_count; i++) {
        struct move_context *entry = &move->contexts[i];
        unsigned cursor = 0;
        uint8_t from;
        if (move_copy_waits(move, entry)) {
            error = move_copy_urgent(move, entry);
            continue;
        }
        while (error == 0 && (from = move_copy_next_origin(move, entry, &cursor)) != RESIDENCE_NONE)
            error = move_copy_all(move, entry, from);
    }
    return error;
}

int move_arrive(struct move *move)
{
    int error = move_copy_arrive_all(move);
    /* The source may have been lost meanwhile. */
    if (error == 0)
        error = move_check_survivors(move);
    return error == 0 ? move_check(move) : error;
}

static uint64_t move_copy_is_only_there(const struct move_context *entry,
                                        const struct memory *memory, uint8_t from)
{
    (void)from;
    return memory_only_at(memory, entry->to);
}

/* Copy to host memory what only the target has. Gate closed. */
static int move_copy_save(const struct move_context *entry)
{
    struct roots roots = {0};
    uint64_t bytes;
    cl_int reason = CL_SUCCESS;
    int error = move_copy_roots_collect(entry, entry->from, move_copy_is_only_there, false, &roots);
    struct replica_batch batch = {.context = entry->context,
                                  .from = entry->to,
                                  .to = RESIDENCE_HOST,
                                  .quiet = true,
                                  .roots = roots.roots,
                                  .count = roots.count};
    if (error == 0)
        error = replica_refresh(&batch, &bytes, &reason);
    if (error == -EIO)
        (void)residence_failed(entry->context->at[entry->to], reason);
    move_copy_roots_finish(&roots);
    return error;
}

int move_rescue(struct move *move, int error)
{
    bool lost = false;
    for (size_t i = 0; i < move->context_count; i++) {
        struct move_context *entry = &move->contexts[i];
        /* Only a target that replaces a lost source can have bytes that nothing else has. */
        if (!entry->made || entry->returns || move_source(entry, entry->from) == entry->from)
            continue;
        struct residence *to = entry->context->at[entry->to];
        /* With a limit, because a thread may be inside a call of the lost device's driver. */
        uint64_t closed = clock_now_ns();
        int failed = gate_close(closed + lost_answer_ns);
        if (failed == 0) {
            failed = move_copy_save(entry);
            gate_open();
        }
        move->report->downtime_ns += clock_now_ns() - closed;
        lost = lost || (failed != 0 && residence_is_lost(to));
        if (failed == 0 || residence_is_lost(to))
            continue;
        log_warn("cannot copy to host memory what only %s has (%s): the context stays on it",
                 device_name(to->device), strerror(-failed));
        residence_lives(to, RESIDENCE_LIVE);
        entry->made = false;
    }
    if (!lost)
        return error;
    move->report->reason[0] = '\0';
    int refused = move_check_survivors(move);
    return refused != 0 ? refused : error;
}
