#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/wire/size.h"
#include "remote/link/tls.h"
#include "remote/server/announce.h"
#include "remote/server/authority.h"
#include "remote/server/channel.h"
#include "remote/server/clients.h"
#include "remote/server/server.h"
#include "state/base/clock.h"
#include "state/base/log.h"

/*
 * reseat-serve: listens, and has a process of its own for each client, forked before any driver is
 * opened. This one reads no byte of a client's and opens no driver, so that nothing that a client
 * or a driver does reaches another client.
 */

#define LISTEN_MAX   16
#define DEVICES_MAX  64
#define LINGER_MAX_S 86400
/* Where it is asked to end with a process, and that one ended without a client. */
#define LOOK_MS 1000
/* That this process needs beside those of clients, listening, and libraries. */
#define OTHER_DESCRIPTORS 64
#define CLIENTS_MAX       65536
/* Sessions wait so long for another link, and never longer than a week. */
#define PATIENCE_S     60
#define PATIENCE_MAX_S (7 * 24 * 3600)

struct serve {
    const char *addresses[LISTEN_MAX];
    const struct link_kind *kinds[LISTEN_MAX];
    const char *where[LISTEN_MAX];
    struct pollfd
        polls[LISTEN_MAX + 1 + CLIENTS_STRANGERS_MAX]; /* Then signals, and who asks to come in. */
    size_t count;
    const char *devices[DEVICES_MAX];
    struct session_limits limits;
    struct clients clients;
    sigset_t signals, before;
    struct rlimit descriptors; /* As it was. */
    /* What the command line says. */
    const char *memory;
    uint64_t clients_max, linger_s, inherited, of_process;
    int process; /* A pidfd of that one; -1: none. */
    bool announces;
    struct authority_options authority;
};

static int usage(void)
{
    fprintf(stderr, "usage: reseat-serve [--ca FOLDER] [--listen ADDRESS]... [--device NAME]...\n"
                    "                    [--memory SIZE] [--clients NUMBER] [--patience SECONDS]\n"
                    "                    [--linger SECONDS] [--inherit DESCRIPTOR] [--while "
                    "PROCESS] [--announce]\n"
                    "       reseat-serve [--ca FOLDER] --init-ca [--name NAME]\n"
                    "       reseat-serve [--ca FOLDER] --issue NAME [--out FILE] [--days NUMBER]\n"
                    "                    [--devices LIST] [--memory SIZE] [--sessions NUMBER] "
                    "[--for-server]\n"
                    "       reseat-serve [--ca FOLDER] --revoke NAME\n");
    return 2;
}

enum {
    LISTEN = 1,
    DEVICE,
    PATIENCE,
    MEMORY,
    CLIENTS,
    CA,
    INIT,
    NAME,
    ISSUE,
    FOR_SERVER,
    DEVICES,
    SESSIONS,
    DAYS,
    OUT,
    REVOKE,
    LINGER,
    INHERIT,
    WHILE,
    ANNOUNCE
};

static const struct option rows[] = {
    {"listen", required_argument, NULL, LISTEN},
    {"device", required_argument, NULL, DEVICE},
    {"memory", required_argument, NULL, MEMORY},
    {"clients", required_argument, NULL, CLIENTS},
    {"patience", required_argument, NULL, PATIENCE},
    {"ca", required_argument, NULL, CA},
    {"init-ca", no_argument, NULL, INIT},
    {"name", required_argument, NULL, NAME},
    {"issue", required_argument, NULL, ISSUE},
    {"for-server", no_argument, NULL, FOR_SERVER},
    {"devices", required_argument, NULL, DEVICES},
    {"sessions", required_argument, NULL, SESSIONS},
    {"days", required_argument, NULL, DAYS},
    {"out", required_argument, NULL, OUT},
    {"revoke", required_argument, NULL, REVOKE},
    {"linger", required_argument, NULL, LINGER},
    {"inherit", required_argument, NULL, INHERIT},
    {"while", required_argument, NULL, WHILE},
    {"announce", no_argument, NULL, ANNOUNCE},
    {NULL},
};

/* A number from 0 to @most. */
static bool read_any_number(const char *text, uint64_t most, uint64_t *ret_number)
{
    char *end = NULL;
    errno = 0;
    *ret_number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && errno == 0 && *ret_number <= most;
}

static bool read_number(const char *text, uint64_t most, uint64_t *ret_number)
{
    return read_any_number(text, most, ret_number) && *ret_number;
}

