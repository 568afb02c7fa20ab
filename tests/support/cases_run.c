/* The runner: main() of every test in C. */

#include "tests/support/cases_run.h"

#include <err.h>
#include <errno.h>
#include <fnmatch.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/cases.h"
#include "tests/support/patience.h"

#define JOBS_MAX 16

/* A test that runs. */
struct job {
    const struct cases_test *test; /* NULL: none does */
    unsigned number;
    pid_t pid;
    int end; /* pidfd_open(): readable once it has ended */
    int64_t deadline_ms;
};

static struct cases_test *first, **last = &first;
static struct job jobs[JOBS_MAX];
static unsigned count, failures;
/* Of the job with the same number; shared with the processes of its test. */
static atomic_bool *failed;

void cases_add(struct cases_test *test)
{
    *last = test;
    last = &test->next;
}

static const struct cases_options *suite_of(const struct cases_test *test)
{
    static const struct cases_options none;

    for (const struct cases_test *at = first; at; at = at->next)
        if (!at->run && strcmp(at->suite, test->suite) == 0)
            return &at->options;
    return &none;
}

static void call(void (*function)(void))
{
    if (function)
        function();
}

_Noreturn static void run(const struct cases_test *test)
{
    const struct cases_options *suite = suite_of(test);

    call(suite->init);
    call(test->options.init);
    test->run();
    call(test->options.fini);
    call(suite->fini);
    cases_end();
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static void say(const struct job *job, const char *what)
{
    fprintf(stderr, "%s/%s", job->test->suite, job->test->name);
    if (job->test->options.times)
        fprintf(stderr, " %u", job->number);
    fprintf(stderr, "%s\n", what);
}

static void begin(const struct cases_test *test, unsigned number)
{
    unsigned i = 0;
    double timeout = test->options.timeout > 0 ? test->options.timeout : suite_of(test)->timeout;

    while (jobs[i].test)
        i++;
    jobs[i] = (struct job){.test = test, .number = number, .deadline_ms = INT64_MAX};
    if (timeout > 0)
        jobs[i].deadline_ms = now_ms() + (int64_t)(timeout * patience_factor() * 1000);
    atomic_store(&failed[i], false);
    say(&jobs[i], "");
    fflush(NULL);
    jobs[i].pid = fork();
    if (jobs[i].pid == 0) {
        cases_begin(&failed[i], number);
        run(test);
    }
    jobs[i].end = jobs[i].pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, jobs[i].pid, 0);
    if (jobs[i].end < 0)
        err(2, "%s/%s", test->suite, test->name);
    count++;
}

static void finish(struct job *job)
{
    int status;
    char what[64] = "";
    bool late = now_ms() >= job->deadline_ms;

    if (late)
        kill(job->pid, SIGKILL);
    if (waitpid(job->pid, &status, 0) != job->pid)
        err(2, "waitpid");
    if (late)
        snprintf(what, sizeof(what), " failed: it took too long");
    else if (WIFSIGNALED(status))
        snprintf(what, sizeof(what), " failed: signal %d", WTERMSIG(status));
    else if (atomic_load(&failed[job - jobs]))
        snprintf(what, sizeof(what), " failed");
    else if (WEXITSTATUS(status) != job->test->options.exit_code)
        snprintf(what, sizeof(what), " failed: it ended with %d", WEXITSTATUS(status));
    if (*what) {
        say(job, what);
        failures++;
    }
    close(job->end);
    job->test = NULL;
    count--;
}

/* Until there are fewer than @most. */
static void wait_for_fewer(unsigned most)
{
    while (count >= most) {
        struct pollfd ends_of[JOBS_MAX];
        int64_t deadline = now_ms() + 60000;
        for (unsigned i = 0; i < JOBS_MAX; i++) {
            ends_of[i] = (struct pollfd){.fd = jobs[i].test ? jobs[i].end : -1, .events = POLLIN};
            if (jobs[i].test && jobs[i].deadline_ms < deadline)
                deadline = jobs[i].deadline_ms;
        }
        int64_t left = deadline - now_ms();
        if (poll(ends_of, JOBS_MAX, left > 0 ? (int)left : 0) < 0 && errno != EINTR)
            err(2, "poll");
        for (unsigned i = 0; i < JOBS_MAX; i++)
            if (jobs[i].test && (ends_of[i].revents || now_ms() >= jobs[i].deadline_ms))
                finish(&jobs[i]);
    }
}

static bool is_wanted(const struct cases_test *test, char **patterns)
{
    char name[256];
    bool wanted = !*patterns;

    snprintf(name, sizeof(name), "%s/%s", test->suite, test->name);
    for (; *patterns && !wanted; patterns++)
        wanted = fnmatch(*patterns, strchr(*patterns, '/') ? name : test->name, FNM_EXTMATCH) == 0;
    return wanted;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"list", no_argument, NULL, 'l'}, {"jobs", required_argument, NULL, 'j'}, {0}};
    unsigned at_once = 1, tests = 0;
    bool list = false;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'j')
            at_once = (unsigned)atoi(optarg);
        list |= option == 'l';
        if (option == '?' || at_once < 1 || at_once > JOBS_MAX)
            errx(2, "usage: %s [--list] [--jobs N] [PATTERN...]", argv[0]);
    }
    failed = mmap(NULL, JOBS_MAX * sizeof(*failed), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (failed == MAP_FAILED)
        err(2, "mmap");
    for (const struct cases_test *test = first; test; test = test->next) {
        if (!test->run || !is_wanted(test, argv + optind))
            continue;
        tests++;
        if (list) {
            printf("%s/%s\n", test->suite, test->name);
            continue;
        }
        unsigned times = test->options.times ? test->options.times() : 1;
        for (unsigned number = 0; number < times; number++) {
            wait_for_fewer(at_once);
            begin(test, number);
        }
    }
    wait_for_fewer(1);
    if (tests == 0)
        fprintf(stderr, "%s: no such test\n", argv[0]);
    return tests == 0 || failures > 0;
}
