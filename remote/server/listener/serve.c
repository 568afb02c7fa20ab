#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "remote/link/tls.h"
#include "remote/server/listener/channel.h"
#include "remote/server/listener/clients.h"
#include "remote/server/listener/listener.h"
#include "remote/server/listener/serve.h"
#include "remote/server/session/sandbox.h"
#include "state/base/clock.h"
#include "state/base/files/file.h"
#include "state/base/log.h"

/*
 * reseat-serve: listens, and executes a process for each connection. The listening process itself
 * reads nothing that a client sends and opens no driver, so a client or a driver can only harm its
 * own session. It decides how much device memory each session may use, and which has the time slice
 * (clients.h).
 */

/* Descriptors that this process needs beside those for clients: listeners, libraries. */
#define OTHER_DESCRIPTORS 64
/* How long a session waits for its client to reconnect. */
#define PATIENCE_S 60
/* How often a server without clients checks whether the process of --while has ended. */
#define LOOK_NS NS_PER_S
/* How long to wait before the helper that serves metrics is started again. */
#define METRICS_NS (2 * NS_PER_S)
/* How long to wait when a connection cannot be accepted for want of descriptors or memory. */
#define FULL_NS (100 * NS_PER_MS)
/* Connections that may write to the log: a peer that connects again and again must not fill a disk.
 */
static const struct rate_limit logged = {.burst = 100, .refill = 1, .every_ns = NS_PER_S};

struct serve {
    struct serve_options options;
    const struct link_kind *kinds[LISTEN_MAX];
    const char *where[LISTEN_MAX];
    struct pollfd *polls; /* Listeners, then signals, logs, operators, and clients. */
    size_t count;
    struct devices devices;
    struct clients clients;
    struct operators operators;
    struct reaper reaper;
    struct session_logs logs;
    struct startup startup; /* For the next process that is started. */
    sigset_t signals, before;
    int process;          /* A pidfd of the process of --while; -1: none. */
    pid_t metrics;        /* The helper that serves metrics; 0: none was started. */
    uint64_t metrics_ns;  /* When it is started again; UINT64_MAX: it runs, or will not. */
    uint64_t full_ns;     /* No connection is accepted before: there was no descriptor for it. */
    uint64_t needed_ns;   /* When it last had a client; at first, when it started. */
    struct rate log_rate; /* Limits the connections that are logged. */
};

/* May events of the connection that was just accepted be logged? */
static bool serve_may_log(struct serve *serve)
{
    if (!rate_take(&serve->log_rate, &logged, clock_now_ns()))
        return false;
    if (serve->log_rate.refused)
        log_warn("%lu connections were not logged: there were too many", serve->log_rate.refused);
    serve->log_rate.refused = 0;
    return true;
}

struct revoking {
    struct operator_request request;
    uint32_t ended;
};

static bool serve_revoke_at(void *data, int fd, const struct operator_answer *server)
{
    struct revoking *revoking = data;
    struct operator_answer answer;
    (void)server;
    if (!operator_ask(fd, &revoking->request, &answer) && !answer.error)
        revoking->ended += answer.count;
    return true;
}

/* Running servers check the list of revoked certificates at each connection. Tell them to end
 * sessions that already exist. */
static void serve_end_revoked(const struct authority_options *options)
{
    struct revoking revoking = {.request = {.version = OPERATOR_VERSION, .what = OPERATOR_REVOKED}};
    char folder[PATH_MAX], problem[FOLDER_PROBLEM_MAX];
    int error = ca_folder(options->ca, folder);
    if (error == 0 && !realpath(folder, revoking.request.ca))
        error = -errno;
    snprintf(problem, sizeof(problem), "%s", strerror(-error));
    snprintf(revoking.request.name, sizeof(revoking.request.name), "%s", options->revoke);
    if (error == 0)
        error = operator_servers(serve_revoke_at, &revoking, problem);
    if (error)
        fprintf(stderr, "reseat-serve: its present sessions could not be ended: %s\n", problem);
    else if (revoking.ended)
        printf("%u of its sessions were ended.\n", revoking.ended);
}

