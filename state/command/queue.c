#include <stdlib.h>

#include "state/command/command.h"
#include "state/command/parts.h"
#include "state/object/lost.h"
#include "state/object/upcalls.h"
#include "state/opencl/create.h"

static void queue_release_at(const struct queue *queue, uint8_t residence_index,
                             cl_command_queue real)
{
    if (real)
        queue->context->at[residence_index]->cl->clReleaseCommandQueue(real);
}

static void queue_leave(struct object *object)
{
    struct queue *queue = (struct queue *)object;
    queue_release_at(queue, atomic_load(&queue->context->residence_index[queue->vdev_index]),
                     queue->real);
    queue_release_at(queue, queue->next_residence_index, queue->next);
}

static void queue_destroy(struct object *object)
{
    struct queue *queue = (struct queue *)object;
    defer_forget_queue(queue);
    free(queue->property_list);
    object_unhold(queue->context);
    queue_end_beside_others();
}

static void queue_release_real(const cl_icd_dispatch *cl, void *real, void *kept)
{
    (void)kept;
    cl->clReleaseCommandQueue(real);
}

static cl_int queue_make_real(struct queue *queue, struct residence *residence,
                              cl_command_queue *ret)
{
    cl_int error;
    /* To execute in order is one of the orders that an out-of-order queue may choose. */
    cl_command_queue_properties properties =
        queue->properties & devinfo_scalar(&residence->device->info,
                                           CL_DEVICE_QUEUE_ON_HOST_PROPERTIES,
                                           CL_QUEUE_PROFILING_ENABLE);
    cl_command_queue real = residence->cl->clCreateCommandQueue(
        residence->context, residence->device->id, properties, &error);
    if (!real)
        return error;
    *ret = real;
    return CL_SUCCESS;
}

static cl_int queue_prepare(struct object *object, struct move_context *move)
{
    struct queue *queue = (struct queue *)object;
    if (queue->vdev_index != move->vdev_index || queue->next)
        return CL_SUCCESS;
    queue->next_residence_index = move->to;
    return queue_make_real(queue, move->context->at[move->to], &queue->next);
}

static void queue_vacate(struct object *object, const struct move_context *move,
                         uint8_t residence_index)
{
    struct queue *queue = (struct queue *)object;
    if (queue->vdev_index != move->vdev_index)
        return;
    if (residence_index == move->from) {
        if (queue->real)
            residence_retire(move->context->at[residence_index], OBJECT_QUEUE, queue->real, NULL);
        queue->real = queue->next;
    } else {
        /* Release it at once: other virtual devices may be there, whose residence is not drained.
         */
        residence_release(move->context->at[residence_index]->cl, OBJECT_QUEUE, queue->next);
    }
    queue->next = NULL;
}

OBJECT_CLASS(queue_class) = {
    .type = OBJECT_QUEUE,
    .size = sizeof(struct queue),
    .leave = queue_leave,
    .destroy = queue_destroy,
    .release = queue_release_real,
    .context = offsetof(struct queue, context),
    .name = "a queue",
    .make_real = queue_prepare,
    .vacate = queue_vacate,
};

static cl_int queue_begin_where_it_is(struct queue *queue)
{
    const struct context *context = queue->context;
    gate_enter();
    context_enter_slow(queue->context, 1u << queue->vdev_index);
    struct residence *residence =
        context->at[atomic_load(&context->residence_index[queue->vdev_index])];
    cl_int error = queue_make_real(queue, residence, &queue->real);
    if (error == CL_SUCCESS) {
        defer_track_queue(queue);
        object_publish(queue);
    }
    gate_leave();
    return error;
}

