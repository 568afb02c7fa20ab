#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/protocol/protocol.h"
#include "state/driver/device_key.h"
#include "tests/agent/harness.h"

/*
 * Other users of the machine, as the kernel sees them: each is a process that has changed its user
 * and connected by itself; what is said on its connection is said by the test.
 */

#define ONE     64001
#define OTHER   64002
#define SOON_MS 5000

static void begin(void)
{
    harness_init();
    unsetenv("POCL_FAKE_DEVICES");
}

TestSuite(users, .init = begin, .fini = harness_finish, .timeout = 60);

#define NEEDS_ROOT()                                                                               \
    if (geteuid() != 0)                                                                            \
    cr_skip_test("only root can be other users")

/* ---- somebody who connects ---- */

struct visitor {
    pid_t pid;
    int fd;
    struct frame_reader reader;
};

/** A process of that user, connected to the agent of $RESEAT_SOCKET; it has said nothing. */
static struct visitor visit(uid_t uid)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct visitor visitor = {0};
    int ends[2];

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", getenv("RESEAT_SOCKET"));
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    fflush(NULL);
    visitor.pid = fork();
    if (visitor.pid == 0) {
        harness_become(uid);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(fd, (const struct sockaddr *)&address, sizeof(address)))
            _exit(1);
        harness_send_fd(ends[1], fd);
        pause();
        _exit(0);
    }
    close(ends[1]);
    visitor.fd = harness_receive_fd(ends[0]);
    close(ends[0]);
    frame_reader_init(&visitor.reader);
    return visitor;
}

static void leave(struct visitor *visitor)
{
    kill(visitor->pid, SIGKILL);
    harness_wait(visitor->pid);
    close(visitor->fd);
    frame_reader_finish(&visitor->reader);
}

static void tell(struct visitor *visitor, struct frame *frame)
{
    cr_assert_eq(frame_seal(frame), 0);
    (void)!send(visitor->fd, frame->buffer.data, frame->buffer.size, MSG_NOSIGNAL);
    frame_finish(frame);
}

/** The next frame; false when there is none within @ms, or the connection ended. */
static bool hear(struct visitor *visitor, struct message *ret_message, int ms)
{
    for (;;) {
        char bytes[8192];
        struct pollfd polled = {.fd = visitor->fd, .events = POLLIN};
        int got = frame_reader_next(&visitor->reader, ret_message);
        if (got)
            return got == 1;
        if (poll(&polled, 1, ms) <= 0)
            return false;
        ssize_t count = recv(visitor->fd, bytes, sizeof(bytes), 0);
        if (count <= 0)
            return false;
        cr_assert_eq(frame_reader_feed(&visitor->reader, bytes, (size_t)count), 0);
    }
}

static bool ask(struct visitor *visitor, struct frame *frame, struct message *ret_message)
{
    tell(visitor, frame);
    return hear(visitor, ret_message, SOON_MS);
}

static bool greet_as(struct visitor *visitor, const char *role, const char *name, const char *id)
{
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_HELLO);
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_string(&frame, "role", role);
    frame_string(&frame, "name", name);
    frame_string(&frame, "id", id);
    frame_string(&frame, "program", name);
    if (!ask(visitor, &frame, &message))
        return false;
    bool welcome = field_is(&message.root, "type", MSG_WELCOME);
    message_finish(&message);
    return welcome;
}

static struct visitor client_of(uid_t uid)
{
    struct visitor visitor = visit(uid);

    cr_assert(greet_as(&visitor, "client", "", ""));
    return visitor;
}

static const struct device_key fake_key = {
    .icd = "libfake.so", .platform = "Fake \xe2\x84\xa2", .device = "Fake two"};

/** A program that is on gpu0, and says so. */
static struct visitor program_of(uid_t uid, const char *name)
{
    struct visitor visitor = visit(uid);
    char text[DEVICE_KEY_TEXT_MAX];
    struct frame frame;

    cr_assert(greet_as(&visitor, "program", name, ""));
    device_key_format(&fake_key, text);
    frame_init(&frame, MSG_STATUS);
    frame_array(&frame, "vdevs");
    frame_map(&frame, NULL);
    frame_string(&frame, "device", text);
    frame_u64(&frame, "device_bytes", 1 << 20);
    frame_u64(&frame, "wanted", 1 << 20);
    frame_end(&frame);
    frame_end(&frame);
    tell(&visitor, &frame);
    return visitor;
}

