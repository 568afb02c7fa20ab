#include "tests/support/cases.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/agent/harness.h"
#include "tests/agent/visitor.h"

/* Whom an agent lets in, and what each user sees of it, its devices and others' programs. */

static void begin(void)
{
    harness_init();
    unsetenv("POCL_FAKE_DEVICES");
}

TestSuite(users, .init = begin, .fini = harness_finish, .timeout = 60);

/* ---- agents ---- */

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

    struct visitor one = visitor_connect(ONE), other = visitor_connect(OTHER),
                   root = visitor_connect(0);
    cr_expect(visitor_greet(&one, "client", "", ""));
    cr_expect(visitor_greet(&root, "client", "", ""));
    cr_expect(!visitor_greet(&other, "client", "", ""), "another user is welcome");
    visitor_leave(&one);
    visitor_leave(&other);
    visitor_leave(&root);
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

Test(users, root_sees_and_moves_another_users_programs)
{
    NEEDS_ROOT();
    char one_text[16];
    snprintf(one_text, sizeof(one_text), "%d", ONE);
    start_users_agent(ONE);
    struct visitor program = visitor_program(ONE, "mine");

    harness_says(RESEAT("--user", one_text, "ps"), 0, "mine");
    pid_t suspend = harness_spawn(harness_reseat(), "--user", one_text, "suspend", "mine", NULL);
    visitor_report(&program, visitor_told_request(&program), RESULT_DONE);
    cr_expect_eq(harness_wait(suspend), 0);
    cr_expect_eq(RESEAT("--user", one_text, "limit", "mine", "--memory", "1GiB")->status, 0);
    cr_expect_neq(as_user(OTHER, "--user", one_text, "ps"), 0, "another user does, too");
    cr_expect_neq(RESEAT("--user", one_text, "agent", "stop")->status, 0, "by the word of a file");
    visitor_leave(&program);
    cr_assert_eq(as_user(ONE, "agent", "stop", NULL), 0);
    harness_says(RESEAT("--user", one_text, "devices"), 3, "no agent of user");
}

