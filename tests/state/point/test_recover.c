#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/command/journal.h"
#include "state/object/lost.h"
#include "state/object/retry.h"
#include "state/point/point.h"
#include "state/point/protect.h"
#include "state/room/room.h"
#include "tests/support/engine_rig.h"

/*
 * A protected program whose device is lost, at each of its calls of the driver: it ends with what
 * it would have ended with, no call of it fails, and each callback comes once, with success.
 */

#define COUNT 1024
#define BYTES (COUNT * sizeof(cl_uint))
/* Calls after which a loop is taken to go on for ever. */
#define MOST_CALLS 2000

static const char *const source =
    "kernel void add(constant uint *a, global uint *b, uint n)\n"
    "{ size_t i = get_global_id(0); b[i] = b[i] * 5 + a[i] * 3 + n; }\n"
    "kernel void idle(uint n) {}\n";

static struct engine_rig rig;

struct play {
    struct engine_program program;
    cl_kernel kernel;
    cl_mem a, b;
    cl_uint a_is[COUNT], b_is[COUNT];
    atomic_int called, failed;
    int registered;
};

static void CL_CALLBACK called_back(cl_event event, cl_int status, void *data)
{
    struct play *play = data;
    (void)event;
    atomic_fetch_add(&play->failed, status != CL_COMPLETE);
    atomic_fetch_add(&play->called, 1);
}

static void watch(struct play *play, cl_event event)
{
    OK(clSetEventCallback(event, CL_COMPLETE, called_back, play));
    play->registered++;
}

static void open_rig_with(const char *a, const char *b)
{
    char config[512];
    const struct protect_settings settings = {.interval_ns = UINT64_C(3600000000000)};
    (void)snprintf(config, sizeof(config),
                   "[a] name=a own_memory=yes %s\n[b] base=1 name=b own_memory=yes %s\n"
                   "[c] base=1 name=c own_memory=yes\n",
                   a, b);
    lost_patience_ns = 40000000;
    lost_answer_ns = 500000000;
    engine_rig_open(&rig, config);
    cr_assert_eq(protect_begin(&settings), 0);
}

static void open_rig(const char *a)
{
    open_rig_with(a, "");
}

static void open_play(struct play *play, cl_command_queue_properties properties)
{
    memset(play, 0, sizeof(*play));
    engine_program_open(&rig, properties, source, &play->program);
    play->kernel = engine_kernel(play->program.program, "add");
    for (cl_uint i = 0; i < COUNT; i++) {
        play->a_is[i] = i * 7 + 1;
        play->b_is[i] = i;
    }
    play->a = engine_buffer(play->program.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, BYTES,
                            play->a_is);
    play->b = engine_buffer(play->program.context, CL_MEM_READ_WRITE, BYTES, NULL);
    OK(clEnqueueWriteBuffer(play->program.queue, play->b, CL_TRUE, 0, BYTES, play->b_is, 0, NULL,
                            NULL));
    cr_assert_eq(protect_now(), 0);
    cr_assert_null(journal_broken());
}

static void close_play(struct play *play)
{
    OK(clReleaseMemObject(play->a));
    OK(clReleaseMemObject(play->b));
    OK(clReleaseKernel(play->kernel));
    engine_program_close(&play->program);
}

static void launch(struct play *play, cl_uint n, cl_uint waits, const cl_event *wait_list,
                   cl_event *ret_event)
{
    const size_t global = COUNT;
    OK(clSetKernelArg(play->kernel, 0, sizeof(cl_mem), &play->a));
    OK(clSetKernelArg(play->kernel, 1, sizeof(cl_mem), &play->b));
    OK(clSetKernelArg(play->kernel, 2, sizeof(n), &n));
    OK(clEnqueueNDRangeKernel(play->program.queue, play->kernel, 1, NULL, &global, NULL, waits,
                              wait_list, ret_event));
    for (cl_uint i = 0; i < COUNT; i++)
        play->b_is[i] = play->b_is[i] * 5 + play->a_is[i] * 3 + n;
}

