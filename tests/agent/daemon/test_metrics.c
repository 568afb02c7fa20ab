#include "tests/support/cases.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/config/paths.h"
#include "state/base/clock.h"
#include "tests/agent/harness.h"
#include "tests/agent/puppet.h"
#include "tests/agent/visitor.h"

/* What the agent says over HTTP, against what its commands say, and scrapers that are no good. */

#define SOON 8000
#define OPEN "Accept: application/openmetrics-text; version=1.0.0\r\n"

TestSuite(metrics, .fini = puppets_finish, .timeout = 120);

static char page[4 << 20];

/** A connection to the socket of metrics; -1: there is none. */
static int connect_unix(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct paths paths;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(paths_find(&paths), 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%.90s.metrics", paths.socket);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

static int connect_tcp(uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

/** Ask on a connection, and read the answer's body into `page`. Returns the status; 0: none. */
static int ask_http(int fd, const char *what, const char *headers)
{
    char request[512];
    size_t used = 0;
    ssize_t got = 1;
    int status = 0;

    snprintf(request, sizeof(request), "%s HTTP/1.1\r\n%s\r\n", what, headers);
    if (send(fd, request, strlen(request), MSG_NOSIGNAL) < 0)
        got = 0;
    while (got > 0) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        cr_assert(poll(&ready, 1, SOON) > 0, "no answer");
        got = recv(fd, page + used, sizeof(page) - 1 - used, 0);
        used += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    page[used] = '\0';
    (void)sscanf(page, "HTTP/1.1 %d", &status);
    char *body = strstr(page, "\r\n\r\n");
    if (body)
        memmove(page, body + 4, strlen(body + 4) + 1);
    return status;
}

static int scrape(const char *headers)
{
    clock_sleep(300 * NS_PER_MS); /* Pages are kept for a moment. */
    int fd = connect_unix();
    return fd < 0 ? -1 : ask_http(fd, "GET /metrics", headers);
}

/** The value of a sample of `page`; -1: there is none. */
static double value(const char *sample)
{
    for (const char *line = page; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, sample, strlen(sample)) == 0 && line[strlen(sample)] == ' ')
            return strtod(line + strlen(sample), NULL);
    }
    return -1;
}

static void scrape_and_check(void)
{
    char command[3 * 4096];

    cr_assert_eq(scrape(OPEN "Host: localhost\r\n"), 200);
    harness_write(harness_path("open"), page);
    cr_assert_eq(scrape("Host: localhost\r\n"), 200);
    harness_write(harness_path("text"), page);
    snprintf(command, sizeof(command), "%s/tests/agent/metrics.py %s %s %s", getenv("TEST_SOURCES"),
             harness_path("open"), harness_path("text"), getenv("TEST_SOURCES"));
    cr_assert_eq(system(command), 0);
}

static struct puppet *start(const char *name, const char *device)
{
    struct puppet_kind kind = {.device = device, .ways = "w"};
    struct puppet *puppet = puppet_start(name, &kind);

    puppet->move = RESULT_DONE;
    return puppet;
}

Test(metrics, all_are_valid_and_what_commands_say)
{
    puppets_begin("gpu:one,gpu:a\"quo\\te");
    cr_assert_eq(RESEAT("devices")->status, 0);
    puppets_limit("gpu0", "256MiB");
    struct puppet *a = start("a", "gpu:one"), *b = start("b", "gpu:one");
    cr_assert(puppet_allocate(a, 3 * MIB, SOON));
    cr_assert(puppet_allocate(b, MIB, SOON));
    struct puppet *c = start("c", "gpu:one");
    cr_assert(puppet_allocate(c, 200 * MIB, SOON));
    a->busy = 400;
    a->to_bytes_s = 7000000;
    puppet_say(a);
    cr_assert_eq(PUPPETS_RESEAT("move", "a", "gpu1")->status, 0);
    a->move = RESULT_ROLLED_BACK;
    cr_assert_neq(PUPPETS_RESEAT("move", "a", "gpu0")->status, 0);
    a->move = "rubbish\"} 1\nreseat_false 2";
    (void)PUPPETS_RESEAT("move", "a", "gpu0");
    cr_assert_eq(PUPPETS_RESEAT("drain", "gpu0", "--keep")->status, 0);
    puppet_need(b, 0, 200 * MIB - b->vdevs[0].granted, false);
    cr_assert(state_comes_to("b", "waiting", SOON));
    scrape_and_check();
    cr_expect_null(strstr(page, "rubbish"));
    cr_expect_eq(value("reseat_programs{state=\"running\"}"), 2);
    cr_expect_eq(value("reseat_programs{state=\"waiting\"}"), 1);
    cr_expect_eq(value("reseat_device_programs{device=\"gpu1\"}"), 1);
    cr_expect_eq(value("reseat_device_up{device=\"gpu0\"}"), 1);
    cr_expect_eq(value("reseat_device_closed{device=\"gpu0\"}"), 1);
    cr_expect_eq(value("reseat_device_closed{device=\"gpu1\"}"), 0);
    cr_expect_eq(value("reseat_device_busy_ratio{device=\"gpu1\",source=\"programs\"}"), 0.4);
    cr_expect_eq(value("reseat_device_transfer_bytes_per_second{device=\"gpu1\",source="
                       "\"programs\",direction=\"to\"}"),
                 7000000);
    for (unsigned i = 0; i < 2; i++) {
        static const struct {
            const char *metric, *field;
        } same[] = {{"memory_capacity_bytes", "capacity_bytes"},
                    {"memory_granted_bytes", "granted_bytes"},
                    {"memory_held_bytes", "held_bytes"},
                    {"memory_wanted_bytes", "wanted_bytes"}};
        for (size_t j = 0; j < sizeof(same) / sizeof(*same); j++) {
            char sample[96], device[8];
            snprintf(device, sizeof(device), "gpu%u", i);
            snprintf(sample, sizeof(sample), "reseat_device_%s{device=\"%s\"}", same[j].metric,
                     device);
            cr_expect_eq(value(sample), (double)devices_say(device, same[j].field), "%s", sample);
        }
    }
    cr_expect_eq(
        value("reseat_operations_total{operation=\"move\",result=\"done\",by=\"command\"}"), 1);
    cr_expect_eq(
        value("reseat_operations_total{operation=\"move\",result=\"rolled-back\",by=\"command\"}"),
        1);
    cr_expect_null(strstr(page, "result=\"resume\""), "a phase counts as an end");
    cr_expect_eq(value("reseat_move_copied_bytes_total"), PUPPET_COPIED);
    cr_expect_eq(value("reseat_move_downtime_seconds_count"), 1);
    cr_expect_eq(value("reseat_move_downtime_seconds_bucket{le=\"+Inf\"}"), 1);
    cr_expect_eq(value("reseat_queue_length{queue=\"memory\"}"), 1);
    cr_expect_eq(value("reseat_program_events_total{event=\"connected\"}"), 3);
    puppets_limit("gpu0", "600MiB");
    cr_assert(state_comes_to("b", "running", SOON));
    cr_assert_eq(scrape(""), 200);
    cr_expect_eq(value("reseat_queue_length{queue=\"memory\"}"), 0);
    cr_expect_geq(value("reseat_memory_waits_total"), 1);
}

Test(metrics, others_figures_are_for_those_who_may_see_them)
{
    char socket[4096], user[64];

    NEEDS_ROOT();
    harness_init();
    setenv("POCL_FAKE_DEVICES", "cpu:Fake two", 1);
    harness_configure("policy = { metrics-port = 47411; };\n");
    visitor_start_host_agent();
    cr_assert_eq(RESEAT("devices")->status, 0);
    struct visitor program = visitor_program(OTHER, "theirs");
    visitor_say_held(&program, MIB, true, false);
    snprintf(user, sizeof(user), "reseat_user_programs{user=\"%d\"}", OTHER);
    cr_assert_eq(scrape(""), 200);
    cr_expect_eq(value(user), 1, "root sees all");
    snprintf(socket, sizeof(socket), "%s", getenv("RESEAT_SOCKET"));
    for (unsigned i = 0; i < 2; i++) {
        char metrics[4200];
        snprintf(metrics, sizeof(metrics), "%s.metrics", socket);
        setenv("RESEAT_SOCKET", metrics, 1);
        struct visitor scraper = visitor_connect(i ? OTHER : OTHER + 1);
        setenv("RESEAT_SOCKET", socket, 1);
        cr_assert_eq(ask_http(dup(scraper.fd), "GET /metrics", ""), 200);
        cr_expect_eq(value(user), i ? 1 : -1, "%u", i);
        cr_expect_neq(value("reseat_device_memory_held_bytes{device=\"cpu0\"}"), -1);
        visitor_leave(&scraper);
    }
    int fd = connect_tcp(47411);
    cr_assert_geq(fd, 0);
    cr_assert_eq(ask_http(fd, "GET /metrics", "Host: localhost:47411\r\n"), 200);
    cr_expect_null(strstr(page, "user=\""), "everybody may read it there");
    cr_expect_eq(ask_http(connect_tcp(47411), "GET /metrics", "Host: evil.example\r\n"), 403);
}

Test(metrics, what_is_not_a_scrape_is_refused_and_the_configuration_is_followed)
{
    puppets_begin("gpu:one");
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_expect_eq(ask_http(connect_unix(), "GET /", ""), 404);
    cr_expect_eq(ask_http(connect_unix(), "POST /metrics", "Content-Length: 0\r\n"), 405);
    cr_expect_eq(ask_http(connect_unix(), "rubbish", ""), 400);
    harness_configure("policy = { metrics = false; };\n");
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_expect_eq(scrape(""), -1);
    harness_configure("policy = { metrics = true; metrics-port = 47412; };\n");
    cr_assert_eq(RESEAT("config", "reload")->status, 0);
    int fd = -1;
    for (unsigned i = 0; i < 400 && fd < 0; i++) {
        clock_sleep(20 * NS_PER_MS);
        fd = connect_tcp(47412);
    }
    cr_expect_eq(ask_http(fd, "GET /metrics", ""), 200);
    cr_expect_eq(scrape(""), 200);
}

Test(metrics, scrapers_that_are_slow_or_many_hold_nobody)
{
    int fds[12];
    unsigned open = 0;
    char byte;

    puppets_begin("gpu:one");
    cr_assert_eq(RESEAT("devices")->status, 0);
    for (unsigned i = 0; i < 12; i++) {
        fds[i] = connect_unix();
        cr_assert_geq(fds[i], 0);
        (void)!send(fds[i], "GET /metr", 9, MSG_NOSIGNAL); /* Some are closed by now. */
    }
    cr_expect_eq(RESEAT("ps")->status, 0);
    clock_sleep(500 * NS_PER_MS);
    for (unsigned i = 0; i < 12; i++)
        open += recv(fds[i], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
    cr_expect_eq(open, 8, "%u", open);
    /* One that sends something all the time has no longer than others. */
    bool ended = false;
    for (unsigned i = 0; i < 300 && !ended; i++) {
        clock_sleep(100 * NS_PER_MS);
        ended = send(fds[0], "i", 1, MSG_NOSIGNAL) < 0 || recv(fds[0], &byte, 1, MSG_DONTWAIT) == 0;
    }
    cr_expect(ended, "a scraper that never ends its request is kept");
    for (unsigned i = 0; i < 12; i++)
        close(fds[i]);
    cr_assert_eq(scrape(""), 200);
    cr_expect_geq(value("reseat_scrapers_dropped_total"), 4);
}
