#include <errno.h>
#include <pthread.h>

#include "state/command/command.h"
#include "state/command/elsewhere.h"
#include "state/command/parts.h"
#include "tests/state/command/test_events.h"
#include "tests/support/comes.h"

/* Copies between buffers of two virtual devices, whose driver copies from one to the other. */

#define COPIES_CONFIG "[one] name=one base=1 [two] name=two base=1 [three] name=three base=1"
#define BLOCK         ((size_t)64 << 10)
#define BLOCKS        8
#define WORDS         (BLOCK / sizeof(cl_uint))

struct copies {
    struct events_scene s;
    cl_command_queue here, there; /* on the first device, and on the second, which writes `from` */
    cl_mem from, to;
};

/* Block i has the word @value + i. */
static void copies_write(struct copies *c, cl_uint value)
{
    for (cl_uint i = 0; i < BLOCKS; i++, value++)
        OK(clEnqueueFillBuffer(c->there, c->from, &value, sizeof(value), i * BLOCK, BLOCK, 0, NULL,
                               NULL));
    OK(clFinish(c->there));
}

static void copies_open(struct copies *c, cl_command_queue_properties properties)
{
    const cl_uint zero = 0;
    memset(c, 0, sizeof(*c));
    c->there = events_open_pair(&c->s, COPIES_CONFIG, properties);
    c->here = c->s.program.queue;
    c->from = engine_buffer(c->s.program.context, 0, BLOCKS * BLOCK, NULL);
    c->to = engine_buffer(c->s.program.context, 0, BLOCKS * BLOCK, NULL);
    copies_write(c, 1);
    OK(clEnqueueFillBuffer(c->here, c->to, &zero, sizeof(zero), 0, BLOCKS * BLOCK, 0, NULL, NULL));
    OK(clFinish(c->here));
    engine_between_play(&c->s.rig);
}

static void copies_close(struct copies *c)
{
    OK(clFinish(c->here));
    OK(clFinish(c->there));
    RELEASE(c->from, c->to);
    cr_assert(COMES(parts_real_count() == 0, 10 * NS_PER_S));
}

static cl_event copies_copy(const struct copies *c, size_t block, cl_uint waits,
                            const cl_event *wait_list)
{
    cl_event event;
    OK(clEnqueueCopyBuffer(c->here, c->from, c->to, block * BLOCK, block * BLOCK, BLOCK, waits,
                           wait_list, &event));
    return event;
}

static void copies_check(const struct copies *c, size_t block, cl_uint wanted)
{
    static cl_uint words[WORDS];
    OK(clEnqueueReadBuffer(c->here, c->to, CL_TRUE, block * BLOCK, BLOCK, words, 0, NULL, NULL));
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], wanted, "word %zu of block %zu is %u, not %u", i, block, words[i],
                     wanted);
}

static void copies_await_held(unsigned wanted)
{
    cr_assert(COMES(atomic_load(&engine_between.held) >= wanted, 10 * NS_PER_S), "%u copies pass",
              engine_between.held);
    engine_rig_sleep(20);
    cr_assert_eq(atomic_load(&engine_between.held), wanted);
}

/* Something that the second device was given does not end until the copy has. */
Test(copies, do_not_wait_for_what_else_the_source_does, .timeout = 60)
{
    struct copies c;
    copies_open(&c, CL_QUEUE_PROFILING_ENABLE);
    const struct queue *there = (struct queue *)c.there;
    const struct residence *residence =
        there->context->at[atomic_load(&there->context->residence_index[there->vdev_index])];
    cl_event user = MADE(residence->cl->clCreateUserEvent, residence->context);
    OK(residence->cl->clEnqueueMarkerWithWaitList(there->real, 1, &user, NULL));
    OK(residence->cl->clFlush(there->real));
    cl_event copied = copies_copy(&c, 3, 0, NULL);
    OK(clWaitForEvents(1, &copied));
    OK(residence->cl->clSetUserEventStatus(user, CL_COMPLETE));
    OK(residence->cl->clReleaseEvent(user));
    cr_assert_eq(engine_between.passed, 1);
    copies_check(&c, 3, 4);
    copies_check(&c, 2, 0);
    cl_ulong time, last = 0;
    for (cl_profiling_info name = CL_PROFILING_COMMAND_QUEUED;
         name <= CL_PROFILING_COMMAND_COMPLETE; name++) {
        OK(clGetEventProfilingInfo(copied, name, sizeof(time), &time, NULL));
        cr_assert_geq(time, last);
        last = time;
    }
    OK(clReleaseEvent(copied));
    copies_close(&c);
}

