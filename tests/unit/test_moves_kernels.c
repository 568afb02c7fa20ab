#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "state/kernel_priv.h"
#include "tests/unit/test_moves_common.h"

/* Programs and kernels on the move: threads that share them, launches that a device cannot run,
 * devices of which one is suspended. */

static struct engine_rig rig;

static cl_mem counters(cl_context context, cl_uint first)
{
    cl_uint words[WORDS];
    for (size_t i = 0; i < WORDS; i++)
        words[i] = first;
    return engine_buffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, SIZE, words);
}

static void check_counters(cl_command_queue queue, cl_mem buffer, cl_uint expected)
{
    cl_uint words[WORDS];
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], expected, "word %zu: %u, not %u", i, words[i], expected);
}

static cl_kernel adder(cl_program program, cl_mem buffer, cl_uint value)
{
    cl_kernel kernel = engine_kernel(program, "add");
    OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof(value), &value));
    return kernel;
}

/* What a mover compares was forgotten: as if the launch had come while it was about to commit. */
static void forget_launches(cl_kernel kernel)
{
    atomic_store(&((struct kernel *)kernel)->details->marks.group_size, 0);
}

Test(moves_kernels, held_launches_go_back_to_where_they_can_run)
{
    struct engine_program p;
    const size_t items = WORDS, group = 64;
    cl_int error;
    engine_rig_open(&rig, "[one] name=one [two] name=two kernel_work_group_size=add:16");
    engine_program_open(&rig, 0, SOURCE, &p);
    cl_mem buffer = counters(p.context, 1);
    cl_kernel add = adder(p.program, buffer, 5);
    cl_event go = clCreateUserEvent(p.context, &error);
    OK(error);
    OK(clEnqueueNDRangeKernel(p.queue, add, 1, NULL, &items, &group, 1, &go, NULL));
    forget_launches(add);
    engine_rig_moves(&rig, "two");
    cr_assert_str_eq(place_of_seat(), "two");
    OK(clSetUserEventStatus(go, CL_COMPLETE));
    check_counters(p.queue, buffer, 6);
    cr_assert_str_eq(place_of_seat(), "one");
    OK(clReleaseEvent(go));
    OK(clReleaseKernel(add));
    OK(clReleaseMemObject(buffer));
    engine_program_close(&p);
}

/* A launch is made, or held, on a device that cannot run it while its origin is gone. */
static void origin_is_gone(bool held)
{
    struct engine_program p;
    const size_t items = WORDS, group = 64;
    cl_int error;
    engine_rig_open(&rig, "[one] name=one [two] name=two [three] name=three "
                          "kernel_work_group_size=add:16");
    engine_program_open(&rig, 0, SOURCE, &p);
    cl_mem buffer = counters(p.context, 1);
    cl_kernel add = adder(p.program, buffer, 5);
    cl_event go = clCreateUserEvent(p.context, &error);
    OK(error);
    engine_rig_moves(&rig, "two");
    if (held)
        OK(clEnqueueNDRangeKernel(p.queue, add, 1, NULL, &items, &group, 1, &go, NULL));
    forget_launches(add);
    engine_rig_moves(&rig, "three");
    cr_assert_eq(emu_shared_vanish(rig.emu, "one"), 0);
    if (!held)
        OK(clEnqueueNDRangeKernel(p.queue, add, 1, NULL, &items, &group, 0, NULL, NULL));
    OK(clSetUserEventStatus(go, CL_COMPLETE));
    check_counters(p.queue, buffer, 6);
    cr_assert_str_eq(place_of_seat(), "two");
    OK(clReleaseEvent(go));
    OK(clReleaseKernel(add));
    OK(clReleaseMemObject(buffer));
    engine_program_close(&p);
}

Test(moves_kernels, launches_go_to_the_device_before_where_the_first_is_gone)
{
    origin_is_gone(false);
}

Test(moves_kernels, held_launches_go_to_the_device_before_where_the_first_is_gone)
{
    origin_is_gone(true);
}

