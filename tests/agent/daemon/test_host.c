#include "tests/support/cases.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "state/base/files/access.h"
#include "tests/agent/harness.h"
#include "tests/agent/host.h"
#include "tests/agent/visitor.h"

/* The host's agent: how it is found and believed, what systemd and it tell each other, what
 * outlives it, and what another user can do to it. */

#define LATER_MS 20000

static void begin(void)
{
    host_begin();
    setenv("RESEAT_SOCKET", ACCESS_HOST_SOCKET, 1); /* For visitors. */
}

TestSuite(host, .init = begin, .fini = host_finish, .timeout = 120);

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* ---- found and believed ---- */

Test(host, it_is_found_before_a_users_own_agent_is_started)
{
    unsetenv("RESEAT_SOCKET");
    host_listen();
    host_start();
    cr_expect_eq(host_as(ONE, "devices", NULL, NULL), 0);
    cr_expect_eq(host_shell(ONE, "test -n \"$($R agent status | grep journalctl)\""), 0);
    cr_expect_eq(host_shell(ONE, "$R run --name theirs -- sh -c '$R ps' | grep -q theirs"), 0);
    cr_expect_eq(
        host_shell(ONE, "test \"$($R run -- sh -c 'echo $RESEAT_SOCKET')\" = " ACCESS_HOST_SOCKET),
        0);
    cr_expect_not(is_there(harness_path("home-64001/reseat/agent.sock")), "an agent of its own");
    cr_expect_eq(RESEAT("ps")->status, 0, "root does not find it");
    /* A user who wants one of their own has it. */
    cr_expect_eq(host_shell(ONE, "RESEAT_SOCKET= $R agent start && RESEAT_SOCKET= $R agent stop"),
                 0);
    cr_expect_neq(host_as(ONE, "agent", "stop", NULL), 0, "a user has stopped it");
}

Test(host, without_it_nothing_else_is_started_in_its_place)
{
    char command[256];

    unsetenv("RESEAT_SOCKET");
    host_listen();
    host_kill(host_start());
    host_listen();
    cr_assert_eq(unlink(ACCESS_HOST_SOCKET), 0);
    cr_assert_eq(symlink("none", ACCESS_HOST_SOCKET), 0);
    cr_expect_eq(host_as(ONE, "run", "--", "true"), 0);
    cr_expect(is_there(harness_path("home-64001/reseat/agent.sock")), "no agent of its own");
    cr_expect_eq(host_as(ONE, "agent", "stop", NULL), 0);
    cr_assert_eq(unlink(ACCESS_HOST_SOCKET), 0);
    /* A socket at which nobody listens. */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = ACCESS_HOST_SOCKET};
    cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(chmod(ACCESS_HOST_SOCKET, 0666), 0);
    snprintf(command, sizeof(command),
             "test \"$($R run -- echo ran 2>errors)\" = ran && grep -q reseatd.socket errors && "
             "! $R agent start 2>/dev/null");
    cr_assert_eq(host_as(ONE, "config", "path", NULL), 0); /* Makes the home. */
    cr_assert_eq(chdir(harness_path("home-64001")), 0);
    cr_expect_eq(host_shell(ONE, command), 0);
    cr_expect_not(is_there(harness_path("home-64001/reseat/agent.sock")));
}

/** A journal of our own. Returns its socket. */
static int open_journal(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(mkdir("/run/systemd", 0755), 0);
    cr_assert_eq(mkdir("/run/systemd/journal", 0755), 0);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(chmod(address.sun_path, 0666), 0);
    return fd;
}

/** Have it believe that this is the journal, by its device and inode. */
static void name_journal(const char *path)
{
    struct stat stream;
    char text[64];

    cr_assert_eq(stat(path, &stream), 0);
    snprintf(text, sizeof(text), "%ju:%ju", (uintmax_t)stream.st_dev, (uintmax_t)stream.st_ino);
    setenv("JOURNAL_STREAM", text, 1);
}

/** Whether an entry that comes before @ms pass without one has all of these lines, up to NULL. */
static bool journal_hears(int journal, const char *const *wanted, int ms)
{
    struct pollfd polled = {.fd = journal, .events = POLLIN};
    char entry[16384];

    while (poll(&polled, 1, ms) == 1) {
        ssize_t count = recv(journal, entry + 1, sizeof(entry) - 2, 0);
        size_t found = 0;
        cr_assert_gt(count, 0);
        entry[0] = '\n';
        entry[count + 1] = '\0';
        while (wanted[found]) {
            char line[256];
            snprintf(line, sizeof(line), "\n%s\n", wanted[found]);
            if (!strstr(entry, line))
                break;
            found++;
        }
        if (!wanted[found])
            return true;
    }
    return false;
}

