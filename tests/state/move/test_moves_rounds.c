#include <pthread.h>
#include <unistd.h>

#include "tests/state/move/test_moves_common.h"

/* How long a program is stopped: copies ahead in rounds, and moves that give up. */

/* All buffers take 0.4 s. */
#define LINK    "[one] name=one link_mb_s=80 [two] name=two link_mb_s=80"
#define BUFFERS 8
#define BYTES   ((size_t)4 << 20)
#define ITEMS   (BYTES / sizeof(cl_uint))

static const char source[] = "__kernel void add(__global uint *words, uint value)\n"
                             "{ words[get_global_id(0)] += value; }\n"
                             "__kernel void one(__global uint *words) { words[0]++; }\n";

/* A program that adds 1 to the first `busy` of its buffers, over and over: before the move, and
 * whenever a part of a round has been copied, however slow this machine is. */
static struct writer {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel add;
    cl_mem buffers[BUFFERS];
    unsigned busy;
    unsigned rounds, most; /* so many were written; and it pauses after so many, 0: never */
} w;

static void writer_open(const char *config, unsigned busy, unsigned most)
{
    cl_uint *words = calloc(1, BYTES);
    cr_assert_not_null(words);
    engine_rig_open(&w.rig, config);
    engine_program_open(&w.rig, 0, source, &w.program);
    w.add = engine_kernel(w.program.program, "add");
    for (cl_uint b = 0; b < BUFFERS; b++) {
        for (size_t i = 0; i < ITEMS; i++)
            words[i] = (cl_uint)i * 3 + b;
        w.buffers[b] = engine_buffer(w.program.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                     BYTES, words);
    }
    free(words);
    /* So that both links have been measured. */
    engine_rig_moves(&w.rig, "two");
    engine_rig_moves(&w.rig, "one");
    w.busy = busy;
    w.most = most;
}

static void writer_write(void)
{
    const cl_uint one = 1;
    for (unsigned b = 0; b < w.busy; b++) {
        ARGS(w.add, w.buffers[b], one);
        launch(w.program.queue, w.add, ITEMS, 0, NULL);
    }
    OK(clFinish(w.program.queue));
    w.rounds++;
}

/* Once it is stopped it writes nothing. */
static void writer_goes_on(void *unused, const struct move_progress *progress)
{
    (void)unused;
    if (w.busy != 0 && progress->phase == MOVE_PREPARE && progress->round != 0 &&
        (w.most == 0 || w.rounds < w.most))
        writer_write();
}

static void writer_end(void)
{
    cl_uint *words = malloc(BYTES);
    cr_assert_not_null(words);
    for (cl_uint b = 0; b < BUFFERS; b++) {
        cl_uint added = b < w.busy ? w.rounds : 0;
        OK(clEnqueueReadBuffer(w.program.queue, w.buffers[b], CL_TRUE, 0, BYTES, words, 0, NULL,
                               NULL));
        for (size_t i = 0; i < ITEMS; i++)
            if (words[i] != (cl_uint)i * 3 + b + added)
                cr_assert_fail("buffer %u, word %zu: %u after %u additions", b, i, words[i], added);
        OK(clReleaseMemObject(w.buffers[b]));
    }
    free(words);
    OK(clReleaseKernel(w.add));
    engine_program_close(&w.program);
}

static void writer_move(struct move_request *request, struct move_report *ret_report)
{
    request->target = engine_rig_key(&w.rig, "two");
    request->progress = writer_goes_on;
    move_run(request, ret_report);
}

#define MS UINT64_C(1000000)

static atomic_bool slow_ends;

/* Two long launches are always under way. Returns how many were given. */
static void *give_slow_launches(void *unused)
{
    cl_kernel slow = engine_kernel(w.program.program, "one");
    cl_event before = NULL, event;
    uintptr_t given = 0;
    (void)unused;
    OK(clSetKernelArg(slow, 0, sizeof(cl_mem), &w.buffers[0]));
    for (; !atomic_load(&slow_ends); given++, before = event) {
        launch(w.program.queue, slow, 1, 0, &event);
        OK(clFlush(w.program.queue));
        if (before) {
            OK(clWaitForEvents(1, &before));
            OK(clReleaseEvent(before));
        }
    }
    RELEASE(before, slow);
    return (void *)given;
}

