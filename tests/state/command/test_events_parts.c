#include <pthread.h>

#include "state/command/command.h"
#include "state/command/event.h"
#include "state/command/parts.h"
#include "tests/state/command/test_events.h"
#include "tests/support/comes.h"

/* Commands of several parts: each in a residence, all behind one event. */

#define PAIR_CONFIG "[one] name=one base=1 [two] name=two base=1 [three] name=three base=1"
#define PARTS_MAX   3

/* An event whose parts end when the test says so: markers behind user events of the drivers. */
struct levers {
    struct events_scene s;
    cl_command_queue other; /* on the second device */
    struct event *event;
    struct lever {
        const cl_icd_dispatch *cl;
        cl_event user;
    } of[PARTS_MAX];
    _Atomic unsigned called;
    cl_int statuses[8];
};

static cl_int issue_lever(void *data, struct residence *residence, uint8_t residence_index,
                          cl_command_queue queue, cl_event *ret_event)
{
    struct lever *lever = data;
    cl_int error;
    (void)residence_index;
    lever->cl = residence->cl;
    lever->user = residence->cl->clCreateUserEvent(residence->context, &error);
    return error != CL_SUCCESS
               ? error
               : residence->cl->clEnqueueMarkerWithWaitList(queue, 1, &lever->user, ret_event);
}

static void pull(struct lever *lever)
{
    OK(lever->cl->clSetUserEventStatus(lever->user, CL_COMPLETE));
    OK(lever->cl->clReleaseEvent(lever->user));
}

static void levers_open(struct levers *l, const char *config)
{
    memset(l, 0, sizeof(*l));
    l->other = events_open_pair(&l->s, config, CL_QUEUE_PROFILING_ENABLE);
}

static void CL_CALLBACK note(cl_event event, cl_int status, void *data)
{
    struct levers *l = data;
    (void)event;
    l->statuses[atomic_load(&l->called)] = status;
    atomic_fetch_add(&l->called, 1);
}

/* One part for each of @vdevs: '0' the first device, '1' the second. The event is @queue's. */
static void levers_issue(struct levers *l, cl_command_queue queue, const char *vdevs)
{
    struct context *context = (struct context *)l->s.program.context;
    struct queue *q = (struct queue *)queue;
    unsigned count = (unsigned)strlen(vdevs);
    l->event = event_create(context, q, CL_COMMAND_READ_BUFFER);
    cr_assert_not_null(l->event);
    struct parts *parts = parts_create(count);
    cr_assert_not_null(parts);
    object_publish(l->event);
    for (cl_int type = CL_SUBMITTED; type >= CL_COMPLETE; type--)
        OK(clSetEventCallback((cl_event)l->event, type, note, l));
    gate_enter();
    cr_assert(event_watch(l->event));
    for (unsigned i = 0; i < count; i++)
        (void)part_issue(&parts->of[i], context,
                         atomic_load(&context->residence_index[vdevs[i] - '0']), true, issue_lever,
                         &l->of[i]);
    parts->queued = 1000;
    parts->submit = 2000;
    parts->due = 3000;
    event_issued_in_parts(l->event, parts);
    gate_leave();
}

static cl_int status_of(const struct levers *l)
{
    return events_status((cl_event)l->event);
}

static void check_called(struct levers *l, cl_int last)
{
    cr_assert(events_wait(&l->called, 3), "%u callbacks", l->called);
    cr_assert_eq(l->statuses[0], CL_SUBMITTED);
    cr_assert_eq(l->statuses[1], last < 0 ? l->statuses[1] : CL_RUNNING);
    cr_assert_eq(l->statuses[2], last);
}

static void check_times(const struct levers *l)
{
    cl_ulong time, before = 0;
    for (cl_profiling_info name = CL_PROFILING_COMMAND_QUEUED;
         name <= CL_PROFILING_COMMAND_COMPLETE; name++) {
        OK(clGetEventProfilingInfo((cl_event)l->event, name, sizeof(time), &time, NULL));
        cr_assert_geq(time, before);
        before = time;
    }
    OK(clGetEventProfilingInfo((cl_event)l->event, CL_PROFILING_COMMAND_QUEUED, sizeof(time), &time,
                               NULL));
    cr_assert_eq(time, 1000);
    OK(clGetEventProfilingInfo((cl_event)l->event, CL_PROFILING_COMMAND_START, sizeof(time), &time,
                               NULL));
    cr_assert_geq(time, 3000);
}

