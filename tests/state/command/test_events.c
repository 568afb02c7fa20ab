#include "tests/state/command/test_events.h"

#include <pthread.h>

/* Event callbacks: once each, the earliest status first, whatever the driver does. */

static const char *const source = "__kernel void add(__global uint *words, uint value)\n"
                                  "{ words[get_global_id(0)] += value; }\n";

static void make_kernel(struct events_scene *s)
{
    const cl_uint one = 1;
    s->add = engine_kernel(s->program.program, "add");
    s->buffer = engine_buffer(s->program.context, CL_MEM_COPY_HOST_PTR, sizeof(s->words), s->words);
    OK(clSetKernelArg(s->add, 0, sizeof(cl_mem), &s->buffer));
    OK(clSetKernelArg(s->add, 1, sizeof(one), &one));
}

void *events_move_about(void *data)
{
    static const char *const ways[] = {"three", NULL, "one"};
    struct events_mover *mover = data;
    for (int i = 0; !atomic_load(&mover->stop) || i % 3 != 0; i++)
        engine_rig_moves(mover->rig, ways[i % 3]);
    return NULL;
}

void events_open(struct events_scene *s, const char *config, cl_command_queue_properties properties)
{
    memset(s, 0, sizeof(*s));
    engine_rig_open(&s->rig, config);
    engine_program_open(&s->rig, properties, source, &s->program);
    make_kernel(s);
}

cl_command_queue events_open_pair(struct events_scene *s, const char *config,
                                  cl_command_queue_properties properties)
{
    memset(s, 0, sizeof(*s));
    engine_rig_open(&s->rig, config);
    const cl_device_id devices[] = {s->rig.device, engine_rig_vdev(&s->rig, "two")};
    s->program.context = MADE(clCreateContext, NULL, 2, devices, NULL, NULL);
    s->program.queue = MADE(clCreateCommandQueue, s->program.context, devices[0], properties);
    cl_command_queue other = MADE(clCreateCommandQueue, s->program.context, devices[1], properties);
    s->program.program = BUILT(s->program.context, source, "");
    make_kernel(s);
    return other;
}

cl_event events_user(struct events_scene *s)
{
    cl_event event = MADE(clCreateUserEvent, s->program.context);
    return event;
}

cl_event events_add(struct events_scene *s, cl_command_queue queue, cl_uint waits,
                    const cl_event *wait_list)
{
    const size_t items = EVENTS_WORDS;
    cl_event event;
    OK(clEnqueueNDRangeKernel(queue, s->add, 1, NULL, &items, NULL, waits, wait_list, &event));
    return event;
}

cl_int events_status(cl_event event)
{
    cl_int status;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    return status;
}

void events_check_words(struct events_scene *s, cl_command_queue queue, cl_uint wanted)
{
    OK(clEnqueueReadBuffer(queue, s->buffer, CL_TRUE, 0, sizeof(s->words), s->words, 0, NULL,
                           NULL));
    for (size_t i = 0; i < EVENTS_WORDS; i++)
        cr_assert_eq(s->words[i], wanted, "word %zu is %u, expected %u", i, s->words[i], wanted);
}

bool events_wait(_Atomic unsigned *count, unsigned wanted)
{
    for (unsigned ms = 0; atomic_load(count) < wanted && ms < 10000; ms++)
        engine_rig_sleep(1);
    engine_rig_sleep(5); /* one too many comes late */
    return atomic_load(count) == wanted;
}

/* What the callbacks of one event saw. */
struct record {
    _Atomic unsigned count, side_by_side;
    atomic_bool inside;
    cl_int statuses[16];
};

struct expected {
    struct record *record;
    cl_int type;
};

static void CL_CALLBACK note(cl_event event, cl_int status, void *data)
{
    struct record *record = ((struct expected *)data)->record;
    free(data);
    if (atomic_exchange(&record->inside, true))
        atomic_fetch_add(&record->side_by_side, 1);
    cl_int now = events_status(event);
    if (status >= 0 && now > status)
        atomic_fetch_add(&record->side_by_side, 1); /* less than it was told */
    record->statuses[atomic_load(&record->count)] = status;
    atomic_store(&record->inside, false);
    atomic_fetch_add(&record->count, 1);
}

static void ask(cl_event event, struct record *record, cl_int type)
{
    struct expected *expected = malloc(sizeof(*expected));
    cr_assert_not_null(expected);
    *expected = (struct expected){record, type};
    OK(clSetEventCallback(event, type, note, expected));
}

static void ask_for_all(cl_event event, struct record *record)
{
    ask(event, record, CL_SUBMITTED);
    ask(event, record, CL_RUNNING);
    ask(event, record, CL_COMPLETE);
}

/* Of an event that does not end meanwhile: the order of registration is not that of the calls. */
static void ask_held(cl_event event, struct record *record)
{
    ask(event, record, CL_COMPLETE);
    ask(event, record, CL_SUBMITTED);
    ask(event, record, CL_RUNNING);
}