/* ---- agents ---- */

/** One of root's, which anyone may connect to. */
static void start_host_agent(void)
{
    setenv("RESEAT_SOCKET", harness_path("host.sock"), 1);
    cr_assert_eq(chmod(harness_folder(), 0711), 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
}

static int as_user(uid_t uid, const char *first, const char *second, const char *third)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        harness_become(uid);
        prctl(PR_SET_PDEATHSIG, 0);
        execl(harness_reseat(), harness_reseat(), first, second, third, (char *)NULL);
        _exit(127);
    }
    return harness_wait(pid);
}

/* ---- who may connect, see and act ---- */

Test(users, to_a_users_agent_only_that_user_and_root_connect)
{
    NEEDS_ROOT();
    setenv("RESEAT_SOCKET", harness_path("one.sock"), 1);
    cr_assert_eq(chown(harness_folder(), ONE, ONE), 0);
    cr_assert_eq(chmod(harness_folder(), 0711), 0);
    cr_assert_eq(as_user(ONE, "agent", "start", NULL), 0);
    cr_assert_eq(chmod(harness_path("one.sock"), 0666),
                 0); /* The socket's mode is the other fence. */

    struct visitor one = visit(ONE), other = visit(OTHER), root = visit(0);
    cr_expect(greet_as(&one, "client", "", ""));
    cr_expect(greet_as(&root, "client", "", ""));
    cr_expect(!greet_as(&other, "client", "", ""), "another user is welcome");
    leave(&one);
    leave(&other);
    leave(&root);
    cr_assert_eq(as_user(ONE, "agent", "stop", NULL), 0);
}

/* ---- root, and the agents of users ---- */

/** One of @uid's, whose socket $RESEAT_SOCKET is from now on. */
static void start_users_agent(uid_t uid)
{
    setenv("RESEAT_SOCKET", harness_path("one.sock"), 1);
    cr_assert_eq(chown(harness_folder(), uid, uid), 0);
    cr_assert_eq(chmod(harness_folder(), 0711), 0);
    cr_assert_eq(as_user(uid, "agent", "start", NULL), 0);
}

static uint64_t told_request(struct visitor *program);
static void say_result(struct visitor *program, uint64_t request, const char *result);

Test(users, root_sees_and_moves_another_users_programs)
{
    NEEDS_ROOT();
    char one_text[16];
    snprintf(one_text, sizeof(one_text), "%d", ONE);
    start_users_agent(ONE);
    struct visitor program = program_of(ONE, "mine");

    struct result *ps = RESEAT("--user", one_text, "ps");
    cr_expect_eq(ps->status, 0, "%s", ps->err);
    cr_expect(strstr(ps->out, "mine"), "%s", ps->out);
    pid_t suspend = harness_spawn(harness_reseat(), "--user", one_text, "suspend", "mine", NULL);
    say_result(&program, told_request(&program), RESULT_DONE);
    cr_expect_eq(harness_wait(suspend), 0);
    cr_expect_eq(RESEAT("--user", one_text, "limit", "mine", "--memory", "1GiB")->status, 0);
    cr_expect_neq(as_user(OTHER, "--user", one_text, "ps"), 0, "another user does, too");
    cr_expect_neq(RESEAT("--user", one_text, "agent", "stop")->status, 0, "by the word of a file");
    leave(&program);
    cr_assert_eq(as_user(ONE, "agent", "stop", NULL), 0);
    struct result *none = RESEAT("--user", one_text, "devices");
    cr_expect_eq(none->status, 3, "an agent is started: %s", none->out);
    cr_expect(strstr(none->err, "no agent of user"), "%s", none->err);
}

