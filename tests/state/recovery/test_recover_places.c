#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/command/journal.h"
#include "state/object/lost.h"
#include "state/object/pin.h"
#include "state/recovery/protect.h"
#include "tests/state/recovery/recover_play.h"

/* Where a program goes on whose device is lost, and what it was in the middle of: builds, moves,
 * suspends. */

/* One after the other is lost, and comes back, while it makes progress. */
Test(recover, devices_are_lost_again_and_again, .timeout = 300)
{
    static const char *const names[] = {"a", "b", "c"};
    struct play play;
    open_rig("");
    open_play(&play, 0);
    for (unsigned i = 0; i < 60; i++) {
        size_t at = 0;
        while (at < ARRAY_SIZE(names) && !is_on(names[at]))
            at++;
        cr_assert_lt(at, ARRAY_SIZE(names));
        cr_assert_eq(emu_shared_arm(rig.emu, names[at], 1 + i % 7, NULL, EMU_ERROR_VANISH), 0);
        launch(&play, i, 0, NULL, NULL);
        launch(&play, i + 1, 0, NULL, NULL);
        has(&play, play.b, play.b_is);
        has(&play, play.a, play.a_is);
        cr_assert_not(is_on(names[at]));
        (void)emu_shared_disarm(rig.emu, names[at]);
        (void)emu_shared_restore(rig.emu, names[at]);
        if (i % 9 == 8)
            cr_assert_eq(protect_now(), 0);
    }
    cr_assert_eq(recoveries(), 60);
    close_play(&play);
}

struct builder {
    cl_program program;
    cl_int error;
};

static void *build(void *data)
{
    struct builder *builder = data;
    builder->error = clBuildProgram(builder->program, 0, NULL, NULL, NULL, NULL);
    return NULL;
}

/* The program went on elsewhere in the middle of a build, and what it left is lost after that. */
Test(recover, what_is_built_on_a_device_that_was_left_outlives_it, .timeout = 60)
{
    struct builder builder = {.error = CL_SUCCESS};
    const char *text = play_source;
    struct play play;
    pthread_t thread;
    open_rig("build_ms=1000");
    open_play(&play, 0);
    builder.program =
        clCreateProgramWithSource(play.program.context, 1, &text, NULL, &builder.error);
    OK(builder.error);
    uint64_t built = emu_shared_calls(rig.emu, "a", "clBuildProgram");
    cr_assert_eq(pthread_create(&thread, NULL, build, &builder), 0);
    while (emu_shared_calls(rig.emu, "a", "clBuildProgram") == built)
        clock_sleep(NS_PER_MS);
    go("b");
    cr_assert(is_on("b"));
    cr_assert_eq(emu_shared_arm(rig.emu, "a", 1, "clGetProgramBuildInfo", EMU_ERROR_VANISH), 0);
    pthread_join(thread, NULL);
    OK(builder.error);
    OK(clReleaseKernel(engine_kernel(builder.program, "add")));
    OK(clReleaseProgram(builder.program));
    launch(&play, 3, 0, NULL, NULL);
    has(&play, play.b, play.b_is);
    cr_assert(is_on("b"));
    close_play(&play);
}

static bool choose(void)
{
    return true;
}

/* Who waits for the next device waits for a move: to suspend must neither wait for what is being
 * built, nor take the program off the lost device with what it did there undone. It has no bytes
 * that were lost. */
Test(recover, a_suspend_leaves_a_lost_device_to_who_recovers_it, .timeout = 60)
{
    struct builder builder = {.error = CL_SUCCESS};
    struct engine_program program;
    struct move_report report;
    struct retry retry = {the_vdevs, 1, 0};
    pthread_t thread;
    open_rig("");
    engine_program_open(&rig, 0, play_source, &program);
    cr_assert_eq(protect_now(), 0);
    recovery_install(choose);
    builder.program = program.program;
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    cr_assert_eq(pthread_create(&thread, NULL, build, &builder), 0);
    while (!vdev_is_lost(the_vdevs[0]))
        clock_sleep(NS_PER_MS);
    while (!retry_delays_moves(the_vdevs[0]))
        retry_again(&retry);
    const struct move_request suspend = {.deadline_ns = clock_now_ns() + 5000 * NS_PER_MS};
    move_run(&suspend, &report);
    cr_expect_eq(report.result, MOVE_REFUSED, "%s: %s", move_result_name(report.result),
                 report.reason);
    go("b");
    cr_assert(is_on("b"));
    pthread_join(thread, NULL);
    OK(builder.error);
    cr_assert_eq(recoveries(), 1);
    retry_end(&retry);
    recovery_install(NULL);
    engine_program_close(&program);
}

