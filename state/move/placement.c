#include "state/move/spread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/memory/pages.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/work.h"
#include "state/budget/budget.h"
#include "state/command/parts.h"
#include "state/command/place.h"
#include "state/memory/compare.h"
#include "state/memory/mapping.h"
#include "state/memory/merge.h"
#include "state/memory/replica.h"
#include "state/move/move_priv.h"
#include "state/object/lost.h"
#include "state/program/pace.h"

#define IDLE_NS (NS_PER_S)
#define LOOK_NS (2 * NS_PER_MS)
/* Once the session is to end, how much longer than home a helper may take for its launch. */
#define END_NS (100 * NS_PER_MS)

struct worker {
    uint32_t helper;
    struct device *device;
    pthread_t thread;
    struct residence *residence; /* of `queue`; held */
    cl_command_queue queue;
    /* Guarded by engine_lock. */
    bool stale;     /* a program is not built there */
    bool ended;     /* its thread has */
    bool abandoned; /* its launch was given back; its thread ends, and frees it, when the driver's
                       launch has ended */
    const struct placing *waits; /* for the driver's launch, since `since_ns`; or NULL */
    uint64_t since_ns;
};

/* One launch. */
struct placing {
    struct worker *worker;
    struct placed placed;
    struct context *context;
    uint8_t home, there;
    cl_event event;
};

static struct range placement_range(const struct placing *p, unsigned cursor,
                                    const struct memory *memory)
{
    return command_range(p->placed.command, cursor - 1, memory);
}

static int placement_copy(struct placing *p, struct memory *root, struct range range, uint8_t from,
                          uint8_t to)
{
    const struct replica_batch batch = {.context = p->context,
                                        .from = from,
                                        .to = to,
                                        .quiet = true,
                                        .roots = &root,
                                        .ranges = &range,
                                        .count = 1};
    uint64_t bytes = 0, begun = clock_now_ns();
    cl_int reason;
    int error = replica_refresh(&batch, &bytes, &reason);
    if (error == 0 && bytes != 0)
        place_copied(p->worker->helper, PLACE_INPUT, bytes, clock_now_ns() - begun);
    return error == 0 && !replica_has(root, to, range) ? -EBUSY : error;
}

/* Gate closed. */
static int placement_bring(struct placing *p, struct memory *memory, bool writes,
                           struct range range)
{
    struct memory *root = memory->root;
    if (map_any(root) || !memory->real[p->home] || !replica_has(root, p->home, range))
        return -EBUSY;
    /* A helper that is lost would leave such bytes torn. */
    if (writes &&
        (memory_works_in_host_copy(root, p->home) || merge_is_shared(root, p->home, p->there)))
        return -ENOTSUP;
    map_visit_await(root);
    if (memory_make_real(memory, p->worker->residence, p->there) != CL_SUCCESS)
        return -ENOSPC;
    return replica_has(root, p->there, range) ? 0
                                              : placement_copy(p, root, range, p->home, p->there);
}

static int placement_issue(struct placing *p)
{
    struct command *command = p->placed.command;
    struct residence *residence = p->worker->residence;
    if (command->ops->ready(command, residence, p->there) != CL_SUCCESS)
        return -ENOTSUP;
    if (command->ops->exceeds(command, residence, p->there))
        return -E2BIG;
    cl_int error =
        command->ops->issue(command, residence, p->there, p->worker->queue, 0, NULL, &p->event);
    if (error != CL_SUCCESS)
        return -EIO;
    residence_flush(residence, p->worker->queue);
    return 0;
}

/* Gate closed. */
static int placement_find(struct placing *p)
{
    struct worker *worker = p->worker;
    const struct queue *queue = p->placed.queue;
    cl_int error;
    p->context = queue->context;
    p->home = atomic_load(&p->context->residence_index[queue->vdev_index]);
    for (p->there = 0; p->there < p->context->residences &&
                       atomic_load(&p->context->ready[p->there]) != worker->device;)
        p->there++;
    if (p->home == RESIDENCE_NONE || p->there == p->context->residences || pin_reason(queue->vdev))
        return -ENOTSUP;
    struct residence *residence = p->context->at[p->there];
    if (residence_is_lost(residence))
        return -ENOTSUP;
    if (residence->runs_in_caller || residence->runs_at_once)
        return -ENODEV; /* a launch there would not run beside others */
    if (worker->residence == residence)
        return 0;
    if (worker->queue)
        worker->residence->cl->clReleaseCommandQueue(worker->queue);
    residence_unref(worker->residence);
    residence_ref(residence);
    worker->residence = residence;
    worker->queue =
        residence->cl->clCreateCommandQueue(residence->context, residence->device->id, 0, &error);
    return worker->queue ? 0 : -EIO;
}

