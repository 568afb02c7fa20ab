#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/emu/fixture.h"
#include "tests/support/calls.h"

/* What a test does to an emulated device: faults, counters, control from elsewhere; and that the
 * driver's own objects hold together meanwhile. */

static const char source[] = "kernel void add(global int *v) { v[get_global_id(0)] += 1; }\n";

/* A small program, as a host program would write it: gives up at the first error. */
static cl_int small_program(const struct emu_rig *rig, size_t on, int *ret_value)
{
    const cl_icd_dispatch *cl = rig->cl;
    const char *text = source;
    size_t global = 1;
    cl_int err;
    cl_event ran = NULL;
    cl_program program = NULL;
    cl_kernel kernel = NULL;
    cl_mem mem = NULL;
    cl_command_queue queue = NULL;
    cl_context context = cl->clCreateContext(NULL, 1, &rig->devices[on], NULL, NULL, &err);
    if (context != NULL)
        queue = cl->clCreateCommandQueue(context, rig->devices[on], 0, &err);
    if (queue != NULL)
        mem = cl->clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof(int),
                                 ret_value, &err);
    if (mem != NULL)
        program = cl->clCreateProgramWithSource(context, 1, &text, NULL, &err);
    if (program != NULL)
        err = cl->clBuildProgram(program, 0, NULL, NULL, NULL, NULL);
    if (program != NULL && err == CL_SUCCESS)
        kernel = cl->clCreateKernel(program, "add", &err);
    if (kernel != NULL)
        err = cl->clSetKernelArg(kernel, 0, sizeof(mem), &mem);
    if (kernel != NULL && err == CL_SUCCESS)
        err = cl->clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, &ran);
    if (ran != NULL)
        err =
            cl->clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, sizeof(int), ret_value, 1, &ran, NULL);
    cl_int released[] = {ran != NULL ? cl->clReleaseEvent(ran) : CL_SUCCESS,
                         kernel != NULL ? cl->clReleaseKernel(kernel) : CL_SUCCESS,
                         program != NULL ? cl->clReleaseProgram(program) : CL_SUCCESS,
                         mem != NULL ? cl->clReleaseMemObject(mem) : CL_SUCCESS,
                         queue != NULL ? cl->clReleaseCommandQueue(queue) : CL_SUCCESS,
                         context != NULL ? cl->clReleaseContext(context) : CL_SUCCESS};
    for (size_t i = 0; i < ARRAY_SIZE(released) && err == CL_SUCCESS; i++)
        err = released[i];
    return err;
}

/* A command that was under way when the program gave up keeps its memory until it is done. */
static void await_nothing(const struct emu_rig *rig, const char *device)
{
    for (int i = 0; i < 5000 && emu_shared_live_all(rig->shared, device) != 0; i++)
        usleep(1000);
    cr_assert_eq(emu_shared_live_all(rig->shared, device), 0);
    cr_assert_eq(emu_shared_bytes(rig->shared, device), 0);
}

Test(emu_faults, each_call_can_fail_and_none_leaves_anything)
{
    struct emu_rig rig;
    int value = 1;
    emu_rig_open(&rig, "[a] base=1 [b]");
    OK(small_program(&rig, 0, &value));
    cr_assert_eq(value, 2);
    uint64_t calls = emu_shared_calls(rig.shared, "a", NULL);
    cr_assert_eq(calls, 15);
    cr_assert_eq(emu_shared_calls(rig.shared, "a", "clCreateBuffer"), 1);
    cr_assert_eq(emu_shared_calls(rig.shared, "b", NULL), 0);
    for (uint64_t n = 1; n <= calls; n++) {
        cr_assert_eq(emu_shared_arm(rig.shared, "a", n, NULL, CL_INVALID_GLOBAL_OFFSET), 0);
        cl_int err = small_program(&rig, 0, &value);
        cr_assert_eq(err, CL_INVALID_GLOBAL_OFFSET, "call %d: %d", (int)n, err);
        cr_assert_eq(emu_shared_fired(rig.shared, "a"), n);
        await_nothing(&rig, "a");
    }
    cr_assert_eq(small_program(&rig, 0, &value), CL_SUCCESS, "an arm fires once");
}