/* Parts of three residences or of one end in every order. */
static void check_orders(const char *config)
{
    static const unsigned orders[][PARTS_MAX] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                 {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const char *const vdevs[] = {"010", "111"};
    struct levers l;
    levers_open(&l, config);
    for (size_t i = 0; i < 2 * ARRAY_SIZE(orders); i++) {
        const unsigned *order = orders[i / 2];
        cl_ulong time;
        atomic_store(&l.called, 0);
        levers_issue(&l, l.s.program.queue, vdevs[i % 2]);
        cl_event event = (cl_event)l.event;
        cl_event here = events_add(&l.s, l.s.program.queue, 1, &event);
        cl_event there = events_add(&l.s, l.other, 1, &event);
        cr_assert_eq(status_of(&l), CL_SUBMITTED);
        for (unsigned n = 0; n < PARTS_MAX; n++) {
            cr_assert_gt(events_status(here), CL_RUNNING, "it did not wait for every part");
            cr_assert_gt(events_status(there), CL_RUNNING, "it did not wait for every part");
            cr_assert_eq(
                clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(time), &time, NULL),
                CL_PROFILING_INFO_NOT_AVAILABLE);
            pull(&l.of[order[n]]);
            for (unsigned ms = 0; status_of(&l) > (n + 1 < PARTS_MAX ? CL_RUNNING : CL_COMPLETE);
                 ms++) {
                cr_assert_lt(ms, 10000);
                engine_rig_sleep(1);
            }
            cr_assert_eq(status_of(&l), n + 1 < PARTS_MAX ? CL_RUNNING : CL_COMPLETE);
        }
        const cl_event both[] = {here, there};
        OK(clWaitForEvents(2, both));
        check_called(&l, CL_COMPLETE);
        check_times(&l);
        RELEASE(here, there, event);
    }
    events_check_words(&l.s, l.other, 4 * ARRAY_SIZE(orders));
}

TestCall(parts, end_in_any_order_and_are_one_command, check_orders(PAIR_CONFIG), .timeout = 60);
TestCall(
    parts, are_found_ended_where_no_driver_says_so,
    check_orders("[one] name=one base=1 callbacks=never [two] name=two base=1 callbacks=never"),
    .timeout = 60);

