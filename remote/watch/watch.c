#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/watch/watch.h"
#include "state/base/clock.h"
#include "state/driver/served.h"

/*
 * reseat-watch ADDRESS FILE DRIVER: watch one device server for the agent. After each check it
 * writes a struct server_news to standard output. When that says that the devices were listed, FILE
 * has the new list. On standard input, "L" requests a check now
 * and "D" a new list of devices as well; end of file ends the process.
 *
 * reseat-watch --look ADDRESS: check once, without listing devices.
 *
 * Everything that talks to the server runs in a child process, which is killed at its deadline: a
 * server that is slow, hangs or sends false data cannot stop the watcher.
 */

#define LOOK_NS   (5 * NS_PER_S)
#define LIST_NS   (75 * NS_PER_S)
#define GRACE_NS  (2 * NS_PER_S) /* Time beyond its own deadline that a child gets. */
#define PERIOD_MS 3000           /* Interval between checks of a server that answers. */
/* The interval for one that does not: FIRST_MS at first, doubled each time up to BACKOFF_MS. */
#define BACKOFF_MS 30000
#define FIRST_MS   500

struct watch {
    const char *address, *file;
    bool once;
    bool over;               /* Standard input or output is closed. */
    bool woken;              /* A check was requested. */
    bool asked;              /* A new list of devices was requested. */
    bool listed;             /* The devices were listed since the server last was unreachable. */
    struct server_news link; /* As it was measured with the last list. */
};

/** The result of a child, sent in one write. */
struct found {
    struct server_news news; /* As contact_look() or listing_write() set it. */
    int listing_error;       /* 0 or -errno of listing_write(); 1 if it was not called. */
};

static void watch_run_in_child(const struct watch *watch, bool list, int to)
{
    static struct found found;

    found.listing_error = 1;
    if (list)
        found.listing_error = listing_write(watch->address, watch->file, &found.news);
    else
        contact_look(watch->address, clock_now_ns() + LOOK_NS, &found.news);
    (void)!write(to, &found, sizeof(found));
}

/** Read requests from standard input; at its end, stop. */
static void watch_take_word(struct watch *watch)
{
    char words[64];
    ssize_t got = read(STDIN_FILENO, words, sizeof(words));

    watch->woken = watch->woken || got > 0;
    watch->asked = watch->asked || (got > 0 && memchr(words, 'D', (size_t)got));
    watch->over = watch->over || !got || (got < 0 && errno != EINTR && errno != EAGAIN);
}

/**
 * Wait until @fd (-1: none) is readable, at most until @deadline_ns; with @until_woken, also until
 * a check is requested. Returns true when @fd is readable.
 */
static bool watch_await(struct watch *watch, int fd, uint64_t deadline_ns, bool until_woken)
{
    while (!watch->over && !(until_woken && watch->woken)) {
        struct pollfd polls[] = {{.fd = fd, .events = POLLIN},
                                 {.fd = watch->once ? -1 : STDIN_FILENO, .events = POLLIN}};
        uint64_t now = clock_now_ns();
        if (now >= deadline_ns)
            return false;
        int count = poll(polls, 2, (int)((deadline_ns - now) / NS_PER_MS) + 1);
        if (count > 0 && polls[1].revents)
            watch_take_word(watch);
        if (count > 0 && polls[0].revents)
            return true;
    }
    return false;
}

static bool watch_run_child(struct watch *watch, bool list, struct found *ret_found)
{
    int ends[2];
    uint64_t deadline = clock_now_ns() + (list ? LIST_NS : LOOK_NS) + GRACE_NS;

    if (pipe(ends))
        return false;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            watch_run_in_child(watch, list, ends[1]);
        /* _exit() skips the exit handlers of drivers, which may hang. */
        _exit(0);
    }
    close(ends[1]);
    bool came = child > 0 && watch_await(watch, ends[0], deadline, false) &&
                read(ends[0], ret_found, sizeof(*ret_found)) == (ssize_t)sizeof(*ret_found);
    close(ends[0]);
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    return came;
}

static void watch_print(struct watch *watch, struct server_news *news)
{
    if (watch->link.round_trip_ns)
        news->round_trip_ns = watch->link.round_trip_ns;
    news->read = watch->link.read;
    news->write = watch->link.write;
    watch->over = server_news_write(news, STDOUT_FILENO) || watch->over;
}

/** True when the server answers and, except with --look, its devices were listed. */
static bool watch_look_once(struct watch *watch)
{
    static struct found found;
    struct server_news news = {.code = "silent"};

    watch->woken = false;
    snprintf(news.problem, sizeof(news.problem), "looking for it took more than %u s",
             (unsigned)(LOOK_NS / NS_PER_S));
    if (watch_run_child(watch, false, &found))
        news = found.news;
    /* A busy server is reachable, although it has no room for another session. */
    bool there = !news.code[0] || (watch->listed && !strcmp(news.code, "busy"));
    if (there && !news.code[0] && !watch->once && (watch->asked || !watch->listed)) {
        watch->asked = false;
        news.listed = watch_run_child(watch, true, &found) && !found.listing_error;
        if (news.listed) {
            watch->link = found.news;
        } else if (!watch->listed) {
            there = false;
            strcpy(news.code, "no-devices");
            strcpy(news.problem, "the server has no device for us, or could not list them "
                                 "within 75 s; its own log says more");
        }
    }
    watch->listed = there && (watch->listed || news.listed);
    if (there)
        news.code[0] = news.problem[0] = '\0';
    watch_print(watch, &news);
    return there;
}

int main(int argc, char **argv)
{
    struct watch watch = {.once = argc == 3 && !strcmp(argv[1], "--look")};

    if (argc != 4 && !watch.once) {
        fprintf(stderr, "usage: reseat-watch ADDRESS FILE DRIVER | reseat-watch --look ADDRESS\n");
        return 2;
    }
    watch.address = argv[watch.once ? 2 : 1];
    watch.file = argv[2];
    /* The agent ends this process by closing its standard input, and by exiting. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    served_set_library(watch.once ? NULL : argv[3]);
    for (uint64_t wait = FIRST_MS; !watch.over;) {
        bool there = watch_look_once(&watch);
        if (watch.once)
            break;
        (void)watch_await(&watch, -1, clock_now_ns() + (there ? PERIOD_MS : wait) * NS_PER_MS,
                          true);
        wait = there ? FIRST_MS : wait * 2 < BACKOFF_MS ? wait * 2 : BACKOFF_MS;
        /* Somebody waits for a result: retry soon instead of backing off. */
        if (watch.woken && !there)
            wait = FIRST_MS;
    }
    return 0;
}
