#include <pthread.h>
#include <stdatomic.h>

#include "state/command/power.h"
#include "state/object/lost.h"
#include "state/recovery/protect.h"
#include "tests/state/move/placement_rig.h"

/* Random commands of all kinds whose launches are placed, while the program moves or loses devices.
 */

struct mover {
    const struct engine_rig *rig;
    atomic_bool ends;
    bool loses; /* a helper vanishes in the middle */
    unsigned seed;
};

/* Moves the program among the devices, and suspends it, at any moment. */
static void *move_at_random(void *data)
{
    struct mover *mover = data;
    static const char *const names[] = {"one", "two", "one"};
    struct move_report report;
    for (unsigned n = 0; !atomic_load(&mover->ends); n++) {
        engine_rig_sleep(1 + (unsigned)rand_r(&mover->seed) % 500);
        if (n >= 5 && mover->loses && launches(mover->rig, "three") > 1) {
            cr_assert_eq(emu_shared_vanish(mover->rig->emu, "three"), 0);
            mover->loses = false;
        }
        if (rand_r(&mover->seed) % 3 == 0)
            (void)engine_rig_move(mover->rig, NULL, &report);
        (void)engine_rig_move(mover->rig, names[(unsigned)rand_r(&mover->seed) % 3], &report);
    }
    (void)engine_rig_move(mover->rig, "one", &report);
    return NULL;
}

enum { MOST_EVENTS = 1024, MOST_WAITS = 16, MOST_READS = 8, MOST_QUEUES = 3 };

/* Who used half of a buffer, so that commands of other queues can wait for it. */
struct half {
    unsigned writers, readers;  /* a bit for each queue */
    cl_event last[MOST_QUEUES]; /* of the last command there; or NULL */
};

/* A program that gives commands of all kinds to its queues. The model has what they do. */
struct graph {
    struct engine_program program;
    cl_kernel kernel, part; /* part: half of a buffer, of which it gets all */
    bool taught;            /* that its own device is slow, so that most launches leave */
    cl_mem buffers[BUFFERS], halves[BUFFERS]; /* halves: views of the second half */
    unsigned seed;
    cl_device_id device;
    cl_command_queue queues[MOST_QUEUES]; /* the first one is the program's */
    unsigned queue_count, unordered;      /* unordered: a bit for each that is out of order */
    unsigned on;                          /* the one that gets the next command */
    struct half parts[BUFFERS][2];
    cl_event waits[MOST_WAITS]; /* of the next command */
    cl_uint wait_count;
    cl_event events[MOST_EVENTS]; /* of the round's commands, in their order */
    unsigned event_on[MOST_EVENTS];
    cl_event event_waits[MOST_EVENTS][MOST_WAITS];
    unsigned event_count, read_count;
    cl_event user; /* commands may wait for it; or NULL */
    cl_uint read[MOST_READS][ITEMS], expected[MOST_READS][ITEMS], written[MOST_READS][ITEMS];
};

static unsigned pick(struct graph *g, unsigned below)
{
    return (unsigned)rand_r(&g->seed) % below;
}

static cl_event *event_on(struct graph *g, unsigned on)
{
    cr_assert_lt(g->event_count, MOST_EVENTS);
    g->event_on[g->event_count] = on;
    memcpy(g->event_waits[g->event_count], g->waits, g->wait_count * sizeof(cl_event));
    return &g->events[g->event_count++];
}

/* Half of the commands have no event. */
static cl_event *event_of(struct graph *g)
{
    return pick(g, 2) ? event_on(g, g->on) : NULL;
}

static const cl_event *waits_of(const struct graph *g)
{
    return g->wait_count != 0 ? g->waits : NULL;
}

/* The next command uses half @which of buffer @i: it waits for those of other queues that it must
 * come after. A marker stands for those without an event, and for all of an out-of-order queue. */
static void wait_for_half(struct graph *g, unsigned i, unsigned which, bool writes)
{
    struct half *half = &g->parts[i][which];
    unsigned before = half->writers | (writes ? half->readers : 0);
    for (unsigned r = 0; r < g->queue_count; r++) {
        bool unordered = g->unordered >> r & 1;
        if (!(before >> r & 1) || (r == g->on && !unordered))
            continue;
        cl_event event = unordered ? NULL : half->last[r];
        if (!event) {
            cl_uint count = g->wait_count;
            g->wait_count = 0;
            OK(clEnqueueMarkerWithWaitList(g->queues[r], 0, NULL, event_on(g, r)));
            g->wait_count = count;
            event = g->events[g->event_count - 1];
        }
        cr_assert_lt(g->wait_count, MOST_WAITS);
        g->waits[g->wait_count++] = event;
    }
}

