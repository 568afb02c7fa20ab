#include <pthread.h>

#include "interpose/entry/start.h"
#include "state/base/clock.h"
#include "state/command/event.h"
#include "state/command/parts.h"
#include "state/move/elastic.h"
#include "state/move/spread.h"
#include "state/object/lost.h"
#include "state/program/kernel.h"
#include "state/program/pace.h"
#include "state/recovery/protect.h"
#include "tests/support/engine_rig.h"

/* One launch in several places: the bytes are those of one, whatever becomes of the others. */

/* Launches that take their time by themselves leave the processors to other tests. */
#define PACED "paced=adds,bytes,meets,agrees,counts items_per_s=32768 "
#define CONFIG                                                                                     \
    "[one] " PACED "name=one type=cpu base=1 own_memory=yes "                                      \
    "[two] " PACED "name=two type=cpu base=1 own_memory=yes "                                      \
    "[three] " PACED "name=three type=cpu base=1 own_memory=yes"

static const char source[] =
    "uint work(uint x, uint rounds)\n"
    "{ for (uint i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u; return x; }\n"
    "kernel void adds(global uint *out, global const uint *in, uint rounds, uint n) {\n"
    "  size_t at = get_global_id(0);\n"
    "  out[at] += work(in[at] ^ in[(at + 1) % n], rounds); }\n"
    "kernel void bytes(global uchar *out, global const uint *in, uint rounds, uint n) {\n"
    "  size_t at = get_global_id(0);\n"
    "  out[at + 3] += (uchar)work(in[at] ^ in[(at + 1) % n], rounds); }\n"
    "kernel void meets(global uint *out, global const uint *in, uint rounds, uint n) {\n"
    "  size_t at = get_global_id(0);\n"
    "  out[at] += work(in[at] ^ in[(at + 1) % n], rounds);\n"
    "  out[n] = (uint)at | 1; }\n"
    "kernel void agrees(global uint *out, global const uint *in, uint rounds, uint n) {\n"
    "  size_t at = get_global_id(0);\n"
    "  out[at] += work(in[at] ^ in[(at + 1) % n], rounds);\n"
    "  out[n] = 7; }\n"
    "kernel void counts(global uint *out, global const uint *in, uint rounds, uint n) {\n"
    "  size_t at = get_global_id(0);\n"
    "  out[at] += work(in[at] ^ in[(at + 1) % n], rounds);\n"
    "  atomic_inc(&out[n]); }\n"
    "kernel void renews(global uint *in, uint seed, uint n) {\n"
    "  for (uint i = 0; i < n; i++) in[i] = i * 2654435761u + seed; }\n";

enum { ITEMS = 16384, GROUP = 16, ROUNDS_LEAST = 30000, LAUNCH_MS = 500 };

struct scene {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel kernel;
    cl_mem out, in;
    cl_uint words[ITEMS + 16], input[ITEMS], wanted[ITEMS + 16];
    bool bytes;
    cl_uint rounds; /* that make a launch last about LAUNCH_MS */
};

static cl_uint work(cl_uint x, cl_uint rounds)
{
    cl_uint a = 1664525u, c = 1013904223u;
    for (; rounds; rounds >>= 1) {
        if (rounds & 1)
            x = a * x + c;
        c = a * c + c;
        a = a * a;
    }
    return x;
}

static double timed_launch(struct scene *s, cl_uint rounds)
{
    static const size_t global = ITEMS, local = GROUP;
    OK(clSetKernelArg(s->kernel, 2, sizeof(rounds), &rounds));
    uint64_t begun = clock_now_ns();
    OK(clEnqueueNDRangeKernel(s->program.queue, s->kernel, 1, NULL, &global, &local, 0, NULL,
                              NULL));
    OK(clFinish(s->program.queue));
    return (double)(clock_now_ns() - begun) / 1e6;
}

/* So many that a launch is worth it for others to join on this machine; on a device that takes a
 * time of its own, few. */
