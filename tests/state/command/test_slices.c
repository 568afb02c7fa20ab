#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interpose/entry/start.h"
#include "state/base/clock.h"
#include "state/command/event.h"
#include "state/command/parts.h"
#include "state/command/pieces.h"
#include "state/command/power.h"
#include "state/driver/quirks.h"
#include "state/image/snapshot.h"
#include "state/program/kernel.h"
#include "state/program/pace.h"
#include "tests/state/command/slices_rig.h"

/* Launches in pieces: what a program sees is one launch, wherever its pieces run. */

static bool is_uneven(const struct shape *shape)
{
    bool uneven = false;
    for (cl_uint i = 0; i < shape->dims; i++)
        uneven = uneven || shape->global[i] % shape->local[i] != 0;
    return uneven;
}

Test(slices, every_shape_has_the_ids_of_one_launch)
{
    static const struct shape shapes[] = {
        {1, {0}, {1000}, {8}},
        {1, {0}, {1003}, {8}},
        {1, {77}, {1001}, {1}},
        {2, {0}, {40, 64}, {8, 2}},
        {2, {3, 5}, {41, 67}, {8, 2}},
        {2, {0}, {512, 3}, {4, 3}},
        {2, {1, 2}, {508, 1}, {4, 1}},
        {2, {3, 5}, {40, 66}, {8, 2}},
        {3, {0}, {8, 6, 30}, {4, 3, 2}},
        {3, {1, 2, 3}, {9, 7, 31}, {4, 3, 2}},
        {3, {1, 2, 3}, {8, 6, 30}, {4, 3, 2}},
        {3, {0}, {301, 2, 1}, {7, 2, 1}},
    };
    struct scene s;
    cl_bool uneven;
    scene_open(&s, CONFIG, "10", "plain", 0, 16384);
    OK(clGetDeviceInfo(s.rig.device, CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT, sizeof(uneven),
                       &uneven, NULL));
    /* What was measured on a busy machine may have some go whole. */
    uint64_t pieces = 0, made = 0;
    for (unsigned tries = 0; pieces <= 2 * made && tries < 5; tries++) {
        uint64_t before = launches(&s, "one");
        made = 0;
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            const struct shape *shape = &shapes[i];
            for (unsigned n = 0; n < 2 && (uneven || !is_uneven(shape)); n++) {
                launch_through(&s, shape, ROUNDS);
                add_wanted(&s, shape, ROUNDS);
                made++;
            }
            check(&s);
        }
        pieces = launches(&s, "one") - before;
    }
    cr_assert_gt(pieces, 2 * made, "%llu pieces of %llu launches", (unsigned long long)pieces,
                 (unsigned long long)made);
    scene_close(&s);
}

static bool move_there_and_back(struct scene *s, cl_event event)
{
    bool runs = true;
    for (unsigned n = 0; runs && n < 2; n++) {
        const char *target = n == 0 ? "two" : "one";
        uint64_t before = launches(s, target);
        engine_rig_moves(&s->rig, target);
        runs = status_of(event) == CL_RUNNING;
        for (unsigned ms = 0; runs && launches(s, target) < before + 2; ms++) {
            cr_assert_lt(ms, 10000u, "it goes on nowhere");
            engine_rig_sleep(1);
            runs = status_of(event) == CL_RUNNING;
        }
    }
    return runs;
}

Test(slices, a_move_takes_place_between_pieces_and_no_group_runs_twice)
{
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", 0, OUTLAST_WORDS);
    for (unsigned n = 0; n < 2; n++)
        outlast(&s, 1, move_there_and_back, add_wanted);
    scene_close(&s);
}

/* One launch, which outlasts what @meanwhile does. */
static void outlast_once(bool (*meanwhile)(struct scene *s, cl_event event))
{
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", 0, OUTLAST_WORDS);
    outlast(&s, 1, meanwhile, add_wanted);
    scene_close(&s);
}

