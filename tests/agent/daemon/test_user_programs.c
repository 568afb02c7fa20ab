#include "tests/support/cases.h"
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/agent/harness.h"
#include "tests/agent/visitor.h"

/* Programs of several users under one agent: who speaks for which, and how much one user may have.
 */

static void begin(void)
{
    harness_init();
    unsetenv("POCL_FAKE_DEVICES");
}

TestSuite(user_programs, .init = begin, .fini = harness_finish, .timeout = 60);

Test(user_programs, a_program_answers_only_for_itself)
{
    NEEDS_ROOT();
    struct message message;
    struct frame frame;
    visitor_start_host_agent();
    struct visitor asked = visitor_program(ONE, "asked"), liar = visitor_program(OTHER, "liar");
    struct visitor one = visitor_client(ONE), witness = visitor_client(OTHER);

    frame_init(&frame, MSG_SUSPEND);
    frame_string(&frame, "app", "asked");
    visitor_tell(&one, &frame);
    uint64_t request = visitor_told_request(&asked);
    visitor_report(&liar, request, RESULT_DONE);
    /* Its frames are handled in turn: when this is shown, so are those before it. */
    frame_init(&frame, MSG_STATUS);
    frame_array(&frame, "vdevs");
    frame_map(&frame, NULL);
    frame_u64(&frame, "moves", 77);
    frame_end(&frame);
    frame_end(&frame);
    visitor_tell(&liar, &frame);
    for (uint64_t moves = 0; moves != 77;) {
        const msgpack_object *apps;
        frame_init(&frame, MSG_APPS);
        cr_assert(visitor_ask(&witness, &frame, &message));
        cr_assert_eq(field_array(&message.root, "apps", &apps), 1);
        moves = field_u64(&apps[0], "moves", 0);
        message_finish(&message);
    }
    visitor_report(&asked, request, RESULT_REFUSED);
    cr_assert(visitor_hear(&one, &message, SOON_MS));
    cr_expect(field_is(&message.root, "type", MSG_PROGRESS));
    cr_expect(field_is(&message.root, "phase", RESULT_REFUSED), "progress of another program");
    message_finish(&message);
    cr_assert(visitor_hear(&one, &message, SOON_MS));
    cr_expect(field_is(&message.root, "type", MSG_REPORT));
    cr_expect(field_is(&message.root, "result", RESULT_REFUSED), "the report of another program");
    message_finish(&message);
}

/** Whether the agent takes a program of that name, with this number for @key (NULL: none). */
static bool registers(struct visitor *client, const char *name, const char *key, uint64_t number)
{
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_REGISTER);
    frame_string(&frame, "name", name);
    frame_bool(&frame, "named", true);
    if (key)
        frame_u64(&frame, key, number);
    cr_assert(visitor_ask(client, &frame, &message));
    bool registered = field_is(&message.root, "type", MSG_REGISTER);
    message_finish(&message);
    return registered;
}

static void shown(struct visitor *client, const char *name, char ret_id[32], uint64_t *ret_quota)
{
    const msgpack_object *apps;
    struct message message;
    struct frame frame;

    ret_id[0] = '\0';
    frame_init(&frame, MSG_APPS);
    cr_assert(visitor_ask(client, &frame, &message));
    size_t count = field_array(&message.root, "apps", &apps);
    for (size_t i = 0; i < count; i++) {
        if (field_is(&apps[i], "name", name)) {
            cr_assert(field_string(&apps[i], "id", ret_id, 32));
            *ret_quota = field_u64(&apps[i], "quota_bytes", 0);
        }
    }
    message_finish(&message);
}

Test(user_programs, a_program_inherits_from_its_own_users_programs_only)
{
    NEEDS_ROOT();
    char id[32], child_id[32];
    uint64_t quota = 0;
    visitor_start_host_agent();
    struct visitor parent = visitor_client(ONE), root = visitor_client(0);

    cr_assert(registers(&parent, "parent", "quota", 7 << 20));
    shown(&root, "parent", id, &quota);
    cr_assert_eq(quota, 7 << 20);

    struct visitor child = visitor_connect(ONE), stranger = visitor_connect(OTHER);
    cr_assert(visitor_greet(&child, "program", "child", id));
    cr_assert(visitor_greet(&stranger, "program", "stranger", id));
    shown(&root, "child", child_id, &quota);
    cr_expect_eq(quota, 7 << 20);
    quota = 0;
    shown(&root, "stranger", child_id, &quota);
    cr_expect_neq(quota, 7 << 20, "another user's settings are inherited");
    cr_expect_str_neq(child_id, id);
}

