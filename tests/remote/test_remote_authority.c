#include "tests/support/cases.h"
#include <CL/cl.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/server/operator.h"
#include "tests/remote/served.h"
#include "tests/support/comes.h"

/* What a server is the authority for: the memory of its devices, whose turn it is on them, and who
   may go on. The devices are emulated: a launch of `slow` takes for ever, one of `work` some time,
   without a processor. */

#define MIB         (UINT64_C(1) << 20)
#define DEADLINE_NS (90 * NS_PER_S)
#define ITEMS       "40000" /* A second. */
#define WORK_ITEMS  40      /* A millisecond. */
#define SLOW_ITEMS  (1u << 30)

static const char devices[] =
    "[one]\nbase=1 memory=256MiB max_alloc=256MiB items_per_s=" ITEMS " paced=work,slow\n";
static const char source[] = "kernel void work(global int *a) { if (a[0] == -1) a[1] = 1; }\n"
                             "kernel void slow(global int *a) { if (a[0] == -1) a[1] = 1; }\n"
                             "kernel void quick(global int *a) { a[0] = 7; }\n";

/* What a client's process says, and is told. */
struct board {
    _Atomic unsigned done[2];
    atomic_bool stop, go;
    atomic_int error;
    atomic_bool ready;
};

static struct served served;
static struct board *board;

static void set_up(void)
{
    static char config[PATH_MAX];
    snprintf(config, sizeof(config), "/tmp/authority-%d.emu", getpid());
    FILE *file = fopen(config, "we");
    cr_assert(file && fputs(devices, file) >= 0 && fclose(file) == 0);
    setenv("EMU_CONFIG", config, 1);
    setenv("TEST_VENDORS", getenv("TEST_EMU"), 1);
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(board, MAP_FAILED);
}

static void start(void)
{
    set_up();
    served_start(&served, (const char *const[]){"--reserve", "56MiB", NULL});
    served_use(&served);
}

static void start_tcp(void)
{
    set_up();
    served_start_tcp(&served, NULL);
    served_use(&served);
}

static void stop(void)
{
    unlink(getenv("EMU_CONFIG"));
    served_stop(&served);
}

TestSuite(remote_authority, .init = start, .fini = stop, .timeout = 200);
TestSuite(remote_authority_tcp, .init = start_tcp, .fini = stop, .timeout = 200);

struct program {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_program program;
    cl_mem memory;
};

/* In the test's own process, or a client's: what fails ends it. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void begin(struct program *program)
{
    cl_platform_id platform;
    cl_int error;
    const char *text = source;
    MUST(clGetPlatformIDs(1, &platform, NULL) == CL_SUCCESS);
    MUST(!clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &program->device, NULL));
    program->context = clCreateContext(NULL, 1, &program->device, NULL, NULL, &error);
    MUST(!error);
    program->queue = clCreateCommandQueue(program->context, program->device, 0, &error);
    MUST(!error);
    program->program = clCreateProgramWithSource(program->context, 1, &text, NULL, &error);
    MUST(!error);
    MUST(!clBuildProgram(program->program, 0, NULL, "", NULL, NULL));
    program->memory = clCreateBuffer(program->context, 0, 4096, NULL, &error);
    MUST(!error);
}

static cl_int launch(const struct program *program, const char *name, size_t items)
{
    const size_t local = 1;
    cl_int error;
    cl_kernel kernel = clCreateKernel(program->program, name, &error);
    if (!error)
        error = clSetKernelArg(kernel, 0, sizeof(cl_mem), &program->memory);
    if (!error)
        error =
            clEnqueueNDRangeKernel(program->queue, kernel, 1, NULL, &items, &local, 0, NULL, NULL);
    if (kernel)
        clReleaseKernel(kernel);
    return error;
}

static pid_t run(void (*client)(unsigned number), unsigned number)
{
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        client(number);
        _exit(0);
    }
    return pid;
}

static void wait_until(bool (*is_so)(void), const char *what)
{
    cr_assert(COMES(is_so(), DEADLINE_NS), "not %s", what);
}

static bool is_ready(void)
{
    return atomic_load(&board->ready);
}

static void must_end(pid_t pid)
{
    int status = 0;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", (unsigned)status);
}

/* ---- memory ---- */