static bool set_a_cap(struct scene *s, cl_event event)
{
    struct power_state state;
    power_set(true, 0);
    power_read(&state);
    for (unsigned ms = 0; ms < 5000 && state.runs; ms++) {
        engine_rig_sleep(1);
        power_read(&state);
    }
    cr_assert_not(state.runs, "the pieces that were given do not end");
    uint64_t before = launches(s, "one");
    engine_rig_sleep(50);
    cr_assert_eq(launches(s, "one"), before, "a piece was given without power");
    bool goes_on = status_of(event) != CL_COMPLETE;
    power_set(true, UINT64_MAX);
    OK(clWaitForEvents(1, &event));
    power_set(false, 0);
    return goes_on;
}

TestCall(slices, wait_for_power_when_a_cap_is_set_in_the_middle, outlast_once(set_a_cap));

static void *move_after_five(void *data)
{
    struct scene *s = data;
    while (launches(s, "one") < 5)
        engine_rig_sleep(1);
    engine_rig_moves(&s->rig, "two");
    return NULL;
}

/* A driver that runs commands within the call has ended a piece when the next one is looked for: a
 * move comes in between all the same. */
Test(slices, a_move_does_not_wait_for_pieces_that_run_within_their_calls)
{
    struct scene s;
    pthread_t mover;
    scene_open(&s, TWO(UNPACED "launch_ms=20 "), "5", "plain", 0, 4096);
    engine_rig_moves(&s.rig, "two"); /* compilers have it from here on */
    engine_rig_moves(&s.rig, "one");
    cr_assert_eq(pthread_create(&mover, NULL, move_after_five, &s), 0);
    cl_event event = launch(&s, &long_shape, ROUNDS);
    add_wanted(&s, &long_shape, ROUNDS);
    OK(clWaitForEvents(1, &event));
    pthread_join(mover, NULL);
    cr_assert_gt(launches(&s, "two"), 5, "it waited for the launch's end");
    OK(clReleaseEvent(event));
    check(&s);
    scene_close(&s);
}

/* What was measured of a small launch says nothing of a large one, whose arguments may be others.
 */
Test(slices, a_launch_much_larger_than_those_measured_is_looked_at)
{
    const size_t like = 1000, large = 1100;
    const struct launch_space alike = {.dims = 1, .global = &like};
    const struct launch_space larger = {.dims = 1, .global = &large};
    struct pace pace = {.name = NULL};
    atomic_store(&pace_slice_ns, 10 * NS_PER_MS);
    pace_forget(&pace);
    pace_measured(&pace, 128, 100000);
    for (unsigned n = 0; n < 4; n++)
        pace_settle(&pace, 128);
    cr_assert_not(pace_asks(&pace, &alike));
    cr_assert(pace_asks(&pace, &larger));
    /* And it begins with a piece that says how fast it is, however fast those were. */
    cr_assert_not(pace_is_long(&pace, 1 << 20));
    pace_settle(&pace, 1 << 20);
    cr_assert(pace_is_long(&pace, 1 << 20));
}

static bool fail_and_suspend(struct scene *s, cl_event event)
{
    struct move_report report;
    cr_assert_eq(emu_shared_arm(s->rig.emu, "two", 1, "clCreateKernel", 0), 0);
    cr_assert_neq(engine_rig_move(&s->rig, "two", &report), MOVE_DONE);
    cr_assert_eq(emu_shared_disarm(s->rig.emu, "two"), 0);
    engine_rig_moves(&s->rig, NULL);
    bool runs = status_of(event) == CL_RUNNING;
    uint64_t before = launches(s, "one");
    engine_rig_sleep(50);
    cr_assert_eq(launches(s, "one"), before);
    engine_rig_moves(&s->rig, "two");
    return runs;
}

/* What is waited for comes only from who resumes it, who would wait for the snapshot. */
static bool suspend_and_make_a_point(struct scene *s, cl_event event)
{
    struct snapshot_request request = {.move.deadline_ns = clock_now_ns() + 60 * NS_PER_S};
    struct snapshot_report report;
    engine_rig_moves(&s->rig, NULL);
    bool runs = status_of(event) == CL_RUNNING;
    int error = snapshot_make(&request, &report);
    engine_rig_moves(&s->rig, "two");
    cr_assert_eq(error, runs ? -EBUSY : 0, "%s", report.reason);
    cr_assert(!runs || strstr(report.reason, "suspended"), "%s", report.reason);
    cr_assert_eq(snapshot_make(&request, &report), 0, "%s", report.reason);
    cr_assert_eq(status_of(event), CL_COMPLETE);
    snapshot_forget();
    return runs;
}

