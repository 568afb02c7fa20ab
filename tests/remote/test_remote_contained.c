#include <CL/opencl.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>

#include "state/base/clock.h"
#include "state/base/compiler.h"
#include "tests/remote/contained.h"
#include "tests/remote/served.h"
#include "tests/support/calls.h"

/*
 * What a client's kernel can do on the server's machine where it is native code: a kernel of
 * POCL's makes the system calls below from inside a session, each has to be refused, and what they
 * would change is looked at from outside.
 */

TestSuite(remote_contained, .timeout = 240);

#define NOBODY    65534
#define NEIGHBOUR "neighbour-7f3a9c"
/* Tasks that a session may have, on any machine that runs tests. */
#define TASKS_MAX 2500

#define THREADS_ASKED 3000
#define FORKS_ASKED   100

static const char source[] =
    "long call(long n, long a, long b, long c, long d, long e, long f) {\n"
    "  long r;\n"
    "  __asm__ volatile(\"mov %5, %%r10\\n mov %6, %%r8\\n mov %7, %%r9\\n syscall\"\n"
    "    : \"=a\"(r) : \"a\"(n), \"D\"(a), \"S\"(b), \"d\"(c), \"m\"(d), \"m\"(e), \"m\"(f)\n"
    "    : \"rcx\", \"r8\", \"r9\", \"r10\", \"r11\", \"memory\");\n"
    "  return r;\n"
    "}\n"
    "__kernel void calls(__global const long *all, __global long *results,\n"
    "                    __global char *memory, int count) {\n"
    "  for (int i = 0; i < count; i++) {\n"
    "    long a[7];\n"
    "    for (int j = 0; j < 7; j++) {\n"
    "      a[j] = all[7 * i + j];\n"
    "      if (a[j] > 0 && (a[j] >> 62 & 1)) a[j] = (long)(memory + (a[j] & 0xffffff));\n"
    "    }\n"
    "    results[i] = call(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);\n"
    "  }\n"
    "}\n"
    /* What begins so never returns to the kernel, and needs no stack. */
    "long task(long flags) {\n"
    "  long r;\n"
    "  __asm__ volatile(\"xor %%r10d, %%r10d\\n xor %%r8d, %%r8d\\n syscall\\n test %%rax, "
    "%%rax\\n\"\n"
    "    \"jnz 1f\\n 2: mov $34, %%eax\\n syscall\\n jmp 2b\\n 1:\"\n"
    "    : \"=a\"(r) : \"a\"(56L), \"D\"(flags), \"S\"(0L), \"d\"(0L)\n"
    "    : \"rcx\", \"r8\", \"r10\", \"r11\", \"memory\");\n"
    "  return r;\n"
    "}\n"
    "__kernel void tasks(__global long *began, long flags, int count) {\n"
    "  *began = 0;\n"
    "  for (int i = 0; i < count; i++) { if (task(flags) < 0) return; *began += 1; }\n"
    "}\n";

static struct served served;
static struct contained contained;

static cl_context context;
static cl_command_queue queue;
static cl_program program;

/* ---- outside ---- */

static char ca_key[128], ca_revoked[128], folder_file[64], other_shared[64];
static struct stat revoked_before;

static void put(const char *path, const char *what)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert(fd >= 0 && write(fd, what, strlen(what)) == (ssize_t)strlen(what));
    close(fd);
}

static void make_targets(void)
{
    snprintf(ca_key, sizeof(ca_key), "%s/ca.key", served.ca);
    snprintf(ca_revoked, sizeof(ca_revoked), "%s/revoked", served.ca);
    snprintf(folder_file, sizeof(folder_file), "/tmp/contained-%d", getpid());
    snprintf(other_shared, sizeof(other_shared), "/dev/shm/contained-%d", getpid());
    put(folder_file, "theirs");
    put(other_shared, "theirs");
    cr_assert_eq(stat(ca_revoked, &revoked_before), 0);
}