static void has(struct play *play, cl_mem buffer, const cl_uint *is)
{
    cl_uint bytes[COUNT];
    OK(clEnqueueReadBuffer(play->program.queue, buffer, CL_TRUE, 0, BYTES, bytes, 0, NULL, NULL));
    cr_assert_arr_eq(bytes, is, BYTES);
}

static bool is_on(const char *name)
{
    struct device *device = atomic_load(&the_seats[0]->device);
    return device && strcmp(device->key.device, name) == 0;
}

/* Of each kind of command something, so that each depends on those before it. */
static void compute(struct play *play)
{
    cl_int error, status;
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
    OK(clReleaseEvent(event));
    OK(clReleaseEvent(second));
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
    cl_mem made = clCreateBuffer(play->program.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                 BYTES, play->a_is, &error);
    OK(error);
    OK(clEnqueueFillBuffer(queue, made, &pattern, sizeof(pattern), 0, BYTES / 2, 0, NULL, NULL));
    OK(clEnqueueCopyBuffer(queue, made, play->a, 0, 0, BYTES, 0, NULL, NULL));
    OK(clReleaseMemObject(made));
    for (cl_uint i = 0; i < COUNT / 2; i++)
        play->a_is[i] = pattern;
    launch(play, 13, 0, NULL, NULL);
    cl_uint *map = clEnqueueMapBuffer(queue, play->b, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, BYTES,
                                      0, NULL, NULL, &error);
    OK(error);
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

static void called_once(const struct play *play)
{
    for (unsigned i = 0; atomic_load(&play->called) < play->registered && i < 5000; i++)
        engine_rig_sleep(1);
    engine_rig_sleep(2);
    cr_assert_eq(atomic_load(&play->called), play->registered);
    cr_assert_eq(atomic_load(&play->failed), 0);
}

static uint64_t recoveries(void)
{
    struct protect_status status;
    protect_read(&status);
    return status.recoveries;
}

/* The device is back for the next round, and so is the program. */
static void again(void)
{
    (void)emu_shared_disarm(rig.emu, "a");
    (void)emu_shared_restore(rig.emu, "a");
    (void)emu_shared_disarm(rig.emu, "b");
    (void)emu_shared_restore(rig.emu, "b");
    if (!is_on("a"))
        engine_rig_moves(&rig, "a");
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
    cl_command_queue second = clCreateCommandQueue(context, rig.device, 0, &error);
    OK(error);
    cl_uchar pixels[SIDE][SIDE][4], back[SIDE][SIDE][4];
    for (size_t i = 0; i < sizeof(pixels); i++)
        ((cl_uchar *)pixels)[i] = (cl_uchar)(i * 3);
    cl_mem image = clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &error);
    OK(error);
    cl_mem part = clCreateSubBuffer(play->b, 0, CL_BUFFER_CREATE_TYPE_REGION, &half, &error);
    OK(error);
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
        clEnqueueMapBuffer(first, play->a, CL_TRUE, CL_MAP_WRITE, 64, 256, 0, NULL, NULL, &error);
    OK(error);
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
    OK(clReleaseEvent(user));
    OK(clReleaseEvent(held));
    OK(clReleaseEvent(both[0]));
    OK(clReleaseEvent(events[1]));
    OK(clReleaseEvent(events[2]));
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(image));
    OK(clReleaseCommandQueue(second));
}

