#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "tests/remote/proxy.h"
#include "tests/remote/served.h"
#include "tests/support/calls.h"
#include "tests/support/comes.h"

/*
 * What a program sees of links that break: nothing, but time. What it computes is compared with
 * what the same operations give here.
 */

#define WORDS     1024u
#define LIMIT_NS  (60 * NS_PER_S)
#define SILENCE_S 10 /* After it, the driver gives a link up. */

static const char source[] =
    "__kernel void turn(__global uint *a, uint b) {"
    "    size_t i = get_global_id(0); a[i] = a[i] * 1664525u + b + (uint)i; }";

struct program {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_program program;
    cl_kernel kernel;
    cl_mem buffer;
    unsigned turns;
    cl_uint words[WORDS];
};

static struct served served;
static struct proxy *proxies[2];
static char credentials[PATH_MAX];

static uint16_t server_port(void)
{
    return (uint16_t)atoi(strrchr(served.address, ':') + 1);
}

/* A server by TCP; programs reach it through one network, or two. */
static void start_behind(unsigned networks, const char *const *options)
{
    char addresses[128] = "";
    served_start_tcp(&served, options);
    served_issue(&served, "laptop", NULL, NULL, credentials);
    setenv("RESEAT_CREDENTIALS", credentials, 1);
    for (unsigned i = 0; i < networks; i++) {
        proxies[i] = proxy_create(server_port());
        cr_assert(proxies[i]);
        size_t used = strlen(addresses);
        snprintf(addresses + used, sizeof(addresses) - used, "%stcp:127.0.0.1:%u", i ? "," : "",
                 proxy_port(proxies[i]));
    }
    served_use(&served);
    setenv("RESEAT_SERVER", addresses, 1);
}

static void build(struct program *p)
{
    p->program = BUILT(p->context, source, "");
    p->kernel = MADE(clCreateKernel, p->program, "turn");
}

static void begin(struct program *p)
{
    cl_platform_id platform;
    memset(p, 0, sizeof(*p));
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &p->device, NULL));
    p->context = MADE(clCreateContext, NULL, 1, &p->device, NULL, NULL);
    p->queue = MADE(clCreateCommandQueue, p->context, p->device, CL_QUEUE_PROFILING_ENABLE);
    for (cl_uint i = 0; i < WORDS; i++)
        p->words[i] = i * 2654435761u;
    p->buffer = MADE(clCreateBuffer, p->context, CL_MEM_COPY_HOST_PTR, sizeof(p->words), p->words);
    build(p);
}

/* Launches, each of which changes what the last one made. */
static void launch(struct program *p, unsigned count)
{
    const size_t global = WORDS;
    while (count--) {
        cl_uint add = p->turns++ * 97;
        OK(clSetKernelArg(p->kernel, 0, sizeof(cl_mem), &p->buffer));
        OK(clSetKernelArg(p->kernel, 1, sizeof(add), &add));
        OK(clEnqueueNDRangeKernel(p->queue, p->kernel, 1, NULL, &global, NULL, 0, NULL, NULL));
        for (cl_uint i = 0; i < WORDS; i++)
            p->words[i] = p->words[i] * 1664525u + add + i;
    }
}

static void check(struct program *p)
{
    cl_uint got[WORDS];
    memset(got, 0, sizeof(got));
    OK(clEnqueueReadBuffer(p->queue, p->buffer, CL_TRUE, 0, sizeof(got), got, 0, NULL, NULL));
    cr_assert_arr_eq(got, p->words, sizeof(got), "after %u launches", p->turns);
}

static void end(struct program *p)
{
    RELEASE(p->buffer, p->kernel, p->program, p->queue, p->context);
}

/* One turn of a program, from making its objects to their end. */
static void live(struct program *p)
{
    begin(p);
    launch(p, 3);
    check(p);
    launch(p, 2);
    check(p);
    end(p);
}

static void stop(void)
{
    for (int i = 0; i < 2; i++)
        proxy_destroy(proxies[i]);
    served_stop(&served);
    cr_assert(!served_wrote(&served, " crashed: ") && !served_wrote(&served, "Sanitizer"));
}