static void choose_rounds(struct scene *s, bool is_paced)
{
    enum { TRIED = 4000 };
    (void)timed_launch(s, TRIED); /* compiles */
    double rounds = is_paced ? TRIED : TRIED * LAUNCH_MS / timed_launch(s, TRIED);
    s->rounds = rounds > ROUNDS_LEAST || is_paced ? (cl_uint)rounds : ROUNDS_LEAST;
    OK(clSetKernelArg(s->kernel, 2, sizeof(s->rounds), &s->rounds));
    OK(clEnqueueWriteBuffer(s->program.queue, s->out, CL_TRUE, 0, sizeof(s->words), s->words, 0,
                            NULL, NULL));
}

static struct scene *scene_open(const char *config, const char *name)
{
    static struct scene scene;
    struct scene *s = &scene;
    setenv(START_ENV_SLICE, "4", 1);
    engine_rig_open(&s->rig, config);
    engine_program_open(&s->rig, CL_QUEUE_PROFILING_ENABLE, source, &s->program);
    s->kernel = engine_kernel(s->program.program, name);
    s->bytes = strcmp(name, "bytes") == 0;
    for (unsigned i = 0; i < ITEMS; i++)
        s->input[i] = i * 2654435761u;
    for (unsigned i = 0; i < ITEMS + 16; i++)
        s->words[i] = s->wanted[i] = i;
    s->out = engine_buffer(s->program.context, CL_MEM_COPY_HOST_PTR, sizeof(s->words), s->words);
    s->in = engine_buffer(s->program.context, CL_MEM_COPY_HOST_PTR | CL_MEM_READ_ONLY,
                          sizeof(s->input), s->input);
    const cl_uint n = ITEMS;
    ARGS(s->kernel, s->out, s->in);
    OK(clSetKernelArg(s->kernel, 3, sizeof(n), &n));
    choose_rounds(s, strstr(config, "[one] paced") != NULL);
    return s;
}

static void scene_close(struct scene *s)
{
    OK(elastic_set(NULL, 0));
    RELEASE(s->out, s->in, s->kernel);
    engine_program_close(&s->program);
}

static cl_event launch(struct scene *s)
{
    static const size_t global = ITEMS, local = GROUP;
    cl_event event;
    OK(clEnqueueNDRangeKernel(s->program.queue, s->kernel, 1, NULL, &global, &local, 0, NULL,
                              &event));
    OK(clFlush(s->program.queue));
    for (unsigned i = 0; i < ITEMS; i++) {
        cl_uint more = work(s->input[i] ^ s->input[(i + 1) % ITEMS], s->rounds);
        if (s->bytes)
            ((cl_uchar *)s->wanted)[i + 3] += (cl_uchar)more;
        else
            s->wanted[i] += more;
    }
    return event;
}

static cl_int status_of(cl_event event)
{
    cl_int status;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    return status;
}

static void await_running(cl_event event)
{
    for (unsigned ms = 0; status_of(event) > CL_RUNNING && ms < 20000; ms++)
        engine_rig_sleep(1);
    cr_assert_eq(status_of(event), CL_RUNNING);
}

static void check(struct scene *s)
{
    OK(clEnqueueReadBuffer(s->program.queue, s->out, CL_TRUE, 0, sizeof(s->words), s->words, 0,
                           NULL, NULL));
    for (unsigned i = 0; i < ITEMS + 16; i++)
        cr_assert_eq(s->words[i], s->wanted[i], "word %u is %u, expected %u", i, s->words[i],
                     s->wanted[i]);
}

static void end(cl_event event)
{
    cl_ulong start, stop;
    OK(clWaitForEvents(1, &event));
    cr_assert_eq(status_of(event), CL_COMPLETE, "ended in %d", status_of(event));
    OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof(start), &start, NULL));
    OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(stop), &stop, NULL));
    cr_assert_lt(start, stop);
    OK(clReleaseEvent(event));
}

static uint64_t launches(const struct scene *s, const char *device)
{
    return emu_shared_calls(s->rig.emu, device, "clEnqueueNDRangeKernel");
}

/* So that a move there has only what the program has given to wait for. */
static void prewarm(const struct scene *s, const char *name)
{
    const struct move_request request = {.target = engine_rig_key(&s->rig, name), .prewarm = true};
    struct move_report report;
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
}