Test(rounds, name_the_kernel_that_the_pause_waited_for, .timeout = 120)
{
    struct move_request request = {.max_downtime_ns = 1 * MS};
    struct move_report report;
    cl_uint word;
    pthread_t thread;
    void *given;
    writer_open("[one] name=one base=1 launch_ms=50 [two] name=two base=1 launch_ms=50", 1, 0);
    writer_write(); /* `add` has ended before */
    cr_assert_eq(pthread_create(&thread, NULL, give_slow_launches, NULL), 0);
    usleep(100000);
    request.target = engine_rig_key(&w.rig, "two");
    move_run(&request, &report);
    atomic_store(&slow_ends, true);
    pthread_join(thread, &given);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_str_eq(report.waited_for, "one");
    OK(clEnqueueReadBuffer(w.program.queue, w.buffers[0], CL_TRUE, 0, sizeof(word), &word, 0, NULL,
                           NULL));
    cr_expect_eq(word, 1 + (uintptr_t)given);
    /* Nothing is under way any more. */
    request.target = engine_rig_key(&w.rig, "one");
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_str_eq(report.waited_for, "");
    OK(clReleaseKernel(w.add));
    for (unsigned b = 0; b < BUFFERS; b++)
        OK(clReleaseMemObject(w.buffers[b]));
    engine_program_close(&w.program);
}

Test(rounds, stop_when_the_rest_is_short, .timeout = 120)
{
    struct move_request request = {.max_downtime_ns = 750 * MS, .strict = true};
    struct move_report report;
    /* All buffers take 0.8 s, one 0.1 s. */
    writer_open("[one] name=one link_mb_s=40 [two] name=two link_mb_s=40", 1, 0);
    writer_write();
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_geq(report.rounds, 1);
    cr_assert_gt(report.predicted_ns, 0);
    cr_assert_leq(report.predicted_ns, 750 * MS);
    cr_assert_geq(report.bytes, (BUFFERS + 1) * BYTES, "what was written was not copied again");
    cr_assert_str_eq(place_of_vdev(), "two");
    writer_end();
}

Test(rounds, that_do_not_help_end_in_a_longer_pause, .timeout = 120)
{
    struct move_request request = {.max_downtime_ns = 10 * MS};
    struct move_report report;
    writer_open(LINK, BUFFERS, 0);
    writer_write();
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_geq(report.rounds, 2);
    cr_assert_leq(report.rounds, 8, "it went on and on");
    cr_assert_gt(report.predicted_ns, 10 * MS);
    cr_assert_gt(report.downtime_ns, 200 * MS, "all was copied in less time than the link takes");
    writer_end();
}

Test(rounds, that_do_not_help_end_a_strict_move, .timeout = 120)
{
    struct move_request request = {.max_downtime_ns = 10 * MS, .strict = true};
    struct move_report report;
    writer_open(LINK, BUFFERS, 0);
    writer_write();
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_ROLLED_BACK, "%s", move_result_name(report.result));
    cr_assert_not_null(strstr(report.reason, "would be stopped for"), "%s", report.reason);
    cr_assert_not(report.lasting);
    cr_assert_eq(report.arrived_ns, 0, "it never was there");
    cr_assert_str_eq(place_of_vdev(), "one");
    cr_assert(engine_rig_empties(&w.rig, "two"), "alive: %s", engine_rig_alive(&w.rig, "two"));
    writer_end();
}

Test(rounds, have_arrived_before_the_old_driver_let_go, .timeout = 120)
{
    struct move_request request = {0};
    struct move_report report;
    writer_open("[one] name=one release_ms=50 [two] name=two", 0, 0);
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_gt(report.arrived_ns, 0);
    cr_assert_geq(report.total_ns, report.arrived_ns + BUFFERS * 50 * MS);
    writer_end();
}

/* With a deadline it goes on trying; the program pauses by itself in time. */
Test(rounds, go_on_until_the_deadline, .timeout = 120)
{
    struct move_request request = {.max_downtime_ns = 150 * MS, .strict = true};
    struct move_report report;
    writer_open(LINK, BUFFERS, 10);
    writer_write();
    request.deadline_ns = engine_rig_now() + 60000 * MS;
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_eq(w.rounds, w.most, "it was stopped after %u", w.rounds);
    cr_assert_leq(report.predicted_ns, 150 * MS);
    writer_end();
}

Test(rounds, end_when_the_deadline_comes_near, .timeout = 120)
{
    struct move_request request = {.max_downtime_ns = 10 * MS, .strict = true};
    struct move_report report;
    writer_open(LINK, BUFFERS, 0);
    writer_write();
    request.deadline_ns = engine_rig_now() + 10000 * MS;
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_ROLLED_BACK, "%s", move_result_name(report.result));
    cr_assert_geq(report.rounds, 3, "%u rounds: it did not go on trying", report.rounds);
    cr_assert_not_null(strstr(report.reason, "would be stopped for"), "%s", report.reason);
    writer_end();
}

/* Always so many are with the driver, a tenth of a second each: whenever the program is stopped,
 * one has to end. */
#define SEVERAL 16

static struct launcher {
    cl_kernel kernel;
    _Atomic unsigned launched;
    atomic_bool stop;
} l;

