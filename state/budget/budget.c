#include "state/budget/budget.h"

#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/work.h"
#include "state/program/kernel.h"

/* Granted but unused bytes are kept up to this, so that a program that makes and releases objects
 * does not ask each time. */
#define SLACK ((uint64_t)64 << 20)

static enum budget_answer (*_Atomic policy)(const struct budget_need *need);
/* Guards grants, and which device a virtual device is on. Nothing is waited for while it is held.
 */
static pthread_mutex_t grants = PTHREAD_MUTEX_INITIALIZER;
/* Memory reserved on the target of the move under way, counted in that device's budget but in no
 * virtual device's grant. Guarded by `grants`. */
static struct {
    struct device *device; /* or NULL */
    uint64_t bytes;
} reserved;

void budget_set_policy(enum budget_answer (*ask)(const struct budget_need *need))
{
    atomic_store(&policy, ask);
}

/* Index of the first virtual device on @device; VDEVS when there is none. */
static uint32_t budget_vdev_on(const struct device *device)
{
    for (uint32_t i = 0; i < vdevs_count(); i++)
        if (atomic_load(&the_vdevs[i]->device) == device)
            return i;
    return VDEVS;
}

/* True for roots on @device, or that would be there if there were room. In a context with several
 * devices, those that only another device has do not count. */
static bool budget_counts_for(const struct memory *root, const struct device *device)
{
    const struct context *context = root->context;
    for (cl_uint i = 0; i < context->vdev_count; i++) {
        uint8_t residence_index = atomic_load(&context->residence_index[i]);
        if (atomic_load(&context->vdevs[i]->device) == device && residence_index != RESIDENCE_NONE)
            return context->vdev_count == 1 ||
                   __atomic_load_n(&root->real[residence_index], __ATOMIC_RELAXED) ||
                   replica_is_latest(root, RESIDENCE_HOST);
    }
    return false;
}

/* The same for a suspended virtual device: what it left in host memory. */
static bool budget_waits_for(const struct memory *root, const struct vdev *vdev)
{
    return context_vdev_index(root->context, vdev) >= 0 && replica_is_latest(root, RESIDENCE_HOST);
}

/* Bytes wanted on @device, or by @vdev where that is NULL. */
static uint64_t budget_wanted(const struct device *device, const struct vdev *vdev)
{
    uint64_t bytes = 0;
    uintptr_t cursor = 0;
    struct memory *memory;
    while ((memory = object_next(OBJECT_MEMORY, &cursor))) {
        if (memory->root == memory &&
            (device ? budget_counts_for(memory, device) : budget_waits_for(memory, vdev)))
            bytes += memory->size;
        object_unhold(memory);
    }
    return bytes;
}

/* Largest sum, over all kernels, of the bytes of the objects that a kernel's arguments name. */
static uint64_t budget_largest_arguments(void)
{
    uint64_t most = 0;
    uintptr_t cursor = 0;
    struct kernel *kernel;
    while ((kernel = object_next(OBJECT_KERNEL, &cursor))) {
        uint64_t bytes = kernel_argument_bytes(kernel);
        most = bytes > most ? bytes : most;
        object_unhold(kernel);
    }
    return most;
}

/* Describe the program's need on @device, where a call needs @least at once. Gate closed, since
 * arguments are read. */
static void budget_describe(struct device *device, uint64_t least, struct budget_need *ret_need)
{
    struct budget *budget = &device->budget;
    mark_raise(&budget->least, budget_largest_arguments());
    ret_need->vdev = budget_vdev_on(device);
    ret_need->wanted = budget_wanted(device, NULL);
    ret_need->least = atomic_load(&budget->least);
    ret_need->least = least > ret_need->least ? least : ret_need->least;
}

/* Remove the limit of the program on @device. Lock held. */
static void budget_unlimit(struct device *device)
{
    for (uint32_t i = 0; i < vdevs_count(); i++)
        if (atomic_load(&the_vdevs[i]->device) == device) {
            the_vdevs[i]->granted = 0;
            the_vdevs[i]->limited = false;
        }
    atomic_store(&device->budget.granted, reserved.device == device ? reserved.bytes : 0);
    atomic_store(&device->budget.limited, false);
}

