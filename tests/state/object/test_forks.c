#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "state/move/move.h"
#include "state/object/context.h"

/*
 * Two threads fork while others map and unmap, use shared virtual memory, build, launch and move.
 * Their children use the library: only calls that reach no driver, whose own locks nobody makes
 * whole for a child. It is the library's work that none of them finds a lock that nobody has any
 * more, or waits for a thread that it does not have. Processes of their own: this has a
 * main() of its own.
 */

/* So many mappings are looked through, under their lock, for each that ends. */
enum { MAPPINGS = 3000 };
enum { FORKERS = 2, FORKS = 20, BYTES = 1 << 16, STATUS = 9, CHILD_S = 20 };

static const char config[] = "[one] name=one base=1 [two] name=two base=1";
static const char *const source = "__kernel void add(__global uint *words)\n"
                                  "{ words[get_global_id(0)] += 1; }\n";

#define CALLS_FAIL(call, error)                                                                    \
    do {                                                                                           \
        fprintf(stderr, "%s: %d\n", call, error);                                                  \
        _exit(1);                                                                                  \
    } while (0)
#include "tests/support/calls.h"

static struct {
    cl_context context;
    cl_device_id device;
    cl_command_queue queue, quiet; /* nobody but children uses the second */
    cl_program program;
    cl_kernel kernel, other;
    cl_mem buffer, own;
} p;

static atomic_bool over;
static atomic_uint turns[5];

/* Each of these is one that a child must not find locked. */

static void *map_on(void *unused)
{
    (void)unused;
    for (; !atomic_load(&over); turns[0]++) {
        void *words = MADE(clEnqueueMapBuffer, p.queue, p.buffer, CL_TRUE, CL_MAP_READ, 0, BYTES, 0,
                           NULL, NULL);
        OK(clEnqueueUnmapMemObject(p.queue, p.buffer, words, 0, NULL, NULL));
    }
    return NULL;
}

static void *share_on(void *unused)
{
    (void)unused;
    for (; !atomic_load(&over); turns[1]++) {
        void *pointer = clSVMAlloc(p.context, CL_MEM_READ_WRITE, 4096, 0);
        for (int i = 0; pointer && i < 100; i++)
            OK(clSetKernelArgSVMPointer(p.other, 0, pointer));
        clSVMFree(p.context, pointer);
    }
    return NULL;
}

static void *build_on(void *unused)
{
    (void)unused;
    for (; !atomic_load(&over); turns[2]++) {
        cl_program program =
            MADE(clCreateProgramWithSource, p.context, 1, (const char **)&source, NULL);
        OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
        OK(clReleaseProgram(program));
    }
    return NULL;
}

static void CL_CALLBACK called(cl_event event, cl_int status, void *data)
{
    (void)event, (void)status, (void)data;
}

static void *launch_on(void *unused)
{
    const size_t items = BYTES / sizeof(cl_uint);
    (void)unused;
    for (; !atomic_load(&over); turns[3]++) {
        cl_event event;
        OK(clEnqueueNDRangeKernel(p.queue, p.kernel, 1, NULL, &items, NULL, 0, NULL, &event));
        OK(clSetEventCallback(event, CL_COMPLETE, called, NULL));
        OK(clWaitForEvents(1, &event));
        OK(clReleaseEvent(event));
    }
    return NULL;
}

static void *move_on(void *data)
{
    struct device **devices = data;
    for (unsigned i = 1; !atomic_load(&over); i++) {
        struct move_request request = {.target = &devices[i % 2]->key};
        struct move_report report;
        move_run(&request, &report);
        turns[4] += report.result == MOVE_DONE;
    }
    return NULL;
}

/* In the child: all that takes a lock of the library's, and no driver. */
static int use(void)
{
    cl_int status;
    size_t size;
    cl_event set = MADE(clCreateUserEvent, p.context);
    OK(clSetEventCallback(set, CL_COMPLETE, called, NULL));
    for (int i = 0; i < 4; i++) {
        /* Held for as long as nobody sets it. */
        void *words =
            MADE(clEnqueueMapBuffer, p.quiet, p.own, CL_FALSE, CL_MAP_WRITE, 0, 64, 1, &set, NULL);
        OK(clEnqueueUnmapMemObject(p.quiet, p.own, words, 1, &set, NULL));
        /* Looks whether it is one of its blocks, and at nothing else if not. */
        (void)clSetKernelArgSVMPointer(p.other, 0, config);
        OK(clGetProgramBuildInfo(p.program, p.device, CL_PROGRAM_BUILD_STATUS, sizeof(status),
                                 &status, NULL));
        if (status != CL_BUILD_SUCCESS)
            _exit(2);
        OK(clGetKernelInfo(p.kernel, CL_KERNEL_FUNCTION_NAME, 0, NULL, &size));
    }
    return STATUS;
}

