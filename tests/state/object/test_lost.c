#include <pthread.h>
#include <stdint.h>

#include "state/base/clock.h"
#include "state/object/lost.h"
#include "tests/support/engine_rig.h"
#include "tests/support/every.h"
#include "tests/support/patience.h"

/*
 * A device that is lost, at every call of a program: with errors, with errors that are no
 * shortage's, and with waits that never return. Whatever happens, each call returns in time with an
 * error that OpenCL has for it, each callback comes once, and what is moved afterwards has the
 * bytes that it should have, or is refused.
 */

#define COUNT 1024
#define BYTES (COUNT * sizeof(cl_uint))
/* Calls after which a loop is taken to go on for ever. */
#define MOST_CALLS 2000
/* No call takes longer: what the engine waits for an answer, and a slow machine. */
#define LATE_MS 20000

static const char *const source = "kernel void add(constant uint *a, global uint *b, uint n)\n"
                                  "{ size_t i = get_global_id(0); b[i] = a[i] * 3 + n; }\n";

static const char *const ways[] = {"", "lost_error=-36", "lost_hangs=yes"};

static void open_rig(struct engine_rig *rig, const char *a, const char *b)
{
    char config[512];
    snprintf(config, sizeof(config),
             "[a] name=a own_memory=yes %s\n[b] base=1 name=b own_memory=yes %s\n", a, b);
    lost_patience_ns = 40000000;
    lost_answer_ns = patience(500) * NS_PER_MS;
    engine_rig_open(rig, config);
}

/* What the program knows of its objects: the bytes after each command that it was told succeeded.
 */
struct play {
    const struct engine_rig *rig;
    struct engine_program program;
    cl_kernel kernel;
    cl_mem a, b;
    cl_uint a_is[COUNT], b_is[COUNT];
    cl_uint *host_a, *host_b; /* lent: where the replicas in host memory are */
    uint64_t begun;           /* when the last call had returned */
    atomic_int called;
    unsigned registered;
    bool failed; /* some call gave an error */
};

static bool in_time(const struct play *play)
{
    return engine_rig_now() - play->begun < patience(LATE_MS) * NS_PER_MS;
}

/* True when @error is none; false for what a lost device may say. */
static bool went(struct play *play, cl_int error, const char *call)
{
    cr_assert(in_time(play), "%s took too long", call);
    play->begun = engine_rig_now();
    cr_assert(error == CL_SUCCESS || error == CL_OUT_OF_RESOURCES ||
                  error == CL_DEVICE_NOT_AVAILABLE || error == CL_INVALID_COMMAND_QUEUE ||
                  error == CL_PROFILING_INFO_NOT_AVAILABLE ||
                  error == CL_INVALID_PROGRAM_EXECUTABLE || error == CL_BUILD_PROGRAM_FAILURE ||
                  error == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
              "%s: %d", call, error);
    play->failed = play->failed || error != CL_SUCCESS;
    return error == CL_SUCCESS;
}
#define WENT(call) went(play, call, #call)

static void CL_CALLBACK called_back(cl_event event, cl_int status, void *data)
{
    struct play *play = data;
    (void)event;
    (void)status;
    atomic_fetch_add(&play->called, 1);
}

static void watch(struct play *play, cl_event event)
{
    if (WENT(clSetEventCallback(event, CL_COMPLETE, called_back, play)))
        play->registered++;
}

/* False when it could not be made. */
static bool begin(struct play *play, const struct engine_rig *rig)
{
    cl_int error;
    memset(play, 0, sizeof(*play));
    play->rig = rig;
    play->begun = engine_rig_now();
    struct engine_program *p = &play->program;
    p->context = clCreateContext(NULL, 1, &rig->device, NULL, NULL, &error);
    if (!went(play, error, "clCreateContext"))
        return false;
    p->queue = clCreateCommandQueue(p->context, rig->device, CL_QUEUE_PROFILING_ENABLE, &error);
    if (!went(play, error, "clCreateCommandQueue"))
        return false;
    p->program = clCreateProgramWithSource(p->context, 1, (const char **)&source, NULL, &error);
    if (!went(play, error, "clCreateProgramWithSource") ||
        !WENT(clBuildProgram(p->program, 0, NULL, NULL, NULL, NULL)))
        return false;
    play->kernel = clCreateKernel(p->program, "add", &error);
    if (!went(play, error, "clCreateKernel"))
        return false;
    play->host_a = aligned_alloc(BYTES, BYTES);
    play->host_b = aligned_alloc(BYTES, BYTES);
    for (cl_uint i = 0; i < COUNT; i++) {
        play->a_is[i] = play->host_a[i] = i * 7 + 1;
        play->b_is[i] = play->host_b[i] = i;
    }
    play->a = clCreateBuffer(p->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, BYTES,
                             play->host_a, &error);
    if (!went(play, error, "clCreateBuffer"))
        return false;
    play->b = clCreateBuffer(p->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, BYTES,
                             play->host_b, &error);
    return went(play, error, "clCreateBuffer") &&
           WENT(clSetKernelArg(play->kernel, 0, sizeof(cl_mem), &play->a)) &&
           WENT(clSetKernelArg(play->kernel, 1, sizeof(cl_mem), &play->b));
}