enum { FIRST = 1, SECOND = 2, BOTH = 3 };

static void waits_for(struct graph *g, unsigned i, unsigned halves, bool writes)
{
    for (unsigned which = 0; which < 2; which++)
        if (halves >> which & 1)
            wait_for_half(g, i, which, writes);
}

/* The command that used them was given; @event: its own, or NULL. */
static void has_used(struct graph *g, unsigned i, unsigned halves, bool writes,
                     const cl_event *event)
{
    for (unsigned which = 0; which < 2; which++) {
        struct half *half = &g->parts[i][which];
        if (!(halves >> which & 1))
            continue;
        half->writers = writes ? 1u << g->on : half->writers;
        half->readers = writes ? 0 : half->readers | 1u << g->on;
        half->last[g->on] = event ? *event : NULL;
    }
    g->wait_count = 0;
}

/* @halves: of each buffer. */
static void give_launch(struct graph *g, unsigned out, unsigned a, unsigned b, unsigned halves)
{
    const size_t global = halves == BOTH ? ITEMS : HALF, local = 16;
    bool part = halves == FIRST || (halves == SECOND && pick(g, 2));
    const cl_mem *from = halves == BOTH || part ? g->buffers : g->halves;
    cl_kernel kernel = part ? g->part : g->kernel;
    cl_uint k = (cl_uint)rand_r(&g->seed), at = halves == SECOND ? HALF : 0;
    waits_for(g, out, halves, true);
    waits_for(g, a, halves, false);
    waits_for(g, b, halves, false);
    if (g->event_count != 0 && pick(g, 4) == 0)
        g->waits[g->wait_count++] = g->events[pick(g, g->event_count)];
    cl_event *event = event_of(g);
    if (g->user && pick(g, 4) == 0)
        g->waits[g->wait_count++] = g->user;
    ARGS(kernel, from[out], from[a], from[b], k);
    if (part)
        OK(clSetKernelArg(kernel, 4, sizeof(at), &at));
    OK(clEnqueueNDRangeKernel(g->queues[g->on], kernel, 1, NULL, &global, &local, g->wait_count,
                              waits_of(g), event));
    has_used(g, a, halves, false, event);
    has_used(g, b, halves, false, event);
    has_used(g, out, halves, true, event);
    mix_range(out, a, b, k, at, (unsigned)global);
}

static void set_user_event(struct graph *g)
{
    if (g->user) {
        OK(clSetUserEventStatus(g->user, CL_COMPLETE));
        OK(clReleaseEvent(g->user));
    }
    g->user = NULL;
}

static void check_ended(cl_event event)
{
    cl_int status;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_eq(status, CL_COMPLETE, "%d", status);
}

/* No event ends before those that its command waits for, and, in an in-order queue, those of
 * earlier commands. */
static void check_order(struct graph *g)
{
    if (g->event_count == 0)
        return;
    unsigned last = pick(g, g->event_count);
    set_user_event(g);
    OK(clWaitForEvents(1, &g->events[last]));
    for (unsigned i = 0; i < last; i++)
        if (g->event_on[i] == g->event_on[last] && !(g->unordered >> g->event_on[last] & 1))
            check_ended(g->events[i]);
    for (unsigned i = 0; i < MOST_WAITS && g->event_waits[last][i]; i++)
        check_ended(g->event_waits[last][i]);
}

static void give_map(struct graph *g, unsigned out)
{
    set_user_event(g);
    waits_for(g, out, BOTH, true);
    cl_uint *mapped =
        MADE(clEnqueueMapBuffer, g->queues[g->on], g->buffers[out], CL_TRUE,
             CL_MAP_READ | CL_MAP_WRITE, 0, sizeof(words), g->wait_count, waits_of(g), NULL);
    g->wait_count = 0;
    cl_event *event = event_of(g);
    cr_assert_eq(memcmp(mapped, model[out], sizeof(words)), 0, "mapped buffer %u", out);
    for (unsigned i = 0; i < ITEMS; i += 7)
        mapped[i] = model[out][i] = (cl_uint)rand_r(&g->seed);
    OK(clEnqueueUnmapMemObject(g->queues[g->on], g->buffers[out], mapped, 0, NULL, event));
    has_used(g, out, BOTH, true, event);
}