static pthread_mutex_t failed_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned failed;

static atomic_bool all_had_turns; /* or nobody waits for that any more */

static void *fork_on(void *data)
{
    const bool leaves = data != NULL;
    for (unsigned i = 0; i < FORKS || !atomic_load(&all_had_turns); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(CHILD_S);
            int result = use();
            if (leaves)
                exit(result);
            _exit(result);
        }
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
            WEXITSTATUS(status) != STATUS) {
            pthread_mutex_lock(&failed_lock);
            failed++;
            pthread_mutex_unlock(&failed_lock);
            fprintf(stderr, "child %u: status %#x\n", i, (unsigned)status);
            break;
        }
    }
    return NULL;
}

static struct device **begin(void)
{
    static cl_uint zero[BYTES / sizeof(cl_uint)];
    struct device **devices;
    size_t count;
    cl_platform_id platform;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &p.device, NULL));
    p.context = MADE(clCreateContext, NULL, 1, &p.device, NULL, NULL);
    p.queue = MADE(clCreateCommandQueue, p.context, p.device, 0);
    p.quiet = MADE(clCreateCommandQueue, p.context, p.device, 0);
    p.program = MADE(clCreateProgramWithSource, p.context, 1, (const char **)&source, NULL);
    OK(clBuildProgram(p.program, 0, NULL, "", NULL, NULL));
    p.kernel = MADE(clCreateKernel, p.program, "add");
    p.other = MADE(clCreateKernel, p.program, "add");
    p.buffer = MADE(clCreateBuffer, p.context, CL_MEM_COPY_HOST_PTR, sizeof(zero), zero);
    p.own = MADE(clCreateBuffer, p.context, CL_MEM_ALLOC_HOST_PTR, 4096, NULL);
    OK(clSetKernelArg(p.kernel, 0, sizeof(cl_mem), &p.buffer));
    for (unsigned i = 0; i < MAPPINGS; i++) {
        (void)MADE(clEnqueueMapBuffer, p.queue, p.buffer, CL_FALSE, CL_MAP_READ, 64, 64, 0, NULL,
                   NULL);
    }
    OK(clFinish(p.queue));
    OK(driver_list(&devices, &count) == 0 && count == 2 ? CL_SUCCESS : CL_DEVICE_NOT_FOUND);
    return devices;
}

/* @shares: on devices that have shared virtual memory, which keeps moves away mostly. */
static int run(bool shares)
{
    void *(*const work[])(void *) = {map_on, share_on, build_on, launch_on, move_on};
    pthread_t workers[5], forkers[FORKERS];
    struct device **devices = begin();
    for (unsigned i = 0; i < 5; i++)
        OK(i == 1 && !shares ? 0 : pthread_create(&workers[i], NULL, work[i], devices));
    for (unsigned i = 0; i < FORKERS; i++)
        OK(pthread_create(&forkers[i], NULL, fork_on, i ? &over : NULL));
    for (unsigned ms = 0; ms < CHILD_S * 1000 && (turns[0] == 0 || turns[2] == 0 || turns[3] == 0 ||
                                                  turns[shares ? 1 : 4] == 0);
         ms++)
        usleep(1000);
    atomic_store(&all_had_turns, true);
    for (unsigned i = 0; i < FORKERS; i++)
        pthread_join(forkers[i], NULL);
    atomic_store(&over, true);
    for (unsigned i = 0; i < 5; i++)
        if (i != 1 || shares)
            pthread_join(workers[i], NULL);
    printf("%u maps, %u allocations, %u builds, %u launches, %u moves beside forks\n", turns[0],
           turns[1], turns[2], turns[3], turns[4]);
    if (turns[0] == 0 || turns[2] == 0 || turns[3] == 0 || turns[shares ? 1 : 4] == 0)
        return 1;
    return failed != 0;
}

int main(void)
{
    char path[] = "/tmp/reseat-forks-XXXXXX";
    int fd = mkstemp(path), result = 0;
    if (fd < 0 || write(fd, config, sizeof(config) - 1) != sizeof(config) - 1)
        return 1;
    close(fd);
    setenv("EMU_CONFIG", path, 1);
    setenv("RESEAT_PROFILE", "native", 1);
    unsetenv("OCL_ICD_VENDORS");
    for (int shares = 0; shares < 2; shares++) {
        int status = 1;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            setenv(DRIVER_ENV_VENDORS,
                   shares ? "/etc/OpenCL/vendors/pocl.icd" : getenv("EMU_VENDORS"), 1);
            /* POCL's basic device waits for itself when two threads work with it. */
            if (shares)
                setenv("POCL_DEVICES", "pthread pthread", 1);
            return run(shares);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            result = 1;
    }
    unlink(path);
    return result;
}
