#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/daemon/browser/browser.h"
#include "agent/daemon/clients.h"
#include "agent/daemon/metrics/metrics_priv.h"
#include "state/base/files/access.h"
#include "state/server/exposition.h"

/*
 * HTTP for scrapers and browsers, on the agent's loop: libmicrohttpd has an epoll descriptor of its
 * own, which the loop polls, and never blocks. Connections are accepted here, so that it is known
 * whose they are. Each has one request and ends after DEADLINE_MS, whether or not its scraper
 * reads.
 */

#define SUFFIX       ".metrics" /* of the socket beside the agent's */
#define SCRAPERS_MAX 32
#define USER_MAX     8 /* of one user; those of TCP are nobody's */
#define DEADLINE_MS  10000
#define KEPT_MAX     8 /* pages that were made lately */
#define KEPT_MS      250
#define RUNS         16 /* steps of the library before other events of the loop get their turn */

struct scraper {
    struct scraper *next;
    int fd; /* the library's */
    bool local, dropped;
    struct peer who; /* local: with its user and rights; else with no rights, and with a user only
                        once a request was signed */
};

struct listener {
    struct endpoint *endpoint;
    int fd; /* -1: it is closed */
    bool local, closing;
    bool rests;    /* no descriptor was left for a connection: until the next tick */
    uint32_t wish; /* what it was opened for, or could not be; 0: nothing */
    uv_poll_t poll;
};

/* A page that may be given to all who may see the same. */
struct kept_page {
    struct MHD_Response *response; /* NULL: none */
    uid_t uid;
    bool all, open;
    uint64_t at_ms;
};

struct endpoint {
    struct agent *agent;
    struct MHD_Daemon *daemon;
    uv_poll_t events;
    uv_timer_t timer;
    struct listener unix_socket, tcp;
    struct scraper *scrapers;
    struct kept_page kept[KEPT_MAX];
    struct browser browser;
};

/* ---- pages ---- */

static struct MHD_Response *endpoint_make(const struct endpoint *endpoint, const struct peer *who,
                                          bool open)
{
    size_t size;
    char *text = metrics_page(endpoint->agent, who, open, &size);
    struct MHD_Response *response =
        text ? MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE) : NULL;

    if (!response)
        return NULL;
    (void)MHD_add_response_header(response, "Content-Type", exposition_type(open));
    (void)MHD_add_response_header(response, "Connection", "close");
    return response;
}

/** The page for @who, as it was in the last moment: whoever asks all the time costs nobody much. */
static struct MHD_Response *endpoint_page(struct endpoint *endpoint, const struct peer *who,
                                          bool open)
{
    struct kept_page *oldest = endpoint->kept;
    uint64_t now = uv_now(&endpoint->agent->loop);
    bool all = peer_may(who, RIGHT_PROGRAMS);

    for (struct kept_page *kept = endpoint->kept; kept < endpoint->kept + KEPT_MAX; kept++) {
        if (kept->response && kept->open == open && kept->all == all &&
            (all || kept->uid == who->uid) && now - kept->at_ms < KEPT_MS)
            return kept->response;
        if (!kept->response || (oldest->response && kept->at_ms < oldest->at_ms))
            oldest = kept;
    }
    struct MHD_Response *response = endpoint_make(endpoint, who, open);
    if (!response)
        return NULL;
    if (oldest->response)
        MHD_destroy_response(oldest->response);
    *oldest = (struct kept_page){
        .response = response, .uid = who->uid, .all = all, .open = open, .at_ms = now};
    return response;
}

/** Queue @response, which may be NULL, and drop it. */
static enum MHD_Result endpoint_queue(struct MHD_Connection *connection, unsigned status,
                                      struct MHD_Response *response)
{
    enum MHD_Result result = response ? MHD_queue_response(connection, status, response) : MHD_NO;

    if (response)
        MHD_destroy_response(response);
    return result;
}

