/**
 * Random commands on in-order and out-of-order queues that wait for each other and for user events,
 * which another thread or a callback sets in any order: everything runs in an order that the wait
 * lists allow, every callback comes once, statuses and times only go forward, errors reach what
 * depends on them and nothing else.
 *
 *   events [--rounds N] [--commands N] [--seed N] [--marker-times 0]
 *
 * Without --marker-times the times of markers and barriers are not compared with others': NVIDIA's
 * driver natively says 0 of those that have a wait list, or times before what they waited for.
 */
#include "prog.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WORDS = 256,
    BYTES = WORDS * 4,
    BUFFERS = 4,
    QUEUES = 4,
    USERS = 6,
    COMMANDS_MAX = 256,
    WAITS_MAX = 5,
    TYPES = 3,
    MOST_DELAY_US = 2000,
    CALLBACK_DEADLINE_S = 60,
    LOST = -77,
};

static const char source[] = "__kernel void advance(__global uint *a, uint k) {\n"
                             "    a[get_global_id(0)] = a[get_global_id(0)] * 5u + k;\n"
                             "}\n";

struct command {
    cl_event event;
    cl_command_type type;
    bool profiled;
    int waits[WAITS_MAX]; /* of the commands before it */
    int wait_count;
    atomic_int called[TYPES];
    atomic_int lowest; /* status that a callback was told */
    atomic_bool disordered;
};

struct told {
    struct command *command;
    cl_int type;
};

struct scene {
    struct prog *prog;
    struct rng rng;
    cl_kernel kernel;
    cl_command_queue queues[QUEUES];
    bool profiled[QUEUES];
    cl_mem buffers[BUFFERS];
    int last[BUFFERS]; /* command that used it last; -1: none */
    uint32_t model[BUFFERS][WORDS];
    cl_event users[USERS];
    struct command commands[COMMANDS_MAX];
    struct told told[COMMANDS_MAX * TYPES];
    int count;
    uint64_t setter_seed;
    uint64_t sum;
    bool marker_times;
};

static cl_int status_of(cl_event event)
{
    cl_int status = 0;

    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    return status;
}

static void CL_CALLBACK on_status(cl_event event, cl_int status, void *data)
{
    struct told *told = data;
    struct command *c = told->command;

    /* Registered earliest status first, so that is how they come. */
    if (status != told->type || status_of(event) > status ||
        atomic_exchange(&c->lowest, status) <= status)
        atomic_store(&c->disordered, true);
    atomic_fetch_add(&c->called[told->type], 1);
}