/* Behind each of the bytes of a program's life, in steps that are no divisor of any frame. */
static void cut_everywhere(enum proxy_way way, uint64_t step)
{
    struct program p;
    start_behind(1, NULL);
    live(&p);
    uint64_t before = proxy_bytes(proxies[0], way);
    live(&p);
    uint64_t all = proxy_bytes(proxies[0], way) - before;
    cr_assert_gt(all, 1000);
    unsigned lives = 0, cuts = 0;
    for (uint64_t after = 1; after < all; after += step) {
        unsigned connections = proxy_connections(proxies[0]);
        before = proxy_bytes(proxies[0], way);
        proxy_cut_in(proxies[0], way, after);
        live(&p);
        bool cut = proxy_connections(proxies[0]) > connections;
        /* Acknowledgements depend on time, so that some lives have fewer bytes than the first. */
        cr_assert(cut || proxy_bytes(proxies[0], way) - before <= after, "it was not cut");
        lives++;
        cuts += cut;
    }
    cr_assert_gt(cuts, lives / 2);
    stop();
}

TestCall(remote_resume, a_program_goes_on_wherever_it_is_cut_on_the_way_up,
         cut_everywhere(PROXY_UP, 131), .timeout = 300);
TestCall(remote_resume, a_program_goes_on_wherever_it_is_cut_on_the_way_down,
         cut_everywhere(PROXY_DOWN, 131), .timeout = 300);

/* Results that are larger than any buffer on the way come whole, whatever is cut. */
Test(remote_resume, large_transfers_go_on_where_they_were, .timeout = 300)
{
    enum { BYTES = 24 << 20 };
    struct program p;
    unsigned char *sent = malloc(BYTES), *got = calloc(1, BYTES);
    cr_assert(sent && got);
    start_behind(1, NULL);
    begin(&p);
    cl_mem large = MADE(clCreateBuffer, p.context, 0, BYTES, NULL);
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (unsigned char)(i * 31 + (i >> 12));
    proxy_cut_after(proxies[0], PROXY_UP, 5 << 20);
    OK(clEnqueueWriteBuffer(p.queue, large, CL_TRUE, 0, BYTES, sent, 0, NULL, NULL));
    proxy_cut_after(proxies[0], PROXY_UP, UINT64_MAX);
    proxy_cut_after(proxies[0], PROXY_DOWN, 5 << 20);
    OK(clEnqueueReadBuffer(p.queue, large, CL_TRUE, 0, BYTES, got, 0, NULL, NULL));
    cr_assert(memcmp(sent, got, BYTES) == 0);
    cr_assert_geq(proxy_connections(proxies[0]), 8);
    proxy_cut_after(proxies[0], PROXY_DOWN, UINT64_MAX);
    OK(clReleaseMemObject(large));
    end(&p);
    stop();
    free(sent);
    free(got);
}

/* Calls go on while there is no link, and nobody is told. */
Test(remote_resume, work_is_given_while_there_is_no_link, .timeout = 120)
{
    struct program p;
    start_behind(1, NULL);
    begin(&p);
    launch(&p, 10);
    proxy_set_refusing(proxies[0], true);
    proxy_cut(proxies[0]);
    launch(&p, 500);
    clock_sleep(NS_PER_S);
    launch(&p, 500);
    proxy_set_refusing(proxies[0], false);
    check(&p);
    end(&p);
    stop();
}

/* A network that swallows everything, and another one: the server has two links of one session, and
   goes on with the newer. */
Test(remote_resume, a_program_goes_on_at_another_address, .timeout = 120)
{
    struct program p;
    start_behind(2, NULL);
    begin(&p);
    launch(&p, 10);
    check(&p);
    cr_assert_eq(proxy_connections(proxies[1]), 0);
    proxy_set_stalled(proxies[0], true);
    launch(&p, 10);
    check(&p);
    cr_assert_eq(proxy_connections(proxies[1]), 1);
    launch(&p, 10);
    check(&p);
    end(&p);
    stop();
}

Test(remote_resume, a_server_that_stands_still_for_long_is_gone_on_with, .timeout = 120)
{
    struct program p;
    start_behind(1, NULL);
    begin(&p);
    launch(&p, 10);
    check(&p);
    pid_t session = served_session(&served);
    launch(&p, 10);
    kill(session, SIGSTOP);
    kill(served.pid, SIGSTOP);
    /* Longer than it may be silent, so that the link is given up meanwhile. */
    clock_sleep((SILENCE_S + 3) * NS_PER_S);
    kill(served.pid, SIGCONT);
    kill(session, SIGCONT);
    check(&p);
    cr_assert_geq(proxy_connections(proxies[0]), 2);
    end(&p);
    stop();
}

static void await_no_session(void)
{
    cr_assert(COMES(!served_session(&served), LIMIT_NS), "a session goes on");
}

