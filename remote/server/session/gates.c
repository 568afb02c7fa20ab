#include "remote/server/session/peer_copy.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/thread.h"

/* A trial that takes longer than this counts as hung. */
#define TRIAL_NS (3 * NS_PER_S)
/* The longest time that the session's thread waits for a trial, once for each device. A trial that
   does not hang takes one or two milliseconds where processors are free. */
#define MOMENT_NS (250 * NS_PER_MS)
#define TRIED_MAX 64
#define STACK     ((size_t)512 << 10)

/* The trial's thread owns the objects. If that thread hangs, they are never released. */
struct trial {
    const cl_icd_dispatch *cl;
    cl_device_id device;
    cl_context context; /* A reference. */
    cl_command_queue queue;
    cl_event start, gate, end;
    uint64_t begun_ns;
    bool said;
    enum gates found; /* Guarded by gates_lock. */
};

static pthread_mutex_t gates_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gates_found = PTHREAD_COND_INITIALIZER;
/* Only the session's thread adds to these. */
static struct trial trials[TRIED_MAX];
static size_t trial_count;

static void gates_find(struct trial *trial, enum gates found)
{
    pthread_mutex_lock(&gates_lock);
    trial->found = found;
    pthread_cond_broadcast(&gates_found);
    pthread_mutex_unlock(&gates_lock);
}

static bool gates_begins(const struct trial *trial)
{
    cl_int status = CL_QUEUED;
    while (status > CL_COMPLETE && clock_now_ns() < trial->begun_ns + TRIAL_NS) {
        if (trial->cl->clGetEventInfo(trial->start, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                      sizeof(status), &status, NULL))
            return false;
        if (status > CL_COMPLETE)
            clock_sleep(NS_PER_MS);
    }
    return status == CL_COMPLETE;
}

/* All driver calls of the trial are made in its thread: a driver may execute a command inside the
   call that submits it. */
static bool gates_passes(struct trial *trial)
{
    const cl_icd_dispatch *cl = trial->cl;
    cl_int error = CL_SUCCESS;
    trial->queue = cl->clCreateCommandQueue(trial->context, trial->device, 0, &error);
    if (error == CL_SUCCESS)
        trial->gate = cl->clCreateUserEvent(trial->context, &error);
    if (error == CL_SUCCESS)
        error = cl->clEnqueueMarkerWithWaitList(trial->queue, 0, NULL, &trial->start);
    if (error == CL_SUCCESS)
        error = cl->clEnqueueMarkerWithWaitList(trial->queue, 1, &trial->gate, &trial->end);
    if (error == CL_SUCCESS)
        error = cl->clFlush(trial->queue);
    bool began = error == CL_SUCCESS && gates_begins(trial);
    if (trial->gate)
        cl->clSetUserEventStatus(trial->gate, CL_COMPLETE);
    return began;
}

static void gates_release(struct trial *trial)
{
    const cl_icd_dispatch *cl = trial->cl;
    if (trial->end)
        cl->clReleaseEvent(trial->end);
    if (trial->gate)
        cl->clReleaseEvent(trial->gate);
    if (trial->start)
        cl->clReleaseEvent(trial->start);
    if (trial->queue)
        cl->clReleaseCommandQueue(trial->queue);
    cl->clReleaseContext(trial->context);
}

static void *gates_run(void *data)
{
    struct trial *trial = data;
    gates_find(trial, gates_passes(trial) ? GATES_GOOD : GATES_NONE);
    gates_release(trial);
    return NULL;
}

static struct trial *gates_find_trial(cl_device_id device)
{
    for (size_t i = 0; i < trial_count; i++)
        if (trials[i].device == device)
            return &trials[i];
    return NULL;
}

/* Returns NULL if the table of trials is full or the context cannot be retained. */
static struct trial *gates_try_once(const cl_icd_dispatch *cl, cl_context context,
                                    cl_device_id device)
{
    struct trial *trial = gates_find_trial(device);
    if (trial || trial_count == TRIED_MAX)
        return trial;
    if (cl->clRetainContext(context))
        return NULL;
    trial = &trials[trial_count++];
    *trial =
        (struct trial){.cl = cl, .device = device, .context = context, .begun_ns = clock_now_ns()};
    if (thread_start("reseat-gate", STACK, gates_run, trial, NULL)) {
        trial->found = GATES_NONE;
        cl->clReleaseContext(context);
    }
    return trial;
}

void gates_try(const cl_icd_dispatch *cl, cl_context context, cl_device_id device)
{
    (void)gates_try_once(cl, context, device);
}

static enum gates gates_await_trial(const struct trial *trial)
{
    pthread_mutex_lock(&gates_lock);
    while (trial->found == GATES_UNKNOWN &&
           clock_wait(&gates_found, &gates_lock, trial->begun_ns + MOMENT_NS) == 0)
        ;
    enum gates found = trial->found;
    pthread_mutex_unlock(&gates_lock);
    return found;
}

enum gates gates_of(const cl_icd_dispatch *cl, cl_context context, cl_device_id device)
{
    struct trial *trial = gates_try_once(cl, context, device);
    if (!trial)
        return GATES_NONE;
    enum gates found = gates_await_trial(trial);
    if (found == GATES_UNKNOWN && clock_now_ns() >= trial->begun_ns + TRIAL_NS)
        found = GATES_NONE;
    if (found == GATES_NONE && !trial->said)
        log_info("a device cannot wait for user events without hanging, and is not used in "
                 "transfers between devices");
    trial->said = trial->said || found == GATES_NONE;
    return found;
}