static bool take(struct serve *serve, int which)
{
    struct authority_options *authority = &serve->authority;
    const char **const texts[] = {
        [MEMORY] = &serve->memory,       [CA] = &authority->ca,   [NAME] = &authority->name,
        [ISSUE] = &authority->issue,     [OUT] = &authority->out, [REVOKE] = &authority->revoke,
        [DEVICES] = &authority->devices,
    };
    uint64_t number = 0;
    switch (which) {
    case LISTEN:
        if (serve->count == LISTEN_MAX)
            return false;
        serve->addresses[serve->count++] = optarg;
        return true;
    case DEVICE:
        if (serve->limits.device_count == DEVICES_MAX)
            return false;
        serve->devices[serve->limits.device_count++] = optarg;
        return true;
    case CLIENTS:
        return read_number(optarg, CLIENTS_MAX, &serve->clients_max);
    case LINGER:
        return read_number(optarg, LINGER_MAX_S, &serve->linger_s);
    case INHERIT:
        return read_number(optarg, INT_MAX, &serve->inherited);
    case WHILE:
        return read_number(optarg, INT_MAX, &serve->of_process);
    case PATIENCE:
        if (!read_any_number(optarg, PATIENCE_MAX_S, &number))
            return false;
        serve->limits.patience_s = (uint32_t)number;
        return true;
    case SESSIONS:
        return read_number(optarg, AUTHORITY_SESSIONS_MAX, &authority->sessions);
    case DAYS:
        return read_number(optarg, AUTHORITY_DAYS_MAX, &authority->days);
    case ANNOUNCE:
        return serve->announces = true;
    case INIT:
        return authority->init = true;
    case FOR_SERVER:
        return authority->for_server = true;
    default:
        if (which < 0 || (size_t)which >= ARRAY_SIZE(texts) || !texts[which])
            return false;
        *texts[which] = optarg;
        return true;
    }
}

static bool read_arguments(int argc, char **argv, struct serve *serve)
{
    char reason[128];
    for (int which; (which = getopt_long(argc, argv, "", rows, NULL)) != -1;)
        if (!take(serve, which))
            return false;
    struct authority_options *authority = &serve->authority;
    bool of_authority = authority->name || authority->for_server || authority->devices ||
                        authority->sessions || authority->days || authority->out;
    if (authority_is_asked(authority)) {
        authority->memory = serve->memory;
        return optind == argc && !serve->count && !serve->limits.device_count && !serve->announces;
    }
    if (serve->memory && size_parse(serve->memory, &serve->limits.memory, reason, sizeof(reason))) {
        fprintf(stderr, "reseat-serve: --memory %s: %s\n", serve->memory, reason);
        return false;
    }
    return optind == argc && (serve->count || serve->inherited) && !of_authority;
}

static int run_authority(const struct authority_options *options)
{
    char text[AUTHORITY_TEXT_MAX];
    int error = authority_run(options, text);
    fprintf(error ? stderr : stdout, "%s%s\n", error ? "reseat-serve: " : "", text);
    return error == 0 ? 0 : error == -EINVAL ? 2 : 1;
}