static enum MHD_Result endpoint_refuse(struct MHD_Connection *connection, unsigned status)
{
    static char text[] = "There is only GET /metrics here.\n";
    struct MHD_Response *response =
        MHD_create_response_from_buffer(sizeof(text) - 1, text, MHD_RESPMEM_PERSISTENT);

    if (response)
        (void)MHD_add_response_header(response, "Connection", "close");
    return endpoint_queue(connection, status, response);
}

/** False for a page of another site that has a name for this address (DNS rebinding). */
static bool endpoint_is_for_us(const struct scraper *scraper, struct MHD_Connection *connection)
{
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");

    return scraper->local || exposition_host_is_local(host);
}

/** True when there is room for @scraper beside the other connections, and those of its user. */
static bool endpoint_has_room(const struct endpoint *endpoint, const struct scraper *scraper)
{
    unsigned all = 0, own = 0;

    for (const struct scraper *one = endpoint->scrapers; one; one = one->next) {
        all += one != scraper;
        own += one != scraper && !one->dropped && one->local == scraper->local &&
               one->who.uid == scraper->who.uid;
    }
    return all < SCRAPERS_MAX && own < USER_MAX;
}

/** The body of a browser's request has come: that connection is its user's from now on. */
static enum MHD_Result endpoint_browse(struct endpoint *endpoint, struct scraper *scraper,
                                       struct MHD_Connection *connection,
                                       struct browser_request *request)
{
    const struct page_user *user = browser_user(request);
    struct MHD_Response *response = NULL;

    if (user)
        scraper->who.uid = (uid_t)user->uid;
    if (!endpoint_has_room(endpoint, scraper))
        return endpoint_queue(connection, MHD_HTTP_SERVICE_UNAVAILABLE, browser_json("{}\n"));
    unsigned status = browser_answer(request, user, &response);
    return endpoint_queue(connection, status, response);
}

/* The headers of a request were read. Of requests that are not the page's questions (@asks), what
 * follows them is not read. */
static enum MHD_Result endpoint_begin(struct endpoint *endpoint, const struct scraper *scraper,
                                      struct MHD_Connection *connection, bool asks, void **request)
{
    struct browser_request *asked = NULL;
    unsigned status = 0;

    if (asks && !endpoint_is_for_us(scraper, connection))
        status = MHD_HTTP_FORBIDDEN;
    else if (asks)
        status = browser_begin(&endpoint->browser, connection, &asked);
    *request = asked ? (void *)asked : endpoint;
    return status ? endpoint_queue(connection, status, browser_json("{}\n")) : MHD_YES;
}

static enum MHD_Result endpoint_give(struct endpoint *endpoint, const struct scraper *scraper,
                                     struct MHD_Connection *connection, const char *url, bool gets)
{
    if (!endpoint_is_for_us(scraper, connection))
        return endpoint_refuse(connection, MHD_HTTP_FORBIDDEN);
    if (!gets)
        return endpoint_refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED);
    if (strcmp(url, "/metrics") == 0) {
        const char *accepts = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept");
        struct MHD_Response *response =
            endpoint_page(endpoint, &scraper->who, exposition_is_open(accepts));
        return response ? MHD_queue_response(connection, MHD_HTTP_OK, response) : MHD_NO;
    }
    if (!scraper->local && strcmp(url, "/") == 0)
        return endpoint_queue(connection, MHD_HTTP_OK, browser_page());
    return endpoint_refuse(connection, MHD_HTTP_NOT_FOUND);
}