static int placement_begin(struct placing *p)
{
    struct memory *memory;
    bool writes;
    int error = gate_close(0);
    if (error != 0)
        return error;
    budget_copy_begin();
    error = placement_find(p);
    for (unsigned i = 0; error == 0 && (memory = command_use(p->placed.command, &i, &writes));)
        error = placement_bring(p, memory, writes, placement_range(p, i, memory));
    if (error == 0)
        error = placement_issue(p);
    for (unsigned i = 0; error == 0 && (memory = command_use(p->placed.command, &i, &writes));)
        if (writes) {
            /* What the helper has is no version of it yet. */
            compare_forget_at(memory->root, p->there);
            atomic_store(&memory->root->collected, true);
            replica_written(memory->root, p->home, placement_range(p, i, memory));
        }
    budget_copy_end();
    gate_open();
    return error;
}

static int placement_wait(struct placing *p)
{
    struct residence *residence = p->worker->residence;
    cl_int status = CL_COMPLETE, error = residence_await_events(residence, 1, &p->event);
    cl_int asked = residence->cl->clGetEventInfo(p->event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                                 sizeof(status), &status, NULL);
    residence->cl->clReleaseEvent(p->event);
    return error == CL_SUCCESS && asked == CL_SUCCESS && status == CL_COMPLETE ? 0 : -EIO;
}

/* -ECANCELED: the launch was given back meanwhile, and is not this thread's any more. */
static int placement_await(struct placing *p, uint64_t *ret_run_ns)
{
    struct worker *worker = p->worker;
    uint64_t begun = clock_now_ns();
    pthread_mutex_lock(&engine_lock);
    worker->waits = p;
    worker->since_ns = begun;
    pthread_mutex_unlock(&engine_lock);
    int error = placement_wait(p);
    *ret_run_ns = error == 0 ? clock_now_ns() - begun : 0;
    pthread_mutex_lock(&engine_lock);
    worker->waits = NULL;
    bool abandoned = worker->abandoned;
    pthread_mutex_unlock(&engine_lock);
    return abandoned ? -ECANCELED : error;
}

/* Copy @range of @root between the helper or home, the other end, and @host. The gate may be open:
 * no command but this one uses the root. */
static int placement_transfer(struct placing *p, struct memory *root, struct range range,
                              char *host, bool down)
{
    struct residence *end = p->context->at[down ? p->there : p->home];
    const struct transfer_limits limits = {.deadline_ns =
                                               down ? clock_now_ns() + p->placed.patience_ns : 0};
    struct transfer *transfer = NULL;
    uint64_t size = range.end - range.begin, begun = clock_now_ns();
    const struct transfer_item item = {.from = down ? root->real[p->there] : NULL,
                                       .to = down ? NULL : root->real[p->home],
                                       .host = host - range.begin,
                                       .offset = range.begin,
                                       .size = size};
    budget_copy_begin();
    int error = transfer_create(down ? end : NULL, down ? NULL : end, size, &limits, &transfer);
    if (error == 0)
        error = transfer_add(transfer, &item);
    int flushed = transfer ? transfer_flush(transfer) : 0;
    error = error != 0 ? error : flushed;
    if (error == -EIO)
        (void)residence_failed(end, transfer_error(transfer));
    transfer_destroy(transfer);
    budget_copy_end();
    if (error == 0 || error == -ETIMEDOUT)
        place_copied(p->worker->helper, down ? PLACE_FETCH : PLACE_STORE, size,
                     clock_now_ns() - begun);
    return error;
}

/* Where the results of a launch wait in host memory. */
struct result {
    struct memory *root;
    struct range range;
    char *host; /* owned */
};

static void placement_results_free(const struct placing *p, struct result *results, unsigned count)
{
    /* A lost device's driver may still use the host memory that it was given. */
    bool lost =
        residence_is_lost(p->context->at[p->home]) || residence_is_lost(p->worker->residence);
    for (unsigned i = 0; i < count && !lost; i++)
        pages_give(results[i].host, results[i].range.end - results[i].range.begin);
    free(results);
}

/* All results come to host memory first, as the helper may be lost in the middle. */
static int placement_fetch(struct placing *p, struct result *results, unsigned *count)
{
    struct memory *memory;
    bool writes;
    int error = 0;
    for (unsigned i = 0; error == 0 && (memory = command_use(p->placed.command, &i, &writes));) {
        struct range range = placement_range(p, i, memory);
        if (!writes || range.begin == range.end)
            continue;
        char *host = pages_take(range.end - range.begin, PAGES_ANY);
        if (!host)
            return -ENOMEM;
        results[(*count)++] = (struct result){memory->root, range, host};
        error = placement_transfer(p, memory->root, range, host, true);
    }
    return error;
}