static int serve_run_authority(const struct authority_options *options)
{
    char text[AUTHORITY_TEXT_MAX];
    int error = authority_run(options, text);
    fprintf(error ? stderr : stdout, "%s%s\n", error ? "reseat-serve: " : "", text);
    if (error == 0 && options->revoke)
        serve_end_revoked(options);
    return error == 0 ? 0 : error == -EINVAL ? 2 : 1;
}

/* Clients' code must not run as root. A root server that cannot start sessions as another user does
 * not serve strangers. */
static int serve_check_root(const struct serve *serve)
{
    int error = geteuid() || serve->options.limits.open ? 0 : sandbox_try();
    if (error)
        fprintf(stderr,
                "reseat-serve: sessions can only run as root here (%s): start the server as an "
                "ordinary user, or with --no-sandbox\n",
                strerror(-error));
    return error;
}

/* Before anyone can connect: a server that cannot check certificates admits nobody. */
static int serve_open_authority(struct serve *serve)
{
    char folder[PATH_MAX], problem[FOLDER_PROBLEM_MAX];
    const char *where = NULL;
    bool needed = false;
    for (size_t i = 0; i < serve->options.count; i++) {
        const struct link_kind *kind = link_kind_of(serve->options.addresses[i], &where);
        needed |= kind && kind->anyone;
    }
    if (!needed)
        return 0;
    int error = ca_folder(serve->options.authority.ca, folder);
    if (error)
        snprintf(problem, sizeof(problem), "the authority's folder: %s", strerror(-error));
    error = error ? error : tls_server_open(folder, problem);
    if (error == 0 && !realpath(folder, serve->options.limits.authority))
        error = -errno;
    if (error)
        fprintf(stderr, "reseat-serve: %s%s\n", problem,
                error == -ENOENT ? "; make an authority first: reseat serve --init-ca, or name the "
                                   "folder of one with --ca"
                                 : "");
    return error ? error : serve_check_root(serve);
}

static int serve_listen_all(struct serve *serve)
{
    for (size_t i = 0; i < serve->options.count; i++) {
        int fd = -1;
        serve->kinds[i] = link_kind_of(serve->options.addresses[i], &serve->where[i]);
        int error = serve->kinds[i] ? serve->kinds[i]->listen(serve->where[i], &fd) : -EINVAL;
        if (error) {
            fprintf(stderr, "reseat-serve: %s: %s\n", serve->options.addresses[i],
                    error == -EINVAL  ? "not a valid address"
                    : error == -EPERM ? "its folder must be yours alone (mode 0700)"
                                      : strerror(-error));
            return error;
        }
        serve->count = i + 1;
        serve->polls[i] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    return 0;
}

/* A socket on which another process listens, and whose connections this server accepts. It must be
 * a Unix socket, whose folder is the user's alone, as with our own. */
static int serve_listen_inherited(struct serve *serve)
{
    int fd = (int)serve->options.inherited, domain = 0;
    socklen_t size = sizeof(domain);
    if (!fd)
        return 0;
    if (serve->count == LISTEN_MAX || fcntl(fd, F_SETFD, FD_CLOEXEC) ||
        getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) || domain != AF_UNIX) {
        fprintf(stderr, "reseat-serve: --inherit %d: not a Unix socket\n", fd);
        return -EINVAL;
    }
    serve->kinds[serve->count] = &link_unix;
    serve->polls[serve->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
    return 0;
}

static int serve_find_process(struct serve *serve)
{
    serve->needed_ns = clock_now_ns();
    if (!serve->options.of_process)
        return 0;
    serve->process = pidfd_open((pid_t)serve->options.of_process, 0);
    if (serve->process >= 0)
        return 0;
    fprintf(stderr, "reseat-serve: --while %lu: %m\n", serve->options.of_process);
    return -errno;
}

/* A helper, which is installed beside this program. */
static int serve_find_helper(const char *name, char ret_path[PATH_MAX])
{
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);

    if (length <= 0)
        return -ENOENT;
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    if (snprintf(ret_path, PATH_MAX, "%s/%s", own, name) >= PATH_MAX)
        return -ENAMETOOLONG;
    return access(ret_path, X_OK) ? -errno : 0;
}

/* Start the helper that @words begin with, whose standard input is @input, and wait until it is
 * executed. It ends when that ends, so with this process. Returns its process id or -errno. */