static enum move_result move(const struct scene *s, const char *name, uint64_t deadline_ns,
                             const atomic_bool *cancel, struct move_report *ret_report)
{
    const struct move_request request = {.target = engine_rig_key(&s->rig, name),
                                         .spreads = true,
                                         .deadline_ns = deadline_ns,
                                         .cancel = cancel};
    move_run(&request, ret_report);
    return ret_report->result;
}

static uint64_t spread_count(void)
{
    uint64_t count, items;
    spread_read(&count, &items);
    return count;
}

static uint64_t spread_items(void)
{
    uint64_t count, items;
    spread_read(&count, &items);
    return items;
}

static void spread_over(const struct scene *s, const char *first, const char *second)
{
    struct device_key keys[2] = {*engine_rig_key(&s->rig, first)};
    if (second)
        keys[1] = *engine_rig_key(&s->rig, second);
    cr_assert_eq(elastic_set(keys, second ? 2 : 1), 0);
}

struct timed_move {
    struct scene *scene;
    uint64_t began_ns; /* when it was the move's turn; 0: never */
    struct move_report report;
};

static void note_beginning(void *data, const struct move_progress *progress)
{
    struct timed_move *timed = data;
    (void)progress;
    if (timed->began_ns == 0)
        timed->began_ns = clock_now_ns();
}

/* What came before a launch in its queue may take any time: who waits to move does not wait until
 * those that are to join the launch have found that it has begun. */
Test(spread, a_move_does_not_wait_for_the_first_piece_of_a_launch_to_join)
{
    static const size_t one_group = 4096;
    struct scene *s = scene_open("[one] paced=adds items_per_s=10240 name=one type=cpu base=1 "
                                 "[two] paced=adds items_per_s=10240 name=two type=cpu base=1 "
                                 "[three] paced=adds items_per_s=10240 name=three type=cpu base=1",
                                 "adds");
    struct timed_move timed = {.scene = s};
    const struct move_request request = {
        .target = engine_rig_key(&s->rig, "two"), .progress = note_beginning, .data = &timed};
    prewarm(s, "three");
    spread_over(s, "three", NULL);
    end(launch(s)); /* which measures what there is to measure once */
    pace_spread(((struct kernel *)s->kernel)->pace, true);
    for (unsigned n = 0; n < 2; n++) {
        OK(clEnqueueNDRangeKernel(s->program.queue, s->kernel, 1, NULL, &one_group, &one_group, 0,
                                  NULL, NULL));
        for (unsigned i = 0; i < one_group; i++)
            s->wanted[i] += work(s->input[i] ^ s->input[(i + 1) % ITEMS], s->rounds);
    }
    cl_event event = launch(s);
    /* Its first piece is with the driver, behind the groups: 800 ms. */
    engine_rig_sleep(150);
    uint64_t asked = clock_now_ns();
    move_run(&request, &timed.report);
    cr_assert_eq(timed.report.result, MOVE_DONE, "%s", timed.report.reason);
    cr_assert_lt(timed.began_ns - asked, 450 * NS_PER_MS);
    end(event);
    check(s);
    scene_close(s);
}

static void *defer_the_turn(void *data)
{
    pthread_barrier_t *barrier = data;
    move_lock();
    pthread_barrier_wait(barrier);
    engine_rig_sleep(2000);
    move_unlock();
    return NULL;
}

/* It has a deadline, and can be canceled, while another one goes on. */
Test(spread, a_move_that_waits_for_another_can_be_canceled)
{
    struct scene *s = scene_open(CONFIG, "adds");
    atomic_bool canceled = true;
    pthread_barrier_t barrier;
    pthread_t other;
    struct move_report report;
    struct move_request request = {.target = engine_rig_key(&s->rig, "two"), .cancel = &canceled};
    pthread_barrier_init(&barrier, NULL, 2);
    cr_assert_eq(pthread_create(&other, NULL, defer_the_turn, &barrier), 0);
    pthread_barrier_wait(&barrier);
    uint64_t asked = clock_now_ns();
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_CANCELED, "%s", report.reason);
    request.cancel = NULL;
    request.deadline_ns = clock_now_ns() + 100 * NS_PER_MS;
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_EXPIRED, "%s", report.reason);
    cr_assert_lt(clock_now_ns() - asked, 1500 * NS_PER_MS);
    pthread_join(other, NULL);
    scene_close(s);
}

