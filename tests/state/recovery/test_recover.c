#include <unistd.h>

#include "state/recovery/protect.h"
#include "tests/state/recovery/recover_play.h"
#include "tests/support/every.h"

/*
 * A protected program whose device is lost, at each of its calls of the driver: it ends with what
 * it would have ended with, no call of it fails, and each callback comes once, with success.
 */

/* Calls after which a loop is taken to go on for ever. */
#define MOST_CALLS 2000

/* Of each kind of command something, so that each depends on those before it. */
static void compute(struct play *play)
{
    cl_int status;
    cl_event event, second;
    cl_command_queue queue = play->program.queue;
    cl_uint written[COUNT], later[COUNT], pattern = 77;
    launch(play, 5, 0, NULL, &event);
    watch(play, event);
    OK(clFlush(queue));
    for (cl_uint i = 0; i < COUNT; i++)
        play->a_is[i] = written[i] = i ^ 0x55;
    OK(clEnqueueWriteBuffer(queue, play->a, CL_FALSE, 0, BYTES, written, 1, &event, &second));
    OK(clWaitForEvents(1, &second));
    memset(written, 0xdd, sizeof(written)); /* it may */
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_geq(status, CL_COMPLETE);
    RELEASE(event, second);
    launch(play, 9, 0, NULL, NULL);
    OK(clEnqueueReadBuffer(queue, play->b, CL_FALSE, 0, BYTES, later, 0, NULL, &event));
    watch(play, event);
    OK(clWaitForEvents(1, &event));
    cr_assert_arr_eq(later, play->b_is, BYTES);
    OK(clReleaseEvent(event));
    /* The emulated device is lost, and POCL, which it has, is at what it was given before that. */
    if (!is_on("a"))
        usleep(30000);
    memset(later, 0, sizeof(later));
    /* An object that comes and goes. */
    cl_mem made = MADE(clCreateBuffer, play->program.context,
                       CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES, play->a_is);
    OK(clEnqueueFillBuffer(queue, made, &pattern, sizeof(pattern), 0, BYTES / 2, 0, NULL, NULL));
    OK(clEnqueueCopyBuffer(queue, made, play->a, 0, 0, BYTES, 0, NULL, NULL));
    OK(clReleaseMemObject(made));
    for (cl_uint i = 0; i < COUNT / 2; i++)
        play->a_is[i] = pattern;
    launch(play, 13, 0, NULL, NULL);
    cl_uint *map = MADE(clEnqueueMapBuffer, queue, play->b, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                        BYTES, 0, NULL, NULL);
    cr_assert_arr_eq(map, play->b_is, BYTES);
    for (cl_uint i = 0; i < COUNT; i += 3)
        map[i] = play->b_is[i] = i + 1;
    OK(clEnqueueUnmapMemObject(queue, play->b, map, 0, NULL, NULL));
    launch(play, 17, 0, NULL, NULL);
    OK(clFinish(queue));
    for (cl_uint i = 0; i < COUNT; i++)
        cr_assert_eq(later[i], 0, "a read that had ended was given again");
    has(play, play->b, play->b_is);
    has(play, play->a, play->a_is);
}

/* Commands that wait for the program, in two queues, whose order is the events' alone; parts of
 * objects, images, and a map that stays open. */