static cl_int use_memory(const struct program *program, size_t bytes, cl_mem *ret_memory)
{
    cl_int error;
    *ret_memory = clCreateBuffer(program->context, 0, bytes, NULL, &error);
    MUST(!error);
    return clEnqueueWriteBuffer(program->queue, *ret_memory, CL_TRUE, 0, 1, "x", 0, NULL, NULL);
}

/* Another user's client: it has 150 MiB, until it is stopped or killed. */
static void have_150(unsigned number)
{
    struct program program;
    cl_mem memory;
    (void)number;
    begin(&program);
    MUST(!use_memory(&program, 150 * MIB, &memory));
    atomic_store(&board->ready, true);
    while (!atomic_load(&board->stop))
        clock_sleep(NS_PER_MS);
    MUST(!clReleaseMemObject(memory));
    atomic_store(&board->ready, false);
    for (;;)
        pause();
}

Test(remote_authority, two_clients_are_not_promised_the_same_memory)
{
    struct program program;
    cl_mem memory;
    cl_ulong all = 0;
    pid_t other = run(have_150, 0);
    wait_until(is_ready, "ready");
    begin(&program);
    clGetDeviceInfo(program.device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(all), &all, NULL);
    cr_expect_eq(all, 200 * MIB, "all but the reserve");
    cr_expect_eq(use_memory(&program, 60 * MIB, &memory), CL_MEM_OBJECT_ALLOCATION_FAILURE);
    clReleaseMemObject(memory);
    cr_expect_eq(use_memory(&program, 30 * MIB, &memory), CL_SUCCESS);
    clReleaseMemObject(memory);
    /* However the other ends, what it had is there again. */
    kill(other, SIGKILL);
    cr_assert_eq(waitpid(other, NULL, 0), other);
    uint64_t until = clock_now_ns() + DEADLINE_NS;
    while (use_memory(&program, 180 * MIB, &memory) != CL_SUCCESS) {
        clReleaseMemObject(memory);
        cr_assert(clock_now_ns() < until);
        clock_sleep(10 * NS_PER_MS);
    }
}

Test(remote_authority, memory_that_is_released_is_given_back)
{
    struct program program;
    cl_mem memory;
    pid_t other = run(have_150, 0);
    wait_until(is_ready, "ready");
    begin(&program);
    cr_expect_eq(use_memory(&program, 180 * MIB, &memory), CL_MEM_OBJECT_ALLOCATION_FAILURE);
    clReleaseMemObject(memory);
    atomic_store(&board->stop, true);
    uint64_t until = clock_now_ns() + DEADLINE_NS;
    while (use_memory(&program, 180 * MIB, &memory) != CL_SUCCESS) {
        clReleaseMemObject(memory);
        cr_assert(clock_now_ns() < until);
        clock_sleep(10 * NS_PER_MS);
    }
    kill(other, SIGKILL);
    cr_assert_eq(waitpid(other, NULL, 0), other);
}

static void have_150_later(unsigned number)
{
    while (!atomic_load(&board->go))
        clock_sleep(NS_PER_MS);
    have_150(number);
}

static uint64_t free_bytes(const struct program *program)
{
    size_t kib[2] = {0};
    MUST(!clGetDeviceInfo(program->device, 0x4039, sizeof(kib), kib, NULL));
    return (uint64_t)kib[0] << 10;
}

Test(remote_authority, clients_hear_what_is_free)
{
    struct program program;
    /* Before this process has a driver, which a child could not use. */
    pid_t other = run(have_150_later, 0);
    begin(&program);
    cr_expect_gt(free_bytes(&program), 150 * MIB);
    atomic_store(&board->go, true);
    uint64_t until = clock_now_ns() + DEADLINE_NS;
    while (free_bytes(&program) > 50 * MIB) {
        cr_assert(clock_now_ns() < until);
        clock_sleep(10 * NS_PER_MS);
    }
    kill(other, SIGKILL);
    cr_assert_eq(waitpid(other, NULL, 0), other);
    while (free_bytes(&program) < 150 * MIB) {
        cr_assert(clock_now_ns() < until);
        clock_sleep(10 * NS_PER_MS);
    }
}