/* b = 3 a + n */
static void launch(struct play *play, cl_uint n, cl_event *ret_event)
{
    const size_t global = COUNT;
    if (!WENT(clSetKernelArg(play->kernel, 2, sizeof(n), &n)) ||
        !WENT(clEnqueueNDRangeKernel(play->program.queue, play->kernel, 1, NULL, &global, NULL, 0,
                                     NULL, ret_event)))
        return;
    for (cl_uint i = 0; i < COUNT; i++)
        play->b_is[i] = play->a_is[i] * 3 + n;
}

/* Reads that succeed give what there is. */
static void read_back(struct play *play, cl_mem buffer, const cl_uint *is)
{
    cl_uint bytes[COUNT];
    cl_event event = NULL;
    struct engine_program *p = &play->program;
    if (WENT(clEnqueueReadBuffer(p->queue, buffer, CL_TRUE, 0, BYTES, bytes, 0, NULL, NULL)))
        cr_assert_arr_eq(bytes, is, BYTES);
    cl_uint *later = calloc(COUNT, sizeof(*later));
    if (WENT(clEnqueueReadBuffer(p->queue, buffer, CL_FALSE, 0, BYTES, later, 0, NULL, &event))) {
        watch(play, event);
        if (WENT(clWaitForEvents(1, &event)))
            cr_assert_arr_eq(later, is, BYTES);
        WENT(clReleaseEvent(event));
    }
    (void)clFinish(p->queue);
    free(later);
}

static void map_and_look(struct play *play, cl_mem buffer, const cl_uint *is)
{
    cl_int error;
    cl_command_queue queue = play->program.queue;
    void *map =
        clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, BYTES, 0, NULL, NULL, &error);
    if (!went(play, error, "clEnqueueMapBuffer"))
        return;
    cr_assert_arr_eq(map, is, BYTES);
    WENT(clEnqueueUnmapMemObject(queue, buffer, map, 0, NULL, NULL));
}

/* An event's status never goes back, and a command that the program saw end stays ended. */
static void ask_twice(struct play *play, cl_event event)
{
    cl_int first = CL_QUEUED, second = CL_QUEUED;
    cl_ulong time;
    WENT(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(first), &first, NULL));
    (void)clFinish(play->program.queue);
    WENT(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(second), &second, NULL));
    cr_assert_leq(second, CL_COMPLETE, "after a finish it is %d", second);
    if (first <= CL_COMPLETE)
        cr_assert_eq(second, first);
    WENT(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(time), &time, NULL));
}

static void compute(struct play *play)
{
    cl_event event = NULL;
    struct engine_program *p = &play->program;
    launch(play, 5, &event);
    if (event) {
        watch(play, event);
        WENT(clFlush(p->queue));
        ask_twice(play, event);
        WENT(clReleaseEvent(event));
    }
    read_back(play, play->b, play->b_is);
    if (WENT(clEnqueueCopyBuffer(p->queue, play->b, play->a, 0, 0, BYTES, 0, NULL, NULL)))
        memcpy(play->a_is, play->b_is, BYTES);
    launch(play, 11, NULL);
    map_and_look(play, play->b, play->b_is);
    WENT(clFinish(p->queue));
}

static void look(struct play *play)
{
    read_back(play, play->a, play->a_is);
    map_and_look(play, play->b, play->b_is);
    WENT(clFinish(play->program.queue));
}

