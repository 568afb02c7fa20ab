#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "state/base/clock.h"
#include "state/command/command.h"
#include "state/command/parts.h"
#include "state/move/move_priv.h"
#include "state/object/lost.h"

/* Waits for the source's commands by putting markers behind them. */

/* Makes an event that completes after everything given to @queue so far. */
static int move_drain_mark(struct move *move, struct residence *residence, cl_command_queue queue,
                           cl_event *ret_event)
{
    cl_event event = NULL;
    cl_int error = residence->cl->clEnqueueMarkerWithWaitList(queue, 0, NULL, &event);
    if (error == CL_SUCCESS)
        error = residence->cl->clFlush(queue);
    if (error == CL_SUCCESS) {
        *ret_event = event;
        return 0;
    }
    residence_release(residence->cl, OBJECT_EVENT, event);
    if (residence_failed(residence, error))
        return -ENODEV;
    return move_fail(move, -EIO, "%s does not take commands any more (OpenCL error %d)",
                     device_name(residence->device), error);
}

/* Wait for @event within the move's limits. Drivers have no wait with a deadline, so poll, with
 * growing pauses. -ENODEV: the residence is lost, so its commands have ended. */
static int move_drain_await(struct move *move, struct residence *residence, cl_event event)
{
    uint64_t pause = 20000, asked = clock_now_ns();
    for (;;) {
        cl_int status = CL_QUEUED;
        cl_int error = residence->cl->clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                                     sizeof(status), &status, NULL);
        if (error == CL_SUCCESS && status > CL_COMPLETE &&
            clock_now_ns() - asked > lost_patience_ns) {
            residence_doubt(residence);
            asked = clock_now_ns();
        }
        if ((error != CL_SUCCESS || status < 0) &&
            residence_failed(residence, error != CL_SUCCESS ? error : status))
            return -ENODEV;
        if (error != CL_SUCCESS || status < 0)
            return move_fail(move, -EIO, "commands on %s ended in error %d",
                             device_name(residence->device), error != CL_SUCCESS ? error : status);
        if (status == CL_COMPLETE)
            return 0;
        int late = move_check(move);
        if (late != 0)
            return late;
        clock_sleep(pause);
        if (pause < 500000)
            pause += pause / 2;
    }
}

struct move_marker {
    struct residence *residence; /* with a reference */
    cl_event event;
    bool beside; /* runs beside the moving queues: its error does not matter */
    const char *kernels[QUEUE_LAUNCHED]; /* that its queue may be running */
    size_t kernel_count;
};

void move_markers_finish(struct move_markers *markers)
{
    for (size_t i = 0; i < markers->count; i++) {
        markers->markers[i].residence->cl->clReleaseEvent(markers->markers[i].event);
        residence_unref(markers->markers[i].residence);
    }
    free(markers->markers);
}

/* Which errors of a wait do not fail the move: loss of the device, and any driver error of a marker
 * that is only beside. */
static int move_drain_forgive(struct move *move, bool beside, int error)
{
    if (error == -ENODEV)
        return 0;
    if (error != -EIO || !beside)
        return error;
    move->report->reason[0] = '\0';
    return 0;
}

/* True when the queue's commands run in the move's source: a queue of the moving virtual device, or
 * of another one that shares the residence and may have written what is copied. */
static bool move_drain_drains(const struct move *move, const struct queue *queue)
{
    uint8_t residence_index = atomic_load(&queue->context->residence_index[queue->vdev_index]);
    if (queue == move->apart)
        return false;
    if (queue->vdev == move->vdev)
        return true;
    for (size_t i = 0; i < move->context_count; i++)
        if (move->contexts[i].context == queue->context &&
            move->contexts[i].from == residence_index)
            return true;
    return false;
}

/* True when the queue runs on a sibling of the source, whose commands must end before the source's
 * host memory is taken. Nothing of it is copied. */
static bool move_drain_drains_beside(const struct move *move, const struct queue *queue)
{
    uint8_t residence_index = atomic_load(&queue->context->residence_index[queue->vdev_index]);
    for (size_t i = 0; i < move->context_count; i++) {
        const struct move_context *entry = &move->contexts[i];
        if (entry->leaves && entry->from != RESIDENCE_HOST &&
            residence_is_sibling(entry->context->at[entry->from],
                                 queue->context->at[residence_index]))
            return true;
    }
    return false;
}

struct marking {
    const struct move *move;
    struct move_markers *markers;
};

/* Add the event of a piece that runs outside its queue's residence. Its error is handled by its
 * launch. */
