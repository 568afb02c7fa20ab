#include "state/object/residence.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/work.h"
#include "state/object/lost.h"

/* Events in one call of the driver. */
#define AWAIT_EVENTS 16
/* How long each side spins before it sleeps, because waking a thread takes as long again as a short
 * wait. Only with several processors. */
#define SPIN_NS         30000u
#define SPIN_PROCESSORS 4

/* A driver call for a helper; it refers to no object of ours. */
struct driver_call {
    cl_int (*run)(const struct driver_call *call);
    const cl_icd_dispatch *cl;
    cl_context context;
    cl_device_id device;
    cl_command_queue queue;
    cl_uint count;
    cl_event events[AWAIT_EVENTS];
};

/* A helper thread that makes driver calls for others, one at a time. */
struct helper {
    struct helper *next;            /* in the list `busy` or `idle`; guarded by lock, like... */
    const struct residence *waited; /* the residence waited for; no reference is held */
    pthread_cond_t called, ended;
    struct driver_call call;
    cl_int result;
    bool abandoned; /* ...up to here: the caller does not wait any more */
    atomic_bool calls, ends;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct helper *idle, *busy; /* guarded by lock */

static void await_spin(const atomic_bool *flag)
{
    static _Atomic long processors;
    long count = atomic_load_explicit(&processors, memory_order_relaxed);
    if (UNLIKELY(count == 0)) {
        count = sysconf(_SC_NPROCESSORS_ONLN);
        atomic_store_explicit(&processors, count > 0 ? count : 1, memory_order_relaxed);
    }
    if (count < SPIN_PROCESSORS)
        return;
    uint64_t until = clock_now_ns() + SPIN_NS;
    while (!atomic_load_explicit(flag, memory_order_acquire) && clock_now_ns() < until)
        ;
}

/* Lock held. */
static void await_leave_busy(struct helper *helper)
{
    struct helper **link = &busy;
    while (*link != helper)
        link = &(*link)->next;
    *link = helper->next;
}

static void await_helper_free(struct helper *helper)
{
    pthread_cond_destroy(&helper->called);
    pthread_cond_destroy(&helper->ended);
    free(helper);
}

static void *await_helper_run(void *data)
{
    struct helper *helper = data;
    bool abandoned = false;
    while (!abandoned) {
        await_spin(&helper->calls);
        pthread_mutex_lock(&lock);
        while (!atomic_load(&helper->calls))
            pthread_cond_wait(&helper->called, &lock);
        atomic_store(&helper->calls, false);
        pthread_mutex_unlock(&lock);
        cl_int result = helper->call.run(&helper->call);
        pthread_mutex_lock(&lock);
        helper->result = result;
        abandoned = helper->abandoned;
        atomic_store_explicit(&helper->ends, true, memory_order_release);
        pthread_cond_signal(&helper->ended);
        pthread_mutex_unlock(&lock);
    }
    await_helper_free(helper);
    return NULL;
}

static struct helper *await_helper_create(void)
{
    struct helper *helper = calloc(1, sizeof(*helper));
    if (!helper)
        return NULL;
    pthread_cond_init(&helper->called, NULL);
    pthread_cond_init(&helper->ended, NULL);
    if (thread_start("reseat-wait", 0, await_helper_run, helper, NULL) == 0)
        return helper;
    await_helper_free(helper);
    return NULL;
}

/* Have a helper make @call for a wait for @residence; NULL without memory or threads. */
static struct helper *await_helper_call(const struct residence *residence,
                                        const struct driver_call *call)
{
    pthread_mutex_lock(&lock);
    struct helper *helper = idle;
    if (helper)
        idle = helper->next;
    pthread_mutex_unlock(&lock);
    if (!helper)
        helper = await_helper_create();
    if (!helper)
        return NULL;
    pthread_mutex_lock(&lock);
    helper->call = *call;
    helper->waited = residence;
    helper->next = busy;
    busy = helper;
    atomic_store(&helper->ends, false);
    atomic_store_explicit(&helper->calls, true, memory_order_release);
    pthread_cond_signal(&helper->called);
    pthread_mutex_unlock(&lock);
    return helper;
}

/* Stop waiting for @helper. True with its result if it had ended; else the helper ends by itself,
 * or stays in the driver for good. */
static bool await_helper_leave(struct helper *helper, cl_int *ret_result)
{
    pthread_mutex_lock(&lock);
    bool ended = atomic_load(&helper->ends);
    await_leave_busy(helper);
    if (ended) {
        *ret_result = helper->result;
        helper->next = idle;
        idle = helper;
    } else {
        helper->abandoned = true;
    }
    pthread_mutex_unlock(&lock);
    return ended;
}

/* Wait until the helper ends, @until_ns, or @leaves is lost. With @leaves NULL, a loss does not end
 * the wait. */
static void await_helper_wait(struct helper *helper, uint64_t until_ns,
                              const struct residence *leaves)
{
    int error = 0;
    await_spin(&helper->ends);
    pthread_mutex_lock(&lock);
    while (!atomic_load(&helper->ends) && error == 0 && !(leaves && residence_is_lost(leaves)))
        error = clock_wait(&helper->ended, &lock, until_ns);
    pthread_mutex_unlock(&lock);
}

void await_lost(void)
{
    pthread_mutex_lock(&lock);
    for (struct helper *helper = busy; helper; helper = helper->next)
        if (residence_is_lost(helper->waited))
            pthread_cond_broadcast(&helper->ended);
    pthread_mutex_unlock(&lock);
}

/* Write four bytes to the device, because a marker alone may complete on the host. Success where
 * there is no room for them. */
static cl_int await_write_bytes(const struct driver_call *call, cl_command_queue queue)
{
    static const cl_uint value;
    cl_int error, status = CL_COMPLETE;
    cl_event event = NULL;
    cl_mem buffer =
        call->cl->clCreateBuffer(call->context, CL_MEM_READ_WRITE, sizeof(value), NULL, &error);
    if (!buffer)
        return CL_SUCCESS;
    if (call->cl->clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof(value), &value, 0, NULL,
                                       &event) == CL_SUCCESS) {
        error = call->cl->clFinish(queue);
        if (error == CL_SUCCESS)
            (void)call->cl->clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status),
                                           &status, NULL);
        call->cl->clReleaseEvent(event);
    } else {
        error = CL_SUCCESS;
    }
    call->cl->clReleaseMemObject(buffer);
    return error != CL_SUCCESS ? error : status < 0 ? status : CL_SUCCESS;
}