/* A user decides what is in the folder that root is led to. */
Test(users, root_is_not_led_to_the_agent_of_anybody_else)
{
    NEEDS_ROOT();
    char one_text[16];
    snprintf(one_text, sizeof(one_text), "%d", ONE);
    visitor_start_host_agent();
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
    visitor_start_host_agent();
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

Test(users, a_hosts_agent_starts_though_another_user_has_the_folder_of_its_lists)
{
    NEEDS_ROOT();
    setenv("RESEAT_SOCKET", harness_path("host.sock"), 1);
    cr_assert_eq(chmod(harness_folder(), 01777), 0);
    cr_assert_eq(mkdir(harness_path("host.sock.lists"), 0777), 0);
    cr_assert_eq(chown(harness_path("host.sock.lists"), OTHER, OTHER), 0);
    harness_ends(RESEAT("agent", "start"), 0);
    give_home(ONE);
    cr_expect_eq(as_user(ONE, "run", "--", "true"), 0);
    cr_expect_eq(rmdir(harness_path("host.sock.lists")), 0, "a list is in another user's folder");
}

Test(users, commands_and_programs_of_a_user_reach_a_hosts_agent)
{
    NEEDS_ROOT();
    visitor_start_host_agent();
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

/** True when @client is told that a program of that name has ended. */
static bool remembers(struct visitor *client, const char *name)
{
    for (int i = 0; i < 20 && visitor_lists(client, MSG_APPS, "apps", name); i++)
        usleep(50000);
    return visitor_lists(client, MSG_USE, "ended", name);
}

Test(users, each_sees_and_finds_their_own_programs_and_root_all)
{
    NEEDS_ROOT();
    char text[PROTOCOL_TEXT_MAX], pid[16];
    visitor_start_host_agent();
    struct visitor mine = visitor_program(ONE, "mine");
    struct visitor one = visitor_client(ONE), other = visitor_client(OTHER),
                   root = visitor_client(0);

    cr_expect(visitor_lists(&one, MSG_APPS, "apps", "mine"));
    cr_expect(visitor_lists(&root, MSG_APPS, "apps", "mine"));
    cr_expect(!visitor_lists(&other, MSG_APPS, "apps", "mine"));
    cr_expect(visitor_lists(&one, MSG_USE, "apps", "mine"));
    cr_expect(!visitor_lists(&other, MSG_USE, "apps", "mine"));
    snprintf(pid, sizeof(pid), "%d", (int)mine.pid);
    const char *const names[] = {"mine", "a1", pid};
    for (size_t i = 0; i < 3; i++) {
        cr_expect_str_eq(visitor_answer(&one, MSG_EXPLAIN, "app", names[i], text), "", "%s: %s",
                         names[i], text);
        cr_expect_str_eq(visitor_answer(&root, MSG_EXPLAIN, "app", names[i], text), "");
        cr_expect_str_eq(visitor_answer(&other, MSG_EXPLAIN, "app", names[i], text), ERR_NO_APP);
        cr_expect_str_eq(visitor_answer(&other, MSG_SUSPEND, "app", names[i], text), ERR_NO_APP);
    }
    visitor_answer(&one, MSG_EXPLAIN, "app", "none", text);
    cr_expect(strstr(text, "mine"), "%s", text);
    visitor_answer(&other, MSG_EXPLAIN, "app", "none", text);
    cr_expect(!strstr(text, "mine"), "another user's programs are named: %s", text);
    shutdown(mine.fd, SHUT_RDWR); /* The processes of later visitors have it, too. */
    visitor_leave(&mine);
    cr_expect(remembers(&one, "mine"));
    cr_expect(!remembers(&other, "mine"), "another user is told of a program that ended");
}

/** All that it is told of why @app is where it is. */
static void explained(struct visitor *client, const char *app, char *ret_text, size_t size)
{
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_EXPLAIN);
    frame_string(&frame, "app", app);
    cr_assert(visitor_ask(client, &frame, &message));
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
    visitor_start_host_agent();
    cr_assert_eq(RESEAT("devices")->status, 0);
    struct visitor large = visitor_program(ONE, "large"), first = visitor_program(ONE, "first"),
                   theirs = visitor_program(OTHER, "theirs");
    visitor_program(OTHER, "runs"); /* Else it would be their turn. */
    struct visitor other = visitor_client(OTHER), root = visitor_client(0);

    visitor_need(&large, 1, 1ull << 30);
    must_explain(&root, "large", "may have 1 GiB there");
    visitor_need(&first, 1, 3ull << 29);
    must_explain(&root, "first", "number 1 in the queue");
    visitor_need(&theirs, 1, 3ull << 29);
    must_explain(&root, "theirs", "it waits behind first");
    explained(&other, "theirs", text, sizeof(text));
    cr_expect(strstr(text, "it waits behind another user's program"), "%s", text);
    cr_expect(!strstr(text, "first") && !strstr(text, "large"), "%s", text);
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
    visitor_tell(program, &frame);
    while (!answered) {
        cr_assert(visitor_hear(program, &message, SOON_MS));
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
    visitor_start_host_agent();
    cr_assert_eq(RESEAT("devices")->status, 0);
    struct visitor liar = visitor_program(ONE, "liar"), theirs = visitor_program(0, "theirs");

    visitor_say_held(&liar, 1ull << 60, true, false);
    pending_way(&liar, 1ull << 29, true, way);
    cr_expect_str_neq(way, WAY_AGAIN, "its driver had no more, and would have none again");
    visitor_say_held(&liar, 1ull << 60, true, true);
    pending_way(&theirs, 900ull << 20, false, way);
    cr_expect_str_eq(way, WAY_AGAIN);
    cr_expect_leq(granted_bytes(), 1ull << 30);
    cr_expect_geq(granted_bytes(), 900ull << 20);
    /* Nor what is said where it connects. */
    visitor_leave(&liar);
    liar = visitor_program(ONE, "liar");
    visitor_say_held(&liar, 1ull << 60, true, false);
    pending_way(&theirs, 950ull << 20, false, way);
    cr_expect_str_eq(way, WAY_AGAIN);
    /* Of those who are believed it counts. */
    pending_way(&theirs, 1000ull << 20, true, way);
    cr_expect_str_neq(way, WAY_AGAIN);
}

static size_t users_of_devices(struct visitor *client)
{
    const msgpack_object *devices, *apps;
    struct message message;
    struct frame frame;
    size_t users = 0;

    frame_init(&frame, MSG_DEVICES);
    cr_assert(visitor_ask(client, &frame, &message));
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
    visitor_start_host_agent();
    cr_assert_eq(RESEAT("devices")->status, 0);
    visitor_program(ONE, "mine");
    struct visitor one = visitor_client(ONE), other = visitor_client(OTHER);

    cr_expect_eq(users_of_devices(&one), 1);
    cr_expect_eq(users_of_devices(&other), 0);
}

Test(users, a_hosts_agent_and_its_devices_are_roots_to_govern)
{
    NEEDS_ROOT();
    static const char *const requests[] = {MSG_STOP,  MSG_RELOAD,  MSG_LIMIT,
                                           MSG_DRAIN, MSG_BALANCE, MSG_SERVER};
    char text[PROTOCOL_TEXT_MAX];
    visitor_start_host_agent();
    cr_assert_eq(RESEAT("devices")->status, 0);

    for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
        struct visitor one = visitor_client(ONE);
        const char *key = strcmp(requests[i], MSG_LIMIT) ? "device" : "what";
        cr_expect_str_eq(visitor_answer(&one, requests[i], key, "cpu0", text), ERR_DENIED, "%s: %s",
                         requests[i], text);
        visitor_leave(&one);
    }
    cr_expect_neq(harness_agent(), 0);
    cr_expect_eq(RESEAT("drain", "cpu0")->status, 0);
    cr_expect_eq(RESEAT("limit", "cpu0", "--memory", "1GiB")->status, 0);
}

/** True when @client, which asks for devices of its own, is told of @name. */
static bool is_shown(struct visitor *client, const char *name)
{
    const msgpack_object *devices;
    struct message message;
    struct frame frame;
    bool found = false;

    frame_init(&frame, MSG_DEVICES);
    frame_array(&frame, "environment");
    frame_string(&frame, NULL, "POCL_FAKE_DEVICES=gpu:theirs");
    frame_end(&frame);
    cr_assert(visitor_ask(client, &frame, &message));
    size_t count = field_array(&message.root, "devices", &devices);
    for (size_t i = 0; i < count; i++)
        found = found || field_is(&devices[i], "device", name);
    message_finish(&message);
    return found;
}

Test(users, another_users_environment_does_not_say_what_the_agents_helper_loads)
{
    NEEDS_ROOT();
    setenv("POCL_FAKE_DEVICES", "gpu:hosts", 1);
    visitor_start_host_agent();
    struct visitor one = visitor_client(ONE), root = visitor_client(0);

    cr_expect(!is_shown(&one, "theirs"));
    cr_expect(is_shown(&one, "hosts"), "nor those that the agent was started with");
    cr_expect(is_shown(&root, "theirs"));
}