/* No device can run it by then: its event says so, and what follows is not kept waiting. */
Test(moves_kernels, held_launches_that_no_device_can_run_end_in_error)
{
    struct engine_program p;
    const size_t items = WORDS, group = 64;
    cl_int error, status = 0;
    engine_rig_open(&rig, "[one] name=one [two] name=two kernel_work_group_size=add:16");
    engine_program_open(&rig, 0, SOURCE, &p);
    cl_mem buffer = counters(p.context, 1);
    cl_kernel add = adder(p.program, buffer, 5);
    cl_event go = clCreateUserEvent(p.context, &error), done;
    OK(error);
    OK(clEnqueueNDRangeKernel(p.queue, add, 1, NULL, &items, &group, 1, &go, &done));
    forget_launches(add);
    engine_rig_moves(&rig, "two");
    cr_assert_eq(emu_shared_vanish(rig.emu, "one"), 0);
    OK(clSetUserEventStatus(go, CL_COMPLETE));
    cr_assert_eq(clWaitForEvents(1, &done), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    cr_assert_eq(status, CL_INVALID_WORK_GROUP_SIZE);
    check_counters(p.queue, buffer, 1);
    OK(clReleaseEvent(done));
    OK(clReleaseEvent(go));
    OK(clReleaseKernel(add));
    OK(clReleaseMemObject(buffer));
    engine_program_close(&p);
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
    cl_int error;
    cl_uint value = 3, sum = 0;
    engine_rig_open(&rig, "[one] name=one base=1 [two] name=two base=1");
    engine_program_open(&rig, 0, counting, &p);
    cl_mem buffer = counters(p.context, 0);
    cl_kernel kernel = engine_kernel(p.program, "count");
    OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof(value), &value));
    for (int i = 0; i < LAUNCHERS; i++) {
        launchers[i] = (struct launcher){.kernel = kernel};
        launchers[i].queue = clCreateCommandQueue(p.context, rig.device, 0, &error);
        OK(error);
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
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
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
    cl_int error;
    engine_rig_open(&rig, "[one] name=one build_ms=600 [two] name=two build_ms=20");
    engine_program_open(&rig, 0, SOURCE, &p);
    built.device = rig.device;
    for (int i = 0; i < BUILDS; i++) {
        const char *text = counting;
        programs[i] = clCreateProgramWithSource(p.context, 1, &text, NULL, &error);
        OK(error);
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

/* Two virtual devices in one context. */
struct both {
    cl_device_id devices[2];
    cl_context context;
    cl_command_queue queues[2];
};

static void both_open(struct both *both, const char *config)
{
    cl_int error;
    engine_rig_open(&rig, config);
    both->devices[0] = rig.device;
    both->devices[1] = engine_rig_seat(&rig, "two");
    both->context = clCreateContext(NULL, 2, both->devices, NULL, NULL, &error);
    OK(error);
    for (int i = 0; i < 2; i++) {
        both->queues[i] = clCreateCommandQueue(both->context, both->devices[i], 0, &error);
        OK(error);
    }
}

static void both_close(struct both *both)
{
    for (int i = 0; i < 2; i++)
        OK(clReleaseCommandQueue(both->queues[i]));
    OK(clReleaseContext(both->context));
}

static void move_seat(uint32_t seat, const char *name)
{
    struct move_request request = {.target = name ? engine_rig_key(&rig, name) : NULL,
                                   .seat = seat};
    struct move_report report;
    move_run(&request, &report);
    cr_assert_eq(report.result, MOVE_DONE, "%s", report.reason);
}

static cl_program make_program(struct both *both, const char *text)
{
    cl_int error;
    cl_program program = clCreateProgramWithSource(both->context, 1, &text, NULL, &error);
    OK(error);
    return program;
}

static void *resume_later(void *seat)
{
    engine_rig_sleep(200);
    move_seat((uint32_t)(uintptr_t)seat, seat ? "two" : "one");
    return NULL;
}

/* @seat is suspended: the other one goes on, and what needs it waits for it. */
static void one_is_suspended(uint32_t seat)
{
    struct both both;
    pthread_t thread;
    cl_uint value = 7;
    const size_t items = WORDS;
    const uint32_t other = 1 - seat;
    both_open(&both, CONFIG);
    cl_program program = make_program(&both, SOURCE);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    cl_mem buffer = counters(both.context, 1);
    cl_kernel add = adder(program, buffer, 5);
    move_seat(seat, NULL);
    OK(clSetKernelArg(add, 1, sizeof(value), &value));
    OK(clEnqueueNDRangeKernel(both.queues[other], add, 1, NULL, &items, NULL, 0, NULL, NULL));
    cl_kernel more = adder(program, buffer, 2);
    OK(clEnqueueNDRangeKernel(both.queues[other], more, 1, NULL, &items, NULL, 0, NULL, NULL));
    check_counters(both.queues[other], buffer, 10);
    cl_program late = make_program(&both, SOURCE "\n");
    OK(clBuildProgram(late, 1, &both.devices[other], "", NULL, NULL));
    OK(clReleaseProgram(late));
    cr_assert_eq(pthread_create(&thread, NULL, resume_later, (void *)(uintptr_t)seat), 0);
    OK(clEnqueueNDRangeKernel(both.queues[seat], add, 1, NULL, &items, NULL, 0, NULL, NULL));
    check_counters(both.queues[seat], buffer, 17);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    OK(clReleaseKernel(more));
    OK(clReleaseKernel(add));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseProgram(program));
    both_close(&both);
}

Test(moves_kernels, a_suspended_first_device_does_not_stop_the_second, .timeout = 60)
{
    one_is_suspended(0);
}

Test(moves_kernels, a_suspended_second_device_does_not_stop_the_first, .timeout = 60)
{
    one_is_suspended(1);
}

Test(moves_kernels, a_program_of_the_second_device_alone_has_kernels_for_it)
{
    struct both both;
    const size_t items = WORDS;
    both_open(&both, CONFIG);
    cl_program program = make_program(&both, SOURCE);
    OK(clBuildProgram(program, 1, &both.devices[1], "", NULL, NULL));
    cl_mem buffer = counters(both.context, 1);
    cl_kernel add = adder(program, buffer, 5);
    cr_assert_eq(clEnqueueNDRangeKernel(both.queues[0], add, 1, NULL, &items, NULL, 0, NULL, NULL),
                 CL_INVALID_PROGRAM_EXECUTABLE);
    OK(clEnqueueNDRangeKernel(both.queues[1], add, 1, NULL, &items, NULL, 0, NULL, NULL));
    move_seat(1, "one");
    cl_uint value = 6;
    OK(clSetKernelArg(add, 1, sizeof(value), &value));
    OK(clEnqueueNDRangeKernel(both.queues[1], add, 1, NULL, &items, NULL, 0, NULL, NULL));
    cr_assert_eq(clEnqueueNDRangeKernel(both.queues[0], add, 1, NULL, &items, NULL, 0, NULL, NULL),
                 CL_INVALID_PROGRAM_EXECUTABLE);
    check_counters(both.queues[1], buffer, 12);
    OK(clReleaseKernel(add));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseProgram(program));
    both_close(&both);
}