/* Everything is let go of, which no lost device delays; every callback has come once. */
static void end(struct play *play)
{
    while (atomic_load(&play->called) < (int)play->registered && in_time(play))
        engine_rig_sleep(1);
    if (play->a)
        clReleaseMemObject(play->a);
    if (play->b)
        clReleaseMemObject(play->b);
    if (play->kernel)
        clReleaseKernel(play->kernel);
    if (play->program.program)
        clReleaseProgram(play->program.program);
    if (play->program.queue)
        clReleaseCommandQueue(play->program.queue);
    if (play->program.context)
        clReleaseContext(play->program.context);
    free(play->host_a);
    free(play->host_b);
    cr_assert(in_time(play));
    cr_assert_eq(atomic_load(&play->called), (int)play->registered);
}

static bool is_on(const char *name)
{
    struct device *device = atomic_load(&the_vdevs[0]->device);
    return device && strcmp(device->key.device, name) == 0;
}

/* The device is back for the next round, and so is the program. */
static void again(const struct engine_rig *rig, const char *name)
{
    (void)emu_shared_disarm(rig->emu, name);
    (void)emu_shared_restore(rig->emu, name);
    if (!is_on("a"))
        engine_rig_moves(rig, "a");
}

/* To where a replica is left of all that was written, or not at all: then it says so. True if it
 * went. */
static bool leave(struct play *play, const char *name)
{
    struct move_report report;
    enum move_result result = engine_rig_move(play->rig, name, &report);
    cr_assert(in_time(play));
    if (result != MOVE_DONE) {
        cr_assert_eq(result, MOVE_REFUSED, "%s", report.reason);
        cr_assert_not_null(strstr(report.reason, " is lost, and with it the latest bytes of "),
                           "%s", report.reason);
        cr_assert(report.lasting);
        return false;
    }
    play->failed = false;
    look(play);
    cr_assert_not(play->failed, "on the next device nothing fails");
    launch(play, 17, NULL);
    read_back(play, play->b, play->b_is);
    cr_assert_not(play->failed);
    return true;
}

/* Lost at the n-th call of a program that computes. False when it came to its end before. */
static bool lose_at(const struct engine_rig *rig, uint64_t n)
{
    struct play play;
    cr_assert_eq(emu_shared_arm(rig->emu, "a", n, NULL, EMU_ERROR_VANISH), 0);
    uint64_t before = emu_shared_fired(rig->emu, "a");
    bool made = begin(&play, rig);
    if (made)
        compute(&play);
    bool fired = emu_shared_fired(rig->emu, "a") != before;
    cr_assert(fired || !play.failed, "nothing was lost");
    if (made && fired)
        (void)leave(&play, "b");
    end(&play);
    again(rig, "a");
    return fired;
}

static void lose_at_each(const char *how)
{
    struct engine_rig rig;
    uint64_t n = 1;
    open_rig(&rig, how, "");
    for (; lose_at(&rig, n); n += every(2))
        cr_assert_lt(n, MOST_CALLS);
    cr_assert_gt(n, 20);
}

TestCall(lost, a_device_that_is_lost_at_any_call_gives_errors, lose_at_each(ways[0]),
         .timeout = 300);
TestCall(lost, a_device_that_is_lost_at_any_call_gives_strange_errors, lose_at_each(ways[1]),
         .timeout = 300);
TestCall(lost, a_device_that_is_lost_at_any_call_hangs, lose_at_each(ways[2]), .timeout = 300);

/* The program only reads: all that it lent still is the latest. */
static bool lose_and_keep(const struct engine_rig *rig, uint64_t n)
{
    struct play play;
    cr_assert(begin(&play, rig));
    look(&play);
    uint64_t before = emu_shared_fired(rig->emu, "a");
    cr_assert_eq(emu_shared_arm(rig->emu, "a", n, NULL, EMU_ERROR_VANISH), 0);
    look(&play);
    bool fired = emu_shared_fired(rig->emu, "a") != before;
    cr_assert(leave(&play, "b"));
    end(&play);
    again(rig, "a");
    return fired;
}

static void *finish(void *queue)
{
    return (void *)(intptr_t)clFinish(queue);
}

/* One that was under way when the device hung never ends; the next one is answered with an error.
 */