static enum MHD_Result endpoint_answer(void *data, struct MHD_Connection *connection,
                                       const char *url, const char *method, const char *version,
                                       const char *upload, size_t *upload_size, void **request)
{
    struct endpoint *endpoint = data;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct scraper *scraper = info ? info->socket_context : NULL;
    bool gets = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;

    (void)version;
    if (!scraper)
        return MHD_NO;
    bool asks = !scraper->local && strcmp(method, "POST") == 0 && strcmp(url, "/agent") == 0;
    if (!*request)
        return endpoint_begin(endpoint, scraper, connection, asks, request);
    if (asks && *upload_size) {
        bool taken = browser_take(*request, upload, *upload_size);
        *upload_size = 0;
        return taken ? MHD_YES : MHD_NO;
    }
    if (*upload_size)
        return MHD_NO; /* A body is not read: the library closes the connection. */
    return asks ? endpoint_browse(endpoint, scraper, connection, *request)
                : endpoint_give(endpoint, scraper, connection, url, gets);
}

static void endpoint_completed(void *data, struct MHD_Connection *connection, void **request,
                               enum MHD_RequestTerminationCode code)
{
    (void)connection;
    (void)code;
    if (*request && *request != data)
        browser_finish(*request);
}

/* ---- connections ---- */

static void endpoint_forget(struct endpoint *endpoint, const struct scraper *scraper)
{
    for (struct scraper **at = &endpoint->scrapers; *at; at = &(*at)->next) {
        if (*at != scraper)
            continue;
        struct scraper *gone = *at;
        *at = gone->next;
        free(gone->who.groups);
        free(gone);
        return;
    }
}

static void endpoint_notified(void *data, struct MHD_Connection *connection, void **context,
                              enum MHD_ConnectionNotificationCode code)
{
    struct endpoint *endpoint = data;

    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        endpoint_forget(endpoint, *context);
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    for (struct scraper *one = endpoint->scrapers; info && one; one = one->next)
        if (one->fd == info->connect_fd && !one->dropped)
            *context = one;
}

static void endpoint_on_timer(uv_timer_t *timer);

/** Let the library work, and come back when it has more to do. */
static void endpoint_run(struct endpoint *endpoint)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    bool waits = true;

    for (unsigned i = 0; waits && ms == 0 && i < RUNS; i++) {
        (void)MHD_run(endpoint->daemon);
        waits = MHD_get_timeout(endpoint->daemon, &ms) == MHD_YES;
    }
    if (waits)
        uv_timer_start(&endpoint->timer, endpoint_on_timer, ms, 0);
    else
        uv_timer_stop(&endpoint->timer);
}

static void endpoint_on_timer(uv_timer_t *timer)
{
    endpoint_run(timer->data);
}

static void endpoint_wake(struct browser *browser)
{
    struct endpoint *endpoint = container_of(browser, struct endpoint, browser);

    uv_timer_start(&endpoint->timer, endpoint_on_timer, 0, 0);
}

static void endpoint_on_events(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    endpoint_run(poll->data);
}

static void endpoint_drop(struct endpoint *endpoint, struct scraper *scraper)
{
    scraper->dropped = true; /* The library closes it when it sees that. */
    endpoint->agent->metrics->dropped++;
    (void)shutdown(scraper->fd, SHUT_RDWR);
}

/** Of too many anonymous TCP connections drop the oldest, so that others can connect. */
static void endpoint_make_room(struct endpoint *endpoint, const struct scraper *scraper)
{
    struct scraper *oldest = NULL;

    for (struct scraper *one = endpoint->scrapers; one; one = one->next)
        if (!one->local && !one->dropped && one->who.uid == (uid_t)-1)
            oldest = one;
    if (oldest && !endpoint_has_room(endpoint, scraper)) {
        endpoint_drop(endpoint, oldest);
        endpoint_run(endpoint); /* It counts until the library has closed it. */
    }
}