static pid_t serve_help(const char *const *words, int input, const sigset_t *mask)
{
    char helper[PATH_MAX];
    int failed[2], error = serve_find_helper(words[0], helper);

    if (error || pipe2(failed, O_CLOEXEC))
        return error ? error : -errno;
    pid_t child = fork();
    if (child == 0) {
        sigprocmask(SIG_SETMASK, mask, NULL);
        dup2(input, STDIN_FILENO);
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execv(helper, (char *const *)words);
        error = -errno;
        _exit(write(failed[1], &error, sizeof(error)) < 0 ? 127 : 126);
    }
    error = child < 0 ? -errno : 0;
    close(failed[1]);
    if (child > 0 && read(failed[0], &error, sizeof(error)) != sizeof(error))
        error = 0;
    close(failed[0]);
    return error ? error : child;
}

/* Have the server at @where ("HOST:PORT") announced. A failure does not matter to clients that know
 * the address. */
static void serve_announce(const char *where, const sigset_t *mask)
{
    const char *port = strrchr(where, ':');
    char name[HOST_NAME_MAX + 1] = "";
    int ends[2] = {-1, -1};
    int error = !port                                 ? -EINVAL
                : gethostname(name, sizeof(name) - 1) ? -errno
                : pipe2(ends, O_CLOEXEC)              ? -errno
                                                      : 0;

    if (!error)
        error = serve_help((const char *[]){"reseat-mdns", "announce", name, port + 1, NULL},
                           ends[0], mask);
    if (error < 0)
        fprintf(stderr, "reseat-serve: not announced: %s\n",
                error == -ENOENT ? "reseat-mdns is not installed beside this program"
                                 : strerror(-error));
    if (ends[0] >= 0)
        close(ends[0]);
    /* The write end is kept open on purpose: the helper ends when it reads the end of the pipe. */
}

/* Have metrics served. The helper asks as operators do, so this process reads nothing that scrapers
 * send. */
static void serve_metrics(struct serve *serve)
{
    char port[16];
    const char *words[] = {"reseat-serve-metrics", port, serve->options.metrics, NULL};
    int end = -1,
        error = serve->options.limits.isolates ? 0 : operators_add(&serve->operators, &end);

    serve->metrics = 0;
    serve->metrics_ns = UINT64_MAX;
    snprintf(port, sizeof(port), "%lu", serve->options.metrics_port);
    if (end >= 0) {
        error = serve->metrics = serve_help(words, end, &serve->before);
        close(end);
    }
    if (error == -EBUSY)
        serve->metrics_ns = clock_now_ns() + METRICS_NS;
    else if (error < 0)
        log_warn("no metrics are served: %s",
                 error == -ENOENT ? "reseat-serve-metrics is not installed beside this program"
                                  : strerror(-error));
}

static void serve_unlisten_all(const struct serve *serve)
{
    for (size_t i = 0; i < serve->count; i++) {
        close(serve->polls[i].fd);
        if (serve->kinds[i]->unlisten && serve->where[i])
            serve->kinds[i]->unlisten(serve->where[i]);
    }
}

/* Start a process for a connection of a kind of link, or, with NULL, one that connects for a
 * session. Returns its process id or -errno. */
static pid_t serve_start(struct serve *serve, const struct link_kind *kind, int fd, int channel)
{
    struct session_log *log = NULL;
    int writes = -1, error = session_log_make(&serve->logs, &log, &writes);
    if (error)
        return error;
    snprintf(serve->startup.scheme, sizeof(serve->startup.scheme), "%s%s", kind ? kind->scheme : "",
             kind ? ":" : "");
    serve->startup.logs = serve_may_log(serve);
    pid_t child = spawn_session(&serve->startup, fd, channel, writes,
                                !serve->options.limits.isolates, &serve->before);
    session_log_began(&serve->logs, log, child);
    close(writes);
    if (child > 0)
        reaper_began(&serve->reaper, child);
    return child;
}

static pid_t serve_start_connector(void *data, int socket)
{
    return serve_start(data, NULL, socket, -1);
}

/* Start the process that authenticates a connection. @id: of clients_enter(); 0: a process of the
 * server's own user. */