static void compute_more(struct play *play)
{
    enum { SIDE = 16 };
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE};
    const size_t origin[3] = {0}, corner[3] = {4, 5, 0}, region[3] = {SIDE, SIDE, 1},
                 small[3] = {8, 6, 1}, box[3] = {16, 4, 1}, from[3] = {32, 2, 0}, to[3] = {0, 0, 0};
    const cl_buffer_region half = {BYTES / 2, BYTES / 2};
    cl_int error;
    cl_context context = play->program.context;
    cl_command_queue first = play->program.queue;
    cl_command_queue second = MADE(clCreateCommandQueue, context, rig.device, 0);
    cl_uchar pixels[SIDE][SIDE][4], back[SIDE][SIDE][4];
    for (size_t i = 0; i < sizeof(pixels); i++)
        ((cl_uchar *)pixels)[i] = (cl_uchar)(i * 3);
    cl_mem image = MADE(clCreateImage, context, CL_MEM_READ_WRITE, &format, &desc, NULL);
    cl_mem part = MADE(clCreateSubBuffer, play->b, 0, CL_BUFFER_CREATE_TYPE_REGION, &half);
    cl_event user = clCreateUserEvent(context, &error), held, events[3], both[2];
    OK(error);
    /* Held: the one thing that they wait for is the program. */
    cl_uint n = 3;
    OK(clSetKernelArg(play->kernel, 2, sizeof(n), &n));
    launch(play, 3, 1, &user, &held);
    OK(clEnqueueCopyBuffer(second, play->b, play->a, 0, 0, BYTES / 4, 1, &held, &events[0]));
    watch(play, events[0]);
    OK(clEnqueueWriteImage(second, image, CL_FALSE, origin, region, 0, 0, pixels, 0, NULL,
                           &both[0]));
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    memcpy(play->a_is, play->b_is, BYTES / 4);
    cl_uint words[COUNT];
    for (cl_uint i = 0; i < COUNT; i++)
        words[i] = i * 11;
    OK(clEnqueueWriteBufferRect(first, part, CL_FALSE, to, from, box, 64, 0, 128, 0, words, 1,
                                &events[0], &events[1]));
    for (size_t y = 0; y < box[1]; y++)
        memcpy((char *)play->b_is + half.origin + y * 64, (char *)words + (y + 2) * 128 + 32,
               box[0]);
    both[1] = events[1];
    OK(clEnqueueWriteImage(first, image, CL_TRUE, corner, small, 0, 0, words, 2, both, &events[2]));
    for (size_t y = 0; y < small[1]; y++)
        memcpy(pixels[5 + y][4], (char *)words + y * small[0] * 4, small[0] * 4);
    launch(play, 21, 1, &events[2], NULL);
    OK(clReleaseEvent(events[0]));
    OK(clFinish(first));
    OK(clFinish(second));
    memset(words, 0, sizeof(words));
    cl_uint *map =
        MADE(clEnqueueMapBuffer, first, play->a, CL_TRUE, CL_MAP_WRITE, 64, 256, 0, NULL, NULL);
    for (cl_uint i = 0; i < 64; i++)
        map[i] = play->a_is[16 + i] = i * 19 + 1;
    OK(clEnqueueReadImage(second, image, CL_TRUE, origin, region, 0, 0, back, 0, NULL, NULL));
    cr_assert_arr_eq(back, pixels, sizeof(pixels));
    for (cl_uint i = 0; i < 64; i++)
        cr_assert_eq(map[i], i * 19 + 1, "what the program wrote there is its own");
    OK(clEnqueueUnmapMemObject(first, play->a, map, 0, NULL, &events[0]));
    OK(clWaitForEvents(1, &events[0]));
    OK(clReleaseEvent(events[0]));
    has(play, play->a, play->a_is);
    has(play, play->b, play->b_is);
    RELEASE(user, held, both[0], events[1], events[2], part, image, second);
}

static void compute_moving(struct play *play)
{
    cl_uint later[COUNT], is[COUNT];
    cl_event event;
    launch(play, 2, 0, NULL, NULL);
    launch(play, 4, 0, NULL, &event);
    watch(play, event);
    memcpy(is, play->b_is, BYTES);
    OK(clEnqueueReadBuffer(play->program.queue, play->b, CL_FALSE, 0, BYTES, later, 0, NULL, NULL));
    launch(play, 6, 0, NULL, NULL);
    go("c");
    launch(play, 8, 1, &event, NULL);
    OK(clFinish(play->program.queue));
    cr_assert_arr_eq(later, is, BYTES);
    OK(clReleaseEvent(event));
    has(play, play->b, play->b_is);
    launch(play, 10, 0, NULL, NULL);
    go("a");
    launch(play, 12, 0, NULL, NULL);
    has(play, play->b, play->b_is);
    has(play, play->a, play->a_is);
}

static void compute_leaving(struct play *play)
{
    cl_event event;
    launch(play, 2, 0, NULL, NULL);
    leave_on_demand("b");
    launch(play, 4, 0, NULL, &event);
    watch(play, event);
    has(play, play->b, play->b_is);
    OK(clReleaseEvent(event));
    go("a");
    launch(play, 6, 0, NULL, NULL);
    leave_on_demand("b");
    (void)protect_now();
    launch(play, 8, 0, NULL, NULL);
    has(play, play->b, play->b_is);
    go("a");
    launch(play, 10, 0, NULL, NULL);
    has(play, play->b, play->b_is);
    has(play, play->a, play->a_is);
}

static void compute_with_points(struct play *play)
{
    cl_event event;
    for (cl_uint i = 0; i < 4; i++) {
        launch(play, i, 0, NULL, NULL);
        launch(play, i + 100, 0, NULL, &event);
        watch(play, event);
        (void)protect_now();
        OK(clReleaseEvent(event));
        if (i % 2)
            has(play, play->b, play->b_is);
    }
    has(play, play->b, play->b_is);
    has(play, play->a, play->a_is);
}

