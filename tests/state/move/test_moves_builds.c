#include <pthread.h>

#include "state/base/threads/work.h"
#include "state/object/lost.h"
#include "tests/state/move/test_moves_common.h"

/* Builds end, however often the program is moved meanwhile. */

TestSuite(moves_builds, .timeout = 120);

/* Longer than a move takes, so that each attempt that may be moved is. */
#define SLOW "[one] name=one build_ms=150 [two] name=two build_ms=150"
/* More than a round calls a compiler: for each of its two steps at most RETRY_AFTER attempts until
 * moves wait, one that the move under way makes vain, and the last; and what movers carry. */
#define MOST   20
#define ROUNDS 2

static struct {
    struct engine_rig rig;
    atomic_bool stop;
} busy;

static unsigned attempts(void)
{
    static const char *const functions[] = {"clBuildProgram", "clCompileProgram", "clLinkProgram"};
    uint64_t calls = 0;
    for (size_t i = 0; i < ARRAY_SIZE(functions); i++)
        calls += emu_shared_calls(busy.rig.emu, "one", functions[i]) +
                 emu_shared_calls(busy.rig.emu, "two", functions[i]);
    return (unsigned)calls;
}

/* A build that never ends would hang the suite: then the moves do. */
static void *move_on(void *data)
{
    struct move_report report;
    (void)data;
    for (unsigned i = 1; !atomic_load(&busy.stop) && attempts() < ROUNDS * MOST; i++)
        (void)engine_rig_move(&busy.rig, i % 2 ? "two" : "one", &report);
    return NULL;
}

static void between_moves(void (*work)(cl_context context))
{
    struct engine_program p;
    pthread_t mover;
    engine_rig_open(&busy.rig, SLOW);
    engine_program_open(&busy.rig, 0, NULL, &p);
    cr_assert_eq(pthread_create(&mover, NULL, move_on, NULL), 0);
    for (int round = 0; round < ROUNDS; round++) {
        unsigned before = attempts();
        work(p.context);
        cr_expect_lt(attempts() - before, MOST, "%u attempts", attempts() - before);
    }
    atomic_store(&busy.stop, true);
    cr_assert_eq(pthread_join(mover, NULL), 0);
    engine_program_close(&p);
}

static void build(cl_context context)
{
    cl_program program = BUILT(context, SOURCE, "");
    cl_kernel kernel = engine_kernel(program, "add");
    RELEASE(kernel, program);
}

TestCall(moves_builds, a_build_ends_between_moves_that_never_do, between_moves(build));

static void compile_and_link(cl_context context)
{
    const char *text = SOURCE;
    cl_program program = MADE(clCreateProgramWithSource, context, 1, &text, NULL);
    OK(clCompileProgram(program, 0, NULL, "", 0, NULL, NULL, NULL, NULL));
    cl_program linked = MADE(clLinkProgram, context, 0, NULL, "", 1, &program, NULL, NULL);
    RELEASE(linked, program);
}

TestCall(moves_builds, a_link_ends_between_moves_that_never_do, between_moves(compile_and_link));

/* A device that is left on demand keeps its residence, to which the program may return before what
 * was being built there is built. */
static struct {
    struct engine_rig rig;
    cl_program program;
} overtaken;

static void *build_slowly(void *data)
{
    *(cl_int *)data = clBuildProgram(overtaken.program, 0, NULL, "", NULL, NULL);
    return NULL;
}

static void move_on_demand(const char *to)
{
    struct move_report report;
    struct move_request request = {.target = engine_rig_key(&overtaken.rig, to),
                                   .fetch = MOVE_FETCH_ON_DEMAND,
                                   .bandwidth = 1 << 20};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
}