Test(user_programs, no_user_lifts_the_configurations_power_cap)
{
    NEEDS_ROOT();
    struct message message;
    struct frame frame;

    harness_configure("programs = ({ match = \"*\"; cap = 50; });\n"
                      "devices = ({ match = \"*\"; busy-watts = 40; });\n");
    visitor_start_host_agent();
    struct visitor one = visitor_client(ONE);
    cr_assert(registers(&one, "one", "cap_mw", 200000));
    static const uint64_t asked[] = {0, 200000, 45000}, kept[] = {50000, 50000, 45000};
    for (size_t i = 0; i < 3; i++) {
        frame_init(&frame, MSG_LIMIT);
        frame_string(&frame, "what", "one");
        frame_u64(&frame, "cap_mw", asked[i]);
        cr_assert(visitor_ask(&one, &frame, &message));
        cr_assert(field_is(&message.root, "type", MSG_LIMIT));
        cr_expect_eq(field_u64(&message.root, "power_cap_mw", 1), kept[i], "%zu", i);
        message_finish(&message);
    }
}

/* ---- who was somebody else ---- */

/** One process that connects as each of @uids, in their order, and stays the last of them. */
static void visit_as(const uid_t *uids, size_t count, struct visitor *ret_visitors)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int ends[2];

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", getenv("RESEAT_SOCKET"));
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (size_t i = 0; i < count; i++) {
            int fd = socket(AF_UNIX, SOCK_STREAM, 0);
            if (seteuid(0) || seteuid(uids[i]) ||
                connect(fd, (const struct sockaddr *)&address, sizeof(address)))
                _exit(1);
            harness_send_fd(ends[1], fd);
        }
        pause();
        _exit(0);
    }
    close(ends[1]);
    for (size_t i = 0; i < count; i++) {
        ret_visitors[i] = (struct visitor){.pid = pid, .fd = harness_receive_fd(ends[0])};
        frame_reader_init(&ret_visitors[i].reader);
    }
    close(ends[0]);
}

static void leave_all(struct visitor *visitors, size_t count)
{
    kill(visitors[0].pid, SIGKILL);
    harness_wait(visitors[0].pid);
    for (size_t i = 0; i < count; i++) {
        close(visitors[i].fd);
        frame_reader_finish(&visitors[i].reader);
    }
}

/* As set-uid programs do; and as the kernel gives the number of a process that has ended again. */
Test(user_programs, whom_a_process_was_before_has_no_part_in_its_program)
{
    NEEDS_ROOT();
    static const uid_t uids[] = {OTHER, OTHER, ONE};
    struct visitor visitors[3], *before = &visitors[0], *client = &visitors[1],
                                *program = &visitors[2];
    struct frame frame;
    visitor_start_host_agent();
    visit_as(uids, 3, visitors);
    struct visitor one = visitor_client(ONE);

    cr_assert(visitor_greet(program, "program", "mine", ""));
    cr_expect(visitor_greet(before, "program", "evil", ""));
    cr_expect(visitor_greet(client, "client", "", ""));
    registers(client, "evil", NULL, 0);
    cr_expect(visitor_lists(&one, MSG_APPS, "apps", "mine"), "another user has named it");
    cr_expect(!visitor_lists(&one, MSG_APPS, "apps", "evil"));
    frame_init(&frame, MSG_SUSPEND);
    frame_string(&frame, "app", "mine");
    visitor_tell(&one, &frame);
    cr_expect_neq(visitor_told_request(program), 0);
    leave_all(visitors, 3);
}

