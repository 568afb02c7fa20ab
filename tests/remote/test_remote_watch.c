#include "tests/support/cases.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "remote/identity/ca.h"
#include "remote/link/link.h"
#include "remote/watch/watch.h"
#include "state/base/clock.h"
#include "state/driver/inventory.h"
#include "state/driver/served.h"
#include "tests/remote/greeter.h"
#include "tests/remote/served.h"

/* What is found out of a device server without a session there, the process that does it for the
   agent, and devices of servers that come while a program runs. */

#define DAY    (24 * 3600L)
#define SOON   (clock_now_ns() + 20 * NS_PER_S)
#define SOON_S 60

static struct served served;

static void stop(void)
{
    if (served.pid)
        served_stop(&served);
}

TestSuite(remote_watch, .fini = stop, .timeout = 200);

static void expect(const char *address, const char *code)
{
    struct server_news contact;

    contact_look(address, SOON, &contact);
    cr_assert_str_eq(contact.code, code, "%s: %s: %s", address, contact.code, contact.problem);
    cr_assert_eq(contact.problem[0] == '\0', code[0] == '\0');
    cr_assert(code[0] || contact.round_trip_ns);
}

/** A server, and credentials for it. */
static void serve_tcp(const char *option, const char *value, char ret_path[PATH_MAX])
{
    served_start_tcp(&served, NULL);
    served_issue(&served, "laptop", option, value, ret_path);
    setenv("RESEAT_CREDENTIALS", ret_path, 1);
}

/* ---- what may be wrong ---- */

Test(remote_watch, a_server_that_admits_us_is_not_made_to_open_a_driver)
{
    char path[PATH_MAX];

    setenv("TEST_LOG", "info", 1);
    serve_tcp(NULL, NULL, path);
    for (unsigned i = 0; i < 20; i++)
        expect(served.address, "");
    while (served_session(&served))
        usleep(10000);
    cr_assert(!served_wrote(&served, "has a session"));
}

Test(remote_watch, credentials_that_are_missing_open_or_damaged_are_told_apart)
{
    char path[PATH_MAX];

    serve_tcp(NULL, NULL, path);
    cr_assert_eq(chmod(path, 0644), 0);
    expect(served.address, "credentials");
    cr_assert_eq(chmod(path, 0600), 0);
    expect(served.address, "");
    cr_assert_eq(truncate(path, 300), 0);
    expect(served.address, "credentials");
    unsetenv("RESEAT_CREDENTIALS");
    setenv("XDG_CONFIG_HOME", served.folder, 1);
    expect(served.address, "no-credentials");
}

Test(remote_watch, what_was_revoked_is_called_so)
{
    char path[PATH_MAX];

    serve_tcp(NULL, NULL, path);
    served_authority(&served, (const char *const[]){"--revoke", "laptop", NULL});
    expect(served.address, "revoked");
}

/** Credentials as if they had been made at another time. */
static void issue_at(const char *name, time_t when)
{
    char path[PATH_MAX], problem[FOLDER_PROBLEM_MAX];
    struct ca_wish wish = {.name = name, .grant = GRANT_ALL, .days = 30, .to_file = path};

    snprintf(path, sizeof(path), "%s/%s.pem", served.folder, name);
    cr_assert_eq(ca_issue(served.ca, &wish, when, problem), 0, "%s", problem);
    setenv("RESEAT_CREDENTIALS", path, 1);
}

Test(remote_watch, a_certificate_of_another_time_is_told_from_a_clock_that_is_wrong)
{
    served_start_tcp(&served, NULL);
    issue_at("old", time(NULL) - 60 * DAY);
    expect(served.address, "expired");
    issue_at("early", time(NULL) + 10 * DAY);
    expect(served.address, "clock");
    issue_at("right", time(NULL));
    expect(served.address, "");
}

Test(remote_watch, a_server_of_another_authority_is_not_believed)
{
    struct served other;
    char path[PATH_MAX];

    serve_tcp(NULL, NULL, path);
    served_start_tcp(&other, NULL);
    expect(other.address, "unbelieved");
    served_stop(&other);
}

Test(remote_watch, a_server_that_is_full_is_there_and_busy)
{
    char path[PATH_MAX];
    struct device **devices = NULL;
    size_t count = 0;

    serve_tcp("--sessions", "1", path);
    served_set_library(getenv("TEST_DRIVER_LIBRARY"));
    cr_assert_eq(driver_list_library(served.address, &devices, &count), 0);
    expect(served.address, "busy");
    free(devices);
}

/** Something that listens at a port of 127.0.0.1, and answers each connection with @answer; NULL:
 *  with nothing. */
static pid_t listen_tcp(const char *answer, char ret_address[64])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(bind(fd, (struct sockaddr *)&at, length), 0);
    cr_assert_eq(listen(fd, 8), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &length), 0);
    snprintf(ret_address, 64, "tcp:127.0.0.1:%u", ntohs(at.sin_port));
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            int peer = accept(fd, NULL, NULL);
            if (peer >= 0 && answer && write(peer, answer, strlen(answer)) > 0)
                close(peer);
        }
    }
    close(fd);
    return pid;
}

