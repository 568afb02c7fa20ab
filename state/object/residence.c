#include "state/object/residence.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/callback.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/gate.h"
#include "state/base/threads/thread.h"
#include "state/driver/lost_calls.h"
#include "state/object/context.h"
#include "state/object/lost.h"
#include "state/object/pinned.h"

void residence_release(const cl_icd_dispatch *cl, enum object_type type, void *real)
{
    if (real)
        object_classes[type]->release(cl, real, NULL);
}

/* An error report for a context, passed to the program on the callback thread. */
struct report {
    struct callback_job job;
    struct context *context; /* held */
    char *text;
    size_t info_size;
    unsigned char info[];
};

static void residence_report_tell(void *data)
{
    struct report *report = data;
    report->context->notify(report->text, report->info_size ? report->info : NULL,
                            report->info_size, report->context->notify_data);
}

static void residence_report_end(void *data)
{
    struct report *report = data;
    object_unhold(report->context);
    free(report->text);
    free(report);
}

static void residence_report_run(struct callback_job *job)
{
    struct report *report = container_of(job, struct report, job);
    callback_program(residence_report_tell, residence_report_end, report);
    residence_report_end(report);
}

/* A driver may report at any time, also about a residence that is gone. So it is not given the
 * residence's address but its number, which is used once, and finds it here. */
static struct {
    pthread_mutex_t lock;
    struct residence *first; /* Guarded by lock, with their `listed`. */
    uintptr_t last;          /* Number given last. Guarded by lock. */
} reported = {.lock = PTHREAD_MUTEX_INITIALIZER};

FORK_PART = {.rank = FORK_OBJECT, .lock = &reported.lock};

static void residence_list(struct residence *residence)
{
    pthread_mutex_lock(&reported.lock);
    residence->number = ++reported.last;
    residence->listed = reported.first;
    reported.first = residence;
    pthread_mutex_unlock(&reported.lock);
}

static void residence_unlist(struct residence *residence)
{
    pthread_mutex_lock(&reported.lock);
    struct residence **at = &reported.first;
    while (*at != residence)
        at = &(*at)->listed;
    *at = residence->listed;
    pthread_mutex_unlock(&reported.lock);
}

/* The context to which reports of residence @number go, held; NULL: there is none any more, or the
 * device was lost. Drivers' threads come here, which have no hold of the context: only its creator
 * may hold one that is being made (object_heap_publish). */
static struct context *residence_hold_reported(uintptr_t number)
{
    struct object_weak weak = {NULL, 0};
    pthread_mutex_lock(&reported.lock);
    const struct residence *residence = reported.first;
    while (residence && residence->number != number)
        residence = residence->listed;
    if (residence && !residence_is_lost(residence))
        weak = residence->notified;
    pthread_mutex_unlock(&reported.lock);
    if (!weak.object || !object_hold_if_live(weak.object, object_unhold))
        return NULL;
    struct context *context = object_weak_get(weak);
    if (!context) /* The slot is another context's by now. */
        object_unhold(weak.object);
    return context;
}

static void CL_CALLBACK residence_context_notified(const char *text, const void *info, size_t size,
                                                   void *data)
{
    log_warn("the driver reports: %s", text ? text : "(nothing)");
    /* Oclgrind's reports have no number. */
    struct context *context = residence_hold_reported((uintptr_t)data);
    struct report *report =
        context && callback_start() == 0 ? calloc(1, sizeof(*report) + (info ? size : 0)) : NULL;
    char *copy = report ? strdup(text ? text : "") : NULL;
    if (!copy) {
        free(report);
        object_unhold(context);
        return;
    }
    report->job.run = residence_report_run;
    report->text = copy;
    if (info && size) {
        memcpy(report->info, info, size);
        report->info_size = size;
    }
    report->context = context;
    callback_post(&report->job);
}

