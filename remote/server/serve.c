#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/wire/size.h"
#include "remote/server/server.h"
#include "state/base/log.h"

/*
 * reseat-serve: listens, and has a process of its own for each client, forked before any driver is
 * opened. This one reads no byte of a client's and opens no driver, so that nothing that a client
 * or a driver does reaches another client.
 */

#define LISTEN_MAX  16
#define DEVICES_MAX 64

struct serve {
    const char *addresses[LISTEN_MAX];
    const struct link_kind *kinds[LISTEN_MAX];
    const char *where[LISTEN_MAX];
    struct pollfd polls[LISTEN_MAX + 1]; /* And signals. */
    size_t count;
    const char *devices[DEVICES_MAX];
    struct session_limits limits;
    unsigned clients, clients_max;
    sigset_t signals, before;
};

static int usage(void)
{
    fprintf(stderr, "usage: reseat-serve [--listen ADDRESS]... [--device NAME]... [--memory SIZE]\n"
                    "                    [--clients NUMBER]\n");
    return 2;
}

static bool read_arguments(int argc, char **argv, struct serve *serve)
{
    static const struct option options[] = {
        {"listen", required_argument, NULL, 'l'},
        {"device", required_argument, NULL, 'd'},
        {"memory", required_argument, NULL, 'm'},
        {"clients", required_argument, NULL, 'c'},
        {0},
    };
    char reason[128];
    char *end = NULL;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (option) {
        case 'l':
            if (serve->count == LISTEN_MAX)
                return false;
            serve->addresses[serve->count++] = optarg;
            break;
        case 'd':
            if (serve->limits.device_count == DEVICES_MAX)
                return false;
            serve->devices[serve->limits.device_count++] = optarg;
            break;
        case 'm':
            if (size_parse(optarg, &serve->limits.memory, reason, sizeof(reason))) {
                fprintf(stderr, "reseat-serve: --memory %s: %s\n", optarg, reason);
                return false;
            }
            break;
        case 'c':
            serve->clients_max = (unsigned)strtoul(optarg, &end, 10);
            if (end == optarg || *end || serve->clients_max == 0)
                return false;
            break;
        default:
            return false;
        }
    return optind == argc && serve->count != 0;
}

static int listen_all(struct serve *serve)
{
    for (size_t i = 0; i < serve->count; i++) {
        int fd = -1;
        serve->kinds[i] = link_kind_of(serve->addresses[i], &serve->where[i]);
        int error = serve->kinds[i] ? serve->kinds[i]->listen(serve->where[i], &fd) : -EINVAL;
        if (error) {
            fprintf(stderr, "reseat-serve: %s: %s\n", serve->addresses[i],
                    error == -EINVAL  ? "no address of a kind that is known"
                    : error == -EPERM ? "its folder must be yours alone (mode 0700)"
                                      : strerror(-error));
            serve->count = i;
            return error;
        }
        serve->polls[i] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    return 0;
}

static void unlisten_all(const struct serve *serve)
{
    for (size_t i = 0; i < serve->count; i++) {
        close(serve->polls[i].fd);
        if (serve->kinds[i]->unlisten)
            serve->kinds[i]->unlisten(serve->where[i]);
    }
}

static _Noreturn void become_session(struct serve *serve, const struct link_kind *kind, int fd,
                                     pid_t parent)
{
    /* A server that is gone keeps no devices. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    setpgid(0, 0);
    for (size_t i = 0; i <= serve->count; i++)
        close(serve->polls[i].fd);
    sigprocmask(SIG_SETMASK, &serve->before, NULL);
    session_run(kind, fd, &serve->limits);
}

static void take_client(struct serve *serve, size_t at)
{
    int fd = accept4(serve->polls[at].fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (serve->clients >= serve->clients_max) {
        log_warn("a client was turned away: there are %u", serve->clients);
        close(fd);
        return;
    }
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0)
        become_session(serve, serve->kinds[at], fd, parent);
    if (child < 0)
        log_warn("a client was turned away: %m");
    else
        serve->clients++;
    close(fd);
}

static void reap(struct serve *serve)
{
    int status = 0;
    for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0; serve->clients--)
        if (WIFSIGNALED(status))
            log_warn("the session in process %d crashed: %s", child, strsignal(WTERMSIG(status)));
}

/* Until it is asked to end. */
static void serve_clients(struct serve *serve)
{
    for (;;) {
        if (poll(serve->polls, serve->count + 1, -1) < 0 && errno != EINTR)
            return;
        for (size_t i = 0; i < serve->count; i++)
            if (serve->polls[i].revents)
                take_client(serve, i);
        if (serve->polls[serve->count].revents) {
            struct signalfd_siginfo info;
            if (read(serve->polls[serve->count].fd, &info, sizeof(info)) != sizeof(info))
                continue;
            if (info.ssi_signo != SIGCHLD)
                return;
            reap(serve);
        }
    }
}

int main(int argc, char **argv)
{
    struct serve serve = {.clients_max = 256};
    serve.limits.devices = serve.devices;
    if (!read_arguments(argc, argv, &serve))
        return usage();
    sigemptyset(&serve.signals);
    sigaddset(&serve.signals, SIGCHLD);
    sigaddset(&serve.signals, SIGTERM);
    sigaddset(&serve.signals, SIGINT);
    sigprocmask(SIG_BLOCK, &serve.signals, &serve.before);
    int signals = signalfd(-1, &serve.signals, SFD_CLOEXEC);
    int error = signals < 0 ? -errno : listen_all(&serve);
    serve.polls[serve.count] = (struct pollfd){.fd = signals, .events = POLLIN};
    if (error == 0) {
        printf("reseat-serve: ready\n");
        fflush(stdout);
        serve_clients(&serve);
    }
    unlisten_all(&serve);
    return error ? 1 : 0;
}