static void *make_a_point(void *unused)
{
    const struct snapshot_request request = {.most_ns = 60 * NS_PER_S};
    struct snapshot_report report;
    int error = snapshot_make(&request, &report);
    cr_assert(error == 0 || (error == -EBUSY && strstr(report.reason, "a move goes first")), "%s",
              report.reason);
    snapshot_forget();
    return unused;
}

static bool move_while_a_point_is_made(struct scene *s, cl_event event)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, make_a_point, NULL), 0);
    engine_rig_sleep(50);
    engine_rig_moves(&s->rig, "two");
    bool runs = status_of(event) == CL_RUNNING;
    pthread_join(thread, NULL);
    engine_rig_moves(&s->rig, "one");
    return runs;
}

TestCall(slices, a_move_does_not_wait_for_a_point_that_waits_for_the_launch,
         outlast_once(move_while_a_point_is_made));

TestCall(slices, a_point_is_not_made_of_a_program_suspended_in_the_middle,
         outlast_once(suspend_and_make_a_point));

TestCall(slices, go_on_after_a_rollback_and_a_suspension_in_the_middle,
         outlast_once(fail_and_suspend));

/* @behind has not begun, unless @event ended before it was looked at. */
static void expect_not_before(cl_event behind, cl_event event)
{
    cl_int status = status_of(behind);
    cr_assert(status > CL_RUNNING || status_of(event) == CL_COMPLETE);
}

Test(slices, what_comes_behind_waits_for_the_last_piece)
{
    struct scene s;
    cl_event last, read;
    scene_open(&s, CONFIG, "5", "plain", CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 4096);
    cl_command_queue other =
        MADE(clCreateCommandQueue, s.program.context, s.rig.device, CL_QUEUE_PROFILING_ENABLE);
    cl_event event = launch(&s, &long_shape, ROUNDS);
    add_wanted(&s, &long_shape, ROUNDS);
    OK(clEnqueueReadBuffer(other, s.out, CL_FALSE, 0, s.count * sizeof(*s.words), s.words, 1,
                           &event, &read));
    OK(clEnqueueBarrierWithWaitList(s.program.queue, 0, NULL, &last));
    OK(clFlush(other));
    expect_not_before(read, event);
    expect_not_before(last, event);
    engine_rig_moves(&s.rig, "two");
    expect_not_before(read, event);
    OK(clWaitForEvents(1, &last));
    cr_assert_eq(status_of(event), CL_COMPLETE);
    OK(clWaitForEvents(1, &read));
    for (size_t i = 0; i < s.count; i++)
        cr_assert_eq(s.words[i], s.wanted[i]);
    RELEASE(last, read, event, other);
    scene_close(&s);
}

struct calls {
    _Atomic unsigned count;
    cl_int statuses[8];
};

static void CL_CALLBACK note(cl_event event, cl_int status, void *data)
{
    struct calls *calls = data;
    (void)event;
    calls->statuses[atomic_load(&calls->count) % 8] = status;
    atomic_fetch_add(&calls->count, 1);
}

