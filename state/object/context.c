#include "state/object/context.h"

#include <errno.h>
#include <stdlib.h>

#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/object/lost.h"
#include "state/opencl/create.h"

struct platform *the_platform;
struct vdev *the_vdevs[VDEVS];
_Atomic uint32_t the_vdev_count;

static pthread_mutex_t wake_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;

static void context_vdev_leave(struct object *object)
{
    struct vdev *vdev = (struct vdev *)object;
    if (vdev->part)
        pin_drop(&vdev->part->parent->pins, PIN_SUB_DEVICES);
}

static void context_vdev_destroy(struct object *object)
{
    sub_device_destroy(((struct vdev *)object)->part);
}

OBJECT_CLASS(vdev_class) = {
    .type = OBJECT_DEVICE,
    .size = sizeof(struct vdev),
    .leave = context_vdev_leave,
    .destroy = context_vdev_destroy,
};

OBJECT_CLASS(platform_class) = {.type = OBJECT_PLATFORM, .size = sizeof(struct platform)};

int vdevs_init(struct device *const *devices, uint32_t count)
{
    if (the_platform)
        return -EALREADY;
    struct platform *platform = object_create(OBJECT_PLATFORM);
    if (!platform)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        struct vdev *vdev = object_create(OBJECT_DEVICE);
        if (!vdev)
            return -ENOMEM;
        vdev->index = i;
        vdev->device = vdev->last = vdev->origin = devices[i];
        object_publish(vdev);
        the_vdevs[i] = vdev;
    }
    object_publish(platform);
    pthread_mutex_lock(&wake_lock);
    atomic_store_explicit(&the_vdev_count, count, memory_order_release);
    the_platform = platform;
    pthread_cond_broadcast(&woken);
    pthread_mutex_unlock(&wake_lock);
    return 0;
}

int vdevs_wait_init(uint64_t deadline_ns)
{
    int error = 0;
    pthread_mutex_lock(&wake_lock);
    while (!the_platform && error == 0)
        error = clock_wait(&woken, &wake_lock, deadline_ns);
    pthread_mutex_unlock(&wake_lock);
    return -error;
}

int context_vdev_index(const struct context *context, const struct vdev *vdev)
{
    for (cl_uint i = 0; i < context->vdev_count; i++)
        if (context->vdevs[i] == vdev)
            return (int)i;
    return -1;
}

bool context_is_suspended(const struct context *context, uint32_t vdevs)
{
    for (cl_uint i = 0; i < context->vdev_count; i++)
        if ((vdevs == 0 || vdevs & (1u << i)) &&
            atomic_load(&context->residence_index[i]) != RESIDENCE_NONE)
            return false;
    return true;
}

void context_wake(void)
{
    pthread_mutex_lock(&wake_lock);
    pthread_cond_broadcast(&woken);
    pthread_mutex_unlock(&wake_lock);
}

void context_enter_slow(struct context *context, uint32_t vdevs)
{
    while (context_is_suspended(context, vdevs)) {
        gate_leave();
        pthread_mutex_lock(&wake_lock);
        while (context_is_suspended(context, vdevs))
            (void)clock_wait(&woken, &wake_lock, 0);
        pthread_mutex_unlock(&wake_lock);
        gate_enter();
    }
}

static bool context_vdevs_placed(cl_uint count, struct vdev *const *vdevs,
                                 struct device **ret_devices)
{
    bool placed = false;
    for (cl_uint i = 0; i < count; i++) {
        ret_devices[i] = atomic_load(&vdevs[i]->device);
        placed = placed || ret_devices[i] != NULL;
    }
    return placed;
}

void vdevs_wait(cl_uint count, struct vdev *const *vdevs, struct device **ret_devices)
{
    pthread_mutex_lock(&wake_lock);
    while (!context_vdevs_placed(count, vdevs, ret_devices))
        (void)clock_wait(&woken, &wake_lock, 0);
    pthread_mutex_unlock(&wake_lock);
}

bool vdev_is_lost(const struct vdev *vdev)
{
    bool lost = false;
    uintptr_t cursor = 0;
    struct context *context;
    gate_enter();
    for (; (context = object_next(OBJECT_CONTEXT, &cursor)); object_unhold(context)) {
        int index = context_vdev_index(context, vdev);
        uint8_t residence_index =
            index < 0 ? RESIDENCE_NONE : atomic_load(&context->residence_index[index]);
        lost = lost || (residence_index != RESIDENCE_NONE &&
                        residence_is_lost(context->at[residence_index]));
    }
    gate_leave();
    return lost;
}