/* A user decides what is in the folder that root is led to. */
Test(users, root_is_not_led_to_the_agent_of_anybody_else)
{
    NEEDS_ROOT();
    char one_text[16];
    snprintf(one_text, sizeof(one_text), "%d", ONE);
    start_host_agent();
    cr_assert_eq(symlink(harness_path("host.sock"), harness_path("one.sock")), 0);
    cr_assert_eq(mkdir(harness_path("one.sock.d"), 0700), 0);
    cr_assert_eq(chown(harness_path("one.sock.d"), ONE, ONE), 0);
    setenv("RESEAT_SOCKET", harness_path("one.sock"), 1);

    struct result *led = RESEAT("--user", one_text, "ps");
    cr_expect_neq(led->status, 0, "root's own agent is taken for the user's: %s", led->out);
    cr_assert_eq(unlink(harness_path("one.sock")), 0);
    cr_assert_eq(chown(harness_path("one.sock.d"), OTHER, OTHER), 0);
    led = RESEAT("--user", one_text, "ps");
    cr_expect_neq(led->status, 0);
    cr_expect(strstr(led->err, "belongs to another user"), "%s", led->err);
    setenv("RESEAT_SOCKET", harness_path("host.sock"), 1);
}

/** @uid has folders of its own for its commands. */
static void give_home(uid_t uid)
{
    cr_assert_eq(mkdir(harness_path("home"), 0700), 0);
    cr_assert_eq(chown(harness_path("home"), uid, uid), 0);
    setenv("XDG_RUNTIME_DIR", harness_path("home"), 1);
    setenv("XDG_CACHE_HOME", harness_path("home"), 1);
}

static unsigned mode_of(const char *name)
{
    struct stat stat;

    cr_assert_eq(lstat(harness_path(name), &stat), 0, "%s", name);
    return stat.st_mode & 07777;
}