Test(host, the_journal_has_events_with_their_fields)
{
    static const char *const limit[] = {
        "PRIORITY=6",        "SYSLOG_IDENTIFIER=reseatd", "RESEAT_WHAT=limit",
        "RESEAT_STATE=set",  "RESEAT_BY_UID=0",           "RESEAT_DEVICE=gpu0",
        "RESEAT_BY=command", "RESEAT_REASON=1.0 GiB",     NULL};
    static const char *const ended[] = {"RESEAT_WHAT=program", "RESEAT_STATE=ended",
                                        "RESEAT_NAME=theirs", "RESEAT_UID=64001", NULL};
    int journal = open_journal();

    name_journal("/proc/self/fd/2"); /* Which it inherits. */
    host_listen();
    host_start();
    cr_assert_eq(RESEAT("limit", "gpu0", "--memory", "1GiB")->status, 0);
    cr_expect(journal_hears(journal, limit, LATER_MS), "no such entry");
    cr_expect_eq(host_shell(ONE, "$R run --name theirs -- sh -c '$R ps' | grep -q theirs"), 0);
    cr_expect(journal_hears(journal, ended, LATER_MS), "no such entry");
    close(journal);
}

Test(host, what_is_not_its_stderr_is_not_its_journal)
{
    static const char *const any[] = {NULL};
    int journal = open_journal();

    name_journal("/dev/zero");
    host_listen();
    host_start();
    cr_assert_eq(RESEAT("limit", "gpu0", "--memory", "1GiB")->status, 0);
    cr_expect_not(journal_hears(journal, any, 0), "it was told");
    close(journal);
}

/** What a program does with one of @uid that listens on the host's socket: "h" speak, "e" not. */
static char heard_by(uid_t uid)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = ACCESS_HOST_SOCKET};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), ends[2];
    char byte = 0;

    unlink(ACCESS_HOST_SOCKET);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(chmod(ACCESS_HOST_SOCKET, 0666), 0);
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char bytes[512];
        harness_become(uid);
        if (listen(fd, 8) || write(ends[1], "r", 1) != 1)
            _exit(1);
        int peer = accept(fd, NULL, NULL);
        (void)!write(ends[1], recv(peer, bytes, sizeof(bytes), 0) > 0 ? "h" : "e", 1);
        _exit(0);
    }
    cr_assert_eq(read(ends[0], &byte, 1), 1);
    pid_t program = harness_spawn(harness_program(), "60", NULL);
    struct pollfd polled = {.fd = ends[0], .events = POLLIN};
    byte = 0;
    if (poll(&polled, 1, SOON_MS) == 1)
        (void)!read(ends[0], &byte, 1);
    kill(program, SIGKILL);
    harness_wait(program);
    kill(pid, SIGKILL);
    harness_wait(pid);
    close(fd);
    close(ends[0]);
    close(ends[1]);
    return byte;
}

Test(host, a_program_believes_whom_root_gave_the_folder_and_nobody_else)
{
    cr_expect_eq(heard_by(SERVICE), 'h');
    cr_expect_eq(heard_by(0), 'h');
    cr_expect_eq(heard_by(OTHER), 'e', "another user is believed because of the socket's path");
    cr_assert_eq(chmod(ACCESS_HOST_FOLDER, 0777), 0);
    cr_expect_eq(heard_by(SERVICE), 'e', "anybody may have put that socket there");
    cr_assert_eq(chmod(ACCESS_HOST_FOLDER, 0755), 0);
    cr_assert_eq(chown(ACCESS_HOST_FOLDER, 0, 0), 0);
    cr_expect_eq(heard_by(SERVICE), 'e', "root gave it to nobody");
}

Test(host, programs_read_its_list_of_devices_and_users_nothing_else_of_it)
{
    host_listen();
    host_start();
    cr_assert_eq(host_as(ONE, "devices", NULL, NULL), 0);
    cr_expect_eq(host_as(ONE, "devices", "--presented", NULL), 0);
    cr_expect_eq(host_shell(ONE, "$R run -- sh -c 'test -s \"$RESEAT_INVENTORY\" -a ! -w "
                                 "\"$RESEAT_INVENTORY\"'"),
                 0);
    cr_expect_eq(host_shell(ONE, "! ls " ACCESS_HOST_SOCKET ".d " ACCESS_HOST_SOCKET
                                 ".lists /var/lib/reseat 2>&1 | grep -v 'denied$'"),
                 0, "a user reads what is the agent's");
    cr_expect_eq(host_shell(ONE,
                            "! touch " ACCESS_HOST_FOLDER
                            "/x 2>/dev/null && ! ln -sf /tmp " ACCESS_HOST_SOCKET " 2>/dev/null"),
                 0, "a user changes what is the agent's");
}

/* ---- systemd ---- */

