#include <arpa/inet.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "tests/remote/served.h"
#include "tests/support/calls.h"

/* What certificates allow and keep out, as programs see it that name a server by TCP. */

#define MIB         (1u << 20)
#define STRANGERS   40
#define CLIENTS     "4"
#define QUICKLY_NS  (30 * NS_PER_S) /* Not: until some connection times out. */
#define NO_PLATFORM 0

static struct served served;
static char credentials[PATH_MAX];

static void start(void)
{
    served_start_tcp(&served, (const char *const[]){"--clients", CLIENTS, NULL});
    served_use(&served);
}

static void stop(void)
{
    served_stop(&served);
}

TestSuite(remote_certificates, .init = start, .fini = stop, .timeout = 120);

/* In this process, whose driver looks once. */
static cl_uint platforms(void)
{
    cl_uint count = 0;
    uint64_t before = clock_now_ns();
    (void)clGetPlatformIDs(0, NULL, &count);
    cr_assert(clock_now_ns() - before < QUICKLY_NS);
    return count;
}

/* In a process of its own, which keeps its session until @stay is closed; -1: not at all. */
static cl_uint platforms_of_another(int stay, pid_t *ret_pid)
{
    int ends[2];
    unsigned char count = 99;
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        cl_uint found = 0;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)clGetPlatformIDs(0, NULL, &found);
        count = (unsigned char)found;
        (void)!write(ends[1], &count, 1);
        if (stay >= 0)
            (void)!read(stay, &count, 1);
        _exit(0);
    }
    close(ends[1]);
    cr_assert_eq(read(ends[0], &count, 1), 1);
    close(ends[0]);
    if (stay < 0)
        cr_assert_eq(waitpid(pid, NULL, 0), pid);
    else
        *ret_pid = pid;
    return count;
}

static void be(const char *name, const char *option, const char *value)
{
    served_issue(&served, name, option, value, credentials);
    setenv("RESEAT_CREDENTIALS", credentials, 1);
}

Test(remote_certificates, a_client_without_one_gets_no_platform)
{
    snprintf(credentials, sizeof(credentials), "%s/none.pem", served.folder);
    setenv("RESEAT_CREDENTIALS", credentials, 1);
    cr_assert_eq(platforms(), NO_PLATFORM);
}

Test(remote_certificates, one_of_another_authority_gets_no_platform)
{
    struct served other = served;
    snprintf(other.ca, sizeof(other.ca), "%s/other", served.folder);
    served_authority(&other, (const char *const[]){"--init-ca", "--name", "gpuhost", NULL});
    served_issue(&other, "laptop", NULL, NULL, credentials);
    setenv("RESEAT_CREDENTIALS", credentials, 1);
    cr_assert_eq(platforms(), NO_PLATFORM);
}

Test(remote_certificates, a_revoked_one_gets_no_platform)
{
    be("laptop", NULL, NULL);
    cr_assert_eq(platforms_of_another(-1, NULL), 1);
    served_authority(&served, (const char *const[]){"--revoke", "laptop", NULL});
    cr_assert_eq(platforms(), NO_PLATFORM);
}

Test(remote_certificates, only_devices_that_it_names_are_there)
{
    cl_platform_id platform;
    cl_uint count = 0;
    be("laptop", "--devices", "cpu1");
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &count));
    cr_assert_eq(count, 1);
}

Test(remote_certificates, devices_that_are_not_there_are_not_replaced)
{
    be("laptop", "--devices", "gpu0");
    cr_assert_eq(platforms(), NO_PLATFORM);
}

Test(remote_certificates, there_are_no_more_sessions_than_it_says)
{
    int stay[2];
    pid_t first = 0;
    be("laptop", "--sessions", "1");
    /* Nobody says goodbye for a process that ends by _exit(). */
    setenv("RESEAT_PATIENCE", "0", 1);
    cr_assert_eq(pipe(stay), 0);
    cr_assert_eq(platforms_of_another(stay[0], &first), 1);
    cr_assert_eq(platforms_of_another(-1, NULL), NO_PLATFORM);
    /* Another certificate is not meant. */
    be("desktop", "--sessions", "1");
    cr_assert_eq(platforms_of_another(-1, NULL), 1);
    /* When the first is gone, there is room. */
    snprintf(credentials, sizeof(credentials), "%s/laptop.pem", served.folder);
    setenv("RESEAT_CREDENTIALS", credentials, 1);
    (void)!write(stay[1], "", 1);
    cr_assert_eq(waitpid(first, NULL, 0), first);
    uint64_t until = clock_now_ns() + QUICKLY_NS;
    while (platforms_of_another(-1, NULL) != 1)
        cr_assert(clock_now_ns() < until);
}