Test(users, a_user_reads_the_list_of_devices_of_a_hosts_agent_and_nothing_else_of_it)
{
    NEEDS_ROOT();
    start_host_agent();
    cr_assert_eq(RESEAT("devices")->status, 0);
    give_home(ONE);

    cr_expect_eq(as_user(ONE, "devices", "--presented", NULL), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        harness_become(ONE);
        execl(harness_reseat(), harness_reseat(), "run", "--", "sh", "-c",
              "test -s \"$RESEAT_INVENTORY\" -a ! -w \"$RESEAT_INVENTORY\"", (char *)NULL);
        _exit(127);
    }
    cr_expect_eq(harness_wait(pid), 0, "a program cannot read its list, or may change it");
    cr_expect_eq(mode_of("host.sock.d"), 0700);
    cr_expect_eq(mode_of("host.sock.lists"), 0711, "names in it can be listed");
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_eq(chmod(harness_path("host.sock.lists"), 0777), 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    cr_expect_eq(mode_of("host.sock.lists"), 0711, "others may put their own list there");
}

Test(users, commands_and_programs_of_a_user_reach_a_hosts_agent)
{
    NEEDS_ROOT();
    start_host_agent();
    give_home(ONE);

    cr_expect_eq(as_user(ONE, "devices", NULL, NULL), 0);
    cr_expect_eq(as_user(ONE, "ps", NULL, NULL), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        harness_become(ONE);
        execl(harness_reseat(), harness_reseat(), "run", "--name", "theirs", "--", "sleep", "60",
              (char *)NULL);
        _exit(127);
    }
    cr_expect(harness_prints("ps", NULL, "theirs", SOON_MS), "root does not see it");
    kill(pid, SIGKILL);
    harness_wait(pid);
    /* What is in a socket's place counts, not its name. */
    cr_assert_eq(chown(harness_path("host.sock"), OTHER, OTHER), 0);
    cr_expect_neq(as_user(ONE, "ps", NULL, NULL), 0);
    cr_assert_eq(chown(harness_path("host.sock"), 0, 0), 0);
}

static bool lists(struct visitor *client, const char *type, const char *list, const char *name)
{
    const msgpack_object *items;
    struct message message;
    struct frame frame;
    bool found = false;

    frame_init(&frame, type);
    cr_assert(ask(client, &frame, &message), "no answer to %s", type);
    cr_assert(field_is(&message.root, "type", type));
    size_t count = field_array(&message.root, list, &items);
    for (size_t i = 0; i < count; i++)
        found = found || field_is(&items[i], "name", name);
    message_finish(&message);
    return found;
}

/** True when @client is told that a program of that name has ended. */
static bool remembers(struct visitor *client, const char *name)
{
    for (int i = 0; i < 20 && lists(client, MSG_APPS, "apps", name); i++)
        usleep(50000);
    return lists(client, MSG_USE, "ended", name);
}

/** What @type about @app is answered with: the code of an error, or "" for none. */
static const char *answer(struct visitor *client, const char *type, const char *key,
                          const char *app, char ret_text[PROTOCOL_TEXT_MAX])
{
    static char code[PROTOCOL_WORD_MAX];
    struct message message;
    struct frame frame;

    frame_init(&frame, type);
    frame_string(&frame, key, app);
    cr_assert(ask(client, &frame, &message), "no answer to %s", type);
    code[0] = ret_text[0] = '\0';
    if (field_is(&message.root, "type", MSG_ERROR)) {
        cr_assert(field_string(&message.root, "code", code, sizeof(code)));
        cr_assert(field_string(&message.root, "message", ret_text, PROTOCOL_TEXT_MAX));
    }
    message_finish(&message);
    return code;
}

Test(users, each_sees_and_finds_their_own_programs_and_root_all)
{
    NEEDS_ROOT();
    char text[PROTOCOL_TEXT_MAX], pid[16];
    start_host_agent();
    struct visitor mine = program_of(ONE, "mine");
    struct visitor one = client_of(ONE), other = client_of(OTHER), root = client_of(0);

    cr_expect(lists(&one, MSG_APPS, "apps", "mine"));
    cr_expect(lists(&root, MSG_APPS, "apps", "mine"));
    cr_expect(!lists(&other, MSG_APPS, "apps", "mine"));
    cr_expect(lists(&one, MSG_USE, "apps", "mine"));
    cr_expect(!lists(&other, MSG_USE, "apps", "mine"));
    snprintf(pid, sizeof(pid), "%d", (int)mine.pid);
    const char *const names[] = {"mine", "a1", pid};
    for (size_t i = 0; i < 3; i++) {
        cr_expect_str_eq(answer(&one, MSG_EXPLAIN, "app", names[i], text), "", "%s: %s", names[i],
                         text);
        cr_expect_str_eq(answer(&root, MSG_EXPLAIN, "app", names[i], text), "");
        cr_expect_str_eq(answer(&other, MSG_EXPLAIN, "app", names[i], text), ERR_NO_APP);
        cr_expect_str_eq(answer(&other, MSG_SUSPEND, "app", names[i], text), ERR_NO_APP);
    }
    answer(&one, MSG_EXPLAIN, "app", "none", text);
    cr_expect(strstr(text, "mine"), "%s", text);
    answer(&other, MSG_EXPLAIN, "app", "none", text);
    cr_expect(!strstr(text, "mine"), "another user's programs are named: %s", text);
    shutdown(mine.fd, SHUT_RDWR); /* The processes of later visitors have it, too. */
    leave(&mine);
    cr_expect(remembers(&one, "mine"));
    cr_expect(!remembers(&other, "mine"), "another user is told of a program that ended");
    leave(&one);
    leave(&other);
    leave(&root);
}

/** Its program waits for room, of which no device has so much left. */
static void pending(struct visitor *program, uint64_t bytes)
{
    struct frame frame;

    frame_init(&frame, MSG_NEED);
    frame_u64(&frame, "id", 1);
    frame_u64(&frame, "vdev", 0);
    frame_u64(&frame, "total", bytes);
    frame_u64(&frame, "least", bytes);
    frame_u64(&frame, "wanted", bytes);
    tell(program, &frame);
}

/** All that it is told of why @app is where it is. */
static void explained(struct visitor *client, const char *app, char *ret_text, size_t size)
{
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_EXPLAIN);
    frame_string(&frame, "app", app);
    cr_assert(ask(client, &frame, &message));
    cr_assert((size_t)msgpack_object_print_buffer(ret_text, size, message.root) < size);
    message_finish(&message);
}

/** Until what root is told of it has @words. */
static void must_explain(struct visitor *root, const char *app, const char *words)
{
    char text[16384];

    for (int i = 0; i < 100; i++) {
        explained(root, app, text, sizeof(text));
        if (strstr(text, words))
            return;
        usleep(50000);
    }
    cr_assert(false, "%s", text);
}

