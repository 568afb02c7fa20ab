#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "state/base/clock.h"
#include "state/base/files/access.h"
#include "state/base/files/folder.h"
#include "state/server/exposition.h"
#include "state/server/operator.h"

/*
 * reseat-serve-metrics PORT [PATH]: serve the metrics of a device server over HTTP, at a Unix
 * socket and, unless PORT is 0, at the loopback address. Standard input is a connection to the
 * server as operators have them (state/server/operator.h); this program ends with it.
 *
 * This is a separate program, so that neither a server nor its sessions read what scrapers send, or
 * have an HTTP library. As root it becomes nobody once it listens.
 */

#define NOBODY       65534
#define NAME         "server.metrics" /* in the runtime folder */
#define SCRAPERS_MAX 16
#define STRANGERS    12 /* of them, at the loopback address, where anybody may connect */
#define DEADLINE_NS  (10 * NS_PER_S)
#define LOOK_MS      1000
#define PATIENCE_S   2

struct scraper {
    int fd; /* the library's; 0: a free entry */
    bool local;
    uint64_t deadline_ns;
};

static struct {
    struct MHD_Daemon *daemon;
    char path[PATH_MAX];
    int listeners[2]; /* of the Unix socket, and of the loopback address or -1 */
    struct scraper scrapers[SCRAPERS_MAX];
    uint64_t dropped;
    double began_s;
} served;

/* ---- figures ---- */

struct figures {
    struct operator_answer totals;
    struct operator_device *devices;
    uint32_t count;
};

static int figures_ask(struct figures *ret)
{
    struct operator_request request = {.version = OPERATOR_VERSION, .what = OPERATOR_TOTALS};
    int error = operator_ask(STDIN_FILENO, &request, &ret->totals);

    if (error || ret->totals.error)
        return error ? error : ret->totals.error;
    request.what = OPERATOR_DEVICE;
    for (;; request.number = ++ret->count) {
        struct operator_answer answer;
        error = operator_ask(STDIN_FILENO, &request, &answer);
        if (error || answer.error)
            return error == 0 && answer.error == -ENOENT ? 0 : error ? error : answer.error;
        struct operator_device *more =
            realloc(ret->devices, (ret->count + 1) * sizeof(*ret->devices));
        if (!more)
            return -ENOMEM;
        ret->devices = more;
        ret->devices[ret->count] = answer.device;
    }
}

static void put_build_info(const struct exposition *text, const struct figures *figures)
{
    (void)figures;
    exposition_put_labelled(text, "version", RESEAT_VERSION, 1);
}

static void put_ended(const struct exposition *text, const struct figures *figures)
{
    static const char *const reasons[OPERATOR_ENDINGS] = {"operator", "revoked", "expired"};

    for (unsigned i = 0; i < OPERATOR_ENDINGS; i++)
        exposition_put_labelled(text, "reason", reasons[i],
                                (double)figures->totals.totals.ended[i]);
    exposition_put_labelled(text, "reason", "crashed", (double)figures->totals.totals.crashed);
}

static void put_start_time(const struct exposition *text, const struct figures *figures)
{
    (void)figures;
    exposition_put_one(text, served.began_s);
}

static void put_dropped(const struct exposition *text, const struct figures *figures)
{
    (void)figures;
    exposition_put_one(text, (double)served.dropped);
}

static void put_sessions(const struct exposition *text, const struct figures *figures)
{
    exposition_put_one(text, figures->totals.count);
}

/** A number in a struct, of 4 or 8 bytes. */
struct member {
    size_t offset, size;
};
#define MEMBER(type, name)                                                                         \
    {                                                                                              \
        offsetof(struct type, name), sizeof(((struct type *)0)->name)                              \
    }

static double figures_number(const void *at, const struct member *member)
{
    uint64_t number = 0;

    memcpy(&number, (const char *)at + member->offset, member->size);
    return (double)number;
}