/* A read that does not block, behind a write or not. */
static void give_read(struct graph *g, unsigned out, bool writes)
{
    cl_uint *from = g->written[g->read_count], k = (cl_uint)rand_r(&g->seed);
    if (g->read_count == MOST_READS)
        return;
    for (unsigned i = 0; writes && i < ITEMS; i++)
        from[i] = model[out][i] = k + i;
    if (writes) {
        waits_for(g, out, BOTH, true);
        cl_event *event = event_of(g);
        OK(clEnqueueWriteBuffer(g->queues[g->on], g->buffers[out], CL_FALSE, 0, sizeof(words), from,
                                g->wait_count, waits_of(g), event));
        has_used(g, out, BOTH, true, event);
    }
    memcpy(g->expected[g->read_count], model[out], sizeof(words));
    waits_for(g, out, BOTH, false);
    cl_event *event = event_of(g);
    OK(clEnqueueReadBuffer(g->queues[g->on], g->buffers[out], CL_FALSE, 0, sizeof(words),
                           g->read[g->read_count], g->wait_count, waits_of(g), event));
    has_used(g, out, BOTH, false, event);
    g->read_count++;
}

static cl_command_queue open_queue(const struct graph *g, unsigned i)
{
    cl_command_queue queue =
        MADE(clCreateCommandQueue, g->program.context, g->device,
             g->unordered >> i & 1 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0);
    return queue;
}

/* A queue goes while its commands run; the new one waits for them. */
static void exchange_queue(struct graph *g)
{
    OK(clEnqueueMarkerWithWaitList(g->queues[g->on], 0, NULL, event_on(g, g->on)));
    OK(clReleaseCommandQueue(g->queues[g->on]));
    g->queues[g->on] = open_queue(g, g->on);
    OK(clEnqueueBarrierWithWaitList(g->queues[g->on], 1, &g->events[g->event_count - 1], NULL));
}

static void give_anything(struct graph *g)
{
    unsigned out = pick(g, BUFFERS), a = (out + 1 + pick(g, BUFFERS - 1)) % BUFFERS,
             b = (out + 1 + pick(g, BUFFERS - 1)) % BUFFERS, what = pick(g, 20);
    cl_uint k = (cl_uint)rand_r(&g->seed);
    g->on = pick(g, g->queue_count);
    cl_command_queue queue = g->queues[g->on];
    if (what == 0) {
        waits_for(g, a, BOTH, false);
        waits_for(g, out, BOTH, true);
        cl_event *event = event_of(g);
        OK(clEnqueueCopyBuffer(queue, g->buffers[a], g->buffers[out], 0, 0, sizeof(words),
                               g->wait_count, waits_of(g), event));
        has_used(g, a, BOTH, false, event);
        has_used(g, out, BOTH, true, event);
        memcpy(model[out], model[a], sizeof(words));
    } else if (what == 1) {
        waits_for(g, out, FIRST, true);
        cl_event *event = event_of(g);
        OK(clEnqueueFillBuffer(queue, g->buffers[out], &k, sizeof(k), sizeof(words) / 4,
                               sizeof(words) / 4, g->wait_count, waits_of(g), event));
        has_used(g, out, FIRST, true, event);
        for (unsigned i = ITEMS / 4; i < HALF; i++)
            model[out][i] = k;
    } else if (what <= 4) {
        give_read(g, out, what == 2);
    } else if (what == 5) {
        OK(pick(g, 2) ? clEnqueueBarrierWithWaitList(queue, 0, NULL, event_of(g))
                      : clEnqueueMarkerWithWaitList(queue, 0, NULL, event_of(g)));
    } else if (what == 6) {
        check_order(g);
    } else if (what == 7) {
        give_map(g, out);
    } else if (what == 8) {
        set_user_event(g);
        g->user = clCreateUserEvent(g->program.context, NULL);
    } else if (what == 9 && g->on != 0) {
        exchange_queue(g);
    } else {
        give_launch(g, out, a, b, what < 12 ? FIRST : what < 15 ? SECOND : BOTH);
    }
}

static void check_buffer(struct graph *g, unsigned i, unsigned round)
{
    OK(clEnqueueReadBuffer(g->program.queue, g->buffers[i], CL_TRUE, 0, sizeof(words), words, 0,
                           NULL, NULL));
    cr_assert_eq(memcmp(words, model[i], sizeof(words)), 0, "round %u, buffer %u", round, i);
}

