#include <limits.h>

#include "interpose/entry/start.h"
#include "tests/state/move/test_moves_common.h"
#include "tests/support/folder.h"

/* Builds for several virtual devices, which all their drivers do at once. */

#define VDEVS_MADE 4
#define ROUNDS     8

static const char *const source = "kernel void add(global int *a, int b) { a[0] += b; }";

static struct engine_rig rig;
static cl_device_id vdevs[VDEVS_MADE];
static cl_context context;

static void open_on(const char *config)
{
    static const char *const names[] = {"one", "two", "three", "four"};
    engine_rig_open(&rig, config);
    vdevs[0] = rig.device;
    for (int i = 1; i < VDEVS_MADE; i++)
        vdevs[i] = engine_rig_vdev(&rig, names[i]);
    context = MADE(clCreateContext, NULL, VDEVS_MADE, vdevs, NULL, NULL);
}

static cl_build_status status_of(cl_program program, int vdev)
{
    cl_build_status status = CL_BUILD_NONE;
    OK(clGetProgramBuildInfo(program, vdevs[vdev], CL_PROGRAM_BUILD_STATUS, sizeof(status), &status,
                             NULL));
    return status;
}

static void must_run(cl_program program, int vdev)
{
    const size_t one = 1;
    cl_int number = 5, more = 37;
    cl_command_queue queue = MADE(clCreateCommandQueue, context, vdevs[vdev], 0);
    cl_mem buffer = MADE(clCreateBuffer, context, CL_MEM_COPY_HOST_PTR, sizeof(number), &number);
    cl_kernel kernel = MADE(clCreateKernel, program, "add");
    ARGS(kernel, buffer, more);
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof(number), &number, 0, NULL, NULL));
    cr_assert_eq(number, 42);
    RELEASE(kernel, buffer, queue);
}

Test(program_many, each_device_has_what_was_built_for_it, .timeout = 300)
{
    open_on("[one] name=one base=1 [two] name=two base=1 [three] name=three base=1 "
            "[four] name=four base=1");
    for (int round = 0; round < ROUNDS; round++) {
        cl_program program = BUILT(context, source, "");
        for (int i = 0; i < VDEVS_MADE; i++) {
            cr_assert_eq(status_of(program, i), CL_BUILD_SUCCESS);
            must_run(program, i);
        }
        OK(clReleaseProgram(program));
    }
    OK(clReleaseContext(context));
    engine_rig_ends_empty(&rig);
}

Test(program_many, one_that_fails_fails_alone, .timeout = 300)
{
    open_on("[one] name=one base=1 [two] name=two base=1 [three] name=three base=1 build_fails=all "
            "[four] name=four base=1 build_ms=300");
    cl_program program = MADE(clCreateProgramWithSource, context, 1, (const char **)&source, NULL);
    cr_assert_eq(clBuildProgram(program, 0, NULL, "", NULL, NULL), CL_BUILD_PROGRAM_FAILURE);
    for (int i = 0; i < VDEVS_MADE; i++)
        cr_assert_eq(status_of(program, i), i == 2 ? CL_BUILD_ERROR : CL_BUILD_SUCCESS, "seat %d",
                     i);
    RELEASE(program, context);
    engine_rig_ends_empty(&rig);
}

/* Two kinds of devices: of each, one builds, and the others load its binary. */
Test(program_many, of_equal_devices_one_builds, .timeout = 300)
{
    static const char *const names[] = {"one", "two", "three", "four", "five"};
    static const char config[] = "[one] name=fpga base=1 [two] name=fpga base=1 "
                                 "[three] name=fpga base=1 [four] name=other base=1 "
                                 "[five] name=other base=1 build_ms=300";
    cl_device_id devices[ARRAY_SIZE(names)];
    uint64_t loads[ARRAY_SIZE(names)], all = 0;
    char folder[PATH_MAX], above[SCRATCH_MAX];
    folder_make(above);
    snprintf(folder, sizeof(folder), "%s/binaries", above);
    setenv(START_ENV_BINARIES, folder, 1);
    unsetenv(START_ENV_LIMIT);
    engine_rig_open(&rig, config);
    devices[0] = rig.device;
    for (size_t i = 1; i < ARRAY_SIZE(names); i++)
        devices[i] = engine_rig_vdev_on(rig.devices[i]);
    context = MADE(clCreateContext, NULL, ARRAY_SIZE(names), devices, NULL, NULL);
    cl_program program = BUILT(context, source, "");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        loads[i] = emu_shared_calls(rig.emu, names[i], "clCreateProgramWithBinary");
        all += loads[i];
        vdevs[0] = devices[i];
        cr_assert_eq(status_of(program, 0), CL_BUILD_SUCCESS);
        must_run(program, 0);
    }
    cr_assert_eq(all, ARRAY_SIZE(names) - 2, "%zu devices loaded a binary", (size_t)all);
    cr_assert_eq(loads[0] + loads[1] + loads[2], 2);
    RELEASE(program, context);
    engine_rig_ends_empty(&rig);
}