/* ---- turns ---- */

/* It gives as much as it can, and counts what has ended. */
static void flood(unsigned number)
{
    struct program program;
    begin(&program);
    atomic_fetch_add(&board->done[number], 0);
    while (!atomic_load(&board->stop)) {
        for (int i = 0; i < 8; i++)
            MUST(!launch(&program, "work", WORK_ITEMS));
        MUST(!clFinish(program.queue));
        atomic_fetch_add(&board->done[number], 8);
    }
}

static bool both_began(void)
{
    return atomic_load(&board->done[0]) && atomic_load(&board->done[1]);
}

static unsigned from_now_on[2];

static bool much_is_done(void)
{
    return atomic_load(&board->done[0]) - from_now_on[0] + atomic_load(&board->done[1]) -
               from_now_on[1] >=
           1500;
}

Test(remote_authority_tcp, timeslices_go_by_weight)
{
    static const char *const shares[2] = {"100", "400"};
    pid_t clients[2];
    for (unsigned i = 0; i < 2; i++) {
        char name[16], credentials[PATH_MAX];
        snprintf(name, sizeof(name), "client%u", i);
        served_issue(&served, name, "--share", shares[i], credentials);
        setenv("RESEAT_CREDENTIALS", credentials, 1);
        clients[i] = run(flood, i);
    }
    wait_until(both_began, "both at work");
    for (int i = 0; i < 2; i++)
        from_now_on[i] = atomic_load(&board->done[i]);
    wait_until(much_is_done, "much done");
    unsigned light = atomic_load(&board->done[0]) - from_now_on[0];
    unsigned heavy = atomic_load(&board->done[1]) - from_now_on[1];
    atomic_store(&board->stop, true);
    must_end(clients[0]);
    must_end(clients[1]);
    /* One to four. */
    cr_expect_gt(heavy, 2 * light, "%u and %u", light, heavy);
    cr_expect_gt(light, heavy / 12, "%u and %u", light, heavy);
}

static void hold_for_ever(unsigned number)
{
    struct program program;
    cl_mem memory;
    (void)number;
    begin(&program);
    MUST(!use_memory(&program, 150 * MIB, &memory));
    MUST(!launch(&program, "slow", SLOW_ITEMS));
    clFlush(program.queue);
    atomic_store(&board->ready, true);
    atomic_store(&board->error, clFinish(program.queue));
}

static cl_int do_quick(const struct program *program)
{
    cl_int error = launch(program, "quick", 1);
    return error ? error : clFinish(program->queue);
}

static uint32_t kicked;

static bool kick_uid(void *data, int fd, const struct operator_answer *server)
{
    struct operator_request request = {.version = OPERATOR_VERSION, .what = OPERATOR_KICK};
    struct operator_answer answer;
    (void)server;
    request.number = *(uint32_t *)data;
    cr_assert_eq(operator_ask(fd, &request, &answer), 0);
    kicked += answer.error ? 0 : answer.count;
    return true;
}

static struct operator_session listed[8];
static uint32_t listed_count;

static bool list(void *data, int fd, const struct operator_answer *server)
{
    struct operator_request request = {.version = OPERATOR_VERSION, .what = OPERATOR_SESSION};
    struct operator_answer answer;
    (void)data;
    cr_expect_eq(server->pid, served.pid);
    cr_expect_str_eq(server->addresses, served.address);
    listed_count = 0;
    while (!operator_ask(fd, &request, &answer) && !answer.error) {
        listed[listed_count++] = answer.session;
        request.number = answer.session.number + 1;
    }
    return true;
}