static void check_order(struct record *record, const char *what)
{
    cr_assert(events_wait(&record->count, 3), "%s: %u callbacks", what, record->count);
    cr_assert_eq(record->statuses[0], CL_SUBMITTED, "%s", what);
    cr_assert_eq(record->statuses[1], CL_RUNNING, "%s", what);
    cr_assert_eq(record->statuses[2], CL_COMPLETE, "%s", what);
    cr_assert_eq(record->side_by_side, 0, "%s", what);
}

static void check_callbacks(const char *config)
{
    static struct events_scene s;
    static struct record at_once, held, late, released, moved;
    events_open(&s, config, 0);
    cl_event user = events_user(&s);
    cl_event first = events_add(&s, s.program.queue, 0, NULL);
    ask_for_all(first, &at_once);
    OK(clFinish(s.program.queue));
    check_order(&at_once, "registered at once");
    ask_for_all(first, &late);
    check_order(&late, "registered after the end");
    cl_event second = events_add(&s, s.program.queue, 1, &user);
    ask_held(second, &held);
    cl_event third = events_add(&s, s.program.queue, 0, NULL);
    ask_held(third, &released);
    OK(clReleaseEvent(third));
    engine_rig_sleep(20);
    cr_assert_eq(held.count + released.count, 0, "called while the command was held");
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    check_order(&held, "held");
    check_order(&released, "released by the program");
    cl_event fourth = events_add(&s, s.program.queue, 0, NULL);
    ask_for_all(fourth, &moved);
    engine_rig_moves(&s.rig, "two");
    check_order(&moved, "moved");
    events_check_words(&s, s.program.queue, 4);
    RELEASE(first, second, fourth, user);
    /* Nothing keeps the objects of events whose callbacks were called. */
    RELEASE(s.add, s.buffer);
    engine_program_close(&s.program);
    cr_assert(engine_rig_empties(&s.rig, "one"), "%s", engine_rig_alive(&s.rig, "one"));
    cr_assert(engine_rig_empties(&s.rig, "two"), "%s", engine_rig_alive(&s.rig, "two"));
}

TestCall(callbacks, come_once_and_in_order,
         check_callbacks("[one] name=one base=1 [two] name=two base=1"), .timeout = 60);
TestCall(
    callbacks, come_from_a_driver_that_never_calls,
    check_callbacks("[one] name=one base=1 callbacks=never [two] name=two base=1 callbacks=never"),
    .timeout = 60);
TestCall(callbacks, come_in_order_from_a_driver_that_calls_backwards,
         check_callbacks(
             "[one] name=one base=1 callbacks=backwards [two] name=two base=1 callbacks=backwards"),
         .timeout = 60);

static const char *const complete = "[one] name=one callbacks=complete [two] name=two";

/* A command that ends in an error; its driver's callbacks say CL_COMPLETE. */
static cl_event add_failing(struct events_scene *s)
{
    cr_assert_eq(emu_shared_arm(s->rig.emu, "one", 1, "clEnqueueNDRangeKernel", EMU_ERROR_AT_END),
                 0);
    return events_add(s, s->program.queue, 0, NULL);
}

static void close_failing(struct events_scene *s, cl_event event)
{
    RELEASE(event, s->add, s->buffer);
    engine_program_close(&s->program);
}

Test(callbacks, of_a_command_that_failed_say_so_though_its_driver_does_not, .timeout = 60)
{
    static struct events_scene s;
    static struct record record;
    events_open(&s, complete, 0);
    atomic_load(&the_vdevs[0]->device)->quirks |= QUIRK_CALLS_COMPLETE;
    cl_event user = events_user(&s);
    cr_assert_eq(emu_shared_arm(s.rig.emu, "one", 1, "clEnqueueNDRangeKernel", EMU_ERROR_AT_END),
                 0);
    cl_event event = events_add(&s, s.program.queue, 1, &user);
    ask(event, &record, CL_COMPLETE);
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    cr_assert(events_wait(&record.count, 1));
    cr_assert_lt(record.statuses[0], 0);
    cr_assert_eq(events_status(event), record.statuses[0]);
    OK(clReleaseEvent(user));
    close_failing(&s, event);
}

Test(callbacks, come_with_the_error_that_was_told, .timeout = 60)
{
    static struct events_scene s;
    static struct record record;
    cl_int told;
    events_open(&s, complete, 0);
    cl_event event = add_failing(&s);
    while ((told = events_status(event)) >= 0)
        engine_rig_sleep(1);
    ask(event, &record, CL_COMPLETE);
    cr_assert(events_wait(&record.count, 1));
    cr_assert_eq(record.statuses[0], told);
    cr_assert_eq(events_status(event), told);
    engine_rig_moves(&s.rig, "two");
    cr_assert_eq(events_status(event), told);
    close_failing(&s, event);
}