Test(copies, several_pass_at_once_where_no_order_is_asked_for, .timeout = 60)
{
    struct copies c;
    cl_event events[BLOCKS];
    copies_open(&c, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    engine_between.holds = true;
    for (size_t i = 0; i < BLOCKS; i++)
        events[i] = copies_copy(&c, i, 0, NULL);
    copies_await_held(ELSEWHERE_PASSING);
    for (unsigned i = ELSEWHERE_PASSING; i-- > 0;) { /* in another order */
        cr_assert_gt(events_status(events[i]), CL_COMPLETE);
        engine_between_go(i, CL_COMPLETE);
        OK(clWaitForEvents(1, &events[i]));
    }
    copies_await_held(BLOCKS);
    for (unsigned i = ELSEWHERE_PASSING; i < BLOCKS; i++)
        engine_between_go(i, CL_COMPLETE);
    OK(clFinish(c.here));
    for (cl_uint i = 0; i < BLOCKS; i++) {
        copies_check(&c, i, i + 1);
        OK(clReleaseEvent(events[i]));
    }
    copies_close(&c);
}

Test(copies, keep_their_order, .timeout = 60)
{
    struct copies c;
    copies_open(&c, 0);
    const cl_uint nine = 9;
    cl_event user = events_user(&c.s), next;
    engine_between.holds = true;
    cl_event copied = copies_copy(&c, 1, 1, &user);
    OK(clEnqueueFillBuffer(c.here, c.to, &nine, sizeof(nine), BLOCK, sizeof(nine), 0, NULL, &next));
    engine_rig_sleep(20);
    cr_assert_eq(engine_between.passed, 0, "it did not wait for the program");
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    copies_await_held(1);
    cr_assert_gt(events_status(next), CL_RUNNING, "it did not wait for the copy");
    engine_between_go(0, CL_COMPLETE);
    OK(clWaitForEvents(1, &next));
    cr_assert_eq(events_status(copied), CL_COMPLETE);
    cl_uint words[2];
    OK(clEnqueueReadBuffer(c.here, c.to, CL_TRUE, BLOCK, sizeof(words), words, 0, NULL, NULL));
    cr_assert(words[0] == 9 && words[1] == 2);
    RELEASE(user, next, copied);
    copies_close(&c);
}

/* Whether the driver refuses it at once, or it fails on its way. */
Test(copies, that_fail_are_made_through_the_host, .timeout = 60)
{
    struct copies c;
    copies_open(&c, 0);
    engine_between.failing = 1;
    cl_event refused = copies_copy(&c, 1, 0, NULL);
    OK(clWaitForEvents(1, &refused));
    copies_check(&c, 1, 2);
    copies_write(&c, 11);
    engine_between.holds = true;
    cl_event failed = copies_copy(&c, 2, 0, NULL);
    copies_await_held(1);
    engine_between.holds = false;
    engine_between_go(0, CL_OUT_OF_RESOURCES);
    OK(clWaitForEvents(1, &failed));
    cr_assert_eq(events_status(failed), CL_COMPLETE);
    copies_check(&c, 2, 13);
    /* POCL may not report the end of an event that fails, and then the parts are kept for it. */
    RELEASE(refused, failed, c.from, c.to);
}

Test(copies, of_the_same_bytes_again_and_again_bring_them, .timeout = 60)
{
    struct copies c;
    copies_open(&c, 0);
    for (cl_uint i = 0; i < 3 * 2 * BLOCKS; i++)
        OK(clReleaseEvent(copies_copy(&c, 5, 0, NULL)));
    OK(clFinish(c.here));
    copies_check(&c, 5, 6);
    /* Each byte may cross once for each of two virtual devices; then a replica does. */
    cr_assert_eq(engine_between.passed, 2 * BLOCKS + 1);
    copies_write(&c, 21);
    OK(clReleaseEvent(copies_copy(&c, 5, 0, NULL)));
    OK(clFinish(c.here));
    cr_assert_eq(engine_between.passed, 2 * BLOCKS + 2, "new bytes did not pass");
    copies_check(&c, 5, 26);
    copies_close(&c);
}

/* Another device writes a part of the target, for which it needs what is on its way there. */
static void *write_beside(void *data)
{
    struct copies *c = data;
    const cl_uint nine = 9;
    OK(clEnqueueFillBuffer(c->there, c->to, &nine, sizeof(nine), 0, BLOCK / 2, 0, NULL, NULL));
    OK(clFinish(c->there));
    return NULL;
}

static void *move_on(void *data)
{
    const struct copies *c = data;
    engine_rig_moves(&c->s.rig, "three");
    return NULL;
}

static void check_awaited(void *(*run)(void *data), cl_uint word)
{
    struct copies c;
    pthread_t thread;
    static cl_uint words[WORDS];
    copies_open(&c, 0);
    engine_between.holds = true;
    OK(clReleaseEvent(copies_copy(&c, 0, 0, NULL)));
    copies_await_held(1);
    engine_between.holds = false;
    cr_assert_eq(pthread_create(&thread, NULL, run, &c), 0);
    engine_rig_sleep(100);
    cr_assert_eq(pthread_tryjoin_np(thread, NULL), EBUSY, "it did not wait for the copy");
    engine_between_go(0, CL_COMPLETE);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    OK(clFinish(c.here));
    OK(clEnqueueReadBuffer(c.here, c.to, CL_TRUE, 0, BLOCK, words, 0, NULL, NULL));
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], i < WORDS / 2 ? word : 1, "word %zu is %u", i, words[i]);
    copies_close(&c);
}

TestCall(copies, are_awaited_by_who_needs_their_target_elsewhere, check_awaited(write_beside, 9),
         .timeout = 60);
TestCall(copies, are_awaited_by_a_move_of_the_target, check_awaited(move_on, 1), .timeout = 60);

Test(copies, are_exact_while_the_program_moves, .timeout = 60)
{
    struct copies c;
    pthread_t thread;
    copies_open(&c, CL_QUEUE_PROFILING_ENABLE);
    struct events_mover mover = {.rig = &c.s.rig};
    cr_assert_eq(pthread_create(&thread, NULL, events_move_about, &mover), 0);
    for (cl_uint i = 1; i < 60; i++) {
        cl_event written;
        OK(clEnqueueFillBuffer(c.there, c.from, &i, sizeof(i), i % BLOCKS * BLOCK, BLOCK, 0, NULL,
                               &written));
        OK(clReleaseEvent(copies_copy(&c, i % BLOCKS, 1, &written)));
        OK(clReleaseEvent(written));
        copies_check(&c, i % BLOCKS, i);
    }
    atomic_store(&mover.stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_gt(engine_between.passed, 0);
    copies_close(&c);
}