Test(moves_builds, a_build_that_a_return_overtakes_is_done_once_more)
{
    enum { LEFT_BEHIND = 16 << 20, SLOW_MS = 1500 };
    struct engine_program p;
    const char *text = SOURCE;
    cl_int error;
    pthread_t builder;
    char *bytes = calloc(1, LEFT_BEHIND);
    engine_rig_open(&overtaken.rig, "[one] name=one build_ms=1500 [two] name=two");
    engine_program_open(&overtaken.rig, 0, NULL, &p);
    cl_mem buffer =
        engine_buffer(p.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, LEFT_BEHIND, bytes);
    overtaken.program = MADE(clCreateProgramWithSource, p.context, 1, &text, NULL);
    uint64_t began = engine_rig_now();
    cr_assert_eq(pthread_create(&builder, NULL, build_slowly, &error), 0);
    while (emu_shared_calls(overtaken.rig.emu, "one", "clBuildProgram") == 0)
        engine_rig_sleep(1);
    move_on_demand("two");
    move_on_demand("one");
    cr_assert_lt(engine_rig_now() - began, SLOW_MS * UINT64_C(1000000), "it was built before");
    cr_assert_eq(pthread_join(builder, NULL), 0);
    OK(error);
    RELEASE(engine_kernel(overtaken.program, "add"), overtaken.program, buffer);
    engine_program_close(&p);
    free(bytes);
}

/* What moves wait for, without anything that is built. */
struct stopped {
    struct engine_rig rig;
    struct retry retry;
};

static void stop_moves(struct stopped *s)
{
    engine_rig_open(&s->rig, CONFIG);
    s->retry = (struct retry){the_vdevs, 1, 0};
    for (int i = 0; i < RETRY_AFTER; i++) {
        cr_assert_not(retry_delays_moves(the_vdevs[0]));
        retry_again(&s->retry);
    }
    cr_assert(retry_delays_moves(the_vdevs[0]));
}

Test(moves_builds, a_move_that_waits_for_a_build_keeps_its_deadline)
{
    static struct stopped s;
    struct move_report report;
    stop_moves(&s);
    struct move_request request = {.target = engine_rig_key(&s.rig, "two"),
                                   .deadline_ns = engine_rig_now() + 50000000u};
    move_run(&request, &report);
    cr_expect_eq(report.result, MOVE_EXPIRED, "%s", move_result_name(report.result));
    cr_expect_str_eq(place_of_vdev(), "one");
    request.target = NULL;
    move_run(&request, &report);
    cr_expect_eq(report.result, MOVE_EXPIRED, "%s", move_result_name(report.result));
    retry_end(&s.retry);
    engine_rig_moves(&s.rig, "two");
}

Test(moves_builds, a_move_that_waits_for_a_build_can_be_canceled)
{
    static struct stopped s;
    static atomic_bool cancel = true;
    struct move_report report;
    stop_moves(&s);
    struct move_request request = {.target = engine_rig_key(&s.rig, "two"), .cancel = &cancel};
    move_run(&request, &report);
    cr_expect_eq(report.result, MOVE_CANCELED, "%s", move_result_name(report.result));
    cr_expect_not_null(strstr(report.reason, "builds"), "%s", report.reason);
    request.dry_run = true;
    move_run(&request, &report);
    cr_expect_eq(report.result, MOVE_DONE, "PLAN alone moves nothing: %s", report.reason);
    retry_end(&s.retry);
}

static void *move_once(void *data)
{
    static struct move_report report;
    (void)engine_rig_move(data, "two", &report);
    return &report;
}

Test(moves_builds, a_move_goes_once_the_build_has_ended)
{
    static struct stopped s;
    pthread_t mover;
    void *result;
    stop_moves(&s);
    cr_assert_eq(pthread_create(&mover, NULL, move_once, &s.rig), 0);
    engine_rig_sleep(50);
    cr_expect_str_eq(place_of_vdev(), "one");
    retry_end(&s.retry);
    cr_assert_eq(pthread_join(mover, &result), 0);
    cr_expect_eq(((struct move_report *)result)->result, MOVE_DONE);
    cr_expect_str_eq(place_of_vdev(), "two");
}

Test(moves_builds, a_suspended_device_is_resumed_for_what_is_built)
{
    static struct stopped s;
    engine_rig_open(&s.rig, CONFIG);
    engine_rig_moves(&s.rig, NULL);
    s.retry = (struct retry){the_vdevs, 1, 0};
    for (int i = 0; i < RETRY_AFTER; i++)
        retry_again(&s.retry);
    engine_rig_moves(&s.rig, "two");
    retry_end(&s.retry);
}

/* What a mover said of builds. */
static struct {
    unsigned told;
    uint32_t builds, built[4];
    char building[4][64];
} said;