/* Errors, by the time that the limit, or less, has passed. */
/* A session ends a moment after the server that was killed. */
static void must_be_lost(struct program *p)
{
    uint64_t until = clock_now_ns() + LIMIT_NS;
    cl_int error;
    while ((error = clFinish(p->queue)) == CL_SUCCESS && clock_now_ns() < until)
        clock_sleep(NS_PER_MS);
    cr_assert_eq(error, CL_DEVICE_NOT_AVAILABLE);
    clCreateBuffer(p->context, 0, 64, NULL, &error);
    cr_assert_eq(error, CL_DEVICE_NOT_AVAILABLE);
    end(p);
}

Test(remote_resume, both_sides_give_up_after_the_limit, .timeout = 120)
{
    struct program p;
    start_behind(1, (const char *const[]){"--patience", "3", NULL});
    begin(&p);
    launch(&p, 1);
    check(&p);
    proxy_set_refusing(proxies[0], true);
    proxy_set_server(proxies[0], 1);
    proxy_cut(proxies[0]);
    launch(&p, 10);
    must_be_lost(&p);
    await_no_session();
    stop();
}

Test(remote_resume, a_server_that_stands_still_for_longer_than_the_limit_is_lost, .timeout = 120)
{
    struct program p;
    start_behind(1, (const char *const[]){"--patience", "2", NULL});
    begin(&p);
    launch(&p, 1);
    check(&p);
    pid_t session = served_session(&served);
    kill(session, SIGSTOP);
    kill(served.pid, SIGSTOP);
    must_be_lost(&p);
    kill(served.pid, SIGCONT);
    kill(session, SIGCONT);
    await_no_session();
    stop();
}

Test(remote_resume, a_session_that_was_killed_is_lost_at_once, .timeout = 120)
{
    struct program p;
    start_behind(1, NULL);
    begin(&p);
    check(&p);
    uint64_t before = clock_now_ns();
    kill(served_session(&served), SIGKILL);
    must_be_lost(&p);
    /* And not after a minute. */
    cr_assert(clock_now_ns() - before < LIMIT_NS / 3);
    proxy_destroy(proxies[0]);
    served_stop(&served);
}

Test(remote_resume, a_server_that_was_killed_is_lost_soon, .timeout = 120)
{
    struct program p;
    start_behind(1, NULL);
    setenv("RESEAT_SERVER", served.address, 1);
    begin(&p);
    check(&p);
    uint64_t before = clock_now_ns();
    kill(served.pid, SIGKILL);
    must_be_lost(&p);
    cr_assert(clock_now_ns() - before < LIMIT_NS / 2);
    waitpid(served.pid, NULL, 0);
    proxy_destroy(proxies[0]);
}

/* The process that carries a link that was handed over is not the session. */
Test(remote_resume, a_relay_that_is_killed_is_replaced, .timeout = 120)
{
    struct program p;
    start_behind(1, NULL);
    begin(&p);
    launch(&p, 5);
    check(&p);
    pid_t session = served_session(&served);
    for (unsigned i = 0; i < 10; i++) {
        proxy_cut(proxies[0]);
        launch(&p, 5);
        check(&p);
        pid_t children[8];
        unsigned count;
        /* The relay before this one may not have ended yet. */
        for (uint64_t until = clock_now_ns() + LIMIT_NS;
             (count = served_children(&served, children, 8)) != 2 && clock_now_ns() < until;)
            clock_sleep(10 * NS_PER_MS);
        cr_assert_eq(count, 2, "%u processes", count);
        cr_assert(children[0] == session || children[1] == session);
        kill(children[children[0] == session], SIGKILL);
        launch(&p, 5);
        check(&p);
    }
    end(&p);
    stop();
}

/* A program in a process of its own, which has a session until it is killed. */
static pid_t start_another(void)
{
    int ends[2];
    char byte;
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        struct program p;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        begin(&p);
        launch(&p, 1);
        check(&p);
        (void)!write(ends[1], "", 1);
        for (;;)
            pause();
    }
    close(ends[1]);
    cr_assert_eq(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return pid;
}

Test(remote_resume, the_session_of_a_killed_client_waits_and_then_ends, .timeout = 120)
{
    start_behind(1, (const char *const[]){"--patience", "2", NULL});
    pid_t client = start_another();
    uint64_t before = clock_now_ns();
    kill(client, SIGKILL);
    cr_assert_eq(waitpid(client, NULL, 0), client);
    await_no_session();
    cr_assert(clock_now_ns() - before >= 2 * NS_PER_S, "it did not wait");
    stop();
}