Test(remote_watch, nobody_somebody_silent_and_somebody_else_are_told_apart)
{
    char path[PATH_MAX], address[64];
    struct server_news contact;

    serve_tcp(NULL, NULL, path);
    expect("tcp:127.0.0.1:1", "unreachable");
    expect("tcp:nowhere.invalid:7460", "unreachable");
    expect("unix:/tmp/served-nobody/s", "unreachable");
    expect("gpuhost", "address");
    expect("tcp:gpuhost", "address");
    pid_t silent = listen_tcp(NULL, address);
    contact_look(address, clock_now_ns() + NS_PER_S, &contact);
    cr_assert_str_eq(contact.code, "silent", "%s", contact.problem);
    kill(silent, SIGKILL);
    pid_t web = listen_tcp("HTTP/1.1 400 Bad Request\r\n\r\n", address);
    expect(address, "protocol");
    kill(web, SIGKILL);
}

Test(remote_watch, a_server_of_another_version_is_told)
{
    char folder[] = "/tmp/served-XXXXXX", where[64], address[80];
    int fd = -1;

    cr_assert(mkdtemp(folder));
    snprintf(where, sizeof(where), "%s/s", folder);
    snprintf(address, sizeof(address), "unix:%s", where);
    cr_assert_eq(link_unix.listen(where, &fd), 0);
    for (unsigned i = 0; i < 2; i++) {
        pid_t pid = fork();
        if (pid == 0)
            greeter_serve(fd, i != 0);
        expect(address, "version");
        cr_assert_eq(waitpid(pid, NULL, 0), pid);
    }
    close(fd);
    link_unix.unlisten(where);
    cr_assert_eq(rmdir(folder), 0);
}

Test(remote_watch, a_socket_of_another_user_is_not_believed)
{
    char folder[] = "/tmp/served-XXXXXX", address[160];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int ready[2], fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char byte;

    if (geteuid() != 0)
        cases_skip("only root can be two users");
    cr_assert(mkdtemp(folder));
    cr_assert_eq(chmod(folder, 0777), 0);
    cr_assert_eq(pipe(ready), 0);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/s", folder);
    snprintf(address, sizeof(address), "unix:%s/s", folder);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setresuid(65534, 65534, 65534) || bind(fd, (struct sockaddr *)&at, sizeof(at)) ||
            listen(fd, 1) || write(ready[1], "r", 1) != 1)
            _exit(1);
        pause();
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    expect(address, "permission");
    kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    unlink(at.sun_path);
    cr_assert_eq(rmdir(folder), 0);
}

/* ---- the agent's helper ---- */

struct helper {
    pid_t pid;
    int in, out;
    struct server_news_reader reader;
    char file[PATH_MAX];
};

static struct helper watch(const char *address)
{
    struct helper helper = {.pid = 0};
    int to[2], from[2];

