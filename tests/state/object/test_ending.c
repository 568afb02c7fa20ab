#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "state/base/threads/thread.h"
#include "state/move/move.h"
#include "state/move/status.h"
#include "state/object/context.h"
#include "state/program/pace.h"
#include "tests/scratch.h"

/*
 * Processes that end while a mover, callbacks and status queries are at work, at every moment of a
 * move: none of them may be in a driver whose own handlers of exit() have run (EMU_EXIT). Each is a
 * process of its own, and ends as a program does: this has a main() of its own.
 */

enum {
    RUNS = 16,
    STEP_MS = 11,
    WORDS = 1024,
    STATUS = 9,
    CHILD_S = 240,
    SLICE_NS = 2000000,
    ROUNDS = 400000
};

static const char config[] =
    "[one] name=one base=1 build_ms=100 [two] name=two base=1 build_ms=100";
static const char *const source = "__kernel void add(__global uint *words)\n"
                                  "{ words[get_global_id(0)] += 1; }\n"
                                  "__kernel void spin(__global uint *words)\n"
                                  "{ uint at = get_global_id(0) % 1024, v = words[at];\n"
                                  "  for (uint i = 0; i < 12000; i++) v = v * 5 + i;\n"
                                  "  words[at] = v; }\n";

/* Its own would not survive the main thread's pthread_exit, after LLVM has set another. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "use_sigaltstack=0";
}

#define CALLS_FAIL(call, error)                                                                    \
    do {                                                                                           \
        fprintf(stderr, "%s: %d\n", call, error);                                                  \
        _exit(1);                                                                                  \
    } while (0)
#include "tests/support/calls.h"

static struct {
    cl_context context;
    cl_command_queue queue;
    cl_program program, second;
    cl_kernel kernel, spin;
    cl_mem buffer, spun;
    cl_uint total;
} p;

static void nap(unsigned ms)
{
    const struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

struct one_move {
    struct device **devices;
    unsigned number;
    sem_t ended;
};

static void *move_once(void *data)
{
    struct one_move *move = data;
    unsigned i = move->number;
    struct move_request request = {.target = i % 5 ? &move->devices[i % 2]->key : NULL};
    struct move_report report;
    move_run(&request, &report);
    if (report.result != MOVE_DONE)
        nap(1);
    sem_post(&move->ended);
    return NULL;
}

/* Each move in a thread of its own that ends with it, as those that the agent asks for. */
static void *move_on(void *data)
{
    struct one_move move = {.devices = data};
    sem_init(&move.ended, 0, 0);
    for (;;) {
        move.number++;
        OK(thread_start("move", 0, move_once, &move, NULL));
        while (sem_wait(&move.ended) != 0)
            ;
    }
    return NULL;
}

static void *ask_on(void *unused)
{
    (void)unused;
    for (;;) {
        struct vdev_status status;
        status_vdev(0, &status);
        nap(1);
    }
    return NULL;
}

static void CL_CALLBACK called(cl_event event, cl_int status, void *data)
{
    (void)event, (void)status, (void)data;
}

static void work(void)
{
    const size_t items = WORDS;
    cl_event event;
    OK(clEnqueueNDRangeKernel(p.queue, p.kernel, 1, NULL, &items, NULL, 0, NULL, &event));
    p.total++;
    OK(clSetEventCallback(event, CL_COMPLETE, called, NULL));
    OK(clReleaseEvent(event));
    cl_int error;
    OK(clReleaseMemObject(clCreateBuffer(p.context, CL_MEM_READ_WRITE, 4096, NULL, &error)));
    OK(clFinish(p.queue));
}

/* A launch that may be given in pieces, with a callback that nobody waits for. */
static void spin(void)
{
    const size_t items = 64 * WORDS, local = 64;
    cl_event event;
    OK(clEnqueueNDRangeKernel(p.queue, p.spin, 1, NULL, &items, &local, 0, NULL, &event));
    OK(clSetEventCallback(event, CL_COMPLETE, called, NULL));
    OK(clReleaseEvent(event));
    OK(clFlush(p.queue));
}

/* Registered before OpenCL is used, like the destructors of static objects: runs last. */
static void release_all(void)
{
    RELEASE(p.kernel, p.spin, p.program, p.second, p.buffer, p.spun, p.queue, p.context);
    nap(30); /* time enough for others to come out of, or into, a driver */
}

/* Registered last: runs first, and works on, though the program may be suspended. */
static void check_words(void)
{
    static cl_uint words[WORDS];
    work();
    OK(clEnqueueReadBuffer(p.queue, p.buffer, CL_TRUE, 0, sizeof(words), words, 0, NULL, NULL));
    for (int i = 0; i < WORDS; i++)
        if (words[i] != p.total)
            _exit(2);
}

