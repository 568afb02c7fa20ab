#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "tests/remote/rogue.h"

/* What clients send that break the rules: their own session ends, and no other. */

static struct served served;
static struct rogue good;

static void start(void)
{
    served_start(&served, NULL);
    rogue_begin(&good, &served);
    rogue_make_queue(&good);
    rogue_must_work(&good, 1);
}

static void ends(void)
{
    rogue_ends(&good, &served);
}

TestSuite(remote_server, .init = start, .fini = ends, .timeout = 120);
TestSuite(remote_full, .fini = ends, .timeout = 120);

static const struct msg_hello later = {.version = WIRE_VERSION + 1};

Test(remote_server, another_version_is_refused_with_both_numbers)
{
    struct rogue_greeted greeted;
    struct link *link = rogue_connect(&served);
    cr_assert_eq(rogue_hello(link, later, &greeted), MSG_REFUSED);
    cr_assert_str_eq(greeted.refusal, "the server has protocol version 1, the client has 2");
    link->ops->destroy(link);
}

/* What a server says that it can, of what this client can. */
static uint64_t agreed(const struct served *server, uint64_t features)
{
    struct rogue_greeted greeted;
    struct link *link = rogue_connect(server);
    const struct msg_hello hello = {.version = WIRE_VERSION, .features = features};
    cr_assert_eq(rogue_hello(link, hello, &greeted), MSG_WELCOME);
    link->ops->destroy(link);
    return greeted.welcome.features;
}

/* A later client is served as one of today: it says what more it could, and is told what there is.
 */
TestCall(remote_server, features_that_it_does_not_know_count_for_nothing,
         cr_assert_eq(agreed(&served, ~WIRE_FEATURES >> 1 & ~WIRE_FEATURES) & ~WIRE_FEATURES, 0));

/* Its sessions are kept from what their user may do, and an environment could lead around that. */
Test(remote_server, only_one_of_isolated_programs_takes_an_environment)
{
    char own[16];
    struct served isolates;
    cr_assert_eq(agreed(&served, FEATURE_ENVIRONMENT), 0);
    snprintf(own, sizeof(own), "%d", getpid());
    served_start(&isolates, (const char *const[]){"--while", own, NULL});
    cr_assert_eq(agreed(&isolates, FEATURE_ENVIRONMENT), FEATURE_ENVIRONMENT);
    served_stop(&isolates);
}

Test(remote_server, the_socket_is_its_users_alone)
{
    struct stat stat_of;
    cr_assert_eq(stat(served.address + strlen("unix:"), &stat_of), 0);
    cr_assert_eq(stat_of.st_mode & 0777, 0600);
}

static int oom_adjusted(pid_t pid)
{
    char path[64];
    int value = 0;
    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", pid);
    FILE *file = fopen(path, "re");
    cr_assert(file && fscanf(file, "%d", &value) == 1);
    fclose(file);
    return value;
}

Test(remote_server, sessions_go_first_where_memory_runs_out)
{
    cr_assert_geq(oom_adjusted(served_session(&served)), 500);
    cr_assert_eq(oom_adjusted(served.pid), oom_adjusted(getpid()));
}

Test(remote_server, objects_of_another_session_are_not_there)
{
    struct rogue rogue = {0};
    rogue_begin(&rogue, &served);
    /* `good` has that queue. */
    POST(&rogue.stream, barrier, .command = {.queue = QUEUE});
    rogue_must_end(&rogue);
}

Test(remote_server, an_id_of_another_type_ends_the_session)
{
    struct rogue rogue = {0};
    rogue_begin(&rogue, &served);
    rogue_make_queue(&rogue);
    POST(&rogue.stream, read_buffer, .command = {.queue = QUEUE}, .buffer = QUEUE, .size = 1);
    rogue_must_end(&rogue);
}

Test(remote_server, a_place_is_not_used_twice)
{
    struct rogue rogue = {0};
    rogue_begin(&rogue, &served);
    rogue_make_queue(&rogue);
    rogue_make_queue(&rogue);
    rogue_must_end(&rogue);
}

Test(remote_server, there_are_not_more_objects_than_allowed)
{
    struct rogue rogue = {0};
    rogue_begin(&rogue, &served);
    rogue_make_queue(&rogue);
    POST(&rogue.stream, create_buffer, .memory = id_make(ID_MEMORY, 0, WIRE_OBJECTS_MAX),
         .context = CONTEXT, .size = 64);
    rogue_must_end(&rogue);
}