Test(moves_kernels, a_link_is_made_for_the_devices_that_all_inputs_were_compiled_for)
{
    static const char function[] = "uint f(uint x) { return x + 2; }";
    static const char user[] = "uint f(uint x); kernel void k(global uint *a)\n"
                               "{ a[get_global_id(0)] = f(a[get_global_id(0)]); }";
    struct both both;
    cl_int error;
    cl_build_status status[2];
    const size_t items = WORDS;
    both_open(&both, CONFIG);
    cl_program parts[2] = {make_program(&both, function), make_program(&both, user)};
    OK(clCompileProgram(parts[0], 0, NULL, "", 0, NULL, NULL, NULL, NULL));
    OK(clCompileProgram(parts[1], 1, &both.devices[1], "", 0, NULL, NULL, NULL, NULL));
    cr_assert_null(clLinkProgram(both.context, 0, NULL, "", 2, parts, NULL, NULL, &error));
    cr_assert_eq(error, CL_INVALID_OPERATION);
    cl_program whole =
        clLinkProgram(both.context, 1, &both.devices[1], "", 2, parts, NULL, NULL, &error);
    OK(error);
    cl_program alone =
        clLinkProgram(both.context, 0, NULL, "-create-library", 1, &parts[1], NULL, NULL, &error);
    OK(error);
    for (int i = 0; i < 2; i++)
        OK(clGetProgramBuildInfo(alone, both.devices[i], CL_PROGRAM_BUILD_STATUS, sizeof(status[i]),
                                 &status[i], NULL));
    cr_assert_eq(status[0], CL_BUILD_NONE);
    cr_assert_eq(status[1], CL_BUILD_SUCCESS);
    cl_mem buffer = counters(both.context, 40);
    cl_kernel kernel = engine_kernel(whole, "k");
    OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
    OK(clEnqueueNDRangeKernel(both.queues[1], kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
    check_counters(both.queues[1], buffer, 42);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseProgram(alone));
    OK(clReleaseProgram(whole));
    for (int i = 0; i < 2; i++)
        OK(clReleaseProgram(parts[i]));
    both_close(&both);
}

/* @kernel is launched in every way on the first device, for which it was not built. */
static void expect_no_executable(struct both *both, cl_kernel kernel)
{
    const size_t items = WORDS, one = 1;
    cl_int error;
    cl_event event = NULL, user = clCreateUserEvent(both->context, &error);
    OK(error);
    for (int held = 0; held < 2; held++) {
        cl_uint waits = held ? 1 : 0;
        const cl_event *list = held ? &user : NULL;
        cr_expect_eq(clEnqueueNDRangeKernel(both->queues[0], kernel, 1, NULL, &items, NULL, waits,
                                            list, &event),
                     CL_INVALID_PROGRAM_EXECUTABLE);
        cr_expect_eq(clEnqueueNDRangeKernel(both->queues[0], kernel, 1, NULL, &items, &one, waits,
                                            list, NULL),
                     CL_INVALID_PROGRAM_EXECUTABLE);
        cr_expect_eq(clEnqueueTask(both->queues[0], kernel, waits, list, &event),
                     CL_INVALID_PROGRAM_EXECUTABLE);
        cr_expect_null(event);
    }
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    OK(clReleaseEvent(user));
}

static cl_int group_size(cl_kernel kernel, cl_device_id device)
{
    size_t size = 0;
    cl_int error = clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof(size),
                                            &size, NULL);
    cr_expect_eq(size != 0, error == CL_SUCCESS);
    return error;
}

