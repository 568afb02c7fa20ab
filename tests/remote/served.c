#include "tests/remote/served.h"

#include "tests/support/cases.h"
#include <arpa/inet.h>
#include <ftw.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/clock.h"

#define OPTIONS_MAX 8
#define WRITES_NS   (10 * NS_PER_S)

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
    (void)stat, (void)type, (void)ftw;
    return remove(path);
}

static void become(const struct served *served, const char *const *options, int output)
{
    const char *words[OPTIONS_MAX + 6] = {"reseat-serve", "--listen", served->address};
    size_t count = 3;
    if (served->ca[0]) {
        words[count++] = "--ca";
        words[count++] = served->ca;
    }
    for (size_t i = 0; options && options[i] && i < OPTIONS_MAX; i++)
        words[count++] = options[i];
    /* A test that fails leaves nothing running. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(output, STDOUT_FILENO);
    dup2(served->log, STDERR_FILENO);
    const char *vendors = getenv("TEST_VENDORS");
    setenv("OCL_ICD_VENDORS", vendors ? vendors : "/etc/OpenCL/vendors/pocl.icd", 1);
    setenv("POCL_DEVICES", "basic pthread", 1);
    setenv("RESEAT_LOG", getenv("TEST_LOG") ? getenv("TEST_LOG") : "warn", 1);
    execv(getenv("TEST_SERVE"), (char *const *)words);
    _exit(127);
}

static void make_folder(struct served *served)
{
    snprintf(served->folder, sizeof(served->folder), "/tmp/served-XXXXXX");
    cr_assert(mkdtemp(served->folder));
    snprintf(served->runtime, sizeof(served->runtime), "%s/run", served->folder);
    cr_assert_eq(mkdir(served->runtime, 0700), 0);
    setenv("XDG_RUNTIME_DIR", served->runtime, 1);
    served->ca[0] = '\0';
}

/* What was written to the log so far; the caller's. */
static char *read_log(const struct served *served)
{
    off_t size = lseek(served->log, 0, SEEK_END);
    char *log = calloc(1, (size_t)size + 1);
    cr_assert(log && pread(served->log, log, (size_t)size, 0) == size);
    return log;
}

static void launch(struct served *served, const char *const *options)
{
    int ends[2];
    char line[64] = "";
    cr_assert_eq(pipe(ends), 0);
    served->log = memfd_create("log", MFD_CLOEXEC);
    cr_assert(served->log >= 0);
    served->pid = fork();
    cr_assert(served->pid >= 0);
    if (served->pid == 0)
        become(served, options, ends[1]);
    close(ends[1]);
    cr_assert(read(ends[0], line, sizeof(line) - 1) > 0, "the server did not start: %s",
              read_log(served));
    close(ends[0]);
}

void served_start(struct served *served, const char *const *options)
{
    make_folder(served);
    snprintf(served->address, sizeof(served->address), "unix:%s/s", served->folder);
    launch(served, options);
}

void served_again(struct served *served)
{
    cr_assert_eq(waitpid(served->pid, NULL, 0), served->pid);
    close(served->log);
    launch(served, NULL);
}

/* One that nobody had a moment ago. */
static unsigned free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&at, length), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &length), 0);
    close(fd);
    return ntohs(at.sin_port);
}

void served_start_tcp(struct served *served, const char *const *options)
{
    make_folder(served);
    snprintf(served->ca, sizeof(served->ca), "%s/ca", served->folder);
    served_authority(served, (const char *const[]){"--init-ca", "--name", "gpuhost", NULL});
    snprintf(served->address, sizeof(served->address), "tcp:127.0.0.1:%u", free_port());
    launch(served, options);
}

void served_join_tcp(struct served *served, const struct served *first)
{
    make_folder(served);
    memcpy(served->ca, first->ca, sizeof(served->ca));
    snprintf(served->address, sizeof(served->address), "tcp:127.0.0.1:%u", free_port());
    launch(served, NULL);
}

void served_authority(const struct served *served, const char *const *options)
{
    const char *words[OPTIONS_MAX + 4] = {"reseat-serve", "--ca", served->ca};
    int status = 0;
    for (size_t i = 0; i < OPTIONS_MAX && options[i]; i++)
        words[3 + i] = options[i];
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        execv(getenv("TEST_SERVE"), (char *const *)words);
        _exit(127);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s failed", options[0]);
}

void served_issue(const struct served *served, const char *name, const char *option,
                  const char *value, char *ret_path)
{
    snprintf(ret_path, PATH_MAX, "%s/%s.pem", served->folder, name);
    served_authority(
        served, (const char *const[]){"--issue", name, "--out", ret_path, option, value, NULL});
}

void served_stop(struct served *served)
{
    kill(served->pid, SIGTERM);
    cr_assert_eq(waitpid(served->pid, NULL, 0), served->pid);
    cr_assert(!served_wrote(served, "Sanitizer"));
    nftw(served->ca[0] ? served->folder : served->runtime, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (!served->ca[0])
        cr_assert_eq(rmdir(served->folder), 0, "the server left something");
}

bool served_wrote(const struct served *served, const char *text)
{
    char *log = read_log(served);
    bool wrote = strstr(log, text);
    if (wrote)
        fputs(log, stderr);
    free(log);
    return wrote;
}

bool served_writes(const struct served *served, const char *text)
{
    uint64_t until = clock_now_ns() + WRITES_NS;
    while (!served_wrote(served, text))
        if (clock_now_ns() >= until)
            return false;
        else
            clock_sleep(5 * NS_PER_MS);
    return true;
}

/* Processes beside the sessions, by what the kernel calls them. */
static const char reaper[] = "reseat-reaper\n", metrics[] = "reseat-serve-me\n";

static bool is_called(pid_t pid, const char *name)
{
    char path[64], called[32] = "";
    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    FILE *file = fopen(path, "re");
    bool is = file && fgets(called, sizeof(called), file) && !strcmp(called, name);
    if (file)
        fclose(file);
    return is;
}

static unsigned list_children(const struct served *served, bool reapers, pid_t *ret_pids,
                              unsigned max)
{
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", served->pid, served->pid);
    FILE *file = fopen(path, "re");
    cr_assert(file);
    while (count < max && fscanf(file, "%d", &ret_pids[count]) == 1)
        count +=
            is_called(ret_pids[count], reaper) == reapers && !is_called(ret_pids[count], metrics);
    fclose(file);
    return count;
}

unsigned served_children(const struct served *served, pid_t *ret_pids, unsigned max)
{
    return list_children(served, false, ret_pids, max);
}

pid_t served_reaper(const struct served *served)
{
    pid_t pid = 0;
    return list_children(served, true, &pid, 1) ? pid : 0;
}

unsigned served_lines(const struct served *served)
{
    char *log = read_log(served);
    unsigned lines = 0;
    for (const char *at = log; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    free(log);
    return lines;
}

pid_t served_session(const struct served *served)
{
    pid_t pid = 0;
    return served_children(served, &pid, 1) ? pid : 0;
}

void served_use(const struct served *served)
{
    setenv("OCL_ICD_VENDORS", getenv("TEST_DRIVER"), 1);
    setenv("RESEAT_SERVER", served->address, 1);
}
