#include "state/move/status.h"

#include <string.h>

#include "state/base/clock.h"
#include "state/base/memory/pages.h"
#include "state/base/threads/work.h"
#include "state/memory/memory.h"
#include "state/move/move_priv.h"
#include "state/move/source.h"
#include "state/move/spread.h"
#include "state/program/program.h"

uint32_t status_vdev_count(void)
{
    return vdevs_count();
}

/* Shortest period whose share of waiting is meaningful. */
#define SHARE_MIN_NS (200 * NS_PER_MS)
/* Bytes a second that are not worth reporting. */
#define SMALL_RATE 100000

/* Smoothed: a quarter of the new measurement counts, rounded to steps that are worth reporting. */
static uint32_t status_busy_of(struct device *device)
{
    struct budget *budget = &device->budget;
    uint32_t busy = atomic_load(&budget->busy);
    uint64_t now = clock_now_ns();
    if (now - atomic_load(&budget->shared) >= SHARE_MIN_NS) {
        busy = (3 * busy + budget_share(budget, now) + 2) / 4;
        atomic_store(&budget->busy, busy);
    }
    return (busy + 25) / 50 * 50;
}

/* Keep two digits: the agent is told of changes only. */
static uint64_t status_rounded(uint64_t bytes)
{
    uint64_t unit = 1;
    while (bytes / unit >= 100)
        unit *= 10;
    return bytes < SMALL_RATE ? 0 : bytes / unit * unit;
}

static void status_read_rates(struct budget *budget, struct vdev_status *status)
{
    uint64_t now = clock_now_ns(), since = atomic_load(&budget->crossed_ns);
    if (now - since >= NS_PER_S) {
        atomic_store(&budget->crossed_ns, now);
        for (unsigned i = 0; i < 2; i++) {
            double bytes = (double)atomic_exchange(&budget->crossed[i], 0);
            double per_s = since ? bytes * NS_PER_S / (double)(now - since) : 0;
            atomic_store(&budget->crossed_s[i], status_rounded((uint64_t)per_s));
        }
    }
    status->from_bytes_s = atomic_load(&budget->crossed_s[0]);
    status->to_bytes_s = atomic_load(&budget->crossed_s[1]);
}

static void status_read_sources(uint32_t vdev, struct vdev_status *status)
{
    struct source sources[SOURCES_MAX];
    status->source_count = source_read(vdev, sources);
    for (uint32_t i = 0; i < status->source_count; i++)
        status->sources[i] = (struct source_status){sources[i].device->key, sources[i].bytes};
}

void status_vdev(uint32_t index, struct vdev_status *ret_status)
{
    struct vdev_status status = {0};
    /* Dropping the last reference releases an object in its driver, and this thread's may be the
     * last. */
    bool goes_on = work_begin();
    if (index < vdevs_count()) {
        struct vdev *vdev = the_vdevs[index];
        struct device *device = atomic_load(&vdev->device);
        status.suspended = device == NULL;
        status.device = (device ? device : atomic_load(&vdev->last))->key;
        status.moving = atomic_load(&vdev->moving);
        status.lost = device && atomic_load(&device->lost);
        status.moves = atomic_load(&vdev->moves);
        status.last_downtime_ns = atomic_load(&vdev->last_downtime_ns);
        status.pinned = pin_reason(vdev);
        fetch_read(index, &status.fetched, &status.to_fetch);
        status_read_sources(index, &status);
        if (goes_on)
            budget_read(index, &status.room);
        if (device && goes_on) {
            status.device_bytes = status.room.held;
            status.busy = status_busy_of(device);
            status_read_rates(&device->budget, &status);
            if (status.room.wanted > status.room.held && budget_is_tight(&device->budget))
                status.spilled_bytes = status.room.wanted - status.room.held;
        }
    }
    status.contexts = object_count(OBJECT_CONTEXT);
    status.queues = object_count(OBJECT_QUEUE);
    status.memories = object_count(OBJECT_MEMORY);
    status.programs = object_count(OBJECT_PROGRAM);
    status.kernels = object_count(OBJECT_KERNEL);
    status.events = object_count(OBJECT_EVENT);
    work_end();
    *ret_status = status;
}

