#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/state/move/test_moves_common.h"

/* How long a program is stopped: copies ahead in rounds, and moves that give up. */

/* Slow beside whatever else the machine does: all buffers take 0.8 s, one a tenth of one. */
#define LINK    "[one] name=one link_mb_s=40 [two] name=two link_mb_s=40"
#define BUFFERS 8
#define BYTES   ((size_t)4 << 20)
#define ITEMS   (BYTES / sizeof(cl_uint))

static const char source[] = "__kernel void add(__global uint *words, uint value)\n"
                             "{ words[get_global_id(0)] += value; }\n"
                             "__kernel void spin(__global volatile uint *words, uint turns)\n"
                             "{ for (uint i = 0; i < turns; i++) words[0] += i; }\n";

/* A program that adds 1 to the first `busy` of its buffers, over and over. */
static struct writer {
    struct engine_rig rig;
    struct engine_program program;
    cl_kernel add;
    cl_mem buffers[BUFFERS];
    unsigned busy;
    _Atomic unsigned rounds;
    unsigned most; /* rounds; 0: until `stop` */
    atomic_bool stop;
    pthread_t thread;
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

static void *writer_run(void *unused)
{
    (void)unused;
    while (!atomic_load(&w.stop) && (w.most == 0 || w.rounds < w.most)) {
        const cl_uint one = 1;
        for (unsigned b = 0; b < w.busy; b++) {
            OK(clSetKernelArg(w.add, 0, sizeof(cl_mem), &w.buffers[b]));
            OK(clSetKernelArg(w.add, 1, sizeof(one), &one));
            launch(w.program.queue, w.add, ITEMS, 0, NULL);
        }
        OK(clFinish(w.program.queue));
        w.rounds++;
    }
    return NULL;
}

static void writer_start(void)
{
    cr_assert_eq(pthread_create(&w.thread, NULL, writer_run, NULL), 0);
    while (w.rounds == 0)
        engine_rig_sleep(1);
}

static void writer_end(void)
{
    cl_uint *words = malloc(BYTES);
    cr_assert_not_null(words);
    atomic_store(&w.stop, true);
    cr_assert_eq(pthread_join(w.thread, NULL), 0);
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
    move_run(request, ret_report);
}

#define MS UINT64_C(1000000)

Test(rounds, stop_when_the_rest_is_short, .timeout = 120)
{
    struct move_request request = {.max_downtime_ns = 500 * MS, .strict = true};
    struct move_report report;
    writer_open(LINK, 1, 0);
    writer_start();
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_geq(report.rounds, 1);
    cr_assert_gt(report.predicted_ns, 0);
    cr_assert_leq(report.predicted_ns, 500 * MS);
    cr_assert_geq(report.bytes, (BUFFERS + 1) * BYTES, "what was written was not copied again");
    cr_assert_str_eq(place_of_seat(), "two");
    writer_end();
}

Test(rounds, that_do_not_help_end_in_a_longer_pause, .timeout = 120)
{
    struct move_request request = {.max_downtime_ns = 10 * MS};
    struct move_report report;
    writer_open(LINK, BUFFERS, 0);
    writer_start();
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_geq(report.rounds, 2);
    cr_assert_leq(report.rounds, 8, "it went on and on");
    cr_assert_gt(report.predicted_ns, 10 * MS);
    cr_assert_gt(report.downtime_ns, 400 * MS, "all was copied in less time than the link takes");
    writer_end();
}

Test(rounds, that_do_not_help_end_a_strict_move, .timeout = 120)
{
    struct move_request request = {.max_downtime_ns = 10 * MS, .strict = true};
    struct move_report report;
    writer_open(LINK, BUFFERS, 0);
    writer_start();
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_ROLLED_BACK, "%s", move_result_name(report.result));
    cr_assert_not_null(strstr(report.reason, "would be stopped for"), "%s", report.reason);
    cr_assert_not(report.lasting);
    cr_assert_str_eq(place_of_seat(), "one");
    cr_assert(engine_rig_empties(&w.rig, "two"), "alive: %s", engine_rig_alive(&w.rig, "two"));
    writer_end();
}

