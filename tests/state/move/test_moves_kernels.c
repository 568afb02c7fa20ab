#include <pthread.h>

#include "state/program/kernel_priv.h"
#include "tests/state/move/test_moves_devices.h"

/* Kernels on the move: threads that share them, launches that a device cannot run. */

/* What a mover compares was forgotten: as if the launch had come while it was about to commit. */
static void forget_launches(cl_kernel kernel)
{
    atomic_store(&((struct kernel *)kernel)->details->marks.group_size, 0);
}

#define GROUPS "[one] name=one [two] name=two kernel_work_group_size=add:16"
#define LOCALS "[one] name=one local_memory=8KiB [two] name=two local_memory=4KiB"

static const char turning[] = "__kernel void turn(__global uint *out, __local uint *part)"
                              "{ size_t i = get_global_id(0), l = get_local_id(0);"
                              "  part[l] = out[i]; out[i] = part[l] + 1; }";

/* Counters that are 1, a kernel that adds to them, and what a held launch waits for. */
struct scene {
    struct engine_program p;
    cl_mem buffer;
    cl_kernel kernel;
    cl_event go;
};

/* @local: bytes of local memory of `turn`; 0: `add` adds 5. */
static void scene_open(struct scene *s, const char *config, size_t local)
{
    engine_rig_open(&rig, config);
    engine_program_open(&rig, 0, local ? turning : SOURCE, &s->p);
    s->buffer = counters(s->p.context, 1);
    s->kernel = local ? engine_kernel(s->p.program, "turn") : adder(s->p.program, s->buffer, 5);
    s->go = MADE(clCreateUserEvent, s->p.context);
    if (local) {
        OK(clSetKernelArg(s->kernel, 0, sizeof(s->buffer), &s->buffer));
        OK(clSetKernelArg(s->kernel, 1, local, NULL));
    }
}

static cl_int scene_launch(struct scene *s, size_t group, bool held, cl_event *ret_event)
{
    const size_t items = WORDS;
    return clEnqueueNDRangeKernel(s->p.queue, s->kernel, 1, NULL, &items, group ? &group : NULL,
                                  held, held ? &s->go : NULL, ret_event);
}

static void scene_forget_local_memory(struct scene *s)
{
    atomic_store(&((struct kernel *)s->kernel)->details->marks.local_memory, 0);
    usage_renew();
}

/* The counters are that, and the program is there. */
static void scene_check(struct scene *s, cl_uint expected, const char *place)
{
    check_counters(s->p.queue, s->buffer, expected);
    cr_assert_str_eq(place_of_vdev(), place);
}

static void scene_close(struct scene *s)
{
    RELEASE(s->go, s->kernel, s->buffer);
    engine_program_close(&s->p);
}

Test(moves_kernels, held_launches_go_back_to_where_they_can_run)
{
    struct scene s;
    scene_open(&s, GROUPS, 0);
    OK(scene_launch(&s, 64, true, NULL));
    forget_launches(s.kernel);
    engine_rig_moves(&rig, "two");
    cr_assert_str_eq(place_of_vdev(), "two");
    OK(clSetUserEventStatus(s.go, CL_COMPLETE));
    scene_check(&s, 6, "one");
    scene_close(&s);
}

/* What became ready while the program was suspended, and cannot run where it is resumed. */
Test(moves_kernels, held_launches_go_back_from_where_they_were_resumed, .timeout = 60)
{
    struct scene s;
    scene_open(&s, GROUPS, 0);
    OK(scene_launch(&s, 64, true, NULL));
    forget_launches(s.kernel);
    engine_rig_moves(&rig, NULL);
    OK(clSetUserEventStatus(s.go, CL_COMPLETE));
    engine_rig_moves(&rig, "two");
    scene_check(&s, 6, "one");
    scene_close(&s);
}