static void *launcher_run(void *unused)
{
    cl_event events[SEVERAL] = {NULL};
    (void)unused;
    for (; !atomic_load(&l.stop); l.launched++) {
        cl_event *event = &events[l.launched % SEVERAL];
        if (*event) {
            OK(clWaitForEvents(1, event));
            OK(clReleaseEvent(*event));
        }
        launch(w.program.queue, l.kernel, 1, 1, event);
        OK(clFlush(w.program.queue));
    }
    for (int i = 0; i < SEVERAL; i++)
        OK(clReleaseEvent(events[i]));
    return NULL;
}

Test(rounds, a_strict_move_does_not_wait_for_long_commands_with_the_program_stopped, .timeout = 120)
{
    struct move_request request = {.max_downtime_ns = 20 * MS, .strict = true};
    struct move_report report;
    pthread_t thread;
    writer_open("[one] name=one base=1 paced=one items_per_s=10 [two] name=two", 0, 0);
    cl_mem few = engine_buffer(w.program.context, CL_MEM_READ_WRITE, 64, NULL);
    l.kernel = engine_kernel(w.program.program, "one");
    OK(clSetKernelArg(l.kernel, 0, sizeof(few), &few));
    cr_assert_eq(pthread_create(&thread, NULL, launcher_run, NULL), 0);
    while (l.launched < SEVERAL)
        engine_rig_sleep(1);
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_ROLLED_BACK, "%s", move_result_name(report.result));
    cr_assert_not_null(strstr(report.reason, "does not end, or is not copied"), "%s",
                       report.reason);
    atomic_store(&l.stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    /* Nothing is given any more. */
    OK(clFinish(w.program.queue));
    request.max_downtime_ns = 10000 * MS;
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    RELEASE(l.kernel, few);
}

/* It cannot be faster than that; that each byte is paid for is test_throttle's. */
Test(rounds, keep_to_a_bandwidth, .timeout = 120)
{
    struct move_request request = {.bandwidth = BUFFERS * BYTES};
    struct move_report report;
    writer_open(CONFIG, 0, 1);
    writer_write();
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_geq(report.bytes, BUFFERS * BYTES);
    cr_assert_geq(report.total_ns, 980 * MS, "%llu ns", (unsigned long long)report.total_ns);
    cr_assert_lt(report.downtime_ns, report.total_ns / 2, "the program was stopped for it");
    writer_end();
}

static void *cancel_soon(void *data)
{
    engine_rig_sleep(200);
    atomic_store((atomic_bool *)data, true);
    return NULL;
}

/* A second and more before the first byte may go. */
Test(rounds, are_canceled_while_they_wait_for_their_turn, .timeout = 60)
{
    static atomic_bool cancel;
    struct move_request request = {.bandwidth = 1000, .cancel = &cancel};
    struct move_report report;
    pthread_t thread;
    writer_open(CONFIG, 0, 1);
    writer_write();
    cr_assert_eq(pthread_create(&thread, NULL, cancel_soon, &cancel), 0);
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_CANCELED, "%s", move_result_name(report.result));
    cr_assert_eq(pthread_join(thread, NULL), 0);
    writer_end();
}

/** A change of @change, as the operator's comes: from another thread, while the move waits. */
static void *adjust_soon(void *data)
{
    struct move_change *change = data;
    engine_rig_sleep(200);
    atomic_store(&change->bandwidth, (uint64_t)1 << 30);
    atomic_store(&change->max_downtime_ns, 10000 * MS);
    return NULL;
}

/* As requested it would take nine hours. */
Test(rounds, go_on_at_once_with_a_bandwidth_that_is_raised, .timeout = 60)
{
    static struct move_change change;
    struct move_request request = {.bandwidth = 1000, .change = &change};
    struct move_report report;
    pthread_t thread;
    writer_open(CONFIG, 0, 1);
    writer_write();
    cr_assert_eq(pthread_create(&thread, NULL, adjust_soon, &change), 0);
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_eq(report.aim_ns, 10000 * MS);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    writer_end();
}

static void *limit_soon(void *data)
{
    struct move_change *change = data;
    engine_rig_sleep(200);
    atomic_store(&change->max_downtime_ns, 1 * MS);
    return NULL;
}

/* It had a target alone, and would have been done: that_do_not_help_end_in_a_longer_pause. */
Test(rounds, keep_to_a_downtime_that_is_lowered, .timeout = 120)
{
    static struct move_change change;
    struct move_request request = {.max_downtime_ns = 10 * MS, .change = &change};
    struct move_report report;
    pthread_t thread;
    writer_open(LINK, BUFFERS, 0);
    writer_write();
    cr_assert_eq(pthread_create(&thread, NULL, limit_soon, &change), 0);
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_ROLLED_BACK, "%s", move_result_name(report.result));
    cr_assert_not_null(strstr(report.reason, "and may be for 1 ms"), "%s", report.reason);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    writer_end();
}
