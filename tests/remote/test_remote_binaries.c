#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/base/threads/thread.h"
#include "tests/remote/proxy.h"
#include "tests/remote/served.h"
#include "tests/support/calls.h"

/* A binary that many servers need leaves this host once. What leaves it is counted by a network
   between the driver and each server, by which the servers do not reach each other. The emulated
   devices refuse a binary of which one bit is another one. */

#define SERVERS  6
#define SIZE     (UINT64_C(4) << 20)
#define CHANGE   (UINT64_C(64) << 10) /* All else that a program says to all of them. */
#define LIMIT_NS (120 * NS_PER_S)
#define SOON_NS  (20 * NS_PER_S) /* Less than the limit for what one server gives another. */

static const char source[] = "kernel void fill(global uint *out, uint seed)"
                             "{ out[get_global_id(0)] = seed * 2654435761u + get_global_id(0); }";

static struct served served[SERVERS];
static struct proxy *proxies[SERVERS];
static cl_platform_id platforms[SERVERS];
static char config[] = "/tmp/binaries-XXXXXX";
static char credentials[PATH_MAX];
static unsigned char *binary; /* That all are given, in memory that children have as well. */

static void start(void)
{
    char vendors[PATH_MAX];
    int fd = mkstemp(config);
    cr_assert(fd >= 0);
    dprintf(fd, "[fpga] base=1 binary_size=4MiB\n");
    cr_assert_eq(fchmod(fd, 0644), 0); /* A session of root's is another user. */
    close(fd);
    snprintf(vendors, sizeof(vendors), "%s/emu.icd", getenv("TEST_EMU"));
    setenv("TEST_VENDORS", vendors, 1);
    setenv("TEST_LOG", "info", 1);
    setenv("EMU_CONFIG", config, 1);
    setenv("RESEAT_PATIENCE", "5", 1);
    served_start_tcp(&served[0], NULL);
    for (int i = 1; i < SERVERS; i++)
        served_join_tcp(&served[i], &served[0]);
    served_issue(&served[0], "laptop", NULL, NULL, credentials);
    setenv("RESEAT_CREDENTIALS", credentials, 1);
    binary = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(binary, MAP_FAILED);
}

/* @apart: the servers reach each other by no way at all. */
static void connect_all(bool apart)
{
    char addresses[SERVERS * 100] = "";
    cl_uint count = 0;
    served_use(&served[0]);
    for (int i = 0; i < SERVERS; i++) {
        size_t used = strlen(addresses);
        if (!proxies[i])
            proxies[i] =
                proxy_create((uint16_t)strtoul(strrchr(served[i].address, ':') + 1, NULL, 10));
        cr_assert(proxies[i]);
        snprintf(addresses + used, sizeof(addresses) - used, "%stcp:127.0.0.1:%u%s%s", i ? " " : "",
                 proxy_port(proxies[i]), apart ? "" : ",", apart ? "" : served[i].address);
    }
    setenv("RESEAT_SERVER", addresses, 1);
    OK(clGetPlatformIDs(SERVERS, platforms, &count));
    cr_assert_eq(count, SERVERS);
    for (int i = 0; i < SERVERS; i++)
        proxy_set_refusing(proxies[i], true);
}

static void stop(void)
{
    for (int i = SERVERS - 1; i >= 0; i--) { /* The first one has the authority. */
        cr_assert(!served_wrote(&served[i], "was ended") && !served_wrote(&served[i], "crashed"));
        served_stop(&served[i]);
        if (proxies[i])
            proxy_destroy(proxies[i]);
    }
    unlink(config);
}

TestSuite(binaries, .init = start, .timeout = 300);

static uint64_t left_host(void)
{
    uint64_t bytes = 0;
    for (int i = 0; i < SERVERS; i++)
        bytes += proxy_bytes(proxies[i], PROXY_UP);
    return bytes;
}

/* A context on a server's device. */
struct place {
    cl_context context;
    cl_device_id device;
    int server;
    cl_int error; /* Of loading the binary. */
    pthread_t thread;
};

static void place_make(struct place *place, int server)
{
    place->server = server;
    OK(clGetDeviceIDs(platforms[server], CL_DEVICE_TYPE_ALL, 1, &place->device, NULL));
    place->context = MADE(clCreateContext, NULL, 1, &place->device, NULL, NULL);
}

/* What the first server's driver makes of the source. */
static void make_binary(void)
{
    struct place place;
    size_t size = 0;
    place_make(&place, 0);
    cl_program program = BUILT(place.context, source, "");
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, NULL));
    cr_assert_eq(size, SIZE);
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary), &binary, NULL));
    RELEASE(program, place.context);
}

/* One on each server, and the binary. */
static void places_make(struct place places[SERVERS], bool apart)
{
    connect_all(apart);
    make_binary();
    for (int i = 0; i < SERVERS; i++)
        place_make(&places[i], i);
}