static bool has_bytes(const char *path, const char *want)
{
    char got[64] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool has = fd >= 0 && read(fd, got, sizeof(got) - 1) >= 0 && !strcmp(got, want);
    close(fd);
    return has;
}

static void check_targets(int before_niceness)
{
    struct stat now;
    cpu_set_t processors;
    cr_expect_eq(stat(ca_revoked, &now), 0);
    cr_expect_eq(now.st_mode, revoked_before.st_mode);
    cr_expect_eq(now.st_size, revoked_before.st_size);
    cr_expect_eq(now.st_mtim.tv_nsec, revoked_before.st_mtim.tv_nsec);
    cr_expect(has_bytes(folder_file, "theirs") && has_bytes(other_shared, "theirs"));
    cr_expect_eq(access("/dev/shm/contained-mine", F_OK), -1, "it outlives the session");
    cr_expect_eq(access("/tmp/contained-mine", F_OK), -1);
    cr_expect_eq(kill(served.pid, 0), 0);
    cr_expect_eq(getpriority(PRIO_PROCESS, (id_t)served.pid), before_niceness);
    cr_expect_eq(sched_getaffinity(served.pid, sizeof(processors), &processors), 0);
    cr_expect_eq(CPU_COUNT(&processors), get_nprocs());
    cr_expect(!served_wrote(&served, "forged"));
    unlink(folder_file);
    unlink(other_shared);
}

/* ---- the client ---- */

static cl_mem buffer_of(void *bytes, size_t size)
{
    return MADE(clCreateBuffer, context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, size, bytes);
}

static void run(const char *name, cl_uint count, const size_t *sizes, const void *const *values)
{
    const size_t one = 1;
    cl_kernel kernel = MADE(clCreateKernel, program, name);
    for (cl_uint i = 0; i < count; i++)
        OK(clSetKernelArg(kernel, i, sizes[i], values[i]));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    OK(clFinish(queue));
    clReleaseKernel(kernel);
}

static void run_calls(long results[CONTAINED_MAX])
{
    static long all[CONTAINED_MAX * CONTAINED_WORDS];
    for (unsigned i = 0; i < contained.count; i++)
        memcpy(&all[CONTAINED_WORDS * i], contained.calls[i].words,
               sizeof(contained.calls[i].words));
    cl_mem given = buffer_of(all, sizeof(all)),
           bytes = buffer_of(contained.memory, sizeof(contained.memory));
    cl_mem got = buffer_of(results, CONTAINED_MAX * sizeof(long));
    const cl_int count = (cl_int)contained.count;
    run("calls", 4, (const size_t[]){sizeof(given), sizeof(got), sizeof(bytes), sizeof(count)},
        (const void *const[]){&given, &got, &bytes, &count});
    OK(clEnqueueReadBuffer(queue, got, CL_TRUE, 0, CONTAINED_MAX * sizeof(long), results, 0, NULL,
                           NULL));
}

static long run_tasks(long flags, cl_int count)
{
    long began = -1;
    cl_mem got = buffer_of(&began, sizeof(began));
    run("tasks", 3, (const size_t[]){sizeof(got), sizeof(flags), sizeof(count)},
        (const void *const[]){&got, &flags, &count});
    OK(clEnqueueReadBuffer(queue, got, CL_TRUE, 0, sizeof(began), &began, 0, NULL, NULL));
    return began;
}

static void begin_client(void)
{
    const char *text_ = source;
    cl_platform_id platform;
    cl_device_id device;
    cl_int error;
    error = clGetPlatformIDs(1, &platform, NULL);
    cr_assert(error == CL_SUCCESS || !served_wrote(&served, "")); /* Which prints all. */
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = MADE(clCreateContext, NULL, 1, &device, NULL, NULL);
    queue = MADE(clCreateCommandQueue, context, device, 0);
    program = MADE(clCreateProgramWithSource, context, 1, &text_, NULL);
    char log[4096] = "";
    error = clBuildProgram(program, 1, &device, "", NULL, NULL);
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof(log), log, NULL);
    cr_assert_eq(error, CL_SUCCESS, "%s", log);
}