/* With a deadline it goes on trying; the program pauses by itself in time. */
Test(rounds, go_on_until_the_deadline, .timeout = 120)
{
    struct move_request request = {.max_downtime_ns = 20 * MS, .strict = true};
    struct move_report report;
    writer_open(LINK, BUFFERS, 100);
    writer_start();
    request.deadline_ns = engine_rig_now() + 60000 * MS;
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_eq(w.rounds, w.most, "it was stopped after %u", w.rounds);
    cr_assert_leq(report.predicted_ns, 20 * MS);
    writer_end();
}

Test(rounds, end_when_the_deadline_comes_near, .timeout = 120)
{
    struct move_request request = {.max_downtime_ns = 10 * MS, .strict = true};
    struct move_report report;
    writer_open(LINK, BUFFERS, 0);
    writer_start();
    request.deadline_ns = engine_rig_now() + 10000 * MS;
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_ROLLED_BACK, "%s", move_result_name(report.result));
    cr_assert_geq(report.rounds, 3, "%u rounds: it did not go on trying", report.rounds);
    cr_assert_not_null(strstr(report.reason, "would be stopped for"), "%s", report.reason);
    writer_end();
}

/* Always several of them are with the driver: whenever the program is stopped, one has to end. */
#define SEVERAL 8

static void *spin(void *unused)
{
    const cl_uint turns = 30000000;
    cl_kernel kernel = engine_kernel(w.program.program, "spin");
    cl_mem one = engine_buffer(w.program.context, CL_MEM_READ_WRITE, 64, NULL);
    cl_event events[SEVERAL] = {NULL};
    (void)unused;
    OK(clSetKernelArg(kernel, 0, sizeof(cl_mem), &one));
    OK(clSetKernelArg(kernel, 1, sizeof(turns), &turns));
    for (unsigned i = 0; !atomic_load(&w.stop); i++) {
        cl_event *event = &events[i % SEVERAL];
        if (*event) {
            OK(clWaitForEvents(1, event));
            OK(clReleaseEvent(*event));
        }
        launch(w.program.queue, kernel, 1, 1, event);
        OK(clFlush(w.program.queue));
        w.rounds++;
    }
    for (int i = 0; i < SEVERAL; i++)
        if (events[i])
            OK(clReleaseEvent(events[i]));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(one));
    return NULL;
}

Test(rounds, a_strict_move_does_not_wait_for_long_commands_with_the_program_stopped, .timeout = 120)
{
    struct move_request request = {.max_downtime_ns = 2 * MS, .strict = true};
    struct move_report report;
    writer_open("[one] name=one base=1 [two] name=two", 0, 0);
    cr_assert_eq(pthread_create(&w.thread, NULL, spin, NULL), 0);
    while (w.rounds < SEVERAL)
        engine_rig_sleep(1);
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_ROLLED_BACK, "%s", move_result_name(report.result));
    cr_assert_not_null(strstr(report.reason, "does not end, or is not copied"), "%s",
                       report.reason);
    atomic_store(&w.stop, true);
    cr_assert_eq(pthread_join(w.thread, NULL), 0);
    /* Nothing is given any more. */
    OK(clFinish(w.program.queue));
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
}

/* It cannot be faster than that; that each byte is paid for is test_throttle's. */
Test(rounds, keep_to_a_bandwidth, .timeout = 120)
{
    struct move_request request = {.bandwidth = 4 * BUFFERS * BYTES};
    struct move_report report;
    writer_open(CONFIG, 0, 1);
    writer_start();
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_geq(report.bytes, BUFFERS * BYTES);
    cr_assert_geq(report.total_ns, 1000 * MS / 4 - 20 * MS, "%llu ns",
                  (unsigned long long)report.total_ns);
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
    writer_start();
    cr_assert_eq(pthread_create(&thread, NULL, cancel_soon, &cancel), 0);
    writer_move(&request, &report);
    cr_assert_eq(report.result, MOVE_CANCELED, "%s", move_result_name(report.result));
    cr_assert_eq(pthread_join(thread, NULL), 0);
    writer_end();
}
