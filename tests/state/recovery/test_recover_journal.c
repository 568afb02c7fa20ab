#include "state/base/clock.h"
#include "state/command/journal.h"
#include "state/object/lost.h"
#include "state/recovery/protect.h"
#include "tests/state/recovery/recover_play.h"

/* What is given again: what snapshots and the journal have, and what the program was told before.
 */

/* Of the loss a snapshot is the first to hear that is made for what a build begins anew, from what
 * the driver says of a command. Without the journal nothing could be done again. */
Test(recover, a_point_that_finds_the_loss_keeps_the_journal, .timeout = 60)
{
    enum { ROUNDS = 16 };
    struct play play;
    cl_event launched;
    open_rig("");
    for (unsigned i = 0; i < ROUNDS; i++) {
        open_play(&play, 0);
        cl_program other = MADE(clCreateProgramWithSource, play.program.context, 1,
                                (const char **)&play_source, NULL);
        OK(clBuildProgram(other, 1, &rig.device, "", NULL, NULL));
        uint64_t before = recoveries();
        launch(&play, 3, 0, NULL, &launched);
        cr_assert_eq(emu_shared_arm(rig.emu, "a", 3 + i % 2, "clGetEventInfo", EMU_ERROR_VANISH),
                     0);
        OK(clBuildProgram(other, 1, &rig.device, "", NULL, NULL));
        has(&play, play.b, play.b_is);
        cr_assert_eq(recoveries(), before + 1);
        RELEASE(launched, other);
        close_play(&play);
        again();
    }
}

/* It is replaced before who made the snapshot asks why that failed. */
Test(recover, a_loss_that_is_over_is_known_to_who_failed_for_it, .timeout = 60)
{
    struct play play;
    cl_event launched;
    open_rig("");
    open_play(&play, 0);
    launch(&play, 3, 0, NULL, &launched);
    cr_assert_eq(emu_shared_arm(rig.emu, "a", 3, "clGetEventInfo", EMU_ERROR_VANISH), 0);
    uint64_t before = recovery_count();
    cr_assert_neq(protect_now(), 0);
    for (unsigned i = 0; recoveries() == before && i < 5000; i++)
        engine_rig_sleep(1);
    cr_assert(recovery_outlived(before, 0, NULL));
    cr_assert_not(recovery_outlived(before + 1, 0, NULL));
    has(&play, play.b, play.b_is);
    OK(clReleaseEvent(launched));
    close_play(&play);
}