/** Each has one of these. */
static const struct {
    struct metric head;
    void (*put)(const struct exposition *text, const struct figures *figures);
    struct member total, device; /**< Of struct operator_totals; of each device. */
} metrics[] = {
    {{"reseat_server_build_info", "", "Always 1. The label is the version of the device server.",
      METRIC_GAUGE},
     put_build_info},
    {{"reseat_server_start_time_seconds", "seconds", "When the device server started, since 1970.",
      METRIC_GAUGE},
     put_start_time},
    {{"reseat_server_scrapers_dropped", "", "Scrapers that were refused, or that were too slow.",
      METRIC_COUNTER},
     put_dropped},
    {{"reseat_server_sessions", "", "Sessions of clients.", METRIC_GAUGE}, put_sessions},
    {{"reseat_server_connections", "", "Connections that have not shown yet who they are of.",
      METRIC_GAUGE},
     .total = MEMBER(operator_totals, connections)},
    {{"reseat_server_sessions_begun", "", "Sessions that were begun.", METRIC_COUNTER},
     .total = MEMBER(operator_totals, sessions)},
    {{"reseat_server_sessions_ended", "",
      "Sessions that the server ended, or whose process crashed, by reason.", METRIC_COUNTER},
     put_ended},
    {{"reseat_server_refused", "", "Connections and sessions that were refused.", METRIC_COUNTER},
     .total = MEMBER(operator_totals, refused)},
    {{"reseat_server_kept_binaries", "", "Programs' binaries that are kept for clients.",
      METRIC_GAUGE},
     .total = MEMBER(operator_totals, kept)},
    {{"reseat_server_kept_bytes", "bytes", "Memory of the binaries that are kept.", METRIC_GAUGE},
     .total = MEMBER(operator_totals, kept_bytes)},
    {{"reseat_server_device_memory_capacity_bytes", "bytes", "Memory that sessions may have.",
      METRIC_GAUGE},
     .device = MEMBER(operator_device, capacity)},
    {{"reseat_server_device_memory_granted_bytes", "bytes", "Memory that is granted to sessions.",
      METRIC_GAUGE},
     .device = MEMBER(operator_device, granted)},
    {{"reseat_server_device_sessions", "", "Sessions that offer the device to their client.",
      METRIC_GAUGE},
     .device = MEMBER(operator_device, sessions)},
    {{"reseat_server_device_waiting_sessions", "", "Sessions that wait for a time slice.",
      METRIC_GAUGE},
     .device = MEMBER(operator_device, waiting)},
};

static char *figures_write(const struct figures *figures, bool open, size_t *ret_size)
{
    struct exposition text;

    if (exposition_init(&text, open))
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(metrics); i++) {
        exposition_begin(&text, &metrics[i].head);
        if (metrics[i].put)
            metrics[i].put(&text, figures);
        if (metrics[i].total.size)
            exposition_put_one(&text, figures_number(&figures->totals.totals, &metrics[i].total));
        for (uint32_t j = 0; metrics[i].device.size && j < figures->count; j++)
            exposition_put_labelled(&text, "device", figures->devices[j].name,
                                    figures_number(&figures->devices[j], &metrics[i].device));
    }
    char *written = exposition_finish(&text);
    *ret_size = text.size;
    return written;
}

/* ---- requests ---- */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, char *text,
                              size_t size, const char *type)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);

    if (!response) {
        free(text);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, "Content-Type", type);
    (void)MHD_add_response_header(response, "Connection", "close");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status,
                                   const char *text)
{
    char *copy = strdup(text);

    return copy ? answer(connection, status, copy, strlen(copy), "text/plain") : MHD_NO;
}

static enum MHD_Result answer_metrics(struct MHD_Connection *connection)
{
    bool open =
        exposition_is_open(MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept"));
    struct figures figures = {.count = 0};
    size_t size = 0;
    char *text = figures_ask(&figures) ? NULL : figures_write(&figures, open, &size);

    free(figures.devices);
    return text ? answer(connection, MHD_HTTP_OK, text, size, exposition_type(open))
                : answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                              "The server does not answer.\n");
}

static enum MHD_Result take_request(void *data, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *version, const char *upload,
                                    size_t *upload_size, void **request)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    const struct scraper *scraper = info ? info->socket_context : NULL;
    bool gets = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;

    (void)data, (void)version, (void)upload;
    if (!scraper || *upload_size)
        return MHD_NO; /* A body is not read: the library closes the connection. */
    if (!*request) {   /* The headers were read. */
        *request = &served;
        return MHD_YES;
    }
    if (!scraper->local &&
        !exposition_host_is_local(MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host")))
        return answer_text(connection, MHD_HTTP_FORBIDDEN, "That is not this host's name.\n");
    if (gets && strcmp(url, "/metrics") == 0)
        return answer_metrics(connection);
    return answer_text(connection, gets ? MHD_HTTP_NOT_FOUND : MHD_HTTP_METHOD_NOT_ALLOWED,
                       "There is only GET /metrics here.\n");
}

/* ---- connections ---- */

static void note_connection(void *data, struct MHD_Connection *connection, void **context,
                            enum MHD_ConnectionNotificationCode code)
{
    struct scraper *scraper = *context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    (void)data;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED && scraper)
        scraper->fd = 0;
    for (size_t i = 0; code == MHD_CONNECTION_NOTIFY_STARTED && info && i < SCRAPERS_MAX; i++)
        if (served.scrapers[i].fd == info->connect_fd)
            *context = &served.scrapers[i];
}