Test(host, it_tells_systemd_how_it_is)
{
    setenv("WATCHDOG_USEC", "900000", 1);
    host_listen();
    pid_t agent = host_start();
    cr_expect(host_hears("WATCHDOG=1", LATER_MS));
    cr_expect(host_hears("WATCHDOG=1", LATER_MS), "once only");
    kill(agent, SIGTERM);
    cr_expect(host_hears("STOPPING=1", LATER_MS));
    cr_expect_eq(harness_wait(agent), 0);
    cr_expect(is_there(ACCESS_HOST_SOCKET), "the socket is systemd's, and stays");
}

Test(host, who_connects_while_it_is_down_is_served_by_the_next)
{
    struct message message;
    struct frame frame;

    host_listen();
    host_kill(host_start());
    struct visitor one = visitor_connect(ONE);
    frame_init(&frame, MSG_HELLO);
    frame_u64(&frame, "version", PROTOCOL_VERSION);
    frame_string(&frame, "role", "client");
    visitor_tell(&one, &frame);
    host_start();
    cr_assert(visitor_hear(&one, &message, LATER_MS));
    cr_expect(field_is(&message.root, "type", MSG_WELCOME));
    message_finish(&message);
}

static int started_with(const char *fds, int fd)
{
    char pid[16];

    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        harness_become(SERVICE);
        if (fd != 3)
            dup2(fd, 3);
        snprintf(pid, sizeof(pid), "%d", (int)getpid());
        setenv("LISTEN_PID", pid, 1);
        setenv("LISTEN_FDS", fds, 1);
        unsetenv("NOTIFY_SOCKET");
        execl(getenv("TEST_RESEATD"), "reseatd", "--system", (char *)NULL);
        _exit(126);
    }
    return harness_wait(child);
}

