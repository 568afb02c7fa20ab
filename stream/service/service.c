#include "stream/service/service.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "remote/identity/ca.h"
#include "remote/link/preauth.h"
#include "remote/link/tls.h"
#include "state/base/clock.h"
#include "state/base/files/file.h"
#include "state/base/log.h"
#include "state/base/option_rows.h"

/* reseat-streamd: listens, and starts a process for each connection. It reads nothing that a client
 * sends. */

#define STREAMS_DEFAULT 64
#define STREAMS_MAX     4096
#define READY_S         120
#define PATIENCE_S      600
#define SECONDS_MAX     86400
/* How long to wait when a connection cannot be accepted for want of descriptors or memory. */
#define FULL_MS 100

struct listener {
    struct service service;
    const char *addresses[SERVICE_LISTEN_MAX];
    const struct link_kind *kinds[SERVICE_LISTEN_MAX];
    const char *where[SERVICE_LISTEN_MAX];
    struct pollfd polls[SERVICE_LISTEN_MAX + 1]; /* The last: signals. */
    size_t count, open;
    const char *ca;
    uint64_t linger_ms; /* It ends after so long without a connection; 0: never. */
    struct preauth preauth;
    sigset_t before;
};

static int service_usage(void)
{
    fprintf(stderr,
            "usage: reseat-streamd --reseat PROGRAM --worker PROGRAM [--kernels FOLDER]...\n"
            "                      [--listen ADDRESS]... [--ca FOLDER] [--streams NUMBER]\n"
            "                      [--ready SECONDS] [--patience SECONDS] [--linger SECONDS]\n");
    return 2;
}

#define VALUE(member) OPTION_VALUE(struct listener, member)
#define SECONDS_OF(member)                                                                         \
    OPTION_SECONDS(struct listener, member, 9, NS_PER_S, SECONDS_MAX *NS_PER_S)

static const struct option_row service_options[] = {
    {"reseat", "PROGRAM", VALUE(service.reseat)},
    {"worker", "PROGRAM", VALUE(service.worker)},
    {"kernels", "FOLDER", .kind = OPTION_TEXTS, VALUE(service.folders),
     .count = offsetof(struct listener, service.folder_count)},
    {"listen", "ADDRESS", .kind = OPTION_TEXTS, VALUE(addresses),
     .count = offsetof(struct listener, count)},
    {"ca", "FOLDER", VALUE(ca)},
    {"streams", "NUMBER", .kind = OPTION_NUMBER, VALUE(service.streams), .least = 1,
     .most = STREAMS_MAX, .initial = STREAMS_DEFAULT},
    {"ready", "TIME", SECONDS_OF(service.ready_ns), .initial = READY_S * NS_PER_S},
    {"patience", "TIME", SECONDS_OF(service.patience_ns), .initial = PATIENCE_S * NS_PER_S},
    {"linger", "TIME", OPTION_SECONDS(struct listener, linger_ms, 3, 1000, SECONDS_MAX * 1000)},
    {NULL},
};

static int service_read_options(struct listener *listener, int argc, char **argv)
{
    char reason[OPTION_REASON_MAX];
    if (option_rows_read(service_options, listener, argc, argv, reason)) {
        fprintf(stderr, "reseat-streamd: %s\n", reason);
        return service_usage();
    }
    const struct service *service = &listener->service;
    return optind == argc && service->reseat && service->worker ? 0 : service_usage();
}

/* Before anyone can connect: a service that cannot check certificates admits nobody. */
static int service_open_authority(const struct listener *listener)
{
    char folder[PATH_MAX], problem[FOLDER_PROBLEM_MAX];
    const char *where;
    bool needed = false;
    for (size_t i = 0; i < listener->count; i++) {
        const struct link_kind *kind = link_kind_of(listener->addresses[i], &where);
        needed = needed || (kind && kind->anyone);
    }
    if (!needed)
        return 0;
    int error = ca_folder(listener->ca, folder);
    snprintf(problem, sizeof(problem), "the authority's folder: %s", strerror(-error));
    error = error ? error : tls_server_open(folder, problem);
    if (error)
        fprintf(stderr, "reseat-streamd: %s; reseat serve --init-ca makes an authority\n", problem);
    return error;
}

