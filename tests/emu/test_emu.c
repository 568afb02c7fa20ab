#include <time.h>

#include "tests/emu/config.h"
#include "tests/emu/fixture.h"
#include "tests/support/calls.h"

/* What an emulated device is: its answers, limits, memory and speed. */

#define MIB (1024ull * 1024)

static const char scale_source[] =
    "kernel void scale(global int *v, int by) { v[get_global_id(0)] *= by; }\n"
    "kernel void sizes(global int *v) { v[get_global_id(0)] = get_local_size(0); }\n"
    "kernel void swap(global int *v, local int *t) {\n"
    "  int l = get_local_id(0), n = get_local_size(0);\n"
    "  t[l] = v[get_global_id(0)]; barrier(CLK_LOCAL_MEM_FENCE);\n"
    "  v[get_global_id(0)] = t[n - 1 - l]; }\n";

static cl_kernel kernel_open(const struct emu_rig *rig, const struct emu_vdev *vdev,
                             const char *name, cl_mem first)
{
    cl_kernel kernel = MADE(rig->cl->clCreateKernel, vdev->program, name);
    OK(rig->cl->clSetKernelArg(kernel, 0, sizeof(first), &first));
    return kernel;
}

static cl_int launch(const struct emu_rig *rig, const struct emu_vdev *vdev, cl_kernel kernel,
                     size_t global, size_t local)
{
    return rig->cl->clEnqueueNDRangeKernel(vdev->queue, kernel, 1, NULL, &global,
                                           local != 0 ? &local : NULL, 0, NULL, NULL);
}

static cl_mem buffer_of(const struct emu_rig *rig, const struct emu_vdev *vdev, size_t size,
                        cl_int expected)
{
    cl_int err = CL_SUCCESS;
    cl_mem mem = rig->cl->clCreateBuffer(vdev->context, CL_MEM_READ_WRITE, size, NULL, &err);
    cr_assert_eq(err, expected, "%zu bytes: %d, not %d", size, err, expected);
    cr_assert_eq(mem == NULL, expected != CL_SUCCESS);
    return mem;
}

static uint64_t number(const struct emu_rig *rig, size_t device, cl_device_info param)
{
    uint64_t value = 0;
    cl_int err = rig->cl->clGetDeviceInfo(rig->devices[device], param, sizeof(value), &value, NULL);
    cr_assert_eq(err, CL_SUCCESS, "0x%x: %d", param, err);
    return value;
}