Test(moves_kernels, a_program_runs_only_on_the_devices_that_it_was_built_for)
{
    static const char *const places[][2] = {
        {"one", "two"}, {"one", "one"}, {"two", "one"}, {"two", "two"}, {"one", "two"}};
    struct both both;
    cl_int error;
    cl_uint value = 5;
    const size_t items = WORDS;
    both_open(&both, CONFIG);
    cl_program program = make_program(&both, SOURCE), whole = make_program(&both, SOURCE "\n");
    OK(clBuildProgram(program, 1, &both.devices[1], "", NULL, NULL));
    OK(clBuildProgram(whole, 0, NULL, "", NULL, NULL));
    cl_mem buffer = counters(both.context, 0);
    cl_kernel add = adder(program, buffer, value), clone = clCloneKernel(add, &error);
    OK(error);
    cl_kernel anywhere = adder(whole, buffer, 1);
    for (unsigned i = 0; i < ARRAY_SIZE(places); i++) {
        for (uint32_t seat = 0; seat < 2 && i > 0; seat++)
            if (strcmp(places[i][seat], places[i - 1][seat]) != 0)
                move_seat(seat, places[i][seat]);
        expect_no_executable(&both, add);
        expect_no_executable(&both, clone);
        cr_expect_eq(group_size(add, both.devices[0]), CL_INVALID_DEVICE);
        cr_expect_eq(group_size(anywhere, NULL), CL_INVALID_DEVICE);
        OK(group_size(add, both.devices[1]));
        OK(group_size(add, NULL));
        OK(group_size(anywhere, both.devices[0]));
        OK(clEnqueueNDRangeKernel(both.queues[1], add, 1, NULL, &items, NULL, 0, NULL, NULL));
        OK(clFinish(both.queues[1]));
        OK(clEnqueueNDRangeKernel(both.queues[0], anywhere, 1, NULL, &items, NULL, 0, NULL, NULL));
        check_counters(both.queues[0], buffer, (i + 1) * (value + 1));
    }
    OK(clReleaseKernel(anywhere));
    OK(clReleaseKernel(clone));
    OK(clReleaseKernel(add));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseProgram(whole));
    OK(clReleaseProgram(program));
    both_close(&both);
}