Test(spread, a_move_that_does_not_block_has_both_do_the_rest)
{
    struct scene *s = scene_open(CONFIG, "adds");
    struct move_report report;
    bool several = false;
    /* A busy machine may make it worth no more than a first piece. */
    for (unsigned n = 0; n < 3 || (n < 20 && (!several || spread_items() == 0)); n++) {
        const char *to = n % 2 ? "one" : "two";
        prewarm(s, to);
        cl_event event = launch(s);
        await_running(event);
        uint64_t before = launches(s, to);
        cr_assert_eq(move(s, to, 0, NULL, &report), MOVE_DONE, "%s", report.reason);
        end(event);
        check(s);
        cr_assert_eq(spread_count(), n + 1);
        several = several || launches(s, to) > before + 1;
    }
    cr_assert(several);
    cr_assert_gt(spread_items(), 0);
    scene_close(s);
    cr_assert(engine_rig_empties(&s->rig, "one"), "%s", engine_rig_alive(&s->rig, "one"));
    cr_assert(engine_rig_empties(&s->rig, "two"), "%s", engine_rig_alive(&s->rig, "two"));
}

Test(spread, a_program_is_elastic_over_two_more_devices)
{
    struct scene *s = scene_open(CONFIG, "adds");
    spread_over(s, "two", "three");
    for (unsigned n = 0; n < 50 && (n < 5 || launches(s, "two") == 0 || launches(s, "three") == 0);
         n++)
        end(launch(s));
    check(s);
    cr_assert_gt(spread_count(), 0);
    cr_assert_gt(launches(s, "two"), 0);
    cr_assert_gt(launches(s, "three"), 0);
    cr_assert_gt(spread_items(), 0);
    scene_close(s);
    cr_assert(engine_rig_empties(&s->rig, "two"), "%s", engine_rig_alive(&s->rig, "two"));
    cr_assert(engine_rig_empties(&s->rig, "three"), "%s", engine_rig_alive(&s->rig, "three"));
}

/* Helpers have the latest bytes of what a launch reads, but are released with any move: what the
 * old device has stays there until it is fetched. */
Test(spread, a_move_on_demand_leaves_no_bytes_to_helpers)
{
    struct scene *s = scene_open(CONFIG, "adds");
    const struct move_request request = {.target = engine_rig_key(&s->rig, "two"),
                                         .fetch = MOVE_FETCH_ON_DEMAND};
    struct move_report report;
    spread_over(s, "three", NULL);
    for (unsigned n = 0; n < 50 && launches(s, "three") == 0; n++)
        end(launch(s));
    cr_assert_gt(launches(s, "three"), 0);
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    OK(elastic_set(NULL, 0));
    end(launch(s));
    check(s);
    scene_close(s);
}

/* Which is not there yet when the launch's first pieces are given. */
Test(spread, a_place_begins_with_what_is_written_before_the_launch)
{
    struct scene *s = scene_open("[one] name=one type=cpu base=1 own_memory=yes items_per_s=4 "
                                 "paced=renews [two] name=two type=cpu base=1 own_memory=yes",
                                 "adds");
    cl_kernel renews = engine_kernel(s->program.program, "renews");
    cl_mem in = engine_buffer(s->program.context, CL_MEM_READ_WRITE, sizeof(s->input), NULL);
    const cl_uint count = ITEMS;
    const size_t one = 1;
    OK(clSetKernelArg(s->kernel, 1, sizeof(in), &in));
    OK(clSetKernelArg(renews, 0, sizeof(in), &in));
    OK(clSetKernelArg(renews, 2, sizeof(count), &count));
    spread_over(s, "two", NULL);
    unsigned spread = 0;
    for (cl_uint n = 1; n < 40 && spread < 3; n++) {
        uint64_t before = spread_items();
        for (unsigned i = 0; i < ITEMS; i++)
            s->input[i] = i * 2654435761u + n;
        OK(clSetKernelArg(renews, 1, sizeof(n), &n));
        OK(clEnqueueNDRangeKernel(s->program.queue, renews, 1, NULL, &one, &one, 0, NULL, NULL));
        end(launch(s));
        check(s);
        spread += spread_items() != before;
    }
    cr_assert_eq(spread, 3);
    RELEASE(renews, in);
    scene_close(s);
}