static void note_builds(void *data, const struct move_progress *progress)
{
    (void)data;
    if (progress->builds == 0 || said.told == 4)
        return;
    cr_expect_eq(progress->phase, MOVE_PREPARE);
    said.builds = progress->builds;
    said.built[said.told] = progress->built;
    memcpy(said.building[said.told++], progress->building, sizeof(progress->building));
}

Test(moves_builds, a_move_says_what_it_builds_and_how_many_are_left)
{
    struct engine_rig rig;
    struct engine_program p;
    struct move_report report;
    cl_program programs[3];
    engine_rig_open(&rig, CONFIG);
    engine_program_open(&rig, 0, NULL, &p);
    for (int i = 0; i < 3; i++)
        programs[i] = BUILT(p.context, SOURCE, "");
    cl_kernel kernel = engine_kernel(programs[1], "add");
    struct move_request request = {.target = engine_rig_key(&rig, "two"), .progress = note_builds};
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    cr_assert_eq(said.told, 3);
    cr_assert_eq(said.builds, 3);
    for (uint32_t i = 0; i < 3; i++)
        cr_expect_eq(said.built[i], i);
    cr_expect_eq(!said.building[0][0] + !said.building[1][0] + !said.building[2][0], 2);
    for (int i = 0; i < 3; i++)
        cr_expect(!said.building[i][0] || strcmp(said.building[i], "add") == 0);
    /* What is built there is not built again. */
    engine_rig_moves(&rig, "one");
    said.told = 0;
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE);
    OK(clReleaseKernel(kernel));
    for (int i = 0; i < 3; i++)
        OK(clReleaseProgram(programs[i]));
    engine_program_close(&p);
}

/* As many as a program loses that mends a fault now and then, and more than are tried. */
Test(moves_builds, a_build_that_lost_its_files_is_begun_again)
{
    struct engine_rig rig;
    struct engine_program p;
    struct move_report report;
    engine_rig_open(&rig, "[one] name=one [two] name=two build_loses=3 [three] name=three "
                          "build_loses=1000000 [four] name=four build_fails=add");
    engine_program_open(&rig, 0, SOURCE, &p);
    cl_kernel kernel = engine_kernel(p.program, "add");
    engine_rig_moves(&rig, "two");
    cr_assert_eq(emu_shared_calls(rig.emu, "two", "clBuildProgram"), 4);
    cr_assert_eq(engine_rig_move(&rig, "three", &report), MOVE_ROLLED_BACK);
    cr_assert_not(report.lasting);
    cr_assert(strstr(report.reason, "-11): error: <invalid loc>: unable to rename temporary"), "%s",
              report.reason);
    cr_assert_eq(emu_shared_calls(rig.emu, "four", "clBuildProgram"), 0);
    cr_assert_eq(engine_rig_move(&rig, "four", &report), MOVE_ROLLED_BACK);
    cr_assert(report.lasting);
    cr_assert(strstr(report.reason, "the configuration makes this build fail"), "%s",
              report.reason);
    /* With what is added to its options, and as the program said. */
    cr_assert_eq(emu_shared_calls(rig.emu, "four", "clBuildProgram"), 2);
    OK(clReleaseKernel(kernel));
    engine_program_close(&p);
}

Test(moves_builds, what_does_not_build_there_is_said_to_last)
{
    struct engine_rig rig;
    struct engine_program p;
    struct move_report report;
    engine_rig_open(&rig, CONFIG);
    engine_program_open(&rig, 0, SOURCE, &p);
    /* What nothing is added to is built once. */
    OK(clBuildProgram(p.program, 0, NULL, "-cl-kernel-arg-info", NULL, NULL));
    cl_kernel kernel = engine_kernel(p.program, "add");
    cr_assert_eq(emu_shared_arm(rig.emu, "two", 1, "clBuildProgram", CL_BUILD_PROGRAM_FAILURE), 0);
    cr_assert_eq(engine_rig_move(&rig, "two", &report), MOVE_ROLLED_BACK);
    cr_assert(report.lasting);
    cr_assert(strstr(report.reason, "kernel add"), "%s", report.reason);
    cr_assert_eq(emu_shared_arm(rig.emu, "two", 1, "clBuildProgram", CL_OUT_OF_HOST_MEMORY), 0);
    cr_assert_eq(engine_rig_move(&rig, "two", &report), MOVE_ROLLED_BACK);
    cr_assert_not(report.lasting);
    cr_assert(strstr(report.reason, " two "), "%s", report.reason);
    /* What operators call it, once that is known. */
    struct move_request request = {.target = engine_rig_key(&rig, "two"), .target_name = "gpu7"};
    cr_assert_eq(emu_shared_arm(rig.emu, "two", 1, "clBuildProgram", CL_BUILD_PROGRAM_FAILURE), 0);
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_ROLLED_BACK);
    cr_assert(strstr(report.reason, " gpu7 "), "%s", report.reason);
    cr_assert_null(strstr(report.reason, " two "), "%s", report.reason);
    engine_rig_moves(&rig, "two");
    OK(clReleaseKernel(kernel));
    engine_program_close(&p);
}

