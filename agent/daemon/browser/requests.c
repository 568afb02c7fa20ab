#include "agent/daemon/browser/browser.h"

#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/daemon/page_html.h"
#include "agent/protocol/json.h"

#define BODY_MAX 4096
/* Answers end after this time, sooner than the endpoint drops a connection; the page asks again. */
#define ANSWER_MS 8000
/* No more is read of the agent's answer while this many bytes were not sent, and so much at once.
 */
#define UNSENT_MAX (1u << 20)
#define READ_SIZE  (256u << 10)

/* A POST: its body, and then a connection to the agent, whose frames are its answer. */
struct browser_request {
    struct browser_request *next;
    struct browser *browser;
    struct MHD_Connection *connection;
    char body[BODY_MAX + 1]; /* With a NUL, which is not counted. */
    size_t body_size;
    int fd; /* -1: it has not been answered. */
    uv_poll_t poll;
    struct frame_reader reader;
    uint64_t since_ms;
    char *text; /* Lines of JSON that were not sent. */
    size_t start, used, room;
    bool suspended, ended;
};

/** What may be asked from a page, and by which members; all are texts, truths or numbers. */
static const struct {
    const char *type;
    const char *members[5];
} requests_known[] = {
    {MSG_APPS, {NULL}},
    {MSG_DEVICES, {"age_ms"}},
    {MSG_EVENTS, {"age_ms", "follow"}},
    {MSG_MOVE, {"app", "device", "dry_run", "detach"}},
    {MSG_CANCEL, {"app"}},
};

/* ---- answers ---- */

static void requests_resume(struct browser_request *request)
{
    if (!request->suspended)
        return;
    request->suspended = false;
    MHD_resume_connection(request->connection);
    request->browser->wake(request->browser);
}

static void requests_closed(uv_handle_t *handle)
{
    struct browser_request *request = handle->data;

    close(request->fd);
    frame_reader_finish(&request->reader);
    free(request->text);
    free(request);
}

/** No more comes; what there is is sent. */
static void requests_end(struct browser_request *request)
{
    request->ended = true;
    uv_poll_stop(&request->poll);
    requests_resume(request);
}

static bool requests_add(struct browser_request *request, const char *line)
{
    size_t size = strlen(line) + 1, kept = request->used - request->start;

    if (request->start && kept)
        memmove(request->text, request->text + request->start, kept);
    request->start = 0;
    request->used = kept;
    if (kept + size > request->room) {
        char *text = realloc(request->text, 2 * (kept + size));
        if (!text)
            return false;
        request->text = text;
        request->room = 2 * (kept + size);
    }
    memcpy(request->text + kept, line, size);
    request->text[kept + size - 1] = '\n';
    request->used += size;
    return true;
}

/** Add what the agent said. Returns false after the last frame, or without memory. */
static bool requests_hear(struct browser_request *request, const struct message *message)
{
    const msgpack_object *map = &message->root;

    if (field_is(map, "type", MSG_WELCOME))
        return true;
    json_auto_t *json = json_message(message);
    char *line = json_dumps(json, JSON_COMPACT);
    bool added = line && requests_add(request, line);
    free(line);
    return added && (field_is(map, "type", MSG_PROGRESS) || field_is(map, "type", MSG_NOTICE) ||
                     field_bool(map, "more", false));
}