static void *set_users(void *data)
{
    struct scene *s = data;
    struct rng r = rng_seed(s->setter_seed);
    int order[USERS];

    for (int i = 0; i < USERS; i++)
        order[i] = i;
    for (int i = USERS; i-- > 1;) {
        int j = (int)rng_below(&r, (uint32_t)i + 1), other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
    for (int i = 0; i < USERS; i++) {
        usleep(rng_below(&r, MOST_DELAY_US));
        OK(clSetUserEventStatus(s->users[order[i]], CL_COMPLETE));
    }
    return NULL;
}

/** A wait list for the next command: @must (or -1), some earlier commands, perhaps a user event. */
static cl_uint choose_waits(struct scene *s, struct command *c, const int *must, cl_event *list)
{
    cl_uint count = 0;

    c->wait_count = 0;
    for (int i = 0; i < 2; i++)
        if (must[i] >= 0)
            c->waits[c->wait_count++] = must[i];
    while (s->count && c->wait_count < WAITS_MAX && rng_below(&s->rng, 3) == 0)
        c->waits[c->wait_count++] = (int)rng_below(&s->rng, (uint32_t)s->count);
    for (int i = 0; i < c->wait_count; i++)
        list[count++] = s->commands[c->waits[i]].event;
    if (rng_below(&s->rng, 6) == 0)
        list[count++] = s->users[rng_below(&s->rng, USERS)];
    return count;
}

static void advance(uint32_t *words, uint32_t k)
{
    for (int i = 0; i < WORDS; i++)
        words[i] = words[i] * 5 + k;
}

static void enqueue(struct scene *s, int queue)
{
    struct command *c = &s->commands[s->count];
    cl_command_queue q = s->queues[queue];
    int a = (int)rng_below(&s->rng, BUFFERS),
        b = (a + 1 + (int)rng_below(&s->rng, BUFFERS - 1)) % BUFFERS;
    uint32_t kind = rng_below(&s->rng, 8), k = (uint32_t)rng_next(&s->rng);
    int must[2] = {-1, -1};
    cl_event list[WAITS_MAX + 1];
    const size_t items = WORDS;

    if (kind < 6)
        must[0] = s->last[a];
    if (kind == 3 || kind == 4)
        must[1] = s->last[b];
    cl_uint n = choose_waits(s, c, must, list);
    const cl_event *waits = n ? list : NULL;
    switch (kind) {
    default:
        prog_arg(s->kernel, 0, sizeof(cl_mem), &s->buffers[a]);
        prog_arg(s->kernel, 1, sizeof k, &k);
        OK(clEnqueueNDRangeKernel(q, s->kernel, 1, NULL, &items, NULL, n, waits, &c->event));
        advance(s->model[a], k);
        break;
    case 3:
    case 4:
        OK(clEnqueueCopyBuffer(q, s->buffers[a], s->buffers[b], 0, 0, BYTES, n, waits, &c->event));
        memcpy(s->model[b], s->model[a], BYTES);
        s->last[b] = s->count;
        break;
    case 5:
        OK(clEnqueueFillBuffer(q, s->buffers[a], &k, sizeof k, 0, BYTES, n, waits, &c->event));
        for (int i = 0; i < WORDS; i++)
            s->model[a][i] = k;
        break;
    case 6:
        OK(clEnqueueMarkerWithWaitList(q, n, waits, &c->event));
        break;
    case 7:
        OK(clEnqueueBarrierWithWaitList(q, n, waits, &c->event));
        break;
    }
    if (kind < 6)
        s->last[a] = s->count;
    OK(clGetEventInfo(c->event, CL_EVENT_COMMAND_TYPE, sizeof c->type, &c->type, NULL));
    c->profiled = s->profiled[queue];
    atomic_store(&c->lowest, CL_QUEUED);
    for (cl_int type = CL_SUBMITTED; type >= CL_COMPLETE; type--) {
        struct told *told = &s->told[s->count * TYPES + type];
        *told = (struct told){c, type};
        OK(clSetEventCallback(c->event, type, on_status, told));
    }
    s->count++;
}

static cl_ulong time_of(cl_event event, cl_profiling_info which)
{
    cl_ulong t = 0;

    OK(clGetEventProfilingInfo(event, which, sizeof t, &t, NULL));
    return t;
}

static bool has_times(const struct scene *s, const struct command *c)
{
    bool marker = c->type == CL_COMMAND_MARKER || c->type == CL_COMMAND_BARRIER;

    return c->profiled && (!marker || s->marker_times);
}

static void check_times(const struct scene *s, const struct command *c)
{
    if (!has_times(s, c))
        return;
    cl_ulong queued = time_of(c->event, CL_PROFILING_COMMAND_QUEUED);
    cl_ulong submit = time_of(c->event, CL_PROFILING_COMMAND_SUBMIT);
    cl_ulong start = time_of(c->event, CL_PROFILING_COMMAND_START);
    cl_ulong end = time_of(c->event, CL_PROFILING_COMMAND_END);
    if (queued > submit || submit > start || start > end)
        prog_fail("times: queued %lu, submitted %lu, started %lu, ended %lu", queued, submit, start,
                  end);
    for (int i = 0; i < c->wait_count; i++) {
        const struct command *before = &s->commands[c->waits[i]];
        if (has_times(s, before) && time_of(before->event, CL_PROFILING_COMMAND_END) > end)
            prog_fail(
                "command %d (%x: %lu to %lu) ended before %d (%x: %lu to %lu), which it waited "
                "for",
                (int)(c - s->commands), c->type, start, end, c->waits[i], before->type,
                time_of(before->event, CL_PROFILING_COMMAND_START),
                time_of(before->event, CL_PROFILING_COMMAND_END));
    }
}

static void check_callbacks(const struct command *c)
{
    double deadline = prog_now() + CALLBACK_DEADLINE_S;

    for (int type = 0; type < TYPES; type++) {
        while (atomic_load(&c->called[type]) == 0 && prog_now() < deadline)
            usleep(100);
        if (atomic_load(&c->called[type]) != 1)
            prog_fail("callback of status %d: called %d times", type, c->called[type]);
    }
    REQUIRE(!atomic_load(&c->disordered));
}

/** Wait for everything in one of the ways there are. */
static void wait_for_all(struct scene *s)
{
    uint32_t how = rng_below(&s->rng, 3);
    cl_event events[COMMANDS_MAX];

    for (int q = 0; q < QUEUES; q++)
        OK(how == 0 ? clFinish(s->queues[q]) : clFlush(s->queues[q]));
    for (int i = 0; i < s->count; i++)
        events[i] = s->commands[i].event;
    if (how == 1)
        OK(clWaitForEvents((cl_uint)s->count, events));
    for (int i = s->count; how == 2 && i-- > 0;)
        OK(clWaitForEvents(1, &events[i]));
    for (int i = 0; i < s->count; i++)
        if (status_of(events[i]) != CL_COMPLETE)
            prog_fail("command %d has status %d after wait %u", i, status_of(events[i]), how);
}

static void begin(struct scene *s)
{
    s->count = 0;
    memset(s->commands, 0, sizeof s->commands);
    for (int i = 0; i < USERS; i++)
        s->users[i] = MADE(clCreateUserEvent, s->prog->context);
    for (int i = 0; i < BUFFERS; i++) {
        rng_fill(&s->rng, s->model[i], BYTES);
        s->buffers[i] = prog_buffer(s->prog->context, CL_MEM_COPY_HOST_PTR, BYTES, s->model[i]);
        s->last[i] = -1;
    }
    s->setter_seed = rng_next(&s->rng);
}

static void enqueue_many(struct scene *s, int commands)
{
    for (int i = 0; i < commands; i++) {
        enqueue(s, (int)rng_below(&s->rng, QUEUES));
        if (rng_below(&s->rng, 16) == 0)
            OK(clFlush(s->queues[rng_below(&s->rng, QUEUES)]));
    }
}

static void play(struct scene *s, int commands)
{
    uint32_t got[WORDS];
    pthread_t setter;

    begin(s);
    enqueue_many(s, commands / 3);
    REQUIRE(pthread_create(&setter, NULL, set_users, s) == 0);
    enqueue_many(s, commands - commands / 3);
    wait_for_all(s);
    REQUIRE(pthread_join(setter, NULL) == 0);
    for (int i = 0; i < s->count; i++)
        OK(clWaitForEvents(1, &s->commands[i].event));
    for (int i = 0; i < BUFFERS; i++) {
        prog_read(s->queues[0], s->buffers[i], 0, BYTES, got);
        prog_same("buffer", got, s->model[i], BYTES);
        sum_bytes(&s->sum, got, BYTES);
        OK(clReleaseMemObject(s->buffers[i]));
    }
    for (int i = 0; i < s->count; i++) {
        REQUIRE(status_of(s->commands[i].event) == CL_COMPLETE);
        check_times(s, &s->commands[i]);
        check_callbacks(&s->commands[i]);
    }
    for (int i = 0; i < s->count; i++)
        OK(clReleaseEvent(s->commands[i].event));
    for (int i = 0; i < USERS; i++)
        OK(clReleaseEvent(s->users[i]));
}

static void CL_CALLBACK set_lost(cl_event event, cl_int status, void *user)
{
    (void)event, (void)status;
    OK(clSetUserEventStatus(user, LOST));
}

/** An error that a callback sets reaches what depends on it across queues, and nothing else. */
static void lose(struct scene *s)
{
    cl_int err;
    cl_event user = clCreateUserEvent(s->prog->context, &err), first, chain[QUEUES], apart;

    OK(err);
    for (int q = 0; q < QUEUES; q++)
        OK(clEnqueueMarkerWithWaitList(s->queues[q], 1, q ? &chain[q - 1] : &user, &chain[q]));
    cl_command_queue queue = prog_queue(s->prog, 0);
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &first));
    OK(clSetEventCallback(first, CL_COMPLETE, set_lost, user));
    OK(clEnqueueMarkerWithWaitList(queue, 1, &first, &apart));
    OK(clFlush(queue));
    REQUIRE(clWaitForEvents(QUEUES, chain) == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    REQUIRE(status_of(user) == LOST);
    for (int q = 0; q < QUEUES; q++) {
        REQUIRE(status_of(chain[q]) < 0);
        OK(clReleaseEvent(chain[q]));
    }
    OK(clWaitForEvents(1, &apart));
    REQUIRE(status_of(apart) == CL_COMPLETE);
    RELEASE(first, apart, user, queue);
}