Test(slices, events_say_what_one_launch_says)
{
    struct scene s;
    struct calls calls = {0};
    const cl_uint none = 0;
    cl_ulong before_end, times[4], behind_start;
    cl_event marks[2];
    scene_open(&s, TWO(UNPACED), "5", "plain", CL_QUEUE_PROFILING_ENABLE, 4096);
    for (unsigned moved = 0; moved < 2; moved++) {
        atomic_store(&calls.count, 0);
        OK(clEnqueueFillBuffer(s.program.queue, s.out, &none, 4, 0, s.count * sizeof(*s.words), 0,
                               NULL, &marks[0]));
        cl_event event = launch(&s, &long_shape, LONG_ROUNDS);
        OK(clEnqueueFillBuffer(s.program.queue, s.out, &none, 4, 0, 4, 0, NULL, &marks[1]));
        for (cl_int type = CL_SUBMITTED; type >= CL_COMPLETE; type--)
            OK(clSetEventCallback(event, type, note, &calls));
        await_running(event);
        if (moved)
            engine_rig_moves(&s.rig, "two");
        OK(clFinish(s.program.queue));
        for (unsigned i = 0; i < 4; i++)
            OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED + i, sizeof(times[i]),
                                       &times[i], NULL));
        OK(clGetEventProfilingInfo(marks[0], CL_PROFILING_COMMAND_END, sizeof(before_end),
                                   &before_end, NULL));
        OK(clGetEventProfilingInfo(marks[1], CL_PROFILING_COMMAND_START, sizeof(behind_start),
                                   &behind_start, NULL));
        cr_assert(times[0] <= times[1] && times[1] <= times[2] && times[2] < times[3]);
        cr_assert_geq(times[2], before_end);
        cr_assert_leq(times[3], behind_start);
        /* Hundreds of pieces, from the first to the last. */
        cr_assert_gt(times[3] - times[2], 20000000u);
        for (unsigned ms = 0; atomic_load(&calls.count) < 3 && ms < 5000; ms++)
            engine_rig_sleep(1);
        cr_assert_eq(atomic_load(&calls.count), 3);
        cr_assert_eq(calls.statuses[0], CL_SUBMITTED);
        cr_assert_eq(calls.statuses[1], CL_RUNNING);
        cr_assert_eq(calls.statuses[2], CL_COMPLETE);
        RELEASE(event, marks[0], marks[1]);
    }
    scene_close(&s);
}

Test(slices, events_say_times_in_their_order_if_the_driver_does_not_say_one)
{
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", CL_QUEUE_PROFILING_ENABLE, 4096);
    for (uint64_t n = 1; n <= 8; n++) { /* of the first pieces */
        cl_ulong times[4];
        cr_assert_eq(
            emu_shared_arm(s.rig.emu, "one", n, "clGetEventProfilingInfo", CL_OUT_OF_RESOURCES), 0);
        cl_event event = launch(&s, &long_shape, ROUNDS);
        OK(clFinish(s.program.queue));
        for (unsigned i = 0; i < 4; i++)
            OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED + i, sizeof(times[i]),
                                       &times[i], NULL));
        cr_expect(times[0] <= times[1] && times[1] <= times[2] && times[2] <= times[3],
                  "without %lu: %lu %lu %lu %lu", n, times[0], times[1], times[2], times[3]);
        OK(clReleaseEvent(event));
    }
    scene_close(&s);
}

Test(slices, times_that_the_driver_does_not_say_are_guessed_once)
{
    struct scene s;
    cl_event event = NULL;
    cl_ulong ends[2];
    scene_open(&s, TWO(PACED "no_times=yes "), "5", "plain", CL_QUEUE_PROFILING_ENABLE, 4096);
    engine_rig_moves(&s.rig, "two"); /* from here on the clock is the host's */
    for (bool cut = false; !cut; cut = is_cut(event)) {
        if (event)
            OK(clReleaseEvent(event));
        event = launch(&s, &long_shape, ROUNDS);
        OK(clFinish(s.program.queue));
    }
    for (unsigned i = 0; i < 2; i++) {
        engine_rig_sleep(i);
        OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(ends[i]), &ends[i],
                                   NULL));
    }
    cr_assert_eq(ends[0], ends[1]);
    OK(clReleaseEvent(event));
    scene_close(&s);
}

/* A launch whose sixth piece fails with @error, as soon as one goes in pieces. It has ended.
 * @ret_given: its pieces. */
static cl_event fail_sixth_piece(struct scene *s, int error, uint64_t *ret_given)
{
    cl_event event = launch(s, &long_shape, ROUNDS);
    for (unsigned n = 0; n < 10 && emu_shared_fired(s->rig.emu, "one") == 0; n++) {
        OK(clWaitForEvents(1, &event));
        OK(clReleaseEvent(event));
        uint64_t before = launches(s, "one");
        cr_assert_eq(emu_shared_arm(s->rig.emu, "one", 6, "clEnqueueNDRangeKernel", error), 0);
        event = launch(s, &long_shape, ROUNDS);
        OK(clFinish(s->program.queue));
        *ret_given = launches(s, "one") - before;
    }
    cr_assert_eq(emu_shared_fired(s->rig.emu, "one"), 1);
    return event;
}