Test(emu_faults, an_arm_counts_the_calls_of_one_function_and_gives_its_natural_error)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    cl_int err;
    int value = 0;
    emu_rig_open(&rig, "[a]");
    emu_vdev_open(&rig, 0, NULL, &vdev);
    cr_assert_eq(emu_shared_arm(rig.shared, "a", 2, "clCreateBuffer", EMU_ERROR_NATURAL), 0);
    cl_mem mem = MADE(rig.cl->clCreateBuffer, vdev.context, 0, 64, NULL);
    OK(rig.cl->clFinish(vdev.queue));
    cr_assert_null(rig.cl->clCreateBuffer(vdev.context, 0, 64, NULL, &err));
    cr_assert_eq(err, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    cr_assert_eq(emu_shared_arm(rig.shared, "a", 1, "clBuildProgram", EMU_ERROR_NATURAL), 0);
    cr_assert_eq(small_program(&rig, 0, &value), CL_BUILD_PROGRAM_FAILURE);
    cr_assert_eq(emu_shared_arm(rig.shared, "a", 1, "clNoSuchThing", 0), -ENOENT);
    cr_assert_eq(emu_shared_arm(rig.shared, "a", 1, "clFinish", 0), 0);
    cr_assert_eq(emu_shared_disarm(rig.shared, "a"), 0);
    OK(rig.cl->clFinish(vdev.queue));
    cr_assert_eq(emu_shared_live(rig.shared, "a", EMU_MEM), 1);
    rig.cl->clReleaseMemObject(mem);
    cr_assert_eq(emu_shared_live(rig.shared, "a", EMU_MEM), 0);
    emu_vdev_close(&rig, &vdev);
}

struct notice {
    atomic_int calls;
    atomic_int status;
    _Atomic(void *) handle;
};

static void CL_CALLBACK on_event(cl_event event, cl_int status, void *data)
{
    struct notice *notice = data;
    atomic_store(&notice->handle, event);
    atomic_store(&notice->status, status);
    atomic_fetch_add(&notice->calls, 1);
}

static void CL_CALLBACK on_mem(cl_mem mem, void *data)
{
    struct notice *notice = data;
    atomic_store(&notice->handle, mem);
    atomic_fetch_add(&notice->calls, 1);
}

static void CL_CALLBACK on_context(cl_context context, void *data)
{
    on_mem((cl_mem)context, data);
}

static void CL_CALLBACK on_program(cl_program program, void *data)
{
    on_mem((cl_mem)program, data);
}

/* Callbacks may come from the driver's threads, a little after what they tell. */
static void await_calls(struct notice *notice, int calls)
{
    for (int i = 0; i < 5000 && atomic_load(&notice->calls) < calls; i++)
        usleep(1000);
    cr_assert_eq(atomic_load(&notice->calls), calls);
}

