#include <stdlib.h>

#include "state/base/array.h"
#include "state/base/log.h"
#include "state/base/span.h"
#include "state/budget/budget.h"
#include "state/memory/mapping.h"
#include "state/memory/memory_priv.h"
#include "state/memory/replica.h"
#include "state/program/kernel.h"

/*
 * Spilling: the least recently used objects are copied to host memory where that lacks the latest
 * bytes, and their device replicas are dropped (R4). Objects of all contexts on one device compete
 * for its room.
 */

uint64_t budget_least(const struct command *command)
{
    uint64_t least = 0, before = memory_stamp_latest();
    struct memory *memory;
    bool writes;
    /* An object that is named twice counts once. */
    for (unsigned i = 0; (memory = command_use(command, &i, &writes));) {
        if (atomic_load(&memory->root->stamp) <= before)
            least += memory->root->size;
        memory_stamp(memory->root);
    }
    return least;
}

/* An object that may be spilled, and where it is. */
struct victim {
    struct memory *root; /* held */
    struct residence *residence;
    uint64_t stamp;
    uint8_t residence_index;
};

struct victims {
    struct victim *victims;
    size_t count;
    bool later; /* others may be spilled once a mover has done with them */
};

static void spill_victims_finish(struct victims *victims)
{
    for (size_t i = 0; i < victims->count; i++)
        object_unhold(victims->victims[i].root);
    free(victims->victims);
}

static bool spill_push(struct victims *victims, struct memory *root, uint8_t residence_index)
{
    if (!array_make_room(&victims->victims, victims->count, sizeof(victims->victims[0])))
        return false;
    object_hold(root);
    victims->victims[victims->count++] =
        (struct victim){root, root->context->at[residence_index],
                        atomic_load_explicit(&root->stamp, memory_order_relaxed), residence_index};
    return true;
}

/* True for objects that can be spilled: not mapped ones, whose mappings stay in host memory, and
 * not SVM, which has no other memory. */
static bool spill_may_go(struct memory *root)
{
    return root->root == root && !root->uses_svm && object_refs(root) != 0;
}

/* Collect the objects on @device that may be spilled and that no command has named since @since. */
static void spill_collect(const struct device *device, uint64_t since, struct victims *victims)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    bool more = true;
    while (more && (memory = object_next(OBJECT_MEMORY, &cursor))) {
        for (uint8_t residence_index = 0; more && residence_index < memory->context->residences;
             residence_index++)
            if (memory->real[residence_index] &&
                memory->context->at[residence_index]->device == device &&
                atomic_load(&memory->stamp) <= since && spill_may_go(memory)) {
                if (atomic_load(&memory->collected) ||
                    atomic_load(&memory->context->at[residence_index]->life) == RESIDENCE_PREPARING)
                    victims->later = true;
                else
                    more = spill_push(victims, memory, residence_index);
            }
        object_unhold(memory);
    }
}

static int spill_by_stamp(const void *a, const void *b)
{
    const struct victim *one = a, *other = b;
    return one->stamp < other->stamp ? -1 : one->stamp > other->stamp;
}

static int spill_by_residence(const void *a, const void *b)
{
    const struct victim *one = a, *other = b;
    return one->residence < other->residence ? -1 : one->residence > other->residence;
}

/* Copy the latest bytes of @count objects of one residence to host memory. False when the driver
 * fails or host memory is short: nothing is lost then. */
static bool spill_save(const struct victim *victims, size_t count)
{
    struct memory **roots = calloc(count, sizeof(*roots));
    struct replica_batch batch = {.context = victims->root->context,
                                  .from = victims->residence_index,
                                  .to = RESIDENCE_HOST,
                                  .quiet = true,
                                  .roots = roots};
    uint64_t bytes;
    cl_int reason = CL_SUCCESS;
    if (!roots)
        return false;
    for (size_t i = 0; i < count; i++)
        if (replica_lacking(victims[i].root, victims[i].residence_index, RESIDENCE_HOST) != 0)
            roots[batch.count++] = victims[i].root;
    int error = replica_refresh(&batch, &bytes, &reason);
    free(roots);
    if (error != 0)
        log_warn("objects cannot be brought from %s to host memory (error %d, OpenCL error %d)",
                 victims->residence->device->key.device, error, reason);
    return error == 0;
}

/* Release every real object over the root's bytes in its residence, views first. */
static void spill_drop(const struct victim *victim)
{
    uintptr_t cursor = 0;
    struct memory *memory;
    (void)map_leave(victim->root, victim->residence, victim->residence_index);
    while ((memory = object_next(OBJECT_MEMORY, &cursor))) {
        if (memory->root == victim->root && memory != victim->root)
            memory_release_real(memory, victim->residence_index);
        object_unhold(memory);
    }
    memory_release_real(victim->root, victim->residence_index);
    map_moved(victim->root, victim->residence_index, RESIDENCE_HOST);
    extents_dropped(victim->root, victim->residence_index);
}

static void spill_forget(const struct victim *victim)
{
    uintptr_t cursor = 0;
    struct kernel *kernel;
    while ((kernel = object_next(OBJECT_KERNEL, &cursor))) {
        if (kernel->context == victim->root->context && kernel->real[victim->residence_index])
            kernel_forget(kernel, victim->residence, victim->residence_index);
        object_unhold(kernel);
    }
}

/* Spill objects of one residence. Returns the bytes that are free now. */
static uint64_t spill(const struct victim *victims, size_t count)
{
    uint64_t bytes = 0;
    bool over_host = false;
    if (queue_drain(victims->root->context, victims->residence_index) != CL_SUCCESS ||
        !spill_save(victims, count))
        return 0;
    for (size_t i = 0; i < count; i++)
        over_host = over_host || memory_is_backed(victims[i].root, victims[i].residence_index);
    if (over_host)
        (void)queue_drain_siblings(victims->residence);
    for (size_t i = 0; i < count; i++) {
        bytes += victims[i].root->size;
        spill_drop(&victims[i]);
    }
    spill_forget(victims);
    (void)residence_await_queue(victims->residence, victims->residence->io);
    return bytes;
}

/* Choose the least recently used objects for @bytes, sorted by residence. Returns how many. */
static size_t spill_choose(struct victims *victims, uint64_t bytes)
{
    size_t count = 0;
    if (victims->count == 0)
        return 0;
    qsort(victims->victims, victims->count, sizeof(*victims->victims), spill_by_stamp);
    for (uint64_t sum = 0; count < victims->count && sum < bytes; count++)
        sum += victims->victims[count].root->size;
    qsort(victims->victims, count, sizeof(*victims->victims), spill_by_residence);
    return count;
}

uint64_t budget_make(struct residence *residence, uint64_t bytes, const struct command *command,
                     bool *ret_later)
{
    struct victims victims = {0};
    struct budget *budget = &residence->device->budget;
    uint64_t freed = 0, since = memory_stamp_latest(), begun = span_begin();
    if (command)
        mark_raise(&budget->least, budget_least(command));
    spill_collect(residence->device, since, &victims);
    size_t count = spill_choose(&victims, bytes);
    for (size_t at = 0, end; at < count; at = end) {
        for (end = at + 1;
             end < count && victims.victims[end].residence == victims.victims[at].residence;)
            end++;
        freed += spill(victims.victims + at, end - at);
    }
    spill_victims_finish(&victims);
    span_end(begun, "room", "spill", "bytes", freed);
    *ret_later = victims.later;
    atomic_store(&budget->tight, true);
    atomic_fetch_add(&budget->spilled, freed);
    return freed;
}