Test(users, what_is_in_the_way_of_a_program_names_its_own_users_alone)
{
    NEEDS_ROOT();
    char text[16384];
    setenv("POCL_FAKE_DEVICES", "cpu:Fake two", 1);
    start_host_agent();
    cr_assert_eq(RESEAT("devices")->status, 0);
    struct visitor large = program_of(ONE, "large"), first = program_of(ONE, "first"),
                   theirs = program_of(OTHER, "theirs");
    struct visitor other = client_of(OTHER), root = client_of(0);

    pending(&large, 1ull << 30);
    must_explain(&root, "large", "may have 1 GiB there");
    pending(&first, 3ull << 29);
    must_explain(&root, "first", "number 1 in the queue");
    pending(&theirs, 3ull << 29);
    must_explain(&root, "theirs", "it waits behind first");
    explained(&other, "theirs", text, sizeof(text));
    cr_expect(strstr(text, "it waits behind another user's program"), "%s", text);
    cr_expect(!strstr(text, "first") && !strstr(text, "large"), "%s", text);
    leave(&large);
    leave(&first);
    leave(&theirs);
    leave(&other);
    leave(&root);
}

/** It says that it holds @bytes, was granted as much, and whether its device is lost. */
static void say_held(struct visitor *program, uint64_t bytes, bool lost)
{
    char text[DEVICE_KEY_TEXT_MAX];
    struct frame frame;

    device_key_format(&fake_key, text);
    frame_init(&frame, MSG_STATUS);
    frame_array(&frame, "vdevs");
    frame_map(&frame, NULL);
    frame_string(&frame, "device", text);
    frame_u64(&frame, "device_bytes", bytes);
    frame_u64(&frame, "wanted", bytes);
    frame_u64(&frame, "granted", bytes);
    frame_bool(&frame, "lost", lost);
    frame_end(&frame);
    frame_end(&frame);
    tell(program, &frame);
}

/** What the agent answers to one that needs @bytes in all, when its driver @failed. */
static void pending_way(struct visitor *program, uint64_t bytes, bool failed, char ret_way[32])
{
    struct message message;
    struct frame frame;
    bool answered = false;

    frame_init(&frame, MSG_NEED);
    frame_u64(&frame, "id", 2);
    frame_u64(&frame, "vdev", 0);
    frame_u64(&frame, "total", bytes);
    frame_u64(&frame, "least", 1 << 20);
    frame_u64(&frame, "wanted", bytes);
    frame_bool(&frame, "failed", failed);
    tell(program, &frame);
    while (!answered) {
        cr_assert(hear(program, &message, SOON_MS));
        answered = field_is(&message.root, "type", MSG_ANSWER);
        cr_assert(!answered || field_string(&message.root, "way", ret_way, 32));
        message_finish(&message);
    }
}

static uint64_t granted_bytes(void)
{
    static const char key[] = "\"granted_bytes\": ";
    const char *at = strstr(RESEAT("devices", "--json")->out, key);

    cr_assert_not_null(at);
    return strtoull(at + strlen(key), NULL, 10);
}

Test(users, what_a_user_says_of_a_program_counts_for_nobody_else)
{
    NEEDS_ROOT();
    char way[32];
    setenv("POCL_FAKE_DEVICES", "cpu:Fake two", 1);
    start_host_agent();
    cr_assert_eq(RESEAT("devices")->status, 0);
    struct visitor liar = program_of(ONE, "liar"), theirs = program_of(0, "theirs");

    say_held(&liar, 1ull << 60, false);
    pending_way(&liar, 1ull << 29, true, way);
    cr_expect_str_neq(way, WAY_AGAIN, "its driver had no more, and would have none again");
    say_held(&liar, 1ull << 60, true);
    pending_way(&theirs, 900ull << 20, false, way);
    cr_expect_str_eq(way, WAY_AGAIN);
    cr_expect_leq(granted_bytes(), 1ull << 30);
    cr_expect_geq(granted_bytes(), 900ull << 20);
    /* Nor what is said where it connects. */
    leave(&liar);
    liar = program_of(ONE, "liar");
    say_held(&liar, 1ull << 60, false);
    pending_way(&theirs, 950ull << 20, false, way);
    cr_expect_str_eq(way, WAY_AGAIN);
    /* Of those who are believed it counts. */
    pending_way(&theirs, 1000ull << 20, true, way);
    cr_expect_str_neq(way, WAY_AGAIN);
    leave(&liar);
    leave(&theirs);
}

