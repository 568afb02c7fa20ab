#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interpose/entry/start.h"
#include "state/base/clock.h"
#include "state/command/place.h"
#include "state/command/power.h"
#include "state/move/elastic.h"
#include "state/object/lost.h"
#include "state/program/kernel.h"
#include "state/recovery/protect.h"
#include "tests/support/engine_rig.h"

/* Launches on other devices than their queue's: the bytes are those of one device. */

#define CONFIG                                                                                     \
    "[one] items_per_s=4000000 name=one type=cpu base=1 own_memory=yes "                           \
    "[two] items_per_s=4000000 name=two type=cpu base=1 own_memory=yes "                           \
    "[three] items_per_s=4000000 name=three type=cpu base=1 own_memory=yes"

static const char source[] =
    "kernel void blend(global uint *out, global const uint *a, global const uint *b, uint k) {\n"
    "  size_t at = get_global_id(0);\n"
    "  out[at] = out[at] * 3u + a[at] * 5u + b[(at + 1) % get_global_size(0)] * 7u + k; }\n"
    "kernel void part(global uint *out, global const uint *a, global const uint *b, uint k,\n"
    "                 uint from) {\n"
    "  size_t i = get_global_id(0), at = from + i, next = from + (i + 1) % get_global_size(0);\n"
    "  out[at] = out[at] * 3u + a[at] * 5u + b[next] * 7u + k; }\n";

enum { BUFFERS = 8, ITEMS = 8192 };

static cl_uint model[BUFFERS][ITEMS], words[ITEMS];

static uint64_t launches(const struct engine_rig *rig, const char *device)
{
    return emu_shared_calls(rig->emu, device, "clEnqueueNDRangeKernel");
}

/* Says of each kernel that was launched what it draws on both devices. */
static void tell_power(const struct engine_rig *rig, uint64_t home_mw, uint64_t helper_mw)
{
    struct pace_sample samples[64];
    uint32_t count = pace_samples_take(samples, 64);
    for (uint32_t i = 0; i < count; i++) {
        /* Of a launch of another size: what it draws is that of them all. */
        struct place_power power = {.items = 1, .has_device = true};
        memcpy(power.id, samples[i].id, sizeof(power.id));
        power.device = *engine_rig_key(rig, "one");
        power.power_mw = home_mw;
        place_learn_power(&power);
        power.device = *engine_rig_key(rig, "two");
        power.power_mw = helper_mw;
        place_learn_power(&power);
    }
}

/* A range of @n words from @at on of three buffers. */
static void mix_range(unsigned out, unsigned a, unsigned b, cl_uint k, unsigned at, unsigned n)
{
    static cl_uint first[ITEMS], second[ITEMS];
    memcpy(first, model[a] + at, n * sizeof(cl_uint));
    memcpy(second, model[b] + at, n * sizeof(cl_uint));
    for (unsigned i = 0; i < n; i++)
        model[out][at + i] = model[out][at + i] * 3u + first[i] * 5u + second[(i + 1) % n] * 7u + k;
}

static void mix(unsigned out, unsigned a, unsigned b, cl_uint k)
{
    mix_range(out, a, b, k, 0, ITEMS);
}

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

enum { MOST_EVENTS = 1024, MOST_WAITS = 16, MOST_READS = 8, HALF = ITEMS / 2, MOST_QUEUES = 3 };

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
    cl_int error;
    cl_command_queue queue = clCreateCommandQueue(
        g->program.context, g->device,
        g->unordered >> i & 1 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0, &error);
    OK(error);
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
    engine_program_open(rig, unordered & 1 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0, source,
                        &g->program);
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

/* Launches of @kernels take @home_ms on the first device, and @other_ms on each other one. So no
 * trials are needed, which a busy machine makes long, so that the next ones are put off. */