/* Mesa's rusticl makes no image from a buffer over host memory, though it does from others. */
static bool residence_makes_image_of(const struct residence *residence, cl_mem buffer)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT32};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 16, .buffer = buffer};
    cl_int error;
    if (!devinfo_scalar(&residence->device->info, CL_DEVICE_IMAGE_SUPPORT, 0))
        return true;
    cl_mem image = residence->cl->clCreateImage(residence->context, CL_MEM_READ_WRITE, &format,
                                                &desc, NULL, &error);
    if (image)
        residence->cl->clReleaseMemObject(image);
    return image != NULL;
}

/* Find out what the device does with host pointers: a write must be visible through the pointer
 * once it is mapped. HOST_PTR_UNTRIED when the driver fails. */
static enum host_ptr residence_try_host_pointer(struct residence *residence)
{
    enum { SIZE = 4096 };
    static const unsigned char pattern[] = {2, 3, 4, 5};
    const cl_icd_dispatch *cl = residence->cl;
    unsigned char *bytes = aligned_alloc(SIZE, SIZE);
    enum host_ptr found = HOST_PTR_UNTRIED;
    cl_mem buffer = NULL;
    if (!bytes)
        return found;
    memset(bytes, 1, SIZE);
    cl_int error;
    buffer = cl->clCreateBuffer(residence->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, SIZE,
                                bytes, &error);
    if (!buffer)
        goto out;
    if (cl->clEnqueueWriteBuffer(residence->io, buffer, CL_FALSE, SIZE / 2, sizeof(pattern),
                                 pattern, 0, NULL, NULL) != CL_SUCCESS)
        goto out;
    void *map = cl->clEnqueueMapBuffer(residence->io, buffer, CL_FALSE, CL_MAP_READ, 0, SIZE, 0,
                                       NULL, NULL, &error);
    bool ended = residence_await_queue(residence, residence->io) == CL_SUCCESS;
    if (!map)
        goto out;
    if (ended)
        found = map == bytes && residence_makes_image_of(residence, buffer) && bytes[0] == 1 &&
                        memcmp(bytes + SIZE / 2, pattern, sizeof(pattern)) == 0
                    ? HOST_PTR_MAPPED
                    : HOST_PTR_COPIED;
    cl->clEnqueueUnmapMemObject(residence->io, buffer, map, 0, NULL, NULL);
    (void)residence_await_queue(residence, residence->io);
out:
    if (buffer)
        residence->cl->clReleaseMemObject(buffer);
    if (!residence_is_lost(residence)) /* a lost device's driver may still write there */
        free(bytes);
    return found;
}

/* A device that shares the host's memory and maps what it was given works on the bytes in place. */
static void residence_learn_host_pointers(struct residence *residence)
{
    struct device *device = residence->device;
    if (atomic_load(&device->host_ptr) == HOST_PTR_UNTRIED)
        atomic_store(&device->host_ptr, (uint8_t)residence_try_host_pointer(residence));
    /* Our remote driver copies to and from host memory in several parts at once, which mapping
     * through it does not, and a server cannot register memory of this process. */
    bool through_server = device->between && residence_has_link(residence);
    residence->maps_host_ptr = atomic_load(&device->host_ptr) == HOST_PTR_MAPPED && !through_server;
    residence->in_place = residence->maps_host_ptr &&
                          devinfo_scalar(&device->info, CL_DEVICE_HOST_UNIFIED_MEMORY, 0) != 0;
}

static void residence_wait_begin(struct residence *residence)
{
    budget_wait_begin(&residence->device->budget, clock_now_ns());
    if (UNLIKELY(residence->runs_in_caller))
        gate_enter();
}

static void residence_wait_end(struct residence *residence)
{
    if (UNLIKELY(residence->runs_in_caller))
        gate_leave();
    budget_wait_end(&residence->device->budget, clock_now_ns());
}

cl_int residence_wait(struct residence *residence, cl_uint count, const cl_event *real)
{
    int before = cancel_hold();
    residence_wait_begin(residence);
    cl_int error = residence_await_events(residence, count, real);
    residence_wait_end(residence);
    cancel_allow(before);
    return error;
}