enum budget_answer budget_ask(struct device *device, uint64_t size, uint64_t least, bool owns,
                              cl_int reason)
{
    struct budget *budget = &device->budget;
    struct budget_need need = {.owns = owns, .failed = reason != OVER_BUDGET};
    enum budget_answer (*ask)(const struct budget_need *) = atomic_load(&policy);
    if (gate_close(0) != 0)
        return BUDGET_REFUSE;
    budget_describe(device, least, &need);
    gate_open();
    if (need.vdev == VDEVS)
        return BUDGET_AGAIN; /* the program moved meanwhile */
    uint64_t held = atomic_load(&budget->held);
    need.wanted += owns ? 0 : size;
    need.total = held + size;
    atomic_fetch_add(&budget->asking, 1);
    enum budget_answer answer = ask ? ask(&need) : BUDGET_FORCE;
    atomic_fetch_sub(&budget->asking, 1);
    if (answer == BUDGET_FORCE && !need.failed) {
        pthread_mutex_lock(&grants);
        budget_unlimit(device);
        pthread_mutex_unlock(&grants);
        answer = BUDGET_AGAIN;
    } else if (answer == BUDGET_FORCE) {
        answer = BUDGET_SPILL;
    }
    if (answer == BUDGET_SPILL)
        atomic_store(&budget->tight, true);
    /* A refused request does not count: the program may do without. */
    if (answer != BUDGET_REFUSE)
        mark_raise(&budget->least, least);
    log_info("%llu bytes more on %s, where %llu are held%s: %s", (unsigned long long)size,
             device->key.device, (unsigned long long)held,
             need.failed ? " and the device has no more" : "",
             answer == BUDGET_AGAIN   ? "there is room now"
             : answer == BUDGET_SPILL ? "what is not in use goes to host memory"
                                      : "refused");
    return answer;
}

void budget_grant(uint32_t index, uint64_t bytes)
{
    if (index >= vdevs_count())
        return;
    pthread_mutex_lock(&grants);
    struct vdev *vdev = the_vdevs[index];
    struct device *device = atomic_load(&vdev->device);
    if (device) {
        vdev->granted += bytes;
        vdev->limited = true;
        atomic_fetch_add(&device->budget.granted, bytes);
        atomic_store(&device->budget.limited, true);
    }
    pthread_mutex_unlock(&grants);
}

void budget_exceed(struct device *device, uint64_t bytes)
{
    uint32_t vdev = budget_vdev_on(device);
    log_info("a command needs %llu bytes more on %s than the program may have there",
             (unsigned long long)bytes, device->key.device);
    budget_grant(vdev, bytes);
}

/* Reduce the grant for @vdev to @bytes. Returns how much of it is given up. */
static uint64_t budget_give_up(struct vdev *vdev, struct device *device, uint64_t bytes)
{
    uint64_t gone = 0;
    pthread_mutex_lock(&grants);
    if (atomic_load(&vdev->device) == device) {
        uint64_t granted = atomic_load(&device->budget.granted);
        gone = granted > bytes ? granted - bytes : 0;
        gone = gone < vdev->granted ? gone : vdev->granted;
        vdev->granted -= gone;
        atomic_fetch_sub(&device->budget.granted, gone);
    }
    pthread_mutex_unlock(&grants);
    return gone;
}

static struct device *budget_device_of(uint32_t vdev)
{
    return vdev < vdevs_count() ? atomic_load(&the_vdevs[vdev]->device) : NULL;
}

uint64_t budget_slack(uint32_t index)
{
    struct device *device = budget_device_of(index);
    if (!device || !atomic_load(&device->budget.limited))
        return 0;
    uint64_t held = atomic_load(&device->budget.held);
    if (atomic_load(&device->budget.granted) <= held + 2 * SLACK)
        return 0;
    return budget_give_up(the_vdevs[index], device, held + SLACK);
}

/* Any residence on @device, or NULL. */
static struct residence *budget_residence_on(const struct device *device)
{
    struct residence *found = NULL;
    uintptr_t cursor = 0;
    struct context *context;
    while (!found && (context = object_next(OBJECT_CONTEXT, &cursor))) {
        for (uint8_t residence_index = 0; !found && residence_index < context->residences;
             residence_index++)
            if (context->at[residence_index] && context->at[residence_index]->device == device)
                found = context->at[residence_index];
        object_unhold(context);
    }
    return found;
}