static void end_round(struct graph *g, unsigned round)
{
    set_user_event(g);
    for (unsigned i = 1; i < g->queue_count; i++)
        OK(clFinish(g->queues[i]));
    if (g->queue_count > 1 || g->unordered)
        OK(clFinish(g->program.queue));
    check_buffer(g, pick(g, BUFFERS), round);
    for (unsigned i = 0; i < g->read_count; i++)
        cr_assert_eq(memcmp(g->read[i], g->expected[i], sizeof(words)), 0, "round %u, read %u",
                     round, i);
    for (unsigned i = 0; i < g->event_count; i++)
        OK(clReleaseEvent(g->events[i]));
    g->event_count = g->read_count = 0;
    memset(g->event_waits, 0, sizeof(g->event_waits));
    memset(g->parts, 0, sizeof(g->parts));
}

/* @queues of it, those in the bits of @unordered out of order. */
static void graph_open(struct engine_rig *rig, struct graph *g, unsigned queues, unsigned unordered)
{
    const cl_buffer_region half = {HALF * sizeof(cl_uint), HALF * sizeof(cl_uint)};
    setenv(START_ENV_SLICE, "4", 1);
    g->taught = queues > 1 || unordered;
    place_configure(SCHEDULE_TIME, true);
    engine_rig_open(rig, CONFIG);
    engine_program_open(rig, unordered & 1 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0,
                        placement_source, &g->program);
    g->device = rig->device;
    g->queue_count = queues;
    g->unordered = unordered;
    g->queues[0] = g->program.queue;
    for (unsigned i = 1; i < queues; i++)
        g->queues[i] = open_queue(g, i);
    g->kernel = engine_kernel(g->program.program, "blend");
    g->part = engine_kernel(g->program.program, "part");
    g->seed = (unsigned)(getenv("PLACE_SEED") ? atoi(getenv("PLACE_SEED")) : 1);
    for (unsigned i = 0; i < BUFFERS; i++) {
        for (unsigned j = 0; j < ITEMS; j++)
            model[i][j] = i * 1000003u + j;
        g->buffers[i] =
            engine_buffer(g->program.context, CL_MEM_COPY_HOST_PTR, sizeof(model[i]), model[i]);
        g->halves[i] =
            MADE(clCreateSubBuffer, g->buffers[i], 0, CL_BUFFER_CREATE_TYPE_REGION, &half);
    }
}

static void teach(const struct engine_rig *rig, const struct graph *g)
{
    const cl_kernel kernels[] = {g->kernel, g->part};
    teach_times(rig, kernels, 2, 50, 1);
}

static void run_random_graphs(unsigned queues, unsigned unordered, bool moves, bool loses)
{
    static struct engine_rig rig;
    static struct graph graph;
    struct graph *g = &graph;
    graph_open(&rig, g, queues, unordered);
    const struct device_key keys[] = {*engine_rig_key(&rig, "two"), *engine_rig_key(&rig, "three")};
    OK(elastic_set(keys, 2));
    uint64_t helped = 0;
    struct mover mover = {.rig = &rig, .loses = loses, .seed = g->seed};
    pthread_t thread;
    if (moves)
        cr_assert_eq(pthread_create(&thread, NULL, move_at_random, &mover), 0);
    /* A trial that a busy machine makes long puts off the next one. */
    uint64_t least = g->taught && !moves ? 200 : 1;
    for (unsigned round = 0;
         round < 60 || (round < 1000 && (launches(&rig, "three") == 0 ||
                                         launches(&rig, "two") + launches(&rig, "three") < least));
         round++) {
        for (unsigned n = 0; n < 30; n++)
            give_anything(g);
        end_round(g, round);
        if (g->taught)
            teach(&rig, g);
        if (round % 10 == 9 && !moves && !g->taught) {
            struct move_report report;
            helped += launches(&rig, "two") + launches(&rig, "three");
            cr_assert_eq(engine_rig_move(&rig, round % 20 == 9 ? "three" : "one", &report),
                         MOVE_DONE, "%s", report.reason);
        }
    }
    atomic_store(&mover.ends, true);
    if (moves)
        pthread_join(thread, NULL);
    for (unsigned i = 0; i < BUFFERS; i++)
        check_buffer(g, i, UINT32_MAX);
    helped += launches(&rig, "three"); /* where no move goes, while the program moves */
    cr_assert_gt(helped, 0);
    OK(elastic_set(NULL, 0));
}

TestCall(placement, random_graphs_leave_the_bytes_of_one_device,
         run_random_graphs(1, 0, false, false), .timeout = 240);
TestCall(placement, random_graphs_of_a_program_that_moves_and_is_suspended,
         run_random_graphs(1, 0, true, false), .timeout = 240);
TestCall(placement, random_graphs_whose_helper_is_lost, run_random_graphs(1, 0, true, true),
         .timeout = 240);
TestCall(placement, random_graphs_of_three_queues, run_random_graphs(3, 0, false, false),
         .timeout = 240);