Test(lost, a_test_that_hangs_with_its_device_is_not_the_last, .timeout = 60)
{
    struct engine_rig rig;
    struct play play;
    pthread_t thread;
    void *error;
    lost_patience_ns = 40000000;
    engine_rig_open(&rig, "[a] name=a base=1 lost_hangs=yes engines=yes setup_us=300000 paced=add "
                          "items_per_s=1024");
    cr_assert(begin(&play, &rig));
    launch(&play, 3, NULL);
    uint64_t before = emu_shared_calls(rig.emu, "a", "clFinish");
    cr_assert_eq(pthread_create(&thread, NULL, finish, play.program.queue), 0);
    while (emu_shared_calls(rig.emu, "a", "clFinish") < before + 2)
        engine_rig_sleep(1);
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    pthread_join(thread, &error);
    cr_assert_eq((cl_int)(intptr_t)error, CL_OUT_OF_RESOURCES);
    cr_assert(vdev_is_lost(the_vdevs[0]));
    engine_rig_sleep(1500);
    end(&play);
}

/* A test has references of its own. It is not made where the driver gives none. */
Test(lost, a_test_that_gets_no_reference_releases_none, .timeout = 60)
{
    static const char *const calls[] = {"clRetainContext", "clRetainCommandQueue"};
    struct engine_rig rig;
    struct play play;
    lost_patience_ns = 40000000;
    engine_rig_open(&rig, "[a] name=a base=1 paced=add items_per_s=1024");
    cr_assert(begin(&play, &rig));
    for (unsigned i = 0; i < 2; i++) {
        cr_assert_eq(emu_shared_arm(rig.emu, "a", 1, calls[i], CL_OUT_OF_HOST_MEMORY), 0);
        launch(&play, 3, NULL);
        OK(clFinish(play.program.queue));
        cr_assert_eq(emu_shared_fired(rig.emu, "a"), i + 1);
    }
    cr_assert_eq(emu_shared_too_many(rig.emu, "a"), 0);
    end(&play);
    cr_assert_eq(emu_shared_too_many(rig.emu, "a"), 0);
}

Test(lost, what_has_a_replica_in_host_memory_goes_on_elsewhere, .timeout = 300)
{
    struct engine_rig rig;
    open_rig(&rig, "lost_hangs=yes", "");
    for (uint64_t n = 1; lose_and_keep(&rig, n); n += every(2))
        cr_assert_lt(n, MOST_CALLS);
}

/* The move, at whose n-th call of @lost that device is lost. */
static bool lose_in_move(const struct engine_rig *rig, const char *lost, uint64_t n)
{
    struct play play;
    struct move_report report;
    cr_assert(begin(&play, rig));
    compute(&play);
    cr_assert_not(play.failed);
    uint64_t before = emu_shared_fired(rig->emu, lost);
    cr_assert_eq(emu_shared_arm(rig->emu, lost, n, NULL, EMU_ERROR_VANISH), 0);
    enum move_result result = engine_rig_move(rig, "b", &report);
    bool fired = emu_shared_fired(rig->emu, lost) != before;
    cr_assert(in_time(&play));
    (void)emu_shared_disarm(rig->emu, lost);
    if (result == MOVE_DONE || strcmp(lost, "b") == 0) {
        /* M1: it is whole, here or there, unless it was lost once it was there. */
        bool gone = result == MOVE_DONE && fired && strcmp(lost, "b") == 0;
        cr_assert(is_on(result == MOVE_DONE ? "b" : "a"));
        look(&play);
        cr_assert(gone || !play.failed);
    } else {
        cr_assert(is_on("a"));
        cr_assert_not_null(strstr(report.reason, "lost"), "%s", report.reason);
        (void)leave(&play, "b");
    }
    end(&play);
    again(rig, lost);
    return fired;
}

Test(lost, a_target_lost_in_a_move_leaves_the_program_where_it_was, .timeout = 300)
{
    struct engine_rig rig;
    open_rig(&rig, "", "lost_hangs=yes");
    for (uint64_t n = 1; lose_in_move(&rig, "b", n); n += every(2))
        cr_assert_lt(n, MOST_CALLS);
}

Test(lost, a_source_lost_in_a_move_is_left_with_what_remains, .timeout = 300)
{
    struct engine_rig rig;
    open_rig(&rig, "lost_hangs=yes", "");
    for (uint64_t n = 1; lose_in_move(&rig, "a", n); n += every(2))
        cr_assert_lt(n, MOST_CALLS);
}