/* Another client, with a session that stays until this process ends. */
static void begin_neighbour(void)
{
    static char credentials[PATH_MAX];
    char byte = 0;
    int ends[2];
    served_issue(&served, NEIGHBOUR, NULL, NULL, credentials);
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        cl_uint count = 0;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("RESEAT_CREDENTIALS", credentials, 1);
        (void)clGetPlatformIDs(0, NULL, &count);
        (void)!write(ends[1], &byte, 1);
        pause();
        _exit(0);
    }
    close(ends[1]);
    cr_assert_eq(read(ends[0], &byte, 1), 1);
    close(ends[0]);
}

/* ---- the session's process, from outside ---- */

/* The newest one. */
static pid_t find_session(void)
{
    pid_t pids[16], newest = 0;
    unsigned count = served_children(&served, pids, 16);
    for (unsigned i = 0; i < count; i++)
        newest = pids[i] > newest ? pids[i] : newest;
    return newest;
}

static bool mapping_has(int memory_fd, const char *line, const char *what)
{
    unsigned long from, to;
    char rights[8] = "";
    if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3 || rights[0] != 'r' ||
        rights[1] != 'w' || to - from > (64ul << 20))
        return false;
    char *bytes = malloc(to - from);
    ssize_t got = bytes ? pread(memory_fd, bytes, to - from, (off_t)from) : -1;
    bool has = got > 0 && memmem(bytes, (size_t)got, what, strlen(what));
    free(bytes);
    return has;
}

static bool memory_has(pid_t pid, const char *what)
{
    char path[64], line[512];
    bool has = false;
    snprintf(path, sizeof(path), "/proc/%d/mem", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    cr_assert(fd >= 0 && maps);
    while (!has && fgets(line, sizeof(line), maps))
        has = mapping_has(fd, line, what);
    fclose(maps);
    close(fd);
    return has;
}

static void descriptor_is(pid_t pid, int fd, const char *want)
{
    char path[64], got[128] = "";
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    cr_expect(readlink(path, got, sizeof(got) - 1) > 0);
    cr_expect(!strncmp(got, want, strlen(want)), "descriptor %d is %s", fd, got);
}

static void check_process(pid_t pid, bool root)
{
    char path[64], line[512];
    int group = 0, session = 0, terminal = -1;
    unsigned user = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    cr_assert(file && fgets(line, sizeof(line), file));
    fclose(file);
    cr_expect_eq(sscanf(strrchr(line, ')'), ") %*c %*d %d %d %d", &group, &session, &terminal), 3);
    cr_expect(group == pid && session == pid && terminal == 0);
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    file = fopen(path, "re");
    cr_assert(file);
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "Uid: %u", &user) == 1)
            cr_expect(root ? user >= 0x70000000 : user == NOBODY, "its user is %u", user);
        if (!strncmp(line, "CapPrm:", 7) || !strncmp(line, "CapEff:", 7))
            cr_expect(strstr(line, "0000000000000000"), "%s", line);
        if (!strncmp(line, "Groups:", 7))
            cr_expect(!root || strspn(line + 7, " \t\n") == strlen(line + 7), "%s", line);
        if (!strncmp(line, "NoNewPrivs:", 11))
            cr_expect(strchr(line, '1'));
    }
    fclose(file);
    descriptor_is(pid, 0, "/dev/null");
    descriptor_is(pid, 1, "pipe:");
    descriptor_is(pid, 2, "pipe:");
}

