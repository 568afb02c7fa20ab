#include "state/move/source.h"

#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/command/command.h"
#include "state/memory/memory.h"

/* Devices that source_read reports, by virtual device. */
static struct device *_Atomic reported[VDEVS][SOURCES_MAX];

/* True for a source of @vdev, which may be lost by now. */
static bool source_is_left_by(const struct context *context, uint8_t residence_index,
                              const struct vdev *vdev)
{
    return context->at[residence_index] && context->at[residence_index]->left_by == vdev;
}

uint64_t source_residences(const struct vdev *vdev, const struct context *context)
{
    uint64_t sources = 0;
    for (uint8_t residence_index = 0; residence_index < context->residences; residence_index++)
        if (source_is_left_by(context, residence_index, vdev) &&
            context_life(context, residence_index) == RESIDENCE_SOURCE)
            sources |= residence_bit(residence_index);
    return sources;
}

/* The next context of @vdev, held. */
static struct context *source_next_context(const struct vdev *vdev, uintptr_t *cursor)
{
    struct context *context;
    while ((context = object_next(OBJECT_CONTEXT, cursor)) && context_vdev_index(context, vdev) < 0)
        object_unhold(context);
    return context;
}

bool source_any(const struct vdev *vdev)
{
    bool has = false;
    uintptr_t cursor = 0;
    struct context *context;
    for (; (context = source_next_context(vdev, &cursor)); object_unhold(context))
        has = has || source_residences(vdev, context) != 0;
    return has;
}

void source_tell(const struct vdev *vdev)
{
    struct device *devices[SOURCES_MAX] = {0};
    size_t count = 0;
    uintptr_t cursor = 0;
    struct context *context;
    for (; (context = source_next_context(vdev, &cursor)); object_unhold(context))
        for (uint8_t residence_index = 0; residence_index < context->residences;
             residence_index++) {
            size_t i = 0;
            if (!source_is_left_by(context, residence_index, vdev))
                continue;
            while (i < count && devices[i] != context->at[residence_index]->device)
                i++;
            if (i == count && count < SOURCES_MAX)
                devices[count++] = context->at[residence_index]->device;
        }
    for (size_t i = 0; i < SOURCES_MAX; i++)
        atomic_store(&reported[vdev->index][i], devices[i]);
}

/* True when a virtual device is on @device, or one with a lower index already reports it. */
static bool source_is_reported(const struct device *device, uint32_t vdev)
{
    bool is = false;
    for (uint32_t i = 0; i < vdevs_count(); i++)
        is = is || atomic_load(&the_vdevs[i]->device) == device;
    for (uint32_t i = 0; i < vdev; i++)
        for (size_t j = 0; j < SOURCES_MAX; j++)
            is = is || atomic_load(&reported[i][j]) == device;
    return is;
}

uint32_t source_read(uint32_t vdev, struct source ret_sources[SOURCES_MAX])
{
    uint32_t count = 0;
    for (size_t i = 0; vdev < VDEVS && i < SOURCES_MAX; i++) {
        struct device *device = atomic_load(&reported[vdev][i]);
        if (device)
            ret_sources[count++] = (struct source){
                device, source_is_reported(device, vdev) ? 0 : atomic_load(&device->budget.held)};
    }
    return count;
}

/* Bytes of @context's objects that only @residence_index has; with RESIDENCE_NONE: that no
 * residence has any more. Gate closed. */
static uint64_t source_only_at(const struct context *context, uint8_t residence_index)
{
    uint64_t bytes = 0;
    uintptr_t cursor = 0;
    struct memory *memory;
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        if (memory->context == context && memory->root == memory)
            bytes += memory_only_at(memory, residence_index);
    return bytes;
}

/* True when some object there uses the program's host memory, which may not be copied to or from
 * while the program runs. */
static bool source_is_over_host(const struct context *context, uint8_t residence_index)
{
    bool over_host = false;
    uintptr_t cursor = 0;
    struct memory *memory;
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        over_host =
            over_host || (memory->context == context && memory_is_backed(memory, residence_index));
    return over_host;
}

/* Release the memory objects of a source: their latest bytes are elsewhere, or were lost with it.
 */
static void source_vacate(struct context *context, uint8_t residence_index)
{
    struct residence *residence = context->at[residence_index];
    struct move_context leaving = {.context = context,
                                   .vdev_index = -1,
                                   .from = residence_index,
                                   .to = RESIDENCE_HOST,
                                   .leaves = true};
    uintptr_t cursor = 0;
    struct memory *memory;
    leaving.drained =
        source_is_over_host(context, residence_index) && queue_drain_siblings(residence);
    if (residence_reserve(residence, object_count(OBJECT_MEMORY)) != 0)
        log_info("objects are released with the program stopped, for want of memory");
    for (; (memory = object_next(OBJECT_MEMORY, &cursor)); object_unhold(memory))
        if (memory->context == context)
            object_classes[OBJECT_MEMORY]->vacate(&memory->object, &leaving, residence_index);
    if (residence_is_lost(residence) && source_only_at(context, RESIDENCE_NONE) != 0)
        log_warn("what was not fetched from %s yet is lost with it: %llu bytes",
                 device_name(residence->device),
                 (unsigned long long)source_only_at(context, RESIDENCE_NONE));
}

void source_release(const struct vdev *vdev, struct context *context, struct residence **list)
{
    for (uint8_t residence_index = 0; residence_index < context->residences; residence_index++) {
        struct residence *residence = context->at[residence_index];
        if (!source_is_left_by(context, residence_index, vdev) ||
            (!residence_is_lost(residence) && source_only_at(context, residence_index) != 0))
            continue;
        source_vacate(context, residence_index);
        residence->left_by = NULL;
        residence_lives(residence, RESIDENCE_DRAINING);
        context->at[residence_index] = NULL;
        residence->next = *list;
        *list = residence;
    }
}

void source_release_all(const struct vdev *vdev, struct residence **list)
{
    uintptr_t cursor = 0;
    struct context *context;
    for (; (context = source_next_context(vdev, &cursor)); object_unhold(context))
        source_release(vdev, context, list);
}

/* A forked child has no drivers, so nothing can be read from sources. */
static void source_in_child(void)
{
    for (size_t vdev = 0; vdev < VDEVS; vdev++)
        for (size_t i = 0; i < SOURCES_MAX; i++)
            atomic_store(&reported[vdev][i], NULL);
}

FORK_PART = {.rank = FORK_TABLE, .in_child = source_in_child};