Test(lost, a_refusal_names_what_is_lost, .timeout = 60)
{
    struct engine_rig rig;
    struct play play;
    struct move_report report;
    char named[64];
    open_rig(&rig, "", "");
    cr_assert(begin(&play, &rig));
    launch(&play, 3, NULL); /* b alone has new bytes there */
    OK(clFinish(play.program.queue));
    cr_assert_not(vdev_is_lost(the_vdevs[0]));
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    cr_assert_eq(clFinish(play.program.queue), CL_OUT_OF_RESOURCES);
    cr_assert(vdev_is_lost(the_vdevs[0]));
    struct vdev_status status;
    status_vdev(0, &status);
    cr_assert(status.lost);
    cr_assert_eq(engine_rig_move(&rig, "b", &report), MOVE_REFUSED);
    snprintf(named, sizeof(named), "1 object: a buffer of %zu bytes (%p)", BYTES, (void *)play.b);
    cr_assert_not_null(strstr(report.reason, named), "%s", report.reason);
    cr_assert_eq(engine_rig_move(&rig, NULL, &report), MOVE_REFUSED);
    cr_assert_not_null(strstr(report.reason, named), "%s", report.reason);
    RELEASE(play.b, play.kernel);
    play.b = NULL;
    play.kernel = NULL;
    engine_rig_moves(&rig, "b");
    read_back(&play, play.a, play.a_is);
    status_vdev(0, &status);
    cr_assert_not(status.lost || vdev_is_lost(the_vdevs[0]));
    end(&play);
}

/* Errors that a lost device gives as well, once: the next command is as any other. */
Test(lost, an_error_of_a_device_that_answers_is_no_loss, .timeout = 60)
{
    static const cl_int errors[] = {CL_OUT_OF_RESOURCES, CL_INVALID_COMMAND_QUEUE,
                                    CL_DEVICE_NOT_AVAILABLE, -9999};
    static const char *const calls[] = {"clEnqueueCopyBuffer", "clFinish"};
    struct engine_rig rig;
    struct play play;
    open_rig(&rig, "", "");
    cr_assert(begin(&play, &rig));
    cl_command_queue queue = play.program.queue;
    for (size_t i = 0; i < ARRAY_SIZE(errors) * ARRAY_SIZE(calls); i++) {
        cl_int error = errors[i / 2];
        cr_assert_eq(emu_shared_arm(rig.emu, "a", 1, calls[i % 2], error), 0);
        cl_int copied = clEnqueueCopyBuffer(queue, play.a, play.b, 0, 0, BYTES, 0, NULL, NULL);
        cl_int finished = clFinish(queue);
        cr_assert(copied == error || finished == error || error == CL_OUT_OF_RESOURCES);
        cr_assert_not(vdev_is_lost(the_vdevs[0]), "after %d of %s", error, calls[i % 2]);
        launch(&play, (cl_uint)i, NULL);
        read_back(&play, play.b, play.b_is);
        cr_assert_not(play.failed);
    }
    end(&play);
}

static void *wait_for_all(void *data)
{
    struct play *play = data;
    (void)clFinish(play->program.queue);
    return NULL;
}

/* exit() with the device lost in the middle of a command that one thread waits for, and another
 * asked to be called back of. */
static void exit_without(const char *how)
{
    static struct engine_rig rig;
    static struct play play;
    char config[64];
    const size_t global = COUNT;
    pthread_t waiter;
    cl_event event;
    snprintf(config, sizeof(config), "%s launch_ms=200", how);
    open_rig(&rig, config, "");
    cr_assert(begin(&play, &rig));
    cl_uint n = 1;
    OK(clSetKernelArg(play.kernel, 2, sizeof(n), &n));
    OK(clEnqueueNDRangeKernel(play.program.queue, play.kernel, 1, NULL, &global, NULL, 0, NULL,
                              &event));
    watch(&play, event);
    cr_assert_eq(pthread_create(&waiter, NULL, wait_for_all, &play), 0);
    engine_rig_sleep(20);
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    exit(7);
}

TestCall(lost, a_program_whose_device_failed_ends, exit_without(""), .timeout = 60, .exit_code = 7);
TestCall(lost, a_program_whose_device_hangs_ends, exit_without("lost_hangs=yes"), .timeout = 60,
         .exit_code = 7);