/* What ended before a snapshot has no order to be known by, and nobody waited for it. */
static void compute_apart_with_points(struct play *play)
{
    cl_event events[6];
    for (cl_uint i = 0; i < 3; i++) {
        for (cl_uint k = 0; k < ARRAY_SIZE(events); k++)
            launch(play, i + k, k != 0, k != 0 ? &events[k - 1] : NULL, &events[k]);
        (void)protect_now();
        OK(clWaitForEvents(ARRAY_SIZE(events), events));
        for (cl_uint k = 0; k < ARRAY_SIZE(events); k++)
            OK(clReleaseEvent(events[k]));
    }
    has(play, play->b, play->b_is);
    has(play, play->a, play->a_is);
}

/* False when it made fewer calls. @next: the same of the device that the program comes to then; 0:
 * that stays. */
static bool lose_at(void (*run)(struct play *play), uint64_t call, uint64_t next,
                    cl_command_queue_properties properties)
{
    struct play play;
    open_play(&play, properties);
    uint64_t b = emu_shared_fired(rig.emu, "b");
    if (next != 0)
        cr_assert_eq(emu_shared_arm(rig.emu, "b", next, NULL, EMU_ERROR_VANISH), 0);
    uint64_t fired = emu_shared_fired(rig.emu, "a"), before = recoveries();
    cr_assert_eq(emu_shared_arm(rig.emu, "a", call, NULL, EMU_ERROR_VANISH), 0);
    run(&play);
    called_once(&play);
    bool lost = emu_shared_fired(rig.emu, "a") != fired;
    bool lost_next = next != 0 && emu_shared_fired(rig.emu, "b") != b;
    cr_assert(lost || is_on("a"));
    cr_assert(!recovery_is_under_way(recovery_state()));
    if (next == 0 && run != compute_moving && run != compute_leaving)
        cr_assert_eq(recoveries(), before + !is_on("a"));
    close_play(&play);
    again();
    return next != 0 ? lost_next : lost;
}

static void lose_at_each(void (*run)(struct play *play), const char *way,
                         cl_command_queue_properties properties)
{
    uint64_t call = 1;
    open_rig(way);
    for (; lose_at(run, call, 0, properties); call += every(2))
        cr_assert_lt(call, MOST_CALLS);
    cr_assert_gt(call, 20);
}

TestCall(recover, a_device_that_is_lost_at_any_call_is_replaced, lose_at_each(compute, "", 0),
         .timeout = 300);
TestCall(recover, a_device_that_gives_strange_errors_is_replaced,
         lose_at_each(compute, "lost_error=-36", 0), .timeout = 300);
TestCall(recover, a_device_that_hangs_at_any_call_is_replaced,
         lose_at_each(compute, "lost_hangs=yes", 0), .timeout = 300);
TestCall(recover, any_order_of_commands_is_given_again, lose_at_each(compute_more, "", 0),
         .timeout = 300);
TestCall(recover, a_queue_without_order_is_given_again,
         lose_at_each(compute_more, "",
                      CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE),
         .timeout = 300);

/* Two queues, and an event between what is in them: the next device has not ended the launch when
 * it is given what comes behind that. */
Test(recover, what_an_event_puts_in_order_is_given_again_in_order, .timeout = 60)
{
    struct play play;
    cl_event launched;
    open_rig_with("", "items_per_s=5120 paced=add");
    open_play(&play, 0);
    cl_command_queue second = MADE(clCreateCommandQueue, play.program.context, rig.device, 0);
    launch(&play, 3, 0, NULL, &launched);
    OK(clEnqueueCopyBuffer(second, play.b, play.a, 0, 0, BYTES, 1, &launched, NULL));
    memcpy(play.a_is, play.b_is, BYTES);
    OK(clFlush(play.program.queue));
    OK(clFinish(second));
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    has(&play, play.a, play.a_is);
    has(&play, play.b, play.b_is);
    cr_assert(is_on("b"));
    RELEASE(launched, second);
    close_play(&play);
}

/* The second is lost at each call that it is given in the recovery and afterwards. */
Test(recover, a_device_that_is_lost_in_a_recovery_is_replaced, .timeout = 300)
{
    uint64_t next = 1;
    open_rig("");
    while (lose_at(compute, 12, next, 0))
        cr_assert_lt(next++, MOST_CALLS);
    cr_assert_gt(next, 30);
}

TestCall(recover, a_device_that_is_lost_in_a_move_is_replaced, lose_at_each(compute_moving, "", 0),
         .timeout = 300);
TestCall(recover, a_device_that_was_left_on_demand_and_is_lost_is_replaced,
         lose_at_each(compute_leaving, "", 0), .timeout = 300);
TestCall(recover, a_device_that_is_lost_while_a_point_is_made_is_replaced,
         lose_at_each(compute_with_points, "", 0), .timeout = 300);
TestCall(recover, what_a_point_finds_ended_outlives_a_loss_at_that_moment,
         lose_at_each(compute_apart_with_points, "", CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE),
         .timeout = 300);