/* Make one residence for each device; residence_index[] tells which virtual device is where. */
static cl_int context_settle(struct context *context, struct device *const *devices)
{
    for (cl_uint i = 0; i < context->vdev_count; i++) {
        uint8_t residence_index = 0;
        if (!devices[i]) {
            atomic_store(&context->residence_index[i], RESIDENCE_NONE);
            continue;
        }
        while (context->at[residence_index] && context->at[residence_index]->device != devices[i])
            residence_index++;
        if (!context->at[residence_index]) {
            cl_int error = CL_OUT_OF_HOST_MEMORY;
            if (residence_create(context, devices[i], &context->at[residence_index], &error) != 0)
                return error;
        }
        atomic_store(&context->residence_index[i], residence_index);
    }
    return CL_SUCCESS;
}

static void context_unsettle(struct context *context)
{
    for (unsigned residence_index = 0; context->at && residence_index < context->residences;
         residence_index++) {
        residence_unref(context->at[residence_index]);
        context->at[residence_index] = NULL;
    }
}

/* Publish @context if its virtual devices are still where its residences are. */
static bool context_publish_if_settled(struct context *context, struct device *const *devices)
{
    bool same = true;
    gate_enter();
    for (cl_uint i = 0; i < context->vdev_count; i++)
        same = same && atomic_load(&context->vdevs[i]->device) == devices[i];
    for (uint8_t residence_index = 0; same && residence_index < context->residences;
         residence_index++)
        if (context->at[residence_index])
            residence_lives(context->at[residence_index], RESIDENCE_LIVE);
    if (same)
        object_publish(context);
    gate_leave();
    return same;
}

/* A residence for each virtual device, and as many again for those that they move to. */
static bool context_make_tables(struct context *context)
{
    size_t count = 2 * (size_t)context->vdev_count;
    count = count > RESIDENCES_LEAST ? count : RESIDENCES_LEAST;
    context->residences = count < RESIDENCES_MAX ? (uint8_t)count : RESIDENCES_MAX;
    context->at = calloc(context->residences, sizeof(struct residence *));
    context->ready = calloc(context->residences, sizeof(struct device *));
    return context->at && context->ready;
}

/* What context_create_with gave it, but for its residences. */
static void context_finish(struct context *context)
{
    for (cl_uint i = 0; i < context->vdev_count; i++)
        object_unhold(context->vdevs[i]);
    free(context->properties);
    free(context->at);
    free(context->ready);
}

static void context_leave(struct object *object)
{
    context_unsettle((struct context *)object);
}

static void context_destroy(struct object *object)
{
    struct context *context = (struct context *)object;
    destructor_run(&context->destructors);
    free(context->svm
             .blocks); /* the program cannot free the allocations any more; their pins go with it */
    context_finish(context);
}

OBJECT_CLASS(context_class) = {
    .type = OBJECT_CONTEXT,
    .size = sizeof(struct context),
    .leave = context_leave,
    .destroy = context_destroy,
};

static cl_int context_create_with(const cl_context_properties *properties, cl_uint vdev_count,
                                  struct vdev *const *vdevs,
                                  void(CL_CALLBACK *notify)(const char *, const void *, size_t,
                                                            void *),
                                  void *notify_data, struct context **ret_context)
{
    cl_int error = CL_OUT_OF_HOST_MEMORY;
    struct context *context = object_create(OBJECT_CONTEXT);
    if (!context)
        return error;
    for (cl_uint i = 0; i < vdev_count; i++)
        if (context_vdev_index(context, vdevs[i]) < 0) {
            object_hold(vdevs[i]);
            context->vdevs[context->vdev_count++] = vdevs[i];
        }
    if (!context_make_tables(context))
        goto failed;
    context->notify = notify;
    context->notify_data = notify_data;
    context->properties = properties_copy(properties, &context->property_count);
    if (properties && !context->properties)
        goto failed;
    /* A move may come between reading where the virtual devices are and publishing the context. */
    struct device *devices[VDEVS] = {NULL};
    struct retry retry = {context->vdevs, context->vdev_count, 0};
    bool settled = false;
    do {
        context_unsettle(context);
        vdevs_wait(context->vdev_count, context->vdevs, devices);
        error = context_settle(context, devices);
        settled = error == CL_SUCCESS && context_publish_if_settled(context, devices);
        if (error == CL_SUCCESS && !settled)
            retry_again(&retry);
    } while (error == CL_SUCCESS && !settled);
    retry_end(&retry);
    if (error != CL_SUCCESS)
        goto failed;
    *ret_context = context;
    return CL_SUCCESS;
failed:
    context_unsettle(context);
    context_finish(context);
    object_discard(context);
    return error;
}

cl_int context_create(const cl_context_properties *properties, cl_uint vdev_count,
                      struct vdev *const *vdevs,
                      void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                      void *notify_data, struct context **ret_context)
{
    int before = cancel_hold();
    cl_int error =
        context_create_with(properties, vdev_count, vdevs, notify, notify_data, ret_context);
    cancel_allow(before);
    return error;
}

FORK_PART = {.rank = FORK_TABLE, .lock = &wake_lock, .changed = {&woken}};