static void text(const struct emu_rig *rig, size_t device, cl_device_info param, char *value)
{
    OK(rig->cl->clGetDeviceInfo(rig->devices[device], param, 4096, value, NULL));
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

Test(emu, devices_answer_as_configured)
{
    struct emu_rig rig;
    char value[4096];
    unsigned char uuid[CL_UUID_SIZE_KHR];
    size_t items[3];
    emu_rig_open(&rig, "[one] type=accelerator name=\"A B\" memory=64MiB max_alloc=16MiB\n"
                       "# a comment\n"
                       " max_work_group_size=128 local_memory=32KiB compute_units=7 version=1.2\n"
                       " host_unified=yes mem_align=256 no_fp64=yes no_images=yes\n"
                       " uuid=000102030405060708090a0b0c0d0e0f extensions=cl_khr_fp64,cl_khr_spir\n"
                       "[two] base=1 type=cpu");
    cr_assert_eq(rig.device_count, 2);
    cr_assert_eq(number(&rig, 0, CL_DEVICE_TYPE), CL_DEVICE_TYPE_ACCELERATOR);
    cr_assert_eq(number(&rig, 0, CL_DEVICE_GLOBAL_MEM_SIZE), 64 * MIB);
    cr_assert_eq(number(&rig, 0, CL_DEVICE_MAX_MEM_ALLOC_SIZE), 16 * MIB);
    cr_assert_eq(number(&rig, 0, CL_DEVICE_MAX_WORK_GROUP_SIZE), 128);
    cr_assert_eq(number(&rig, 0, CL_DEVICE_LOCAL_MEM_SIZE), 32768);
    cr_assert_eq(number(&rig, 0, CL_DEVICE_MAX_COMPUTE_UNITS), 7);
    cr_assert_eq(number(&rig, 0, CL_DEVICE_HOST_UNIFIED_MEMORY), 1);
    cr_assert_eq(number(&rig, 1, CL_DEVICE_HOST_UNIFIED_MEMORY), 0);
    cr_assert_eq(number(&rig, 0, CL_DEVICE_MEM_BASE_ADDR_ALIGN), 2048);
    cr_assert_eq(number(&rig, 0, CL_DEVICE_DOUBLE_FP_CONFIG), 0);
    cr_assert_neq(number(&rig, 1, CL_DEVICE_DOUBLE_FP_CONFIG), 0);
    cr_assert_eq(number(&rig, 0, CL_DEVICE_IMAGE_SUPPORT), 0);
    cr_assert_eq(number(&rig, 1, CL_DEVICE_IMAGE_SUPPORT), 1);
    cr_assert_eq(number(&rig, 0, CL_DEVICE_PLATFORM), (uintptr_t)rig.platform);
    cr_assert_eq(number(&rig, 0, CL_DEVICE_PARENT_DEVICE), 0);
    OK(rig.cl->clGetDeviceInfo(rig.devices[0], CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof(items), items,
                               NULL));
    cr_assert_eq(items[0], 128);
    text(&rig, 0, CL_DEVICE_NAME, value);
    cr_assert_str_eq(value, "A B");
    text(&rig, 0, CL_DEVICE_VERSION, value);
    cr_assert_eq(strncmp(value, "OpenCL 1.2 ", 11), 0);
    text(&rig, 0, CL_DEVICE_EXTENSIONS, value);
    cr_assert_str_eq(value, "cl_khr_spir cl_khr_device_uuid");
    text(&rig, 1, CL_DEVICE_EXTENSIONS, value);
    cr_assert_not_null(strstr(value, "cl_khr_fp64"));
    cr_assert_null(strstr(value, "cl_khr_command_buffer"));
    OK(rig.cl->clGetDeviceInfo(rig.devices[0], CL_DEVICE_UUID_KHR, sizeof(uuid), uuid, NULL));
    for (unsigned char i = 0; i < sizeof(uuid); i++)
        cr_assert_eq(uuid[i], i);
}

Test(emu, only_devices_of_the_type_are_listed)
{
    struct emu_rig rig;
    cl_device_id found[2];
    cl_uint count = 0;
    emu_rig_open(&rig, "[a] type=gpu [b] type=cpu");
    OK(rig.cl->clGetDeviceIDs(rig.platform, CL_DEVICE_TYPE_CPU, 2, found, &count));
    cr_assert_eq(count, 1);
    cr_assert_eq(found[0], rig.devices[1]);
    cr_assert_eq(rig.cl->clGetDeviceIDs(rig.platform, CL_DEVICE_TYPE_ACCELERATOR, 2, found, &count),
                 CL_DEVICE_NOT_FOUND);
}

Test(emu, a_kernel_computes_through_wrapped_arguments)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    int values[64], by = 3;
    size_t local = 16;
    emu_rig_open(&rig, "[a] base=1");
    emu_vdev_open(&rig, 0, scale_source, &vdev);
    for (int i = 0; i < 64; i++)
        values[i] = i;
    cl_mem mem = buffer_of(&rig, &vdev, sizeof(values), CL_SUCCESS);
    cl_kernel scale = kernel_open(&rig, &vdev, "scale", mem);
    cl_kernel swap = kernel_open(&rig, &vdev, "swap", mem);
    OK(rig.cl->clSetKernelArg(scale, 1, sizeof(by), &by));
    OK(rig.cl->clSetKernelArg(swap, 1, local * sizeof(int), NULL));
    cl_event written, ran;
    OK(rig.cl->clEnqueueWriteBuffer(vdev.queue, mem, CL_FALSE, 0, sizeof(values), values, 0, NULL,
                                    &written));
    size_t global = 64;
    OK(rig.cl->clEnqueueNDRangeKernel(vdev.queue, scale, 1, NULL, &global, NULL, 1, &written,
                                      &ran));
    OK(launch(&rig, &vdev, swap, 64, local));
    OK(rig.cl->clWaitForEvents(1, &ran));
    int result[64];
    OK(rig.cl->clEnqueueReadBuffer(vdev.queue, mem, CL_TRUE, 0, sizeof(result), result, 1, &ran,
                                   NULL));
    for (int i = 0; i < 64; i++)
        cr_assert_eq(result[i], 3 * (i / 16 * 16 + 15 - i % 16));
    rig.cl->clReleaseEvent(written);
    rig.cl->clReleaseEvent(ran);
    rig.cl->clReleaseKernel(scale);
    rig.cl->clReleaseKernel(swap);
    rig.cl->clReleaseMemObject(mem);
    emu_vdev_close(&rig, &vdev);
    cr_assert_eq(emu_shared_live_all(rig.shared, "a"), 0);
}