struct program {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
};

static void begin(struct program *program)
{
    cl_platform_id platform;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &program->device, NULL));
    program->context = MADE(clCreateContext, NULL, 1, &program->device, NULL, NULL);
    program->queue = MADE(clCreateCommandQueue, program->context, program->device, 0);
}

/* What becomes of a byte that is written to it. */
static cl_int use(const struct program *program, cl_mem memory)
{
    cl_int error = clEnqueueWriteBuffer(program->queue, memory, CL_TRUE, 0, 1, "x", 0, NULL, NULL);
    return error ? error : clFinish(program->queue);
}

static cl_mem make(const struct program *program, size_t size)
{
    return MADE(clCreateBuffer, program->context, 0, size, NULL);
}

Test(remote_certificates, a_device_has_no_more_memory_than_it_says)
{
    struct program program;
    cl_ulong global = 0, largest = 0;
    be("laptop", "--memory", "64MiB");
    begin(&program);
    clGetDeviceInfo(program.device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(global), &global, NULL);
    clGetDeviceInfo(program.device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(largest), &largest, NULL);
    cr_assert_eq(global, 64 * MIB);
    cr_assert_eq(largest, 64 * MIB);
}

Test(remote_certificates, buffers_have_no_more_memory_than_it_says)
{
    struct program program;
    be("laptop", "--memory", "64MiB");
    begin(&program);
    cl_mem first = make(&program, 40 * MIB), second = make(&program, 24 * MIB);
    OK(use(&program, first));
    OK(use(&program, second));
    cl_mem third = make(&program, 1);
    cr_assert_eq(use(&program, third), CL_MEM_OBJECT_ALLOCATION_FAILURE);
    /* What is released can be had again. */
    clReleaseMemObject(second);
    cl_mem fourth = make(&program, 24 * MIB);
    OK(use(&program, fourth));
}

Test(remote_certificates, memory_counts_until_nothing_uses_it)
{
    struct program program;
    be("laptop", "--memory", "64MiB");
    begin(&program);
    const cl_buffer_region region = {0, MIB};
    cl_mem whole = make(&program, 40 * MIB);
    cl_mem part = MADE(clCreateSubBuffer, whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region);
    OK(use(&program, part));
    clReleaseMemObject(whole);
    cr_assert_eq(use(&program, make(&program, 40 * MIB)), CL_MEM_OBJECT_ALLOCATION_FAILURE);
}

Test(remote_certificates, images_have_no_more_memory_than_it_says)
{
    struct program program;
    cl_int error;
    be("laptop", "--memory", "8MiB");
    begin(&program);
    const cl_image_format format = {CL_RGBA, CL_FLOAT};
    const cl_image_desc desc = {
        .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 1024, .image_height = 1024};
    cr_expect_null(clCreateImage(program.context, 0, &format, &desc, NULL, &error));
    cr_assert_eq(error, CL_MEM_OBJECT_ALLOCATION_FAILURE);
}

/* They begin a handshake and say no more; the server has fewer places than they are. */
static void flood(int *strangers)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in from = {.sin_family = AF_INET};
    static const unsigned char hello[] = {22, 3, 1, 1, 0};
    cr_assert_eq(inet_pton(AF_INET, "127.0.0.2", &from.sin_addr), 1);
    to.sin_port = htons((in_port_t)atoi(strrchr(served.address, ':') + 1));
    for (int i = 0; i < STRANGERS; i++) {
        strangers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        cr_assert_eq(bind(strangers[i], (struct sockaddr *)&from, sizeof(from)), 0);
        cr_assert_eq(connect(strangers[i], (struct sockaddr *)&to, sizeof(to)), 0);
        (void)!send(strangers[i], hello, sizeof(hello), MSG_NOSIGNAL);
    }
}

Test(remote_certificates, strangers_keep_no_client_out)
{
    struct program program;
    int strangers[STRANGERS];
    be("laptop", NULL, NULL);
    flood(strangers);
    begin(&program);
    OK(use(&program, make(&program, 1)));
    flood(strangers);
    OK(use(&program, make(&program, 1)));
}