Test(callbacks, of_user_events_come_with_what_is_set, .timeout = 60)
{
    static struct events_scene s;
    static struct record good, bad, chained;
    events_open(&s, EVENTS_CONFIG, 0);
    cl_event user = events_user(&s), failing = events_user(&s);
    ask_held(user, &good);
    /* 5.11: a user event is CL_SUBMITTED from the beginning. */
    cr_assert(events_wait(&good.count, 1));
    cr_assert_eq(good.statuses[0], CL_SUBMITTED);
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    check_order(&good, "set");
    cl_event first = events_add(&s, s.program.queue, 1, &failing);
    cl_event second = events_add(&s, s.program.queue, 1, &first);
    ask_for_all(failing, &bad);
    ask_for_all(second, &chained);
    OK(clSetUserEventStatus(failing, CL_OUT_OF_RESOURCES));
    cr_assert(events_wait(&bad.count, 3));
    cr_assert(events_wait(&chained.count, 3));
    for (unsigned i = 0; i < 3; i++) {
        cr_expect_eq(bad.statuses[i], i == 0 ? CL_SUBMITTED : CL_OUT_OF_RESOURCES);
        cr_expect_eq(chained.statuses[i], CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    }
    cr_expect_eq(clWaitForEvents(1, &second), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_expect_eq(clSetUserEventStatus(failing, CL_COMPLETE), CL_INVALID_OPERATION);
    events_check_words(&s, s.program.queue, 0);
}

/* Callbacks that use OpenCL themselves. */

static struct {
    struct events_scene scene;
    cl_event user, other;
    _Atomic unsigned done, failed;
} calls;

static void CL_CALLBACK set_flag(cl_event event, cl_int status, void *data)
{
    (void)event, (void)status, (void)data;
    atomic_fetch_add(&calls.done, 1);
}

/* Waits for what only another callback does. */
static void CL_CALLBACK wait_for_flag(cl_event event, cl_int status, void *data)
{
    (void)event, (void)status, (void)data;
    for (unsigned ms = 0; atomic_load(&calls.done) == 0 && ms < 20000; ms++)
        engine_rig_sleep(1);
    if (atomic_load(&calls.done) == 0)
        atomic_fetch_add(&calls.failed, 1);
    atomic_fetch_add(&calls.done, 1);
}

Test(callbacks, that_block_do_not_hold_up_the_others, .timeout = 60)
{
    struct events_scene *s = &calls.scene;
    cl_event events[4];
    events_open(s, EVENTS_CONFIG, 0);
    for (int i = 0; i < 4; i++) {
        events[i] = events_add(s, s->program.queue, 0, NULL);
        OK(clSetEventCallback(events[i], CL_COMPLETE, i < 3 ? wait_for_flag : set_flag, NULL));
    }
    OK(clFinish(s->program.queue));
    cr_assert(events_wait(&calls.done, 4), "%u callbacks", calls.done);
    cr_assert_eq(calls.failed, 0);
}

/* Enqueues, registers a callback inside the callback, lets a deferred command go, and waits for it.
 */
static void CL_CALLBACK go_on(cl_event event, cl_int status, void *data)
{
    struct events_scene *s = &calls.scene;
    cl_event held = data, last;
    const size_t items = EVENTS_WORDS;
    bool good = status == CL_COMPLETE;
    good = good && clSetEventCallback(event, CL_COMPLETE, set_flag, NULL) == CL_SUCCESS;
    good = good && clSetEventCallback(held, CL_COMPLETE, set_flag, NULL) == CL_SUCCESS;
    good = good && clSetUserEventStatus(calls.user, CL_COMPLETE) == CL_SUCCESS;
    good = good && clWaitForEvents(1, &held) == CL_SUCCESS;
    good = good && clEnqueueNDRangeKernel(s->program.queue, s->add, 1, NULL, &items, NULL, 1, &held,
                                          &last) == CL_SUCCESS;
    good = good && clSetEventCallback(last, CL_COMPLETE, set_flag, NULL) == CL_SUCCESS;
    good = good && clFlush(s->program.queue) == CL_SUCCESS && clReleaseEvent(last) == CL_SUCCESS &&
           clReleaseEvent(calls.user) == CL_SUCCESS && clReleaseEvent(event) == CL_SUCCESS;
    if (!good)
        atomic_fetch_add(&calls.failed, 1);
    atomic_fetch_add(&calls.done, 1);
}

Test(callbacks, may_set_user_events_wait_enqueue_and_register, .timeout = 120)
{
    struct events_scene *s = &calls.scene;
    events_open(s, EVENTS_CONFIG, 0);
    for (unsigned round = 1; round <= 20; round++) {
        calls.user = events_user(s);
        cl_event first = events_add(s, s->program.queue, 0, NULL);
        cl_event held = events_add(s, s->program.queue, 1, &calls.user);
        OK(clSetEventCallback(first, CL_COMPLETE, go_on, held));
        OK(clFlush(s->program.queue));
        engine_rig_moves(&s->rig, round % 2 ? "two" : "one");
        cr_assert(events_wait(&calls.done, 4 * round), "round %u: %u callbacks", round, calls.done);
        OK(clReleaseEvent(held));
        events_check_words(s, s->program.queue, 3 * round);
    }
    cr_assert_eq(calls.failed, 0);
}