/* Whoever moves the program, or makes a point of it, does so while much of it is under way. */
static void go(const char *name)
{
    struct move_request request = {.target = engine_rig_key(&rig, name)};
    struct move_report report;
    move_run(&request, &report);
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

/* What it needs next is where it was, which is lost: a command needs it, or a point. */
static void leave_on_demand(const char *name)
{
    struct move_request request = {
        .target = engine_rig_key(&rig, name), .fetch = MOVE_FETCH_ON_DEMAND, .bandwidth = 1024};
    struct move_report report;
    move_run(&request, &report);
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

/* What ended before a point has no order to be known by, and nobody waited for it. */
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
    while (lose_at(run, call, 0, properties))
        cr_assert_lt(call++, MOST_CALLS);
    cr_assert_gt(call, 20);
    protect_end();
    free(rig.devices);
}

Test(recover, a_device_that_is_lost_at_any_call_is_replaced, .timeout = 300)
{
    lose_at_each(compute, "", 0);
}

Test(recover, a_device_that_gives_strange_errors_is_replaced, .timeout = 300)
{
    lose_at_each(compute, "lost_error=-36", 0);
}

Test(recover, a_device_that_hangs_at_any_call_is_replaced, .timeout = 300)
{
    lose_at_each(compute, "lost_hangs=yes", 0);
}

Test(recover, any_order_of_commands_is_given_again, .timeout = 300)
{
    lose_at_each(compute_more, "", 0);
}

Test(recover, a_queue_without_order_is_given_again, .timeout = 300)
{
    lose_at_each(compute_more, "",
                 CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE);
}

/* Two queues, and an event between what is in them: the next device has not ended the launch when
 * it is given what comes behind that. */
Test(recover, what_an_event_puts_in_order_is_given_again_in_order, .timeout = 60)
{
    struct play play;
    cl_event launched;
    cl_int error;
    open_rig_with("", "items_per_s=5120 paced=add");
    open_play(&play, 0);
    cl_command_queue second = clCreateCommandQueue(play.program.context, rig.device, 0, &error);
    OK(error);
    launch(&play, 3, 0, NULL, &launched);
    OK(clEnqueueCopyBuffer(second, play.b, play.a, 0, 0, BYTES, 1, &launched, NULL));
    memcpy(play.a_is, play.b_is, BYTES);
    OK(clFlush(play.program.queue));
    OK(clFinish(second));
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    has(&play, play.a, play.a_is);
    has(&play, play.b, play.b_is);
    cr_assert(is_on("b"));
    OK(clReleaseEvent(launched));
    OK(clReleaseCommandQueue(second));
    close_play(&play);
    protect_end();
    free(rig.devices);
}

/* The second is lost at each call that it is given in the recovery and afterwards. */
Test(recover, a_device_that_is_lost_in_a_recovery_is_replaced, .timeout = 300)
{
    uint64_t next = 1;
    open_rig("");
    while (lose_at(compute, 12, next, 0))
        cr_assert_lt(next++, MOST_CALLS);
    cr_assert_gt(next, 30);
    protect_end();
    free(rig.devices);
}

Test(recover, a_device_that_is_lost_in_a_move_is_replaced, .timeout = 300)
{
    lose_at_each(compute_moving, "", 0);
}

Test(recover, a_device_that_was_left_on_demand_and_is_lost_is_replaced, .timeout = 300)
{
    lose_at_each(compute_leaving, "", 0);
}

Test(recover, a_device_that_is_lost_while_a_point_is_made_is_replaced, .timeout = 300)
{
    lose_at_each(compute_with_points, "", 0);
}

Test(recover, what_a_point_finds_ended_outlives_a_loss_at_that_moment, .timeout = 300)
{
    lose_at_each(compute_apart_with_points, "", CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
}

/* Of the loss a point is the first to hear that is made for what a build begins anew, from what the
 * driver says of a command. Without the journal nothing could be done again. */
Test(recover, a_point_that_finds_the_loss_keeps_the_journal, .timeout = 60)
{
    enum { ROUNDS = 16 };
    struct play play;
    cl_event launched;
    cl_int error;
    open_rig("");
    for (unsigned i = 0; i < ROUNDS; i++) {
        open_play(&play, 0);
        cl_program other = clCreateProgramWithSource(play.program.context, 1,
                                                     (const char **)&source, NULL, &error);
        OK(error);
        OK(clBuildProgram(other, 1, &rig.device, "", NULL, NULL));
        uint64_t before = recoveries();
        launch(&play, 3, 0, NULL, &launched);
        cr_assert_eq(emu_shared_arm(rig.emu, "a", 3 + i % 2, "clGetEventInfo", EMU_ERROR_VANISH),
                     0);
        OK(clBuildProgram(other, 1, &rig.device, "", NULL, NULL));
        has(&play, play.b, play.b_is);
        cr_assert_eq(recoveries(), before + 1);
        OK(clReleaseEvent(launched));
        OK(clReleaseProgram(other));
        close_play(&play);
        again();
    }
    protect_end();
    free(rig.devices);
}

/* It is replaced before who made the point asks why that failed. */
Test(recover, a_loss_that_is_over_is_known_to_who_failed_for_it, .timeout = 60)
{
    struct play play;
    cl_event launched;
    open_rig("");
    open_play(&play, 0);
    launch(&play, 3, 0, NULL, &launched);
    cr_assert_eq(emu_shared_arm(rig.emu, "a", 3, "clGetEventInfo", EMU_ERROR_VANISH), 0);
    uint64_t before = protect_recoveries();
    cr_assert_neq(protect_now(), 0);
    for (unsigned i = 0; recoveries() == before && i < 5000; i++)
        engine_rig_sleep(1);
    cr_assert(protect_outlives_loss(before, 0, NULL));
    cr_assert_not(protect_outlives_loss(before + 1, 0, NULL));
    has(&play, play.b, play.b_is);
    OK(clReleaseEvent(launched));
    close_play(&play);
    protect_end();
    free(rig.devices);
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
    OK(clReleaseEvent(told));
    OK(clReleaseEvent(other));
    close_play(&play);
    protect_end();
    free(rig.devices);
}

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
    protect_end();
    free(rig.devices);
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
    const char *text = source;
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
    protect_end();
    free(rig.devices);
}

static void CL_CALLBACK note_end(cl_mem memory, void *told)
{
    (void)memory;
    atomic_store((atomic_bool *)told, true);
}

/* What a program lets go of is kept until the next point, of which it knows nothing: that is not
 * put off then. */
Test(recover, who_waits_for_an_end_is_seen, .timeout = 60)
{
    static struct play play;
    static atomic_bool told;
    const cl_uint n = 7;
    open_rig("");
    open_play(&play, 0);
    cl_mem gone = engine_buffer(play.program.context, CL_MEM_READ_WRITE, BYTES, NULL);
    OK(clSetMemObjectDestructorCallback(gone, note_end, &told));
    OK(clEnqueueFillBuffer(play.program.queue, gone, &n, sizeof(n), 0, BYTES, 0, NULL, NULL));
    OK(clFinish(play.program.queue));
    cr_assert(!protect_is_waited_for());
    OK(clReleaseMemObject(gone));
    cr_assert(protect_is_waited_for());
    cr_assert(!atomic_load(&told));
    cr_assert_eq(protect_now(), 0);
    while (!atomic_load(&told))
        clock_sleep(NS_PER_MS);
    cr_assert(!protect_is_waited_for());
    close_play(&play);
    protect_end();
    free(rig.devices);
}

/* So that it stops the program for long: what is mapped is copied while it stands. */
static void point_that_cost_much(struct play *play)
{
    enum { MUCH = 4 << 20 };
    const struct protect_settings often = {.interval_ns = NS_PER_MS * 100};
    const cl_uint n = 7;
    cl_int error;
    cl_mem much = engine_buffer(play->program.context, CL_MEM_READ_WRITE, MUCH, NULL);
    OK(clEnqueueFillBuffer(play->program.queue, much, &n, sizeof(n), 0, MUCH, 0, NULL, NULL));
    void *map = clEnqueueMapBuffer(play->program.queue, much, CL_TRUE, CL_MAP_WRITE, 0, MUCH, 0,
                                   NULL, NULL, &error);
    OK(error);
    cr_assert_eq(protect_now(), 0);
    OK(clEnqueueUnmapMemObject(play->program.queue, much, map, 0, NULL, NULL));
    OK(clReleaseMemObject(much));
    OK(clFinish(play->program.queue));
    cr_assert_eq(protect_begin(&often), 0);
}

/* Until points have cost no more than their budget it would wait for as long as that lasts. */
Test(recover, who_waits_for_an_end_does_not_wait_for_the_budget, .timeout = 120)
{
    static struct play play;
    static atomic_bool told;
    struct protect_status status;
    const cl_uint n = 7;
    open_rig("link_mb_s=40");
    open_play(&play, 0);
    point_that_cost_much(&play);
    cl_mem gone = engine_buffer(play.program.context, CL_MEM_READ_WRITE, BYTES, NULL);
    OK(clSetMemObjectDestructorCallback(gone, note_end, &told));
    OK(clEnqueueFillBuffer(play.program.queue, gone, &n, sizeof(n), 0, BYTES, 0, NULL, NULL));
    OK(clFinish(play.program.queue));
    OK(clReleaseMemObject(gone));
    protect_read(&status);
    cr_assert_geq(status.downtime_ns, 50 * NS_PER_MS);
    uint64_t over = status.at_ns + status.downtime_ns * 50; /* half of what the budget asks for */
    while (!atomic_load(&told) && clock_now_ns() < over)
        clock_sleep(NS_PER_MS);
    cr_assert(atomic_load(&told));
    close_play(&play);
    protect_end();
    free(rig.devices);
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
    struct retry retry = {the_seats, 1, 0};
    pthread_t thread;
    open_rig("");
    engine_program_open(&rig, 0, source, &program);
    cr_assert_eq(protect_now(), 0);
    protect_let_choose(choose);
    builder.program = program.program;
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    cr_assert_eq(pthread_create(&thread, NULL, build, &builder), 0);
    while (!seat_is_lost(the_seats[0]))
        clock_sleep(NS_PER_MS);
    while (!retry_delays_moves(the_seats[0]))
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
    protect_let_choose(NULL);
    engine_program_close(&program);
    protect_end();
    free(rig.devices);
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
    engine_program_open(&rig, 0, source, &program);
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
    OK(clReleaseEvent(event));
    OK(clReleaseKernel(idle));
    engine_program_close(&program);
    protect_end();
    free(rig.devices);
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
    protect_end();
    free(rig.devices);
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
    protect_end();
    free(rig.devices);
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
    protect_end();
    free(rig.devices);
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
    free(rig.devices);
}

static void await_points(uint64_t count)
{
    struct protect_status status;
    for (unsigned i = 0; i < 20000; i++) {
        protect_read(&status);
        if (status.points >= count && !status.broken)
            return;
        engine_rig_sleep(1);
    }
    cr_assert_fail("%lu points", (unsigned long)status.points);
}

/* A journal that has what it may makes a point, and so does what cannot be given again. */
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
    uint64_t points = status.points;
    for (unsigned i = 0; i < 64; i++) {
        play.a_is[i] = i * 31;
        OK(clEnqueueWriteBuffer(play.program.queue, play.a, CL_TRUE, 0, BYTES, play.a_is, 0, NULL,
                                NULL));
        protect_read(&status);
        cr_assert_leq(status.bytes, 18 * BYTES);
    }
    await_points(points + 1);
    /* Its kernels are other ones from now on. */
    launch(&play, 1, 0, NULL, NULL);
    OK(clFinish(play.program.queue));
    OK(clReleaseKernel(play.kernel));
    protect_read(&status);
    points = status.points;
    OK(clBuildProgram(play.program.program, 0, NULL, "-DOTHER", NULL, NULL));
    play.kernel = engine_kernel(play.program.program, "add");
    protect_read(&status);
    cr_assert_eq(status.points, points + 1);
    launch(&play, 3, 0, NULL, NULL);
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    has(&play, play.b, play.b_is);
    has(&play, play.a, play.a_is);
    cr_assert_not(is_on("a"));
    close_play(&play);
    protect_end();
    free(rig.devices);
}

