#include "tests/state/command/test_events.h"

/* Profiling times: in order within an event, and in one clock that never runs backwards (M3). */

#define MS 1000000u

static cl_ulong time_of(cl_event event, cl_profiling_info name)
{
    cl_ulong time;
    OK(clGetEventProfilingInfo(event, name, sizeof(time), &time, NULL));
    return time;
}

struct times {
    cl_ulong queued, submit, start, end, complete;
};

static struct times times_of(cl_event event)
{
    const struct times t = {
        time_of(event, CL_PROFILING_COMMAND_QUEUED), time_of(event, CL_PROFILING_COMMAND_SUBMIT),
        time_of(event, CL_PROFILING_COMMAND_START), time_of(event, CL_PROFILING_COMMAND_END),
        time_of(event, CL_PROFILING_COMMAND_COMPLETE)};
    cr_assert_leq(t.queued, t.submit);
    cr_assert_leq(t.submit, t.start);
    cr_assert_leq(t.start, t.end);
    cr_assert_leq(t.end, t.complete);
    return t;
}

static cl_event run(struct events_scene *s)
{
    cl_event event = events_add(s, s->program.queue, 0, NULL);
    OK(clWaitForEvents(1, &event));
    return event;
}

/* What ran for @ms by the host's clock, by the program's: a device's may drift, not jump. */
static void check_span(cl_ulong from, cl_ulong to, uint64_t host_ns)
{
    cr_assert_geq(to, from, "the clock ran back by %llu ns", (unsigned long long)(from - to));
    cr_assert_leq(to - from, host_ns + 5 * MS, "%llu ns passed, %llu on the host's clock",
                  (unsigned long long)(to - from), (unsigned long long)host_ns);
}

Test(clock, goes_on_across_moves_and_events_keep_their_times, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, CL_QUEUE_PROFILING_ENABLE);
    uint64_t begin = engine_rig_now();
    cl_event event = run(&s);
    struct times last = times_of(event), first = last;
    for (int i = 0; i < 6; i++) {
        cl_event kept = run(&s);
        struct times before = times_of(kept);
        cr_assert_geq(before.queued, last.end);
        if (i % 3 == 2)
            engine_rig_moves(&s.rig, NULL);
        engine_rig_sleep(10);
        engine_rig_moves(&s.rig, i % 2 ? "one" : "two");
        struct times after = times_of(kept);
        cr_assert_arr_eq(&before, &after, sizeof(before));
        cl_event next = run(&s);
        last = times_of(next);
        cr_assert_geq(last.queued, before.end + 9 * MS, "the pause is missing");
    }
    check_span(first.queued, last.end, engine_rig_now() - begin);
}

/* A driver that does not say what its clock is: on the device that is left, then on the target. */
static void check_without_clock(const char *device)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, CL_QUEUE_PROFILING_ENABLE);
    engine_rig_moves(&s.rig, "two"); /* what is measured once has been */
    engine_rig_moves(&s.rig, "one");
    uint64_t begin = engine_rig_now();
    cl_event event = run(&s);
    struct times before = times_of(event);
    OK(clReleaseEvent(event));
    uint64_t fired = emu_shared_fired(s.rig.emu, device);
    cr_assert_eq(
        emu_shared_arm(s.rig.emu, device, 1, "clGetEventProfilingInfo", CL_OUT_OF_RESOURCES), 0);
    engine_rig_sleep(10);
    engine_rig_moves(&s.rig, "two");
    cr_assert_eq(emu_shared_fired(s.rig.emu, device), fired + 1, "the fault was not met");
    cl_event first = run(&s);
    struct times after = times_of(first);
    cr_assert_geq(after.start, before.end + 9 * MS, "the clock stood still before the move");
    cl_event second = run(&s);
    struct times later = times_of(second);
    cr_assert_geq(later.start, after.end);
    engine_rig_moves(&s.rig, "one");
    cl_event third = run(&s);
    cr_assert_geq(times_of(third).start, later.end);
    check_span(before.queued, times_of(third).end, engine_rig_now() - begin);
}

TestCall(clock, goes_on_when_the_source_does_not_say_what_its_clock_is, check_without_clock("one"),
         .timeout = 60);
TestCall(clock, goes_on_when_the_target_does_not_say_what_its_clock_is, check_without_clock("two"),
         .timeout = 60);

Test(clock, events_settle_with_times_their_driver_does_not_say, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, CL_QUEUE_PROFILING_ENABLE);
    cl_event first = run(&s), second = run(&s);
    struct times before = times_of(first);
    for (uint64_t n = 1; n <= 10; n += 3) {
        cl_event event = run(&s);
        cr_assert_eq(emu_shared_arm(s.rig.emu, n % 2 ? "one" : "two", n, "clGetEventProfilingInfo",
                                    CL_OUT_OF_RESOURCES),
                     0);
        engine_rig_moves(&s.rig, n % 2 ? "two" : "one");
        cr_assert_geq(times_of(event).start, before.end);
        before = times_of(event);
    }
    times_of(second);
}