Test(emu, an_image_is_read_through_a_wrapped_sampler)
{
    static const char source[] =
        "kernel void look(read_only image2d_t i, sampler_t s, global int *v) {\n"
        "  int x = get_global_id(0); v[x] = read_imagei(i, s, (int2)(x, 0)).x; }\n";
    struct emu_rig rig;
    struct emu_vdev vdev;
    int pixels[8] = {5, 4, 3, 2, 1, 0, 7, 6}, result[8];
    emu_rig_open(&rig, "[a]");
    emu_vdev_open(&rig, 0, source, &vdev);
    cl_image_format format = {CL_R, CL_SIGNED_INT32};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 1};
    cl_mem image = MADE(rig.cl->clCreateImage, vdev.context,
                        CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &format, &desc, pixels);
    cr_assert_geq(emu_shared_bytes(rig.shared, "a"), sizeof(pixels));
    cl_sampler sampler = MADE(rig.cl->clCreateSampler, vdev.context, CL_FALSE,
                              CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST);
    cl_mem mem = buffer_of(&rig, &vdev, sizeof(result), CL_SUCCESS);
    cl_kernel kernel = kernel_open(&rig, &vdev, "look", image);
    OK(rig.cl->clSetKernelArg(kernel, 1, sizeof(sampler), &sampler));
    OK(rig.cl->clSetKernelArg(kernel, 2, sizeof(mem), &mem));
    OK(launch(&rig, &vdev, kernel, 8, 0));
    OK(rig.cl->clEnqueueReadBuffer(vdev.queue, mem, CL_TRUE, 0, sizeof(result), result, 0, NULL,
                                   NULL));
    cr_assert_arr_eq(result, pixels, sizeof(pixels));
    rig.cl->clReleaseKernel(kernel);
    rig.cl->clReleaseSampler(sampler);
    rig.cl->clReleaseMemObject(image);
    rig.cl->clReleaseMemObject(mem);
    emu_vdev_close(&rig, &vdev);
    cr_assert_eq(emu_shared_live_all(rig.shared, "a"), 0);
}