/* The program of the binary runs. */
static cl_int run(const struct place *place, cl_program program)
{
    enum { ITEMS = 64 };
    cl_uint out[ITEMS] = {0}, seed = 7u + (cl_uint)place->server;
    const size_t items = ITEMS;
    cl_int error = clBuildProgram(program, 0, NULL, NULL, NULL, NULL);
    if (error)
        return error;
    cl_command_queue queue = clCreateCommandQueue(place->context, place->device, 0, &error);
    cl_mem buffer = clCreateBuffer(place->context, 0, sizeof(out), NULL, &error);
    cl_kernel kernel = clCreateKernel(program, "fill", &error);
    clSetKernelArg(kernel, 0, sizeof(buffer), &buffer);
    clSetKernelArg(kernel, 1, sizeof(seed), &seed);
    clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL);
    error = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof(out), out, 0, NULL, NULL);
    for (cl_uint i = 0; error == CL_SUCCESS && i < ITEMS; i++)
        if (out[i] != seed * 2654435761u + i)
            error = -9999;
    RELEASE(kernel, buffer, queue);
    return error;
}

static cl_int load(const struct place *place)
{
    const unsigned char *bytes = binary;
    const size_t size = SIZE;
    cl_int error, status = 1;
    cl_program program = clCreateProgramWithBinary(place->context, 1, &place->device, &size, &bytes,
                                                   &status, &error);
    if (error)
        return error;
    error = status ? status : run(place, program);
    clReleaseProgram(program);
    return error;
}

static void *load_there(void *data)
{
    struct place *place = data;
    place->error = load(place);
    return NULL;
}

static void start_loads(struct place *places, int first)
{
    for (int i = first; i < SERVERS; i++)
        cr_assert_eq(thread_start("load", 0, load_there, &places[i], &places[i].thread), 0);
}

static void end_loads(struct place *places, int first)
{
    for (int i = first; i < SERVERS; i++)
        cr_assert_eq(pthread_join(places[i].thread, NULL), 0);
}

/* On all at once; the bytes that left the host. */
static uint64_t load_all(struct place places[SERVERS])
{
    uint64_t before = left_host();
    start_loads(places, 0);
    end_loads(places, 0);
    for (int i = 0; i < SERVERS; i++)
        cr_expect_eq(places[i].error, CL_SUCCESS, "server %d: %d", i, places[i].error);
    return left_host() - before;
}

Test(binaries, of_many_servers_leave_the_host_once)
{
    struct place places[SERVERS];
    places_make(places, false);
    uint64_t left = load_all(places);
    cr_expect(left >= SIZE && left < SIZE + CHANGE, "%llu bytes", (unsigned long long)left);
    /* What is there is named. */
    uint64_t before = left_host();
    for (int i = 0; i < SERVERS; i++)
        cr_expect_eq(load(&places[i]), CL_SUCCESS);
    cr_expect_lt(left_host() - before, CHANGE);
    stop();
}

/* Nobody waits for what cannot come. */
Test(binaries, of_servers_that_do_not_reach_each_other_come_from_the_host)
{
    struct place places[SERVERS];
    places_make(places, true);
    uint64_t left = load_all(places);
    cr_expect(left >= SERVERS * SIZE && left < SERVERS * (SIZE + CHANGE), "%llu bytes",
              (unsigned long long)left);
    stop();
}

static void signal_all(const struct served *server, int number)
{
    pid_t pids[16];
    unsigned count = served_children(server, pids, 16);
    kill(server->pid, number);
    for (unsigned i = 0; i < count; i++)
        kill(pids[i], number);
}

/* Two have it, and one of these stands still while it is to give it on; then it is killed. */
Test(binaries, are_had_from_others_where_a_server_is_killed)
{
    struct place places[SERVERS];
    setenv("RESEAT_PATIENCE", "120", 1); /* Its session is not lost for long. */
    places_make(places, false);
    for (int i = 0; i < 2; i++)
        OK(load(&places[i]));
    uint64_t before = left_host();
    signal_all(&served[1], SIGSTOP);
    start_loads(places, 2);
    clock_sleep(NS_PER_S);
    signal_all(&served[1], SIGKILL);
    uint64_t killed = clock_now_ns();
    end_loads(places, 2);
    cr_expect_lt(clock_now_ns() - killed, SOON_NS, "they waited for the dead one");
    for (int i = 2; i < SERVERS; i++)
        cr_expect_eq(places[i].error, CL_SUCCESS, "server %d: %d", i, places[i].error);
    cr_expect_lt(left_host() - before, CHANGE);
    stop();
}