/* Home's bytes are a new version, which the helper has, too. */
static int placement_store(struct placing *p, const struct result *result)
{
    struct memory *root = result->root;
    int error = placement_transfer(p, root, result->range, result->host, false);
    compare_forget(root);
    gate_enter();
    replica_written(root, p->home, result->range);
    if (error == 0)
        extents_refreshed(root, p->there, result->range, atomic_load(&root->version));
    gate_leave();
    extents_settle(root);
    return error;
}

/* What it writes may be spilled again. */
static void placement_release_roots(const struct placing *p)
{
    struct memory *memory;
    bool writes;
    for (unsigned i = 0; (memory = command_use(p->placed.command, &i, &writes));)
        if (writes)
            atomic_store(&memory->root->collected, false);
}

/* Bring the results home. 0, or an error: home is as it was. *ret_failed: home failed, and has some
 * of the results. */
static int placement_bring_home(struct placing *p, int error, bool *ret_failed)
{
    bool writes;
    unsigned uses = 0, count = 0;
    while (command_use(p->placed.command, &uses, &writes))
        ;
    struct result *results = calloc(uses + 1, sizeof(*results));
    if (error == 0)
        error = results ? placement_fetch(p, results, &count) : -ENOMEM;
    for (unsigned i = 0; error == 0 && !*ret_failed && i < count; i++)
        *ret_failed = placement_store(p, &results[i]) != 0;
    placement_release_roots(p);
    placement_results_free(p, results, count);
    return error;
}

/* The launch has ended, or is given back. @failed: home failed, and the launch with it. */
static void placement_end(struct placing *p, int error, bool failed, uint64_t run_ns)
{
    struct parts *parts = p->placed.event->parts;
    if (error != 0)
        log_info("a launch of kernel %s runs at home, not on %s: %s", p->placed.pieces->pace->name,
                 device_name(p->worker->device), strerror(-error));
    if (failed)
        parts_close(parts, CL_OUT_OF_RESOURCES);
    pthread_mutex_lock(&engine_lock);
    parts->sharers--; /* the queue still holds it */
    pthread_mutex_unlock(&engine_lock);
    place_ended(p->worker->helper, &p->placed, error == 0, run_ns);
    /* The command may be gone once its parts are closed. */
    if (error == 0)
        parts_close(parts, CL_SUCCESS);
    defer_pump_soon();
    object_unhold(p->placed.event);
    object_unhold(p->placed.queue);
}

static void placement_do(struct worker *worker, const struct placed *placed)
{
    struct placing p = {.worker = worker, .placed = *placed};
    bool failed = false;
    uint64_t run_ns = 0;
    int error = placement_begin(&p);
    if (error == 0) {
        error = placement_await(&p, &run_ns);
        if (error == -ECANCELED)
            return;
        error = placement_bring_home(&p, error, &failed);
    }
    if (error == -EIO && worker->residence)
        (void)residence_failed(worker->residence, CL_OUT_OF_RESOURCES);
    if (error == -ENOTSUP) {
        pthread_mutex_lock(&engine_lock);
        worker->stale = true;
        pthread_mutex_unlock(&engine_lock);
    }
    placement_end(&p, error, failed, run_ns);
}

static bool placement_is_abandoned(struct worker *worker)
{
    pthread_mutex_lock(&engine_lock);
    bool abandoned = worker->abandoned;
    pthread_mutex_unlock(&engine_lock);
    return abandoned;
}

static void *placement_thread(void *data)
{
    struct worker *worker = data;
    struct placed placed;
    (void)work_begin();
    while (!placement_is_abandoned(worker) && place_await(worker->helper, &placed))
        placement_do(worker, &placed);
    if (worker->queue)
        worker->residence->cl->clReleaseCommandQueue(worker->queue);
    residence_unref(worker->residence);
    work_end();
    pthread_mutex_lock(&engine_lock);
    worker->ended = true;
    bool abandoned = worker->abandoned;
    pthread_mutex_unlock(&engine_lock);
    if (abandoned)
        free(worker);
    return NULL;
}

/* What copies are likely to take of what a helper in @there computes. */
static void placement_copies(const struct context *context, uint8_t there,
                             struct cost_stage ret_copies[PLACE_COPIES])
{
    uint8_t home = context_home(context);
    struct link_figures from, to;
    transfer_link(context->at[there], &to);
    transfer_link(context->at[home < context->residences ? home : there], &from);
    ret_copies[PLACE_INPUT] = to.write;
    ret_copies[PLACE_INPUT].setup += from.read.setup;
    if (from.read.bandwidth < to.write.bandwidth)
        ret_copies[PLACE_INPUT].bandwidth = from.read.bandwidth;
    ret_copies[PLACE_FETCH] = to.read;
    ret_copies[PLACE_STORE] = from.write;
}

