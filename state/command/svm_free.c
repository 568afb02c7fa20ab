#include <stdlib.h>
#include <string.h>

#include "state/base/threads/callback.h"
#include "state/command/command.h"
#include "state/memory/svm.h"

/*
 * clEnqueueSVMFree in three steps, because no driver may call the program inside the gate (G3): a
 * command that ends when the queue has come to it, the program's function on the callback thread,
 * and a command that is deferred until then and has the event for the program.
 */

struct release {
    struct queue *queue; /* held */
    struct event *done;  /* held; a user event */
    void(CL_CALLBACK *call)(cl_command_queue, cl_uint, void *[], void *);
    void *data;
    cl_int status; /* status of the first command */
    cl_uint count;
    void *pointers[];
};

static const struct command_ops step_ops = {
    .type = CL_COMMAND_SVM_FREE,
    .size = sizeof(struct command),
    .issue = command_marker_issue,
    .unrepeatable = "it has shared virtual memory",
};

static void svm_free_release_free(struct release *release)
{
    object_unhold(release->queue);
    object_unhold(release->done);
    free(release);
}

/* Prepare the release. NULL without memory, or without a thread to call the program in. */
static struct release *svm_free_release_new(struct queue *queue, cl_uint count,
                                            void *const *pointers)
{
    struct release *release = calloc(1, sizeof(*release) + count * sizeof(pointers[0]));
    struct event *done = event_create(queue->context, NULL, CL_COMMAND_USER);
    if (!release || !done || callback_start() != 0) {
        event_discard(done);
        free(release);
        return NULL;
    }
    object_publish(done);
    object_hold(queue);
    release->queue = queue;
    release->done = done;
    object_hold(done);
    release->count = count;
    memcpy(release->pointers, pointers, count * sizeof(pointers[0]));
    return release;
}

static void svm_free_release_ends(void *data)
{
    struct release *release = data;
    (void)event_set_user_status(release->done, release->status);
    svm_free_release_free(release);
}

static void CL_CALLBACK svm_free_reached(cl_event event, cl_int status, void *data)
{
    (void)event;
    struct release *release = data;
    struct queue *queue = release->queue;
    release->status = status < 0 ? status : CL_COMPLETE;
    /* Also runs when the callback ends the thread. */
    pthread_cleanup_push(svm_free_release_ends, release);
    if (status == CL_COMPLETE && release->call)
        release->call(object_lend(queue), release->count, release->pointers, release->data);
    for (cl_uint i = 0; status == CL_COMPLETE && !release->call && i < release->count; i++)
        svm_free(queue->context, release->pointers[i]);
    pthread_cleanup_pop(1);
}

cl_int svm_enqueue_free(struct queue *queue, cl_uint count, void *const *pointers,
                        void(CL_CALLBACK *call)(cl_command_queue, cl_uint, void *[], void *),
                        void *data, cl_uint waits, const cl_event *wait_list, cl_event *ret_event)
{
    struct command step = {.ops = &step_ops, .queue = queue};
    struct release *release = svm_free_release_new(queue, count, pointers);
    cl_event first;
    if (!release)
        return CL_OUT_OF_HOST_MEMORY;
    release->call = call;
    release->data = data;
    struct event *done = release->done;
    cl_int error = command_run(&step, false, waits, wait_list, &first);
    if (error == CL_SUCCESS) {
        /* A thread that waits for the last step cannot flush the first. */
        (void)queue_flush(queue);
        cl_event last = (cl_event)done;
        object_hold(done);
        if (event_set_callback((struct event *)first, CL_COMPLETE, svm_free_reached, release) !=
            CL_SUCCESS)
            svm_free_reached(first, event_wait(1, (struct event *const *)&first), release);
        step = (struct command){.ops = &step_ops, .queue = queue};
        error = command_run(&step, false, 1, &last, ret_event);
        object_release(first);
        object_release(done);
        object_unhold(done);
    } else {
        object_release(done);
        svm_free_release_free(release);
    }
    return error;
}