TestCall(placement, random_graphs_of_two_queues_that_move_and_lose_a_helper,
         run_random_graphs(2, 0, true, true), .timeout = 240);
TestCall(placement, random_graphs_of_a_queue_that_is_out_of_order,
         run_random_graphs(1, 1, false, false), .timeout = 240);
TestCall(placement, random_graphs_of_queues_in_and_out_of_order_that_move,
         run_random_graphs(3, 2, true, true), .timeout = 240);

/* Protection begins while launches are with helpers, from when on they stay at home, and home is
 * lost. */
Test(placement, a_program_that_is_protected_from_now_on_outlives_its_device, .timeout = 240)
{
    const struct protect_settings settings = {.interval_ns = UINT64_C(3600000000000)};
    static struct engine_rig rig;
    static struct graph graph;
    struct graph *g = &graph;
    struct protect_status status;
    struct move_report report;
    uint64_t recovered = 0;
    lost_patience_ns = 40000000;
    lost_answer_ns = 500000000;
    graph_open(&rig, g, 1, 0);
    const struct device_key keys[] = {*engine_rig_key(&rig, "two"), *engine_rig_key(&rig, "three")};
    OK(elastic_set(keys, 2));
    for (unsigned round = 0; round < 20 || (round < 500 && launches(&rig, "three") == 0); round++) {
        /* After each move helpers are made ready again, which may take longer than a round. */
        while (launches(&rig, "three") == 0 && !place_begins())
            engine_rig_sleep(1);
        teach(&rig, g);
        for (unsigned n = 0; n < 20; n++)
            give_anything(g);
        cr_assert_eq(protect_begin(&settings), 0);
        set_user_event(g); /* a snapshot waits for what waits for it */
        cr_assert_eq(protect_now(), 0);
        for (unsigned n = 0; n < 10; n++)
            give_anything(g);
        cr_assert_eq(emu_shared_vanish(rig.emu, "one"), 0);
        end_round(g, round);
        OK(clFinish(g->program.queue));
        protect_read(&status);
        recovered = status.recoveries;
        protect_end();
        cr_assert_eq(emu_shared_restore(rig.emu, "one"), 0);
        (void)engine_rig_move(&rig, "one", &report); /* it may be there */
    }
    cr_assert_gt(recovered, 0);
    cr_assert_gt(launches(&rig, "three"), 0);
    OK(elastic_set(NULL, 0));
}

static bool is_idle(void)
{
    struct power_state state;
    power_read(&state);
    return !state.runs;
}

/* The launch that a helper runs ends, though its event waits for launches that have no power. */
Test(placement, without_power_the_launches_of_helpers_end, .timeout = 120)
{
    static struct engine_rig rig;
    static struct graph graph;
    struct graph *g = &graph;
    const size_t global = ITEMS, local = 16;
    memset(g, 0, sizeof(*g));
    graph_open(&rig, g, 1, 0);
    OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    uint64_t before = 0, capped = 0;
    for (unsigned round = 0; round < 200 && capped < 5; round++) {
        teach(&rig, g);
        for (unsigned n = 0; n < 40; n++) {
            unsigned from = n < 20 ? 0 : 3; /* one chain after the other */
            for (unsigned i = 0; i < 3; i++)
                OK(clSetKernelArg(g->kernel, i, sizeof(cl_mem), &g->buffers[from + i]));
            OK(clSetKernelArg(g->kernel, 3, sizeof(n), &n));
            OK(clEnqueueNDRangeKernel(g->program.queue, g->kernel, 1, NULL, &global, &local, 0,
                                      NULL, NULL));
            mix(from, from + 1, from + 2, n);
        }
        OK(clFlush(g->program.queue));
        for (unsigned ms = 0; ms < 40 && launches(&rig, "two") == before; ms++)
            engine_rig_sleep(1);
        if (launches(&rig, "two") != before) {
            power_set(true, 0);
            for (unsigned ms = 0; ms < 10000 && !is_idle(); ms++)
                engine_rig_sleep(1);
            cr_assert(is_idle(), "round %u", round);
            before = launches(&rig, "two");
            engine_rig_sleep(20);
            cr_assert_eq(launches(&rig, "two"), before, "launched without power");
            power_set(false, 0);
            capped++;
        }
        OK(clFinish(g->program.queue));
        before = launches(&rig, "two");
    }
    cr_assert_eq(capped, 5);
    for (unsigned i = 0; i < BUFFERS; i++)
        check_buffer(g, i, UINT32_MAX);
    OK(elastic_set(NULL, 0));
}