static void serve_take_stranger(struct serve *serve, size_t at, int fd, uint64_t id)
{
    int channel[2] = {-1, -1}, error = channel_make(channel);
    pid_t child = error ? error : serve_start(serve, serve->kinds[at], fd, channel[1]);
    if (child < 0 && serve_may_log(serve))
        log_warn("a connection was refused: %s", strerror(-child));
    if (channel[1] >= 0)
        close(channel[1]);
    clients_forked(&serve->clients, id, child < 0 ? -1 : child, channel[0]);
}

static void serve_take_connection(struct serve *serve, size_t at)
{
    union {
        struct sockaddr any;
        struct sockaddr_storage room;
    } from = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t length = sizeof(from);
    int fd = accept4(serve->polls[at].fd, &from.any, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            serve->full_ns = clock_now_ns() + FULL_NS;
        return;
    }
    uint64_t id = 0;
    if (serve->kinds[at]->anyone &&
        clients_enter(&serve->clients, &from.any, clock_now_ns(), &id)) {
        serve->clients.refused++;
        if (serve_may_log(serve))
            log_warn("a connection was refused: too many are not authenticated yet");
    } else {
        serve_take_stranger(serve, at, fd, id);
    }
    close(fd);
}

static void serve_reap(struct serve *serve)
{
    /* Until waitpid(), the process id and its group cannot be reused. */
    for (siginfo_t info = {0};
         waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid;
         info = (siginfo_t){0}) {
        int status = 0;
        bool reaper = info.si_pid == serve->reaper.pid;
        bool session = !reaper && clients_ended(&serve->clients, info.si_pid);
        if (!reaper)
            reaper_ended(&serve->reaper, info.si_pid);
        session_log_ended(&serve->logs, info.si_pid);
        if (waitpid(info.si_pid, &status, 0) == info.si_pid && session && WIFSIGNALED(status)) {
            serve->clients.crashed++;
            log_warn("the session in process %d crashed: %s", info.si_pid,
                     strsignal(WTERMSIG(status)));
        }
        if (reaper)
            reaper_start(&serve->reaper, &serve->clients);
        if (info.si_pid == serve->metrics && WIFSIGNALED(status)) {
            serve->metrics_ns = clock_now_ns() + METRICS_NS;
            log_warn("what serves metrics crashed (%s), and is started again",
                     strsignal(WTERMSIG(status)));
        }
    }
}

/* Wait until a descriptor is ready or @until_ns has come. */
static int serve_wait_for_any(struct serve *serve, size_t count, uint64_t until_ns)
{
    uint64_t now_ns = clock_now_ns();
    struct timespec left = clock_timespec(until_ns > now_ns ? until_ns - now_ns : 0);
    return ppoll(serve->polls, count, until_ns == UINT64_MAX ? NULL : &left, NULL);
}

/* When to check whether the server is still needed; UINT64_MAX: it has clients. */
static uint64_t serve_look_ns(struct serve *serve, uint64_t now_ns)
{
    if (serve->clients.count || serve->clients.stranger_count) {
        serve->needed_ns = now_ns;
        return UINT64_MAX;
    }
    uint64_t linger_s = serve->options.linger_s;
    uint64_t over_ns = linger_s ? serve->needed_ns + linger_s * NS_PER_S : UINT64_MAX;
    return serve->process >= 0 && now_ns + LOOK_NS < over_ns ? now_ns + LOOK_NS : over_ns;
}

/* May the server end, now that it has no clients? */
static bool serve_is_over(const struct serve *serve)
{
    struct pollfd process = {.fd = serve->process, .events = POLLIN};
    if (serve->process >= 0 && poll(&process, 1, 0) > 0)
        return true;
    return serve->options.linger_s &&
           clock_now_ns() >= serve->needed_ns + serve->options.linger_s * NS_PER_S;
}

/* What is waited for, in the order of `polls`: connections at each address, signals, logs,
 * operators and clients. */
struct serve_round {
    struct pollfd *logs, *operators, *clients;
    size_t operator_count, client_count;
    uint64_t next_ns, over_ns; /* when something is due; when serve_is_over() is to be asked */
};