Test(host, another_socket_than_its_own_is_refused)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/run/other.sock"};
    int other = socket(AF_UNIX, SOCK_STREAM, 0);

    cr_assert_eq(bind(other, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_expect_eq(started_with("1", other), 1, "a socket at which nobody listens");
    cr_assert_eq(listen(other, 8), 0);
    cr_expect_eq(started_with("1", other), 1, "a socket of another name");
    cr_expect_eq(started_with("2", other), 1, "two sockets");
}

/* ---- what outlives it ---- */

/** The id that root is told of a program; "" for none. */
static void id_of(const char *name, char ret_id[32])
{
    const msgpack_object *apps;
    struct message message;
    struct frame frame;
    struct visitor root = visitor_client(0);

    ret_id[0] = '\0';
    frame_init(&frame, MSG_APPS);
    cr_assert(visitor_ask(&root, &frame, &message));
    size_t count = field_array(&message.root, "apps", &apps);
    for (size_t i = 0; i < count; i++)
        if (field_is(&apps[i], "name", name))
            cr_assert(field_string(&apps[i], "id", ret_id, 32));
    message_finish(&message);
    visitor_leave(&root);
}

Test(host, programs_drains_and_limits_outlive_it)
{
    char first[32] = "", second[32] = "";

    host_listen();
    pid_t agent = host_start();
    fflush(NULL);
    pid_t program = fork();
    if (program == 0) {
        harness_become(ONE);
        setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
        setenv("FAKE_MOVE", "ok", 1);
        execl(harness_reseat(), harness_reseat(), "run", "--name", "stays", "--", harness_program(),
              "120", (char *)NULL);
        _exit(127);
    }
    cr_assert(harness_state("stays", "running", LATER_MS));
    id_of("stays", first);
    cr_assert_eq(RESEAT("drain", "cpu0")->status, 0);
    cr_assert_eq(RESEAT("limit", "cpu1", "--memory", "1GiB")->status, 0);
    host_kill(agent);
    host_start();
    cr_expect(harness_state("stays", "running", LATER_MS), "%s", RESEAT("ps")->out);
    id_of("stays", second);
    cr_expect_str_eq(second, first, "the next agent takes it for another program");
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_expect(strstr(RESEAT("devices", "--json")->out, "\"drained\": true"), "%s",
              RESEAT("devices", "--json")->out);
    cr_expect(strstr(RESEAT("devices", "--json")->out, "1073741824"));
    cr_expect_eq(RESEAT("move", "stays", "cpu1")->status, 0, "%s", RESEAT("ps")->out);
}

/* ---- another user ---- */

Test(host, one_who_connects_and_never_reads_is_disconnected)
{
    struct message message;
    struct frame frame;

    host_listen();
    host_start();
    cr_assert_eq(host_as(ONE, "devices", NULL, NULL), 0);
    struct visitor deaf = visitor_client(ONE);
    int nothing = 0;
    setsockopt(deaf.fd, SOL_SOCKET, SO_RCVBUF, &nothing, sizeof(nothing));
    fcntl(deaf.fd, F_SETFL, O_NONBLOCK);
    /* Answers to all of these are more than the agent keeps for one connection. */
    bool closed = false;
    for (int i = 0; i < 200000 && !closed; i++) {
        frame_init(&frame, MSG_DEVICES);
        cr_assert_eq(frame_seal(&frame), 0);
        ssize_t sent = send(deaf.fd, frame.buffer.data, frame.buffer.size, MSG_NOSIGNAL);
        closed = sent < 0 && (errno == EPIPE || errno == ECONNRESET);
        if (sent < 0 && errno == EAGAIN)
            usleep(1000);
        frame_finish(&frame);
    }
    cr_expect(closed, "the agent keeps any number of answers");
    struct visitor other = visitor_client(OTHER);
    frame_init(&frame, MSG_DEVICES);
    cr_expect(visitor_ask(&other, &frame, &message), "nobody else is served");
    message_finish(&message);
}

Test(host, what_a_program_calls_itself_cannot_write_to_a_terminal)
{
    host_listen();
    host_start();
    visitor_program(ONE, "\x1b[2Jred\x1b[31m\r\n\x9b"
                         "1m");
    struct result *ps = harness_says(RESEAT("ps"), 0, "red");
    cr_expect(!strpbrk(ps->out, "\x1b\r\x9b"), "%s", ps->out);
}

static void fill(const char *path)
{
    static const char zeros[65536];
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    size_t size = sizeof(zeros);

    cr_assert_geq(fd, 0);
    while (size)
        if (write(fd, zeros, size) < 0)
            size /= 2;
    close(fd);
}

Test(host, it_serves_while_run_is_full)
{
    host_listen();
    host_start();
    cr_assert_eq(host_as(ONE, "devices", NULL, NULL), 0);
    fill("/run/filler");
    cr_expect_eq(host_shell(ONE, "test \"$($R run --name tight -- echo ran 2>/dev/null)\" = ran"),
                 0);
    struct visitor program = visitor_program(ONE, "visible");
    cr_expect(harness_prints("ps", NULL, "visible", LATER_MS));
    visitor_leave(&program);
    cr_assert_eq(unlink("/run/filler"), 0);
    cr_expect_eq(host_as(ONE, "devices", NULL, NULL), 0);
}

Test(host, what_cannot_be_kept_is_refused_while_var_is_full)
{
    host_listen();
    pid_t agent = host_start();
    cr_assert_eq(host_as(ONE, "devices", NULL, NULL), 0);
    cr_assert_eq(RESEAT("drain", "cpu0")->status, 0);
    fill("/var/lib/filler");
    struct result *drain = RESEAT("drain", "cpu1");
    cr_expect_neq(drain->status, 0);
    cr_expect(strstr(drain->err, "/var/lib/reseat/limits"), "%s", drain->err);
    cr_expect_eq(host_shell(ONE, "test \"$($R run -- echo ran)\" = ran"), 0);
    cr_assert_eq(unlink("/var/lib/filler"), 0);
    host_kill(agent);
    host_start();
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_expect_eq(RESEAT("drain", "cpu0", "--off")->status, 0);
    cr_expect_eq(RESEAT("drain", "cpu1")->status, 0);
}

Test(host, links_in_its_folders_lead_it_nowhere)
{
    struct stat stat;
    char text[16] = "";

    harness_write("/run/precious", "precious");
    cr_assert_eq(chmod("/run/precious", 0666), 0);
    cr_assert_eq(symlink("/run/precious", "/var/lib/reseat/limits"), 0);
    cr_assert_eq(symlink("/run/precious", "/var/lib/reseat/devices"), 0);
    host_listen();
    pid_t agent = host_start();
    cr_assert_eq(RESEAT("devices")->status, 0);
    cr_assert_eq(RESEAT("drain", "cpu0")->status, 0);
    int fd = open("/run/precious", O_RDONLY | O_CLOEXEC);
    cr_assert_eq(read(fd, text, sizeof(text) - 1), 8);
    cr_expect_str_eq(text, "precious");
    close(fd);
    cr_assert_eq(lstat("/var/lib/reseat/limits", &stat), 0);
    cr_expect(S_ISREG(stat.st_mode));
    host_kill(agent);
    cr_assert_eq(unlink(ACCESS_HOST_SOCKET ".d/lock"), 0);
    cr_assert_eq(symlink("/run/precious", ACCESS_HOST_SOCKET ".d/lock"), 0);
    cr_expect_eq(started_with("0", open("/dev/null", O_RDONLY)), 1);
    cr_assert_eq(unlink(ACCESS_HOST_SOCKET ".d/lock"), 0);
    cr_assert_eq(rename(ACCESS_HOST_SOCKET ".d", "/run/aside"), 0);
    cr_assert_eq(symlink("/run/aside", ACCESS_HOST_SOCKET ".d"), 0);
    cr_expect_eq(started_with("0", open("/dev/null", O_RDONLY)), 1);
}