static unsigned tasks_of(pid_t pid)
{
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

/* May an ordinary user's session have namespaces here? Not in a chroot. */
static bool has_namespaces(void)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET) != 0);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* @home: of the server's user; NULL: it is root. */
static void contain(const char *home)
{
    static char laptop[PATH_MAX];
    static long results[CONTAINED_MAX];
    const bool root = home == NULL, spaces = root || has_namespaces();
    char mine[PATH_MAX] = "/dev/shm/contained-mine";
    if (!spaces)
        snprintf(mine, sizeof(mine), "%s/.cache/reseat/clients/laptop/tmp/mine", home);
    int niceness = getpriority(PRIO_PROCESS, 0);
    setenv("TEST_LOG", "info", 1);
    served_start_tcp(&served, NULL);
    served_use(&served);
    served_issue(&served, "laptop", NULL, NULL, laptop);
    setenv("RESEAT_CREDENTIALS", laptop, 1);
    make_targets();
    begin_neighbour();
    begin_client();
    pid_t session = find_session();
    check_process(session, root);
    if (root)
        cr_expect(!memory_has(session, NEIGHBOUR), "it knows of its neighbour");
    contained_fill(&contained, &(struct contained_targets){.server = served.pid,
                                                           .revoked = ca_revoked,
                                                           .key = ca_key,
                                                           .file = folder_file,
                                                           .shared = other_shared});
    /* These it may do: the first where nobody else sees it, or else no other client. */
    unsigned refused = contained.count;
    contained_open(&contained, mine);
    contained_write(&contained, "\nf\033orged\n");
    run_calls(results);
    for (unsigned i = 0; i < refused; i++)
        cr_expect_lt(results[i], 0, "%s (system call %ld): %ld", contained.calls[i].what,
                     contained.calls[i].words[0], results[i]);
    cr_expect_geq(results[refused], 0, "%s: %ld", mine, results[refused]);
    cr_expect(served_writes(&served, "f?orged"), "it is in the log, and who says it");
    /* Without a user namespace the bound would be that of all its user's processes: there is none.
     */
    long threads = spaces ? run_tasks(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
                                          CLONE_THREAD | CLONE_SYSVSEM,
                                      THREADS_ASKED)
                          : 1;
    cr_expect(threads > 0 && threads < TASKS_MAX, "%ld threads", threads);
    cr_expect_lt(tasks_of(session), TASKS_MAX);
    check_targets(niceness);
    kill(session, SIGKILL);
    for (uint64_t until = clock_now_ns() + 20 * NS_PER_S;
         kill(session, 0) == 0 && clock_now_ns() < until;)
        clock_sleep(5 * NS_PER_MS);
    cr_expect_eq(kill(session, 0), -1);
    served_stop(&served);
    fprintf(stderr, "%u calls, %ld threads, %s namespaces\n", refused, threads,
            spaces ? "with" : "without");
}

Test(remote_contained, a_kernel_reaches_nothing_of_a_server_of_roots)
{
    if (geteuid())
        cases_skip("only root has one");
    contain(NULL);
}

Test(remote_contained, a_kernel_reaches_nothing_of_an_ordinary_users_server)
{
    char home[] = "/tmp/contained-home-XXXXXX", *words[] = {"rm", "-rf", home, NULL};
    pid_t pid;
    if (geteuid() == 0)
        cr_assert(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    /* What such a user has, and not what whoever runs the tests has. */
    cr_assert_not_null(mkdtemp(home));
    setenv("HOME", home, 1);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("POCL_CACHE_DIR");
    contain(home);
    cr_expect(!posix_spawnp(&pid, "rm", NULL, NULL, words, environ));
    cr_expect_eq(waitpid(pid, NULL, 0), pid);
}

/* As in many containers: root without the right to make namespaces. */
Test(remote_contained, a_server_that_cannot_leave_root_does_not_start)
{
    int ends[2], status = 0;
    char said[512] = "";
    if (geteuid())
        cases_skip("only root has one");
    served_start_tcp(&served, NULL);
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0);
        dup2(ends[1], STDERR_FILENO);
        execl(getenv("TEST_SERVE"), "reseat-serve", "--ca", served.ca, "--listen",
              "tcp:127.0.0.1:0", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    cr_expect(read(ends[0], said, sizeof(said) - 1) > 0);
    cr_expect(strstr(said, "sessions can only run as root"), "%s", said);
    close(ends[0]);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    served_stop(&served);
}