Test(remote_server, sizes_that_overflow_end_the_session)
{
    struct rogue rogue = {0};
    rogue_begin(&rogue, &served);
    rogue_make_queue(&rogue);
    POST(&rogue.stream, create_buffer, .memory = BUFFER, .context = CONTEXT, .size = 64);
    POST(&rogue.stream, read_rect, .command = {.queue = QUEUE}, .buffer = BUFFER,
         .region = {1ull << 32, 1ull << 32, 1ull << 32});
    rogue_must_end(&rogue);
}

Test(remote_server, content_of_another_size_is_not_read_beyond)
{
    struct rogue rogue = {0};
    rogue_begin(&rogue, &served);
    rogue_make_queue(&rogue);
    POST(&rogue.stream, create_buffer, .memory = BUFFER, .context = CONTEXT, .size = 1 << 20,
         .content = "few", .content_size = 3);
    rogue_must_end(&rogue);
}

/* What is written to 64 bytes, or repeated there, has to have the size that belongs to it. */
Test(remote_server, commands_with_bytes_of_another_size_end_the_session)
{
    static const char bytes[256];
    for (int fills = 0; fills < 2; fills++) {
        struct rogue rogue = {0};
        rogue_begin(&rogue, &served);
        rogue_make_queue(&rogue);
        const struct msg_create_buffer buffer = {.memory = BUFFER, .context = CONTEXT, .size = 64};
        const struct msg_fill_buffer fill = {.command = {.queue = QUEUE},
                                             .buffer = BUFFER,
                                             .size = 64,
                                             .pattern = bytes,
                                             .pattern_size = sizeof(bytes)};
        const struct msg_write_rect rect = {.command = {.queue = QUEUE},
                                            .buffer = BUFFER,
                                            .region = {8, 8, 1},
                                            .content = bytes,
                                            .content_size = 63};
        cr_assert_eq(post_create_buffer(&rogue.stream, &buffer), 0);
        cr_assert_eq(fills ? post_fill_buffer(&rogue.stream, &fill)
                           : post_write_rect(&rogue.stream, &rect),
                     0);
        rogue_must_end(&rogue);
    }
}

/* Who connects again and again, and says nothing sensible, fills no disk. */
Test(remote_server, what_is_refused_is_logged_up_to_a_bound)
{
    struct rogue_greeted greeted;
    uint64_t began = clock_now_ns();
    for (int i = 0; i < 300; i++) {
        struct link *link = rogue_connect(&served);
        cr_assert_eq(rogue_hello(link, later, &greeted), MSG_REFUSED);
        link->ops->destroy(link);
    }
    unsigned seconds = (unsigned)((clock_now_ns() - began) / NS_PER_S) + 1;
    cr_assert(served_writes(&served, " refused: "));
    /* Two lines a connection that is logged; from the hundredth on a third: how many were not. */
    cr_assert_leq(served_lines(&served), 2 * 100 + 3 * seconds + 20);
}

/* Frames of the right form with anything in them, and anything instead of frames. */
/* Ticks of processor time of the listening process. */
static unsigned long ticks_of(pid_t pid)
{
    char path[64];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    cr_assert(file);
    cr_assert_eq(
        fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system),
        2);
    fclose(file);
    return user + system;
}

/* So that it can open none. */
static struct rlimit limit_to_open(pid_t pid)
{
    struct rlimit before, now = {0};
    char path[64];
    cr_assert_eq(prlimit(pid, RLIMIT_NOFILE, NULL, &before), 0);
    do
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)now.rlim_cur);
    while (access(path, F_OK) == 0 && ++now.rlim_cur);
    now.rlim_max = before.rlim_max;
    cr_assert_eq(prlimit(pid, RLIMIT_NOFILE, &now, NULL), 0);
    return before;
}

Test(remote_full, a_server_without_descriptors_waits_for_some)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    served_start(&served, NULL);
    struct rlimit before = limit_to_open(served.pid);
    strcpy(at.sun_path, strchr(served.address, ':') + 1);
    int waits = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(waits, (struct sockaddr *)&at, sizeof(at)), 0);
    unsigned long begin = ticks_of(served.pid);
    clock_sleep(2 * NS_PER_S);
    cr_expect_lt(ticks_of(served.pid) - begin, (unsigned long)sysconf(_SC_CLK_TCK) / 4);
    close(waits);
    cr_assert_eq(prlimit(served.pid, RLIMIT_NOFILE, &before, NULL), 0);
    rogue_begin(&good, &served);
    rogue_make_queue(&good);
    rogue_must_work(&good, 1);
}