static size_t users_of_devices(struct visitor *client)
{
    const msgpack_object *devices, *apps;
    struct message message;
    struct frame frame;
    size_t users = 0;

    frame_init(&frame, MSG_DEVICES);
    cr_assert(ask(client, &frame, &message));
    size_t count = field_array(&message.root, "devices", &devices);
    cr_assert_eq(count, 3);
    for (size_t i = 0; i < count; i++)
        users += field_array(&devices[i], "apps", &apps);
    message_finish(&message);
    return users;
}

Test(users, the_list_of_devices_names_each_users_own_programs)
{
    NEEDS_ROOT();
    start_host_agent();
    cr_assert_eq(RESEAT("devices")->status, 0);
    struct visitor mine = program_of(ONE, "mine");
    struct visitor one = client_of(ONE), other = client_of(OTHER);

    cr_expect_eq(users_of_devices(&one), 1);
    cr_expect_eq(users_of_devices(&other), 0);
    leave(&mine);
    leave(&one);
    leave(&other);
}

Test(users, a_hosts_agent_and_its_devices_are_roots_to_govern)
{
    NEEDS_ROOT();
    static const char *const requests[] = {MSG_STOP,  MSG_RELOAD,  MSG_LIMIT,
                                           MSG_DRAIN, MSG_BALANCE, MSG_SERVER};
    char text[PROTOCOL_TEXT_MAX];
    start_host_agent();
    cr_assert_eq(RESEAT("devices")->status, 0);

    for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
        struct visitor one = client_of(ONE);
        const char *key = strcmp(requests[i], MSG_LIMIT) ? "device" : "what";
        cr_expect_str_eq(answer(&one, requests[i], key, "cpu0", text), ERR_DENIED, "%s: %s",
                         requests[i], text);
        leave(&one);
    }
    cr_expect_neq(harness_agent(), 0);
    cr_expect_eq(RESEAT("drain", "cpu0")->status, 0);
    cr_expect_eq(RESEAT("limit", "cpu0", "--memory", "1GiB")->status, 0);
}

/** True when the devices that @client is told of are those that it asks for. */
static bool has_own_devices(struct visitor *client)
{
    const msgpack_object *devices;
    struct message message;
    struct frame frame;
    bool found = false;

    frame_init(&frame, MSG_DEVICES);
    frame_array(&frame, "environment");
    frame_string(&frame, NULL, "POCL_FAKE_DEVICES=gpu:theirs");
    frame_end(&frame);
    cr_assert(ask(client, &frame, &message));
    size_t count = field_array(&message.root, "devices", &devices);
    for (size_t i = 0; i < count; i++)
        found = found || field_is(&devices[i], "device", "theirs");
    message_finish(&message);
    return found;
}

Test(users, another_users_environment_does_not_say_what_the_agents_helper_loads)
{
    NEEDS_ROOT();
    start_host_agent();
    struct visitor one = client_of(ONE), root = client_of(0);

    cr_expect(!has_own_devices(&one));
    cr_expect(has_own_devices(&root));
    leave(&one);
    leave(&root);
}

/* ---- programs ---- */

static uint64_t told_request(struct visitor *program)
{
    struct message message;

    while (hear(program, &message, SOON_MS)) {
        uint64_t id = field_is(&message.root, "type", MSG_SUSPEND)
                          ? field_u64(&message.root, "request", 0)
                          : 0;
        message_finish(&message);
        if (id)
            return id;
    }
    cr_assert(false, "the program is not asked");
    return 0;
}

static void say_result(struct visitor *program, uint64_t request, const char *result)
{
    struct frame frame;

    frame_init(&frame, MSG_PROGRESS);
    frame_u64(&frame, "request", request);
    frame_string(&frame, "phase", result);
    tell(program, &frame);
    frame_init(&frame, MSG_REPORT);
    frame_u64(&frame, "request", request);
    frame_string(&frame, "result", result);
    frame_string(&frame, "reached", "plan");
    frame_string(&frame, "reason", "");
    tell(program, &frame);
}