/* Also the one that begins when the one before it has ended. */
Test(spread, two_launches_are_spread_one_after_the_other)
{
    struct scene *s =
        scene_open("[one] paced=adds items_per_s=20000 base=1 own_memory=yes type=cpu "
                   "name=one [two] paced=adds items_per_s=20000 base=1 "
                   "own_memory=yes type=cpu name=two",
                   "adds");
    unsigned in_turn = 0;
    spread_over(s, "two", NULL);
    for (unsigned n = 0; n < 40 && in_turn < 2; n++) {
        uint64_t before = spread_items();
        end(launch(s));
        in_turn = spread_items() != before ? in_turn + 1 : 0;
    }
    cr_assert_eq(in_turn, 2);
    check(s);
    scene_close(s);
}

/* It is at its first piece when the rest is done, and for long after that. */
Test(spread, a_launch_does_not_wait_for_a_device_that_is_slower_at_its_part)
{
    enum { PIECE_S = 5 };
    struct scene *s = scene_open("[one] name=one type=cpu base=1 own_memory=yes [two] name=two "
                                 "type=cpu base=1 own_memory=yes items_per_s=3 paced=adds",
                                 "adds");
    spread_over(s, "two", NULL);
    uint64_t begun = 0;
    for (unsigned n = 0; n < 50 && launches(s, "two") == 0; n++) {
        begun = clock_now_ns();
        end(launch(s));
    }
    cr_assert_eq(launches(s, "two"), 1);
    cr_assert_lt(clock_now_ns() - begun, PIECE_S * NS_PER_S);
    check(s);
    cr_assert_eq(spread_items(), 0);
    /* Its buffers are the driver's until it has ended; another move waits for that. */
    engine_rig_moves(&s->rig, "two");
    check(s);
    engine_rig_moves(&s->rig, "one");
    /* Else it may take part in this one as well, and have its buffers for as long. */
    OK(elastic_set(NULL, 0));
    end(launch(s));
    check(s);
    scene_close(s);
    cr_assert(engine_rig_empties(&s->rig, "one"), "%s", engine_rig_alive(&s->rig, "one"));
    cr_assert(engine_rig_empties(&s->rig, "two"), "%s", engine_rig_alive(&s->rig, "two"));
}

Test(spread, devices_join_and_leave_in_the_middle)
{
    struct scene *s = scene_open(CONFIG, "adds");
    for (unsigned n = 0; n < 6; n++) {
        cl_event event = launch(s);
        await_running(event);
        if (n % 3 == 2)
            OK(elastic_set(NULL, 0));
        else
            spread_over(s, n % 2 ? "two" : "three", NULL);
        engine_rig_sleep(30);
        if (n % 2)
            engine_rig_moves(&s->rig, n % 4 == 1 ? "two" : "one");
        end(event);
        check(s);
    }
    scene_close(s);
}

static void meet(struct scene *s, const char *to)
{
    struct move_report report;
    prewarm(s, to);
    cl_event event = launch(s);
    await_running(event);
    cr_assert_eq(move(s, to, 0, NULL, &report), MOVE_DONE, "%s", report.reason);
    end(event);
    OK(clEnqueueReadBuffer(s->program.queue, s->out, CL_TRUE, 0, sizeof(s->words), s->words, 0,
                           NULL, NULL));
    cr_assert(s->words[ITEMS] % 2 == 1 && s->words[ITEMS] < ITEMS);
    s->wanted[ITEMS] = s->words[ITEMS];
    check(s);
}

/* Where both wrote them while the other one was at it. */
Test(spread, work_groups_that_write_the_same_bytes_are_seen)
{
    struct scene *s = scene_open(CONFIG, "meets");
    bool seen = false;
    unsigned n = 0;
    for (; n < 20 && !seen; n++) {
        meet(s, n % 2 ? "one" : "two");
        seen = atomic_load(&((struct kernel *)s->kernel)->pace->overlaps);
    }
    cr_assert(seen);
    uint64_t count = spread_count();
    meet(s, n % 2 ? "one" : "two");
    cr_assert_eq(spread_count(), count, "it is tried again");
    scene_close(s);
}