static void *leave(void *unused)
{
    (void)unused;
    exit(STATUS);
}

static struct device **begin(uint64_t slice_ns)
{
    static cl_uint zero[WORDS];
    struct device **devices;
    size_t count;
    cl_platform_id platform;
    cl_device_id device;
    alarm(CHILD_S);
    atomic_store(&pace_slice_ns, slice_ns);
    atexit(release_all);
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    p.context = MADE(clCreateContext, NULL, 1, &device, NULL, NULL);
    p.queue = MADE(clCreateCommandQueue, p.context, device, 0);
    p.program = MADE(clCreateProgramWithSource, p.context, 1, (const char **)&source, NULL);
    OK(clBuildProgram(p.program, 0, NULL, "", NULL, NULL));
    p.second = MADE(clCreateProgramWithSource, p.context, 1, (const char **)&source, NULL);
    OK(clBuildProgram(p.second, 0, NULL, "-DSECOND", NULL, NULL));
    p.kernel = MADE(clCreateKernel, p.program, "add");
    p.buffer = MADE(clCreateBuffer, p.context, CL_MEM_COPY_HOST_PTR, sizeof(zero), zero);
    OK(clSetKernelArg(p.kernel, 0, sizeof(cl_mem), &p.buffer));
    p.spin = MADE(clCreateKernel, p.program, "spin");
    p.spun = MADE(clCreateBuffer, p.context, CL_MEM_COPY_HOST_PTR, sizeof(zero), zero);
    OK(clSetKernelArg(p.spin, 0, sizeof(cl_mem), &p.spun));
    work();
    OK(driver_list(&devices, &count) == 0 && count == 2 ? CL_SUCCESS : CL_DEVICE_NOT_FOUND);
    return devices;
}

/* To be returned from main() where it returns. */
static int child(unsigned ms)
{
    struct device **devices = begin(ms % 8 == 4 ? SLICE_NS : 0);
    pthread_t mover, asker;
    OK(pthread_create(&mover, NULL, move_on, devices));
    OK(pthread_create(&asker, NULL, ask_on, NULL));
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += (long)ms * 1000000;
    do {
        work();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - end.tv_sec) * 1000000000 + now.tv_nsec < end.tv_nsec);
    if (ms % 2)
        atexit(check_words);
    if (ms % 4 == 0)
        spin(); /* goes on when the process ends */
    if (ms % 3 == 0)
        return STATUS;
    if (ms % 3 == 1)
        exit(STATUS);
    pthread_t leaver;
    OK(pthread_create(&leaver, NULL, leave, NULL));
    pause();
    return 1;
}

/* POCL compiles what runs for the first time as it is run, and must not do so at the end. */
static int child_warm(void)
{
    (void)begin(SLICE_NS);
    spin();
    OK(clFinish(p.queue));
    return STATUS;
}

static pthread_t main_thread;

static void *go_on_alone(void *data)
{
    struct device **devices = data;
    struct move_request request = {.target = &devices[1]->key};
    struct move_report report;
    pthread_join(main_thread, NULL);
    move_run(&request, &report);
    work();
    exit(report.result == MOVE_DONE ? STATUS : 1);
}

/* The main thread ends, and the process does not. */
static int child_left(void)
{
    pthread_t other;
    main_thread = pthread_self();
    OK(pthread_create(&other, NULL, go_on_alone, begin(0)));
    pthread_exit(NULL);
}

int main(void)
{
    char path[SCRATCH_MAX];
    int fd = mkstemp(scratch(path, "ending")), failed = 0;
    if (fd < 0 || write(fd, config, sizeof(config) - 1) != sizeof(config) - 1)
        return 1;
    close(fd);
    setenv("EMU_CONFIG", path, 1);
    setenv("EMU_EXIT", "1", 1);
    setenv(DRIVER_ENV_VENDORS, getenv("EMU_VENDORS"), 1);
    setenv("RESEAT_PROFILE", "native", 1);
    unsetenv("OCL_ICD_VENDORS");
    for (unsigned i = 0; i <= RUNS + 1; i++) {
        pid_t pid = fork();
        if (pid == 0)
            return i == 0 ? child_warm() : i <= RUNS ? child((i - 1) * STEP_MS) : child_left();
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            return 1;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != STATUS) {
            fprintf(stderr, "process %u: status %#x\n", i, (unsigned)status);
            failed++;
        }
    }
    unlink(path);
    printf("%d of %d processes did not end as they should\n", failed, RUNS + 2);
    return failed != 0;
}
