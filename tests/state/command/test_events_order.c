#include <unistd.h>

#include "tests/scratch.h"
#include "tests/state/command/test_events.h"
#include "tests/support/repeat.h"

/* Deferred commands: what waits for what, in one queue, across queues and across virtual devices.
 */

#define PENDING(event) (events_status(event) == CL_QUEUED || events_status(event) == CL_SUBMITTED)

static cl_event marker(cl_command_queue queue, cl_uint waits, const cl_event *wait_list)
{
    cl_event event;
    OK(clEnqueueMarkerWithWaitList(queue, waits, wait_list, &event));
    return event;
}

static cl_event barrier(cl_command_queue queue, cl_uint waits, const cl_event *wait_list)
{
    cl_event event;
    OK(clEnqueueBarrierWithWaitList(queue, waits, wait_list, &event));
    return event;
}

static void let_go(cl_event user)
{
    OK(clSetUserEventStatus(user, CL_COMPLETE));
}

/* True once @event has ended; given up after some seconds. */
static bool ends(cl_event event)
{
    for (unsigned ms = 0; events_status(event) > CL_COMPLETE && ms < 10000; ms++)
        engine_rig_sleep(1);
    return events_status(event) == CL_COMPLETE;
}

Test(order, out_of_order_queues_hold_only_what_has_to_wait, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_command_queue queue = s.program.queue;
    cl_event user = events_user(&s), other = events_user(&s);
    cl_event held = events_add(&s, queue, 1, &user);
    cl_event listed = marker(queue, 1, &other); /* waits for its list alone */
    cl_event all = marker(queue, 0, NULL);      /* waits for all before it */
    cl_event free_one = marker(queue, 1, (cl_event[]){events_add(&s, queue, 0, NULL)});
    OK(clFlush(queue));
    cr_assert(ends(free_one), "a command that waits for nothing waited");
    cr_assert(PENDING(held) && PENDING(listed) && PENDING(all));
    let_go(other);
    cr_assert(ends(listed));
    cr_assert(PENDING(held) && PENDING(all));
    engine_rig_moves(&s.rig, "two");
    cr_assert(PENDING(held) && PENDING(all));
    let_go(user);
    cr_assert(ends(all));
    cr_assert_eq(events_status(held), CL_COMPLETE, "a marker ended before what it waits for");
}

Test(order, a_barrier_holds_all_that_follows, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_command_queue queue = s.program.queue;
    cl_event user = events_user(&s), other = events_user(&s);
    cl_event before = events_add(&s, queue, 1, &other);
    cl_event wall = barrier(queue, 1, &user); /* waits for its list, not for `before` */
    cl_event after = events_add(&s, queue, 0, NULL);
    cl_event after_marker = marker(queue, 0, NULL);
    OK(clFlush(queue));
    engine_rig_sleep(20);
    cr_assert(PENDING(before) && PENDING(wall) && PENDING(after) && PENDING(after_marker));
    let_go(user);
    cr_assert(ends(wall), "a barrier with a list waited for more than its list");
    cr_assert(ends(after));
    cr_assert(PENDING(before) && PENDING(after_marker));
    cl_event full = barrier(queue, 0, NULL);
    cl_event last = events_add(&s, queue, 0, NULL);
    cr_assert(PENDING(full) && PENDING(last));
    let_go(other);
    cr_assert(ends(last));
    cr_assert(ends(after_marker));
    cr_assert_eq(events_status(before), CL_COMPLETE);
    OK(clFinish(queue));
    events_check_words(&s, queue, 3);
}

Test(order, calls_of_version_1_0_wait_as_they_should, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_command_queue queue = s.program.queue;
    cl_event user = events_user(&s), mark;
    OK(clEnqueueWaitForEvents(queue, 1, &user));
    cl_event behind = events_add(&s, queue, 0, NULL);
    OK(clEnqueueMarker(queue, &mark));
    OK(clEnqueueBarrier(queue));
    cl_event last = events_add(&s, queue, 0, NULL);
    engine_rig_moves(&s.rig, "two");
    cr_assert(PENDING(behind) && PENDING(mark) && PENDING(last));
    let_go(user);
    cr_assert(ends(last));
    cr_assert_eq(events_status(behind), CL_COMPLETE);
    cr_assert_eq(events_status(mark), CL_COMPLETE);
    cl_command_type type;
    OK(clGetEventInfo(mark, CL_EVENT_COMMAND_TYPE, sizeof(type), &type, NULL));
    cr_assert_eq(type, CL_COMMAND_MARKER);
    cr_assert_eq(clEnqueueWaitForEvents(queue, 0, &user), CL_INVALID_VALUE);
    cr_assert_eq(clEnqueueWaitForEvents(queue, 1, NULL), CL_INVALID_VALUE);
    cr_assert_eq(clEnqueueMarker(queue, NULL), CL_INVALID_VALUE);
}