/* Test the device on a new queue, since other threads may use the existing ones. */
static cl_int await_run_probe(const struct driver_call *call)
{
    cl_int error;
    cl_event event = NULL;
    cl_command_queue queue = call->cl->clCreateCommandQueue(call->context, call->device, 0, &error);
    if (!queue)
        queue = call->queue;
    error = await_write_bytes(call, queue);
    if (error == CL_SUCCESS)
        error = call->cl->clEnqueueMarkerWithWaitList(queue, 0, NULL, &event);
    if (error == CL_SUCCESS) {
        error = call->cl->clFinish(queue);
        call->cl->clReleaseEvent(event);
    }
    if (queue != call->queue)
        call->cl->clReleaseCommandQueue(queue);
    call->cl->clReleaseCommandQueue(call->queue);
    call->cl->clReleaseContext(call->context);
    return error;
}

/* Start a test. It has references of its own, as it may be left behind and the residence released.
 * NULL: without memory or threads, or the driver gives no reference. */
static struct helper *await_probe_start(struct residence *residence)
{
    const cl_icd_dispatch *cl = residence->cl;
    const struct driver_call call = {.run = await_run_probe,
                                     .cl = cl,
                                     .context = residence->context,
                                     .device = residence->device->id,
                                     .queue = residence->io};
    if (cl->clRetainContext(call.context) != CL_SUCCESS)
        return NULL;
    bool retained = cl->clRetainCommandQueue(call.queue) == CL_SUCCESS;
    struct helper *helper = retained ? await_helper_call(residence, &call) : NULL;
    if (!helper) {
        if (retained)
            cl->clReleaseCommandQueue(call.queue);
        cl->clReleaseContext(call.context);
    }
    return helper;
}