Test(parts, end_in_the_error_of_the_first_that_failed_once_all_have_ended, .timeout = 60)
{
    struct levers l;
    levers_open(&l, PAIR_CONFIG);
    /* The second is refused, the third fails late, the first runs on. */
    cr_assert_eq(emu_shared_arm(l.s.rig.emu, "two", 1, "clEnqueueMarkerWithWaitList",
                                CL_MEM_OBJECT_ALLOCATION_FAILURE),
                 0);
    levers_issue(&l, l.s.program.queue, "011");
    cl_event event = (cl_event)l.event, behind = events_add(&l.s, l.other, 1, &event);
    cr_assert_gt(status_of(&l), CL_COMPLETE, "it ended while a part was running");
    cr_assert_eq(emu_shared_vanish(l.s.rig.emu, "two"), 0);
    engine_rig_sleep(50);
    cr_assert_gt(status_of(&l), CL_COMPLETE, "it ended while a part was running");
    cr_assert_gt(events_status(behind), CL_RUNNING);
    pull(&l.of[2]);
    pull(&l.of[0]);
    cr_assert_eq(clWaitForEvents(1, &event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_eq(status_of(&l), CL_MEM_OBJECT_ALLOCATION_FAILURE);
    check_called(&l, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    cr_assert_eq(clWaitForEvents(1, &behind), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cl_ulong time;
    cr_assert_eq(
        clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(time), &time, NULL),
        CL_PROFILING_INFO_NOT_AVAILABLE);
    RELEASE(behind, event);
}

static atomic_bool pulled;

static void *pull_later(void *data)
{
    engine_rig_sleep(50);
    atomic_store(&pulled, true);
    pull(data);
    return NULL;
}

/* The first device is left while a part runs there, another has ended there, and one runs on the
 * second, which stays. */
Test(parts, of_a_device_that_is_left_are_settled_and_the_others_go_on, .timeout = 60)
{
    struct levers l;
    pthread_t thread;
    /* What has no link of its own is not drained with another device. */
    levers_open(&l, "[one] name=one base=1 [two] name=two base=1 host_unified=yes "
                    "[three] name=three base=1");
    levers_issue(&l, l.other, "001");
    cl_event event = (cl_event)l.event;
    pull(&l.of[0]);
    cr_assert_eq(pthread_create(&thread, NULL, pull_later, &l.of[1]), 0);
    engine_rig_moves(&l.s.rig, "three");
    cr_assert(atomic_load(&pulled), "the move did not wait for a part that runs there");
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert(engine_rig_empties(&l.s.rig, "one"), "%s", engine_rig_alive(&l.s.rig, "one"));
    cr_assert_eq(status_of(&l), CL_RUNNING);
    cl_event behind = events_add(&l.s, l.s.program.queue, 1, &event);
    engine_rig_moves(&l.s.rig, "one");
    cr_assert_gt(events_status(behind), CL_RUNNING);
    pull(&l.of[2]);
    OK(clWaitForEvents(1, &behind));
    check_called(&l, CL_COMPLETE);
    check_times(&l);
    RELEASE(behind, event);
    /* All of them there: it is over with the move, and keeps its times. */
    atomic_store(&l.called, 0);
    levers_issue(&l, l.other, "00");
    event = (cl_event)l.event;
    pull(&l.of[0]);
    pull(&l.of[1]);
    engine_rig_moves(&l.s.rig, "three");
    cr_assert_eq(status_of(&l), CL_COMPLETE);
    check_called(&l, CL_COMPLETE);
    check_times(&l);
    OK(clReleaseEvent(event));
}

Test(parts, run_on_after_the_program_released_their_event, .timeout = 60)
{
    struct levers l;
    levers_open(&l, PAIR_CONFIG);
    int64_t live[] = {emu_shared_live_all(l.s.rig.emu, "one"),
                      emu_shared_live_all(l.s.rig.emu, "two")};
    levers_issue(&l, l.s.program.queue, "01");
    OK(clReleaseEvent((cl_event)l.event));
    engine_rig_sleep(20);
    pull(&l.of[1]);
    pull(&l.of[0]);
    check_called(&l, CL_COMPLETE);
    cr_assert(engine_rig_settles(&l.s.rig, "one", live[0], 0));
    cr_assert(engine_rig_settles(&l.s.rig, "two", live[1], 0));
    cr_assert(COMES(object_count(OBJECT_EVENT) == 0, 10 * NS_PER_S));
    cr_assert_eq(parts_real_count(), 0);
}

/* A driver may say once more that a part has ended while another thread, which heard of it before,
 * takes the event apart: its parts know it for longer than its watch does. */
Test(parts, that_are_told_of_while_their_event_goes_find_no_watch, .timeout = 60)
{
    struct levers l;
    levers_open(&l, PAIR_CONFIG);
    struct event *event = event_create((struct context *)l.s.program.context,
                                       (struct queue *)l.s.program.queue, CL_COMMAND_READ_BUFFER);
    cr_assert_not_null(event);
    cr_assert(event_watch(event));
    pthread_mutex_lock(&engine_lock);
    watch_advance(event, CL_RUNNING);
    pthread_mutex_unlock(&engine_lock);
    cr_assert_eq(watch_reached(event), CL_RUNNING);
    watch_leave(event);
    cr_assert_eq(watch_reached(event), CL_QUEUED, "it leads to a watch that is gone");
    event_discard(event);
}

/* Reads where the bytes are. */

#define BIG (1u << 20)

struct reads {
    struct events_scene s;
    cl_command_queue other; /* on the second device, which writes */
    cl_mem big;
    cl_uint *host;
};

static void write_there(struct reads *r, cl_uint value)
{
    OK(clEnqueueFillBuffer(r->other, r->big, &value, sizeof(value), 0, BIG, 0, NULL, NULL));
    OK(clFinish(r->other));
}

static void reads_open(struct reads *r, const char *config, cl_command_queue_properties properties)
{
    memset(r, 0, sizeof(*r));
    r->other = events_open_pair(&r->s, config, properties);
    r->host = calloc(1, BIG);
    cr_assert_not_null(r->host);
    r->big = engine_buffer(r->s.program.context, 0, BIG, NULL);
    write_there(r, 1);
}

static void check_read(const struct reads *r, size_t words, cl_uint wanted)
{
    for (size_t i = 0; i < words; i++)
        cr_assert_eq(r->host[i], wanted, "word %zu is %u, expected %u", i, r->host[i], wanted);
    cr_assert(words == BIG / 4 || r->host[words] == 0);
    memset(r->host, 0, BIG);
}

static uint64_t calls_of(const struct reads *r, const char *device, const char *function)
{
    return emu_shared_calls(r->s.rig.emu, device, function);
}

static void check_reads(const char *config, cl_command_queue_properties properties)
{
    struct reads r;
    reads_open(&r, config, properties | CL_QUEUE_PROFILING_ENABLE);
    cl_command_queue queue = r.s.program.queue;
    const char *const write = "clEnqueueWriteBuffer", *const read = "clEnqueueReadBuffer";
    uint64_t written = calls_of(&r, "one", write), got = calls_of(&r, "two", read),
             here = calls_of(&r, "one", read);
    cl_event event, before = events_add(&r.s, queue, 0, NULL);
    OK(clEnqueueReadBuffer(queue, r.big, CL_TRUE, 64, 4096, r.host, 0, NULL, NULL));
    check_read(&r, 1024, 1);
    write_there(&r, 2);
    OK(clEnqueueReadBuffer(queue, r.big, CL_FALSE, 0, BIG, r.host, 1, &before, &event));
    OK(clFinish(queue));
    cr_assert_eq(events_status(event), CL_COMPLETE);
    check_read(&r, BIG / 4, 2);
    OK(clEnqueueReadBuffer(queue, r.big, CL_FALSE, 0, 4096, r.host, 0, NULL, NULL));
    OK(clFinish(queue));
    check_read(&r, 1024, 2);
    cr_assert_eq(calls_of(&r, "one", write), written, "bytes went from device to device");
    cr_assert_eq(calls_of(&r, "one", read), here);
    cr_assert_eq(calls_of(&r, "two", read), got + 3);
    cl_ulong end, time, last = 0;
    OK(clGetEventProfilingInfo(before, CL_PROFILING_COMMAND_END, sizeof(end), &end, NULL));
    for (cl_profiling_info name = CL_PROFILING_COMMAND_QUEUED;
         name <= CL_PROFILING_COMMAND_COMPLETE; name++) {
        OK(clGetEventProfilingInfo(event, name, sizeof(time), &time, NULL));
        cr_assert_geq(time, last);
        last = time;
        if (name == CL_PROFILING_COMMAND_START)
            cr_assert_geq(time, end, "it began before what it waited for");
    }
    cl_event after = events_add(&r.s, queue, 1, &event);
    OK(clWaitForEvents(1, &after));
    OK(clGetEventProfilingInfo(after, CL_PROFILING_COMMAND_START, sizeof(time), &time, NULL));
    cr_assert_geq(time, last, "what waited for it began before it ended");
    RELEASE(before, event, after);
    free(r.host);
}

TestCall(elsewhere, a_read_runs_where_the_bytes_are, check_reads(PAIR_CONFIG, 0), .timeout = 60);
TestCall(elsewhere, a_read_runs_where_the_bytes_are_out_of_order,
         check_reads(PAIR_CONFIG, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE), .timeout = 60);
TestCall(elsewhere, a_read_runs_where_the_bytes_are_without_callbacks,
         check_reads("[one] name=one base=1 callbacks=never [two] name=two base=1 callbacks=never",
                     0),
         .timeout = 60);

/* Until somebody waits for the very read, its driver does not say that it has ended. */
Test(elsewhere, what_follows_in_order_is_held_until_the_read_has_ended, .timeout = 60)
{
    struct reads r;
    cl_event read, next, marked;
    reads_open(&r, "[one] name=one base=1 [two] name=two base=1 late_status=yes callbacks=never",
               0);
    cl_command_queue queue = r.s.program.queue;
    OK(clEnqueueReadBuffer(queue, r.big, CL_FALSE, 0, BIG, r.host, 0, NULL, &read));
    const cl_uint three = 3;
    OK(clEnqueueFillBuffer(queue, r.big, &three, sizeof(three), 0, BIG, 0, NULL, &next));
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marked));
    engine_rig_sleep(100);
    cr_assert_gt(events_status(read), CL_COMPLETE);
    cr_assert_gt(events_status(next), CL_RUNNING, "it did not wait for the read");
    cr_assert_gt(events_status(marked), CL_RUNNING);
    OK(clFinish(queue)); /* waits for the read itself, in its driver */
    cr_assert_eq(events_status(read), CL_COMPLETE);
    cr_assert_eq(events_status(marked), CL_COMPLETE);
    check_read(&r, BIG / 4, 1);
    OK(clEnqueueReadBuffer(queue, r.big, CL_TRUE, 0, BIG, r.host, 0, NULL, NULL));
    check_read(&r, BIG / 4, 3);
    RELEASE(read, next, marked);
    free(r.host);
}

Test(elsewhere, a_read_waits_for_the_program_and_for_its_list, .timeout = 60)
{
    struct reads r;
    cl_event read;
    const cl_uint two = 2;
    reads_open(&r, PAIR_CONFIG, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_event user = events_user(&r.s), filled, bad = events_user(&r.s);
    OK(clEnqueueFillBuffer(r.other, r.big, &two, sizeof(two), 0, BIG, 1, &user, &filled));
    OK(clEnqueueReadBuffer(r.s.program.queue, r.big, CL_FALSE, 0, BIG, r.host, 1, &filled, &read));
    cl_event free_one = events_add(&r.s, r.s.program.queue, 0, NULL);
    OK(clWaitForEvents(1, &free_one));
    cr_assert_gt(events_status(read), CL_RUNNING);
    engine_rig_moves(&r.s.rig, "three");
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    OK(clWaitForEvents(1, &read));
    check_read(&r, BIG / 4, 2);
    OK(clReleaseEvent(read));
    OK(clEnqueueReadBuffer(r.s.program.queue, r.big, CL_FALSE, 0, BIG, r.host, 1, &bad, &read));
    OK(clSetUserEventStatus(bad, -1000));
    cr_assert_eq(clWaitForEvents(1, &read), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_eq(r.host[0], 0, "it read all the same");
    const cl_event events[] = {user, filled, bad, free_one, read};
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        OK(clReleaseEvent(events[i]));
    free(r.host);
}

/* What the other device refuses is read as ever: brought to the queue's own device. */
Test(elsewhere, a_read_that_is_refused_there_runs_here, .timeout = 60)
{
    static const char *const functions[] = {"clCreateCommandQueue", "clEnqueueReadBuffer"};
    struct reads r;
    reads_open(&r, PAIR_CONFIG, 0);
    for (cl_uint i = 0; i < ARRAY_SIZE(functions); i++) {
        write_there(&r, 7 + i);
        uint64_t fired = emu_shared_fired(r.s.rig.emu, "two");
        uint64_t here = calls_of(&r, "one", "clEnqueueReadBuffer");
        cr_assert_eq(emu_shared_arm(r.s.rig.emu, "two", 1, functions[i], CL_OUT_OF_HOST_MEMORY), 0);
        OK(clEnqueueReadBuffer(r.s.program.queue, r.big, CL_TRUE, 0, BIG, r.host, 0, NULL, NULL));
        cr_assert_eq(emu_shared_fired(r.s.rig.emu, "two"), fired + 1, "the fault was not met");
        cr_assert_eq(calls_of(&r, "one", "clEnqueueReadBuffer"), here + 1);
        check_read(&r, BIG / 4, 7 + i);
    }
    free(r.host);
}

Test(elsewhere, reads_are_exact_while_the_program_moves, .timeout = 60)
{
    struct reads r;
    pthread_t thread;
    reads_open(&r, PAIR_CONFIG, CL_QUEUE_PROFILING_ENABLE);
    struct events_mover mover = {.rig = &r.s.rig};
    cr_assert_eq(pthread_create(&thread, NULL, events_move_about, &mover), 0);
    for (cl_uint i = 1; i < 60; i++) {
        /* Written on one device, read through the other, and the other way round. */
        cl_command_queue writer = i % 2 ? r.other : r.s.program.queue;
        cl_command_queue reader = i % 2 ? r.s.program.queue : r.other;
        cl_event written, read;
        OK(clEnqueueFillBuffer(writer, r.big, &i, sizeof(i), 0, BIG, 0, NULL, &written));
        OK(clEnqueueReadBuffer(reader, r.big, i % 3 == 0, 0, BIG, r.host, 1, &written, &read));
        if (i % 3 == 1)
            OK(clFinish(reader));
        OK(clWaitForEvents(1, &read));
        check_read(&r, BIG / 4, i);
        RELEASE(written, read);
    }
    atomic_store(&mover.stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    OK(clReleaseMemObject(r.big));
    cr_assert_eq(parts_real_count(), 0);
    free(r.host);
}