/* The same while all of them are loaded for the first time, at whatever moment. */
Test(binaries, are_right_whenever_a_server_is_killed)
{
    struct place places[SERVERS];
    places_make(places, false);
    uint64_t before = left_host();
    start_loads(places, 0);
    for (uint64_t until = clock_now_ns() + LIMIT_NS;
         !served_wrote(&served[3], "received a binary") &&
         !served_wrote(&served[4], "received a binary");
         clock_sleep(NS_PER_MS))
        if (clock_now_ns() > until || left_host() - before > 2 * SIZE)
            break;
    signal_all(&served[3], SIGKILL);
    end_loads(places, 0);
    for (int i = 0; i < SERVERS; i++)
        cr_expect(places[i].error == CL_SUCCESS || i == 3, "server %d: %d", i, places[i].error);
    /* Once more at most, if it was the one that had it from here. */
    cr_expect_lt(left_host() - before, 2 * SIZE + CHANGE);
    stop();
}

/* The one that the host sends it to; SERVERS: none yet. */
static int find_first(const uint64_t before[SERVERS])
{
    int first = 0;
    while (first < SERVERS && proxy_bytes(proxies[first], PROXY_UP) - before[first] < SIZE / 4)
        first++;
    return first;
}

/*
 * The host's links are slow, so that all have a part of it when one is killed: the first of all, or
 * another one, behind which some others are. Those get it another way.
 */
static void kill_one_while_it_comes(bool first_of_all)
{
    struct place places[SERVERS];
    uint64_t before[SERVERS];
    places_make(places, false);
    for (int i = 0; i < SERVERS; i++) {
        before[i] = proxy_bytes(proxies[i], PROXY_UP);
        proxy_set_rate(proxies[i], 1u << 20);
    }
    start_loads(places, 0);
    int first = SERVERS;
    for (uint64_t until = clock_now_ns() + LIMIT_NS; first == SERVERS; clock_sleep(NS_PER_MS)) {
        cr_assert_lt(clock_now_ns(), until);
        first = find_first(before);
    }
    int killed = first_of_all ? first : (first + 1) % SERVERS;
    signal_all(&served[killed], SIGKILL);
    end_loads(places, 0);
    for (int i = 0; i < SERVERS; i++)
        cr_expect(places[i].error == CL_SUCCESS || i == killed, "server %d: %d", i,
                  places[i].error);
    cr_expect_neq(places[killed].error, CL_SUCCESS);
    uint64_t left = 0; /* To those that live. */
    for (int i = 0; i < SERVERS; i++)
        left += i == killed ? 0 : proxy_bytes(proxies[i], PROXY_UP) - before[i];
    cr_expect(left >= SIZE && left < SIZE + CHANGE, "%llu bytes", (unsigned long long)left);
    stop();
}

TestCall(binaries, are_sent_again_where_the_first_server_is_killed_while_they_come,
         kill_one_while_it_comes(true));
TestCall(binaries, are_had_from_others_where_a_server_is_killed_while_they_come,
         kill_one_while_it_comes(false));

static bool holds_binary(pid_t pid)
{
    char path[PATH_MAX], target[PATH_MAX];
    bool holds = false;
    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        ssize_t size = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        target[size > 0 ? size : 0] = '\0';
        holds = holds || strstr(target, "reseat-binary");
    }
    if (folder)
        closedir(folder);
    return holds;
}

/* No session's process has what the listening one keeps: not its own either, until it asks. */
static bool session_holds_binary(void)
{
    pid_t pids[16];
    bool holds = false;
    for (unsigned i = served_children(&served[0], pids, 16); i > 0; i--)
        holds = holds || holds_binary(pids[i - 1]);
    return holds;
}

/* Bytes that a program of its own sends to load it. */
static uint64_t sent_by_child(void)
{
    uint64_t *sent =
        mmap(NULL, sizeof(*sent), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(sent, MAP_FAILED);
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        struct place place;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* A check that fails here ends the test by its limit. */
        connect_all(false);
        if (*binary == 0)
            make_binary();
        place_make(&place, 0);
        if (session_holds_binary())
            _exit(2);
        uint64_t before = left_host();
        cl_int error = load(&place);
        *sent = left_host() - before;
        _exit(error ? 3 : 0);
    }
    int status = 1;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0, "%x", (unsigned)status);
    return *sent;
}

Test(binaries, are_kept_for_later_sessions_of_the_same_client_and_nobody_else)
{
    uint64_t first = sent_by_child(), second = sent_by_child();
    cr_expect(first >= SIZE && first < SIZE + CHANGE, "%llu", (unsigned long long)first);
    cr_expect_lt(second, CHANGE);
    served_issue(&served[0], "desktop", NULL, NULL, credentials);
    setenv("RESEAT_CREDENTIALS", credentials, 1);
    uint64_t other = sent_by_child();
    cr_expect(other >= SIZE && other < SIZE + CHANGE, "%llu", (unsigned long long)other);
    stop();
}