static void *move_to_b(void *report)
{
    const struct move_request request = {.target = engine_rig_key(&rig, "b")};
    move_run(&request, report);
    return NULL;
}

/* Nothing but the loss and the move causes states: each is seen, once, in their order. */
Test(recover, a_recovery_goes_through_its_states, .timeout = 60)
{
    enum recovery_state seen[8] = {RECOVERY_RUNNING};
    struct move_report report;
    struct play play;
    pthread_t mover;
    size_t count = 1;
    open_rig_with("", "build_ms=200 launch_ms=200");
    open_play(&play, 0);
    cr_assert_eq(protect_now(), 0);
    launch(&play, 3, 0, NULL, NULL);
    OK(clFinish(play.program.queue));
    recovery_install(choose);
    const struct context *context = object_get(play.program.context, OBJECT_CONTEXT);
    cr_assert_eq(recovery_state(), RECOVERY_RUNNING);
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    while (!residence_failed(context->at[context_home(context)], CL_OUT_OF_RESOURCES))
        ;
    while (recovery_state() != RECOVERY_CHOOSING)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(pthread_create(&mover, NULL, move_to_b, &report), 0);
    for (enum recovery_state state; (state = recovery_state()) != RECOVERY_RUNNING;
         clock_sleep(NS_PER_MS))
        if (state != seen[count - 1] && count < ARRAY_SIZE(seen))
            seen[count++] = state;
    pthread_join(mover, NULL);
    cr_assert_eq(report.result, MOVE_DONE);
    recovery_install(NULL);
    for (size_t i = 1; i < count; i++)
        cr_assert_gt(seen[i], seen[i - 1]);
    cr_assert_eq(seen[1], RECOVERY_CHOOSING);
    cr_assert_eq(seen[2], RECOVERY_OPENING);
    cr_assert_eq(seen[count - 1], RECOVERY_REPLAYING);
    cr_assert_eq(recoveries(), 1);
    has(&play, play.b, play.b_is);
    close_play(&play);
}

static void *move_to_c(void *report)
{
    const struct move_request request = {.target = engine_rig_key(&rig, "c")};
    move_run(&request, report);
    return NULL;
}

/* Where no byte was lost either, what had not ended is to be done again. */
Test(recover, a_move_that_began_before_a_loss_does_not_take_its_place, .timeout = 60)
{
    const cl_uint n = 1;
    const size_t items = 3; /* and seconds */
    struct play play = {0};
    struct engine_program program;
    struct move_report report;
    pthread_t thread;
    cl_event event;
    open_rig("items_per_s=1 paced=idle"); /* the move waits for it */
    engine_program_open(&rig, 0, play_source, &program);
    cl_kernel idle = engine_kernel(program.program, "idle");
    cr_assert_eq(protect_now(), 0);
    OK(clSetKernelArg(idle, 0, sizeof(n), &n));
    OK(clEnqueueNDRangeKernel(program.queue, idle, 1, NULL, &items, &items, 0, NULL, &event));
    watch(&play, event);
    OK(clFlush(program.queue));
    cr_assert_eq(pthread_create(&thread, NULL, move_to_c, &report), 0);
    clock_sleep(300 * NS_PER_MS);
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    pthread_join(thread, NULL);
    cr_assert_neq(report.result, MOVE_DONE);
    go("b");
    cr_assert(is_on("b"));
    OK(clWaitForEvents(1, &event));
    called_once(&play);
    cr_assert_eq(recoveries(), 1);
    RELEASE(event, idle);
    engine_program_close(&program);
}

/* It still had what was not fetched, and so is the same one when the program comes back. */
Test(recover, a_device_that_was_left_on_demand_and_entered_again_is_recovered, .timeout = 60)
{
    struct play play;
    struct move_report report;
    open_rig("");
    open_play(&play, 0);
    launch(&play, 1, 0, NULL, NULL);
    const struct move_request request = {
        .target = engine_rig_key(&rig, "b"), .fetch = MOVE_FETCH_ON_DEMAND, .bandwidth = 1024};
    move_run(&request, &report);
    cr_assert(report.result == MOVE_DONE && report.left != 0, "%s", report.reason);
    go("a");
    cr_assert(is_on("a"));
    launch(&play, 3, 0, NULL, NULL);
    OK(clFinish(play.program.queue));
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    launch(&play, 5, 0, NULL, NULL);
    has(&play, play.b, play.b_is);
    has(&play, play.a, play.a_is);
    cr_assert_not(is_on("a"));
    close_play(&play);
}

