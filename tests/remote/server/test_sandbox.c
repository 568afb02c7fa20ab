#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/landlock.h>

#include "remote/server/session/sandbox.h"

/* What a session's process can still do: each case is tried by a child, as nothing of it can be had
   again. */

TestSuite(sandbox, .timeout = 60);

#define HOME "/tmp/sandbox-home-XXXXXX"

static struct device compiles_inside = {.quirks = QUIRK_COMPILES_INSIDE}, other;
static struct device *one[] = {&compiles_inside}, *mixed[] = {&compiles_inside, &other};

/* The line of the first thing that was otherwise than it should be; 0: all was right. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            _exit(__LINE__ % 255 + 1);                                                             \
    } while (0)
#define DENIED(call) CHECK((call) == -1 && errno == EPERM)

static void in_child(void (*try)(void))
{
    int status = 0;
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        try();
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "signal %d, line %d (or 255 on)",
              WTERMSIG(status), WEXITSTATUS(status) - 1);
}

static void *nothing(void *data)
{
    return data;
}

static void try_to_reach_others(void)
{
    struct rlimit limit;
    CHECK(sandbox_begin() == 0);
    DENIED(kill(getppid(), 0));
    DENIED(syscall(SYS_tgkill, getppid(), getppid(), 0));
    DENIED(syscall(SYS_tkill, getppid(), 0));
    DENIED(kill(-1, 0));
    DENIED(prlimit(getppid(), RLIMIT_NOFILE, NULL, &limit));
    DENIED(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL));
    DENIED(syscall(SYS_process_vm_readv, getppid(), NULL, 0UL, NULL, 0UL, 0UL));
    DENIED(syscall(SYS_pidfd_getfd, 0, 0, 0));
    DENIED(setpgid(0, 0));
    DENIED(setsid());
    DENIED(prctl(PR_SET_PDEATHSIG, 0));
    DENIED(syscall(SYS_pidfd_send_signal, 0, 0, NULL, 0));
    CHECK(kill(getpid(), 0) == 0);
    CHECK(syscall(SYS_tgkill, getpid(), gettid(), 0) == 0);
}

static void try_to_change_the_machine(void)
{
    CHECK(sandbox_begin() == 0);
    DENIED(mount("none", "/tmp", "tmpfs", 0, NULL));
    DENIED(umount("/tmp"));
    DENIED(unshare(CLONE_NEWUSER));
    DENIED(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL));
    CHECK(syscall(SYS_clone3, NULL, 0) == -1 && errno == ENOSYS);
    DENIED(chroot("/tmp"));
    DENIED(mknod("/tmp/sandbox-node", S_IFCHR, 0));
    DENIED(syscall(SYS_bpf, 0, NULL, 0));
    DENIED(syscall(SYS_io_uring_setup, 1, NULL));
    DENIED(syscall(SYS_userfaultfd, 0));
    DENIED(syscall(SYS_keyctl, 0, 0, 0, 0, 0));
    DENIED(sethostname("x", 1));
    /* Root is one user among others, too. */
    CHECK(geteuid() != 0 || setuid(1) == -1);
}

static void try_what_drivers_do(void)
{
    pthread_t thread;
    int ends[2], status = 0;
    CHECK(sandbox_begin() == 0);
    CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
               0) != MAP_FAILED);
    CHECK(socket(AF_UNIX, SOCK_STREAM, 0) >= 0);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

Test(sandbox, other_processes_are_out_of_reach)
{
    in_child(try_to_reach_others);
}

Test(sandbox, the_machine_stays_as_it_is)
{
    in_child(try_to_change_the_machine);
}

Test(sandbox, drivers_find_what_they_need)
{
    in_child(try_what_drivers_do);
}

static void give_up_calls(struct device **devices, size_t count)
{
    static struct server server;
    server.devices = devices;
    server.device_count = count;
    CHECK(sandbox_begin() == 0 && sandbox_calls(&server) == 0);
}