/* A move that the end of the process meets while it builds. */
static struct {
    struct engine_rig rig;
    atomic_bool builds;
    struct move_report report;
} late;

static void note_late(void *data, const struct move_progress *progress)
{
    (void)data;
    if (progress->builds)
        atomic_store(&late.builds, true);
}

static void *move_late(void *data)
{
    struct move_request request = {.target = engine_rig_key(&late.rig, "two"),
                                   .progress = note_late};
    (void)data;
    move_run(&request, &late.report);
    return NULL;
}

Test(moves_builds, a_program_that_ends_has_no_move_canceled)
{
    struct engine_program p;
    pthread_t mover;
    engine_rig_open(&late.rig, SLOW);
    engine_program_open(&late.rig, 0, SOURCE, &p);
    cr_assert_eq(pthread_create(&mover, NULL, move_late, NULL), 0);
    while (!atomic_load(&late.builds))
        engine_rig_sleep(1);
    work_process_ends();
    cr_assert_eq(pthread_join(mover, NULL), 0);
    cr_assert_eq(late.report.result, MOVE_ENDED, "%s", late.report.reason);
    cr_assert_str_eq(late.report.reason, "the program ends");
}

/* What is added to its options has the compiler fail on one of the devices, as the program itself
 * does not. Of parameters nothing is known there. */
Test(moves_builds, what_is_added_to_options_fails_no_build)
{
    static const char text[] = "kernel void says(void) { printf(\"\"); }\n" SOURCE;
    struct engine_rig rig;
    struct engine_program p;
    struct move_report report;
    cl_uint words[WORDS] = {5}, value = 9;
    char told[64];
    engine_rig_open(&rig, "[one] name=one arg_info_fails=yes [two] name=two");
    engine_program_open(&rig, 0, text, &p);
    OK(clGetProgramBuildInfo(p.program, rig.device, CL_PROGRAM_BUILD_OPTIONS, sizeof(told), told,
                             NULL));
    cr_expect_str_eq(told, "");
    OK(clGetProgramBuildInfo(p.program, rig.device, CL_PROGRAM_BUILD_LOG, sizeof(told), told,
                             NULL));
    cr_expect_str_eq(told, "");
    cl_kernel kernel = engine_kernel(p.program, "add"), says = engine_kernel(p.program, "says");
    cl_mem buffer = MADE(clCreateBuffer, p.context, CL_MEM_COPY_HOST_PTR, SIZE, words);
    ARGS(kernel, buffer, value);
    for (int i = 0; i < 3; i++) {
        launch(p.queue, kernel, WORDS, 0, NULL);
        launch(p.queue, says, 1, 0, NULL);
        cr_expect_eq(engine_rig_move(&rig, i % 2 ? "one" : "two", &report), 0, "%s", report.reason);
    }
    OK(clEnqueueReadBuffer(p.queue, buffer, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    cr_expect_eq(words[0], 5 + 3 * value);
    cr_expect_eq(words[WORDS - 1], 3 * value);
    /* What fails by itself still does. */
    const char *wrong = "kernel void says(void) { printf(\"\") }";
    cl_program program = MADE(clCreateProgramWithSource, p.context, 1, &wrong, NULL);
    cr_expect_eq(clBuildProgram(program, 0, NULL, "", NULL, NULL), CL_BUILD_PROGRAM_FAILURE);
    RELEASE(program, kernel, says, buffer);
    engine_program_close(&p);
}
