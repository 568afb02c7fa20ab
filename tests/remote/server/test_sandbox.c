#include "tests/support/cases.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
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
static const struct grant all = GRANT_ALL;
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

static void try_what_drivers_do(void)
{
    pthread_t thread;
    int ends[2], status = 0;
    CHECK(sandbox_begin() == 0);
    CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(kill(getpid(), 0) == 0 && syscall(SYS_tgkill, getpid(), gettid(), 0) == 0);
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

TestCall(sandbox, drivers_find_what_they_need, in_child(try_what_drivers_do));

static void give_up_calls(struct device **devices, size_t count)
{
    static struct server server;
    server.devices = devices;
    server.device_count = count;
    CHECK(sandbox_begin() == 0 && sandbox_admitted() == 0 && sandbox_calls(&server) == 0);
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

TestCall(sandbox, threads_that_were_there_before_make_no_sockets, in_child(try_threads));

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
    CHECK(sandbox_files(&known, &all, NULL, false) == 0);
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
        cases_skip("this kernel has no Landlock");
    /* Not in /tmp, which drivers may use. */
    snprintf(home, sizeof(home), "/run/sandbox-XXXXXX");
    if (!mkdtemp(home))
        cases_skip("only root can try that");
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
        cases_skip("this kernel has no Landlock");
    snprintf(home, sizeof(home), "/run/sandbox-XXXXXX");
    if (!mkdtemp(home))
        cases_skip("only root can try that");
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
    CHECK(sandbox_files(&unknown, &all, folder, false) == 0);
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
    setenv("OCL_ICD_VENDORS", home, 1); /* So that what is around it is read. */
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
    CHECK(sandbox_files(&unknown, &all, NULL, false) == 0);
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
    CHECK(sandbox_files(&unknown, &all, NULL, true) == 0);
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
    CHECK(sandbox_files(&unknown, &all, NULL, false) == 0);
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

/* In /dev, of those whose names begin so. */
static unsigned count_of(const char *beginning)
{
    unsigned count = 0;
    DIR *devices = opendir("/dev");
    for (struct dirent *entry; devices && (entry = readdir(devices));)
        count += !strncmp(entry->d_name, beginning, strlen(beginning));
    closedir(devices);
    return count;
}

static void count_node(void *data, const char *path)
{
    (void)path;
    ++*(unsigned *)data;
}

static unsigned nodes_of(const struct devices *known, const char *granted)
{
    struct grant grant = GRANT_ALL;
    char reason[GRANT_REASON_MAX];
    unsigned count = 0;
    cr_assert_eq(grant_set_devices(&grant, granted, reason), 0);
    sandbox_each_node(known, &grant, count_node, &count);
    return count;
}

/* A grant of processors gives no GPU's node. */
Test(sandbox, nodes_are_those_of_the_devices_that_are_granted)
{
    static struct devices known = {.count = 2};
    strcpy(known.rows[0].name, "gpu0");
    strcpy(known.rows[0].key.platform, "rusticl");
    strcpy(known.rows[1].name, "cpu0");
    strcpy(known.rows[1].key.platform, "Portable Computing Language");
    cr_expect_eq(nodes_of(&known, "cpu0"), 0);
    cr_expect_eq(nodes_of(&known, "gpu0"), count_of("dri"));
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
    CHECK(sandbox_files(&unknown, &all, NULL, false) == 0);
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