uint64_t status_host_need(void)
{
    uint64_t bytes = 0, most = pages_limit();
    uintptr_t cursor = 0;
    struct memory *memory;
    bool counts = most != 0 && work_begin();
    for (uint32_t i = 0; counts && i < vdevs_count(); i++)
        counts = !atomic_load(&the_vdevs[i]->moving);
    while (counts && bytes < most && (memory = object_next(OBJECT_MEMORY, &cursor))) {
        bytes += memory_host_need(memory);
        object_unhold(memory);
    }
    if (most != 0)
        work_end();
    return bytes;
}

uint32_t status_whole(struct pace_refusal ret_whole[STATUS_WHOLE_MAX])
{
    uint32_t count = 0;
    uintptr_t cursor = 0;
    struct program *program;
    bool goes_on = atomic_load(&pace_slice_ns) != 0 && work_begin();
    while (goes_on && (program = object_next(OBJECT_PROGRAM, &cursor))) {
        count = pace_refusals(program, ret_whole, count, STATUS_WHOLE_MAX);
        object_unhold(program);
    }
    if (atomic_load(&pace_slice_ns) != 0)
        work_end();
    return count;
}

void status_spread(struct spread_status *ret_status)
{
    ret_status->slice_ns = atomic_load(&pace_slice_ns);
    spread_read(&ret_status->launches, &ret_status->items);
    place_read(&ret_status->placed);
    ret_status->launches += ret_status->placed.helped;
    ret_status->items += ret_status->placed.helped_items;
}

static uint8_t status_ready_residence(const struct context *context, const struct device *device)
{
    uint8_t residence_index = 0;
    while (residence_index < context->residences &&
           atomic_load(&context->ready[residence_index]) != device)
        residence_index++;
    return residence_index;
}

/* Index of @device in the list, appended if missing. STATUS_READY_MAX: the list is full. */
static uint32_t status_ready_index(struct device *device, struct device **devices, uint32_t *count)
{
    uint32_t i = 0;
    while (i < *count && devices[i] != device)
        i++;
    if (i == *count && i < STATUS_READY_MAX)
        devices[(*count)++] = device;
    return i;
}

static uint32_t status_ready_devices(struct device **ret_devices)
{
    uint32_t count = 0;
    uintptr_t cursor = 0;
    struct context *context;
    for (; (context = object_next(OBJECT_CONTEXT, &cursor)); object_unhold(context))
        for (uint8_t residence_index = 0; residence_index < context->residences;
             residence_index++) {
            struct device *device = atomic_load(&context->ready[residence_index]);
            if (device && !atomic_load(&device->lost))
                (void)status_ready_index(device, ret_devices, &count);
        }
    return count;
}

/* Programs and contexts that a move to @device would have to make first. */
static uint32_t status_behind_on(const struct device *device)
{
    uint32_t behind = 0;
    uintptr_t cursor = 0;
    struct context *context;
    struct program *program;
    for (; (context = object_next(OBJECT_CONTEXT, &cursor)); object_unhold(context)) {
        bool there = status_ready_residence(context, device) != context->residences;
        for (cl_uint i = 0; i < context->vdev_count; i++)
            there = there || atomic_load(&context->vdevs[i]->device) == device;
        behind += !there;
    }
    cursor = 0;
    for (; (program = object_next(OBJECT_PROGRAM, &cursor)); object_unhold(program)) {
        uint8_t residence_index = status_ready_residence(program->context, device);
        behind += residence_index != program->context->residences &&
                  atomic_load(&program->made[residence_index]) != atomic_load(&program->edition);
    }
    return behind;
}

uint32_t status_ready(struct ready_status ret_ready[STATUS_READY_MAX])
{
    struct device *devices[STATUS_READY_MAX];
    uint32_t count = work_begin() ? status_ready_devices(devices) : 0;
    for (uint32_t i = 0; i < count; i++)
        ret_ready[i] = (struct ready_status){.device = devices[i]->key,
                                             .behind = status_behind_on(devices[i])};
    work_end();
    return count;
}