/** Give the library a new connection, @fd, which is closed if it is refused. */
static void endpoint_take(struct endpoint *endpoint, int fd, bool local)
{
    const struct sockaddr address = {.sa_family = local ? AF_UNIX : AF_INET};
    struct scraper *scraper = calloc(1, sizeof(*scraper));

    if (!scraper) {
        close(fd);
        return;
    }
    *scraper = (struct scraper){.fd = fd, .local = local, .who = {.agent = endpoint->agent}};
    scraper->who.uid = (uid_t)-1;
    scraper->who.since_ms = uv_now(&endpoint->agent->loop);
    if (!local)
        endpoint_make_room(endpoint, scraper);
    if ((local && !peer_identify(&scraper->who, fd)) || !endpoint_has_room(endpoint, scraper)) {
        endpoint->agent->metrics->dropped++;
        free(scraper->who.groups);
        free(scraper);
        close(fd);
        return;
    }
    scraper->next = endpoint->scrapers;
    endpoint->scrapers = scraper;
    if (MHD_add_connection(endpoint->daemon, fd, &address, sizeof(address)) != MHD_YES)
        endpoint_forget(endpoint, scraper);
}

static void endpoint_on_listener(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;
    int fd = 0;

    (void)status;
    (void)events;
    for (unsigned i = 0; fd >= 0 && i < SCRAPERS_MAX; i++) {
        fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            endpoint_take(listener->endpoint, fd, listener->local);
    }
    listener->rests = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM);
    if (listener->rests)
        uv_poll_stop(poll); /* Else the loop would call this again and again. */
    endpoint_run(listener->endpoint);
}

/* ---- listening ---- */

static void endpoint_closed(uv_handle_t *handle)
{
    struct listener *listener = handle->data;

    listener->closing = false;
}

static void endpoint_path(const struct endpoint *endpoint, char ret_path[PATH_MAX])
{
    snprintf(ret_path, PATH_MAX, "%s" SUFFIX, endpoint->agent->paths.socket);
}

static void endpoint_close(struct listener *listener)
{
    if (listener->fd < 0)
        return;
    char path[PATH_MAX];
    endpoint_path(listener->endpoint, path);
    if (listener->local && peers_can_connect(listener->endpoint->agent))
        unlink(path);
    listener->closing = true;
    uv_close((uv_handle_t *)&listener->poll, endpoint_closed);
    close(listener->fd);
    listener->fd = -1;
}

static int endpoint_listen_unix(const struct endpoint *endpoint, int *ret_fd)
{
    char path[PATH_MAX];

    endpoint_path(endpoint, path);
    int error = access_listen(path, SOCK_STREAM, SCRAPERS_MAX, ret_fd);
    /* As the agent's own socket: who connects is asked of the kernel. */
    if (error || !agent_is_shared(endpoint->agent) || !chmod(path, 0666))
        return error;
    error = -errno;
    close(*ret_fd);
    unlink(path);
    return error;
}

static int endpoint_open(struct listener *listener)
{
    struct endpoint *endpoint = listener->endpoint;
    int fd;
    int error = listener->local ? endpoint_listen_unix(endpoint, &fd)
                                : exposition_listen((uint16_t)listener->wish, &fd);

    if (error)
        return error;
    error = uv_poll_init(&endpoint->agent->loop, &listener->poll, fd);
    if (error) {
        close(fd);
        return error;
    }
    listener->fd = fd;
    listener->poll.data = listener;
    listener->rests = false;
    uv_poll_start(&listener->poll, UV_READABLE, endpoint_on_listener);
    if (!listener->local)
        browser_listens(&endpoint->browser, (uint16_t)listener->wish);
    return 0;
}

/** Listen as is wished now; 0: do not. */
static void endpoint_follow(struct listener *listener, uint32_t wish)
{
    if (listener->rests && listener->fd >= 0) {
        listener->rests = false;
        uv_poll_start(&listener->poll, UV_READABLE, endpoint_on_listener);
    }
    if (listener->wish == wish || listener->closing)
        return;
    if (listener->fd >= 0) {
        endpoint_close(listener);
        listener->wish = 0;
        return; /* It is opened again when the loop has closed it. */
    }
    listener->wish = wish;
    int error = wish ? endpoint_open(listener) : 0;
    if (error && listener->local)
        agent_log("%s" SUFFIX ": no metrics there: %s", listener->endpoint->agent->paths.socket,
                  strerror(-error));
    else if (error)
        agent_log("127.0.0.1:%u: no metrics there: %s", wish, strerror(-error));
}