Test(user_programs, a_program_of_roots_that_becomes_a_user_is_the_one_that_was_registered)
{
    NEEDS_ROOT();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct visitor visitors[2];
    char id[32], again[32];
    uint64_t quota;
    visitor_start_host_agent();
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", getenv("RESEAT_SOCKET"));
    visitors[0] = (struct visitor){.pid = getpid(), .fd = socket(AF_UNIX, SOCK_STREAM, 0)};
    cr_assert_eq(connect(visitors[0].fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert(visitor_greet(&visitors[0], "client", "", ""));
    cr_assert(registers(&visitors[0], "daemon", NULL, 0));
    struct visitor root = visitor_client(0);
    shown(&root, "daemon", id, &quota);
    cr_assert_str_neq(id, "");

    visitors[1] = (struct visitor){.pid = getpid(), .fd = socket(AF_UNIX, SOCK_STREAM, 0)};
    cr_assert_eq(seteuid(ONE), 0);
    cr_assert_eq(connect(visitors[1].fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(seteuid(0), 0);
    cr_assert(visitor_greet(&visitors[1], "program", "daemon", ""));
    shown(&root, "daemon", again, &quota);
    cr_expect_str_eq(again, id);
    struct visitor one = visitor_client(ONE);
    cr_expect(!visitor_lists(&one, MSG_APPS, "apps", "daemon"), "it is another program");
    visitor_leave(&one);
    cr_expect_str_eq(
        visitor_answer(&root, MSG_EXPLAIN, "app", "daemon", (char[PROTOCOL_TEXT_MAX]){""}), "");
    for (size_t i = 0; i < 2; i++) {
        close(visitors[i].fd);
        frame_reader_finish(&visitors[i].reader);
    }
}

/* ---- who wants all of the agent ---- */

static bool is_closed(const struct visitor *visitor, int ms)
{
    struct pollfd polled = {.fd = visitor->fd, .events = POLLIN};
    char byte;

    return poll(&polled, 1, ms) == 1 && recv(visitor->fd, &byte, 1, MSG_PEEK) <= 0;
}

Test(user_programs, one_user_has_a_part_of_the_connections_to_a_hosts_agent)
{
    NEEDS_ROOT();
    enum { MANY = 513 };
    static struct visitor visitors[MANY];
    static uid_t uids[MANY];
    visitor_start_host_agent();
    for (size_t i = 0; i < MANY; i++)
        uids[i] = ONE;
    visit_as(uids, MANY, visitors);

    cr_expect(visitor_greet(&visitors[0], "client", "", ""));
    cr_expect(is_closed(&visitors[MANY - 1], SOON_MS), "one user has as many as it likes");
    visitor_client(OTHER);
    visitor_client(0);
    leave_all(visitors, MANY);
}

/** Start a host's agent under these limits of ulimit. */
static void start_under(const char *limits)
{
    char script[512];

    snprintf(script, sizeof(script), "#!/bin/sh\nulimit %s && exec %s \"$@\"\n", limits,
             getenv("TEST_RESEATD"));
    harness_write(harness_path("agent.sh"), script);
    cr_assert_eq(chmod(harness_path("agent.sh"), 0755), 0);
    cr_assert_eq(setenv("RESEAT_AGENT", harness_path("agent.sh"), 1), 0);
    visitor_start_host_agent();
}

enum { FEW = 100, HALF = 80 };

Test(user_programs, a_hosts_agent_has_descriptors_for_as_many_connections_as_it_allows)
{
    NEEDS_ROOT();
    static struct visitor visitors[FEW];
    static uid_t uids[FEW];
    start_under("-Sn 64");
    for (size_t i = 0; i < FEW; i++)
        uids[i] = ONE;
    visit_as(uids, FEW, visitors);
    cr_expect(visitor_greet(&visitors[FEW - 1], "client", "", ""));
    leave_all(visitors, FEW);
}

Test(user_programs, users_leave_a_hosts_agent_descriptors_for_root_and_helpers)
{
    NEEDS_ROOT();
    static struct visitor visitors[2 * HALF];
    static uid_t uids[2 * HALF];
    start_under("-n 128");
    for (size_t i = 0; i < 2 * HALF; i++)
        uids[i] = i < HALF ? ONE : OTHER;
    visit_as(uids, 2 * HALF, visitors);
    cr_expect(is_closed(&visitors[2 * HALF - 1], SOON_MS));
    visitor_client(0);
    cr_expect_eq(RESEAT("devices")->status, 0);
    leave_all(visitors, 2 * HALF);
}

Test(user_programs, what_one_user_has_a_hosts_agent_keep_is_bounded)
{
    NEEDS_ROOT();
    enum { MANY = 20, SIZE = PROTOCOL_FRAME_MAX };
    static struct visitor visitors[MANY];
    static uid_t uids[MANY];
    static char part[SIZE]; /* of a frame that never ends */
    size_t closed = 0;
    visitor_start_host_agent();
    for (size_t i = 0; i < MANY; i++)
        uids[i] = ONE;
    visit_as(uids, MANY, visitors);
    part[2] = PROTOCOL_FRAME_MAX >> 16;

    for (size_t i = 0; i < MANY; i++) {
        cr_assert(visitor_greet(&visitors[i], "client", "", ""));
        for (size_t at = 0; at < SIZE;) {
            ssize_t count = send(visitors[i].fd, part + at, SIZE - at, MSG_NOSIGNAL);
            if (count <= 0)
                break;
            at += (size_t)count;
        }
    }
    for (size_t i = 0; i < MANY; i++)
        closed += is_closed(&visitors[i], i ? 0 : 1000);
    cr_expect(closed >= 4 && closed < MANY / 2, "%zu of %d are closed", closed, MANY);
    leave_all(visitors, MANY);
}