static atomic_uint asked;

static enum room_answer refuse(const struct room_need *need)
{
    (void)need;
    atomic_fetch_add(&asked, 1);
    return ROOM_REFUSE;
}

/* What the program released is kept for the journal: not where the device needs the room. */
Test(recover, what_was_released_makes_room, .timeout = 60)
{
    struct play play;
    cl_uint word = 7;
    open_rig("memory=1MiB");
    open_play(&play, 0);
    room_set_policy(refuse);
    for (unsigned i = 0; i < 20; i++) {
        cl_mem large = engine_buffer(play.program.context, CL_MEM_READ_WRITE, 600u << 10, NULL);
        OK(clEnqueueFillBuffer(play.program.queue, large, &word, sizeof(word), 0, 4096, 0, NULL,
                               NULL));
        OK(clReleaseMemObject(large));
    }
    cr_assert(is_on("a"));
    cr_assert_eq(asked, 0);
    room_set_policy(NULL);
    close_play(&play);
    protect_end();
    free(rig.devices);
}

static enum room_answer grant(const struct room_need *need)
{
    room_grant(need->seat, 64u << 20);
    return ROOM_AGAIN;
}

/* Where there is more to be had, the program is not stopped again and again to let go of it. */
Test(recover, what_was_released_is_let_go_seldom_where_there_is_room, .timeout = 60)
{
    struct play play;
    struct protect_status before, after;
    cl_uint word = 7;
    open_rig("");
    open_play(&play, 0);
    room_set_policy(grant);
    room_grant(0, 40u << 10);
    protect_read(&before);
    for (unsigned i = 0; i < 200; i++) {
        cl_mem small = engine_buffer(play.program.context, CL_MEM_READ_WRITE, 10u << 10, NULL);
        OK(clEnqueueFillBuffer(play.program.queue, small, &word, sizeof(word), 0, 4096, 0, NULL,
                               NULL));
        OK(clReleaseMemObject(small));
    }
    protect_read(&after);
    cr_assert_leq(after.points - before.points, 10);
    room_set_policy(NULL);
    close_play(&play);
    protect_end();
    free(rig.devices);
}