static void move_drain_mark_piece(void *data, const struct event *event, uint8_t residence_index,
                                  cl_event real)
{
    const struct marking *marking = data;
    struct residence *residence = event->context->at[residence_index];
    if (!move_drain_drains(marking->move, event->queue) &&
        !move_drain_drains_beside(marking->move, event->queue))
        return;
    (void)residence->cl->clRetainEvent(real);
    residence_ref(residence);
    struct move_marker *marker = &marking->markers->markers[marking->markers->count++];
    *marker = (struct move_marker){.residence = residence, .event = real, .beside = true};
    marker->kernel_count = queue_launched(event->queue, marker->kernels);
}

int move_markers_put(struct move *move, struct move_markers *ret_markers)
{
    size_t most = object_count(OBJECT_QUEUE) + parts_real_count() + 1;
    struct move_markers markers = {.markers = calloc(most, sizeof(*markers.markers))};
    uintptr_t cursor = 0;
    struct queue *queue;
    int error = markers.markers ? 0 : -ENOMEM;
    while (error == 0 && (queue = object_next(OBJECT_QUEUE, &cursor))) {
        bool own = queue->real && move_drain_drains(move, queue);
        if (own || (queue->real && move_drain_drains_beside(move, queue))) {
            struct move_marker *marker = &markers.markers[markers.count];
            marker->residence =
                queue->context
                    ->at[atomic_load(&queue->context->residence_index[queue->vdev_index])];
            marker->beside = !own;
            marker->kernel_count = queue_launched(queue, marker->kernels);
            error = move_drain_mark(move, marker->residence, queue->real, &marker->event);
            if (error == 0) {
                residence_ref(marker->residence);
                markers.count++;
            }
            error = move_drain_forgive(move, marker->beside, error);
        }
        object_unhold(queue);
    }
    struct marking marking = {move, &markers};
    if (error == 0)
        parts_each_beside(move_drain_mark_piece, &marking);
    if (error == 0)
        *ret_markers = markers;
    else
        move_markers_finish(&markers);
    return error;
}

static void move_drain_name_kernels(const struct move_marker *marker, char *ret_text, size_t size)
{
    size_t used = 0;
    *ret_text = '\0';
    for (size_t i = 0; i < marker->kernel_count && used < size; i++)
        used += (size_t)snprintf(ret_text + used, size - used, "%s%s", i ? ", " : "",
                                 marker->kernels[i]);
}

int move_markers_await(struct move *move, const struct move_markers *markers)
{
    uint64_t longest = 0;
    int error = 0;
    for (size_t i = 0; error == 0 && i < markers->count; i++) {
        const struct move_marker *marker = &markers->markers[i];
        uint64_t begun = clock_now_ns();
        error = move_drain_forgive(move, marker->beside,
                                   move_drain_await(move, marker->residence, marker->event));
        uint64_t waited = clock_now_ns() - begun;
        if (waited <= longest)
            continue;
        longest = waited;
        move_drain_name_kernels(marker, move->report->waited_for, sizeof(move->report->waited_for));
    }
    return error;
}

/* Put the markers with the gate closed, because POCL's basic device runs commands in the thread
 * that enqueues them and deadlocks when two threads enqueue in one queue. */
static int move_drain_mark_all(struct move *move, struct move_markers *ret_markers)
{
    int error = move_close_gate(move);
    if (error != 0)
        return error;
    uint64_t closed = clock_now_ns();
    error = move_markers_put(move, ret_markers);
    gate_open();
    move->report->downtime_ns += clock_now_ns() - closed;
    return error;
}

int move_quiesce(struct move *move)
{
    struct move_markers markers = {0};
    int error = move_drain_mark_all(move, &markers);
    if (error == 0)
        error = move_markers_await(move, &markers);
    move_markers_finish(&markers);
    return error;
}

/* Everything that was given to the queues of the source has ended. */
static void move_drain_forget_launches(const struct move *move)
{
    uintptr_t cursor = 0;
    struct queue *queue;
    while ((queue = object_next(OBJECT_QUEUE, &cursor))) {
        if (move_drain_drains(move, queue))
            queue_launched_ended(queue);
        object_unhold(queue);
    }
}

int move_drain(struct move *move)
{
    struct move_markers markers = {0};
    move->report->waited_for[0] = '\0'; /* of an earlier wait, in which the program ran */
    int error = move_markers_put(move, &markers);
    if (error == 0)
        error = move_markers_await(move, &markers);
    move_markers_finish(&markers);
    if (error == 0)
        move_drain_forget_launches(move);
    /* The markers have completed, so this returns at once; it lets drivers finish their own work
     * after a command. */
    for (size_t i = 0; error == 0 && i < move->context_count; i++)
        if (move->contexts[i].from != RESIDENCE_HOST &&
            queue_drain(move->contexts[i].context, move->contexts[i].from) != CL_SUCCESS)
            error = move_fail(move, -EIO, "a queue could not be finished");
    return error;
}