static void teach_times(const struct engine_rig *rig, const cl_kernel *kernels, unsigned count,
                        uint64_t home_ms, uint64_t other_ms)
{
    pthread_mutex_lock(&engine_lock);
    for (uint32_t i = 0; i < rig->device_count; i++) {
        struct device *device = rig->devices[i];
        bool home = device_key_equal(&device->key, engine_rig_key(rig, "one"));
        for (unsigned n = 0; n < 8 * count; n++)
            place_learn(((struct kernel *)kernels[n / 8])->pace, device, n % 2 ? HALF : ITEMS,
                        (home ? home_ms : other_ms) * NS_PER_MS);
    }
    pthread_mutex_unlock(&engine_lock);
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

Test(placement, random_graphs_leave_the_bytes_of_one_device, .timeout = 240)
{
    run_random_graphs(1, 0, false, false);
}

Test(placement, random_graphs_of_a_program_that_moves_and_is_suspended, .timeout = 240)
{
    run_random_graphs(1, 0, true, false);
}

Test(placement, random_graphs_whose_helper_is_lost, .timeout = 240)
{
    run_random_graphs(1, 0, true, true);
}

Test(placement, random_graphs_of_three_queues, .timeout = 240)
{
    run_random_graphs(3, 0, false, false);
}

Test(placement, random_graphs_of_two_queues_that_move_and_lose_a_helper, .timeout = 240)
{
    run_random_graphs(2, 0, true, true);
}

Test(placement, random_graphs_of_a_queue_that_is_out_of_order, .timeout = 240)
{
    run_random_graphs(1, 1, false, false);
}

Test(placement, random_graphs_of_queues_in_and_out_of_order_that_move, .timeout = 240)
{
    run_random_graphs(3, 2, true, true);
}

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

/* Long launches, so that the time of a busy machine to wake a thread is little. */
static void run_two_chains(bool two_queues, cl_command_queue_properties properties)
{
    static struct engine_rig rig;
    struct engine_program program;
    cl_mem buffers[BUFFERS];
    cl_command_queue queues[2];
    cl_event last[2];
    cl_int error;
    const size_t global = ITEMS, local = 16;
    setenv(START_ENV_SLICE, "4", 1);
    place_configure(SCHEDULE_TIME, true);
    engine_rig_open(&rig, "[one] items_per_s=100000 name=one type=cpu base=1 own_memory=yes "
                          "[two] items_per_s=100000 name=two type=cpu base=1 own_memory=yes");
    engine_program_open(&rig, properties, source, &program);
    queues[0] = queues[1] = program.queue;
    if (two_queues)
        queues[1] = clCreateCommandQueue(program.context, rig.device, properties, &error);
    cl_kernel kernel = engine_kernel(program.program, "blend");
    for (unsigned i = 0; i < BUFFERS; i++)
        buffers[i] =
            engine_buffer(program.context, CL_MEM_COPY_HOST_PTR, sizeof(model[i]), model[i]);
    OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    for (unsigned round = 0; round < 5 || (round < 100 && launches(&rig, "two") <= 20); round++) {
        teach_times(&rig, &kernel, 1, 80, 80);
        for (unsigned n = 0; n < 8; n++) {
            unsigned chain = n < 4 ? 0 : 1, from = 3 * chain; /* one chain after the other */
            cl_event event;
            ARGS(kernel, buffers[from], buffers[from + 1], buffers[from + 2], n);
            OK(clEnqueueNDRangeKernel(queues[chain], kernel, 1, NULL, &global, &local, n % 4 != 0,
                                      n % 4 != 0 ? &last[chain] : NULL, &event));
            if (n % 4 != 0)
                OK(clReleaseEvent(last[chain]));
            last[chain] = event;
            mix(from, from + 1, from + 2, n);
        }
        for (unsigned i = 0; i < 2; i++) {
            OK(clFinish(queues[i]));
            OK(clReleaseEvent(last[i]));
        }
    }
    for (unsigned i = 0; i < BUFFERS; i++) {
        OK(clEnqueueReadBuffer(program.queue, buffers[i], CL_TRUE, 0, sizeof(words), words, 0, NULL,
                               NULL));
        cr_assert_eq(memcmp(words, model[i], sizeof(words)), 0, "buffer %u", i);
    }
    cr_assert_gt(launches(&rig, "two"), 20);
    OK(elastic_set(NULL, 0));
}

Test(placement, independent_chains_run_on_two_devices, .timeout = 120)
{
    run_two_chains(false, 0);
}

Test(placement, chains_of_two_queues_run_on_two_devices, .timeout = 120)
{
    run_two_chains(true, 0);
}

Test(placement, chains_of_a_queue_that_is_out_of_order_run_on_two_devices, .timeout = 120)
{
    run_two_chains(false, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
}

/* A busy machine makes the preparation of devices long. */
enum { CHAIN = 400, LONG_CHAIN = 40 * CHAIN, TRIALS = 8 };

/* Launch @n of a chain: each needs what the one before it wrote. */
static void give_link(const struct engine_program *program, cl_kernel kernel, const cl_mem *buffers,
                      cl_uint n)
{
    const size_t global = ITEMS, local = 16;
    for (unsigned i = 0; i < 3; i++)
        OK(clSetKernelArg(kernel, i, sizeof(cl_mem), &buffers[(n + i) % 3]));
    OK(clSetKernelArg(kernel, 3, sizeof(n), &n));
    OK(clEnqueueNDRangeKernel(program->queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    mix(n % 3, (n + 1) % 3, (n + 2) % 3, n);
}

struct chain {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel kernel;
    cl_mem buffers[3];
    uint64_t home_mw, helper_mw; /* what launches draw; 0: the engine is not told */
    bool leaves;                 /* the engine is told what launches take */
    cl_uint given;
};

static void chain_goes_on(struct chain *c)
{
    if (c->leaves)
        teach_times(&c->rig, &c->kernel, 1, 2, 2);
    for (cl_uint end = c->given + 20; c->given < end; c->given++)
        give_link(&c->program, c->kernel, c->buffers, c->given);
    OK(clFinish(c->program.queue));
    if (c->home_mw != 0)
        tell_power(&c->rig, c->home_mw, c->helper_mw);
}

/* Power decides, once it is known on both devices, and not time: some launches in a row are helped,
 * and none of them for time. */
static void check_power_decides(struct chain *c)
{
    struct place_status before, after;
    bool decides = false;
    for (cl_uint end = c->given + LONG_CHAIN; c->given < end && !decides;) {
        place_read(&before);
        chain_goes_on(c);
        place_read(&after);
        decides = after.helped > before.helped && after.by_time == before.by_time;
    }
    cr_assert(decides);
}

static void chain_open(struct chain *c, enum schedule_objective objective)
{
    setenv(START_ENV_SLICE, "4", 1);
    place_configure(objective, true);
    engine_rig_open(&c->rig, CONFIG);
    engine_program_open(&c->rig, 0, source, &c->program);
    c->kernel = engine_kernel(c->program.program, "blend");
    for (unsigned i = 0; i < 3; i++)
        c->buffers[i] =
            engine_buffer(c->program.context, CL_MEM_COPY_HOST_PTR, sizeof(model[i]), model[i]);
}

/* Runs a chain. Returns how many ran on the second device, which
 * is as fast as the first: of CHAIN launches, or more if that is less than @least. */
static uint64_t run_chain(enum schedule_objective objective, uint64_t home_mw, uint64_t helper_mw,
                          uint64_t least)
{
    static struct chain chain;
    struct chain *c = &chain;
    *c = (struct chain){.home_mw = home_mw, .helper_mw = helper_mw, .leaves = least != 0};
    chain_open(c, objective);
    OK(elastic_set(engine_rig_key(&c->rig, "two"), 1));
    while (c->given < CHAIN || (c->given < LONG_CHAIN && launches(&c->rig, "two") < least))
        chain_goes_on(c);
    if (least != 0)
        check_power_decides(c);
    for (unsigned i = 0; i < 3; i++) {
        OK(clEnqueueReadBuffer(c->program.queue, c->buffers[i], CL_TRUE, 0, sizeof(words), words, 0,
                               NULL, NULL));
        cr_assert_eq(memcmp(words, model[i], sizeof(words)), 0, "buffer %u", i);
    }
    OK(elastic_set(NULL, 0));
    return launches(&c->rig, "two");
}

/* The copies of a launch take longer than it does at home, but they draw less: it is tried on the
 * helper, where it was never measured. */
Test(placement, for_energy_a_launch_is_tried_whose_copies_take_longer, .timeout = 120)
{
    static struct chain chain;
    struct chain *c = &chain;
    c->home_mw = 100000;
    c->helper_mw = 20000;
    chain_open(c, SCHEDULE_ENERGY);
    place_set_idle(1000);
    for (uint32_t i = 0; i < c->rig.device_count; i++)
        if (device_key_equal(&c->rig.devices[i]->key, engine_rig_key(&c->rig, "two")))
            place_open(&c->rig.devices[i], 1);
    place_close(0);
    OK(elastic_set(engine_rig_key(&c->rig, "two"), 1));
    while (c->given < LONG_CHAIN && launches(&c->rig, "two") == 0) {
        for (unsigned n = 0; n < 60; n++)
            place_copied(0, n % PLACE_COPIES, 4096, 3 * NS_PER_MS);
        chain_goes_on(c);
    }
    cr_assert_gt(launches(&c->rig, "two"), 0);
    OK(elastic_set(NULL, 0));
}

/* But for trials, a second device of the same speed gains nothing. */
Test(placement, a_chain_is_not_sent_to_and_fro, .timeout = 120)
{
    cr_assert_leq(run_chain(SCHEDULE_TIME, 0, 0, 0), TRIALS);
}

Test(placement, for_energy_a_chain_runs_where_it_takes_less, .timeout = 120)
{
    cr_assert_geq(run_chain(SCHEDULE_ENERGY, 100000, 20000, CHAIN), CHAIN);
}

Test(placement, for_energy_a_chain_stays_where_it_takes_less, .timeout = 120)
{
    cr_assert_leq(run_chain(SCHEDULE_ENERGY, 20000, 100000, 0), TRIALS);
}

/* The helper takes less energy, but copies make each launch end later there. */
Test(placement, at_no_loss_nothing_goes_where_it_ends_later, .timeout = 120)
{
    cr_assert_leq(run_chain(SCHEDULE_ENERGY_AT_NO_LOSS, 100000, 20000, 0), TRIALS);
}

Test(placement, where_no_energy_is_known_time_decides, .timeout = 120)
{
    struct place_status status;
    cr_assert_leq(run_chain(SCHEDULE_ENERGY, 0, 0, 0), TRIALS);
    place_read(&status);
    cr_assert_gt(status.by_time, 0);
}

static void give_chain(struct engine_program *program, cl_kernel kernel, const cl_mem *buffers,
                       cl_uint count)
{
    for (cl_uint n = 0; n < count; n++)
        give_link(program, kernel, buffers, n);
    OK(clFlush(program->queue));
}

/* A chain on a device that is four times as fast as the other one: after a while nothing is chosen
 * any more, and launches are given as without an objective. */
Test(placement, what_gains_nothing_ends, .timeout = 120)
{
    static struct engine_rig rig;
    struct engine_program program;
    struct place_status status;
    cl_mem buffers[3];
    setenv(START_ENV_SLICE, "4", 1);
    place_configure(SCHEDULE_TIME, true);
    engine_rig_open(&rig, "[one] items_per_s=8000000 name=one type=cpu base=1 own_memory=yes "
                          "[two] items_per_s=2000000 name=two type=cpu base=1 own_memory=yes");
    engine_program_open(&rig, 0, source, &program);
    cl_kernel kernel = engine_kernel(program.program, "blend");
    for (unsigned i = 0; i < 3; i++)
        buffers[i] =
            engine_buffer(program.context, CL_MEM_COPY_HOST_PTR, sizeof(model[i]), model[i]);
    OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    bool chose = false, rests = false;
    for (unsigned round = 0; round < 1000 && !rests; round++) {
        chose = chose || place_begins();
        give_chain(&program, kernel, buffers, 50);
        OK(clFinish(program.queue));
        place_read(&status);
        rests = chose && !place_begins() && strstr(status.stayed, "not sooner");
    }
    cr_assert(chose);
    cr_assert(rests, "%s", status.stayed);
    for (unsigned i = 0; i < 3; i++) {
        OK(clEnqueueReadBuffer(program.queue, buffers[i], CL_TRUE, 0, sizeof(words), words, 0, NULL,
                               NULL));
        cr_assert_eq(memcmp(words, model[i], sizeof(words)), 0, "buffer %u", i);
    }
    OK(elastic_set(NULL, 0));
}

/* Small copies are slow because each takes long to start. That keeps no launch from a faster device
 * that needs larger copies. */
Test(placement, slow_small_copies_keep_no_launch_at_home, .timeout = 120)
{
    static struct engine_rig rig;
    struct engine_program program;
    cl_mem buffers[3];
    setenv(START_ENV_SLICE, "4", 1);
    place_configure(SCHEDULE_TIME, true);
    engine_rig_open(&rig, "[one] items_per_s=80000 name=one type=cpu base=1 own_memory=yes "
                          "[two] items_per_s=800000 name=two type=cpu base=1 own_memory=yes");
    engine_program_open(&rig, 0, source, &program);
    cl_kernel kernel = engine_kernel(program.program, "blend");
    for (unsigned i = 0; i < 3; i++)
        buffers[i] =
            engine_buffer(program.context, CL_MEM_COPY_HOST_PTR, sizeof(model[i]), model[i]);
    OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    for (unsigned round = 0; round < 100 && launches(&rig, "two") == 0; round++) {
        if (place_begins()) {
            teach_times(&rig, &kernel, 1, 100, 10);
            for (unsigned n = 0; n < 60; n++)
                place_copied(0, n % PLACE_COPIES, 1024, 2 * NS_PER_MS);
        }
        give_chain(&program, kernel, buffers, 3);
        OK(clFinish(program.queue));
    }
    cr_assert_gt(launches(&rig, "two"), 0);
    for (unsigned i = 0; i < 3; i++) {
        OK(clEnqueueReadBuffer(program.queue, buffers[i], CL_TRUE, 0, sizeof(words), words, 0, NULL,
                               NULL));
        cr_assert_eq(memcmp(words, model[i], sizeof(words)), 0, "buffer %u", i);
    }
    OK(elastic_set(NULL, 0));
}

/* A launch on the helper takes 16 s, at home 20 ms: it is given back and runs at home, and neither
 * the program nor a move waits for the helper. A move to the helper's device has the right bytes,
 * although its driver is still in the middle of the launch. */
Test(placement, nobody_waits_for_a_slow_helper, .timeout = 120)
{
    enum { SOON_NS = 5000000000ull };
    static struct engine_rig rig;
    struct engine_program program;
    struct move_report report;
    cl_mem buffers[3];
    setenv(START_ENV_SLICE, "4", 1);
    place_configure(SCHEDULE_TIME, true);
    engine_rig_open(&rig,
                    "[one] items_per_s=400000 name=one type=cpu base=1 own_memory=yes "
                    "[two] items_per_s=512 paced=blend name=two type=cpu base=1 own_memory=yes "
                    "[three] items_per_s=400000 name=three type=cpu base=1 own_memory=yes");
    engine_program_open(&rig, 0, source, &program);
    cl_kernel kernel = engine_kernel(program.program, "blend");
    for (unsigned i = 0; i < 3; i++)
        buffers[i] =
            engine_buffer(program.context, CL_MEM_COPY_HOST_PTR, sizeof(model[i]), model[i]);
    OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    uint64_t begun = 0;
    for (unsigned round = 0; round < 100 && launches(&rig, "two") == 0; round++) {
        begun = clock_now_ns();
        give_chain(&program, kernel, buffers, 5);
        OK(clFinish(program.queue));
    }
    cr_assert_eq(launches(&rig, "two"), 1);
    cr_expect_lt(clock_now_ns() - begun, SOON_NS, "the program waited for the helper");
    begun = clock_now_ns();
    cr_expect_eq(engine_rig_move(&rig, "three", &report), MOVE_DONE, "%s", report.reason);
    cr_expect_lt(clock_now_ns() - begun, SOON_NS, "a move waited for the helper");
    give_chain(&program, kernel, buffers, 5);
    OK(clFinish(program.queue)); /* what is left would run on "two" */
    cr_expect_eq(engine_rig_move(&rig, "two", &report), MOVE_DONE, "%s", report.reason);
    for (unsigned i = 0; i < 3; i++) {
        OK(clEnqueueReadBuffer(program.queue, buffers[i], CL_TRUE, 0, sizeof(words), words, 0, NULL,
                               NULL));
        cr_assert_eq(memcmp(words, model[i], sizeof(words)), 0, "buffer %u", i);
    }
    cr_expect_eq(engine_rig_move(&rig, "one", &report), MOVE_DONE, "%s", report.reason);
    OK(elastic_set(NULL, 0));
}

/* While a helper has a launch, and others are deferred behind it: what is on hold is the parent's.
 */
Test(placement, in_the_child_of_a_fork_nothing_waits_for_a_helper, .timeout = 120)
{
    static struct engine_rig rig;
    struct engine_program program;
    cl_mem buffers[3];
    int status = 0;
    setenv(START_ENV_SLICE, "4", 1);
    place_configure(SCHEDULE_ENERGY, true);
    engine_rig_open(&rig, "[one] items_per_s=400000 name=one type=cpu base=1 own_memory=yes "
                          "[two] items_per_s=400000 name=two type=cpu base=1 own_memory=yes");
    engine_program_open(&rig, 0, source, &program);
    cl_kernel kernel = engine_kernel(program.program, "blend");
    for (unsigned i = 0; i < 3; i++)
        buffers[i] =
            engine_buffer(program.context, CL_MEM_COPY_HOST_PTR, sizeof(model[i]), model[i]);
    OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    bool helped = false;
    for (unsigned round = 0; round < 100 && !helped; round++) {
        uint64_t before = launches(&rig, "two");
        give_chain(&program, kernel, buffers, 20);
        for (unsigned ms = 0; ms < 200 && launches(&rig, "two") == before; ms++)
            engine_rig_sleep(1);
        helped = launches(&rig, "two") != before;
        if (!helped)
            OK(clFinish(program.queue));
        tell_power(&rig, 100000, 20000);
    }
    cr_assert(helped);
    pid_t child = fork();
    if (child == 0) {
        cl_uint last = 20;
        alarm(20);
        give_link(&program, kernel, buffers, last);
        cl_int error = clReleaseMemObject(buffers[0]);
        error = error == CL_SUCCESS ? clReleaseCommandQueue(program.queue) : error;
        _exit(error == CL_SUCCESS ? 9 : 1);
    }
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 9, "status %#x", (unsigned)status);
    OK(clFinish(program.queue));
    for (unsigned i = 0; i < 3; i++) {
        OK(clEnqueueReadBuffer(program.queue, buffers[i], CL_TRUE, 0, sizeof(words), words, 0, NULL,
                               NULL));
        cr_assert_eq(memcmp(words, model[i], sizeof(words)), 0, "buffer %u", i);
    }
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

Test(placement, without_an_objective_every_launch_stays, .timeout = 120)
{
    static struct engine_rig rig;
    struct engine_program program;
    cl_mem buffers[BUFFERS];
    const size_t global = ITEMS, local = 16;
    setenv(START_ENV_SLICE, "4", 1);
    engine_rig_open(&rig, "[one] items_per_s=4000000 name=one type=cpu base=1 own_memory=yes "
                          "[two] items_per_s=4000000 name=two type=cpu base=1 own_memory=yes");
    engine_program_open(&rig, 0, source, &program);
    cl_kernel kernel = engine_kernel(program.program, "blend");
    for (unsigned i = 0; i < BUFFERS; i++)
        buffers[i] =
            engine_buffer(program.context, CL_MEM_COPY_HOST_PTR, sizeof(model[i]), model[i]);
    OK(elastic_set(engine_rig_key(&rig, "two"), 1));
    for (cl_uint n = 0; n < 200; n++) {
        for (unsigned i = 0; i < 3; i++)
            OK(clSetKernelArg(kernel, i, sizeof(cl_mem), &buffers[(n % 2) * 3 + i]));
        OK(clSetKernelArg(kernel, 3, sizeof(n), &n));
        OK(clEnqueueNDRangeKernel(program.queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    }
    OK(clFinish(program.queue));
    cr_assert_eq(launches(&rig, "two"), 0);
    OK(elastic_set(NULL, 0));
}