Test(spread, the_same_bytes_from_both_are_no_matter)
{
    struct scene *s = scene_open(CONFIG, "agrees");
    struct move_report report;
    s->wanted[ITEMS] = 7;
    for (unsigned n = 0; n < 20 && spread_items() == 0; n++) {
        const char *to = n % 2 ? "one" : "two";
        prewarm(s, to);
        cl_event event = launch(s);
        await_running(event);
        cr_assert_eq(move(s, to, 0, NULL, &report), MOVE_DONE, "%s", report.reason);
        end(event);
        check(s);
    }
    cr_assert_gt(spread_items(), 0);
    cr_assert(!atomic_load(&((struct kernel *)s->kernel)->pace->overlaps));
    scene_close(s);
}

/* Wherever one ends and the other begins, they write bytes of one word. */
Test(spread, narrow_neighbours_do_not_overlap)
{
    struct scene *s = scene_open(CONFIG, "bytes");
    uint64_t items = 0;
    spread_over(s, "two", NULL);
    end(launch(s));
    for (unsigned n = 0; n < 4 || (n < 40 && spread_items() == items); n++) {
        items = spread_items();
        end(launch(s));
    }
    check(s);
    cr_expect(!atomic_load(&((struct kernel *)s->kernel)->pace->overlaps));
    cr_assert_gt(spread_items(), items);
    scene_close(s);
}

/* As if the device that helped had been so many times as slow; 0 where none has helped yet. */
static double slow_down(struct pace *pace, double times)
{
    move_lock(); /* Nobody spreads launches meanwhile. */
    double per_s = pace->elsewhere[0].per_s /= times;
    move_unlock();
    return per_s;
}

/* What was measured while others used the device does not hold for ever. */
Test(spread, a_device_that_was_slow_once_helps_again)
{
    struct scene *s = scene_open(CONFIG, "adds");
    struct pace *pace = ((struct kernel *)s->kernel)->pace;
    spread_over(s, "two", NULL);
    for (unsigned n = 0; n < 40 && slow_down(pace, 1) <= 0; n++)
        end(launch(s));
    cr_assert_gt(slow_down(pace, 1000), 0);
    uint64_t items = spread_items();
    pace_spread(pace, true);
    end(launch(s));
    cr_expect_eq(spread_items(), items);
    /* Of each it is said that it may be spread: none is left out after a refusal. */
    for (unsigned n = 0; n < 40 && spread_items() == items; n++, pace_spread(pace, true))
        end(launch(s));
    cr_assert_gt(spread_items(), items);
    check(s);
    scene_close(s);
}

Test(spread, bytes_of_one_word_from_both_are_no_matter)
{
    struct scene *s = scene_open(CONFIG, "bytes");
    struct move_report report;
    for (unsigned n = 0; n < 3; n++) {
        prewarm(s, n % 2 ? "one" : "two");
        cl_event event = launch(s);
        await_running(event);
        cr_assert_eq(move(s, n % 2 ? "one" : "two", 0, NULL, &report), MOVE_DONE, "%s",
                     report.reason);
        end(event);
        check(s);
    }
    scene_close(s);
}

Test(spread, what_counts_together_stays_together)
{
    struct scene *s = scene_open(CONFIG, "counts");
    struct move_report report;
    spread_over(s, "three", NULL);
    cl_event event = launch(s);
    s->wanted[ITEMS] += ITEMS;
    await_running(event);
    cr_assert_eq(move(s, "two", 0, NULL, &report), MOVE_DONE, "%s", report.reason);
    end(event);
    check(s);
    cr_assert_eq(spread_count(), 0);
    cr_assert_eq(launches(s, "three"), 0);
    scene_close(s);
}

