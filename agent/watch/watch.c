#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/protocol/protocol.h"
#include "agent/watch/contact.h"
#include "agent/watch/listing.h"
#include "state/base/clock.h"
#include "state/driver/served.h"

/*
 * reseat-watch ADDRESS FILE DRIVER: watch one device server for the agent. After each check it
 * writes a frame (agent/protocol/protocol.h, MSG_SERVER) to standard output. When the frame says
 * that the devices were listed, FILE has the new list. On standard input, "L" requests a check now
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
    bool over;   /* Standard input or output is closed. */
    bool woken;  /* A check was requested. */
    bool asked;  /* A new list of devices was requested. */
    bool listed; /* The devices were listed since the server last was unreachable. */
    struct listing listing;
};

/** The result of a child, sent in one write. */
struct found {
    struct contact contact;
    struct listing listing;
    int listing_error; /* 0 or -errno of listing_make(); 1 if it was not called. */
};

static void watch_run_in_child(const struct watch *watch, bool list, int to)
{
    static struct found found;

    found.listing_error = 1;
    if (list)
        found.listing_error = listing_make(watch->address, watch->file, &found.listing);
    else
        contact_look(watch->address, clock_now_ns() + LOOK_NS, &found.contact);
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

static void watch_tell(struct watch *watch, const struct contact *contact, bool listed)
{
    struct frame frame;

    frame_init(&frame, MSG_SERVER);
    frame_string(&frame, "code", contact->code);
    frame_string(&frame, "problem", contact->problem);
    frame_u64(&frame, "round_trip_ns",
              watch->listing.round_trip_ns ? watch->listing.round_trip_ns : contact->round_trip_ns);
    frame_bool(&frame, "listed", listed);
    frame_u64(&frame, "read", watch->listing.read);
    frame_u64(&frame, "write", watch->listing.write);
    int error = frame_seal(&frame);
    for (size_t sent = 0; !error && !watch->over && sent < frame.buffer.size;) {
        ssize_t put = write(STDOUT_FILENO, frame.buffer.data + sent, frame.buffer.size - sent);
        if (put >= 0)
            sent += (size_t)put;
        else if (errno != EINTR)
            watch->over = true;
    }
    frame_finish(&frame);
}

/** True when the server answers and, except with --look, its devices were listed. */
static bool watch_look_once(struct watch *watch)
{
    static struct found found;
    bool listed = false;

    watch->woken = false;
    if (!watch_run_child(watch, false, &found)) {
        found.contact = (struct contact){.code = "silent"};
        snprintf(found.contact.problem, sizeof(found.contact.problem),
                 "looking for it took more than %u s", (unsigned)(LOOK_NS / NS_PER_S));
    }
    /* A busy server is reachable, although it has no room for another session. */
    struct contact contact = found.contact;
    bool there = !contact.code[0] || (watch->listed && !strcmp(contact.code, "busy"));
    if (there && !contact.code[0] && !watch->once && (watch->asked || !watch->listed)) {
        watch->asked = false;
        listed = watch_run_child(watch, true, &found) && !found.listing_error;
        if (listed) {
            watch->listing = found.listing;
        } else if (!watch->listed) {
            there = false;
            strcpy(contact.code, "no-devices");
            strcpy(contact.problem, "the server has no device for us, or could not list them "
                                    "within 75 s; its own log says more");
        }
    }
    watch->listed = there && (watch->listed || listed);
    if (there)
        contact.code[0] = contact.problem[0] = '\0';
    watch_tell(watch, &contact, listed);
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
