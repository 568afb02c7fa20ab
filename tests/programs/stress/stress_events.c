/** Events: user events, waits across queues, callbacks, profiling, releases in flight, queries. */
#include "stress.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    CHAIN = 6,
    MAX_DELAY_US = 3000,
    POLL_US = 1000,
    CALLBACK_DEADLINE_S = 60,
    CALLBACK_QUIET_US = 500,
};

struct setter {
    cl_event event;
    unsigned delay_us;
};

static void *set_later(void *arg)
{
    const struct setter *s = arg;

    usleep(s->delay_us);
    OK(clSetUserEventStatus(s->event, CL_COMPLETE));
    return NULL;
}

void stress_userevents(struct worker *w)
{
    size_t n = w->elements, size = n * sizeof(uint32_t);
    uint32_t *host, *want = prog_alloc(size), key = (uint32_t)rng_next(&w->rng);
    cl_mem a = stress_random_buffer(w, CL_MEM_READ_WRITE, n, &host);
    cl_mem b = prog_buffer(w->prog->context, CL_MEM_READ_WRITE, size, NULL);
    cl_int err, status;
    struct setter setter = {clCreateUserEvent(w->prog->context, &err),
                            rng_below(&w->rng, MAX_DELAY_US)};
    pthread_t thread;
    cl_event held;

    OK(err);
    /* One command is held by the event, the next by its place on the queue, a third by the second.
     */
    stress_enqueue(w, w->queue, a, b, n, key, 1, &setter.event, &held);
    stress_enqueue(w, w->queue, b, a, n, ~key, 0, NULL, NULL);
    cl_event last;
    stress_enqueue(w, w->other, b, b, n, 1, 1, &held, &last);
    OK(clGetEventInfo(held, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    REQUIRE(status == CL_QUEUED || status == CL_SUBMITTED);
    OK(clFlush(w->queue));
    OK(clFlush(w->other));
    REQUIRE(pthread_create(&thread, NULL, set_later, &setter) == 0);
    OK(clWaitForEvents(1, &held));
    OK(clFinish(w->queue));
    OK(clWaitForEvents(1, &last));
    REQUIRE(pthread_join(thread, NULL) == 0);
    OK(clGetEventInfo(setter.event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                      NULL));
    REQUIRE(status == CL_COMPLETE);
    stress_scramble(host, want, n, key);
    stress_scramble(want, host, n, 1);
    stress_verify(w, "held by an event of a held command", b, host, size);
    stress_scramble(want, host, n, ~key);
    RELEASE(setter.event, held, last, a, b);
    free(host);
    free(want);
}

void stress_waits(struct worker *w)
{
    size_t n = w->elements, size = n * sizeof(uint32_t);
    uint32_t *host;
    cl_mem a = stress_random_buffer(w, CL_MEM_READ_WRITE, n, &host);
    cl_event chain[CHAIN];

    for (unsigned i = 0; i < CHAIN; i++) {
        uint32_t key = (uint32_t)rng_next(&w->rng);
        cl_command_queue queue = i % 2 ? w->other : w->queue;
        stress_enqueue(w, queue, a, a, n, key, i ? 1 : 0, i ? &chain[i - 1] : NULL, &chain[i]);
        OK(clFlush(queue));
        stress_scramble(host, host, n, key);
    }
    cl_event marker, barrier;
    OK(clEnqueueMarkerWithWaitList(w->other, CHAIN, chain, &marker));
    OK(clEnqueueBarrierWithWaitList(w->queue, 1, &marker, &barrier));
    OK(clFlush(w->other));
    stress_verify(w, "chain across two queues", a, host, size);
    cl_int status;
    OK(clWaitForEvents(1, &barrier));
    OK(clGetEventInfo(marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    REQUIRE(status == CL_COMPLETE);
    for (unsigned i = 0; i < CHAIN; i++)
        OK(clReleaseEvent(chain[i]));
    RELEASE(marker, barrier, a);
    free(host);
}

struct counts {
    atomic_int submitted, running, complete, destroyed, built;
};

static void CL_CALLBACK on_event(cl_event event, cl_int status, void *data)
{
    struct counts *c = data;

    (void)event;
    atomic_fetch_add(status == CL_SUBMITTED ? &c->submitted
                     : status == CL_RUNNING ? &c->running
                                            : &c->complete,
                     1);
}

static void CL_CALLBACK on_destroy(cl_mem mem, void *data)
{
    (void)mem;
    atomic_fetch_add(&((struct counts *)data)->destroyed, 1);
}

static void CL_CALLBACK on_build(cl_program program, void *data)
{
    (void)program;
    atomic_fetch_add(&((struct counts *)data)->built, 1);
}

static void await_count(const atomic_int *count, int wanted, const char *what)
{
    double deadline = prog_now() + CALLBACK_DEADLINE_S;

    while (atomic_load(count) < wanted && prog_now() < deadline)
        usleep(POLL_US);
    usleep(CALLBACK_QUIET_US);
    if (atomic_load(count) != wanted)
        prog_fail("callback %s: called %d times, want %d", what, atomic_load(count), wanted);
}

void stress_callbacks(struct worker *w)
{
    size_t n = w->elements;
    uint32_t *host;
    cl_mem a = stress_random_buffer(w, CL_MEM_READ_WRITE, n, &host);
    struct counts counts = {0};
    cl_event events[CHAIN];

    OK(clSetMemObjectDestructorCallback(a, on_destroy, &counts));
    for (unsigned i = 0; i < CHAIN; i++) {
        stress_enqueue(w, w->queue, a, a, n, i, 0, NULL, &events[i]);
        OK(clSetEventCallback(events[i], CL_SUBMITTED, on_event, &counts));
        OK(clSetEventCallback(events[i], CL_RUNNING, on_event, &counts));
        OK(clSetEventCallback(events[i], CL_COMPLETE, on_event, &counts));
        stress_scramble(host, host, n, i);
    }
    stress_verify(w, "kernels with callbacks", a, host, n * sizeof *host);
    for (unsigned i = 0; i < CHAIN; i++)
        OK(clReleaseEvent(events[i]));
    const char *source = "__kernel void nothing(__global uint *a) { a[0] = 1; }";
    cl_program program = MADE(clCreateProgramWithSource, w->prog->context, 1, &source, NULL);
    OK(clBuildProgram(program, 1, &w->prog->device, "", on_build, &counts));
    OK(clReleaseMemObject(a));
    await_count(&counts.built, 1, "at the end of a build");
    await_count(&counts.submitted, CHAIN, "at submitted");
    await_count(&counts.running, CHAIN, "at running");
    await_count(&counts.complete, CHAIN, "at complete");
    await_count(&counts.destroyed, 1, "at destruction");
    OK(clReleaseProgram(program));
    free(host);
}

static cl_ulong event_time(cl_event event, cl_profiling_info which)
{
    cl_ulong t = 0;

    OK(clGetEventProfilingInfo(event, which, sizeof t, &t, NULL));
    return t;
}

void stress_profiling(struct worker *w)
{
    size_t n = w->elements;
    uint32_t *host;
    cl_mem a = stress_random_buffer(w, CL_MEM_READ_WRITE, n, &host);
    cl_event events[CHAIN];

    for (unsigned i = 0; i < CHAIN; i++) {
        stress_enqueue(w, w->queue, a, a, n, i, 0, NULL, &events[i]);
        stress_scramble(host, host, n, i);
    }
    stress_verify(w, "profiled kernels", a, host, n * sizeof *host);
    for (unsigned i = 0; i < CHAIN; i++) {
        OK(clWaitForEvents(1, &events[i]));
        cl_ulong queued = event_time(events[i], CL_PROFILING_COMMAND_QUEUED);
        cl_ulong submit = event_time(events[i], CL_PROFILING_COMMAND_SUBMIT);
        cl_ulong start = event_time(events[i], CL_PROFILING_COMMAND_START);
        cl_ulong end = event_time(events[i], CL_PROFILING_COMMAND_END);
        REQUIRE(queued <= submit && submit <= start && start <= end);
        /* The queue is in order, and stays in order from one device to another. */
        const cl_ulong now[4] = {queued, submit, start, end}, *last = w->last_times;
        if (start < last[2])
            prog_fail("kernel %u began %lu ns before the last: queued %lu, submitted %lu, from %lu "
                      "to %lu; the last %lu, %lu, %lu, %lu",
                      i, last[2] - start, queued, submit, start, end, last[0], last[1], last[2],
                      last[3]);
        memcpy(w->last_times, now, sizeof now);
        OK(clReleaseEvent(events[i]));
    }
    OK(clReleaseMemObject(a));
    free(host);
}

void stress_inflight(struct worker *w)
{
    size_t n = w->elements, size = n * sizeof(uint32_t);
    uint32_t *host, *want = prog_alloc(size), key = (uint32_t)rng_next(&w->rng);
    cl_mem a = stress_random_buffer(w, CL_MEM_READ_WRITE, n, &host);
    cl_mem b = prog_buffer(w->prog->context, CL_MEM_READ_WRITE, size, NULL);
    cl_mem c = prog_buffer(w->prog->context, CL_MEM_READ_WRITE, size, NULL);
    cl_command_queue queue = prog_queue(w->prog, 0);
    cl_kernel kernel = prog_kernel(w->program, "scramble");
    cl_event done;

    prog_arg(kernel, 0, sizeof a, &a);
    prog_arg(kernel, 1, sizeof b, &b);
    prog_arg(kernel, 2, sizeof key, &key);
    prog_run(queue, kernel, n);
    OK(clEnqueueCopyBuffer(queue, b, c, 0, 0, size, 0, NULL, &done));
    /* Everything that the commands use goes away before they need have run. */
    RELEASE(kernel, a, b);
    OK(clFlush(queue));
    OK(clReleaseCommandQueue(queue));
    OK(clWaitForEvents(1, &done));
    OK(clReleaseEvent(done));
    stress_scramble(host, want, n, key);
    stress_verify(w, "released in flight", c, want, size);
    OK(clReleaseMemObject(c));
    free(host);
    free(want);
}

void stress_queries(struct worker *w)
{
    size_t words = 64 + rng_below(&w->rng, 1000), size;
    uint32_t *host;
    cl_mem a = stress_random_buffer(w, CL_MEM_READ_ONLY, words, &host);
    cl_uint references, arguments;
    cl_context context;
    cl_device_id device;
    cl_command_queue_properties properties;
    cl_mem_flags flags;

    OK(clRetainMemObject(a));
    OK(clGetMemObjectInfo(a, CL_MEM_REFERENCE_COUNT, sizeof references, &references, NULL));
    REQUIRE(references == 2);
    OK(clReleaseMemObject(a));
    OK(clGetMemObjectInfo(a, CL_MEM_SIZE, sizeof size, &size, NULL));
    REQUIRE(size == words * sizeof(uint32_t));
    OK(clGetMemObjectInfo(a, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
    REQUIRE(flags == (CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR));
    OK(clGetMemObjectInfo(a, CL_MEM_CONTEXT, sizeof context, &context, NULL));
    REQUIRE(context == w->prog->context);
    OK(clGetCommandQueueInfo(w->queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL));
    REQUIRE(device == w->prog->device);
    OK(clGetCommandQueueInfo(w->queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL));
    REQUIRE(properties == CL_QUEUE_PROFILING_ENABLE);
    OK(clGetKernelInfo(w->scramble, CL_KERNEL_NUM_ARGS, sizeof arguments, &arguments, NULL));
    REQUIRE(arguments == 3);
    sum_word(&w->sum, size);
    OK(clReleaseMemObject(a));
    free(host);
}
