#include <CL/cl_ext.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "tests/remote/served.h"
#include "tests/support/calls.h"

/* What a program sees of a server that is not there, dies, or stops: errors, soon, and no hang. */

#define LIMIT_NS (40 * NS_PER_S)

struct program {
    cl_platform_id platform;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_mem buffer;
};

static void begin(struct program *program)
{
    cl_uint count = 0;
    OK(clGetPlatformIDs(1, &program->platform, &count));
    cr_assert_eq(count, 1);
    OK(clGetDeviceIDs(program->platform, CL_DEVICE_TYPE_ALL, 1, &program->device, NULL));
    program->context = MADE(clCreateContext, NULL, 1, &program->device, NULL, NULL);
    program->queue = MADE(clCreateCommandQueue, program->context, program->device, 0);
    program->buffer = MADE(clCreateBuffer, program->context, 0, 4096, NULL);
    OK(clFinish(program->queue));
}

static atomic_int told;

static void CL_CALLBACK on_event(cl_event event, cl_int status, void *data)
{
    (void)event, (void)data;
    atomic_store(&told, status);
}

/* A read that waits for the program, while something happens to the server. */
static void lose(struct program *program, pid_t victim, int signal)
{
    char got[64];
    cl_int error;
    cl_event read, gate = MADE(clCreateUserEvent, program->context);
    OK(clEnqueueReadBuffer(program->queue, program->buffer, CL_FALSE, 0, sizeof(got), got, 1, &gate,
                           &read));
    OK(clSetEventCallback(read, CL_COMPLETE, on_event, NULL));
    atomic_store(&told, 1);
    uint64_t before = clock_now_ns();
    kill(victim, signal);
    cr_assert_eq(clWaitForEvents(1, &read), CL_DEVICE_NOT_AVAILABLE);
    cr_assert_eq(clFinish(program->queue), CL_DEVICE_NOT_AVAILABLE);
    cr_assert(clock_now_ns() - before < LIMIT_NS);
    while (atomic_load(&told) == 1 && clock_now_ns() - before < LIMIT_NS)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(atomic_load(&told), CL_DEVICE_NOT_AVAILABLE);
    clCreateBuffer(program->context, 0, 64, NULL, &error);
    cr_assert_eq(error, CL_DEVICE_NOT_AVAILABLE);
    RELEASE(program->buffer, read, program->queue, program->context);
}

Test(remote_loss, there_is_no_platform_without_a_server)
{
    struct served served = {.address = "unix:/nowhere/at/all"};
    cl_uint count = 7;
    uint64_t before = clock_now_ns();
    served_use(&served);
    cr_assert(clGetPlatformIDs(0, NULL, &count) != CL_SUCCESS || count == 0);
    cr_assert(clock_now_ns() - before < 5 * NS_PER_S);
}

Test(remote_loss, there_is_no_platform_of_servers_without_devices)
{
    struct served served;
    char addresses[3 * sizeof(served.address)];
    cl_uint count = 7;
    setenv("TEST_VENDORS", "/nowhere/at/all", 1);
    served_start(&served, NULL);
    served_use(&served);
    snprintf(addresses, sizeof(addresses), "%1$s %1$s %1$s", served.address);
    setenv("RESEAT_SERVER", addresses, 1);
    cr_assert(clGetPlatformIDs(0, NULL, &count) != CL_SUCCESS || count == 0);
    served_stop(&served);
}

Test(remote_loss, waits_end_when_the_session_is_killed, .timeout = 90)
{
    struct served served;
    struct program program;
    served_start(&served, NULL);
    served_use(&served);
    begin(&program);
    lose(&program, served_session(&served), SIGKILL);
    served_stop(&served);
}

Test(remote_loss, waits_end_when_the_whole_server_is_killed, .timeout = 90)
{
    struct served served;
    struct program program;
    char path[128];
    served_start(&served, NULL);
    served_use(&served);
    begin(&program);
    lose(&program, served.pid, SIGKILL);
    waitpid(served.pid, NULL, 0);
    snprintf(path, sizeof(path), "%s/s", served.folder);
    unlink(path);
    rmdir(served.folder);
}

Test(remote_loss, waits_end_when_the_session_is_stopped, .timeout = 90)
{
    struct served served;
    struct program program;
    served_start(&served, NULL);
    served_use(&served);
    setenv("RESEAT_PATIENCE", "5", 1);
    begin(&program);
    pid_t session = served_session(&served);
    lose(&program, session, SIGSTOP);
    kill(session, SIGKILL);
    served_stop(&served);
}

