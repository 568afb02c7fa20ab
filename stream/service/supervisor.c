#include "stream/service/service.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/identity/grant.h"
#include "remote/link/tls.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "stream/worker/worker.h"

/* Starts without an answered record after which the stream has failed. */
#define STARTS_MAX 5
/* Between two starts at least; after each start without an answer, twice that, up to the last. */
#define DELAY_NS     (100 * NS_PER_MS)
#define DELAY_MAX_NS (5 * NS_PER_S)
/* How often a stranger's certificate is checked. */
#define CHECK_NS NS_PER_S
/* How long a worker may take to end after its client. */
#define END_NS (3 * NS_PER_S)

/* In the child: only what is safe between fork and exec. */
static void supervisor_exec(const int fds[4], char *const *words, pid_t parent, bool stranger)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* The worker must not outlive this process: another service may do its records. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(WORKER_AGAIN);
    /* What drivers, compilers and kernels print is the log's, but not what strangers' kernels do.
     */
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(stranger ? nothing : STDERR_FILENO, STDOUT_FILENO);
    for (int i = 0; i < 4; i++)
        fcntl(fds[i], F_SETFD, 0);
    execv(words[0], words);
    _exit(WORKER_AGAIN);
}

static int supervisor_start(struct supervisor *supervisor)
{
    char numbers[4][16], quota[32];
    int ends[2];
    const char *words[24];
    size_t count = 0;
    if (pipe2(ends, O_CLOEXEC))
        return -errno;
    const int fds[4] = {supervisor->area_fd, supervisor->doorbell, supervisor->job, ends[1]};
    words[count++] = supervisor->reseat;
    words[count++] = "run";
    words[count++] = "--name";
    words[count++] = supervisor->program;
    /* A worker that could not start where the client wants it may start anywhere. */
    if (supervisor->device[0] && (supervisor->starts == 0 || supervisor->begun)) {
        words[count++] = "--device";
        words[count++] = supervisor->device;
    }
    if (supervisor->only[0]) {
        words[count++] = "--only";
        words[count++] = supervisor->only;
    }
    if (supervisor->isolate)
        words[count++] = "--isolate";
    if (supervisor->quota != GRANT_UNLIMITED_MEMORY) {
        snprintf(quota, sizeof(quota), "%lluB", (unsigned long long)supervisor->quota);
        words[count++] = "--quota";
        words[count++] = quota;
    }
    words[count++] = "--";
    words[count++] = supervisor->worker;
    for (int i = 0; i < 4; i++) {
        snprintf(numbers[i], sizeof(numbers[i]), "%d", fds[i]);
        words[count++] = numbers[i];
    }
    words[count] = NULL;
    (void)lseek(supervisor->job, 0, SEEK_SET);
    pid_t own = getpid(), pid = fork();
    if (pid == 0)
        supervisor_exec(fds, (char *const *)words, own, supervisor->isolate);
    int error = pid < 0 ? -errno : 0;
    close(ends[1]);
    if (error) {
        close(ends[0]);
        return error;
    }
    supervisor->starts++;
    supervisor->started_ns = clock_now_ns();
    supervisor->pid = pid;
    supervisor->process = pidfd_open(pid, 0);
    supervisor->ready = ends[0];
    return 0;
}

static void supervisor_close_ready(struct supervisor *supervisor)
{
    if (supervisor->ready >= 0)
        close(supervisor->ready);
    supervisor->ready = -1;
}

/* Take back a worker that has ended. Returns its status, of waitpid(). */
static int supervisor_reap(struct supervisor *supervisor)
{
    int status = 0;
    (void)waitpid(supervisor->pid, &status, 0);
    supervisor_close_ready(supervisor);
    close(supervisor->process);
    supervisor->process = -1;
    supervisor->pid = 0;
    return status;
}

/* End the worker, gently at first. */
static void supervisor_end(struct supervisor *supervisor)
{
    struct pollfd process = {.fd = supervisor->process, .events = POLLIN};
    if (!supervisor->pid)
        return;
    if (poll(&process, 1, END_NS / NS_PER_MS) <= 0)
        kill(supervisor->pid, SIGKILL);
    (void)supervisor_reap(supervisor);
}

static int supervisor_give_up(struct supervisor *supervisor, int status)
{
    char reason[512];
    if (WIFSIGNALED(status))
        snprintf(reason, sizeof(reason),
                 "the stream's worker was ended by signal %d (%s) %d times without an answer: does "
                 "the kernel access memory that is not its own?",
                 WTERMSIG(status), strsignal(WTERMSIG(status)), STARTS_MAX);
    else
        snprintf(reason, sizeof(reason),
                 "the stream's worker failed %d times without an answer (exit status %d): the log "
                 "of reseat stream serve says why",
                 STARTS_MAX, WEXITSTATUS(status));
    stream_area_fail(supervisor->area, -EIO, reason, supervisor->doorbell);
    return -EIO;
}