Test(clock, goes_on_where_a_driver_says_nothing_of_times, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG " no_times=yes", CL_QUEUE_PROFILING_ENABLE);
    uint64_t begin = engine_rig_now();
    cl_event first = run(&s);
    struct times before = times_of(first);
    for (int i = 0; i < 3; i++) {
        engine_rig_moves(&s.rig, "two");
        cl_event silent = run(&s), after = run(&s);
        struct times t = times_of(silent);
        cr_assert_geq(t.start, before.end, "the clock ran back");
        cr_assert_geq(times_of(after).start, t.end);
        engine_rig_moves(&s.rig, "one");
        cr_assert_eq(times_of(silent).end, t.end, "an event's time has changed");
        cl_event told = run(&s);
        before = times_of(told);
        cr_assert_geq(before.start, times_of(after).end, "the clock ran back");
    }
    check_span(times_of(first).queued, before.end, engine_rig_now() - begin);
}

/* However late they are asked for: by the program, or by a move. */
Test(clock, what_a_driver_says_nothing_of_lies_between_its_neighbours, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, "[one] name=one base=1 no_barrier_times=yes [two] name=two base=1",
                CL_QUEUE_PROFILING_ENABLE);
    for (int moves = 0; moves < 2; moves++) {
        cl_event barriers[2];
        cl_event before = run(&s), after;
        for (int i = 0; i < 2; i++)
            OK(clEnqueueBarrierWithWaitList(s.program.queue, 0, NULL, &barriers[i]));
        after = run(&s);
        (void)times_of(before);
        engine_rig_sleep(20);
        if (moves)
            engine_rig_moves(&s.rig, "two");
        struct times last = times_of(before);
        for (int i = 0; i < 2; i++) {
            struct times t = times_of(barriers[i]);
            cr_assert_geq(t.start, last.end, "barrier %d began before what it waited for", i);
            last = t;
        }
        cr_assert_geq(times_of(after).start, last.end, "a barrier ended after what waited for it");
        RELEASE(before, after, barriers[0], barriers[1]);
    }
}

Test(clock, a_held_command_was_queued_when_the_program_enqueued_it, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, CL_QUEUE_PROFILING_ENABLE);
    cl_event reference = run(&s), user = events_user(&s);
    cl_event held = events_add(&s, s.program.queue, 1, &user);
    cl_event across = events_add(&s, s.program.queue, 0, NULL);
    cl_ulong time;
    cr_assert_eq(
        clGetEventProfilingInfo(held, CL_PROFILING_COMMAND_QUEUED, sizeof(time), &time, NULL),
        CL_PROFILING_INFO_NOT_AVAILABLE);
    engine_rig_sleep(50);
    cl_event marker;
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    OK(clEnqueueMarkerWithWaitList(s.program.queue, 0, NULL, &marker));
    OK(clFinish(s.program.queue));
    struct times t = times_of(held);
    cr_assert_geq(t.queued, times_of(reference).end);
    cr_assert_geq(t.submit, t.queued + 50 * MS);
    cr_assert_geq(times_of(across).submit, times_of(across).queued + 50 * MS);
    cr_assert_lt(t.queued + 50 * MS, times_of(marker).queued + MS);
    engine_rig_moves(&s.rig, "two");
    struct times kept = times_of(held);
    cr_assert_arr_eq(&t, &kept, sizeof(t));
}

/* Its driver has room for it only once something else was spilled. */
Test(clock, a_held_command_keeps_when_it_was_queued_though_it_was_given_twice, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, CL_QUEUE_PROFILING_ENABLE);
    const cl_uint zero = 0;
    cl_mem idle = engine_buffer(s.program.context, 0, 1 << 20, NULL);
    OK(clEnqueueFillBuffer(s.program.queue, idle, &zero, sizeof(zero), 0, 1 << 20, 0, NULL, NULL));
    cl_event reference = run(&s), user = events_user(&s);
    cl_event held = events_add(&s, s.program.queue, 1, &user);
    uint64_t fired = emu_shared_fired(s.rig.emu, "one");
    cr_assert_eq(emu_shared_arm(s.rig.emu, "one", 1, "clEnqueueNDRangeKernel",
                                CL_MEM_OBJECT_ALLOCATION_FAILURE),
                 0);
    engine_rig_sleep(50);
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    OK(clFinish(s.program.queue));
    cr_assert_eq(emu_shared_fired(s.rig.emu, "one"), fired + 1, "the fault was not met");
    struct times t = times_of(held);
    cr_assert_geq(t.queued, times_of(reference).end);
    cr_assert_geq(t.submit, t.queued + 50 * MS);
}

Test(clock, times_are_not_available_where_5_14_says_so, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, 0);
    cl_event event = run(&s), user = events_user(&s);
    cl_ulong time;
#define GET(event, name, size)                                                                     \
    clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_##name, size, &time, NULL)
    cr_expect_eq(GET(event, END, sizeof(time)), CL_PROFILING_INFO_NOT_AVAILABLE);
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    cr_expect_eq(GET(user, END, sizeof(time)), CL_PROFILING_INFO_NOT_AVAILABLE);
    cl_command_queue queue =
        MADE(clCreateCommandQueue, s.program.context, s.rig.device, CL_QUEUE_PROFILING_ENABLE);
    cl_event profiled = events_add(&s, queue, 0, NULL);
    OK(clWaitForEvents(1, &profiled));
    cr_expect_eq(GET(profiled, END, sizeof(time) - 1), CL_INVALID_VALUE);
    cr_expect_eq(clGetEventProfilingInfo(profiled, 0x1234, sizeof(time), &time, NULL),
                 CL_INVALID_VALUE);
    cr_expect_eq(GET(profiled, END, sizeof(time)), CL_SUCCESS);
#undef GET
}