static void try_sockets(void)
{
    struct sockaddr at = {.sa_family = AF_UNIX};
    int ends[2], old = socket(AF_UNIX, SOCK_STREAM, 0);
    give_up_calls(mixed, 2);
    DENIED(socket(AF_UNIX, SOCK_STREAM, 0));
    DENIED(socket(AF_UNSPEC, SOCK_STREAM, 0));
    DENIED(socket(AF_NETLINK, SOCK_RAW, 0));
    DENIED(socket(AF_PACKET, SOCK_RAW, 0));
    DENIED(socket(AF_ALG, SOCK_SEQPACKET, 0));
    DENIED(socket(AF_MAX, SOCK_STREAM, 0));
    DENIED(socket(-1, SOCK_STREAM, 0));
    DENIED(syscall(SYS_socket, UINT64_C(1) << 32 | AF_UNIX, SOCK_STREAM, 0));
    DENIED(bind(old, &at, sizeof(at)));
    DENIED(listen(old, 1));
    DENIED(accept(old, NULL, NULL));
    DENIED(accept4(old, NULL, NULL, 0));
    DENIED(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends));
    DENIED(socketpair(AF_UNIX, SOCK_RAW, 0, ends));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
}

/* A kernel, or a container, may be without some of these: that is no refusal. */
static bool is_allowed(int fd)
{
    return fd >= 0 || errno != EPERM;
}

static void try_links(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr *any = (void *)&at;
    socklen_t size = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, any, size) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, any, &size) == 0);
    give_up_calls(mixed, 2);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, any, size) == 0);
    CHECK(is_allowed(socket(AF_INET, SOCK_DGRAM, 0))); /* Of names. */
    CHECK(is_allowed(socket(AF_INET6, SOCK_STREAM, 0)));
    CHECK(is_allowed(socket(AF_VSOCK, SOCK_STREAM, 0)));
    fd = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_port = 0;
    DENIED(bind(fd, any, size));
    DENIED(listen(fd, 1));
}

static void try_programs(void)
{
    give_up_calls(one, 1);
    DENIED(execl("/bin/true", "true", (char *)NULL));
}

static void try_programs_of_a_compiler(void)
{
    give_up_calls(mixed, 2);
    execl("/bin/true", "true", (char *)NULL);
    CHECK(false);
}

static pthread_barrier_t both;

static void *try_in_thread(void *data)
{
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    DENIED(socket(AF_UNIX, SOCK_STREAM, 0));
    return data;
}

/* Threads that were there before. */
static void try_threads(void)
{
    pthread_t thread;
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, try_in_thread, NULL) == 0);
    pthread_barrier_wait(&both);
    give_up_calls(one, 1);
    pthread_barrier_wait(&both);
    CHECK(pthread_join(thread, NULL) == 0);
}

Test(sandbox, other_servers_can_be_connected_with)
{
    in_child(try_links);
}

Test(sandbox, nothing_of_this_machine_is_connected_once_drivers_are_open)
{
    in_child(try_sockets);
    in_child(try_threads);
}

Test(sandbox, programs_are_run_only_by_drivers_that_compile_so)
{
    in_child(try_programs);
    in_child(try_programs_of_a_compiler);
}

/* ---- files ---- */

static char home[] = HOME;

static void put(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", home, name);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    close(fd);
}

static int open_in_home(const char *name, int flags)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", home, name);
    return open(path, flags | O_CLOEXEC, 0600);
}

/* The home must not be where everybody may write. */
static void try_files(void)
{
    static struct devices known = {.count = 1};
    snprintf(known.rows[0].key.icd, sizeof(known.rows[0].key.icd), "%s/drivers/lib.so", home);
    CHECK(sandbox_begin() == 0 && sandbox_files(&known, NULL, false) == 0);
    CHECK(open_in_home("secret", O_RDONLY) == -1 && errno == EACCES);
    CHECK(open_in_home("secret", O_WRONLY) == -1 && errno == EACCES);
    CHECK(open_in_home("new", O_WRONLY | O_CREAT) == -1 && errno == EACCES);
    CHECK(open_in_home(".cache/new", O_RDWR | O_CREAT) >= 0);
    CHECK(open_in_home("drivers/lib.so", O_RDONLY) >= 0);
    CHECK(open_in_home("drivers/lib.so", O_WRONLY) == -1 && errno == EACCES);
    CHECK(open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0);
    CHECK(open("/etc/reseat-sandbox", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) == -1);
    CHECK(open("/dev/null", O_RDWR | O_CLOEXEC) >= 0);
    FILE *file = tmpfile();
    CHECK(file);
    /* What of another process the same user could write. */
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/mem", getppid());
    CHECK(open(path, O_RDWR | O_CLOEXEC) == -1);
}