/* Devices that all offered residences of the program's contexts are on. */
static uint32_t placement_devices(const struct spread_request *request, struct device **ret_devices,
                                  struct cost_stage (*ret_copies)[PLACE_COPIES])
{
    uintptr_t cursor = 0;
    struct context *context;
    uint32_t count = 0;
    for (; (context = object_next(OBJECT_CONTEXT, &cursor)); object_unhold(context))
        for (uint8_t i = 0; i < context->residences; i++) {
            struct device *device = atomic_load(&context->ready[i]);
            uint32_t same = 0;
            if (!device || !request->offers(request->data, context, i))
                continue;
            while (same < count && ret_devices[same] != device)
                same++;
            if (same < count || count == PLACE_HELPERS)
                continue;
            placement_copies(context, i, ret_copies[count]);
            ret_devices[count++] = device;
        }
    return count;
}

/* One session. */
struct session {
    struct worker *workers[PLACE_HELPERS]; /* NULL: there is none, or it was... */
    bool abandoned[PLACE_HELPERS];
    struct device *devices[PLACE_HELPERS];
    uint32_t count;
    uint64_t ends_ns; /* since when it is to end; 0: it goes on */
    bool stale;
};

/* Give the launch of @worker back if its driver takes too long; it goes on there, in memory that
 * nobody reads. Returns whether it was. */
static bool placement_give_up(struct worker *worker, uint64_t ends_ns)
{
    struct placing p;
    struct worker seen;
    bool late = false;
    pthread_mutex_lock(&engine_lock);
    uint64_t now = clock_now_ns(); /* since_ns is no later */
    if (worker->waits) {
        p = *worker->waits;
        late = now - worker->since_ns > p.placed.patience_ns ||
               (ends_ns != 0 && now - ends_ns > p.placed.home_ns + END_NS);
    }
    if (late) {
        worker->abandoned = true;
        seen = *worker;
    }
    pthread_mutex_unlock(&engine_lock);
    if (!late)
        return false;
    /* From here on the worker may be gone. */
    (void)pthread_detach(seen.thread);
    p.worker = &seen;
    placement_release_roots(&p);
    placement_end(&p, -ETIMEDOUT, false, now - seen.since_ns);
    return true;
}

/* Look after the workers. Returns whether any is left. */
static bool placement_look(struct session *session)
{
    bool left = false;
    for (uint32_t i = 0; i < session->count; i++) {
        struct worker *worker = session->workers[i];
        if (!worker)
            continue;
        pthread_mutex_lock(&engine_lock);
        bool ended = worker->ended;
        session->stale = session->stale || worker->stale;
        pthread_mutex_unlock(&engine_lock);
        left = left || !ended;
        if (ended || !placement_give_up(worker, session->ends_ns))
            continue;
        session->workers[i] = NULL;
        session->abandoned[i] = true;
        session->ends_ns = session->ends_ns ? session->ends_ns : clock_now_ns();
    }
    return left;
}

/* False: without memory or a thread. */
static bool placement_start(struct session *session)
{
    bool started = session->count != 0;
    for (uint32_t i = 0; i < session->count; i++) {
        struct worker *worker = started ? calloc(1, sizeof(*worker)) : NULL;
        if (worker)
            *worker = (struct worker){.helper = i, .device = session->devices[i]};
        started = worker &&
                  thread_start("reseat-place", 0, placement_thread, worker, &worker->thread) == 0;
        if (started)
            session->workers[i] = worker;
        else
            free(worker);
    }
    return started;
}

/* Wait for the workers. What an abandoned one had is dropped: its launch still writes there. */
static void placement_finish(struct session *session)
{
    while (placement_look(session))
        clock_sleep(LOOK_NS);
    for (uint32_t i = 0; i < session->count; i++) {
        if (session->workers[i])
            (void)pthread_join(session->workers[i]->thread, NULL);
        if (session->abandoned[i])
            (void)ready_drop(session->devices[i], NULL);
        free(session->workers[i]);
    }
}

int placement_run(const struct spread_request *request)
{
    struct session session = {.stale = false};
    struct cost_stage copies[PLACE_HELPERS][PLACE_COPIES];
    session.count = placement_devices(request, session.devices, copies);
    place_open(session.devices, (const struct cost_stage(*)[PLACE_COPIES])copies, session.count);
    bool started = placement_start(&session);
    if (started)
        place_offer();
    while (started && !session.stale && session.ends_ns == 0 && !request->stops(request->data) &&
           clock_now_ns() - place_last_ns() < IDLE_NS && place_pays()) {
        clock_sleep(LOOK_NS);
        (void)placement_look(&session);
    }
    place_close(0);
    defer_pump_soon();
    session.ends_ns = clock_now_ns();
    placement_finish(&session);
    return session.stale ? -ENOTSUP : 0;
}