/* Whichever call of the helping device's driver fails, or loses it. */
static void fail_at_every_call(cl_int error)
{
    struct scene *s = scene_open(CONFIG, "adds");
    bool more = true;
    uint64_t step = 1;
    for (uint64_t call = 1; more && call < 2000; call += step) {
        cl_event event = launch(s);
        await_running(event);
        struct move_report report;
        cr_assert_eq(emu_shared_arm(s->rig.emu, "two", call, NULL, error), 0);
        uint64_t before = emu_shared_calls(s->rig.emu, "two", NULL);
        (void)move(s, "two", 0, NULL, &report);
        more = emu_shared_calls(s->rig.emu, "two", NULL) - before >= call;
        cr_assert_eq(emu_shared_disarm(s->rig.emu, "two"), 0);
        if (clWaitForEvents(1, &event) == CL_SUCCESS) {
            end(event);
            check(s);
        } else {
            /* It was where the program is by then. */
            cr_assert_eq(report.result, MOVE_DONE, "call %llu", (unsigned long long)call);
            OK(clReleaseEvent(event));
            OK(clEnqueueWriteBuffer(s->program.queue, s->out, CL_TRUE, 0, sizeof(s->wanted),
                                    s->wanted, 0, NULL, NULL));
        }
        if (report.result == MOVE_DONE)
            engine_rig_moves(&s->rig, "one");
        step = 1 + call / 4;
    }
    scene_close(s);
}

TestCall(spread, a_failure_of_the_helper_costs_nothing_but_time,
         fail_at_every_call(CL_OUT_OF_RESOURCES), .timeout = 300);

Test(spread, a_helper_that_is_lost_is_done_without)
{
    struct scene *s = scene_open(CONFIG, "adds");
    spread_over(s, "two", NULL);
    end(launch(s));
    for (unsigned i = 0; i < 3; i++) {
        cl_event event = launch(s);
        await_running(event);
        engine_rig_sleep(40);
        if (i == 1)
            cr_assert_eq(emu_shared_vanish(s->rig.emu, "two"), 0);
        end(event);
        check(s);
    }
    scene_close(s);
}

/* True when it could be made and the launch, which is over several devices, went on. */
static bool snapshot_in(cl_event event)
{
    return protect_now() == 0 && status_of(event) == CL_RUNNING;
}

/* What a helper did is in the journal once it is home, and is done again, like home's own pieces,
 * when home is lost, also where nobody helps any more. */
Test(spread, a_protected_launch_outlives_its_home_and_its_helpers, .timeout = 300)
{
    const struct protect_settings settings = {.interval_ns = UINT64_C(3600000000000)};
    struct scene *s = scene_open(CONFIG, "adds");
    struct protect_status status;
    struct move_report report;
    unsigned snapshots = 0;
    lost_patience_ns = 40000000;
    lost_answer_ns = 500000000;
    cr_assert_eq(protect_begin(&settings), 0);
    cr_assert_eq(protect_now(), 0);
    end(launch(s)); /* which measures what there is to measure once */
    for (unsigned i = 0; i < 40 && (i < 12 || spread_items() == 0); i++) {
        const char *lost = i % 3 == 2 ? "two" : "one";
        spread_over(s, "two", "three");
        cl_event event = launch(s);
        await_running(event);
        if (i % 4 == 1)
            snapshots += snapshot_in(event);
        engine_rig_sleep(60 + 50 * (i % 5));
        if (i % 4 == 2)
            snapshots += snapshot_in(event);
        if (i % 5 == 3)
            OK(elastic_set(NULL, 0));
        cr_assert_eq(emu_shared_vanish(s->rig.emu, lost), 0);
        end(event);
        check(s);
        OK(elastic_set(NULL, 0));
        cr_assert_eq(emu_shared_restore(s->rig.emu, lost), 0);
        (void)engine_rig_move(&s->rig, "one", &report); /* it may be there */
        cr_assert_eq(protect_now(), 0);
    }
    protect_read(&status);
    cr_assert_gt(status.recoveries, 0);
    cr_assert_gt(spread_items(), 0);
    cr_assert_gt(snapshots, 0);
    protect_end();
    scene_close(s);
}

static void *cancel_soon(void *data)
{
    engine_rig_sleep(60);
    atomic_store((atomic_bool *)data, true);
    return NULL;
}