Test(sandbox, files_of_its_user_are_out_of_reach)
{
    if (syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
        cr_skip_test("this kernel has no Landlock");
    /* Not in /tmp, which drivers may use. */
    snprintf(home, sizeof(home), "/run/sandbox-XXXXXX");
    if (!mkdtemp(home))
        cr_skip_test("only root can try that");
    setenv("HOME", home, 1);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("TMPDIR");
    put("secret");
    char path[128];
    snprintf(path, sizeof(path), "%s/drivers", home);
    cr_assert_eq(mkdir(path, 0700), 0);
    put("drivers/lib.so");
    in_child(try_files);
    snprintf(path, sizeof(path), "rm -rf %s", home);
    cr_assert_eq(system(path), 0);
}

static struct devices unknown;

static void begin_in_home(void)
{
    if (syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
        cr_skip_test("this kernel has no Landlock");
    snprintf(home, sizeof(home), "/run/sandbox-XXXXXX");
    if (!mkdtemp(home))
        cr_skip_test("only root can try that");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("POCL_CACHE_DIR");
    unsetenv("TMPDIR");
}

static void end_in_home(void)
{
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", home);
    cr_assert_eq(system(command), 0);
}

static void make_in_home(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", home, name);
    cr_assert_eq(mkdir(path, 0700), 0);
}

static void try_authority(void)
{
    char folder[64];
    snprintf(folder, sizeof(folder), "%s/ca", home);
    CHECK(sandbox_begin() == 0 && sandbox_files(&unknown, folder, false) == 0);
    CHECK(open_in_home("ca/key", O_RDONLY) == -1 && errno == EACCES);
    CHECK(open_in_home("link/key", O_RDONLY) == -1 && errno == EACCES);
    CHECK(open_in_home("other", O_RDONLY) >= 0);
    CHECK(open_in_home("cab/other", O_RDONLY) >= 0);
    CHECK(open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0);
}

Test(sandbox, an_authority_that_is_in_no_home_is_out_of_reach)
{
    char link[64];
    begin_in_home();
    setenv("HOME", "/", 1);
    make_in_home("ca");
    put("ca/key");
    make_in_home("cab"); /* Whose name begins as the authority's does. */
    put("cab/other");
    put("other");
    snprintf(link, sizeof(link), "%s/link", home);
    cr_assert_eq(symlink("ca", link), 0);
    in_child(try_authority);
    end_in_home();
}

/* As services have it. */
static void try_without_home(void)
{
    CHECK(sandbox_begin() == 0 && sandbox_files(&unknown, NULL, false) == 0);
    CHECK(open("/root", O_RDONLY | O_DIRECTORY | O_CLOEXEC) == -1 && errno == EACCES);
}

Test(sandbox, a_home_that_the_environment_does_not_name_is_out_of_reach)
{
    begin_in_home();
    unsetenv("HOME");
    in_child(try_without_home);
    end_in_home();
}

static int open_beneath(const char *variable, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", getenv(variable), name);
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static void try_own_caches(void)
{
    CHECK(sandbox_own_caches("../laptop") == -EINVAL && sandbox_own_caches("..") == -EINVAL);
    CHECK(sandbox_own_caches("laptop") == 0);
    CHECK(sandbox_begin() == 0 && sandbox_files(&unknown, NULL, true) == 0);
    CHECK(open_in_home(".cache/new", O_RDWR | O_CREAT) == -1 && errno == EACCES);
    CHECK(open_in_home(".nv/new", O_RDWR | O_CREAT) == -1 && errno == EACCES);
    CHECK(open_in_home(".cache/reseat/clients/other/new", O_RDWR | O_CREAT) == -1 &&
          errno == EACCES);
    CHECK(open_in_home(".cache/reseat/clients/laptop/new", O_RDWR | O_CREAT) >= 0);
    CHECK(open_in_home("elsewhere/new", O_RDWR | O_CREAT) == -1 && errno == EACCES);
    CHECK(open("/tmp/new", O_RDWR | O_CREAT | O_CLOEXEC, 0600) == -1 && errno == EACCES);
    CHECK(open_beneath("TMPDIR", "new") >= 0);
    CHECK(open_beneath("XDG_CACHE_HOME", "newer") >= 0);
    CHECK(open_beneath("CUDA_CACHE_PATH", "new") >= 0);
    CHECK(mkdir(getenv("POCL_CACHE_DIR"), 0700) == 0 || errno == EEXIST);
    CHECK(open_beneath("POCL_CACHE_DIR", "new") >= 0);
}

Test(sandbox, what_one_client_has_drivers_keep_is_nobody_elses)
{
    char named[64];
    begin_in_home();
    setenv("HOME", home, 1);
    snprintf(named, sizeof(named), "%s///elsewhere/", home);
    setenv("CUDA_CACHE_PATH", named, 1);
    make_in_home(".nv");
    make_in_home("elsewhere");
    make_in_home(".cache");
    make_in_home(".cache/reseat");
    make_in_home(".cache/reseat/clients");
    make_in_home(".cache/reseat/clients/other");
    in_child(try_own_caches);
    end_in_home();
}

static void try_nowhere(void)
{
    char log[128], said[256] = "";
    snprintf(log, sizeof(log), "warn:%s/log", home);
    setenv("RESEAT_LOG", log, 1);
    CHECK(sandbox_own_caches("laptop") == 0);
    int fd = open_in_home("log", O_RDONLY);
    CHECK(fd >= 0 && read(fd, said, sizeof(said) - 1) > 0);
    CHECK(strstr(said, "/proc/none/reseat/clients/laptop/tmp") && strstr(said, "XDG_CACHE_HOME"));
}

Test(sandbox, who_has_no_folder_for_what_is_built_says_so)
{
    begin_in_home();
    setenv("XDG_CACHE_HOME", "/proc/none", 1);
    in_child(try_nowhere);
    end_in_home();
}

static void try_devices(void)
{
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int used = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    CHECK(used >= 0);
    close(used);
    CHECK(sandbox_begin() == 0 && sandbox_files(&unknown, NULL, false) == 0);
    CHECK(open(ptsname(terminal), O_RDWR | O_NOCTTY) == -1 && errno == EACCES);
    CHECK(open("/dev/tty", O_RDWR | O_NOCTTY) == -1 && errno == EACCES);
    CHECK(open("/dev/kmsg", O_WRONLY) == -1 && (errno == EACCES || errno == ENOENT));
    CHECK(open("/dev/null", O_RDWR) >= 0 && open("/dev/urandom", O_RDONLY) >= 0);
    CHECK(open("/dev", O_RDONLY | O_DIRECTORY) >= 0);
    DIR *devices = opendir("/dev");
    for (struct dirent *entry; devices && (entry = readdir(devices));) {
        struct stat stat;
        char path[300];
        snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
        if (lstat(path, &stat) == 0 && S_ISBLK(stat.st_mode))
            CHECK(open(path, O_RDONLY) == -1 && errno == EACCES);
    }
}

Test(sandbox, disks_and_terminals_are_no_drivers_business)
{
    begin_in_home();
    setenv("HOME", home, 1);
    in_child(try_devices);
    end_in_home();
}

static void try_link(void)
{
    CHECK(sandbox_begin() == 0 && sandbox_files(&unknown, NULL, false) == 0);
    CHECK(open_in_home("new", O_RDWR | O_CREAT) == -1 && errno == EACCES);
}

/* A session writes to /tmp, and the next one is given what is there. */
Test(sandbox, a_link_that_a_session_made_of_a_temporary_folder_leads_nowhere)
{
    char link[64], twice[80];
    begin_in_home();
    setenv("HOME", home, 1);
    snprintf(link, sizeof(link), "/tmp/%s", strrchr(home, '/') + 1);
    cr_assert_eq(symlink(home, link), 0);
    setenv("TMPDIR", link, 1);
    snprintf(twice, sizeof(twice), "/%s", link); /* The same one. */
    setenv("CUDA_CACHE_PATH", twice, 1);
    in_child(try_link);
    cr_assert_eq(unlink(link), 0);
    end_in_home();
}

/* ---- a relay ---- */

static int pair[2];

static void try_to_relay(void)
{
    char byte = 0;
    CHECK(sandbox_relay() == 0);
    CHECK(write(pair[0], "x", 1) == 1 && read(pair[1], &byte, 1) == 1 && byte == 'x');
}

static void try_more_in_a_relay(void)
{
    CHECK(sandbox_relay() == 0);
    (void)!open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

Test(sandbox, a_relay_carries_bytes_and_dies_of_anything_else)
{
    int status = 0;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    in_child(try_to_relay);
    pid_t pid = fork();
    if (pid == 0) {
        try_more_in_a_relay();
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}