Test(emu, memory_runs_out_and_comes_back)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    static char host[1 << 20];
    emu_rig_open(&rig, "[a] memory=8MiB max_alloc=4MiB");
    emu_vdev_open(&rig, 0, NULL, &vdev);
    buffer_of(&rig, &vdev, 4 * MIB + 1, CL_INVALID_BUFFER_SIZE);
    cl_mem first = buffer_of(&rig, &vdev, 4 * MIB, CL_SUCCESS);
    cl_mem second = buffer_of(&rig, &vdev, 3 * MIB, CL_SUCCESS);
    cl_mem used =
        MADE(rig.cl->clCreateBuffer, vdev.context, CL_MEM_USE_HOST_PTR, sizeof(host), host);
    cr_assert_eq(emu_shared_bytes(rig.shared, "a"), 8 * MIB);
    buffer_of(&rig, &vdev, 1, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    cl_buffer_region region = {0, 4096};
    cl_mem part = MADE(rig.cl->clCreateSubBuffer, first, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
    rig.cl->clReleaseMemObject(first);
    buffer_of(&rig, &vdev, 1, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    rig.cl->clReleaseMemObject(part);
    rig.cl->clReleaseMemObject(used);
    cr_assert_eq(emu_shared_bytes(rig.shared, "a"), 3 * MIB);
    rig.cl->clReleaseMemObject(second);
    cr_assert_eq(emu_shared_bytes(rig.shared, "a"), 0);
    cr_assert_eq(emu_shared_live(rig.shared, "a", EMU_MEM), 0);
    emu_vdev_close(&rig, &vdev);
}

Test(emu, memory_stays_taken_while_a_command_uses_it)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    static char bytes[4096];
    cl_int err;
    emu_rig_open(&rig, "[a] base=1 memory=8MiB");
    emu_vdev_open(&rig, 0, NULL, &vdev);
    cl_event gate = rig.cl->clCreateUserEvent(vdev.context, &err);
    cl_mem mem = buffer_of(&rig, &vdev, 4096, CL_SUCCESS);
    OK(rig.cl->clEnqueueWriteBuffer(vdev.queue, mem, CL_FALSE, 0, sizeof(bytes), bytes, 1, &gate,
                                    NULL));
    rig.cl->clReleaseMemObject(mem);
    cr_assert_eq(emu_shared_bytes(rig.shared, "a"), 4096);
    OK(rig.cl->clSetUserEventStatus(gate, CL_COMPLETE));
    OK(rig.cl->clFinish(vdev.queue));
    rig.cl->clReleaseEvent(gate);
    emu_vdev_close(&rig, &vdev);
    cr_assert_eq(emu_shared_bytes(rig.shared, "a"), 0);
}

Test(emu, launches_obey_the_limits)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    int result[256];
    size_t offered = 0;
    emu_rig_open(&rig, "[a] max_work_group_size=64 local_memory=1KiB "
                       "kernel_work_group_size=sizes:16,other:1");
    emu_vdev_open(&rig, 0, scale_source, &vdev);
    cl_mem mem = buffer_of(&rig, &vdev, sizeof(result), CL_SUCCESS);
    cl_kernel sizes = kernel_open(&rig, &vdev, "sizes", mem);
    cl_kernel swap = kernel_open(&rig, &vdev, "swap", mem);
    OK(rig.cl->clGetKernelWorkGroupInfo(swap, rig.devices[0], CL_KERNEL_WORK_GROUP_SIZE,
                                        sizeof(offered), &offered, NULL));
    cr_assert_eq(offered, 64);
    OK(rig.cl->clGetKernelWorkGroupInfo(sizes, NULL, CL_KERNEL_WORK_GROUP_SIZE, sizeof(offered),
                                        &offered, NULL));
    cr_assert_eq(offered, 16);
    cr_assert_eq(launch(&rig, &vdev, sizes, 128, 128), CL_INVALID_WORK_ITEM_SIZE);
    cr_assert_eq(launch(&rig, &vdev, sizes, 128, 32), CL_INVALID_WORK_GROUP_SIZE);
    OK(launch(&rig, &vdev, sizes, 128, 16));
    OK(launch(&rig, &vdev, sizes, 240, 0));
    OK(rig.cl->clEnqueueReadBuffer(vdev.queue, mem, CL_TRUE, 0, sizeof(result), result, 0, NULL,
                                   NULL));
    cr_assert(result[0] >= 1 && result[0] <= 16, "the driver chose %d", result[0]);
    OK(rig.cl->clSetKernelArg(swap, 1, 1024, NULL));
    OK(launch(&rig, &vdev, swap, 64, 64));
    OK(rig.cl->clSetKernelArg(swap, 1, 1028, NULL));
    cr_assert_eq(launch(&rig, &vdev, swap, 64, 64), CL_OUT_OF_RESOURCES);
    OK(rig.cl->clFinish(vdev.queue));
    rig.cl->clReleaseKernel(sizes);
    rig.cl->clReleaseKernel(swap);
    rig.cl->clReleaseMemObject(mem);
    emu_vdev_close(&rig, &vdev);
}