Test(slices, a_piece_that_fails_is_the_last_and_its_error_the_launchs)
{
    struct scene s;
    uint64_t given;
    scene_open(&s, CONFIG, "5", "plain", 0, 4096);
    cl_event event = fail_sixth_piece(&s, CL_INVALID_VALUE, &given);
    /* And two that were with the driver when that one failed. */
    cr_assert_leq(given, 8, "pieces go on after an error");
    uint64_t before = launches(&s, "one");
    cr_assert_eq(clWaitForEvents(1, &event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_eq(status_of(event), CL_INVALID_VALUE);
    engine_rig_sleep(50);
    cr_assert_eq(launches(&s, "one"), before, "pieces go on after an error");
    OK(clReleaseEvent(event));
    scene_close(&s);
}

/* Its copy of the driver has no threads, and its parent gives what it holds. */
Test(slices, what_is_held_is_the_parents_in_the_child_of_a_fork)
{
    struct scene s;
    cl_int error;
    int status = 0;
    scene_open(&s, CONFIG, "5", "plain", 0, 4096);
    launch_through(&s, &long_shape, 1);
    add_wanted(&s, &long_shape, 1);
    cl_event gate = MADE(clCreateUserEvent, s.program.context);
    OK(clEnqueueNDRangeKernel(s.program.queue, s.kernel, long_shape.dims, long_shape.offset,
                              long_shape.global, long_shape.local, 1, &gate, NULL));
    add_wanted(&s, &long_shape, 1);
    uint64_t before = launches(&s, "one");
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        error = clSetUserEventStatus(gate, CL_COMPLETE);
        usleep(100000);
        _exit(error == CL_SUCCESS && launches(&s, "one") == before ? 9 : 1);
    }
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 9, "status %#x", (unsigned)status);
    cr_assert_eq(launches(&s, "one"), before, "the child gave it");
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(s.program.queue));
    cr_assert_gt(launches(&s, "one"), before);
    OK(clReleaseEvent(gate));
    check(&s);
    scene_close(&s);
}

/* As the call of a launch that is given whole. */
Test(slices, a_first_piece_that_is_refused_is_the_calls_error)
{
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", 0, 4096);
    cl_event none = NULL, event = launch(&s, &long_shape, ROUNDS);
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    cl_event *const wanted[] = {NULL, &none};
    for (int i = 0; i < 2; i++) {
        OK(clFinish(s.program.queue));
        engine_rig_sleep(50); /* who gave the last pieces has nothing to do any more */
        cr_assert_eq(
            emu_shared_arm(s.rig.emu, "one", 1, "clEnqueueNDRangeKernel", CL_OUT_OF_HOST_MEMORY),
            0);
        cr_assert_eq(clEnqueueNDRangeKernel(s.program.queue, s.kernel, long_shape.dims,
                                            long_shape.offset, long_shape.global, long_shape.local,
                                            0, NULL, wanted[i]),
                     CL_OUT_OF_HOST_MEMORY);
        cr_assert_null(none);
    }
    launch_through(&s, &long_shape, ROUNDS);
    scene_close(&s);
}