/* Nobody recovers it, so nothing waits for that. */
Test(recover, a_program_of_several_devices_has_no_journal, .timeout = 60)
{
    struct play play;
    cl_event launched;
    const struct protect_settings settings = {.interval_ns = UINT64_C(3600000000000)};
    cl_int status;
    open_rig("items_per_s=5120"); /* it takes 200 ms */
    protect_end();
    (void)engine_rig_vdev(&rig, "b");
    cr_assert_eq(protect_begin(&settings), 0);
    open_play(&play, 0);
    launch(&play, 3, 0, NULL, &launched);
    watch(&play, launched);
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    cr_assert_neq(clWaitForEvents(1, &launched), CL_SUCCESS);
    OK(clGetEventInfo(launched, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_lt(status, CL_COMPLETE);
    for (unsigned i = 0; atomic_load(&play.called) == 0 && i < 5000; i++)
        engine_rig_sleep(1);
    cr_assert_eq(atomic_load(&play.failed), 1);
    cr_assert_neq(clBuildProgram(play.program.program, 1, &rig.device, "", NULL, NULL), CL_SUCCESS);
    cr_assert_eq(recoveries(), 0);
    OK(clReleaseEvent(launched));
    close_play(&play);
}

static cl_ulong time_of(cl_event event, cl_profiling_info which)
{
    cl_ulong time;
    OK(clGetEventProfilingInfo(event, which, sizeof(time), &time, NULL));
    return time;
}

/* What came after it was told its times by the device that is lost by now. */
Test(recover, times_that_were_told_stay)
{
    struct play play;
    cl_event told, other;
    open_rig("");
    open_play(&play, CL_QUEUE_PROFILING_ENABLE);
    launch(&play, 5, 0, NULL, &told);
    launch(&play, 6, 0, NULL, &other);
    OK(clFinish(play.program.queue));
    cl_ulong start = time_of(told, CL_PROFILING_COMMAND_START);
    cl_ulong end = time_of(told, CL_PROFILING_COMMAND_END);
    cr_assert_eq(emu_shared_arm(rig.emu, "a", 1, NULL, EMU_ERROR_VANISH), 0);
    has(&play, play.b, play.b_is);
    cr_assert_not(is_on("a"));
    cr_expect_eq(time_of(told, CL_PROFILING_COMMAND_START), start);
    cr_expect_eq(time_of(told, CL_PROFILING_COMMAND_END), end);
    cr_expect_leq(time_of(told, CL_PROFILING_COMMAND_QUEUED), start);
    cr_expect_geq(time_of(other, CL_PROFILING_COMMAND_START), end);
    RELEASE(told, other);
    close_play(&play);
}

static void await_snapshots(uint64_t count)
{
    struct protect_status status;
    for (unsigned i = 0; i < 20000; i++) {
        protect_read(&status);
        if (status.snapshots >= count && !status.broken)
            return;
        engine_rig_sleep(1);
    }
    cr_assert_fail("%lu points", (unsigned long)status.snapshots);
}

/* Without it the program would not outlive another loss. Only sometimes: this thread may be late.
 */
Test(recover, after_a_loss_that_stopped_a_point_the_next_one_is_made_soon, .timeout = 120)
{
    enum { ROUNDS = 8 };
    const struct protect_settings small = {.interval_ns = UINT64_C(3600000000000),
                                           .bytes = UINT64_C(16) * BYTES};
    bool soon = false;
    struct play play;
    struct protect_status status;
    open_rig("");
    cr_assert_eq(protect_begin(&small), 0);
    for (unsigned i = 0; i < ROUNDS && !soon; i++) {
        open_play(&play, 0);
        cl_event launched;
        launch(&play, 3, 0, NULL, &launched);
        cr_assert_eq(emu_shared_arm(rig.emu, "a", 3, "clGetEventInfo", EMU_ERROR_VANISH), 0);
        uint64_t before = recovery_count();
        cr_assert_neq(protect_now(), 0);
        uint64_t failed_ns = clock_now_ns();
        for (unsigned ms = 0; recoveries() == before && ms < 5000; ms++)
            engine_rig_sleep(1);
        protect_read(&status);
        uint64_t snapshots = status.snapshots;
        for (unsigned n = 0; n < 32; n++)
            OK(clEnqueueWriteBuffer(play.program.queue, play.a, CL_TRUE, 0, BYTES, play.a_is, 0,
                                    NULL, NULL));
        await_snapshots(snapshots + 1);
        soon = clock_now_ns() < failed_ns + NS_PER_S;
        has(&play, play.b, play.b_is);
        OK(clReleaseEvent(launched));
        close_play(&play);
        again();
    }
    cr_assert(soon);
}

/* A journal that has what it may makes a snapshot, and so does what cannot be given again. */
Test(recover, what_the_journal_cannot_have_makes_a_point, .timeout = 120)
{
    const struct protect_settings small = {.interval_ns = UINT64_C(3600000000000),
                                           .bytes = UINT64_C(16) * BYTES};
    struct play play;
    struct protect_status status;
    open_rig("");
    open_play(&play, 0);
    cr_assert_eq(protect_begin(&small), 0);
    protect_read(&status);
    uint64_t snapshots = status.snapshots;
    for (unsigned i = 0; i < 64; i++) {
        play.a_is[i] = i * 31;
        OK(clEnqueueWriteBuffer(play.program.queue, play.a, CL_TRUE, 0, BYTES, play.a_is, 0, NULL,
                                NULL));
        protect_read(&status);
        cr_assert_leq(status.bytes, 18 * BYTES);
    }
    await_snapshots(snapshots + 1);
    /* Its kernels are other ones from now on. */
    launch(&play, 1, 0, NULL, NULL);
    OK(clFinish(play.program.queue));
    OK(clReleaseKernel(play.kernel));
    protect_read(&status);
    snapshots = status.snapshots;
    OK(clBuildProgram(play.program.program, 0, NULL, "-DOTHER", NULL, NULL));
    play.kernel = engine_kernel(play.program.program, "add");
    protect_read(&status);
    cr_assert_eq(status.snapshots, snapshots + 1);
    launch(&play, 3, 0, NULL, NULL);
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    has(&play, play.b, play.b_is);
    has(&play, play.a, play.a_is);
    cr_assert_not(is_on("a"));
    close_play(&play);
}

/* What had ended at the snapshot is in no journal, whether anybody had asked for it or not. */
Test(recover, what_ended_before_a_point_has_ended, .timeout = 60)
{
    struct play play;
    cl_event event;
    cl_int status;
    open_rig("");
    open_play(&play, 0);
    launch(&play, 1, 0, NULL, &event);
    cr_assert_eq(protect_now(), 0);
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    launch(&play, 2, 0, NULL, NULL);
    has(&play, play.b, play.b_is);
    cr_assert_not(is_on("a"));
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_eq(status, CL_COMPLETE);
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(event));
    close_play(&play);
}

static uint64_t differences(void)
{
    struct protect_status status;
    protect_read(&status);
    return status.differences;
}

/* What the program was given is compared with what it would be given again. */
Test(recover, what_was_read_is_compared, .timeout = 60)
{
    struct play play;
    cl_uint bytes[COUNT];
    cl_event event;
    open_rig("");
    open_play(&play, 0);
    for (unsigned i = 0; i < 2; i++) {
        launch(&play, i, 0, NULL, NULL);
        OK(clEnqueueReadBuffer(play.program.queue, play.b, CL_TRUE, 0, BYTES, bytes, 0, NULL,
                               &event));
        cr_assert_neq(((struct event *)event)->digest, 0);
        /* As if it had been something else. */
        ((struct event *)event)->digest ^= i;
        launch(&play, i + 5, 0, NULL, NULL);
        cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
        has(&play, play.b, play.b_is);
        cr_assert_eq(differences(), i);
        OK(clReleaseEvent(event));
        again();
        cr_assert_eq(protect_now(), 0);
    }
    close_play(&play);
}

static void await_status(cl_event event)
{
    cl_int status = CL_QUEUED;
    while (status != CL_COMPLETE) {
        OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
        cr_assert_geq(status, CL_COMPLETE);
        engine_rig_sleep(1);
    }
}

/* The program has its memory back from a read when something behind that has ended: in another
 * queue, which waits for what is behind the read in its own, or for the read itself. */
static void keep_what_was_read(cl_command_queue_properties properties)
{
    static cl_uint bytes[COUNT];
    struct play play;
    cl_event read, behind;
    bool in_order = (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
    open_rig("");
    open_play(&play, properties);
    cl_command_queue first = play.program.queue,
                     second = MADE(clCreateCommandQueue, play.program.context, rig.device, 0);
    OK(clEnqueueReadBuffer(first, play.b, CL_FALSE, 0, BYTES, bytes, 0, NULL,
                           in_order ? NULL : &read));
    if (in_order)
        OK(clEnqueueMarkerWithWaitList(first, 0, NULL, &read));
    OK(clFlush(first));
    play.program.queue = second;
    launch(&play, 1, 1, &read, &behind);
    OK(clFlush(second));
    await_status(behind);
    memset(bytes, 0x5a, sizeof(bytes));
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    has(&play, play.b, play.b_is);
    cr_assert_not(is_on("a"));
    for (unsigned i = 0; i < COUNT; i++)
        cr_assert_eq(bytes[i], 0x5a5a5a5a);
    RELEASE(read, behind);
    play.program.queue = first;
    OK(clReleaseCommandQueue(second));
    close_play(&play);
}

TestCall(recover, memory_that_was_read_into_before_what_ended_is_the_program_s,
         keep_what_was_read(0), .timeout = 60);
TestCall(recover, memory_that_was_read_into_for_what_ended_is_the_program_s,
         keep_what_was_read(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE), .timeout = 60);

/* Waited for a few at a time. How long they take. */
static uint64_t many_launches(struct play *play, cl_kernel idle)
{
    enum { ROUNDS = 200, LAUNCHES = 250 };
    const size_t one = 1;
    const cl_uint n = 0;
    uint64_t begun = clock_now_ns();
    OK(clSetKernelArg(idle, 0, sizeof(n), &n));
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (unsigned k = 0; k < LAUNCHES; k++)
            OK(clEnqueueNDRangeKernel(play->program.queue, idle, 1, NULL, &one, NULL, 0, NULL,
                                      NULL));
        OK(clFinish(play->program.queue));
    }
    return clock_now_ns() - begun;
}

/* The more there are, the longer it takes; but not for each. */
Test(recover, many_commands_take_about_as_long_again, .timeout = 300)
{
    struct play play;
    open_rig("base=1");
    open_play(&play, 0);
    cl_kernel idle = engine_kernel(play.program.program, "idle");
    (void)many_launches(&play, idle); /* it has everything warm */
    cr_assert_eq(protect_now(), 0);
    uint64_t took = many_launches(&play, idle);
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    uint64_t begun = clock_now_ns();
    has(&play, play.b, play.b_is);
    uint64_t took_again = clock_now_ns() - begun;
    cr_assert_not(is_on("a"));
    cr_assert_lt(took_again, 30 * took);
    OK(clReleaseKernel(idle));
    close_play(&play);
}