void endpoint_tick(struct endpoint *endpoint)
{
    const struct policy_settings *settings = config_policy(&endpoint->agent->config);
    uint64_t now = uv_now(&endpoint->agent->loop);

    endpoint_follow(&endpoint->unix_socket, settings->metrics);
    endpoint_follow(&endpoint->tcp, settings->metrics ? settings->metrics_port : 0);
    for (struct scraper *one = endpoint->scrapers; one; one = one->next)
        if (!one->dropped && now - one->who.since_ms >= DEADLINE_MS)
            endpoint_drop(endpoint, one);
    browser_tick(&endpoint->browser);
}

struct endpoint *endpoint_create(struct agent *agent)
{
    struct endpoint *endpoint = calloc(1, sizeof(*endpoint));

    if (!endpoint)
        return NULL;
    endpoint->agent = agent;
    browser_init(&endpoint->browser, agent, endpoint_wake);
    endpoint->unix_socket = (struct listener){.endpoint = endpoint, .fd = -1, .local = true};
    endpoint->tcp = (struct listener){.endpoint = endpoint, .fd = -1};
    endpoint->daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0,
                         NULL, NULL, endpoint_answer, endpoint, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned)SCRAPERS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
                         (unsigned)(DEADLINE_MS / 1000), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                         (size_t)16384, MHD_OPTION_NOTIFY_CONNECTION, endpoint_notified, endpoint,
                         MHD_OPTION_NOTIFY_COMPLETED, endpoint_completed, endpoint, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        endpoint->daemon ? MHD_get_daemon_info(endpoint->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info || uv_poll_init(&agent->loop, &endpoint->events, info->epoll_fd)) {
        if (endpoint->daemon)
            MHD_stop_daemon(endpoint->daemon);
        free(endpoint);
        return NULL;
    }
    (void)uv_timer_init(&agent->loop, &endpoint->timer); /* It cannot fail. */
    endpoint->events.data = endpoint->timer.data = endpoint;
    uv_poll_start(&endpoint->events, UV_READABLE, endpoint_on_events);
    return endpoint;
}

void endpoint_stop(struct endpoint *endpoint)
{
    endpoint_close(&endpoint->unix_socket);
    endpoint_close(&endpoint->tcp);
    uv_close((uv_handle_t *)&endpoint->events, NULL);
    uv_close((uv_handle_t *)&endpoint->timer, NULL);
    for (unsigned i = 0; i < KEPT_MAX; i++)
        if (endpoint->kept[i].response)
            MHD_destroy_response(endpoint->kept[i].response);
    browser_stop(&endpoint->browser);
    MHD_stop_daemon(endpoint->daemon);
}

void page_handle(struct peer *client, struct message *message)
{
    struct metrics *metrics = client->agent->metrics;
    struct endpoint *endpoint = metrics ? metrics->endpoint : NULL;
    const char *token = NULL;
    char url[80 + PAGE_TOKEN_SIZE];
    struct frame frame;

    (void)message;
    /* Another user may listen at the port instead. */
    if (!endpoint || endpoint->tcp.fd < 0) {
        peer_error(client, ERR_REFUSED,
                   "the agent serves no page: set metrics-port in its configuration "
                   "(reseat.conf(5)), or see its log if that is set");
        return;
    }
    token = browser_token(&endpoint->browser, client);
    if (!token) {
        client_no_memory(client);
        return;
    }
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/#%u.%s", endpoint->tcp.wish,
             (unsigned)client->uid, token);
    frame_init(&frame, MSG_PAGE);
    frame_string(&frame, "url", url);
    peer_send(client, &frame);
}