static int service_listen(struct listener *listener)
{
    for (size_t i = 0; i < listener->count; i++) {
        int fd = -1;
        listener->kinds[i] = link_kind_of(listener->addresses[i], &listener->where[i]);
        int error =
            listener->kinds[i] ? listener->kinds[i]->listen(listener->where[i], &fd) : -EINVAL;
        if (error) {
            fprintf(stderr, "reseat-streamd: %s: %s\n", listener->addresses[i],
                    error == -EINVAL       ? "not a valid address"
                    : error == -EPERM      ? "its folder must be yours alone (mode 0700)"
                    : error == -EADDRINUSE ? "another service listens there"
                                           : strerror(-error));
            return error;
        }
        listener->open = i + 1;
        listener->polls[i] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    return 0;
}

static int service_make_table(struct listener *listener)
{
    /* Connections that are not streams yet take no place from them. */
    unsigned count = listener->service.streams + PREAUTH_MAX;
    size_t size = sizeof(struct service_table) + count * sizeof(struct service_slot);
    void *table = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        return -errno;
    listener->service.table = table;
    listener->service.table->count = count;
    atomic_store(&listener->service.table->last, 1);
    return 0;
}

/* ---- connections ---- */

static void service_forget(struct listener *listener, struct service_slot *slot)
{
    if (slot->stranger)
        preauth_leave(&listener->preauth, slot->stranger);
    slot->stranger = 0;
}

/* Strangers that were admitted meanwhile are none any more. */
static void service_count_strangers(struct listener *listener)
{
    for (unsigned i = 0; i < listener->service.table->count; i++)
        if (atomic_load(&listener->service.table->slots[i].admitted))
            service_forget(listener, &listener->service.table->slots[i]);
}

static void service_drop(struct listener *listener, uint64_t stranger)
{
    for (unsigned i = 0; stranger && i < listener->service.table->count; i++) {
        struct service_slot *slot = &listener->service.table->slots[i];
        if (slot->stranger == stranger) {
            slot->stranger = 0;
            kill(atomic_load(&slot->pid), SIGKILL);
        }
    }
}

static struct service_slot *service_find_free(const struct listener *listener)
{
    for (unsigned i = 0; i < listener->service.table->count; i++)
        if (!atomic_load(&listener->service.table->slots[i].pid))
            return &listener->service.table->slots[i];
    return NULL;
}

/* In the child: serve a connection, and end. */
static void service_serve(struct listener *listener, size_t at, int fd, struct service_slot *slot,
                          pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    for (size_t i = 0; i <= listener->count; i++)
        close(listener->polls[i].fd);
    sigprocmask(SIG_SETMASK, &listener->before, NULL);
    atomic_store(&slot->pid, getpid());
    _exit(connection_run(&listener->service, listener->kinds[at], fd, slot));
}

static void service_accept(struct listener *listener, size_t at)
{
    union {
        struct sockaddr any;
        struct sockaddr_storage room;
    } from = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t length = sizeof(from);
    uint64_t stranger = 0, leaves = 0;
    struct service_slot *slot = service_find_free(listener);
    int fd = accept4(listener->polls[at].fd, &from.any, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno != EAGAIN && errno != ECONNABORTED)
            (void)poll(NULL, 0, FULL_MS);
        return;
    }
    service_count_strangers(listener);
    if (!slot ||
        (listener->kinds[at]->anyone &&
         preauth_enter(&listener->preauth, &from.any, clock_now_ns(), &stranger, &leaves))) {
        log_warn("stream: a connection was refused: there are too many");
        close(fd);
        return;
    }
    service_drop(listener, leaves);
    memset(slot, 0, sizeof(*slot));
    slot->stranger = stranger;
    slot->remote = listener->kinds[at]->anyone;
    pid_t own = getpid(), pid = fork();
    if (pid == 0)
        service_serve(listener, at, fd, slot, own);
    if (pid > 0)
        atomic_store(&slot->pid, pid);
    else
        service_forget(listener, slot);
    close(fd);
}

static void service_reap(struct listener *listener)
{
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
        for (unsigned i = 0; i < listener->service.table->count; i++) {
            struct service_slot *slot = &listener->service.table->slots[i];
            if (atomic_load(&slot->pid) == pid) {
                service_forget(listener, slot);
                atomic_store(&slot->pid, 0);
            }
        }
}

static bool service_is_unused(const struct listener *listener)
{
    for (unsigned i = 0; i < listener->service.table->count; i++)
        if (atomic_load(&listener->service.table->slots[i].pid))
            return false;
    return true;
}

/* Serve until a signal ends the service, or nobody has used it for long. */
static void service_run(struct listener *listener)
{
    struct pollfd *signals = &listener->polls[listener->count];
    for (;;) {
        /* A connection for which there is no room waits in the kernel's backlog. */
        bool room = service_find_free(listener) != NULL;
        for (size_t i = 0; i < listener->count; i++)
            listener->polls[i].events = room ? POLLIN : 0;
        bool lingers = listener->linger_ms && service_is_unused(listener);
        int count =
            poll(listener->polls, listener->count + 1, lingers ? (int)listener->linger_ms : -1);
        if (count == 0)
            return;
        if (count < 0)
            continue;
        struct signalfd_siginfo info;
        if (signals->revents && read(signals->fd, &info, sizeof(info)) == sizeof(info)) {
            if (info.ssi_signo != SIGCHLD)
                return;
            service_reap(listener);
        }
        for (size_t i = 0; i < listener->count; i++)
            if (listener->polls[i].revents & POLLIN)
                service_accept(listener, i);
    }
}

static int service_block_signals(struct listener *listener)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, &listener->before);
    int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    listener->polls[listener->count] = (struct pollfd){.fd = fd, .events = POLLIN};
    return fd < 0 ? -errno : 0;
}

int main(int argc, char **argv)
{
    static struct listener listener;
    char address[PATH_MAX], folder[PATH_MAX], problem[FOLDER_PROBLEM_MAX];
    file_hold_standard();
    int status = service_read_options(&listener, argc, argv);
    if (status)
        return status;
    int error = 0;
    if (!listener.count) {
        /* Made where it is missing. If another address is meant, it does not matter. */
        (void)!folder_runtime(folder, problem);
        error = stream_address_find(address);
        listener.addresses[listener.count++] = address;
    }
    error = error ? error : service_open_authority(&listener);
    error = error ? error : service_make_table(&listener);
    error = error ? error : service_block_signals(&listener);
    error = error ? error : service_listen(&listener);
    if (!error) {
        printf("listening on");
        for (size_t i = 0; i < listener.count; i++)
            printf(" %s", listener.addresses[i]);
        printf("\n");
        fflush(stdout);
        service_run(&listener);
    }
    for (size_t i = 0; i < listener.open; i++) {
        close(listener.polls[i].fd);
        if (listener.kinds[i]->unlisten)
            listener.kinds[i]->unlisten(listener.where[i]);
    }
    return error != 0;
}