static cl_int build(const struct emu_rig *rig, const struct emu_vdev *vdev, const char *source,
                    char *ret_log)
{
    cl_program program = MADE(rig->cl->clCreateProgramWithSource, vdev->context, 1, &source, NULL);
    cl_int built = rig->cl->clBuildProgram(program, 0, NULL, NULL, NULL, NULL);
    OK(rig->cl->clGetProgramBuildInfo(program, rig->devices[0], CL_PROGRAM_BUILD_LOG, 4096, ret_log,
                                      NULL));
    cl_build_status status;
    OK(rig->cl->clGetProgramBuildInfo(program, rig->devices[0], CL_PROGRAM_BUILD_STATUS,
                                      sizeof(status), &status, NULL));
    cr_assert_eq(status, built == CL_SUCCESS ? CL_BUILD_SUCCESS : CL_BUILD_ERROR);
    rig->cl->clReleaseProgram(program);
    return built;
}

Test(emu, builds_fail_as_configured)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    char log[4096];
    emu_rig_open(&rig, "[a] build_fails=poison,bane no_fp64=yes");
    emu_vdev_open(&rig, 0, NULL, &vdev);
    OK(build(&rig, &vdev, "kernel void fine(global int *v) { v[0] = 1; }", log));
    cr_assert_eq(build(&rig, &vdev, "kernel void poison(global int *v) { v[0] = 1; }", log),
                 CL_BUILD_PROGRAM_FAILURE);
    cr_assert_not_null(strstr(log, "emulated"));
    cr_assert_eq(build(&rig, &vdev, "kernel void wide(global double *v) { v[0] = 1; }", log),
                 CL_BUILD_PROGRAM_FAILURE);
    emu_vdev_close(&rig, &vdev);
    cr_assert_eq(emu_shared_live_all(rig.shared, "a"), 0);
}

Test(emu, printing_without_parameters_does_not_build_with_what_tells_them)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    const char *text = "kernel void says(void) { printf(\"5\"); }";
    emu_rig_open(&rig, "[a] arg_info_fails=yes");
    emu_vdev_open(&rig, 0, NULL, &vdev);
    cl_program program = MADE(rig.cl->clCreateProgramWithSource, vdev.context, 1, &text, NULL);
    cr_assert_eq(rig.cl->clBuildProgram(program, 0, NULL, "-cl-kernel-arg-info", NULL, NULL),
                 CL_BUILD_PROGRAM_FAILURE);
    OK(rig.cl->clBuildProgram(program, 0, NULL, "", NULL, NULL));
    rig.cl->clReleaseProgram(program);
    emu_vdev_close(&rig, &vdev);
}

static cl_int load(const struct emu_rig *rig, const struct emu_vdev *vdev,
                   const unsigned char *binary, size_t size)
{
    cl_int err, status = CL_SUCCESS;
    cl_program program = rig->cl->clCreateProgramWithBinary(vdev->context, 1, &rig->devices[0],
                                                            &size, &binary, &status, &err);
    cr_assert_eq(status, err);
    if (program != NULL)
        rig->cl->clReleaseProgram(program);
    return err;
}

Test(emu, binaries_are_as_large_as_configured_and_refused_with_a_wrong_bit)
{
    enum { SIZE = 1 << 20 };
    struct emu_rig rig;
    struct emu_vdev vdev;
    size_t size = 0;
    unsigned char *binary = malloc(SIZE);
    emu_rig_open(&rig, "[a] binary_size=1MiB");
    emu_vdev_open(&rig, 0, scale_source, &vdev);
    OK(rig.cl->clGetProgramInfo(vdev.program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, NULL));
    cr_assert_eq(size, SIZE);
    OK(rig.cl->clGetProgramInfo(vdev.program, CL_PROGRAM_BINARIES, sizeof(binary), &binary, NULL));
    OK(load(&rig, &vdev, binary, size));
    for (size_t at = SIZE / 2; at < SIZE; at += SIZE / 2 - 1) {
        binary[at] ^= 16;
        cr_assert_eq(load(&rig, &vdev, binary, size), CL_INVALID_BINARY, "byte %zu", at);
        binary[at] ^= 16;
    }
    free(binary);
    emu_vdev_close(&rig, &vdev);
}