/* It need not be the program that finds it lost. */
Test(recover, what_was_left_on_demand_and_is_lost_is_recovered_before_it_is_needed, .timeout = 60)
{
    struct play play;
    open_rig("");
    open_play(&play, 0);
    launch(&play, 1, 0, NULL, NULL);
    OK(clFinish(play.program.queue));
    cr_assert_eq(emu_shared_arm(rig.emu, "a", 1, "clEnqueueReadBuffer", EMU_ERROR_VANISH), 0);
    leave_on_demand("b");
    for (unsigned i = 0; recoveries() == 0 && i < 5000; i++)
        engine_rig_sleep(1);
    cr_assert_eq(recoveries(), 1);
    has(&play, play.b, play.b_is);
    has(&play, play.a, play.a_is);
    close_play(&play);
}

/* The driver of the next device opens some to build; the program, which waits, would let none go.
 */
Test(recover, a_program_that_has_each_descriptor_is_recovered, .timeout = 60)
{
    enum { NUMBERS = 256 };
    struct play play;
    struct rlimit limit, is;
    int own[NUMBERS], count = 0;
    open_rig("");
    open_play(&play, 0);
    launch(&play, 1, 0, NULL, NULL);
    OK(clFinish(play.program.queue));
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = NUMBERS;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (count < NUMBERS && (own[count] = dup(STDERR_FILENO)) >= 0)
        count++;
    cr_assert(count > 0 && errno == EMFILE);
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    has(&play, play.b, play.b_is);
    /* The limit is the program's again, once that is over. */
    for (unsigned i = 0; i < 5000; i++, engine_rig_sleep(1))
        if (getrlimit(RLIMIT_NOFILE, &is) == 0 && is.rlim_cur == limit.rlim_cur)
            break;
    cr_assert_eq(is.rlim_cur, limit.rlim_cur);
    while (count > 0)
        cr_assert_eq(close(own[--count]), 0);
    close_play(&play);
}

/* Without protection it is as ever, also after there was some. */
Test(recover, what_is_not_protected_gets_the_errors, .timeout = 60)
{
    struct play play;
    cl_uint bytes[COUNT];
    open_rig("");
    open_play(&play, 0);
    protect_end();
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    cr_assert_eq(
        clEnqueueReadBuffer(play.program.queue, play.b, CL_TRUE, 0, BYTES, bytes, 0, NULL, NULL),
        CL_OUT_OF_RESOURCES);
    cr_assert_eq(clFinish(play.program.queue), CL_OUT_OF_RESOURCES);
    cr_assert(is_on("a"));
    close_play(&play);
}

/* The one that is found first cannot be used either. */
Test(recover, one_that_has_nothing_yet_tries_each_device, .timeout = 60)
{
    open_rig("");
    cr_assert(is_on("a"));
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    cr_assert_eq(emu_shared_vanish(rig.emu, "b"), 0);
    cl_context context = MADE(clCreateContext, NULL, 1, &rig.device, NULL, NULL);
    cr_assert(is_on("c"));
    OK(clReleaseContext(context));
}

/* What it has since its last snapshot can be carried nowhere: it is as without protection. */
Test(recover, a_program_that_was_pinned_gets_the_errors, .timeout = 60)
{
    static const char *const counting = "global uint count = 5;\n"
                                        "kernel void next(global uint *a) { a[0] = count++; }\n";
    struct play play;
    open_rig("");
    open_play(&play, 0);
    cl_program program =
        MADE(clCreateProgramWithSource, play.program.context, 1, (const char **)&counting, NULL);
    OK(clBuildProgram(program, 1, &rig.device, "-cl-std=CL2.0", NULL, NULL));
    cr_assert_not_null(pin_reason(the_vdevs[0]));
    cr_assert_null(journal_broken());
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    cr_assert_eq(clEnqueueWriteBuffer(play.program.queue, play.b, CL_TRUE, 0, BYTES, play.b_is, 0,
                                      NULL, NULL),
                 CL_OUT_OF_RESOURCES);
    cr_assert_eq(recoveries(), 0);
    while (recovery_state() != RECOVERY_FAILED)
        clock_sleep(NS_PER_MS);
    OK(clReleaseProgram(program));
    close_play(&play);
}

static bool somebody_chooses(void)
{
    return true;
}

/* A command ends just before its device is lost, which reports the end 20 ms later: while the
 * command is given again, which takes longer. */