static uint64_t serve_earlier(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* Do what is due, and note what is waited for. */
static void serve_begin_round(struct serve *serve, struct serve_round *round)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t clients_ns = clients_tick(&serve->clients, now_ns, time(NULL));
    round->next_ns = serve_earlier(clients_ns, session_logs_tick(&serve->logs, now_ns));
    round->over_ns = serve_look_ns(serve, now_ns);
    if (now_ns >= serve->metrics_ns)
        serve_metrics(serve);
    round->next_ns = serve_earlier(round->next_ns, serve->metrics_ns);
    /* A connection for which there is no room is not accepted; it waits in the kernel's backlog. */
    bool accepts = now_ns >= serve->full_ns;
    bool local = accepts && clients_have_room_for_local(&serve->clients);
    if (!accepts)
        round->next_ns = serve_earlier(round->next_ns, serve->full_ns);
    for (size_t i = 0; i < serve->count; i++)
        serve->polls[i].events = (serve->kinds[i]->anyone ? accepts : local) ? POLLIN : 0;
    round->logs = &serve->polls[serve->count + 1];
    *round->logs = (struct pollfd){.fd = serve->logs.poll, .events = POLLIN};
    round->operators = round->logs + 1;
    round->operator_count = operators_poll(&serve->operators, round->operators);
    round->clients = round->operators + round->operator_count;
    round->client_count = clients_poll(&serve->clients, clock_now_ns(), round->clients);
}

/* True when a signal ends the server. */
static bool serve_take_signal(struct serve *serve)
{
    struct signalfd_siginfo info;
    if (read(serve->polls[serve->count].fd, &info, sizeof(info)) != sizeof(info))
        return false;
    if (info.ssi_signo != SIGCHLD)
        return true;
    serve_reap(serve);
    return false;
}

/* Answer all that became ready. True when a signal ends the server. */
static bool serve_answer(struct serve *serve, const struct serve_round *round)
{
    if (round->logs->revents)
        session_logs_read(&serve->logs, clock_now_ns());
    /* Valid only before anything below adds or removes an entry: the indexes are those of the poll.
     */
    clients_answer(&serve->clients, round->clients, round->client_count, clock_now_ns());
    operators_answer(&serve->operators, round->operators, round->operator_count, clock_now_ns());
    for (size_t i = 0; i < serve->count; i++)
        if (serve->polls[i].revents & serve->polls[i].events)
            serve_take_connection(serve, i);
    return serve->polls[serve->count].revents && serve_take_signal(serve);
}

/* Serve until a signal ends it, or serve_is_over(). */
static void serve_clients(struct serve *serve)
{
    for (;;) {
        struct serve_round round;
        serve_begin_round(serve, &round);
        size_t count = serve->count + 2 + round.operator_count + round.client_count;
        int ready = serve_wait_for_any(serve, count, serve_earlier(round.next_ns, round.over_ns));
        if (ready < 0 && errno == EINTR)
            continue;
        bool over = ready == 0 && round.over_ns != UINT64_MAX && serve_is_over(serve);
        if (ready < 0 || over || serve_answer(serve, &round))
            return;
    }
}

static int serve_block_signals(struct serve *serve)
{
    sigemptyset(&serve->signals);
    sigaddset(&serve->signals, SIGCHLD);
    sigaddset(&serve->signals, SIGTERM);
    sigaddset(&serve->signals, SIGINT);
    sigprocmask(SIG_BLOCK, &serve->signals, &serve->before);
    int fd = signalfd(-1, &serve->signals, SFD_CLOEXEC);
    serve->polls[serve->count] = (struct pollfd){.fd = fd, .events = POLLIN};
    return fd < 0 ? -errno : 0;
}

/* For `reseat server sessions` and `kick`. The server works without it. */
static void serve_open_operators(struct serve *serve)
{
    char problem[FOLDER_PROBLEM_MAX];
    size_t used = 0;
    if (serve->options.limits.isolates)
        used = (size_t)snprintf(serve->operators.addresses, OPERATOR_ADDRESSES_MAX, "%s",
                                OPERATOR_ISOLATED);
    for (size_t i = 0; i < serve->options.count && used < OPERATOR_ADDRESSES_MAX; i++)
        used += (size_t)snprintf(serve->operators.addresses + used, OPERATOR_ADDRESSES_MAX - used,
                                 "%s%s", used ? " " : "", serve->options.addresses[i]);
    serve->operators.ca = serve->options.limits.authority;
    if (operators_init(&serve->operators, &serve->clients, problem))
        log_warn("`reseat server` cannot reach this server: %s", problem);
}