static void requests_on_readable(uv_poll_t *poll, int status, int events)
{
    struct browser_request *request = poll->data;
    char bytes[16384];
    struct message message;
    size_t read = 0;
    int got = 1;
    ssize_t count = 0;

    (void)events;
    while (!status && got >= 0 && read < READ_SIZE &&
           (count = recv(request->fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
        read += (size_t)count;
        got = frame_reader_feed(&request->reader, bytes, (size_t)count);
        while (!got && (got = frame_reader_next(&request->reader, &message)) == 1) {
            got = requests_hear(request, &message) ? 0 : -ECANCELED;
            message_finish(&message);
        }
    }
    if (status || got < 0 || count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
        requests_end(request);
        return;
    }
    if (request->used - request->start > UNSENT_MAX)
        uv_poll_stop(poll);
    if (request->used > request->start)
        requests_resume(request);
}

/** Give the HTTP library what there is, or suspend the connection until there is something. */
static ssize_t requests_read(void *data, uint64_t position, char *ret, size_t room)
{
    struct browser_request *request = data;
    size_t size = request->used - request->start;

    (void)position;
    if (!size && request->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (!size) {
        request->suspended = true;
        MHD_suspend_connection(request->connection);
        return 0;
    }
    size = size < room ? size : room;
    memcpy(ret, request->text + request->start, size);
    request->start += size;
    if (!request->ended && request->used - request->start <= UNSENT_MAX)
        uv_poll_start(&request->poll, UV_READABLE, requests_on_readable);
    return (ssize_t)size;
}

/* ---- requests ---- */

static bool requests_send(int fd, struct frame *frame)
{
    /* The other end is new: there is room for all of a short frame. */
    bool sent = !frame_seal(frame) && send(fd, frame->buffer.data, frame->buffer.size,
                                           MSG_NOSIGNAL) == (ssize_t)frame->buffer.size;

    frame_finish(frame);
    return sent;
}

/** Put what a page asks into a frame. Returns false where it may not be asked. */
static bool requests_put(const json_t *asked, struct frame *ret_frame)
{
    const char *type = json_string_value(json_object_get(asked, "type"));
    const char *const *members = NULL;
    size_t known = 1; /* "type" */

    for (size_t i = 0; type && i < ARRAY_SIZE(requests_known); i++)
        if (strcmp(requests_known[i].type, type) == 0)
            members = requests_known[i].members;
    if (!members)
        return false;
    frame_init(ret_frame, type);
    for (; *members; members++) {
        const json_t *value = json_object_get(asked, *members);
        if (json_is_string(value))
            frame_string(ret_frame, *members, json_string_value(value));
        else if (json_is_boolean(value))
            frame_bool(ret_frame, *members, json_is_true(value));
        else if (json_is_integer(value) && json_integer_value(value) >= 0)
            frame_u64(ret_frame, *members, (uint64_t)json_integer_value(value));
        else
            continue;
        known++;
    }
    if (known == json_object_size(asked))
        return true;
    frame_finish(ret_frame);
    return false;
}

/** Connect to the agent for @user and ask. Returns a status of HTTP. */
static unsigned requests_ask(struct browser_request *request, const struct page_user *user,
                             struct frame *frame)
{
    struct browser *browser = request->browser;
    gid_t groups[PAGE_GROUPS_MAX];
    struct frame hello;
    int fd;

    for (size_t i = 0; i < user->group_count; i++)
        groups[i] = (gid_t)user->groups[i];
    if (peers_connect(browser->agent, (uid_t)user->uid, groups, user->group_count, &fd)) {
        frame_finish(frame);
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
    frame_init(&hello, MSG_HELLO);
    frame_u64(&hello, "version", PROTOCOL_VERSION);
    frame_string(&hello, "role", "client");
    bool sent = requests_send(fd, &hello);
    sent = requests_send(fd, frame) && sent;
    if (!sent || uv_poll_init(&browser->agent->loop, &request->poll, fd)) {
        close(fd);
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
    request->poll.data = request;
    request->fd = fd;
    request->since_ms = uv_now(&browser->agent->loop);
    request->next = browser->requests;
    browser->requests = request;
    uv_poll_start(&request->poll, UV_READABLE, requests_on_readable);
    return MHD_HTTP_OK;
}

static void requests_protect(struct MHD_Response *response, const char *type)
{
    (void)MHD_add_response_header(response, "Content-Type", type);
    (void)MHD_add_response_header(response, "Cache-Control", "no-store");
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    (void)MHD_add_response_header(response, "Connection", "close");
}

struct MHD_Response *browser_json(const char *body)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(body), (void *)body, MHD_RESPMEM_MUST_COPY);

    if (response)
        requests_protect(response, "application/json");
    return response;
}

struct MHD_Response *browser_page(void)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(page_html_size, (void *)page_html, MHD_RESPMEM_PERSISTENT);

    if (!response)
        return NULL;
    requests_protect(response, "text/html; charset=utf-8");
    (void)MHD_add_response_header(response, "Content-Security-Policy", page_html_policy);
    (void)MHD_add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
    (void)MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    return response;
}

unsigned browser_begin(struct browser *browser, struct MHD_Connection *connection,
                       struct browser_request **ret_request)
{
    static const char *const names[] = {"Host", "Origin", "Content-Type", "Content-Length"};
    const char *values[ARRAY_SIZE(names)];
    char address[32], name[32], *end;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        values[i] = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, names[i]);
    snprintf(address, sizeof(address), "127.0.0.1:%u", browser->port);
    snprintf(name, sizeof(name), "localhost:%u", browser->port);
    /* A page of another site, or of another port of this host, has another origin. */
    if (!values[0] || (strcmp(values[0], address) != 0 && strcmp(values[0], name) != 0) ||
        !values[1] || strncmp(values[1], "http://", 7) != 0 ||
        strcmp(values[1] + 7, values[0]) != 0)
        return MHD_HTTP_FORBIDDEN;
    if (!values[2] || strcmp(values[2], "application/json") != 0)
        return MHD_HTTP_UNSUPPORTED_MEDIA_TYPE;
    if (!values[3])
        return MHD_HTTP_LENGTH_REQUIRED;
    if (strtoul(values[3], &end, 10) > BODY_MAX || *end)
        return MHD_HTTP_CONTENT_TOO_LARGE;
    struct browser_request *request = calloc(1, sizeof(*request));
    if (!request)
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    request->browser = browser;
    request->connection = connection;
    request->fd = -1;
    frame_reader_init(&request->reader);
    *ret_request = request;
    return 0;
}

bool browser_take(struct browser_request *request, const char *bytes, size_t size)
{
    if (size > BODY_MAX - request->body_size)
        return false;
    memcpy(request->body + request->body_size, bytes, size);
    request->body_size += size;
    return true;
}

const struct page_user *browser_user(const struct browser_request *request)
{
    const char *values[2];

    for (size_t i = 0; i < 2; i++)
        values[i] = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND,
                                                i ? "Host" : "Authorization");
    return browser_signed_by(request->browser, values[0], values[1], request->body,
                             request->body_size);
}