Test(remote_loss, a_stopped_server_is_given_up_at_the_start, .timeout = 90)
{
    struct served served;
    cl_uint count = 7;
    served_start(&served, NULL);
    served_use(&served);
    kill(served.pid, SIGSTOP);
    uint64_t before = clock_now_ns();
    cr_assert(clGetPlatformIDs(0, NULL, &count) != CL_SUCCESS || count == 0);
    cr_assert(clock_now_ns() - before < 20 * NS_PER_S);
    kill(served.pid, SIGCONT);
    served_stop(&served);
}

Test(remote_loss, a_forked_child_gets_errors_and_its_parent_goes_on, .timeout = 90)
{
    struct served served;
    struct program program;
    int status = 0;
    served_start(&served, NULL);
    served_use(&served);
    begin(&program);
    pid_t child = fork();
    if (child == 0)
        _exit(clFinish(program.queue) == CL_DEVICE_NOT_AVAILABLE ? 42 : 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    OK(clFinish(program.queue));
    served_stop(&served);
}

/* What the driver refuses, the server never hears of: its end neither. */
Test(remote_loss, what_cannot_be_made_costs_no_session, .timeout = 90)
{
    const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D,
                                .image_width = 16,
                                .image_height = 8,
                                .image_row_pitch = 70}; /* Of no memory, and of no whole pixels. */
    struct served served;
    struct program program;
    cl_int error;
    served_start(&served, NULL);
    served_use(&served);
    begin(&program);
    cr_assert(!clCreateImage(program.context, 0, &format, &desc, NULL, &error));
    cr_assert_eq(error, CL_INVALID_IMAGE_DESCRIPTOR);
    OK(clFinish(program.queue));
    served_stop(&served);
}

static cl_int statuses[3];
static atomic_uint called;

/* The first lasts longer than other callbacks wait for it. */
static void CL_CALLBACK on_status(cl_event event, cl_int status, void *data)
{
    (void)event, (void)data;
    if (status == CL_SUBMITTED)
        clock_sleep(200 * NS_PER_MS);
    statuses[atomic_load(&called)] = status;
    atomic_fetch_add(&called, 1);
}

Test(remote_loss, callbacks_of_an_event_are_called_one_after_another, .timeout = 90)
{
    struct served served;
    struct program program;
    cl_event event;
    served_start(&served, NULL);
    served_use(&served);
    begin(&program);
    OK(clEnqueueMarkerWithWaitList(program.queue, 0, NULL, &event));
    for (cl_int type = CL_SUBMITTED; type >= CL_COMPLETE; type--)
        OK(clSetEventCallback(event, type, on_status, NULL));
    OK(clWaitForEvents(1, &event));
    for (uint64_t until = clock_now_ns() + LIMIT_NS;
         atomic_load(&called) < 3 && clock_now_ns() < until;)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(atomic_load(&called), 3);
    for (cl_int i = 0; i < 3; i++)
        cr_assert_eq(statuses[i], CL_SUBMITTED - i);
    OK(clReleaseEvent(event));
    served_stop(&served);
}

/* By which reseat's engine knows it: with its driver in another process it has the same key. */
Test(remote_loss, a_device_says_which_one_it_is)
{
    static const char config[] = "[emu]\nuuid=000102030405060708090a0b0c0d0e0f\n";
    struct served served;
    char path[] = "/tmp/uuid-XXXXXX";
    int file = mkstemp(path);
    cr_assert(file >= 0 && write(file, config, strlen(config)) == (ssize_t)strlen(config));
    close(file);
    setenv("TEST_VENDORS", getenv("TEST_EMU"), 1);
    setenv("EMU_CONFIG", path, 1);
    served_start(&served, NULL);
    served_use(&served);
    cl_platform_id platform;
    cl_device_id device;
    cl_uchar uuid[CL_UUID_SIZE_KHR];
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    OK(clGetDeviceInfo(device, CL_DEVICE_UUID_KHR, sizeof(uuid), uuid, NULL));
    for (cl_uchar i = 0; i < CL_UUID_SIZE_KHR; i++)
        cr_expect_eq(uuid[i], i);
    served_stop(&served);
    unlink(path);
}