/* One queue's clFinish waits for what was enqueued before it, not for what others add meanwhile. */
struct adder {
    struct events_scene *scene;
    cl_event user;
};

static void add_behind(void *data, unsigned round)
{
    struct adder *adder = data;
    (void)round;
    OK(clReleaseEvent(events_add(adder->scene, adder->scene->program.queue, 1, &adder->user)));
    engine_rig_sleep(1);
}

Test(order, a_finish_does_not_wait_for_commands_enqueued_after_it, .timeout = 60)
{
    struct events_scene s;
    struct repeat adds;
    events_open(&s, EVENTS_CONFIG, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    struct adder adder = {.scene = &s, .user = events_user(&s)};
    cl_command_queue queue = s.program.queue;
    cl_event user = events_user(&s), held = events_add(&s, queue, 1, &user);
    cl_event mine = events_add(&s, queue, 1, &user);
    let_go(user);
    OK(clFinish(queue));
    cr_assert_eq(events_status(held), CL_COMPLETE);
    cr_assert_eq(events_status(mine), CL_COMPLETE);
    repeat_begin(&adds, add_behind, &adder);
    while (atomic_load(&adds.rounds) < 5)
        engine_rig_sleep(1);
    repeat_end(&adds);
    let_go(adder.user);
    OK(clFinish(queue));
    events_check_words(&s, queue, 2 + atomic_load(&adds.rounds));
}

/* A thread gives a launch, for which its driver needs a while. */
static void *let_go_thread(void *user)
{
    let_go(user);
    return NULL;
}

Test(order, what_is_added_while_a_thread_gives_what_it_waits_for_is_given_too, .timeout = 60)
{
    struct events_scene s;
    pthread_t thread;
    events_open(&s, "[one] name=one launch_ms=300", 0);
    cl_command_queue other = MADE(clCreateCommandQueue, s.program.context, s.rig.device, 0);
    cl_event user = events_user(&s), first = events_add(&s, other, 1, &user);
    uint64_t before = emu_shared_calls(s.rig.emu, "one", "clEnqueueNDRangeKernel");
    cr_assert_eq(pthread_create(&thread, NULL, let_go_thread, user), 0);
    while (emu_shared_calls(s.rig.emu, "one", "clEnqueueNDRangeKernel") == before)
        engine_rig_sleep(1);
    cl_event behind = events_add(&s, s.program.queue, 1, &first);
    cr_assert(ends(behind), "nobody gave a command after what it waited for was given");
    cr_assert_eq(pthread_join(thread, NULL), 0);
    events_check_words(&s, s.program.queue, 2);
}

/* Drivers need not begin what a queue has before it is flushed, and one queue may wait for another.
 */
Test(order, queues_are_all_flushed_before_one_of_them_is_waited_for, .timeout = 60)
{
    struct events_scene s;
    char path[SCRATCH_MAX], device[64], function[EMU_FUNCTION_NAME_MAX];
    unsigned long long number;
    unsigned flushed = 0, finished = 0;
    int fd = mkstemp(scratch(path, "trace"));
    cr_assert(fd >= 0);
    close(fd);
    setenv("EMU_TRACE", path, 1);
    events_open(&s, EVENTS_CONFIG, 0);
    cl_command_queue other = MADE(clCreateCommandQueue, s.program.context, s.rig.device, 0);
    cl_event first = events_add(&s, other, 0, NULL);
    (void)events_add(&s, s.program.queue, 1, &first);
    struct context *context = (struct context *)s.program.context;
    uint64_t from = emu_shared_calls(s.rig.emu, "one", NULL);
    OK(queue_drain(context, context_home(context)));
    FILE *trace = fopen(path, "re");
    cr_assert_not_null(trace);
    while (fscanf(trace, "%llu %63s %55s %*d", &number, device, function) == 3) {
        bool ours = number > from && strcmp(device, "one") == 0;
        flushed += ours && finished == 0 && strcmp(function, "clFlush") == 0;
        finished += ours && strcmp(function, "clFinish") == 0;
    }
    fclose(trace);
    unlink(path);
    cr_assert_eq(finished, 2);
    cr_assert_eq(flushed, 2, "a queue was waited for while another one was not flushed");
    events_check_words(&s, other, 2);
}

/* Two virtual devices of one context: two residences, whose drivers know nothing of each other. */

struct pair_scene {
    struct events_scene s;
    cl_command_queue other; /* on the second device */
};

static void pair_open(struct pair_scene *p, const char *config)
{
    p->other = events_open_pair(&p->s, config, 0);
}

static void check_across(const char *config)
{
    struct pair_scene p;
    pair_open(&p, config);
    struct events_scene *s = &p.s;
    cl_event user = events_user(s);
    /* A chain to and fro, the first link held; then one whose first link is with its driver. */
    cl_event first = events_add(s, s->program.queue, 1, &user);
    cl_event second = events_add(s, p.other, 1, &first);
    cl_event third = events_add(s, s->program.queue, 1, &second);
    cr_assert(PENDING(first) && PENDING(second) && PENDING(third));
    let_go(user);
    OK(clWaitForEvents(1, &third));
    cr_assert_eq(events_status(second), CL_COMPLETE);
    events_check_words(s, p.other, 3);
    cl_event last = events_add(s, s->program.queue, 0, NULL);
    for (int i = 0; i < 6; i++)
        last = events_add(s, i % 2 ? s->program.queue : p.other, 1, &last);
    OK(clWaitForEvents(1, &last));
    events_check_words(s, s->program.queue, 10);
    /* Errors cross as well. */
    cl_event bad = events_user(s);
    first = events_add(s, p.other, 1, &bad);
    second = events_add(s, s->program.queue, 1, &first);
    OK(clSetUserEventStatus(bad, -1000));
    cr_assert_eq(clWaitForEvents(1, &second), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_lt(events_status(second), 0);
    /* A blocking read behind the other device, and a list of both with a move in between. */
    user = events_user(s);
    const cl_event both[] = {events_add(s, p.other, 1, &user), user};
    cl_event after = events_add(s, s->program.queue, 2, both);
    engine_rig_moves(&s->rig, "three");
    let_go(user);
    OK(clEnqueueReadBuffer(p.other, s->buffer, CL_TRUE, 0, sizeof(s->words), s->words, 1, &after,
                           NULL));
    for (size_t i = 0; i < EVENTS_WORDS; i++)
        cr_assert_eq(s->words[i], 12);
}

TestCall(order, lists_reach_across_virtual_devices,
         check_across("[one] name=one base=1 [two] name=two base=1 [three] name=three base=1"),
         .timeout = 60);
TestCall(order, lists_reach_across_devices_that_never_call_back,
         check_across("[one] name=one base=1 callbacks=never [two] name=two base=1 callbacks=never "
                      "[three] name=three base=1 callbacks=never"),
         .timeout = 60);

Test(order, a_held_command_whose_bytes_are_lost_ends_in_error, .timeout = 60)
{
    struct pair_scene p;
    pair_open(&p, "[one] name=one base=1 [two] name=two base=1");
    struct events_scene *s = &p.s;
    cl_event done = events_add(s, s->program.queue, 0, NULL), user = events_user(s);
    OK(clWaitForEvents(1, &done)); /* now the bytes are the first device's alone */
    cl_event held = events_add(s, p.other, 1, &user);
    cr_assert_eq(emu_shared_vanish(s->rig.emu, "one"), 0);
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    cr_assert_eq(clWaitForEvents(1, &held), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_lt(events_status(held), 0);
    OK(clFinish(p.other));
}

/* What a program may take for granted of events once it has waited, of a driver that says so only
 * of the very event that was waited for. */
#define LATE_CONFIG "[one] name=one base=1 late_status=yes [two] name=two base=1"

static cl_command_queue late_queue(struct events_scene *s, cl_command_queue_properties properties)
{
    cl_command_queue queue =
        MADE(clCreateCommandQueue, s->program.context, s->rig.device, properties);
    return queue;
}

static void check_ended(const cl_event *events, size_t count)
{
    cl_ulong queued, end;
    for (size_t i = 0; i < count; i++) {
        cr_expect_eq(events_status(events[i]), CL_COMPLETE, "event %zu has not ended", i);
        OK(clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_QUEUED, sizeof(queued), &queued,
                                   NULL));
        OK(clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_END, sizeof(end), &end, NULL));
        cr_expect(queued != 0 && queued <= end);
        OK(clReleaseEvent(events[i]));
    }
}

Test(order, a_finish_has_ended_every_event_of_its_queue, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, LATE_CONFIG, CL_QUEUE_PROFILING_ENABLE);
    const cl_command_queue_properties kinds[] = {0, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE};
    for (size_t kind = 0; kind < ARRAY_SIZE(kinds); kind++) {
        cl_command_queue queue = late_queue(&s, CL_QUEUE_PROFILING_ENABLE | kinds[kind]);
        cl_event user = events_user(&s), events[8];
        for (size_t i = 0; i < ARRAY_SIZE(events); i++)
            events[i] = i == 4 ? events_add(&s, queue, 1, &user) : events_add(&s, queue, 0, NULL);
        OK(clSetUserEventStatus(user, CL_COMPLETE));
        OK(clFinish(queue));
        check_ended(events, ARRAY_SIZE(events));
        cl_event later = events_add(&s, queue, 0, NULL);
        cr_expect_gt(events_status(later), CL_COMPLETE, "it was never waited for");
        OK(clFinish(queue));
        check_ended(&later, 1);
        RELEASE(user, queue);
    }
}