Test(users, a_program_answers_only_for_itself)
{
    NEEDS_ROOT();
    struct message message;
    struct frame frame;
    start_host_agent();
    struct visitor asked = program_of(ONE, "asked"), liar = program_of(OTHER, "liar");
    struct visitor one = client_of(ONE), witness = client_of(OTHER);

    frame_init(&frame, MSG_SUSPEND);
    frame_string(&frame, "app", "asked");
    tell(&one, &frame);
    uint64_t request = told_request(&asked);
    say_result(&liar, request, RESULT_DONE);
    /* Its frames are handled in turn: when this is shown, so are those before it. */
    frame_init(&frame, MSG_STATUS);
    frame_array(&frame, "vdevs");
    frame_map(&frame, NULL);
    frame_u64(&frame, "moves", 77);
    frame_end(&frame);
    frame_end(&frame);
    tell(&liar, &frame);
    for (uint64_t moves = 0; moves != 77;) {
        const msgpack_object *apps;
        frame_init(&frame, MSG_APPS);
        cr_assert(ask(&witness, &frame, &message));
        cr_assert_eq(field_array(&message.root, "apps", &apps), 1);
        moves = field_u64(&apps[0], "moves", 0);
        message_finish(&message);
    }
    say_result(&asked, request, RESULT_REFUSED);
    cr_assert(hear(&one, &message, SOON_MS));
    cr_expect(field_is(&message.root, "type", MSG_PROGRESS));
    cr_expect(field_is(&message.root, "phase", RESULT_REFUSED), "progress of another program");
    message_finish(&message);
    cr_assert(hear(&one, &message, SOON_MS));
    cr_expect(field_is(&message.root, "type", MSG_REPORT));
    cr_expect(field_is(&message.root, "result", RESULT_REFUSED), "the report of another program");
    message_finish(&message);
    leave(&asked);
    leave(&liar);
    leave(&one);
    leave(&witness);
}

static void shown(struct visitor *client, const char *name, char ret_id[32], uint64_t *ret_quota)
{
    const msgpack_object *apps;
    struct message message;
    struct frame frame;

    ret_id[0] = '\0';
    frame_init(&frame, MSG_APPS);
    cr_assert(ask(client, &frame, &message));
    size_t count = field_array(&message.root, "apps", &apps);
    for (size_t i = 0; i < count; i++) {
        if (field_is(&apps[i], "name", name)) {
            cr_assert(field_string(&apps[i], "id", ret_id, 32));
            *ret_quota = field_u64(&apps[i], "quota_bytes", 0);
        }
    }
    message_finish(&message);
}

Test(users, a_program_inherits_from_its_own_users_programs_only)
{
    NEEDS_ROOT();
    struct message message;
    struct frame frame;
    char id[32], child_id[32];
    uint64_t quota = 0;
    start_host_agent();
    struct visitor parent = client_of(ONE), root = client_of(0);

    frame_init(&frame, MSG_REGISTER);
    frame_string(&frame, "name", "parent");
    frame_bool(&frame, "named", true);
    frame_u64(&frame, "quota", 7 << 20);
    cr_assert(ask(&parent, &frame, &message));
    cr_assert(field_is(&message.root, "type", MSG_REGISTER));
    message_finish(&message);
    shown(&root, "parent", id, &quota);
    cr_assert_eq(quota, 7 << 20);

    struct visitor child = visit(ONE), stranger = visit(OTHER);
    cr_assert(greet_as(&child, "program", "child", id));
    cr_assert(greet_as(&stranger, "program", "stranger", id));
    shown(&root, "child", child_id, &quota);
    cr_expect_eq(quota, 7 << 20);
    quota = 0;
    shown(&root, "stranger", child_id, &quota);
    cr_expect_neq(quota, 7 << 20, "another user's settings are inherited");
    cr_expect_str_neq(child_id, id);
    leave(&parent);
    leave(&child);
    leave(&stranger);
    leave(&root);
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

static bool registers(struct visitor *client, const char *name)
{
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_REGISTER);
    frame_string(&frame, "name", name);
    frame_bool(&frame, "named", true);
    cr_assert(ask(client, &frame, &message));
    bool registered = field_is(&message.root, "type", MSG_REGISTER);
    message_finish(&message);
    return registered;
}