int main(int argc, char **argv)
{
    long rounds = prog_option(argc, argv, "--rounds", 8);
    int commands = (int)prog_option(argc, argv, "--commands", 60);
    uint64_t seed = (uint64_t)prog_option(argc, argv, "--seed", 1), first = 0;
    static struct scene s;
    struct prog p;

    REQUIRE(commands > 0 && commands <= COMMANDS_MAX);
    prog_open(&p);
    s.prog = &p;
    s.marker_times = prog_option(argc, argv, "--marker-times", 1);
    cl_program program = prog_build(&p, source, "");
    s.kernel = prog_kernel(program, "advance");
    for (int q = 0; q < QUEUES; q++) {
        s.profiled[q] = q % 2 == 0;
        s.queues[q] = q < 2 ? prog_queue(&p, s.profiled[q] ? CL_QUEUE_PROFILING_ENABLE : 0)
                            : prog_queue_out_of_order(&p);
    }
    s.profiled[2] = false; /* made without */
    do {
        s.rng = rng_seed(seed * 1000003u); /* neighbours would be the same numbers, shifted */
        s.sum = 0;
        for (long i = 0; i < rounds; i++) {
            play(&s, commands);
            lose(&s);
        }
        REQUIRE(first == 0 || s.sum == first);
        first = s.sum;
    } while (prog_again());
    for (int q = 0; q < QUEUES; q++)
        OK(clReleaseCommandQueue(s.queues[q]));
    RELEASE(s.kernel, program);
    prog_close(&p);
    printf("events checksum %016lx\n", (unsigned long)first);
    return 0;
}