static void report_late(struct play *play)
{
    const struct context *context = object_get(play->program.context, OBJECT_CONTEXT);
    cl_event event;
    cl_int status;
    launch(play, 3, 0, NULL, &event);
    watch(play, event);
    OK(clFlush(play->program.queue));
    clock_sleep(3 * NS_PER_MS);
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    while (!residence_failed(context->at[context_home(context)], CL_OUT_OF_RESOURCES))
        ;
    go("b");
    OK(clWaitForEvents(1, &event));
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_eq(status, CL_COMPLETE);
    called_once(play);
    has(play, play->b, play->b_is);
    OK(clReleaseEvent(event));
    again();
    cr_assert_eq(protect_now(), 0);
}

Test(recover, what_a_lost_device_reports_late_is_heard_by_nobody, .timeout = 120)
{
    enum { TIMES = 20 };
    struct play play;
    open_rig_with("callbacks=late", "launch_ms=50");
    open_play(&play, 0);
    recovery_install(somebody_chooses);
    for (unsigned i = 0; i < TIMES; i++)
        report_late(&play);
    recovery_install(NULL);
    close_play(&play);
}

/* A command runs, and has a callback, whose device is lost: its recovery fails after COMMIT, and
 * nobody has tried another one yet. */
static cl_event fail_to_recover(struct play *play)
{
    cl_event event;
    open_rig("paced=add items_per_s=2048 ");
    open_play(play, CL_QUEUE_PROFILING_ENABLE);
    recovery_install(somebody_chooses);
    launch(play, 3, 0, NULL, &event);
    watch(play, event);
    OK(clFlush(play->program.queue));
    cr_assert_eq(emu_shared_arm(rig.emu, "b", 1, "clEnqueueNDRangeKernel", EMU_ERROR_VANISH), 0);
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    while (recovery_state() != RECOVERY_CHOOSING)
        clock_sleep(NS_PER_MS);
    go("b");
    cr_assert(is_on("b"));
    cr_assert_eq(recovery_state(), RECOVERY_CHOOSING);
    cr_assert_eq(recoveries(), 0);
    return event;
}

static void failed_once(struct play *play, cl_event event)
{
    cl_int status;
    cr_assert_eq(clWaitForEvents(1, &event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_eq(status, CL_OUT_OF_RESOURCES);
    while (atomic_load(&play->called) != 1)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(atomic_load(&play->failed), 1);
    OK(clReleaseEvent(event));
    recovery_install(NULL);
    close_play(play);
}

/* No wait lasts for ever, no callback is left out, and nobody is busy with it. */
Test(recover, what_cannot_be_given_again_fails, .timeout = 60)
{
    struct play play;
    cl_event event = fail_to_recover(&play);
    journal_break("it cannot be");
    while (recovery_state() != RECOVERY_FAILED)
        clock_sleep(NS_PER_MS);
    clock_t before = clock();
    clock_sleep(400 * NS_PER_MS);
    cr_assert_lt(clock() - before, CLOCKS_PER_SEC / 5, "a thread does not rest");
    cr_assert_eq(recovery_state(), RECOVERY_FAILED);
    cr_assert_str_eq(journal_broken(), "it cannot be");
    failed_once(&play, event);
}

Test(recover, what_was_to_be_given_again_fails_without_protection, .timeout = 60)
{
    struct play play;
    cl_event event = fail_to_recover(&play);
    protect_end();
    failed_once(&play, event);
}

/* A device that refuses a command when it is given again works for all others, and may take it the
 * next time. */
Test(recover, a_device_where_the_journal_fails_is_not_lost, .timeout = 60)
{
    struct play play;
    struct loss loss;
    open_rig("");
    open_play(&play, 0);
    recovery_install(somebody_chooses);
    launch(&play, 3, 0, NULL, NULL);
    OK(clFinish(play.program.queue));
    cr_assert_eq(emu_shared_arm(rig.emu, "b", 1, "clEnqueueNDRangeKernel", EMU_ERROR_NATURAL), 0);
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    const struct context *context = object_get(play.program.context, OBJECT_CONTEXT);
    while (!residence_failed(context->at[context_home(context)], CL_OUT_OF_RESOURCES))
        ;
    while (recovery_state() != RECOVERY_CHOOSING)
        clock_sleep(NS_PER_MS);
    go("b");
    cr_assert(is_on("b"));
    cr_assert_eq(recovery_state(), RECOVERY_CHOOSING);
    lost_last(&loss);
    cr_assert(loss.works);
    cr_assert_str_eq(loss.device->key.device, "b");
    cr_assert_not(atomic_load(&loss.device->lost));
    go("b");
    cr_assert_eq(recoveries(), 1);
    has(&play, play.b, play.b_is);
    recovery_install(NULL);
    close_play(&play);
}