enum device_answer await_answer(struct residence *residence, uint64_t patience_ns)
{
    cl_int result;
    struct helper *probe = await_probe_start(residence);
    if (!probe)
        return ANSWER_GOOD;
    await_helper_wait(probe, clock_now_ns() + patience_ns, NULL);
    if (!await_helper_leave(probe, &result))
        return ANSWER_NONE;
    return result == CL_SUCCESS ? ANSWER_GOOD : ANSWER_ERROR;
}

/* Tests that a long wait makes of the device. */
struct look {
    struct helper *probe; /* the running test; or NULL */
    uint64_t since_ns;    /* when it began */
    uint64_t patience_ns;
};

static void await_look(struct look *look, struct residence *residence)
{
    cl_int result;
    if (!look->probe) {
        look->probe = await_probe_start(residence);
        look->since_ns = clock_now_ns();
        return;
    }
    /* One that was in the driver when the device hung would hide what the driver says since. */
    if (!atomic_load(&look->probe->ends) && clock_now_ns() - look->since_ns < look->patience_ns)
        return;
    if (await_helper_leave(look->probe, &result) && result != CL_SUCCESS)
        residence_lose(residence, "it does not end what it was given, and answers with errors",
                       false);
    look->probe = NULL;
    look->patience_ns *= 2;
}

/* Make @call in a helper thread. False when it could not be done aside. */
static bool await_call_aside(struct residence *residence, const struct driver_call *call,
                             cl_int *ret_result)
{
    cl_int ignored;
    struct look at = {.patience_ns = lost_patience_ns};
    /* In a handler of exit(), this is the only thread in the driver. */
    if (!residence->waits_aside || residence_is_lost(residence) || work_is_over())
        return false;
    struct helper *helper = await_helper_call(residence, call);
    if (!helper)
        return false;
    for (;;) {
        uint64_t step = at.probe ? at.patience_ns / 8 : at.patience_ns;
        await_helper_wait(helper, clock_now_ns() + step, residence);
        if (atomic_load(&helper->ends) || residence_is_lost(residence))
            break;
        await_look(&at, residence);
    }
    if (at.probe)
        (void)await_helper_leave(at.probe, &ignored);
    if (!await_helper_leave(helper, ret_result)) {
        residence_hangs(residence);
        struct driver_call lost = *call;
        lost.cl = residence->cl;
        *ret_result = lost.run(&lost);
    }
    return true;
}

static cl_int await_run_wait(const struct driver_call *call)
{
    return call->cl->clWaitForEvents(call->count, call->events);
}

static cl_int await_run_finish(const struct driver_call *call)
{
    return call->cl->clFinish(call->queue);
}

cl_int residence_await_events(struct residence *residence, cl_uint count, const cl_event *real)
{
    cl_int error = CL_SUCCESS;
    for (cl_uint at = 0; residence->waits_aside && at < count; at += AWAIT_EVENTS) {
        struct driver_call call = {.run = await_run_wait, .cl = residence->cl};
        cl_int ended;
        call.count = count - at < AWAIT_EVENTS ? count - at : AWAIT_EVENTS;
        memcpy(call.events, real + at, call.count * sizeof(*real));
        if (!await_call_aside(residence, &call, &ended))
            ended = await_run_wait(&call);
        error = error != CL_SUCCESS ? error : ended;
    }
    if (!residence->waits_aside)
        error = residence->cl->clWaitForEvents(count, real);
    return LIKELY(error == CL_SUCCESS) || !residence_failed(residence, error)
               ? error
               : CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
}

cl_int residence_await_queue(struct residence *residence, cl_command_queue real)
{
    const struct driver_call call = {.run = await_run_finish, .cl = residence->cl, .queue = real};
    cl_int error;
    if (!await_call_aside(residence, &call, &error))
        error = await_run_finish(&call);
    return LIKELY(error == CL_SUCCESS) || !residence_failed(residence, error) ? error
                                                                              : CL_OUT_OF_RESOURCES;
}

static void await_in_child(void)
{
    static struct helper *of_parent[2] __attribute__((
        used)); /* keeps the parent's helpers reachable; their threads do not exist in the child */
    of_parent[0] = idle;
    of_parent[1] = busy;
    idle = busy = NULL;
}

FORK_PART = {.rank = FORK_TABLE, .lock = &lock, .in_child = await_in_child};