/* Each client needs four descriptors here: its channel, its log, its process notifications and its
 * relay's log. Each process that carries bytes has a log, too, and each kept binary needs one. */
static void serve_allow_descriptors(struct serve *serve)
{
    rlim_t needed = 4 * serve->options.clients_max + 2 * CLIENTS_STRANGERS_MAX + CARRIERS_ALL_MAX +
                    KEPT_COUNT + OTHER_DESCRIPTORS;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    serve->startup.descriptors = limit;
    if (limit.rlim_cur >= needed)
        return;
    limit.rlim_cur = needed < limit.rlim_max ? needed : limit.rlim_max;
    if (limit.rlim_cur < needed || setrlimit(RLIMIT_NOFILE, &limit))
        log_warn("the limit of open files (ulimit -n) is too low for %lu clients",
                 serve->options.clients_max);
}

static int serve_make_room(struct serve *serve)
{
    serve->polls =
        calloc(LISTEN_MAX + 2 + OPERATORS_POLLS + CLIENTS_POLLS(serve->options.clients_max),
               sizeof(*serve->polls));
    if (!serve->polls ||
        clients_init(&serve->clients, (unsigned)serve->options.clients_max, &serve->devices))
        return -ENOMEM;
    serve->clients.connect = serve_start_connector;
    serve->clients.connect_data = serve;
    serve_allow_descriptors(serve);
    return 0;
}

static void serve_announce_all(const struct serve *serve)
{
    for (size_t i = 0; serve->options.announces && i < serve->count; i++)
        if (serve->kinds[i]->anyone)
            serve_announce(serve->where[i], &serve->before);
}

/* Isolated programs share devices as the drivers do it: nothing is listed or divided. */
static int serve_list_devices(struct serve *serve)
{
    if (serve->options.limits.isolates)
        return 0;
    int error = devices_list(serve->options.reserve_bytes, &serve->devices);
    if (error)
        fprintf(stderr, "reseat-serve: the devices cannot be listed: %s\n", strerror(-error));
    else if (serve->devices.count == 0)
        log_warn("no devices were found");
    serve->options.limits.shares = true;
    serve->options.limits.known = (struct devices){.count = serve->devices.count};
    memcpy(serve->options.limits.known.rows, serve->devices.rows, sizeof(serve->devices.rows));
    return error;
}

int main(int argc, char **argv)
{
    static struct serve serve = {.options = {.clients_max = 256,
                                             .reserve_bytes = UINT64_MAX,
                                             .limits = {.patience_s = PATIENCE_S}}};
    file_hold_standard();
    serve.options.limits.local = GRANT_ALL;
    serve.operators.listener = serve.process = -1;
    serve.reaper = REAPER_NONE;
    serve.logs = SESSION_LOGS_NONE;
    if (argc == 2 && !strcmp(argv[1], STARTUP_ARGUMENT))
        session_main();
    if (!options_read(argc, argv, &serve.options))
        return options_usage();
    if (authority_is_asked(&serve.options.authority))
        return serve_run_authority(&serve.options.authority);
    /* Sessions of the same user must not be able to ptrace this process or read its memory. */
    prctl(PR_SET_DUMPABLE, 0);
    if (serve_open_authority(&serve) || serve_list_devices(&serve) || serve_make_room(&serve))
        return 1;
    int error = serve_listen_all(&serve);
    if (error == 0)
        error = serve_listen_inherited(&serve);
    if (error == 0)
        error = serve_find_process(&serve);
    if (error == 0)
        error = serve_block_signals(&serve);
    if (error == 0) {
        serve_open_operators(&serve);
        serve_metrics(&serve);
        serve_announce_all(&serve);
        reaper_start(&serve.reaper, &serve.clients);
        serve.startup.limits = serve.options.limits;
        serve.startup.parent = getpid();
        printf("reseat-serve: ready\n");
        fflush(stdout);
        serve_clients(&serve);
        clients_kill(&serve.clients);
        session_logs_finish(&serve.logs);
        reaper_finish(&serve.reaper);
    }
    operators_finish(&serve.operators);
    serve_unlisten_all(&serve);
    return error ? 1 : 0;
}