Test(remote_authority, an_endless_kernel_holds_up_its_own_client_only)
{
    struct program program;
    char problem[FOLDER_PROBLEM_MAX], name[32];
    cl_mem memory;
    pid_t hog = run(hold_for_ever, 0);
    wait_until(is_ready, "ready");
    begin(&program);
    for (int i = 0; i < 50; i++)
        cr_assert_eq(do_quick(&program), CL_SUCCESS);
    cr_expect_eq(use_memory(&program, 30 * MIB, &memory), CL_SUCCESS);
    clReleaseMemObject(memory);
    cr_expect_eq(use_memory(&program, 60 * MIB, &memory), CL_MEM_OBJECT_ALLOCATION_FAILURE);
    clReleaseMemObject(memory);
    /* The operator sees it, and ends it. */
    cr_assert_eq(operator_servers(list, NULL, problem), 0, "%s", problem);
    cr_assert_eq(listed_count, 2);
    snprintf(name, sizeof(name), "unix:%u", (unsigned)geteuid());
    cr_expect_str_eq(listed[0].name, name);
    cr_expect_str_eq(listed[0].devices, "gpu0");
    cr_expect_geq(listed[0].memory, 150 * MIB);
    cr_expect_lt(listed[1].memory, 150 * MIB);
    /* Sessions say so once a second. */
    for (uint64_t until = clock_now_ns() + DEADLINE_NS;
         listed[0].busy_ns == 0 && clock_now_ns() < until; clock_sleep(10 * NS_PER_MS))
        cr_assert_eq(operator_servers(list, NULL, problem), 0, "%s", problem);
    cr_expect_gt(listed[0].busy_ns, 0);
    uint32_t none = 77;
    cr_assert_eq(operator_servers(kick_uid, &none, problem), 0);
    cr_expect_eq(kicked, 0);
    cr_assert_eq(operator_servers(kick_uid, &listed[0].number, problem), 0);
    cr_expect_eq(kicked, 1);
    must_end(hog);
    cr_expect_neq(atomic_load(&board->error), CL_SUCCESS);
    uint64_t until = clock_now_ns() + DEADLINE_NS;
    while (use_memory(&program, 180 * MIB, &memory) != CL_SUCCESS) {
        clReleaseMemObject(memory);
        cr_assert(clock_now_ns() < until);
        clock_sleep(10 * NS_PER_MS);
    }
    cr_expect_eq(do_quick(&program), CL_SUCCESS, "the other one goes on");
    cr_expect(served_writes(&served, "ended by the operator"));
}

/* ---- certificates ---- */

static void stay(unsigned number)
{
    struct program program;
    begin(&program);
    MUST(!do_quick(&program));
    atomic_store(&board->done[number], 1);
    while (do_quick(&program) == CL_SUCCESS)
        clock_sleep(NS_PER_MS);
    atomic_store(&board->done[number], 2);
}

static bool both_are_there(void)
{
    return atomic_load(&board->done[0]) == 1 && atomic_load(&board->done[1]) == 1;
}

Test(remote_authority_tcp, a_revoked_client_is_out_at_once)
{
    pid_t clients[2];
    for (unsigned i = 0; i < 2; i++) {
        char name[16], credentials[PATH_MAX];
        snprintf(name, sizeof(name), "client%u", i);
        served_issue(&served, name, NULL, NULL, credentials);
        setenv("RESEAT_CREDENTIALS", credentials, 1);
        clients[i] = run(stay, i);
    }
    wait_until(both_are_there, "both there");
    /* One of the same name, of another authority, is not meant. */
    struct served other = served;
    snprintf(other.ca, sizeof(other.ca), "%s/other", served.folder);
    char path[PATH_MAX];
    served_authority(&other, (const char *const[]){"--init-ca", "--name", "gpuhost", NULL});
    strcat(other.folder, "/other");
    served_issue(&other, "client1", NULL, NULL, path);
    served_authority(&other, (const char *const[]){"--revoke", "client1", NULL});
    served_authority(&served, (const char *const[]){"--revoke", "client0", NULL});
    must_end(clients[0]);
    cr_expect_eq(atomic_load(&board->done[0]), 2);
    clock_sleep(100 * NS_PER_MS);
    cr_expect_eq(atomic_load(&board->done[1]), 1);
    kill(clients[1], SIGKILL);
    cr_assert_eq(waitpid(clients[1], NULL, 0), clients[1]);
    cr_expect(served_writes(&served, "its certificate was revoked"));
}