Test(spread, a_cancel_or_a_deadline_gives_the_rest_back)
{
    struct scene *s = scene_open(CONFIG, "adds");
    for (unsigned n = 0; n < 4; n++) {
        struct move_report report;
        atomic_bool cancel = false;
        pthread_t thread;
        prewarm(s, "two");
        cl_event event = launch(s);
        await_running(event);
        if (n % 2)
            pthread_create(&thread, NULL, cancel_soon, &cancel);
        enum move_result result =
            move(s, "two", n % 2 ? 0 : clock_now_ns() + 60000000, n % 2 ? &cancel : NULL, &report);
        if (n % 2)
            pthread_join(thread, NULL);
        cr_assert(result != MOVE_ROLLED_BACK, "%s", report.reason);
        end(event);
        check(s);
        if (result == MOVE_DONE)
            engine_rig_moves(&s->rig, "one");
    }
    scene_close(s);
}

static void *move_there_and_back(void *data)
{
    struct scene *s = data;
    for (unsigned n = 0; n < 8; n++) {
        struct move_report report;
        engine_rig_sleep(20);
        (void)engine_rig_move(&s->rig, n % 2 ? "one" : "two", &report);
        if (n % 4 == 3) {
            (void)engine_rig_move(&s->rig, NULL, &report);
            (void)engine_rig_move(&s->rig, "one", &report);
        }
    }
    return NULL;
}

Test(spread, whoever_moves_the_program_goes_first)
{
    struct scene *s = scene_open(CONFIG, "adds");
    pthread_t thread;
    spread_over(s, "two", "three");
    end(launch(s));
    pthread_create(&thread, NULL, move_there_and_back, s);
    for (unsigned n = 0; n < 6; n++)
        end(launch(s));
    pthread_join(thread, NULL);
    check(s);
    scene_close(s);
}

/* Two devices that work in place share large buffers; small ones are each one's own. Neighbours in
 * these are written by different groups. */
static const char in_place_source[] =
    "kernel void groups(global uint *out, global uchar *small, uint rounds) {\n"
    "  size_t at = get_global_id(0); uint x = (uint)at;\n"
    "  for (uint i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u;\n"
    "  out[at] += x;\n"
    "  if (get_local_id(0) == 0) small[at / get_local_size(0) + 3] += (uchar)(x | 1); }\n";

Test(spread, a_launch_does_not_fail_between_devices_that_share_some_memory)
{
    enum { COUNT = ITEMS / GROUP };
    static struct engine_rig rig;
    static cl_uint out[ITEMS];
    static unsigned char small[COUNT + 8];
    struct engine_program program;
    const size_t global = ITEMS, local = GROUP;
    const cl_uint rounds = ROUNDS_LEAST;
    setenv(START_ENV_SLICE, "4", 1);
    engine_rig_open_pocl_on(&rig, "basic pthread", "pthread");
    engine_program_open(&rig, 0, in_place_source, &program);
    cl_kernel kernel = engine_kernel(program.program, "groups");
    cl_mem first = engine_buffer(program.context, CL_MEM_COPY_HOST_PTR, sizeof(out), out);
    cl_mem second = engine_buffer(program.context, CL_MEM_COPY_HOST_PTR, sizeof(small), small);
    ARGS(kernel, first, second, rounds);
    cr_assert_eq(elastic_set(engine_rig_key(&rig, "basic"), 1), 0);
    for (unsigned n = 1; n <= 4; n++) {
        cl_event event;
        OK(clEnqueueNDRangeKernel(program.queue, kernel, 1, NULL, &global, &local, 0, NULL,
                                  &event));
        OK(clWaitForEvents(1, &event));
        OK(clReleaseEvent(event));
        OK(clEnqueueReadBuffer(program.queue, first, CL_TRUE, 0, sizeof(out), out, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(program.queue, second, CL_TRUE, 0, sizeof(small), small, 0, NULL,
                               NULL));
        for (unsigned i = 0; i < ITEMS; i++)
            cr_assert_eq(out[i], work(i, rounds) * n, "launch %u, word %u", n, i);
        for (unsigned i = 0; i < COUNT; i++)
            cr_assert_eq(small[i + 3], (unsigned char)((work(i * GROUP, rounds) | 1) * n),
                         "launch %u, byte %u", n, i);
    }
    OK(elastic_set(NULL, 0));
}