/* As set-uid programs do; and as the kernel gives the number of a process that has ended again. */
Test(users, whom_a_process_was_before_has_no_part_in_its_program)
{
    NEEDS_ROOT();
    static const uid_t uids[] = {OTHER, OTHER, ONE};
    struct visitor visitors[3], *before = &visitors[0], *client = &visitors[1],
                                *program = &visitors[2];
    struct frame frame;
    start_host_agent();
    visit_as(uids, 3, visitors);
    struct visitor one = client_of(ONE);

    cr_assert(greet_as(program, "program", "mine", ""));
    cr_expect(greet_as(before, "program", "evil", ""));
    cr_expect(greet_as(client, "client", "", ""));
    registers(client, "evil");
    cr_expect(lists(&one, MSG_APPS, "apps", "mine"), "another user has named it");
    cr_expect(!lists(&one, MSG_APPS, "apps", "evil"));
    frame_init(&frame, MSG_SUSPEND);
    frame_string(&frame, "app", "mine");
    tell(&one, &frame);
    cr_expect_neq(told_request(program), 0);
    leave_all(visitors, 3);
    leave(&one);
}

Test(users, a_program_of_roots_that_becomes_a_user_is_the_one_that_was_registered)
{
    NEEDS_ROOT();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct visitor visitors[2];
    char id[32], again[32];
    uint64_t quota;
    start_host_agent();
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", getenv("RESEAT_SOCKET"));
    visitors[0] = (struct visitor){.pid = getpid(), .fd = socket(AF_UNIX, SOCK_STREAM, 0)};
    cr_assert_eq(connect(visitors[0].fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert(greet_as(&visitors[0], "client", "", ""));
    cr_assert(registers(&visitors[0], "daemon"));
    struct visitor root = client_of(0);
    shown(&root, "daemon", id, &quota);
    cr_assert_str_neq(id, "");

    visitors[1] = (struct visitor){.pid = getpid(), .fd = socket(AF_UNIX, SOCK_STREAM, 0)};
    cr_assert_eq(seteuid(ONE), 0);
    cr_assert_eq(connect(visitors[1].fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(seteuid(0), 0);
    cr_assert(greet_as(&visitors[1], "program", "daemon", ""));
    shown(&root, "daemon", again, &quota);
    cr_expect_str_eq(again, id);
    struct visitor one = client_of(ONE);
    cr_expect(!lists(&one, MSG_APPS, "apps", "daemon"), "it is another program");
    leave(&one);
    cr_expect_str_eq(answer(&root, MSG_EXPLAIN, "app", "daemon", (char[PROTOCOL_TEXT_MAX]){""}),
                     "");
    for (size_t i = 0; i < 2; i++) {
        close(visitors[i].fd);
        frame_reader_finish(&visitors[i].reader);
    }
    leave(&root);
}

/* ---- who wants all of the agent ---- */

static bool is_closed(const struct visitor *visitor, int ms)
{
    struct pollfd polled = {.fd = visitor->fd, .events = POLLIN};
    char byte;

    return poll(&polled, 1, ms) == 1 && recv(visitor->fd, &byte, 1, MSG_PEEK) <= 0;
}

Test(users, one_user_has_a_part_of_the_connections_to_a_hosts_agent)
{
    NEEDS_ROOT();
    enum { MANY = 513 };
    static struct visitor visitors[MANY];
    static uid_t uids[MANY];
    start_host_agent();
    for (size_t i = 0; i < MANY; i++)
        uids[i] = ONE;
    visit_as(uids, MANY, visitors);

    cr_expect(greet_as(&visitors[0], "client", "", ""));
    cr_expect(is_closed(&visitors[MANY - 1], SOON_MS), "one user has as many as it likes");
    struct visitor other = client_of(OTHER), root = client_of(0);
    leave_all(visitors, MANY);
    leave(&other);
    leave(&root);
}

Test(users, what_one_user_has_a_hosts_agent_keep_is_bounded)
{
    NEEDS_ROOT();
    enum { MANY = 20, SIZE = PROTOCOL_FRAME_MAX };
    static struct visitor visitors[MANY];
    static uid_t uids[MANY];
    static char part[SIZE]; /* of a frame that never ends */
    size_t closed = 0;
    start_host_agent();
    for (size_t i = 0; i < MANY; i++)
        uids[i] = ONE;
    visit_as(uids, MANY, visitors);
    part[2] = PROTOCOL_FRAME_MAX >> 16;

    for (size_t i = 0; i < MANY; i++) {
        cr_assert(greet_as(&visitors[i], "client", "", ""));
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