Test(emu_faults, a_vanished_device_fails_every_call_until_it_is_back)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    struct notice notice = {0};
    cl_int err, status = CL_COMPLETE;
    cl_uint count = 0;
    cl_bool available = CL_TRUE;
    int value = 7;
    emu_rig_open(&rig, "[a] base=1 [b]");
    emu_vdev_open(&rig, 0, NULL, &vdev);
    cl_mem mem = rig.cl->clCreateBuffer(vdev.context, 0, 64, NULL, &err);
    cl_event gate = rig.cl->clCreateUserEvent(vdev.context, &err);
    cl_event lost, done;
    OK(rig.cl->clEnqueueWriteBuffer(vdev.queue, mem, CL_TRUE, 0, 4, &value, 0, NULL, &done));
    OK(rig.cl->clWaitForEvents(1, &done));
    OK(rig.cl->clEnqueueWriteBuffer(vdev.queue, mem, CL_FALSE, 0, 4, &value, 1, &gate, &lost));
    OK(rig.cl->clSetEventCallback(lost, CL_COMPLETE, on_event, &notice));
    cr_assert_eq(emu_shared_vanish(rig.shared, "a"), 0);
    OK(rig.cl->clSetUserEventStatus(gate, CL_COMPLETE));
    cr_assert_eq(rig.cl->clWaitForEvents(1, &lost), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(rig.cl->clGetEventInfo(lost, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status,
                              NULL));
    cr_assert_eq(status, CL_OUT_OF_RESOURCES);
    cr_assert_eq(rig.cl->clWaitForEvents(1, &done), CL_SUCCESS, "it was complete before");
    await_calls(&notice, 1);
    cr_assert_eq(atomic_load(&notice.status), CL_OUT_OF_RESOURCES);
    cr_assert_eq(rig.cl->clFinish(vdev.queue), CL_OUT_OF_RESOURCES);
    cr_assert_eq(rig.cl->clEnqueueReadBuffer(vdev.queue, mem, CL_TRUE, 0, 4, &value, 0, NULL, NULL),
                 CL_OUT_OF_RESOURCES);
    cr_assert_null(rig.cl->clCreateBuffer(vdev.context, 0, 64, NULL, &err));
    cr_assert_eq(err, CL_DEVICE_NOT_AVAILABLE);
    OK(rig.cl->clGetDeviceInfo(rig.devices[0], CL_DEVICE_AVAILABLE, sizeof(available), &available,
                               NULL));
    cr_assert_eq(available, CL_FALSE);
    OK(rig.cl->clGetDeviceIDs(rig.platform, CL_DEVICE_TYPE_ALL, 0, NULL, &count));
    cr_assert_eq(count, 1);
    cr_assert_eq(small_program(&rig, 1, &value), CL_SUCCESS, "the other device is there");
    cr_assert_eq(emu_shared_restore(rig.shared, "a"), 0);
    OK(rig.cl->clFinish(vdev.queue));
    cr_assert_eq(rig.cl->clWaitForEvents(1, &lost), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_eq(emu_shared_vanish(rig.shared, "a"), 0);
    rig.cl->clReleaseEvent(gate);
    rig.cl->clReleaseEvent(lost);
    rig.cl->clReleaseEvent(done);
    OK(rig.cl->clReleaseMemObject(mem));
    emu_vdev_close(&rig, &vdev);
    await_nothing(&rig, "a");
}

Test(emu_faults, a_command_can_end_in_an_error_and_say_so_later)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    struct notice notice = {0};
    cl_int err, status = CL_COMPLETE, value = 7;
    cl_event events[2];
    emu_rig_open(&rig, "[a] callbacks=late");
    emu_vdev_open(&rig, 0, NULL, &vdev);
    cl_mem mem = rig.cl->clCreateBuffer(vdev.context, 0, 64, NULL, &err);
    cr_assert_eq(emu_shared_arm(rig.shared, "a", 1, "clEnqueueWriteBuffer", EMU_ERROR_AT_END), 0);
    for (int i = 0; i < 2; i++)
        OK(rig.cl->clEnqueueWriteBuffer(vdev.queue, mem, CL_FALSE, 0, 4, &value, 0, NULL,
                                        &events[i]));
    OK(rig.cl->clSetEventCallback(events[0], CL_COMPLETE, on_event, &notice));
    cr_assert_eq(rig.cl->clWaitForEvents(1, &events[0]),
                 CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(rig.cl->clWaitForEvents(1, &events[1]));
    OK(rig.cl->clGetEventInfo(events[0], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status,
                              NULL));
    cr_assert_eq(status, CL_OUT_OF_RESOURCES);
    await_calls(&notice, 1);
    cr_assert_eq(atomic_load(&notice.status), CL_OUT_OF_RESOURCES);
    for (int i = 0; i < 2; i++)
        rig.cl->clReleaseEvent(events[i]);
    OK(rig.cl->clReleaseMemObject(mem));
    emu_vdev_close(&rig, &vdev);
    await_nothing(&rig, "a");
}

Test(emu_faults, a_device_can_vanish_at_the_nth_call)
{
    struct emu_rig rig;
    int value = 0;
    emu_rig_open(&rig, "[a]");
    cr_assert_eq(emu_shared_arm(rig.shared, "a", 8, NULL, EMU_ERROR_VANISH), 0);
    cr_assert_eq(small_program(&rig, 0, &value), CL_OUT_OF_RESOURCES);
    cr_assert_eq(small_program(&rig, 0, &value), CL_DEVICE_NOT_AVAILABLE);
    await_nothing(&rig, "a");
}

Test(emu_faults, the_environment_arms_and_traces)
{
    struct emu_rig rig;
    int value = 0;
    emu_rig_file("EMU_TRACE", "");
    setenv("EMU_FAIL", "device=a;call=3;function=clCreateBuffer;error=-6", 1);
    emu_rig_open(&rig, "[a]");
    OK(small_program(&rig, 0, &value));
    OK(small_program(&rig, 0, &value));
    cr_assert_eq(small_program(&rig, 0, &value), CL_OUT_OF_HOST_MEMORY);
    FILE *trace = fopen(getenv("EMU_TRACE"), "r");
    unsigned long long at, last = 0, buffers = 0;
    char device[64], function[64];
    int result, failed = 0;
    while (fscanf(trace, "%llu %63s %63s %d", &at, device, function, &result) == 4) {
        cr_assert_eq(at, last + 1);
        cr_assert_str_eq(device, "a");
        last = at;
        buffers += strcmp(function, "clCreateBuffer") == 0;
        failed += result == CL_OUT_OF_HOST_MEMORY && strcmp(function, "clCreateBuffer") == 0;
    }
    fclose(trace);
    unlink(getenv("EMU_TRACE"));
    cr_assert_eq(last, emu_shared_calls(rig.shared, "a", NULL));
    cr_assert_eq(buffers, 3);
    cr_assert_eq(failed, 1);
}

/* The descriptor that leads to the file at @path. */
static int number_of(const char *path)
{
    struct stat named, at;
    cr_assert_eq(stat(path, &named), 0);
    for (int fd = 0; fd < 1024; fd++)
        if (fstat(fd, &at) == 0 && at.st_dev == named.st_dev && at.st_ino == named.st_ino)
            return fd;
    return -1;
}

Test(emu_faults, the_trace_goes_on_when_its_number_is_a_file_of_the_program_s)
{
    struct emu_rig rig;
    int value = 0, own = memfd_create("own", MFD_CLOEXEC);
    struct stat is;
    emu_rig_file("EMU_TRACE", "");
    emu_rig_open(&rig, "[a]");
    OK(small_program(&rig, 0, &value));
    int number = number_of(getenv("EMU_TRACE"));
    cr_assert_gt(number, STDERR_FILENO);
    cr_assert_eq(dup2(own, number), number);
    OK(small_program(&rig, 0, &value));
    cr_assert_eq(fstat(own, &is), 0);
    cr_assert_eq(is.st_size, 0);
    FILE *trace = fopen(getenv("EMU_TRACE"), "r");
    unsigned long long at, last = 0;
    while (fscanf(trace, "%llu %*s %*s %*d", &at) == 1) {
        cr_assert_eq(at, last + 1);
        last = at;
    }
    fclose(trace);
    unlink(getenv("EMU_TRACE"));
    cr_assert_eq(last, emu_shared_calls(rig.shared, "a", NULL));
}

Test(emu_faults, the_environment_arms_several_devices)
{
    struct emu_rig rig;
    int value = 0;
    setenv("EMU_FAIL",
           "device=a;call=1;function=clCreateBuffer;error=-6,"
           "device=b;call=2;function=clCreateBuffer;error=-5",
           1);
    emu_rig_open(&rig, "[a] [b]");
    cr_assert_eq(small_program(&rig, 0, &value), CL_OUT_OF_HOST_MEMORY);
    OK(small_program(&rig, 0, &value));
    OK(small_program(&rig, 1, &value));
    cr_assert_eq(small_program(&rig, 1, &value), CL_OUT_OF_RESOURCES);
}

Test(emu_faults, another_process_controls_through_the_file)
{
    struct emu_shared *shared;
    unsigned devices = 0;
    int built = 0;
    emu_rig_file("EMU_CONTROL", "");
    emu_rig_file("EMU_CONFIG", "[a] [b]");
    cr_assert_eq(emu_shared_open(getenv("EMU_CONTROL"), &shared), 0);
    cr_assert_eq(emu_shared_arm(shared, "b", 1, "clBuildProgram", CL_INVALID_BINARY), 0);
    cr_assert_eq(emu_shared_vanish(shared, "a"), 0);
    /* It leaves its objects on purpose. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    FILE *probe = popen(getenv("EMU_PROBE"), "r");
    cr_assert_eq(fscanf(probe, "%u %d", &devices, &built), 2);
    cr_assert_eq(pclose(probe), 0);
    cr_assert_eq(devices, 1);
    cr_assert_eq(built, CL_INVALID_BINARY);
    cr_assert_eq(emu_shared_fired(shared, "b"), 1);
    cr_assert_eq(emu_shared_calls(shared, "b", "clBuildProgram"), 1);
    cr_assert_eq(emu_shared_calls(shared, "b", NULL), 3);
    cr_assert_eq(emu_shared_live_all(shared, "b"), 0, "a program's objects end with it");
    emu_shared_close(shared);
    cr_assert_eq(truncate(getenv("EMU_CONTROL"), 100), 0);
    cr_assert_eq(emu_shared_open(getenv("EMU_CONTROL"), &shared), -EINVAL);
    unlink(getenv("EMU_CONTROL"));
    unlink(getenv("EMU_CONFIG"));
}

Test(emu_faults, a_callback_can_say_that_a_command_succeeded_which_failed)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    struct notice notice = {0};
    cl_int err, status = CL_COMPLETE, value = 7;
    cl_event event;
    emu_rig_open(&rig, "[a] callbacks=complete");
    emu_vdev_open(&rig, 0, NULL, &vdev);
    cl_mem mem = rig.cl->clCreateBuffer(vdev.context, 0, 64, NULL, &err);
    cr_assert_eq(emu_shared_arm(rig.shared, "a", 1, "clEnqueueWriteBuffer", EMU_ERROR_AT_END), 0);
    OK(rig.cl->clEnqueueWriteBuffer(vdev.queue, mem, CL_FALSE, 0, 4, &value, 0, NULL, &event));
    OK(rig.cl->clSetEventCallback(event, CL_COMPLETE, on_event, &notice));
    await_calls(&notice, 1);
    cr_assert_eq(atomic_load(&notice.status), CL_COMPLETE);
    OK(rig.cl->clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status,
                              NULL));
    cr_assert_eq(status, CL_OUT_OF_RESOURCES);
    rig.cl->clReleaseEvent(event);
    OK(rig.cl->clReleaseMemObject(mem));
    emu_vdev_close(&rig, &vdev);
    await_nothing(&rig, "a");
}

Test(emu_faults, callbacks_bring_the_programs_own_handles)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    struct notice event_notice = {0}, mem_notice = {0}, context_notice = {0}, build_notice = {0};
    static int value;
    cl_int err;
    emu_rig_open(&rig, "[a] base=1");
    emu_vdev_open(&rig, 0, source, &vdev);
    OK(rig.cl->clBuildProgram(vdev.program, 1, rig.devices, NULL, on_program, &build_notice));
    await_calls(&build_notice, 1);
    cr_assert_eq(atomic_load(&build_notice.handle), vdev.program);
    cl_event gate = rig.cl->clCreateUserEvent(vdev.context, &err);
    cl_mem mem = rig.cl->clCreateBuffer(vdev.context, 0, 64, NULL, &err);
    cl_event written;
    OK(rig.cl->clSetMemObjectDestructorCallback(mem, on_mem, &mem_notice));
    OK(rig.cl->clSetContextDestructorCallback(vdev.context, on_context, &context_notice));
    OK(rig.cl->clEnqueueWriteBuffer(vdev.queue, mem, CL_FALSE, 0, sizeof(value), &value, 1, &gate,
                                    &written));
    OK(rig.cl->clSetEventCallback(written, CL_COMPLETE, on_event, &event_notice));
    cl_event was = written;
    OK(rig.cl->clReleaseEvent(written));
    OK(rig.cl->clReleaseMemObject(mem));
    cr_assert_eq(atomic_load(&event_notice.calls), 0);
    OK(rig.cl->clSetUserEventStatus(gate, CL_COMPLETE));
    OK(rig.cl->clFinish(vdev.queue));
    await_calls(&event_notice, 1);
    await_calls(&mem_notice, 1);
    cr_assert_eq(atomic_load(&event_notice.handle), was);
    cr_assert_eq(atomic_load(&mem_notice.handle), mem);
    rig.cl->clReleaseEvent(gate);
    cl_context context = vdev.context;
    emu_vdev_close(&rig, &vdev);
    await_calls(&context_notice, 1);
    cr_assert_eq(atomic_load(&context_notice.handle), context);
    await_nothing(&rig, "a");
}

Test(emu_faults, objects_name_each_other_by_the_programs_own_handles)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    void *got = NULL;
    cl_uint refs = 0;
    cl_int err;
    size_t n = sizeof(got);
    emu_rig_open(&rig, "[a]");
    emu_vdev_open(&rig, 0, source, &vdev);
    const cl_icd_dispatch *cl = rig.cl;
    cl_mem mem = cl->clCreateBuffer(vdev.context, 0, 4096, NULL, &err);
    cl_buffer_region region = {0, 128};
    cl_mem part = cl->clCreateSubBuffer(mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &err);
    cl_kernel kernel = cl->clCreateKernel(vdev.program, "add", &err);
    cl_event marker;
    OK(cl->clEnqueueMarkerWithWaitList(vdev.queue, 0, NULL, &marker));
    OK(cl->clGetContextInfo(vdev.context, CL_CONTEXT_DEVICES, n, &got, NULL));
    cr_assert_eq(got, rig.devices[0]);
    OK(cl->clGetCommandQueueInfo(vdev.queue, CL_QUEUE_CONTEXT, n, &got, NULL));
    cr_assert_eq(got, vdev.context);
    OK(cl->clGetCommandQueueInfo(vdev.queue, CL_QUEUE_DEVICE, n, &got, NULL));
    cr_assert_eq(got, rig.devices[0]);
    OK(cl->clGetMemObjectInfo(part, CL_MEM_CONTEXT, n, &got, NULL));
    cr_assert_eq(got, vdev.context);
    OK(cl->clGetMemObjectInfo(part, CL_MEM_ASSOCIATED_MEMOBJECT, n, &got, NULL));
    cr_assert_eq(got, mem);
    OK(cl->clGetProgramInfo(vdev.program, CL_PROGRAM_CONTEXT, n, &got, NULL));
    cr_assert_eq(got, vdev.context);
    OK(cl->clGetProgramInfo(vdev.program, CL_PROGRAM_DEVICES, n, &got, NULL));
    cr_assert_eq(got, rig.devices[0]);
    OK(cl->clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, n, &got, NULL));
    cr_assert_eq(got, vdev.program);
    OK(cl->clGetKernelInfo(kernel, CL_KERNEL_CONTEXT, n, &got, NULL));
    cr_assert_eq(got, vdev.context);
    OK(cl->clGetEventInfo(marker, CL_EVENT_COMMAND_QUEUE, n, &got, NULL));
    cr_assert_eq(got, vdev.queue);
    OK(cl->clGetEventInfo(marker, CL_EVENT_CONTEXT, n, &got, NULL));
    cr_assert_eq(got, vdev.context);
    OK(cl->clRetainMemObject(mem));
    OK(cl->clGetMemObjectInfo(mem, CL_MEM_REFERENCE_COUNT, sizeof(refs), &refs, NULL));
    cr_assert_eq(refs, 2);
    cr_assert_eq(cl->clFinish((cl_command_queue)mem), CL_INVALID_COMMAND_QUEUE);
    cr_assert_eq(cl->clReleaseMemObject((cl_mem)kernel), CL_INVALID_MEM_OBJECT);
    cl->clReleaseMemObject(mem);
    cl->clReleaseMemObject(mem);
    cl->clReleaseMemObject(part);
    cl->clReleaseKernel(kernel);
    cl->clReleaseEvent(marker);
    emu_vdev_close(&rig, &vdev);
    await_nothing(&rig, "a");
}

Test(emu_faults, two_views_of_one_device_share_a_context_and_its_binaries)
{
    struct emu_rig rig;
    const char *text = source;
    size_t sizes[2] = {0};
    cl_int err, statuses[2] = {1, 1};
    emu_rig_open(&rig, "[a] [b]");
    const cl_icd_dispatch *cl = rig.cl;
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)rig.platform,
                                          0};
    cl_context context =
        MADE(cl->clCreateContextFromType, properties, CL_DEVICE_TYPE_GPU, NULL, NULL);
    cl_program program = cl->clCreateProgramWithSource(context, 1, &text, NULL, &err);
    OK(cl->clBuildProgram(program, 2, rig.devices, NULL, NULL, NULL));
    OK(cl->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(sizes), sizes, NULL));
    cr_assert(sizes[0] > 0 && sizes[0] == sizes[1]);
    unsigned char *binaries[2] = {calloc(1, sizes[0]), calloc(1, sizes[1])};
    OK(cl->clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binaries), binaries, NULL));
    cr_assert_arr_eq(binaries[0], binaries[1], sizes[0]);
    cl_program again = MADE(cl->clCreateProgramWithBinary, context, 2, rig.devices, sizes,
                            (const unsigned char **)binaries, statuses);
    cr_assert(statuses[0] == CL_SUCCESS && statuses[1] == CL_SUCCESS);
    cl->clReleaseProgram(again);
    cl->clReleaseProgram(program);
    cl->clReleaseContext(context);
    free(binaries[0]);
    free(binaries[1]);
    cr_assert_eq(emu_shared_live_all(rig.shared, "a") + emu_shared_live_all(rig.shared, "b"), 0);
}

#define THREADS 4
#define ROUNDS  200

static void *work(void *data)
{
    const struct emu_rig *rig = data;
    struct emu_vdev vdev;
    emu_vdev_open(rig, 0, NULL, &vdev);
    for (int i = 0; i < ROUNDS; i++) {
        int in = i, out = -1;
        cl_event event;
        cl_mem mem = MADE(rig->cl->clCreateBuffer, vdev.context, 0, sizeof(in), NULL);
        OK(rig->cl->clEnqueueWriteBuffer(vdev.queue, mem, CL_FALSE, 0, sizeof(in), &in, 0, NULL,
                                         &event));
        OK(rig->cl->clEnqueueReadBuffer(vdev.queue, mem, CL_TRUE, 0, sizeof(out), &out, 1, &event,
                                        NULL));
        cr_assert_eq(out, i);
        rig->cl->clReleaseEvent(event);
        rig->cl->clReleaseMemObject(mem);
    }
    emu_vdev_close(rig, &vdev);
    return NULL;
}

Test(emu_faults, threads_do_not_disturb_each_other)
{
    struct emu_rig rig;
    pthread_t threads[THREADS];
    emu_rig_open(&rig, "[a] base=1 memory=1MiB");
    for (size_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, work, &rig), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    await_nothing(&rig, "a");
    cr_assert_eq(emu_shared_calls(rig.shared, "a", "clCreateBuffer"), THREADS * ROUNDS);
}