cl_int residence_finish(struct residence *residence, cl_command_queue real)
{
    cl_event event;
    int before = cancel_hold();
    residence_wait_begin(residence);
    if (UNLIKELY(residence->finish_forgets) &&
        residence->cl->clEnqueueMarkerWithWaitList(real, 0, NULL, &event) == CL_SUCCESS) {
        residence->cl->clFlush(real);
        (void)residence_await_events(residence, 1,
                                     &event); /* the event's own status is checked below */
        residence->cl->clReleaseEvent(event);
    }
    cl_int error = residence_await_queue(residence, real);
    residence_wait_end(residence);
    cancel_allow(before);
    return error;
}

void residence_flush(struct residence *residence, cl_command_queue real)
{
    if (!residence->runs_in_caller)
        residence->cl->clFlush(real);
}

cl_int residence_unmap(struct residence *residence, cl_mem real, void *pointer)
{
    const cl_icd_dispatch *cl = residence->cl;
    cl_int error = cl->clEnqueueUnmapMemObject(residence->io, real, pointer, 0, NULL, NULL);
    if (error != CL_INVALID_VALUE)
        return error;
    /* Mesa's rusticl knows about a mapping only once it was executed. */
    (void)residence_await_queue(residence, residence->io);
    return residence->cl->clEnqueueUnmapMemObject(residence->io, real, pointer, 0, NULL, NULL);
}

/* Number of residences. Those that a hanging driver of a lost device may still use are never
 * destroyed. */
static _Atomic unsigned alive;

int residence_create(struct context *context, struct device *device,
                     struct residence **ret_residence, cl_int *ret_error)
{
    cl_int error = CL_OUT_OF_HOST_MEMORY;
    struct residence *residence = calloc(1, sizeof(*residence));
    if (!residence)
        return -ENOMEM;
    atomic_init(&residence->refs, 1);
    atomic_fetch_add(&alive, 1);
    residence->notified = object_weak(context && context->notify ? context : NULL);
    residence_list(residence);
    atomic_init(&residence->cl, device->cl);
    residence->owner = context;
    residence->device = device;
    devinfo_group_limits(&device->info, &residence->groups);
    residence->runs_in_caller = device->quirks & QUIRK_RUNS_IN_CALLER;
    residence->runs_at_once = device->quirks & QUIRK_RUNS_AT_ONCE &&
                              devinfo_scalar(&device->info, CL_DEVICE_MAX_COMPUTE_UNITS, 1) == 1;
    residence->finish_forgets = device->quirks & QUIRK_FINISH_FORGETS;
    residence->holds_back = device->quirks & QUIRK_HOLDS_BACK;
    residence->waits_aside =
        !(device->quirks & (QUIRK_RUNS_IN_CALLER | QUIRK_WAITS_END)) &&
        !(devinfo_scalar(&device->info, CL_DEVICE_TYPE, 0) & CL_DEVICE_TYPE_CPU);
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)device->platform, 0};
    residence->context = residence->cl->clCreateContext(
        properties, 1, &device->id, residence_context_notified, (void *)residence->number, &error);
    if (!residence->context)
        goto failed;
    residence->io = residence->cl->clCreateCommandQueue(residence->context, device->id,
                                                        CL_QUEUE_PROFILING_ENABLE, &error);
    if (!residence->io)
        goto failed;
    residence_learn_host_pointers(residence);
    /* A device that was lost is used again only after it has answered, in a context of its own. */
    error = CL_DEVICE_NOT_AVAILABLE;
    if (atomic_load(&device->lost) && !residence_is_lost(residence) &&
        await_answer(residence, lost_answer_ns) != ANSWER_GOOD)
        residence_lose(residence, "it does not answer in a new context either", false);
    if (residence_is_lost(residence))
        goto failed;
    atomic_store(&device->lost, false);
    *ret_residence = residence;
    return 0;
failed:
    residence_unref(residence);
    *ret_error = error;
    return -EIO;
}

void residence_lives(struct residence *residence, enum residence_life life)
{
    uint8_t before = atomic_load(&residence->life);
    while (before != RESIDENCE_LOST &&
           !atomic_compare_exchange_weak(&residence->life, &before, (uint8_t)life))
        ;
}