cl_int queue_create(struct context *context, struct vdev *vdev,
                    cl_command_queue_properties properties, const cl_queue_properties *list,
                    struct queue **ret_queue)
{
    struct queue *queue = object_create(OBJECT_QUEUE);
    if (!queue)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int error = CL_OUT_OF_HOST_MEMORY;
    unsigned tries = 0;
    queue_begin_beside_others();
    queue->context = context;
    queue->vdev = vdev;
    queue->vdev_index = context_vdev_index(context, vdev);
    atomic_init(&queue->order, 1); /* above `past`: nothing has ended */
    queue->properties = properties;
    queue->in_order = !(properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    object_hold(context);
    queue->property_list = properties_copy(list, &queue->property_count);
    if (list && !queue->property_list)
        goto failed;
    do
        error = queue_begin_where_it_is(queue);
    while (error != CL_SUCCESS && context_outlives(context, error, &tries));
    if (error != CL_SUCCESS)
        goto failed;
    *ret_queue = queue;
    return CL_SUCCESS;
failed:
    free(queue->property_list);
    object_unhold(context);
    object_discard(queue);
    queue_end_beside_others();
    return error;
}

cl_int queue_flush(struct queue *queue)
{
    cl_int error;
    unsigned tries = 0;
    do {
        error = CL_SUCCESS;
        gate_enter();
        if (queue->real)
            error =
                queue->context->at[atomic_load(&queue->context->residence_index[queue->vdev_index])]
                    ->cl->clFlush(queue->real);
        gate_leave();
    } while (UNLIKELY(error != CL_SUCCESS) && context_outlives(queue->context, error, &tries));
    return error;
}

size_t queue_launched(const struct queue *queue, const char *ret_kernels[QUEUE_LAUNCHED])
{
    uint64_t past = atomic_load(&queue->past);
    size_t count = 0;
    for (size_t i = 0; i < QUEUE_LAUNCHED; i++) {
        const char *kernel = atomic_load(&queue->launched[i].kernel);
        if (kernel && atomic_load(&queue->launched[i].order) > past)
            ret_kernels[count++] = kernel;
    }
    return count;
}

void queue_launched_ended(struct queue *queue)
{
    for (size_t i = 0; i < QUEUE_LAUNCHED; i++)
        atomic_store(&queue->launched[i].kernel, NULL);
}

cl_int queue_finish(struct queue *queue)
{
    defer_wait_queue(queue);
    gate_enter();
    uint64_t order = queue_step(queue);
    cl_command_queue real = queue->real;
    struct residence *residence = NULL;
    if (real) {
        residence =
            queue->context->at[atomic_load(&queue->context->residence_index[queue->vdev_index])];
        residence_ref(residence); /* a mover retires the real queue with it */
    }
    gate_leave();
    if (!real)
        return CL_SUCCESS; /* suspended: all commands ended before */
    cl_int error = residence_finish(residence, real);
    if (error == CL_SUCCESS)
        queue_ended(queue, order);
    bool again = UNLIKELY(error != CL_SUCCESS) && residence_is_lost(residence) &&
                 the_upcalls->await_recovery(residence);
    residence_unref(residence);
    return again ? queue_finish(queue) : error;
}

bool queue_drain_siblings(const struct residence *residence)
{
    bool any = false;
    uintptr_t cursor = 0;
    struct context *context;
    while (residence_has_link(residence) && (context = object_next(OBJECT_CONTEXT, &cursor))) {
        for (uint8_t residence_index = 0; residence_index < context->residences; residence_index++)
            if (residence_is_sibling(residence, context->at[residence_index])) {
                any = true;
                (void)queue_drain(context,
                                  residence_index); /* a queue that fails has no copy under way */
            }
        object_unhold(context);
    }
    return any;
}

/* True for a queue of @context whose commands run in that residence. */
static bool queue_is_in(const struct queue *queue, const struct context *context,
                        uint8_t residence_index)
{
    return queue->context == context && queue->real &&
           atomic_load(&context->residence_index[queue->vdev_index]) == residence_index;
}

cl_int queue_drain(struct context *context, uint8_t residence_index)
{
    struct residence *residence = context->at[residence_index];
    cl_int error = CL_SUCCESS;
    uintptr_t cursor = 0;
    struct queue *queue;
    /* One may wait for an event of another, which drivers need not run before it is flushed. */
    for (; (queue = object_next(OBJECT_QUEUE, &cursor)); object_unhold(queue))
        if (queue_is_in(queue, context, residence_index))
            residence_flush(residence, queue->real);
    for (cursor = 0; (queue = object_next(OBJECT_QUEUE, &cursor)); object_unhold(queue)) {
        if (!queue_is_in(queue, context, residence_index))
            continue;
        cl_int finished = residence_finish(residence, queue->real);
        /* Nothing runs any more on a lost device. */
        if (error == CL_SUCCESS && !residence_is_lost(residence))
            error = finished;
    }
    parts_drain(context, residence_index);
    return error;
}