/* Launch what @program has on both queues; the counters then say so. */
static void run_everywhere(struct both *both, cl_program program)
{
    const size_t items = WORDS;
    cl_mem buffer = counters(both->context, 3);
    cl_kernel add = adder(program, buffer, 4);
    for (int i = 0; i < 2; i++) {
        OK(clEnqueueNDRangeKernel(both->queues[i], add, 1, NULL, &items, NULL, 0, NULL, NULL));
        OK(clFinish(both->queues[i]));
    }
    check_counters(both->queues[0], buffer, 11);
    OK(clReleaseKernel(add));
    OK(clReleaseMemObject(buffer));
}

/* The second is resumed while the call below waits for it. */
static void build_everywhere(struct both *both, cl_program program)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, resume_later, (void *)(uintptr_t)1), 0);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    cr_assert_eq(pthread_join(thread, NULL), 0);
    run_everywhere(both, program);
}

Test(moves_kernels, programs_are_made_while_one_device_is_suspended, .timeout = 60)
{
    struct both both;
    cl_int error, status[2];
    size_t sizes[2];
    both_open(&both, CONFIG);
    cl_program model = make_program(&both, SOURCE);
    OK(clBuildProgram(model, 0, NULL, "", NULL, NULL));
    move_seat(1, NULL);
    cl_program late = make_program(&both, SOURCE "\n");
    OK(clGetProgramInfo(model, CL_PROGRAM_BINARY_SIZES, sizeof(sizes), sizes, NULL));
    unsigned char *bytes[2] = {malloc(sizes[0]), malloc(sizes[1])};
    OK(clGetProgramInfo(model, CL_PROGRAM_BINARIES, sizeof(bytes), bytes, NULL));
    cl_program loaded = clCreateProgramWithBinary(both.context, 2, both.devices, sizes,
                                                  (const unsigned char **)bytes, status, &error);
    OK(error);
    OK(status[0]);
    OK(status[1]);
    build_everywhere(&both, late);
    move_seat(1, NULL);
    build_everywhere(&both, loaded);
    run_everywhere(&both, model);
    for (int i = 0; i < 2; i++)
        free(bytes[i]);
    OK(clReleaseProgram(loaded));
    OK(clReleaseProgram(late));
    OK(clReleaseProgram(model));
    both_close(&both);
}

static struct {
    cl_context context;
    atomic_bool made;
} waiting;

static void *make_late(void *text)
{
    const char *source = text;
    cl_int error;
    cl_program program = clCreateProgramWithSource(waiting.context, 1, &source, NULL, &error);
    atomic_store(&waiting.made, true);
    OK(error);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    return program;
}

Test(moves_kernels, a_program_waits_for_the_only_device_that_is_suspended, .timeout = 60)
{
    struct engine_program p;
    pthread_t thread;
    void *program;
    const size_t items = WORDS;
    engine_rig_open(&rig, CONFIG);
    engine_program_open(&rig, 0, NULL, &p);
    waiting.context = p.context;
    engine_rig_moves(&rig, NULL);
    cr_assert_eq(pthread_create(&thread, NULL, make_late, SOURCE), 0);
    engine_rig_sleep(100);
    cr_expect_not(atomic_load(&waiting.made), "there is no device to make it on");
    engine_rig_moves(&rig, "two");
    cr_assert_eq(pthread_join(thread, &program), 0);
    cl_mem buffer = counters(p.context, 30);
    cl_kernel add = adder(program, buffer, 12);
    OK(clEnqueueNDRangeKernel(p.queue, add, 1, NULL, &items, NULL, 0, NULL, NULL));
    check_counters(p.queue, buffer, 42);
    OK(clReleaseKernel(add));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseProgram(program));
    engine_program_close(&p);
}