unsigned browser_answer(struct browser_request *request, const struct page_user *user,
                        struct MHD_Response **ret_response)
{
    char text[PAGE_TOKEN_SIZE + 32];
    struct frame frame;

    if (!user) {
        snprintf(text, sizeof(text), "{\"challenge\":\"%s\"}\n", request->browser->challenge);
        *ret_response = browser_json(text);
        return MHD_HTTP_UNAUTHORIZED;
    }
    json_auto_t *asked = json_loadb(request->body, request->body_size, 0, NULL);
    unsigned status =
        requests_put(asked, &frame) ? requests_ask(request, user, &frame) : MHD_HTTP_BAD_REQUEST;
    if (status == MHD_HTTP_OK) {
        *ret_response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, requests_read,
                                                          request, NULL);
        if (*ret_response)
            requests_protect(*ret_response, "application/x-ndjson");
    } else {
        *ret_response = browser_json("{}\n");
    }
    return status;
}

void browser_finish(struct browser_request *request)
{
    struct browser_request **at = &request->browser->requests;

    while (*at && *at != request)
        at = &(*at)->next;
    if (*at)
        *at = request->next;
    if (request->fd >= 0) {
        uv_close((uv_handle_t *)&request->poll, requests_closed);
        return;
    }
    frame_reader_finish(&request->reader);
    free(request);
}

void browser_tick(struct browser *browser)
{
    uint64_t now = uv_now(&browser->agent->loop);

    for (struct browser_request *one = browser->requests; one; one = one->next)
        if (!one->ended && now - one->since_ms >= ANSWER_MS)
            requests_end(one);
}

void browser_stop(struct browser *browser)
{
    for (struct browser_request *one = browser->requests; one; one = one->next)
        requests_end(one);
}