/* Nobody but the mover can issue it: the program only waits. */
Test(moves_kernels, what_became_ready_during_a_suspension_runs_at_the_resume, .timeout = 60)
{
    struct scene s;
    cl_event done;
    cl_int status = CL_QUEUED;
    scene_open(&s, "[one] name=one", 0);
    OK(scene_launch(&s, 0, true, &done));
    engine_rig_moves(&rig, NULL);
    OK(clSetUserEventStatus(s.go, CL_COMPLETE));
    engine_rig_moves(&rig, "one");
    uint64_t until = engine_rig_now() + 20000000000u;
    while (status > CL_COMPLETE && engine_rig_now() < until) {
        OK(clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
        engine_rig_sleep(1);
    }
    cr_assert_eq(status, CL_COMPLETE, "status %d", status);
    scene_check(&s, 6, "one");
    RELEASE(done);
    scene_close(&s);
}

Test(moves_kernels, held_launches_go_back_to_where_there_is_enough_local_memory, .timeout = 60)
{
    struct scene s;
    scene_open(&s, LOCALS, 8192);
    OK(scene_launch(&s, 0, true, NULL));
    scene_forget_local_memory(&s);
    engine_rig_moves(&rig, "two");
    OK(clSetKernelArg(s.kernel, 1, 64, NULL)); /* what counts is what it was enqueued with */
    OK(clSetUserEventStatus(s.go, CL_COMPLETE));
    scene_check(&s, 2, "one");
    scene_close(&s);
}

/* There are drivers that end the process for more local memory than there is: this one would fail
 * in another way. */
Test(moves_kernels, no_driver_is_given_more_local_memory_than_there_is, .timeout = 60)
{
    struct scene s;
    scene_open(&s, LOCALS, 8192);
    engine_rig_moves(&rig, "two");
    cr_assert_eq(emu_shared_arm(rig.emu, "two", 1, "clEnqueueNDRangeKernel", CL_INVALID_VALUE), 0);
    OK(scene_launch(&s, 0, false, NULL));
    scene_check(&s, 2, "one");
    OK(scene_launch(&s, 0, true, NULL));
    scene_forget_local_memory(&s);
    engine_rig_moves(&rig, "two");
    OK(clSetUserEventStatus(s.go, CL_COMPLETE));
    scene_check(&s, 3, "one");
    scene_close(&s);
}

/* It goes to where it was, and back, and not for ever. */
Test(moves_kernels, launches_that_no_device_can_run_are_refused, .timeout = 60)
{
    struct scene s;
    scene_open(&s, LOCALS, 16384);
    engine_rig_moves(&rig, "two");
    cr_assert_eq(scene_launch(&s, 0, false, NULL), CL_OUT_OF_RESOURCES);
    OK(clSetKernelArg(s.kernel, 1, 4096, NULL));
    OK(scene_launch(&s, 0, false, NULL));
    check_counters(s.p.queue, s.buffer, 2);
    scene_close(&s);
}

/* POCL takes more than it says it takes, on each of its devices. */
Test(moves_kernels, arguments_beyond_what_a_device_says_it_takes_move, .timeout = 60)
{
    enum { LARGE = 1024 };
    static const char text[] = "typedef struct { uint words[1024]; } large;"
                               "__kernel void pick(__global uint *out, large l)"
                               "{ size_t i = get_global_id(0); out[i] = l.words[i % 1024]; }";
    struct engine_program p;
    const size_t items = WORDS;
    cl_uint large[LARGE], got[WORDS];
    engine_rig_open(&rig, "[one] name=one [two] name=two base=1");
    engine_program_open(&rig, 0, text, &p);
    cl_mem buffer = counters(p.context, 1);
    cl_kernel pick = engine_kernel(p.program, "pick");
    for (cl_uint i = 0; i < LARGE; i++)
        large[i] = i * 7;
    OK(clSetKernelArg(pick, 0, sizeof(buffer), &buffer));
    OK(clSetKernelArg(pick, 1, sizeof(large), large));
    OK(clEnqueueNDRangeKernel(p.queue, pick, 1, NULL, &items, NULL, 0, NULL, NULL));
    engine_rig_moves(&rig, "two");
    OK(clEnqueueFillBuffer(p.queue, buffer, &(cl_uint){0}, 4, 0, sizeof(got), 0, NULL, NULL));
    OK(clEnqueueNDRangeKernel(p.queue, pick, 1, NULL, &items, NULL, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(p.queue, buffer, CL_TRUE, 0, sizeof(got), got, 0, NULL, NULL));
    for (cl_uint i = 0; i < WORDS; i++)
        cr_assert_eq(got[i], i % LARGE * 7);
    cr_assert_str_eq(place_of_vdev(), "two");
    RELEASE(pick, buffer);
    engine_program_close(&p);
}

/* A launch is made, or held, on a device that cannot run it while its origin is gone. */
static void origin_is_gone(bool held)
{
    struct scene s;
    scene_open(&s, "[one] name=one [two] name=two [three] name=three kernel_work_group_size=add:16",
               0);
    engine_rig_moves(&rig, "two");
    if (held)
        OK(scene_launch(&s, 64, true, NULL));
    forget_launches(s.kernel);
    engine_rig_moves(&rig, "three");
    cr_assert_eq(emu_shared_vanish(rig.emu, "one"), 0);
    if (!held)
        OK(scene_launch(&s, 64, false, NULL));
    OK(clSetUserEventStatus(s.go, CL_COMPLETE));
    scene_check(&s, 6, "two");
    scene_close(&s);
}

TestCall(moves_kernels, launches_go_to_the_device_before_where_the_first_is_gone,
         origin_is_gone(false));
TestCall(moves_kernels, held_launches_go_to_the_device_before_where_the_first_is_gone,
         origin_is_gone(true));

/* No device can run it by then: its event says so, and what follows is not kept waiting. */
Test(moves_kernels, held_launches_that_no_device_can_run_end_in_error)
{
    struct scene s;
    cl_event done;
    cl_int status = 0;
    scene_open(&s, GROUPS, 0);
    OK(scene_launch(&s, 64, true, &done));
    forget_launches(s.kernel);
    engine_rig_moves(&rig, "two");
    cr_assert_eq(emu_shared_vanish(rig.emu, "one"), 0);
    OK(clSetUserEventStatus(s.go, CL_COMPLETE));
    cr_assert_eq(clWaitForEvents(1, &done), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_eq(status, CL_INVALID_WORK_GROUP_SIZE);
    check_counters(s.p.queue, s.buffer, 1);
    RELEASE(done);
    scene_close(&s);
}

/* One kernel, launched by several threads at once, on queues of their own. */
#define LAUNCHERS 3
static const char counting[] = "__kernel void count(__global uint *words, uint value)\n"
                               "{ atomic_add(&words[get_global_id(0)], value); }\n";
struct launcher {
    pthread_t thread;
    cl_kernel kernel;
    cl_command_queue queue;
    unsigned launches;
};
static atomic_bool stop;

static void *launch_on(void *data)
{
    struct launcher *l = data;
    const size_t items = WORDS;
    while (!atomic_load(&stop)) {
        cl_int error =
            clEnqueueNDRangeKernel(l->queue, l->kernel, 1, NULL, &items, NULL, 0, NULL, NULL);
        if (error == CL_SUCCESS)
            error = clFinish(l->queue);
        cr_assert_eq(error, CL_SUCCESS, "%d", error);
        l->launches++;
    }
    return NULL;
}

Test(moves_kernels, one_kernel_is_launched_by_many_threads, .timeout = 240)
{
    struct engine_program p;
    struct launcher launchers[LAUNCHERS];
    cl_uint value = 3, sum = 0;
    engine_rig_open(&rig, "[one] name=one base=1 [two] name=two base=1");
    engine_program_open(&rig, 0, counting, &p);
    cl_mem buffer = counters(p.context, 0);
    cl_kernel kernel = engine_kernel(p.program, "count");
    ARGS(kernel, buffer, value);
    for (int i = 0; i < LAUNCHERS; i++) {
        launchers[i] = (struct launcher){.kernel = kernel};
        launchers[i].queue = MADE(clCreateCommandQueue, p.context, rig.device, 0);
        cr_assert_eq(pthread_create(&launchers[i].thread, NULL, launch_on, &launchers[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        engine_rig_moves(&rig, i % 2 ? "one" : "two");
        engine_rig_sleep(2);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < LAUNCHERS; i++) {
        cr_assert_eq(pthread_join(launchers[i].thread, NULL), 0);
        sum += launchers[i].launches * value;
        OK(clReleaseCommandQueue(launchers[i].queue));
    }
    cr_assert_gt(sum, 0);
    check_counters(p.queue, buffer, sum);
    RELEASE(kernel, buffer);
    engine_program_close(&p);
    for (int i = 0; i < 2; i++)
        cr_assert(engine_rig_empties(&rig, i ? "one" : "two"), "alive: %s",
                  engine_rig_alive(&rig, i ? "one" : "two"));
}

/* Builds that call back, while the program moves. */
struct built {
    _Atomic unsigned calls, good;
    cl_device_id device;
};

static void CL_CALLBACK built_call(cl_program program, void *data)
{
    struct built *built = data;
    cl_build_status status = CL_BUILD_NONE;
    clGetProgramBuildInfo(program, built->device, CL_PROGRAM_BUILD_STATUS, sizeof(status), &status,
                          NULL);
    atomic_fetch_add(&built->good, status == CL_BUILD_SUCCESS);
    atomic_fetch_add(&built->calls, 1);
}

Test(moves_kernels, builds_in_the_background_call_back_once_each, .timeout = 240)
{
    enum { BUILDS = 6 };
    static struct built built;
    struct engine_program p;
    cl_program programs[BUILDS];
    cl_build_status status = CL_BUILD_NONE;
    engine_rig_open(&rig, "[one] name=one build_ms=600 [two] name=two build_ms=20");
    engine_program_open(&rig, 0, SOURCE, &p);
    built.device = rig.device;
    for (int i = 0; i < BUILDS; i++) {
        const char *text = counting;
        programs[i] = MADE(clCreateProgramWithSource, p.context, 1, &text, NULL);
        OK(clBuildProgram(programs[i], 0, NULL, "", built_call, &built));
    }
    OK(clGetProgramBuildInfo(programs[BUILDS - 1], rig.device, CL_PROGRAM_BUILD_STATUS,
                             sizeof(status), &status, NULL));
    cr_assert_eq(status, CL_BUILD_IN_PROGRESS);
    cr_assert_eq(clBuildProgram(programs[BUILDS - 1], 0, NULL, "", NULL, NULL),
                 CL_INVALID_OPERATION);
    engine_rig_moves(&rig, "two");
    for (int i = 0; i < BUILDS; i++) {
        cl_kernel kernel = engine_kernel(programs[i], "count");
        OK(clReleaseKernel(kernel));
    }
    uint64_t until = engine_rig_now() + 60000000000u;
    while (atomic_load(&built.calls) < BUILDS && engine_rig_now() < until)
        engine_rig_sleep(5);
    engine_rig_moves(&rig, "one");
    cr_assert_eq(atomic_load(&built.calls), BUILDS);
    cr_assert_eq(atomic_load(&built.good), BUILDS);
    for (int i = 0; i < BUILDS; i++)
        OK(clReleaseProgram(programs[i]));
    engine_program_close(&p);
    for (int i = 0; i < 2; i++)
        cr_assert(engine_rig_empties(&rig, i ? "one" : "two"), "alive: %s",
                  engine_rig_alive(&rig, i ? "one" : "two"));
}