Test(slices, a_piece_that_ends_in_an_error_is_the_last_too)
{
    struct scene s;
    uint64_t given;
    scene_open(&s, CONFIG, "5", "plain", 0, 4096);
    cl_event event = fail_sixth_piece(&s, EMU_ERROR_AT_END, &given);
    cr_assert_eq(clWaitForEvents(1, &event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_eq(status_of(event), CL_OUT_OF_RESOURCES);
    /* And one beside the one that failed. */
    cr_assert_leq(given, 7, "pieces go on after an error");
    OK(clReleaseEvent(event));
    /* What comes behind it runs, and so does the next launch. */
    launch_through(&s, &long_shape, ROUNDS);
    scene_close(&s);
}

/* Of pieces that are gone by then: what they say is not of those that have their part now. */
Test(slices, reports_that_come_late_end_nothing)
{
    struct scene s;
    scene_open(&s, "[one] name=one callbacks=late " PACED "[two] name=two " PACED, "5", "plain", 0,
               4096);
    cl_command_queue other = MADE(clCreateCommandQueue, s.program.context, s.rig.device, 0);
    for (unsigned n = 0; n < 3; n++) {
        cl_event event = launch(&s, &long_shape, ROUNDS);
        add_wanted(&s, &long_shape, ROUNDS);
        OK(clEnqueueReadBuffer(other, s.out, CL_TRUE, 0, s.count * sizeof(*s.words), s.words, 1,
                               &event, NULL));
        for (size_t i = 0; i < s.count; i++)
            cr_assert_eq(s.words[i], s.wanted[i], "it ended before its last piece");
        OK(clReleaseEvent(event));
    }
    OK(clReleaseCommandQueue(other));
    scene_close(&s);
}

struct canceled {
    struct scene *scene;
    atomic_bool cancel;
    struct move_report report;
};

static void *move_canceled(void *data)
{
    struct canceled *canceled = data;
    struct engine_rig *rig = &canceled->scene->rig;
    struct move_request request = {.target = engine_rig_key(rig, "two"),
                                   .cancel = &canceled->cancel};
    move_run(&request, &canceled->report);
    return NULL;
}

Test(slices, go_on_after_a_move_that_was_cancelled)
{
    struct scene s;
    pthread_t mover;
    scene_open(&s, CONFIG "build_ms=2000", "5", "plain", 0, OUTLAST_WORDS);
    struct canceled canceled = {.scene = &s};
    cl_event event = launch(&s, &longer_shape, ROUNDS);
    add_wanted(&s, &longer_shape, ROUNDS);
    await_running(event);
    cr_assert_eq(pthread_create(&mover, NULL, move_canceled, &canceled), 0);
    engine_rig_sleep(50);
    atomic_store(&canceled.cancel, true);
    cr_assert_eq(pthread_join(mover, NULL), 0);
    cr_assert_eq(canceled.report.result, MOVE_CANCELED);
    OK(clWaitForEvents(1, &event));
    cr_assert_eq(status_of(event), CL_COMPLETE);
    check(&s);
    OK(clReleaseEvent(event));
    scene_close(&s);
}

static uint64_t given(cl_event event)
{
    return is_cut(event) ? ((struct event *)event)->parts->serial : 0;
}

/* POCL, which fails where one kernel runs with an offset and without one side by side. */
Test(slices, are_alone_where_a_driver_mixes_offsets_up)
{
    struct scene s;
    scene_open(&s, NULL, "5", "plain", 0, 4096);
    cr_assert(residence_of(&s)->device->quirks & QUIRK_OFFSETS_MIXED);
    cl_event event = launch(&s, &long_shape, 2 * LONG_ROUNDS);
    add_wanted(&s, &long_shape, 2 * LONG_ROUNDS);
    cl_command_queue other = MADE(clCreateCommandQueue, s.program.context, s.rig.device, 0);
    cr_assert_eq(status_of(event), CL_COMPLETE, "there was a second queue beside pieces");
    cr_assert_gt(given(event), 2);
    OK(clReleaseEvent(event));
    /* With two there are no pieces... */
    event = launch(&s, &long_shape, LONG_ROUNDS);
    add_wanted(&s, &long_shape, LONG_ROUNDS);
    OK(clWaitForEvents(1, &event));
    cr_assert_leq(given(event), 1);
    OK(clReleaseEvent(event));
    /* ...and with one there are again. */
    OK(clReleaseCommandQueue(other));
    event = launch(&s, &long_shape, LONG_ROUNDS);
    add_wanted(&s, &long_shape, LONG_ROUNDS);
    OK(clWaitForEvents(1, &event));
    cr_assert_gt(given(event), 2);
    OK(clReleaseEvent(event));
    check(&s);
    scene_close(&s);
}

/* From here on the process cannot have another thread. */
static void refuse_threads(void)
{
    static const struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {ARRAY_SIZE(rules), (struct sock_filter *)rules};
    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    cr_assert_eq(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter),
                 0);
}

/* One gives the pieces. */
Test(slices, are_one_where_there_can_be_no_more_threads)
{
    struct scene s;
    scene_open(&s, TWO(UNPACED), "0", "plain", 0, 4096);
    cl_event event = launch(&s, &long_shape, 1); /* a compiler may start processes */
    add_wanted(&s, &long_shape, 1);
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    atomic_store(&pace_slice_ns, 5000000);
    pace_forget(((struct kernel *)s.kernel)->pace);
    refuse_threads();
    cr_assert_not(launch_through(&s, &long_shape, LONG_ROUNDS));
    add_wanted(&s, &long_shape, LONG_ROUNDS);
    check(&s);
    scene_close(&s);
}

Test(slices, a_device_lost_in_the_middle_ends_the_launch_in_an_error)
{
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", 0, OUTLAST_WORDS);
    cl_event event = launch(&s, &longer_shape, ROUNDS);
    await_running(event);
    cr_assert_eq(emu_shared_vanish(s.rig.emu, "one"), 0);
    cr_assert_eq(clWaitForEvents(1, &event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_lt(status_of(event), 0);
    (void)clFinish(s.program.queue);
    OK(clReleaseEvent(event));
}

Test(slices, arguments_are_those_of_the_call)
{
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", 0, 4096);
    cl_event event = launch(&s, &long_shape, ROUNDS);
    add_wanted(&s, &long_shape, ROUNDS);
    set_args(&s, 1, 1, 1);
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    check(&s);
    scene_close(&s);
}

Test(slices, why_launches_go_whole_is_told_until_one_does_not)
{
    static const struct shape one_group = {1, {0}, {16}, {16}};
    struct pace_refusal whole[STATUS_WHOLE_MAX];
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", 0, 4096);
    launch_through(&s, &one_group, ROUNDS);
    cr_assert_eq(status_whole(whole), 1);
    cr_assert_str_eq(whole[0].kernel, "plain");
    cr_assert(strstr(whole[0].reason, "one work-group"), "%s", whole[0].reason);
    cr_assert(launch_through(&s, &long_shape, ROUNDS));
    cr_assert_eq(status_whole(whole), 0);
    scene_close(&s);
}

Test(slices, a_kernel_that_may_wait_for_another_group_is_not_cut)
{
    struct scene s;
    scene_open(&s, CONFIG, "5", "waits", 0, 4096);
    uint64_t before = launches(&s, "one");
    cl_event event = launch(&s, &long_shape, ROUNDS);
    cr_assert_not(is_cut(event));
    OK(clWaitForEvents(1, &event));
    cr_assert_eq(launches(&s, "one"), before + 1);
    OK(clReleaseEvent(event));
    /* Which is told, of each kernel once. */
    struct pace_refusal whole[STATUS_WHOLE_MAX];
    cl_kernel other = engine_kernel(s.program.program, "waits");
    OK(clSetKernelArg(other, 0, sizeof(cl_mem), &s.out));
    for (cl_uint i = 1; i < 4; i++)
        OK(clSetKernelArg(other, i, sizeof(i), &i));
    OK(clEnqueueNDRangeKernel(s.program.queue, other, 1, NULL, long_shape.global, long_shape.local,
                              0, NULL, NULL));
    OK(clFinish(s.program.queue));
    OK(clReleaseKernel(other));
    cr_assert_eq(status_whole(whole), 1);
    cr_assert_str_eq(whole[0].kernel, "waits");
    cr_assert(strstr(whole[0].reason, "may wait for another work-group"));
    scene_close(&s);
}

Test(slices, short_launches_go_whole_once_they_were_measured)
{
    static const struct shape shape = {1, {0}, {256}, {16}};
    struct scene s;
    unsigned cut = 0;
    scene_open(&s, TWO(UNPACED), "50", "plain", 0, 4096);
    for (unsigned i = 0; i < 200; i++) {
        cl_event event = launch(&s, &shape, 1);
        OK(clWaitForEvents(1, &event));
        cut += is_cut(event);
        OK(clReleaseEvent(event));
    }
    cr_assert_geq(cut, 1);
    cr_assert_leq(cut, 12, "%u of 200 were measured", cut);
    scene_close(&s);
}

/* Groups, the last of which is smaller, are given once each and never alone. */
Test(slices, the_cursor_covers_every_group_once)
{
    static const struct {
        size_t global, local, offset, take;
    } cases[] = {{1000, 8, 0, 3},
                 {1003, 8, 5, 3},
                 {1003, 8, 0, 1},
                 {17, 16, 0, 1},
                 {1000000, 1, 0, 7},
                 {33, 16, 9, 1000},
                 {1ull << 33, 64, 1ull << 30, 1ull << 22}};
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", 0, 16);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct launch_space space = {1, &cases[i].offset, &cases[i].global, &cases[i].local};
        struct pieces pieces;
        size_t next = cases[i].offset, end = next + cases[i].global;
        cr_assert(pieces_begin(&space, residence_of(&s), false, &pieces));
        while (!pieces_are_given(&pieces)) {
            pieces_take(&pieces, cases[i].take);
            cr_assert_eq(pieces_offset(&pieces), next);
            cr_assert_leq(next, INT32_MAX, "NVIDIA's driver would lose bits of it");
            next += pieces_size(&pieces);
            cr_assert(next == end || (next - cases[i].offset) % cases[i].local == 0);
            cr_assert(next == end || pieces_size(&pieces) == cases[i].take * cases[i].local);
            cr_assert_geq(pieces_size(&pieces), cases[i].local);
        }
        cr_assert_eq(next, end);
    }
    scene_close(&s);
}

Test(slices, more_work_items_than_can_be_counted_are_not_cut)
{
    const size_t local[3] = {1, 1, 1}, global[3] = {1ull << 32, 1ull << 32, 4};
    const struct launch_space space = {3, NULL, global, local};
    struct scene s;
    struct pieces pieces;
    scene_open(&s, CONFIG, "5", "plain", 0, 16);
    cr_assert_not(pieces_begin(&space, residence_of(&s), false, &pieces));
    scene_close(&s);
}

/* Whoever takes groups from the end, and gives some of them back. */
Test(slices, others_may_take_groups_from_the_end)
{
    enum { GROUPS = 1001, LOCAL = 8 };
    static const size_t global = GROUPS * LOCAL - 3, local = LOCAL, offset = 5;
    struct scene s;
    scene_open(&s, CONFIG, "5", "plain", 0, 16);
    for (unsigned seed = 1; seed <= 200; seed++) {
        struct launch_space space = {1, &offset, &global, &local};
        struct pieces pieces;
        bool done[GROUPS] = {false};
        struct groups *kept = NULL;
        srand(seed);
        cr_assert(pieces_begin(&space, residence_of(&s), false, &pieces));
        while (!pieces_are_given(&pieces)) {
            size_t at, count;
            unsigned what = (unsigned)rand() % 4;
            if (what == 0 && (count = pieces_claim(&pieces, 1 + (size_t)rand() % 40, &at)) != 0) {
                struct groups *list = malloc(sizeof(*list));
                *list = (struct groups){kept, at, count};
                kept = list;
                cr_assert(count > 1 || at + count != GROUPS, "the last, smaller one alone");
            } else if (what == 1 || pieces_none_left(&pieces)) {
                for (struct groups *list = kept; list && what % 2; list = list->next)
                    for (size_t i = 0; i < list->count; i++)
                        cr_assert_not(done[list->at + i]);
                if (kept && rand() % 2) {
                    pieces_give_back(&pieces, kept);
                    kept = NULL;
                }
                while (kept) {
                    struct groups *next = kept->next;
                    for (size_t i = 0; i < kept->count; i++)
                        done[kept->at + i] = true;
                    pieces_arrived(&pieces, kept->count);
                    free(kept);
                    kept = next;
                }
            } else if (!pieces_none_left(&pieces)) {
                pieces_take(&pieces, 1 + (size_t)rand() % 40);
                if (rand() % 8 == 0) {
                    pieces_untake(&pieces);
                    continue;
                }
                for (size_t i = 0; i < pieces.count; i++) {
                    cr_assert_not(done[pieces.at + i], "group %zu twice", pieces.at + i);
                    done[pieces.at + i] = true;
                }
                cr_assert(pieces.count > 1 || pieces.at + 1 != GROUPS);
            }
        }
        for (size_t i = 0; i < GROUPS; i++)
            cr_assert(done[i], "seed %u: group %zu was never given", seed, i);
        pieces_finish(&pieces);
    }
    scene_close(&s);
}

Test(slices, none_without_a_slice)
{
    struct scene s;
    scene_open(&s, CONFIG, "0", "plain", 0, 4096);
    cr_assert_not(launch_through(&s, &long_shape, ROUNDS));
    scene_close(&s);
}