Test(emu, links_launches_and_builds_take_their_time)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    static char bytes[2000000];
    double start = seconds();
    emu_rig_open(&rig, "[a] link_mb_s=20 launch_ms=60 build_ms=70 open_ms=80 context_ms=50");
    cr_assert_geq(seconds() - start, 0.08);
    start = seconds();
    emu_vdev_open(&rig, 0, scale_source, &vdev);
    cr_assert_geq(seconds() - start, 0.12);
    cl_mem mem = buffer_of(&rig, &vdev, sizeof(bytes), CL_SUCCESS);
    start = seconds();
    OK(rig.cl->clEnqueueWriteBuffer(vdev.queue, mem, CL_TRUE, 0, sizeof(bytes), bytes, 0, NULL,
                                    NULL));
    cr_assert_geq(seconds() - start, 0.1);
    start = seconds();
    void *at = MADE(rig.cl->clEnqueueMapBuffer, vdev.queue, mem, CL_TRUE,
                    CL_MAP_READ | CL_MAP_WRITE, 0, sizeof(bytes), 0, NULL, NULL);
    cr_assert_geq(seconds() - start, 0.1);
    start = seconds();
    OK(rig.cl->clEnqueueUnmapMemObject(vdev.queue, mem, at, 0, NULL, NULL));
    cr_assert_geq(seconds() - start, 0.1);
    cl_kernel sizes = kernel_open(&rig, &vdev, "sizes", mem);
    start = seconds();
    OK(launch(&rig, &vdev, sizes, 16, 16));
    cr_assert_geq(seconds() - start, 0.06);
    OK(rig.cl->clFinish(vdev.queue));
    rig.cl->clReleaseKernel(sizes);
    rig.cl->clReleaseMemObject(mem);
    emu_vdev_close(&rig, &vdev);
}

/* A write and a read at once, and a launch after the write; none keeps its caller. */
Test(emu, engines_work_at_once_from_when_each_could_begin)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    static char in[2000000], out[2000000];
    enum { WRITE, READ, LAUNCH, COUNT };
    cl_command_queue queues[COUNT];
    cl_event events[COUNT];
    cl_ulong begun[COUNT], ended[COUNT];
    const size_t global = 16;
    emu_rig_open(&rig, "[a] base=1 engines=yes link_mb_s=20 setup_us=50000 items_per_s=160");
    emu_vdev_open(&rig, 0, scale_source, &vdev);
    cl_mem from = buffer_of(&rig, &vdev, sizeof(in), CL_SUCCESS);
    cl_mem to = buffer_of(&rig, &vdev, sizeof(in), CL_SUCCESS);
    cl_kernel sizes = kernel_open(&rig, &vdev, "sizes", to);
    for (int i = 0; i < COUNT; i++)
        queues[i] = rig.cl->clCreateCommandQueue(vdev.context, rig.devices[0],
                                                 CL_QUEUE_PROFILING_ENABLE, NULL);
    double start = seconds();
    OK(rig.cl->clEnqueueWriteBuffer(queues[WRITE], to, CL_FALSE, 0, sizeof(in), in, 0, NULL,
                                    &events[WRITE]));
    OK(rig.cl->clEnqueueReadBuffer(queues[READ], from, CL_FALSE, 0, sizeof(out), out, 0, NULL,
                                   &events[READ]));
    OK(rig.cl->clEnqueueNDRangeKernel(queues[LAUNCH], sizes, 1, NULL, &global, NULL, 1,
                                      &events[WRITE], &events[LAUNCH]));
    double enqueued = seconds() - start;
    OK(rig.cl->clWaitForEvents(COUNT, events));
    cr_assert_geq(seconds() - start, 0.15 + 0.15);
    cr_assert_lt(enqueued, 0.15);
    for (int i = 0; i < COUNT; i++) {
        rig.cl->clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_START, sizeof(cl_ulong),
                                        &begun[i], NULL);
        rig.cl->clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_END, sizeof(cl_ulong),
                                        &ended[i], NULL);
        cr_assert_geq(ended[i] - begun[i], 150000000);
        rig.cl->clReleaseEvent(events[i]);
        rig.cl->clReleaseCommandQueue(queues[i]);
    }
    cr_assert_lt(begun[READ], ended[WRITE]);
    cr_assert_geq(begun[LAUNCH], ended[WRITE]);
    rig.cl->clReleaseKernel(sizes);
    rig.cl->clReleaseMemObject(to);
    rig.cl->clReleaseMemObject(from);
    emu_vdev_close(&rig, &vdev);
}