Test(order, a_wait_has_ended_what_comes_before_it_in_order, .timeout = 60)
{
    struct events_scene s;
    cl_event events[5];
    events_open(&s, LATE_CONFIG, CL_QUEUE_PROFILING_ENABLE);
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        events[i] = events_add(&s, s.program.queue, 0, NULL);
    OK(clWaitForEvents(1, &events[2]));
    check_ended(events, 3);
    cr_expect_gt(events_status(events[3]), CL_COMPLETE);
    cr_expect_gt(events_status(events[4]), CL_COMPLETE);
    events_check_words(&s, s.program.queue, ARRAY_SIZE(events)); /* blocks */
    check_ended(events + 3, 2);
    cl_event last[2] = {events_add(&s, s.program.queue, 0, NULL)};
    OK(clEnqueueReadBuffer(s.program.queue, s.buffer, CL_TRUE, 0, sizeof(s.words), s.words, 0, NULL,
                           &last[1]));
    check_ended(last, 2);
}

Test(order, a_wait_has_ended_only_what_it_is_for_out_of_order, .timeout = 60)
{
    struct events_scene s;
    cl_event events[4];
    events_open(&s, LATE_CONFIG, 0);
    cl_command_queue queue = late_queue(&s, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        events[i] = events_add(&s, queue, i != 0, i != 0 ? &events[i - 1] : NULL);
    const cl_event two[] = {events[1], events[3]};
    OK(clWaitForEvents(2, two));
    cl_int wanted[] = {CL_SUBMITTED, CL_COMPLETE, CL_SUBMITTED, CL_COMPLETE};
    for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
        cr_expect_eq(events_status(events[i]), wanted[i], "event %zu", i);
        OK(clReleaseEvent(events[i]));
    }
    OK(clReleaseCommandQueue(queue));
}

/* 5.2.2 and 5.8 before 2.1. */
Test(order, up_to_2_0_there_has_to_be_something_to_do, .timeout = 60)
{
    char bytes[16] = {0};
    const size_t zero = 0;
    struct events_scene s;
    events_open(&s, "[one] name=one base=1 version=1.2", 0);
    cl_command_queue q = s.program.queue;
    cl_mem a = s.buffer;
    cr_expect_eq(clEnqueueReadBuffer(q, a, CL_TRUE, 0, 0, bytes, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueWriteBuffer(q, a, CL_TRUE, 0, 0, bytes, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueCopyBuffer(q, a, a, 0, 16, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueNDRangeKernel(q, s.add, 1, NULL, &zero, NULL, 0, NULL, NULL),
                 CL_INVALID_GLOBAL_WORK_SIZE);
    /* To fill nothing was never an error. */
    OK(clEnqueueFillBuffer(q, a, bytes, 8, 0, 0, 0, NULL, NULL));
    OK(clFinish(q));
}
