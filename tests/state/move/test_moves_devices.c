#include <pthread.h>

#include "tests/state/move/test_moves_devices.h"

/* Programs and kernels of several virtual devices, some of which are suspended. */

/* @vdev is suspended: the other one goes on, and what needs it waits for it. */
static void one_is_suspended(uint32_t vdev)
{
    struct both both;
    pthread_t thread;
    cl_uint value = 7;
    const size_t items = WORDS;
    const uint32_t other = 1 - vdev;
    both_open(&both, CONFIG);
    cl_program program = make_program(&both, SOURCE);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    cl_mem buffer = counters(both.context, 1);
    cl_kernel add = adder(program, buffer, 5);
    move_vdev(vdev, NULL);
    OK(clSetKernelArg(add, 1, sizeof(value), &value));
    OK(clEnqueueNDRangeKernel(both.queues[other], add, 1, NULL, &items, NULL, 0, NULL, NULL));
    cl_kernel more = adder(program, buffer, 2);
    OK(clEnqueueNDRangeKernel(both.queues[other], more, 1, NULL, &items, NULL, 0, NULL, NULL));
    check_counters(both.queues[other], buffer, 10);
    cl_program late = make_program(&both, SOURCE "\n");
    OK(clBuildProgram(late, 1, &both.devices[other], "", NULL, NULL));
    OK(clReleaseProgram(late));
    cr_assert_eq(pthread_create(&thread, NULL, resume_later, (void *)(uintptr_t)vdev), 0);
    OK(clEnqueueNDRangeKernel(both.queues[vdev], add, 1, NULL, &items, NULL, 0, NULL, NULL));
    check_counters(both.queues[vdev], buffer, 17);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    RELEASE(more, add, buffer, program);
    both_close(&both);
}

TestCall(moves_devices, a_suspended_first_device_does_not_stop_the_second, one_is_suspended(0),
         .timeout = 60);
TestCall(moves_devices, a_suspended_second_device_does_not_stop_the_first, one_is_suspended(1),
         .timeout = 60);

Test(moves_devices, a_program_of_the_second_device_alone_has_kernels_for_it)
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
    move_vdev(1, "one");
    cl_uint value = 6;
    OK(clSetKernelArg(add, 1, sizeof(value), &value));
    OK(clEnqueueNDRangeKernel(both.queues[1], add, 1, NULL, &items, NULL, 0, NULL, NULL));
    cr_assert_eq(clEnqueueNDRangeKernel(both.queues[0], add, 1, NULL, &items, NULL, 0, NULL, NULL),
                 CL_INVALID_PROGRAM_EXECUTABLE);
    check_counters(both.queues[1], buffer, 12);
    RELEASE(add, buffer, program);
    both_close(&both);
}

Test(moves_devices, a_link_is_made_for_the_devices_that_all_inputs_were_compiled_for)
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
        MADE(clLinkProgram, both.context, 1, &both.devices[1], "", 2, parts, NULL, NULL);
    cl_program alone =
        MADE(clLinkProgram, both.context, 0, NULL, "-create-library", 1, &parts[1], NULL, NULL);
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
    RELEASE(kernel, buffer, alone, whole);
    for (int i = 0; i < 2; i++)
        OK(clReleaseProgram(parts[i]));
    both_close(&both);
}