/* The second one after the first, and as the profile says; other kernels as ever. */
Test(emu, a_paced_kernel_takes_its_time_after_the_call)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    cl_event event;
    cl_ulong begun, ended;
    const size_t global = 16;
    emu_rig_open(&rig, "[a] base=1 items_per_s=100 paced=sizes");
    emu_vdev_open(&rig, 0, scale_source, &vdev);
    OK(rig.cl->clReleaseCommandQueue(vdev.queue));
    vdev.queue =
        MADE(rig.cl->clCreateCommandQueue, vdev.context, rig.devices[0], CL_QUEUE_PROFILING_ENABLE);
    cl_mem mem = buffer_of(&rig, &vdev, 4096, CL_SUCCESS);
    cl_kernel sizes = kernel_open(&rig, &vdev, "sizes", mem);
    double start = seconds();
    OK(launch(&rig, &vdev, sizes, 16, 16));
    OK(rig.cl->clEnqueueNDRangeKernel(vdev.queue, sizes, 1, NULL, &global, &global, 0, NULL,
                                      &event));
    OK(rig.cl->clFinish(vdev.queue));
    cr_assert_geq(seconds() - start, 0.32);
    OK(rig.cl->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof(begun), &begun,
                                       NULL));
    OK(rig.cl->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(ended), &ended,
                                       NULL));
    cr_assert_eq(ended - begun, 160000000u);
    rig.cl->clReleaseEvent(event);
    rig.cl->clReleaseKernel(sizes);
    rig.cl->clReleaseMemObject(mem);
    emu_vdev_close(&rig, &vdev);
}

Test(emu, what_a_device_does_not_offer_is_refused)
{
    struct emu_rig rig;
    struct emu_vdev vdev;
    cl_int err;
    cl_uint formats = 1;
    cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
    emu_rig_open(&rig, "[a] version=1.2 no_images=yes mem_align=1024 [b]");
    emu_vdev_open(&rig, 0, NULL, &vdev);
    cr_assert_null(
        rig.cl->clCreateCommandQueueWithProperties(vdev.context, rig.devices[0], NULL, &err));
    cr_assert_eq(err, CL_INVALID_OPERATION);
    cr_assert_null(rig.cl->clCreateImage(vdev.context, 0, &format, &desc, NULL, &err));
    cr_assert_eq(err, CL_INVALID_OPERATION);
    OK(rig.cl->clGetSupportedImageFormats(vdev.context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0,
                                          NULL, &formats));
    cr_assert_eq(formats, 0);
    cl_mem mem = buffer_of(&rig, &vdev, 4096, CL_SUCCESS);
    cl_buffer_region region = {512, 512};
    cr_assert_null(rig.cl->clCreateSubBuffer(mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &err));
    cr_assert_eq(err, CL_MISALIGNED_SUB_BUFFER_OFFSET);
    rig.cl->clReleaseMemObject(mem);
    emu_vdev_close(&rig, &vdev);
    emu_vdev_open(&rig, 1, NULL, &vdev);
    cl_command_queue queue =
        MADE(rig.cl->clCreateCommandQueueWithProperties, vdev.context, rig.devices[1], NULL);
    rig.cl->clReleaseCommandQueue(queue);
    emu_vdev_close(&rig, &vdev);
}

Test(emu, a_configuration_that_is_wrong_is_refused_with_the_reason)
{
    static const char *const wrong[] = {"key=1",       "[a] memory=1TB",  "[a] nonsense=1",
                                        "[a] uuid=00", "[a] version=3.1", "[a] type=toaster",
                                        "[] memory=1", "[a] no_fp64=1",   "[a] memory=-1",
                                        "[a] base=x",  "[a] memory",      "[a"};
    static struct emu_config configs[EMU_DEVICES_MAX];
    char error[EMU_TEXT_MAX];
    size_t count = 99;
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        error[0] = '\0';
        cr_assert_lt(emu_config_parse(wrong[i], configs, &count, error), 0, "%s", wrong[i]);
        cr_assert_neq(error[0], '\0');
        cr_assert_eq(count, 99, "outputs stay as they are");
    }
}