/* Nobody waits in the driver: who looks at events notices. */
Test(lost, a_callback_comes_of_a_command_that_never_ends, .timeout = 60)
{
    struct engine_rig rig;
    struct play play;
    cl_event event = NULL;
    open_rig(&rig, "lost_hangs=yes launch_ms=100", "");
    cr_assert(begin(&play, &rig));
    cl_int error;
    cl_event gate = clCreateUserEvent(play.program.context, &error);
    const size_t global = COUNT;
    cl_uint n = 1;
    OK(clSetKernelArg(play.kernel, 2, sizeof(n), &n));
    OK(clEnqueueNDRangeKernel(play.program.queue, play.kernel, 1, NULL, &global, NULL, 0, NULL,
                              &event));
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    watch(&play, event);
    while (atomic_load(&play.called) == 0 && in_time(&play))
        engine_rig_sleep(1);
    cr_assert_eq(atomic_load(&play.called), 1);
    cl_int status = CL_QUEUED;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_eq(status, CL_OUT_OF_RESOURCES);
    OK(clReleaseEvent(event));
    /* A command that was held for the program ends in error once it is its turn. */
    OK(clEnqueueNDRangeKernel(play.program.queue, play.kernel, 1, NULL, &global, NULL, 1, &gate,
                              &event));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    cr_assert_eq(clWaitForEvents(1, &event), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_eq(status, CL_OUT_OF_RESOURCES);
    RELEASE(event, gate);
    end(&play);
}

Test(lost, a_lost_device_is_used_again_once_it_answers, .timeout = 60)
{
    struct engine_rig rig;
    struct play play;
    struct move_report report;
    open_rig(&rig, "", "");
    cr_assert(begin(&play, &rig));
    engine_rig_moves(&rig, "b");
    engine_rig_moves(&rig, "a");
    engine_rig_moves(&rig, NULL);
    engine_rig_moves(&rig, "a");
    cr_assert_eq(emu_shared_vanish(rig.emu, "a"), 0);
    cr_assert_eq(clFinish(play.program.queue), CL_OUT_OF_RESOURCES);
    engine_rig_moves(&rig, "b");
    cr_assert_neq(engine_rig_move(&rig, "a", &report), MOVE_DONE);
    cr_assert(is_on("b"));
    look(&play);
    cr_assert_not(play.failed);
    cr_assert_eq(emu_shared_restore(rig.emu, "a"), 0);
    engine_rig_moves(&rig, "a");
    look(&play);
    cr_assert_not(play.failed);
    end(&play);
}

/* Host memory is given back where a device has the bytes, and a lost one has none. */
Test(lost, host_memory_keeps_what_was_on_a_lost_device, .timeout = 60)
{
    enum { ONE, TWO, THREE };
    struct engine_rig rig;
    struct move_report report;
    cl_command_queue queues[3];
    cl_uint bytes[COUNT], is[COUNT];
    open_rig(&rig, "", "\n[c] base=1 name=c own_memory=yes\n[d] base=1 name=d own_memory=yes\n");
    const cl_device_id devices[] = {rig.device, engine_rig_vdev(&rig, "b"),
                                    engine_rig_vdev(&rig, "c")};
    cl_context context = MADE(clCreateContext, NULL, 3, devices, NULL, NULL);
    for (int i = ONE; i <= THREE; i++)
        queues[i] = MADE(clCreateCommandQueue, context, devices[i], 0);
    for (cl_uint i = 0; i < COUNT; i++)
        is[i] = i * 5 + 2;
    cl_mem buffer = engine_buffer(context, CL_MEM_READ_WRITE, BYTES, NULL);
    OK(clEnqueueWriteBuffer(queues[ONE], buffer, CL_TRUE, 0, BYTES, is, 0, NULL, NULL));
    engine_rig_moves(&rig, NULL);
    engine_read_there(queues[TWO], buffer, 0, BYTES, bytes);
    cr_assert_arr_eq(bytes, is, BYTES);
    cr_assert_eq(emu_shared_vanish(rig.emu, "b"), 0);
    cr_assert_eq(clFinish(queues[TWO]), CL_OUT_OF_RESOURCES);
    cr_assert(vdev_is_lost(the_vdevs[TWO]));
    struct move_request request = {.target = engine_rig_key(&rig, "d")};
    for (request.vdev = THREE; request.vdev >= TWO; request.vdev--) {
        move_run(&request, &report);
        cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
    }
    memset(bytes, 0, BYTES);
    engine_read_there(queues[TWO], buffer, 0, BYTES, bytes);
    cr_assert_arr_eq(bytes, is, BYTES);
    OK(clReleaseMemObject(buffer));
    for (int i = ONE; i <= THREE; i++)
        OK(clReleaseCommandQueue(queues[i]));
    OK(clReleaseContext(context));
}