    snprintf(helper.file, sizeof(helper.file), "%s.devices", strchr(address, '/'));
    cr_assert(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    helper.pid = fork();
    if (helper.pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        execl(getenv("TEST_WATCH"), "reseat-watch", address, helper.file,
              getenv("TEST_DRIVER_LIBRARY"), (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    helper.in = to[1];
    helper.out = from[0];
    return helper;
}

/** The next that it tells. False: it ended. @ret_listed: also the devices. */
static bool next(struct helper *helper, char ret_code[32], bool *ret_listed)
{
    const struct server_news *news = &helper->reader.news;
    int came = 0;

    while (!came) {
        struct pollfd coming = {.fd = helper->out, .events = POLLIN};
        size_t room;
        char *at = server_news_room(&helper->reader, &room);
        cr_assert_eq(poll(&coming, 1, SOON_S * 1000), 1, "it tells nothing");
        ssize_t size = read(helper->out, at, room);
        if (size <= 0)
            return false;
        came = server_news_came(&helper->reader, (size_t)size);
    }
    cr_assert_eq(came, 1);
    snprintf(ret_code, 32, "%s", news->code);
    *ret_listed = news->listed;
    if (*ret_listed)
        cr_expect(news->round_trip_ns && news->read && news->write);
    return true;
}

static void await_code(struct helper *helper, const char *code)
{
    char is[32] = "-";
    bool listed;

    for (unsigned i = 0; strcmp(is, code) != 0; i++) {
        cr_assert(i < 100, "never \"%s\"", code);
        cr_assert(next(helper, is, &listed));
    }
}

static void expect_devices(const struct helper *helper, size_t count)
{
    struct inventory inventory = {0};

    cr_assert_eq(inventory_read(helper->file, &inventory), 0);
    cr_assert_eq(inventory.count, count);
    for (size_t i = 0; i < count; i++)
        cr_assert_str_eq(inventory.entries[i].key.icd, served.address);
    inventory_finish(&inventory);
}

static void end(struct helper *helper)
{
    char code[32];
    bool listed;

    close(helper->in);
    while (next(helper, code, &listed)) {
    }
    cr_assert_eq(waitpid(helper->pid, NULL, 0), helper->pid);
    unlink(helper->file);
}

Test(remote_watch, the_helper_lists_once_and_again_when_asked_or_when_the_server_was_away)
{
    char code[32];
    bool listed;

    served_start(&served, NULL);
    struct helper helper = watch(served.address);
    cr_assert(next(&helper, code, &listed) && !code[0] && listed);
    expect_devices(&helper, 2);
    unlink(helper.file);
    cr_assert(next(&helper, code, &listed) && !code[0] && !listed);
    cr_assert_eq(write(helper.in, "L", 1), 1);
    cr_assert(next(&helper, code, &listed) && !code[0] && !listed);
    cr_assert_eq(write(helper.in, "D", 1), 1);
    do
        cr_assert(next(&helper, code, &listed));
    while (!listed);
    expect_devices(&helper, 2);
    unlink(helper.file);

    kill(served.pid, SIGKILL);
    await_code(&helper, "unreachable");
    served_again(&served);
    do
        cr_assert(next(&helper, code, &listed));
    while (!listed);
    expect_devices(&helper, 2);
    end(&helper);
}

Test(remote_watch, a_server_that_stands_still_is_told_and_found_again)
{
    served_start(&served, NULL);
    struct helper helper = watch(served.address);
    await_code(&helper, "");
    kill(served.pid, SIGSTOP);
    await_code(&helper, "silent");
    kill(served.pid, SIGCONT);
    await_code(&helper, "");
    end(&helper);
}

Test(remote_watch, the_helper_ends_with_who_began_it_even_while_it_waits_for_a_server)
{
    served_start(&served, NULL);
    kill(served.pid, SIGSTOP);
    struct helper helper = watch(served.address);
    usleep(300000);
    uint64_t begun = clock_now_ns();
    close(helper.in);
    cr_assert_eq(waitpid(helper.pid, NULL, 0), helper.pid);
    cr_assert(clock_now_ns() - begun < 4 * NS_PER_S, "it waited for the server");
    kill(served.pid, SIGCONT);
}

/* ---- devices that come while a program runs ---- */

static cl_int use(const struct device *device)
{
    cl_int error = CL_SUCCESS;
    cl_context context = device->cl->clCreateContext(NULL, 1, &device->id, NULL, NULL, &error);
    cl_command_queue queue =
        error ? NULL : device->cl->clCreateCommandQueue(context, device->id, 0, &error);
    cl_mem memory =
        error ? NULL : device->cl->clCreateBuffer(context, CL_MEM_READ_WRITE, 64, NULL, &error);
    unsigned char bytes[64] = {7, 8, 9}, back[64] = {0};

    if (!error)
        error =
            device->cl->clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, 64, bytes, 0, NULL, NULL);
    if (!error)
        error = device->cl->clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, 64, back, 0, NULL, NULL);
    return error ? error : memcmp(bytes, back, 64) ? CL_INVALID_VALUE : CL_SUCCESS;
}

Test(remote_watch, a_device_of_a_server_that_came_back_is_another_one)
{
    struct device **devices = NULL, *again = NULL, *same = NULL;
    size_t count = 0;

    setenv("RESEAT_PATIENCE", "1", 1);
    served_set_library(getenv("TEST_DRIVER_LIBRARY"));
    cr_assert_eq(driver_list_library("unix:/tmp/served-nobody/s", &devices, &count), -ENOENT);
    served_start(&served, NULL);
    cr_assert_eq(driver_list_library(served.address, &devices, &count), 0);
    cr_assert_eq(count, 2);
    struct device *first = devices[1];
    free(devices);
    cr_assert_str_eq(first->key.icd, served.address);
    cr_assert_eq(use(first), CL_SUCCESS);
    cr_assert_eq(driver_open_device(&first->key, &same), 0);
    cr_assert_eq(same, first, "one session is enough");

    kill(served.pid, SIGKILL);
    for (unsigned i = 0; i < 3000 && !served_ended(first->platform); i++)
        usleep(10000);
    cr_assert(served_ended(first->platform));
    cr_assert_eq(driver_open_device(&first->key, &again), -ENOENT, "nobody is there");
    served_again(&served);
    cr_assert_eq(driver_open_device(&first->key, &again), 0);
    cr_assert_neq(again, first);
    cr_assert_eq(use(again), CL_SUCCESS);
    cr_assert_neq(use(first), CL_SUCCESS, "what was lost stays so");
}

Test(remote_watch, servers_that_come_do_not_become_platforms_that_a_loader_sees)
{
    struct device **devices = NULL;
    size_t count = 0;
    cl_uint platforms = 99;

    served_set_library(getenv("TEST_DRIVER_LIBRARY"));
    served_start(&served, NULL);
    cr_assert_eq(driver_list_library(served.address, &devices, &count), 0);
    unsetenv("RESEAT_SERVER");
    setenv("OCL_ICD_VENDORS", getenv("TEST_DRIVER"), 1);
    (void)clGetPlatformIDs(0, NULL, &platforms);
    cr_assert_eq(platforms, 0, "a program's list of platforms never grows");
    free(devices);
}