bool residence_has_link(const struct residence *residence)
{
    return residence &&
           devinfo_scalar(&residence->device->info, CL_DEVICE_HOST_UNIFIED_MEMORY, 0) == 0;
}

bool residence_is_sibling(const struct residence *residence, const struct residence *other)
{
    return residence_has_link(residence) && residence_has_link(other) &&
           residence->cl == other->cl && residence->device != other->device;
}

void retired_release(struct retired_list *list)
{
    while (list) {
        struct retired_list *next = list->next;
        for (size_t i = 0; i < list->count; i++) {
            const struct retired *item = &list->items[i];
            object_classes[item->type]->release(list->cl, item->real, item->kept);
        }
        free(list);
        list = next;
    }
}

void residence_take_retired(struct residence *residence, struct retired_list **list)
{
    /* The gate is closed, so no new reference is taken. */
    if (!residence->retired || residence->retired->count == 0 || residence_is_lost(residence) ||
        atomic_load_explicit(&residence->refs, memory_order_acquire) != 1)
        return;
    residence->retired->next = *list;
    *list = residence->retired;
    residence->retired = NULL;
}

void residence_tool_finish(struct residence *residence, enum residence_tool_kind kind)
{
    struct residence_tool *tool = &residence->tools[kind];
    for (size_t i = 0; i < ARRAY_SIZE(tool->kernels); i++)
        if (tool->kernels[i])
            residence->cl->clReleaseKernel(tool->kernels[i]);
    if (tool->program)
        residence->cl->clReleaseProgram(tool->program);
    for (size_t i = 0; i < ARRAY_SIZE(tool->buffers); i++)
        if (tool->buffers[i])
            residence->cl->clReleaseMemObject(tool->buffers[i]);
    free(tool->staging);
    *tool = (struct residence_tool){0};
}

static void residence_finish_tools(struct residence *residence)
{
    bool reads = false;
    for (int i = 0; i < RESIDENCE_TOOLS; i++)
        reads = reads || residence->tools[i].staging;
    if (reads && residence->io)
        (void)residence_await_queue(residence, residence->io);
    for (int i = 0; i < RESIDENCE_TOOLS; i++)
        residence_tool_finish(residence, i);
}

void residence_unref(struct residence *residence)
{
    if (!residence || atomic_fetch_sub_explicit(&residence->refs, 1, memory_order_acq_rel) != 1)
        return;
    residence_unlist(residence);
    pinned_forget(residence);
    if (residence->cl == &driver_lost) {
        static struct residence *_Atomic lost;
        residence->next = atomic_load(&lost);
        while (!atomic_compare_exchange_weak(&lost, &residence->next, residence))
            ;
        return;
    }
    retired_release(residence->retired);
    residence_finish_tools(residence);
    if (residence->io)
        residence->cl->clReleaseCommandQueue(residence->io);
    if (residence->context)
        residence->cl->clReleaseContext(residence->context);
    free(residence);
    atomic_fetch_sub(&alive, 1);
}

unsigned residence_count(void)
{
    return atomic_load(&alive);
}

int residence_reserve(struct residence *residence, size_t more)
{
    struct retired_list *list = residence->retired;
    size_t wanted = (list ? list->count : 0) + more;
    if (list && wanted <= list->capacity)
        return 0;
    struct retired_list *grown = realloc(list, sizeof(*list) + wanted * sizeof(list->items[0]));
    if (!grown)
        return -ENOMEM;
    if (!list)
        *grown = (struct retired_list){.cl = residence->cl};
    grown->capacity = wanted;
    residence->retired = grown;
    return 0;
}

void residence_retire(struct residence *residence, enum object_type type, void *real, void *kept)
{
    struct retired_list *list = residence->retired;
    if (!real)
        return;
    if (list && list->count < list->capacity)
        list->items[list->count++] = (struct retired){real, type, kept};
    else
        object_classes[type]->release(residence->cl, real, kept);
}
