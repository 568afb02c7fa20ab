#include "tests/agent/host.h"

#include "tests/support/cases.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "state/base/files/access.h"
#include "tests/agent/harness.h"
#include "tests/support/patience.h"

static int listening, notified;
static pid_t running;

static void make_folder(const char *path, uid_t owner, mode_t mode)
{
    cr_assert_eq(mkdir(path, mode), 0, "%s", path);
    cr_assert_eq(chmod(path, mode), 0);
    cr_assert_eq(chown(path, owner, owner), 0);
}

void host_begin(void)
{
    static const char *const folders[] = {"/run", "/var/lib", "/var/cache"};
    char options[64];

    listening = notified = -1;
    running = 0;
    harness_init();
    unsetenv("RESEAT_SOCKET");
    unsetenv("POCL_FAKE_DEVICES");
    if (geteuid() != 0 || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        cases_skip("only root can have folders of its own");
    snprintf(options, sizeof(options), "mode=0755,size=%u", HOST_BYTES);
    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(mount("host", folders[i], "tmpfs", 0, options), 0);
    make_folder("/run/user", 0, 0755);
    make_folder(ACCESS_HOST_FOLDER, SERVICE, 0755);
    make_folder("/var/lib/reseat", SERVICE, 0700);
    make_folder("/var/cache/reseat", SERVICE, 0700);
    cr_assert_eq(chmod(harness_folder(), 0711), 0);
}

void host_finish(void)
{
    if (running)
        host_kill(running);
    harness_finish();
}

void host_listen(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = ACCESS_HOST_SOCKET};

    unlink(ACCESS_HOST_SOCKET);
    listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(listening, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(chmod(ACCESS_HOST_SOCKET, 0666), 0);
    cr_assert_eq(listen(listening, 128), 0);
}

/** The socket to which the agent reports, as systemd has one. */
static void open_notified(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", harness_path("notify"));
    notified = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(notified, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(chmod(address.sun_path, 0666), 0);
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
}

pid_t host_start(void)
{
    char pid[16];

    if (notified < 0)
        open_notified();
    fflush(NULL);
    running = fork();
    if (running == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        harness_become(SERVICE);
        dup2(null, 0);
        /* dup2() changes nothing of a descriptor that is there already: it would still be closed.
         */
        if (listening >= 0 && (dup2(listening, 3) != 3 || fcntl(3, F_SETFD, 0) != 0))
            _exit(125);
        snprintf(pid, sizeof(pid), "%d", (int)getpid());
        setenv("LISTEN_PID", pid, 1);
        setenv("LISTEN_FDS", listening >= 0 ? "1" : "0", 1);
        execl(getenv("TEST_RESEATD"), "reseatd", "--system", (char *)NULL);
        _exit(126);
    }
    cr_assert(host_hears("READY=1", 20000), "the agent is not ready");
    return running;
}

int host_hears(const char *state, int ms)
{
    struct pollfd polled = {.fd = notified, .events = POLLIN};
    char said[256];

    while (poll(&polled, 1, (int)patience((unsigned)ms)) == 1) {
        ssize_t count = recv(notified, said, sizeof(said) - 1, 0);
        said[count > 0 ? count : 0] = '\0';
        if (strcmp(said, state) == 0)
            return 1;
    }
    return 0;
}

void host_kill(pid_t agent)
{
    kill(agent, SIGKILL);
    harness_wait(agent);
    running = running == agent ? 0 : running;
}

int host_shell(uid_t uid, const char *command)
{
    char home[128];

    snprintf(home, sizeof(home), "%s/home-%u", harness_folder(), (unsigned)uid);
    if (mkdir(home, 0700) == 0)
        cr_assert_eq(chown(home, uid, uid), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        harness_become(uid);
        prctl(PR_SET_PDEATHSIG, 0);
        setenv("HOME", home, 1);
        setenv("XDG_RUNTIME_DIR", home, 1);
        setenv("XDG_STATE_HOME", home, 1);
        setenv("XDG_CACHE_HOME", home, 1);
        setenv("XDG_CONFIG_HOME", home, 1);
        setenv("R", harness_reseat(), 1);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return harness_wait(pid);
}

int host_as(uid_t uid, const char *first, const char *second, const char *third)
{
    char command[512];

    snprintf(command, sizeof(command), "exec \"$R\" %s %s %s >/dev/null", first,
             second ? second : "", third ? third : "");
    return host_shell(uid, command);
}
