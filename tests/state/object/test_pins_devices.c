#include <pthread.h>

#include "state/base/threads/gate.h"
#include "tests/state/object/test_pins_common.h"

/* Native kernels and sub-devices. */

struct job {
    cl_uint *words; /* the driver's address of the buffer */
    cl_uint add;
    const struct engine_rig *rig;
    bool *ret_outside;
    enum move_result *ret_moved;
};

static void *move_meanwhile(void *data)
{
    const struct job *job = data;
    struct move_report report;
    *job->ret_moved = engine_rig_move(job->rig, other(job->rig), &report);
    return NULL;
}

/* It waits for another thread, which waits for a mover. */
static void CL_CALLBACK native_add(void *data)
{
    struct job *job = data;
    pthread_t thread;
    for (size_t i = 0; i < WORDS; i++)
        job->words[i] += job->add;
    *job->ret_outside = !gate_is_inside();
    if (pthread_create(&thread, NULL, move_meanwhile, job) == 0)
        pthread_join(thread, NULL);
}

static void expect_native(const char *device, bool held)
{
    struct engine_rig rig;
    struct engine_program p;
    cl_uint words[WORDS] = {0};
    bool outside = false;
    enum move_result moved = MOVE_DONE;
    cl_int error;
    engine_rig_open_pocl_on(&rig, "basic pthread", device);
    engine_program_open(&rig, 0, NULL, &p);
    cl_mem buffer = engine_buffer(p.context, CL_MEM_READ_WRITE, SIZE, NULL);
    OK(clEnqueueWriteBuffer(p.queue, buffer, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    cl_event go = clCreateUserEvent(p.context, &error), done;
    struct job job = {NULL, 11, &rig, &outside, &moved};
    const void *where = &job.words;
    OK(clEnqueueNativeKernel(p.queue, native_add, &job, sizeof(job), 1, &buffer, &where,
                             held ? 1 : 0, held ? &go : NULL, &done));
    memset(&job, 0, sizeof(job)); /* they were copied */
    OK(clSetUserEventStatus(go, CL_COMPLETE));
    OK(clWaitForEvents(1, &done));
    OK(clEnqueueReadBuffer(p.queue, buffer, CL_TRUE, 0, SIZE, words, 0, NULL, NULL));
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_eq(words[i], 11, "word %zu is %u", i, words[i]);
    cr_expect(outside);
    cr_expect_eq(moved, MOVE_REFUSED, "%s", move_result_name(moved));
    cl_command_type type;
    OK(clGetEventInfo(done, CL_EVENT_COMMAND_TYPE, sizeof(type), &type, NULL));
    cr_expect_eq(type, CL_COMMAND_NATIVE_KERNEL);
    RELEASE(go, done, buffer);
    expect_refused(&rig, "native kernels");
    engine_program_close(&p);
    cr_assert_null(pinned());
}

TestCall(pins, native_kernels_run_outside_the_gate, expect_native("basic", false));
TestCall(pins, native_kernels_run_outside_the_gate_on_threads, expect_native("pthread", false));
TestCall(pins, native_kernels_that_were_held_run_outside_the_gate, expect_native("basic", true));

static void CL_CALLBACK nothing(void *data)
{
    (void)data;
}

Test(pins, native_kernels_refuse_what_the_specification_refuses)
{
    struct engine_rig rig;
    struct engine_program p;
    char args[64];
    engine_rig_open_pocl(&rig, "basic pthread");
    engine_program_open(&rig, 0, NULL, &p);
    cl_mem buffer = engine_buffer(p.context, CL_MEM_READ_WRITE, SIZE, NULL), none = NULL;
    const void *where = args + 8, *beyond = args + 60;
#define NATIVE(function, args, size, count, list, places)                                          \
    clEnqueueNativeKernel(p.queue, function, args, size, count, list, places, 0, NULL, NULL)
    cr_expect_eq(NATIVE(NULL, NULL, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(NATIVE(nothing, NULL, 8, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(NATIVE(nothing, args, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    cr_expect_eq(NATIVE(nothing, NULL, 0, 1, &buffer, &where), CL_INVALID_VALUE);
    cr_expect_eq(NATIVE(nothing, args, 64, 1, NULL, &where), CL_INVALID_VALUE);
    cr_expect_eq(NATIVE(nothing, args, 64, 1, &buffer, NULL), CL_INVALID_VALUE);
    cr_expect_eq(NATIVE(nothing, args, 64, 0, &buffer, NULL), CL_INVALID_VALUE);
    cr_expect_eq(NATIVE(nothing, args, 64, 0, NULL, &where), CL_INVALID_VALUE);
    cr_expect_eq(NATIVE(nothing, args, 64, 1, &none, &where), CL_INVALID_MEM_OBJECT);
    cr_expect_eq(NATIVE(nothing, args, 64, 1, &buffer, &beyond), CL_INVALID_VALUE);
    cr_expect_eq(clEnqueueNativeKernel(p.queue, nothing, NULL, 0, 0, NULL, NULL, 1, NULL, NULL),
                 CL_INVALID_EVENT_WAIT_LIST);
    cr_expect_null(pinned(), "%s", pinned());
    OK(NATIVE(nothing, NULL, 0, 0, NULL, NULL));
    OK(NATIVE(nothing, args, 64, 1, &buffer, &where));
    OK(clFinish(p.queue));
    cr_expect(pinned());
    OK(clReleaseMemObject(buffer));
    engine_program_close(&p);
}

/* Sub-devices. */

static cl_ulong device_number(cl_device_id device, cl_device_info name)
{
    cl_ulong value = 0;
    OK(clGetDeviceInfo(device, name, sizeof(value), &value, NULL));
    return value;
}

Test(pins, sub_devices_pin_the_device_that_was_divided)
{
    struct engine_rig rig;
    struct engine_program p;
    cl_device_id parts[2], devices[2];
    cl_int error;
    cl_uint count = 0;
    size_t size;
    engine_rig_open_pocl_on(&rig, "basic pthread", "pthread");
    engine_program_open(&rig, 0, NULL, &p);
    const cl_device_partition_property singly[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_device_partition_property type[4];
    cr_assert_eq(device_number(rig.device, CL_DEVICE_PARTITION_MAX_SUB_DEVICES), 2,
                 "the test wants a machine that shows two processors");
    OK(clCreateSubDevices(rig.device, singly, 0, NULL, &count));
    cr_assert_eq(count, 2);
    cr_assert_null(pinned(), "nothing was made");
    OK(clCreateSubDevices(rig.device, singly, 2, parts, NULL));
    expect_refused(&rig, "sub-devices");
    for (size_t i = 0; i < 2; i++) {
        cr_expect_eq((cl_device_id)(uintptr_t)device_number(parts[i], CL_DEVICE_PARENT_DEVICE),
                     rig.device);
        cr_expect_eq(device_number(parts[i], CL_DEVICE_MAX_COMPUTE_UNITS), 1);
        cr_expect_eq(device_number(parts[i], CL_DEVICE_REFERENCE_COUNT), 1);
        cr_expect_eq(device_number(parts[i], CL_DEVICE_MAX_WORK_GROUP_SIZE),
                     device_number(rig.device, CL_DEVICE_MAX_WORK_GROUP_SIZE));
        OK(clGetDeviceInfo(parts[i], CL_DEVICE_PARTITION_TYPE, sizeof(type), type, &size));
        cr_expect_eq(size, sizeof(singly));
        cr_expect_eq(memcmp(type, singly, sizeof(singly)), 0);
    }
    OK(clRetainDevice(parts[0]));
    cr_expect_eq(device_number(parts[0], CL_DEVICE_REFERENCE_COUNT), 2);
    OK(clReleaseDevice(parts[0]));
    OK(clRetainDevice(rig.device));
    cr_expect_eq(device_number(rig.device, CL_DEVICE_REFERENCE_COUNT), 1);
    OK(clReleaseDevice(rig.device));

    /* A context keeps its devices; one of parts alone is not the parent's. */
    cl_context context = MADE(clCreateContext, NULL, 2, parts, NULL, NULL);
    cl_command_queue queue = MADE(clCreateCommandQueue, context, parts[1], 0);
    cr_expect_null(clCreateCommandQueue(context, rig.device, 0, &error));
    cr_expect_eq(error, CL_INVALID_DEVICE);
    /* Their addresses are not each other's. */
    cr_expect_null(clSVMAlloc(context, 0, SIZE, 0));
    RELEASE(parts[0], parts[1]);
    OK(clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof(devices), devices, NULL));
    cr_expect_eq(devices[0], parts[0]);
    cr_expect_eq(device_number(devices[1], CL_DEVICE_MAX_COMPUTE_UNITS), 1);
    expect_refused(&rig, "sub-devices");
    RELEASE(queue, context);
    cr_expect_eq(clReleaseDevice(parts[0]), CL_INVALID_DEVICE);
    cr_expect_eq(clGetDeviceInfo(parts[1], CL_DEVICE_TYPE, 0, NULL, &size), CL_INVALID_DEVICE);
    expect_free(&rig);

    /* From a device that cannot be divided it is moved home first. */
    engine_rig_moves(&rig, other(&rig));
    OK(clCreateSubDevices(rig.device, singly, 2, parts, NULL));
    struct vdev_status status;
    status_vdev(0, &status);
    cr_expect_str_eq(status.device.device, the_vdevs[0]->origin->key.device);
    RELEASE(parts[0], parts[1]);
    expect_free(&rig);
    engine_program_close(&p);
}

/* The other way round it is not: a part's program is not its device's. */
Test(pins, what_is_built_for_a_device_runs_on_its_parts)
{
    struct engine_rig rig;
    cl_device_id devices[2];
    cl_build_status status[2];
    const size_t one = 1;
    const char *text = "kernel void k(global int *a) { *a = 5; }";
    const cl_device_partition_property singly[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    engine_rig_open_pocl_on(&rig, "basic pthread", "pthread");
    devices[0] = rig.device;
    cl_device_id parts[2];
    OK(clCreateSubDevices(rig.device, singly, 2, parts, NULL));
    devices[1] = parts[0];
    cl_context context = MADE(clCreateContext, NULL, 2, devices, NULL, NULL);
    for (int built = 0; built < 2; built++) {
        cl_program program = MADE(clCreateProgramWithSource, context, 1, &text, NULL);
        OK(clBuildProgram(program, 1, &devices[built], NULL, NULL, NULL));
        for (int i = 0; i < 2; i++)
            OK(clGetProgramBuildInfo(program, devices[i], CL_PROGRAM_BUILD_STATUS,
                                     sizeof(status[i]), &status[i], NULL));
        cr_expect_eq(status[0], built == 0 ? CL_BUILD_SUCCESS : CL_BUILD_NONE);
        cr_expect_eq(status[1], CL_BUILD_SUCCESS);
        int number = 0;
        cl_kernel kernel = engine_kernel(program, "k");
        cl_mem buffer = engine_buffer(context, CL_MEM_READ_WRITE, sizeof(int), NULL);
        cl_command_queue queue = MADE(clCreateCommandQueue, context, parts[0], 0);
        OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof(number), &number, 0, NULL, NULL));
        cr_expect_eq(number, 5);
        RELEASE(queue, buffer, kernel, program);
    }
    RELEASE(context, parts[0], parts[1]);
}

/* Its threads may look at one after the program let it go. */
Test(pins, parts_stay_in_the_driver)
{
    struct engine_rig rig;
    cl_device_id parts[2], real[2];
    const cl_device_partition_property singly[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    engine_rig_open_pocl_on(&rig, "basic pthread", "pthread");
    const cl_icd_dispatch *cl = the_vdevs[0]->device->cl;
    OK(clCreateSubDevices(rig.device, singly, 2, parts, NULL));
    for (int i = 0; i < 2; i++) {
        real[i] = ((const struct vdev *)parts[i])->device->id;
        OK(clReleaseDevice(parts[i]));
        cr_expect_eq(clReleaseDevice(parts[i]), CL_INVALID_DEVICE);
    }
    for (int i = 0; i < 2; i++) {
        cl_uint units = 0;
        OK(cl->clGetDeviceInfo(real[i], CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL));
        cr_expect_eq(units, 1);
    }
}

Test(pins, sub_devices_refuse_what_the_specification_refuses)
{
    struct engine_rig rig;
    cl_device_id parts[2];
    const cl_device_partition_property none[] = {0}, singly[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0},
                                       numa[] = {CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN,
                                                 CL_DEVICE_AFFINITY_DOMAIN_NUMA, 0},
                                       many[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1000,
                                                 CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    engine_rig_open_pocl_on(&rig, "basic pthread", "pthread");
    cr_expect_eq(clCreateSubDevices(NULL, singly, 2, parts, NULL), CL_INVALID_DEVICE);
    cr_expect_eq(clCreateSubDevices(rig.device, NULL, 2, parts, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clCreateSubDevices(rig.device, none, 2, parts, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clCreateSubDevices(rig.device, numa, 2, parts, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clCreateSubDevices(rig.device, singly, 1, parts, NULL), CL_INVALID_VALUE);
    cr_expect_eq(clCreateSubDevices(rig.device, many, 2, parts, NULL),
                 CL_INVALID_DEVICE_PARTITION_COUNT);
    cr_expect_null(pinned(), "%s", pinned());
}
