#include "state/move/placement.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/memory/pages.h"
#include "state/base/threads/thread.h"
#include "state/budget/budget.h"
#include "state/command/parts.h"
#include "state/command/place.h"
#include "state/memory/compare.h"
#include "state/memory/mapping.h"
#include "state/memory/merge.h"
#include "state/memory/replica.h"
#include "state/object/lost.h"
#include "state/program/pace.h"

#define IDLE_NS (NS_PER_S)
#define LOOK_NS (2 * NS_PER_MS)

struct worker {
    uint32_t helper;
    struct device *device;
    struct vdev *vdev;
    pthread_t thread;
    bool started;
    atomic_bool stale;           /* a program is not built there */
    struct residence *residence; /* of `queue`; held */
    cl_command_queue queue;
};

/* One launch. */
struct placing {
    struct worker *worker;
    struct placed placed;
    struct context *context;
    uint8_t home, there;
    uint64_t bytes, copy_ns;
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
    p->bytes += error == 0 ? bytes : 0;
    p->copy_ns += clock_now_ns() - begun;
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
    for (p->there = 0;
         p->there < RESIDENCES_MAX && atomic_load(&p->context->ready[p->there]) != worker->device;)
        p->there++;
    if (p->home == RESIDENCE_NONE || p->there == RESIDENCES_MAX || pin_reason(worker->vdev))
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

/* Copy @range of @root between the helper or home, the other end, and @host. The gate may be open:
 * no command but this one uses the root. */
static int placement_transfer(struct placing *p, struct memory *root, struct range range,
                              char *host, bool down)
{
    struct residence *end = p->context->at[down ? p->there : p->home];
    const struct transfer_limits limits = {0};
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
    p->bytes += size;
    p->copy_ns += clock_now_ns() - begun;
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

/* Bring the results home. 0, or an error: home is as it was. *ret_failed: home failed, and has some
 * of the results. */
static int placement_bring_home(struct placing *p, int error, bool *ret_failed)
{
    struct memory *memory;
    bool writes;
    unsigned uses = 0, count = 0;
    while (command_use(p->placed.command, &uses, &writes))
        ;
    struct result *results = calloc(uses + 1, sizeof(*results));
    if (error == 0)
        error = results ? placement_fetch(p, results, &count) : -ENOMEM;
    for (unsigned i = 0; error == 0 && !*ret_failed && i < count; i++)
        *ret_failed = placement_store(p, &results[i]) != 0;
    for (unsigned i = 0; (memory = command_use(p->placed.command, &i, &writes));)
        if (writes)
            atomic_store(&memory->root->collected, false);
    placement_results_free(p, results, count);
    return error;
}

static void placement_do(struct worker *worker, const struct placed *placed)
{
    struct placing p = {.worker = worker, .placed = *placed};
    bool failed = false;
    uint64_t run_ns = 0;
    int error = placement_begin(&p);
    if (error == 0) {
        uint64_t begun = clock_now_ns();
        error = placement_wait(&p);
        run_ns = error == 0 ? clock_now_ns() - begun : 0;
        error = placement_bring_home(&p, error, &failed);
    }
    if (error != 0) {
        log_info("a launch of kernel %s runs at home, not on %s: %s", placed->pieces->pace->name,
                 device_name(worker->device), strerror(-error));
        if (error == -EIO && worker->residence)
            (void)residence_failed(worker->residence, CL_OUT_OF_RESOURCES);
        if (error == -ENOTSUP)
            atomic_store(&worker->stale, true);
    }
    if (failed)
        parts_close(placed->event->parts, CL_OUT_OF_RESOURCES);
    pthread_mutex_lock(&engine_lock);
    p.placed.event->parts->sharers--; /* the queue still holds it */
    pthread_mutex_unlock(&engine_lock);
    place_ended(worker->helper, &p.placed, error == 0, run_ns, p.bytes, p.copy_ns);
    /* The command may be gone once its parts are closed. */
    if (error == 0)
        parts_close(placed->event->parts, CL_SUCCESS);
    defer_pump_soon();
    object_unhold(placed->event);
    object_unhold(placed->queue);
}

static void *placement_thread(void *data)
{
    struct worker *worker = data;
    struct placed placed;
    while (place_await(worker->helper, &placed))
        placement_do(worker, &placed);
    if (worker->queue)
        worker->residence->cl->clReleaseCommandQueue(worker->queue);
    residence_unref(worker->residence);
    return NULL;
}

/* Devices that all offered residences of the program's contexts are on. */
static uint32_t placement_devices(const struct spread_request *request, struct device **ret_devices)
{
    uintptr_t cursor = 0;
    struct context *context;
    uint32_t count = 0;
    for (; (context = object_next(OBJECT_CONTEXT, &cursor)); object_unhold(context))
        for (uint8_t i = 0; i < RESIDENCES_MAX; i++) {
            struct device *device = atomic_load(&context->ready[i]);
            uint32_t same = 0;
            if (!device || !request->offers(request->data, context, i))
                continue;
            while (same < count && ret_devices[same] != device)
                same++;
            if (same == count && count < PLACE_HELPERS)
                ret_devices[count++] = device;
        }
    return count;
}

int placement_run(const struct spread_request *request)
{
    struct device *devices[PLACE_HELPERS];
    struct worker workers[PLACE_HELPERS] = {{0}};
    uint32_t count = placement_devices(request, devices);
    bool stale = false, started = count != 0;
    place_open(devices, count);
    for (uint32_t i = 0; i < count; i++) {
        workers[i] = (struct worker){.helper = i, .device = devices[i], .vdev = request->vdev};
        workers[i].started =
            thread_start("reseat-place", 0, placement_thread, &workers[i], &workers[i].thread) == 0;
        started = started && workers[i].started;
    }
    while (started && !stale && !request->stops(request->data) &&
           clock_now_ns() - place_last_ns() < IDLE_NS) {
        clock_sleep(LOOK_NS);
        for (uint32_t i = 0; i < count; i++)
            stale = stale || atomic_load(&workers[i].stale);
    }
    place_close(0);
    defer_pump_soon();
    for (uint32_t i = 0; i < count; i++)
        if (workers[i].started)
            (void)pthread_join(workers[i].thread, NULL);
        else
            (void)placement_thread(&workers[i]); /* runs what it was given meanwhile */
    return stale ? -ENOTSUP : 0;
}