/* On one machine its end is known, though a child has its socket. */
Test(remote_resume, the_session_of_a_client_that_is_known_to_be_dead_ends, .timeout = 120)
{
    served_start(&served, NULL);
    served_use(&served);
    pid_t client = start_another();
    uint64_t before = clock_now_ns();
    kill(client, SIGKILL);
    cr_assert_eq(waitpid(client, NULL, 0), client);
    await_no_session();
    cr_assert(clock_now_ns() - before < LIMIT_NS / 2);
    served_stop(&served);
}

/* Its session is in a driver for good, and cannot look. */
Test(remote_resume, a_session_that_is_stuck_in_a_driver_ends_with_its_client, .timeout = 120)
{
    static const char config[] = "[emu]\nlaunch_ms=600000\n";
    char path[] = "/tmp/stuck-XXXXXX";
    int file = mkstemp(path);
    cr_assert(file >= 0 && write(file, config, strlen(config)) == (ssize_t)strlen(config));
    close(file);
    setenv("TEST_VENDORS", getenv("TEST_EMU"), 1);
    setenv("EMU_CONFIG", path, 1);
    served_start(&served, NULL);
    served_use(&served);
    int ends[2];
    char byte;
    cr_assert_eq(pipe(ends), 0);
    pid_t client = fork();
    if (client == 0) {
        struct program p;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        begin(&p);
        launch(&p, 1);
        clFlush(p.queue);
        (void)!write(ends[1], "", 1);
        for (;;)
            pause();
    }
    close(ends[1]);
    cr_assert_eq(read(ends[0], &byte, 1), 1);
    clock_sleep(NS_PER_S);
    cr_assert(served_session(&served));
    kill(client, SIGKILL);
    cr_assert_eq(waitpid(client, NULL, 0), client);
    await_no_session();
    unlink(path);
    served_stop(&served);
    cr_assert(served_writes(&served, "a driver call does not return"));
}

/* A program that ends properly says so. */
Test(remote_resume, a_session_ends_with_a_program_that_ends, .timeout = 120)
{
    start_behind(1, NULL);
    pid_t client = fork();
    cr_assert(client >= 0);
    if (client == 0) {
        execl(getenv("TEST_PROGRAM"), "exiting", "exit", "4", NULL);
        _exit(127);
    }
    int status = 0;
    cr_assert_eq(waitpid(client, &status, 0), client);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 4);
    uint64_t before = clock_now_ns();
    await_no_session();
    cr_assert(clock_now_ns() - before < LIMIT_NS / 3);
    stop();
}

/* What it made before the link broke, it releases; what a forked child does is its own. */
Test(remote_resume, a_forked_child_does_not_come_back_for_its_parent, .timeout = 120)
{
    struct program p;
    int status = 0;
    start_behind(1, NULL);
    begin(&p);
    launch(&p, 5);
    pid_t child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
        clock_sleep(2 * NS_PER_S);
        _exit(clFinish(p.queue) == CL_DEVICE_NOT_AVAILABLE ? 42 : 1);
    }
    proxy_cut(proxies[0]);
    check(&p);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    cr_assert_eq(proxy_connections(proxies[0]), 2);
    check(&p);
    end(&p);
    stop();
}

/* Times of commands before and after are one story. */
Test(remote_resume, profiles_stay_in_the_hosts_clock, .timeout = 120)
{
    struct program p;
    const size_t global = WORDS;
    cl_ulong last = 0;
    start_behind(1, NULL);
    begin(&p);
    launch(&p, 1);
    check(&p);
    for (unsigned i = 0; i < 12; i++) {
        cl_event event;
        cl_ulong times[4];
        if (i % 3 == 2)
            proxy_cut(proxies[0]);
        uint64_t before = clock_now_ns();
        OK(clEnqueueNDRangeKernel(p.queue, p.kernel, 1, NULL, &global, NULL, 0, NULL, &event));
        OK(clWaitForEvents(1, &event));
        uint64_t after = clock_now_ns();
        for (cl_uint t = 0; t < 4; t++) {
            OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED + t, sizeof(times[t]),
                                       &times[t], NULL));
            cr_assert(times[t] >= before && times[t] <= after);
            cr_assert(times[t] >= last);
            last = times[t];
        }
        OK(clReleaseEvent(event));
    }
    end(&p);
    stop();
}