/* @kernel is launched in every way on the first device, for which it was not built. */
static void expect_no_executable(struct both *both, cl_kernel kernel)
{
    const size_t items = WORDS, one = 1;
    cl_event event = NULL, user = MADE(clCreateUserEvent, both->context);
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

Test(moves_devices, a_program_runs_only_on_the_devices_that_it_was_built_for)
{
    static const char *const places[][2] = {
        {"one", "two"}, {"one", "one"}, {"two", "one"}, {"two", "two"}, {"one", "two"}};
    struct both both;
    cl_uint value = 5;
    const size_t items = WORDS;
    both_open(&both, CONFIG);
    cl_program program = make_program(&both, SOURCE), whole = make_program(&both, SOURCE "\n");
    OK(clBuildProgram(program, 1, &both.devices[1], "", NULL, NULL));
    OK(clBuildProgram(whole, 0, NULL, "", NULL, NULL));
    cl_mem buffer = counters(both.context, 0);
    cl_kernel add = adder(program, buffer, value), clone = MADE(clCloneKernel, add);
    cl_kernel anywhere = adder(whole, buffer, 1);
    for (unsigned i = 0; i < ARRAY_SIZE(places); i++) {
        for (uint32_t vdev = 0; vdev < 2 && i > 0; vdev++)
            if (strcmp(places[i][vdev], places[i - 1][vdev]) != 0)
                move_vdev(vdev, places[i][vdev]);
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
    RELEASE(anywhere, clone, add, buffer, whole, program);
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
    RELEASE(add, buffer);
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

Test(moves_devices, programs_are_made_while_one_device_is_suspended, .timeout = 60)
{
    struct both both;
    cl_int status[2];
    size_t sizes[2];
    both_open(&both, CONFIG);
    cl_program model = make_program(&both, SOURCE);
    OK(clBuildProgram(model, 0, NULL, "", NULL, NULL));
    move_vdev(1, NULL);
    cl_program late = make_program(&both, SOURCE "\n");
    OK(clGetProgramInfo(model, CL_PROGRAM_BINARY_SIZES, sizeof(sizes), sizes, NULL));
    unsigned char *bytes[2] = {malloc(sizes[0]), malloc(sizes[1])};
    OK(clGetProgramInfo(model, CL_PROGRAM_BINARIES, sizeof(bytes), bytes, NULL));
    cl_program loaded = MADE(clCreateProgramWithBinary, both.context, 2, both.devices, sizes,
                             (const unsigned char **)bytes, status);
    OK(status[0]);
    OK(status[1]);
    build_everywhere(&both, late);
    move_vdev(1, NULL);
    build_everywhere(&both, loaded);
    run_everywhere(&both, model);
    for (int i = 0; i < 2; i++)
        free(bytes[i]);
    RELEASE(loaded, late, model);
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

Test(moves_devices, a_program_waits_for_the_only_device_that_is_suspended, .timeout = 60)
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
    RELEASE(add, buffer);
    OK(clReleaseProgram(program));
    engine_program_close(&p);
}

#define MANY 11

/* More objects than a launch has room for at once: each has its new version, and is where the next
 * launch looks for it. */
Test(moves_devices, a_launch_writes_more_objects_than_most_do)
{
    static const char source[] =
        "kernel void every(global uint *a, global uint *b, global uint *c, global uint *d,\n"
        "  global uint *e, constant uint *f, uint add, global uint *g, global uint *h,\n"
        "  global uint *i, global uint *j, global uint *k)\n"
        "{ size_t x = get_global_id(0); add += f[x]; a[x] += add; b[x] += add; c[x] += add;\n"
        "  d[x] += add; e[x] += add; g[x] += add; h[x] += add; i[x] += add; j[x] += add;\n"
        "  k[x] += add; }";
    struct both both;
    cl_mem buffers[MANY];
    const size_t items = WORDS;
    const cl_uint add = 3, constant = 5;
    both_open(&both, CONFIG);
    cl_program program = make_program(&both, source);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    cl_kernel kernel = engine_kernel(program, "every");
    for (cl_uint i = 0; i < MANY; i++) {
        buffers[i] = counters(both.context, constant);
        OK(clSetKernelArg(kernel, i < 6 ? i : i + 1, sizeof(cl_mem), &buffers[i]));
    }
    OK(clSetKernelArg(kernel, 6, sizeof(add), &add));
    for (cl_uint round = 0; round < 4; round++) {
        cl_command_queue queue = both.queues[round % 2];
        cl_event user = MADE(clCreateUserEvent, both.context);
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, round / 2,
                                  round / 2 ? &user : NULL, NULL));
        OK(clSetUserEventStatus(user, CL_COMPLETE));
        OK(clFinish(queue));
        OK(clReleaseEvent(user));
    }
    for (cl_uint i = 0; i < MANY; i++) {
        check_counters(both.queues[0], buffers[i], constant + (i == 5 ? 0 : 4 * (add + constant)));
        OK(clReleaseMemObject(buffers[i]));
    }
    RELEASE(kernel, program);
    both_close(&both);
}