/* Before anybody listens: a server that cannot look at certificates lets nobody in. */
static int open_authority(const struct serve *serve)
{
    char folder[PATH_MAX], problem[FOLDER_PROBLEM_MAX];
    const char *where = NULL;
    bool needed = false;
    for (size_t i = 0; i < serve->count; i++) {
        const struct link_kind *kind = link_kind_of(serve->addresses[i], &where);
        needed |= kind && kind->anyone;
    }
    if (!needed)
        return 0;
    int error = ca_folder(serve->authority.ca, folder);
    if (error)
        snprintf(problem, sizeof(problem), "the authority's folder: %s", strerror(-error));
    error = error ? error : tls_server_open(folder, problem);
    if (error)
        fprintf(stderr, "reseat-serve: %s\n", problem);
    return error;
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

/* Whoever started it listens, and wants it to take who connects: a Unix socket in a folder of its
   user's alone, as those of ours are. */
static int listen_inherited(struct serve *serve)
{
    int fd = (int)serve->inherited, domain = 0;
    socklen_t size = sizeof(domain);
    if (!fd)
        return 0;
    if (serve->count == LISTEN_MAX || fcntl(fd, F_SETFD, FD_CLOEXEC) ||
        getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) || domain != AF_UNIX) {
        fprintf(stderr, "reseat-serve: --inherit %d: no Unix socket\n", fd);
        return -EINVAL;
    }
    serve->kinds[serve->count] = &link_unix;
    serve->polls[serve->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
    return 0;
}

static void unlisten_all(const struct serve *serve)
{
    for (size_t i = 0; i < serve->count; i++) {
        close(serve->polls[i].fd);
        if (serve->kinds[i]->unlisten && serve->where[i])
            serve->kinds[i]->unlisten(serve->where[i]);
    }
}

static _Noreturn void become_session(struct serve *serve, size_t at, int fd, int channel,
                                     pid_t parent)
{
    /* A server that is gone keeps no devices. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    setpgid(0, 0);
    for (size_t i = 0; i <= serve->count; i++)
        close(serve->polls[i].fd);
    clients_close(&serve->clients);
    (void)setrlimit(RLIMIT_NOFILE, &serve->descriptors);
    sigprocmask(SIG_SETMASK, &serve->before, NULL);
    session_run(serve->kinds[at], fd, channel, &serve->limits);
}

/* A process that finds out who it is. @id: at the door; 0: who is of this user already. */
static void take_stranger(struct serve *serve, size_t at, int fd, uint64_t id)
{
    int channel[2];
    int error = channel_make(channel);
    if (error) {
        log_warn("a stranger was turned away: %s", strerror(-error));
        clients_forked(&serve->clients, id, -1, -1);
        return;
    }
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        close(channel[0]);
        become_session(serve, at, fd, channel[1], parent);
    }
    if (child < 0)
        log_warn("a stranger was turned away: %m");
    close(channel[1]);
    clients_forked(&serve->clients, id, child, channel[0]);
}

static void take_connection(struct serve *serve, size_t at)
{
    union {
        struct sockaddr any;
        struct sockaddr_storage room;
    } from = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t length = sizeof(from);
    int fd = accept4(serve->polls[at].fd, &from.any, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    uint64_t id = 0;
    if (serve->kinds[at]->anyone && clients_enter(&serve->clients, &from.any, clock_now_ns(), &id))
        log_warn("a stranger was turned away: there are too many at the door");
    else
        take_stranger(serve, at, fd, id);
    close(fd);
}

static void reap(struct serve *serve)
{
    int status = 0;
    for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0;)
        if (clients_ended(&serve->clients, child) && WIFSIGNALED(status))
            log_warn("the session in process %d crashed: %s", child, strsignal(WTERMSIG(status)));
}

/* How long to wait for somebody: without a client no longer than it is to linger, or until the
   process has ended that it is for. -1: for ever. */
static int idle_ms(const struct serve *serve)
{
    if (serve->clients.count || serve->clients.stranger_count)
        return -1;
    return serve->process >= 0 ? LOOK_MS : serve->linger_s ? (int)serve->linger_s * 1000 : -1;
}

/* Nobody came. */
static bool is_over(const struct serve *serve)
{
    struct pollfd process = {.fd = serve->process, .events = POLLIN};
    return serve->process < 0 || poll(&process, 1, 0) > 0;
}

/* Until it is asked to end, or nobody needs it. */
static void serve_clients(struct serve *serve)
{
    struct pollfd *asking = &serve->polls[serve->count + 1];
    for (;;) {
        size_t count = clients_poll(&serve->clients, asking);
        /* Those who find no room wait in the kernel. */
        bool room = clients_have_room_for_local(&serve->clients);
        for (size_t i = 0; i < serve->count; i++)
            serve->polls[i].events = serve->kinds[i]->anyone || room ? POLLIN : 0;
        int ready = poll(serve->polls, serve->count + 1 + count, idle_ms(serve));
        if (ready < 0) {
            if (errno != EINTR)
                return;
            continue;
        }
        if (ready == 0 && is_over(serve))
            return;
        /* Nobody comes or goes between poll() and this. */
        clients_answer(&serve->clients, asking, count);
        for (size_t i = 0; i < serve->count; i++)
            if (serve->polls[i].revents & serve->polls[i].events)
                take_connection(serve, i);
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

/* Each client has a descriptor here. */
static void allow_descriptors(struct serve *serve)
{
    rlim_t needed = serve->clients_max + CLIENTS_STRANGERS_MAX + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &serve->descriptors) || serve->descriptors.rlim_cur >= needed)
        return;
    struct rlimit limit = serve->descriptors;
    limit.rlim_cur = needed < limit.rlim_max ? needed : limit.rlim_max;
    if (limit.rlim_cur < needed || setrlimit(RLIMIT_NOFILE, &limit))
        log_warn("there may be fewer clients than %lu: ulimit -n is too low", serve->clients_max);
}

int main(int argc, char **argv)
{
    struct serve serve = {.clients_max = 256, .process = -1, .limits.patience_s = PATIENCE_S};
    serve.limits.devices = serve.devices;
    if (!read_arguments(argc, argv, &serve))
        return usage();
    if (authority_is_asked(&serve.authority))
        return run_authority(&serve.authority);
    if (clients_init(&serve.clients, (unsigned)serve.clients_max) || open_authority(&serve))
        return 1;
    allow_descriptors(&serve);
    sigemptyset(&serve.signals);
    sigaddset(&serve.signals, SIGCHLD);
    sigaddset(&serve.signals, SIGTERM);
    sigaddset(&serve.signals, SIGINT);
    sigprocmask(SIG_BLOCK, &serve.signals, &serve.before);
    int signals = signalfd(-1, &serve.signals, SFD_CLOEXEC);
    int error = signals < 0 ? -errno : listen_all(&serve);
    if (error == 0)
        error = listen_inherited(&serve);
    if (error == 0 && serve.of_process) {
        serve.process = (int)syscall(SYS_pidfd_open, (pid_t)serve.of_process, 0);
        error = serve.process < 0 ? -errno : 0;
    }
    serve.polls[serve.count] = (struct pollfd){.fd = signals, .events = POLLIN};
    if (error == 0) {
        for (size_t i = 0; serve.announces && i < serve.count; i++)
            if (serve.kinds[i]->anyone)
                announce(serve.where[i], &serve.before);
        printf("reseat-serve: ready\n");
        fflush(stdout);
        serve_clients(&serve);
    }
    unlisten_all(&serve);
    return error ? 1 : 0;
}