static uint64_t budget_shrink_device(uint32_t index, uint64_t bytes)
{
    if (!budget_device_of(index) || gate_close(0) != 0)
        return 0;
    struct device *device = budget_device_of(index);
    struct residence *residence = device ? budget_residence_on(device) : NULL;
    uint64_t held = device ? atomic_load(&device->budget.held) : 0;
    bool later;
    if (residence && held > bytes)
        held -= budget_make(residence, held - bytes, NULL, &later);
    uint64_t gone =
        device ? budget_give_up(the_vdevs[index], device, held > bytes ? held : bytes) : 0;
    gate_open();
    return gone;
}

uint64_t budget_shrink(uint32_t index, uint64_t bytes)
{
    uint64_t gone = work_begin() ? budget_shrink_device(index, bytes) : 0;
    work_end();
    return gone;
}

void budget_read(uint32_t index, struct budget_use *ret_use)
{
    struct budget_use use = {0};
    struct device *device = budget_device_of(index);
    if (device) {
        struct budget *budget = &device->budget;
        pthread_mutex_lock(&grants);
        use.granted = the_vdevs[index]->granted;
        use.limited = atomic_load(&budget->limited);
        pthread_mutex_unlock(&grants);
        if (budget_vdev_on(device) == index) {
            use.held = atomic_load(&budget->held);
            use.peak = atomic_load(&budget->peak);
            use.spilled = atomic_load(&budget->spilled);
            use.least = atomic_load(&budget->least);
            use.wanted = budget_wanted(device, NULL);
        }
    } else if (index < vdevs_count()) {
        pthread_mutex_lock(&grants);
        use.least = atomic_load(&atomic_load(&the_vdevs[index]->last)->budget.least);
        use.limited = the_vdevs[index]->limited;
        pthread_mutex_unlock(&grants);
        use.wanted = budget_wanted(NULL, the_vdevs[index]);
    }
    *ret_use = use;
}

void budget_reserve(struct device *device, uint64_t grant)
{
    pthread_mutex_lock(&grants);
    reserved.device = device;
    reserved.bytes = grant;
    atomic_fetch_add(&device->budget.granted, grant);
    atomic_store(&device->budget.limited, true);
    pthread_mutex_unlock(&grants);
}

/* Lift the limits of @device if no virtual device is there any more. Lock held. */
static void budget_close_if_empty(struct device *device)
{
    if (budget_vdev_on(device) != VDEVS)
        return;
    atomic_store(&device->budget.limited, false);
    atomic_store(&device->budget.tight, false);
}

/* Lock held. */
static void budget_unreserve_locked(void)
{
    if (!reserved.device)
        return;
    atomic_fetch_sub(&reserved.device->budget.granted, reserved.bytes);
    budget_close_if_empty(reserved.device);
    reserved.device = NULL;
}

void budget_unreserve(void)
{
    pthread_mutex_lock(&grants);
    budget_unreserve_locked();
    pthread_mutex_unlock(&grants);
}

void budget_arrive(struct vdev *vdev, struct device *to, const uint64_t *grant)
{
    uint64_t serial = residency_token_current();
    pthread_mutex_lock(&grants);
    struct device *from = atomic_load(&vdev->device);
    /* In this order, so that a reader who sees it suspended also sees its last device. */
    if (from)
        atomic_store(&vdev->last, from);
    atomic_store(&vdev->device, to);
    if (from) {
        atomic_fetch_sub(&from->budget.granted, vdev->granted);
        budget_close_if_empty(from);
    }
    reserved.device = NULL; /* it belongs to the virtual device now */
    vdev->granted = to && grant ? *grant : 0;
    vdev->limited = to ? grant != NULL : vdev->limited;
    pthread_mutex_unlock(&grants);
    /* The command that held the residency token may not be submitted for a while: release the
     * token. */
    if (serial != 0)
        residency_token_release_of(serial);
}

static void budget_in_child(void)
{
    budget_unreserve_locked();
    /* The agent knows the child as another program. */
    for (uint32_t i = 0; i < vdevs_count(); i++) {
        struct device *device = atomic_load(&the_vdevs[i]->device);
        if (device) {
            budget_unlimit(device);
            atomic_store(&device->budget.asking, 0);
            atomic_store(&device->budget.waiting, 0);
        }
    }
}

FORK_PART = {.rank = FORK_TABLE, .lock = &grants, .in_child = budget_in_child};