/* Where there is not, it is. */
Test(recover, what_was_released_is_let_go_before_room_is_refused, .timeout = 60)
{
    struct play play;
    cl_uint word = 7;
    open_rig("");
    open_play(&play, 0);
    room_set_policy(refuse);
    room_grant(0, 40u << 10);
    for (unsigned i = 0; i < 60; i++) {
        cl_mem small = engine_buffer(play.program.context, CL_MEM_READ_WRITE, 10u << 10, NULL);
        OK(clEnqueueFillBuffer(play.program.queue, small, &word, sizeof(word), 0, 4096, 0, NULL,
                               NULL));
        OK(clReleaseMemObject(small));
    }
    room_set_policy(NULL);
    close_play(&play);
    protect_end();
    free(rig.devices);
}

/* The one that is found first cannot be used either. */
Test(recover, one_that_has_nothing_yet_tries_each_device, .timeout = 60)
{
    cl_int error;
    open_rig("");
    cr_assert(is_on("a"));
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    cr_assert_eq(emu_shared_vanish(rig.emu, "b"), 0);
    cl_context context = clCreateContext(NULL, 1, &rig.device, NULL, NULL, &error);
    cr_assert_eq(error, CL_SUCCESS);
    cr_assert(is_on("c"));
    OK(clReleaseContext(context));
    protect_end();
    free(rig.devices);
}

/* What had ended at the point is in no journal, whether anybody had asked for it or not. */
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
    protect_end();
    free(rig.devices);
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
    protect_end();
    free(rig.devices);
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
    cl_int error;
    bool in_order = (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
    open_rig("");
    open_play(&play, properties);
    cl_command_queue first = play.program.queue,
                     second = clCreateCommandQueue(play.program.context, rig.device, 0, &error);
    OK(error);
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
    OK(clReleaseEvent(read));
    OK(clReleaseEvent(behind));
    play.program.queue = first;
    OK(clReleaseCommandQueue(second));
    close_play(&play);
    protect_end();
    free(rig.devices);
}

Test(recover, memory_that_was_read_into_before_what_ended_is_the_program_s, .timeout = 60)
{
    keep_what_was_read(0);
}

Test(recover, memory_that_was_read_into_for_what_ended_is_the_program_s, .timeout = 60)
{
    keep_what_was_read(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
}

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
    protect_end();
    free(rig.devices);
}