Test(remote_server, noise_ends_only_its_session)
{
    unsigned seed = 1;
    for (int round = 0; round < 24; round++) {
        struct rogue rogue = {0};
        unsigned char noise[300];
        rogue_begin(&rogue, &served);
        rogue_make_queue(&rogue);
        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = (unsigned char)(rand_r(&seed) >> 7);
        if (round % 2) {
            struct iovec iov = {noise, sizeof(noise)};
            stream_flush(&rogue.stream);
            cr_assert_eq(rogue.stream.link->ops->send(rogue.stream.link, &iov, 1,
                                                      clock_now_ns() + SILENCE_NS),
                         0);
        } else {
            unsigned type = (unsigned)rand_r(&seed) % (MSG_TYPES + 2);
            cr_assert_eq(
                stream_post(&rogue.stream, type, noise, (size_t)rand_r(&seed) % 300, NULL, 0), 0);
            /* One that is taken for a message after all: */
            cr_assert_eq(stream_post(&rogue.stream, 0xffff, NULL, 0, NULL, 0), 0);
        }
        rogue_must_end(&rogue);
    }
}

/* ---- what waits for a client that does not take it ---- */

#define MIB (1ull << 20)

static uint64_t resident(pid_t pid)
{
    char path[64];
    unsigned long long pages = 0;
    snprintf(path, sizeof(path), "/proc/%d/statm", pid);
    FILE *file = fopen(path, "re");
    cr_assert(file && fscanf(file, "%*u %llu", &pages) == 1);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true /* They need more address space than such a session has. */
#else
#define SANITIZED false
#endif

/* A server whose sessions have little memory, so that little waits. */
static void start_with(const char *memory)
{
    if (SANITIZED)
        return;
    served_start(&served, (const char *const[]){"--memory", memory, NULL});
    rogue_begin(&good, &served);
    rogue_make_queue(&good);
    rogue_must_work(&good, 1);
}

static void start_small(void)
{
    start_with("1GiB");
}

static void start_larger(void)
{
    start_with("2GiB");
}

TestSuite(remote_slow, .init = start_small, .fini = ends, .timeout = 120);
/* A half of it is beside what drivers have, so that a whole message finds room. */
TestSuite(remote_slow_larger, .init = start_larger, .fini = ends, .timeout = 120);

/* What its session has once it does nothing any more but wait for its client. */
static uint64_t settled(void)
{
    uint64_t now = resident(served_session(&served)), last = 0;
    for (uint64_t until = clock_now_ns() + SILENCE_NS; now != last && clock_now_ns() < until;) {
        clock_sleep(NS_PER_S);
        last = now;
        now = resident(served_session(&served));
    }
    return now;
}

Test(remote_slow, reads_that_nobody_takes_fail_and_it_goes_on)
{
    if (SANITIZED)
        cases_skip("sanitizers need more address space");
    const uint32_t count = 64;
    uint32_t read = 0, failed = 0;
    rogue_make_buffer(&good, 16 * MIB);
    for (uint32_t i = 0; i < count; i++)
        POST(&good.stream, read_buffer,
             .command = {.queue = QUEUE, .event = id_make(ID_EVENT, 5, i), .purpose = COMMAND_TELL},
             .buffer = BUFFER, .size = 16 * MIB);
    stream_flush(&good.stream);
    cr_assert_lt(settled(), 800 * MIB);
    for (uint32_t i = 0; i < count; i++) {
        cl_int status = rogue_answer(&good, MSG_DONE);
        cr_assert(status == CL_COMPLETE || status == CL_OUT_OF_HOST_MEMORY, "%d", status);
        read += status == CL_COMPLETE;
        failed += status == CL_OUT_OF_HOST_MEMORY;
    }
    /* No more than half of its memory waited, and what is told is sent from where it was read. */
    cr_assert(read >= 16 && read <= 32, "%u were read, %u failed", read, failed);
}

/* As much as a driver is given to write, behind what never begins: in an array of its own, as the
   stream copies what it is given. */
static void post_waiting_write(uint32_t i, uint64_t queue, uint64_t buffer, uint64_t event)
{
    static const char content[16 * MIB];
    const uint64_t waits = event;
    POST(&good.stream, write_buffer,
         .command = {.queue = queue,
                     .event = id_make(ID_EVENT, 5, i),
                     .purpose = COMMAND_TELL,
                     .waits = &waits,
                     .waits_count = 1},
         .buffer = buffer, .size = sizeof(content), .content = content,
         .content_size = sizeof(content));
}

/* A context of the other device, which can be waited for, with a queue and a buffer. */
static void make_second(uint64_t context, uint64_t queue, uint64_t buffer)
{
    const uint64_t device = id_make(ID_DEVICE, 0, 1);
    POST(&good.stream, create_context, .context = context, .devices = &device, .devices_count = 1);
    POST(&good.stream, create_queue, .queue = queue, .context = context, .device = device);
    POST(&good.stream, create_buffer, .memory = buffer, .context = context, .size = 16 * MIB);
}

#define WRITES 80

/* Of the writes: how many were done, and how many failed. */
struct outcome {
    uint32_t written, failed;
};

/* Hear how writes ended, until @marker has, or all have. */
static void hear_writes(struct outcome *outcome, uint64_t marker)
{
    struct message message;
    struct msg_done done = {0};
    while (done.event != marker && outcome->written + outcome->failed < WRITES) {
        cr_assert_eq(stream_receive(&good.stream, SILENCE_NS, &message), 0, "it has ended");
        struct unpack body = {message.body, message.body + message.size, false};
        cr_assert_eq(message.type, MSG_DONE);
        cr_assert(unpack_done(&body, &done));
        if (done.event == marker)
            continue;
        cr_assert(done.status == CL_COMPLETE || done.status == CL_OUT_OF_HOST_MEMORY, "%d",
                  done.status);
        outcome->written += done.status == CL_COMPLETE;
        outcome->failed += done.status == CL_OUT_OF_HOST_MEMORY;
    }
}

static void post_other_marker(uint64_t event)
{
    POST(&good.stream, marker,
         .command = {.queue = QUEUE, .event = event, .purpose = COMMAND_TELL});
    stream_flush(&good.stream);
}

Test(remote_slow_larger, writes_that_wait_for_the_client_fail_and_it_goes_on)
{
    if (SANITIZED)
        cases_skip("sanitizers need more address space");
    const uint64_t context = id_make(ID_CONTEXT, 0, 1), queue = id_make(ID_QUEUE, 0, 1);
    const uint64_t buffer = id_make(ID_MEMORY, 0, 1), event = id_make(ID_EVENT, 6, WRITES);
    struct outcome outcome = {0};
    make_second(context, queue, buffer);
    POST(&good.stream, create_user_event, event, context);
    good.stream.window = 64 * MIB; /* What it has was heard by then. */
    for (uint32_t i = 0; i < WRITES; i++) {
        const uint64_t marker = id_make(ID_EVENT, 7, i);
        post_waiting_write(i, queue, buffer, event);
        post_other_marker(marker);
        hear_writes(&outcome, marker);
    }
    cr_assert_eq(outcome.written, 0);
    cr_assert_lt(settled(), 1400 * MIB);
    POST(&good.stream, set_user_event, event, 0);
    stream_flush(&good.stream);
    hear_writes(&outcome, UINT64_MAX);
    cr_assert(outcome.written >= 32 && outcome.written <= 64, "%u were written, %u failed",
              outcome.written, outcome.failed);
}

#define LINE     "fifty characters are printed here, which takes a while"
#define LINES    20
#define LAUNCHES 40 /* A MiB each. */

static void print(uint32_t generation, cl_int lines)
{
    POST(&good.stream, set_value, .kernel = KERNEL, .value = &lines, .value_size = 4);
    POST(&good.stream, launch,
         .command = {.queue = QUEUE,
                     .event = id_make(ID_EVENT, generation, 0),
                     .purpose = COMMAND_TELL},
         .kernel = KERNEL, .dimensions = 1, .global = {1000});
    stream_flush(&good.stream);
}

Test(remote_slow, what_kernels_print_waits_for_who_takes_it)
{
    if (SANITIZED)
        cases_skip("sanitizers need more address space");
    struct message message;
    struct msg_printed printed;
    uint64_t bytes = 0;
    unsigned done = 0;
    rogue_make_kernel(&good, "kernel void one(int lines) {\n"
                             "    for (int i = 0; i < lines; i++)\n"
                             "        printf(\"" LINE "\\n\");\n"
                             "}\n");
    print(5, 1); /* From now on the driver has what it needs for that. */
    do
        cr_assert_eq(stream_receive(&good.stream, SILENCE_NS, &message), 0);
    while (message.type == MSG_PRINTED);
    cr_assert_eq(message.type, MSG_DONE);
    uint64_t before = settled();
    for (uint32_t i = 0; i < LAUNCHES; i++)
        print(6 + i, LINES);
    uint64_t during = settled();
    cr_assert_lt(during, before + LAUNCHES * MIB / 2, "it has %llu MiB more",
                 (unsigned long long)(during - before) / MIB);
    while (done < LAUNCHES) {
        cr_assert_eq(stream_receive(&good.stream, SILENCE_NS, &message), 0);
        struct unpack body = {message.body, message.body + message.size, false};
        if (message.type == MSG_PRINTED && unpack_printed(&body, &printed))
            bytes += printed.bytes_size;
        done += message.type == MSG_DONE;
    }
    cr_assert_eq(bytes, 1000ull * LINES * LAUNCHES * sizeof(LINE));
}