/* A worker has ended. Returns 0 with when to start the next, or -errno: the stream has failed. */
static int supervisor_decide(struct supervisor *supervisor, int status, uint64_t *ret_next_ns)
{
    uint64_t answered = atomic_load(&supervisor->area->header->answered), delay = DELAY_NS;
    if (WIFEXITED(status) && WEXITSTATUS(status) == WORKER_FAILED)
        return -EIO;
    if (answered != supervisor->answered)
        supervisor->starts = 1;
    supervisor->answered = answered;
    if (supervisor->starts >= STARTS_MAX)
        return supervisor_give_up(supervisor, status);
    log_warn("stream: the worker of %s ended with status %d, and is started again",
             supervisor->program, status);
    /* A worker that ends after each answer is started again for as long as its client wants, but
     * not in a loop. */
    delay <<= supervisor->starts - 1;
    *ret_next_ns = supervisor->started_ns + (delay < DELAY_MAX_NS ? delay : DELAY_MAX_NS);
    return 0;
}

static int supervisor_hear_ready(struct supervisor *supervisor)
{
    char byte;
    bool ready = read(supervisor->ready, &byte, 1) == 1;
    supervisor_close_ready(supervisor);
    if (!ready || supervisor->begun)
        return 0;
    supervisor->begun = true;
    return supervisor->begin(supervisor->data);
}

/* The worker is not ready in time: its driver hangs, or the kernel takes too long to build. */
static int supervisor_end_late(struct supervisor *supervisor)
{
    char reason[128];
    kill(supervisor->pid, SIGKILL);
    if (supervisor->begun)
        return 0; /* Another one may do better. */
    snprintf(reason, sizeof(reason),
             "the device was not ready, or the kernel not built, within %llu s (--ready of reseat "
             "stream serve)",
             (unsigned long long)(supervisor->ready_ns / NS_PER_S));
    stream_area_fail(supervisor->area, -ETIMEDOUT, reason, -1);
    return -ETIMEDOUT;
}

/* Until when to wait; UINT64_MAX: for as long as it takes. */
static uint64_t supervisor_deadline(const struct supervisor *supervisor, uint64_t next_ns)
{
    if (!supervisor->pid)
        return next_ns;
    return supervisor->ready >= 0 ? supervisor->started_ns + supervisor->ready_ns : UINT64_MAX;
}

/* A certificate that has ended, or is revoked, ends the stream. A list that cannot be read does
 * not: it lets nobody in. */
static int supervisor_check(struct supervisor *supervisor, uint64_t now_ns)
{
    if (!supervisor->certified || now_ns < supervisor->check_ns)
        return 0;
    supervisor->check_ns = now_ns + CHECK_NS;
    int error = tls_check_again(supervisor->certified, time(NULL));
    if (error != -EKEYREVOKED && error != -EKEYEXPIRED)
        return 0;
    stream_area_fail(supervisor->area, error,
                     error == -EKEYREVOKED ? "your certificate was revoked"
                                           : "your certificate has ended: ask for a new one",
                     supervisor->doorbell);
    return error;
}

int supervisor_run(struct supervisor *supervisor)
{
    uint64_t next_ns = 0;
    int error = 0;
    bool over = false;
    supervisor->process = supervisor->ready = -1;
    learnt_give(supervisor);
    while (!error && !over) {
        uint64_t now_ns = clock_now_ns();
        error = supervisor_check(supervisor, now_ns);
        if (error)
            break;
        if (!supervisor->pid && now_ns >= next_ns) {
            error = supervisor_start(supervisor);
            continue;
        }
        struct pollfd polls[] = {
            {.fd = supervisor->client, .events = supervisor->client_events},
            {.fd = supervisor->process, .events = POLLIN},
            {.fd = supervisor->ready, .events = POLLIN},
        };
        uint64_t deadline_ns = supervisor_deadline(supervisor, next_ns), until_ns = deadline_ns;
        if (supervisor->certified && supervisor->check_ns < until_ns)
            until_ns = supervisor->check_ns;
        struct timespec left = clock_timespec(until_ns > now_ns ? until_ns - now_ns : 0);
        int count = ppoll(polls, 3, until_ns == UINT64_MAX ? NULL : &left, NULL);
        if (count == 0 && supervisor->pid && until_ns == deadline_ns)
            error = supervisor_end_late(supervisor);
        if (count <= 0)
            continue;
        if (polls[2].revents)
            error = supervisor_hear_ready(supervisor);
        over = polls[0].revents != 0;
        if (!error && !over && polls[1].revents)
            error = supervisor_decide(supervisor, supervisor_reap(supervisor), &next_ns);
    }
    learnt_keep(supervisor); /* Before the worker's end takes its time: the next may have begun. */
    supervisor_end(supervisor);
    return error;
}