static void take_connection(int fd, bool local)
{
    const struct sockaddr address = {.sa_family = local ? AF_UNIX : AF_INET};
    struct scraper *room = NULL;
    unsigned strangers = 0;

    for (size_t i = 0; i < SCRAPERS_MAX; i++) {
        strangers += served.scrapers[i].fd && !served.scrapers[i].local;
        room = served.scrapers[i].fd ? room : &served.scrapers[i];
    }
    if (!room || (!local && strangers >= STRANGERS)) {
        served.dropped++;
        close(fd);
        return;
    }
    *room = (struct scraper){.fd = fd, .local = local, .deadline_ns = clock_now_ns() + DEADLINE_NS};
    if (MHD_add_connection(served.daemon, fd, &address, sizeof(address)) != MHD_YES)
        room->fd = 0;
}

/** Whoever does not end their request, or does not read, has ten seconds. */
static void drop_slow(void)
{
    for (size_t i = 0; i < SCRAPERS_MAX; i++) {
        struct scraper *scraper = &served.scrapers[i];
        if (!scraper->fd || clock_now_ns() < scraper->deadline_ns)
            continue;
        scraper->deadline_ns = UINT64_MAX; /* It is counted once. */
        served.dropped++;
        (void)shutdown(scraper->fd, SHUT_RDWR); /* The library closes it when it sees that. */
    }
}

/** Listen where the server said, and become nobody. What cannot be had is left out, and said. */
static int begin(unsigned long port, const char *path)
{
    char folder[PATH_MAX] = "", problem[FOLDER_PROBLEM_MAX] = "";
    int error = path ? 0 : folder_runtime(folder, problem);

    if (!error && snprintf(served.path, PATH_MAX, "%s%s", path ? path : folder,
                           path ? "" : "/" NAME) >= PATH_MAX)
        error = -ENAMETOOLONG;
    if (!error)
        error = access_listen(served.path, SOCK_STREAM, SCRAPERS_MAX, &served.listeners[0]);
    if (error)
        fprintf(stderr, "reseat-serve: no metrics at a Unix socket: %s\n",
                problem[0] ? problem
                : error == -EADDRINUSE
                    ? "another server's are there; name another path by --metrics"
                    : strerror(-error));
    if (port && (error = exposition_listen((uint16_t)port, &served.listeners[1])))
        fprintf(stderr, "reseat-serve: no metrics at 127.0.0.1:%lu: %s\n", port, strerror(-error));
    if (served.listeners[0] < 0 && served.listeners[1] < 0)
        return -ENOENT;
    if (geteuid() == 0 && (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY)))
        return -errno;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : 0;
}

static void serve(int epoll)
{
    struct pollfd polls[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                             {.fd = epoll, .events = POLLIN},
                             {.fd = served.listeners[0], .events = POLLIN},
                             {.fd = served.listeners[1], .events = POLLIN}};

    /* The server says nothing that it was not asked for: what is there is the end. */
    while (!polls[0].revents) {
        MHD_UNSIGNED_LONG_LONG ms = LOOK_MS;
        if (MHD_get_timeout(served.daemon, &ms) != MHD_YES || ms > LOOK_MS)
            ms = LOOK_MS;
        if (poll(polls, ARRAY_SIZE(polls), (int)ms) < 0 && errno != EINTR)
            return;
        for (unsigned i = 0; i < 2; i++) {
            int fd = polls[2 + i].revents
                         ? accept4(served.listeners[i], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)
                         : -1;
            if (fd >= 0)
                take_connection(fd, i == 0);
        }
        (void)MHD_run(served.daemon);
        drop_slow();
    }
}

int main(int argc, char **argv)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};

    served.listeners[0] = served.listeners[1] = -1;
    if (argc < 2 || begin(strtoul(argv[1], NULL, 10), argc > 2 ? argv[2] : NULL))
        return 1;
    (void)setsockopt(STDIN_FILENO, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)setsockopt(STDIN_FILENO, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    served.began_s = (double)clock_wall_ms() / 1000;
    served.daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, take_request, NULL,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)SCRAPERS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)16384, MHD_OPTION_NOTIFY_CONNECTION, note_connection, NULL, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        served.daemon ? MHD_get_daemon_info(served.daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info) {
        fprintf(stderr, "reseat-serve: no metrics: the HTTP library does not start\n");
        return 1;
    }
    serve(info->epoll_fd);
    MHD_stop_daemon(served.daemon);
    if (served.listeners[0] >= 0)
        (void)unlink(served.path); /* Nobody cannot: the next server replaces it. */
    return 0;
}
