#include "stream/client/connect.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote/link/tls.h"
#include "remote/rings/area.h"
#include "state/base/cleanup.h"

#define AREA_MAX (1ull << 32)

static int connect_fail(char *ret_reason, int error, const char *what)
{
    snprintf(ret_reason, RESEAT_STREAM_REASON, "%s: %s", what, strerror(-error));
    return error;
}

/* ---- without a shared area ---- */

static bool connect_is_over(const struct connection *connection)
{
    return !stream_area_hear(connection->other);
}

/* Send the records of the area. Takes the worker's place in it. */
static void *connect_send(void *data)
{
    struct connection *connection = data;
    const struct stream_area *area = &connection->area;
    uint64_t at = 0, sent = 0;
    for (;;) {
        atomic_store(&area->header->worker_sleeps, 1);
        sent = atomic_load(&area->header->sent);
        if (at == sent) {
            struct pollfd bell = {.fd = connection->other, .events = POLLIN};
            (void)poll(&bell, 1, -1);
            if (connect_is_over(connection))
                return NULL;
            continue;
        }
        uint64_t together, count = sent - at;
        char *records = stream_area_input(area, at, &together);
        count = count < together ? count : together;
        count = count < STREAM_FRAME_MAX / area->shape.input ? count
                                                             : STREAM_FRAME_MAX / area->shape.input;
        if (stream_frame_send(connection->link, STREAM_RECORDS, records,
                              (size_t)count * area->shape.input, UINT64_MAX))
            return NULL; /* The receiver notices, too. */
        at += count;
    }
}

/* Receive answers into the area. The client has not more under way than its ring has room for. */
static int connect_receive_answers(struct connection *connection, size_t size, uint64_t *answered)
{
    const struct stream_area *area = &connection->area;
    struct stream_area_header *header = area->header;
    uint64_t count = size / area->shape.output;
    if (size % area->shape.output || count > atomic_load(&header->sent) - *answered)
        return -EPROTO;
    while (count > 0) {
        uint64_t together, now;
        char *at = stream_area_output(area, *answered, &together);
        now = count < together ? count : together;
        int error = stream_frame_receive_all(connection->link, at, (size_t)now * area->shape.output,
                                             UINT64_MAX);
        if (error)
            return error;
        *answered += now;
        count -= now;
        stream_area_advance(&header->answered, *answered, &header->client_sleeps,
                            connection->other);
    }
    return 0;
}

static void connect_take_refusal(struct connection *connection, size_t size)
{
    char reason[RESEAT_STREAM_REASON];
    struct stream_body body = {.bytes = malloc(size + 1), .size = size};
    if (body.bytes && !stream_frame_receive_all(connection->link, body.bytes, size, UINT64_MAX)) {
        int error = stream_refused_get(&body, reason, sizeof(reason));
        stream_area_fail(&connection->area, error, reason, connection->other);
    }
    stream_body_finish(&body);
}

static void *connect_receive(void *data)
{
    struct connection *connection = data;
    uint64_t answered = 0;
    int error = 0;
    while (!error) {
        unsigned char bytes[STREAM_FRAME_HEADER];
        enum stream_frame type = 0;
        size_t size;
        error = stream_frame_receive_all(connection->link, bytes, sizeof(bytes), UINT64_MAX);
        error = error ? error : stream_frame_header(bytes, &type, &size);
        if (!error && type == STREAM_ANSWERS)
            error = connect_receive_answers(connection, size, &answered);
        else if (!error && type == STREAM_REFUSED)
            connect_take_refusal(connection, size);
        else if (!error)
            error = -EPROTO;
    }
    if (error == -EPROTO || error == -EMSGSIZE)
        stream_area_fail(&connection->area, error, "the service sent what is not understood",
                         connection->other);
    /* The client and the sender learn that the service has hung up. */
    (void)shutdown(connection->other, SHUT_RDWR);
    return NULL;
}

static int connect_start_threads(struct connection *connection)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return -errno;
    connection->doorbell = pair[0];
    connection->other = pair[1];
    int error = -pthread_create(&connection->receiver, NULL, connect_receive, connection);
    if (!error) {
        error = -pthread_create(&connection->sender, NULL, connect_send, connection);
        if (error) {
            connection->link->ops->shut_down(connection->link);
            pthread_join(connection->receiver, NULL);
        }
    }
    if (error) {
        close(pair[0]);
        close(pair[1]);
        connection->other = -1;
    }
    return error;
}

/* ---- connecting ---- */

static int connect_map(struct connection *connection, const struct stream_opened *opened)
{
    struct stream_shape shape;
    char *bytes = NULL;
    if (!opened->input || !opened->output || opened->input > STREAM_RECORD_MAX ||
        opened->output > STREAM_RECORD_MAX || !opened->capacity ||
        opened->capacity > AREA_MAX / STREAM_RECORD_MAX * 4096)
        return -EPROTO;
    shape = stream_shape_of(opened->input, opened->output, opened->capacity);
    if (shape.size != opened->area || shape.size > AREA_MAX)
        return -EPROTO;
    CLEANUP(cleanup_close) int fd = -1;
    int error = 0;
    if (opened->path.size == 0) {
        error = area_create("reseat-stream-client", shape.size, &fd);
    } else {
        fd = open(opened->path.bytes, O_RDWR | O_CLOEXEC);
        error = fd < 0 ? -errno : area_check(fd, shape.size);
    }
    error = error ? error : area_map(fd, shape.size, &bytes);
    if (error)
        return error;
    connection->area = (struct stream_area){(struct stream_area_header *)bytes, shape};
    return 0;
}

static int connect_begin(struct connection *connection, struct stream_body *body)
{
    struct stream_opened opened;
    int error = stream_opened_get(body, &opened);
    /* Another host's service must not have us open what it names. */
    if (!error && opened.path.size && !connection->link->ops->socket)
        error = -EPROTO;
    error = error ? error : connect_map(connection, &opened);
    if (error)
        return error;
    snprintf(connection->program, sizeof(connection->program), "%s", opened.program.bytes);
    connection->other = -1;
    if (opened.path.size)
        connection->doorbell = owned_fd(connection->link->ops->socket(connection->link));
    else
        error = connect_start_threads(connection);
    if (error)
        area_unmap((char *)connection->area.header, connection->area.shape.size);
    return error;
}

/* Without credentials that can be read, no attempt is of use. 0, or -ENOKEY with the reason. */
static int connect_check_credentials(const char *address, char *ret_reason)
{
    char path[PATH_MAX], problem[FOLDER_PROBLEM_MAX];
    struct credentials credentials;
    struct address parsed;
    if (address_parse(address, &parsed, problem)) {
        snprintf(ret_reason, RESEAT_STREAM_REASON, "%s", problem);
        return -EINVAL;
    }
    if (credentials_find(&parsed, path)) {
        snprintf(
            ret_reason, RESEAT_STREAM_REASON,
            "there are no credentials for %s: reseat serve --issue NAME on its host makes some; "
            "name the file in RESEAT_CREDENTIALS",
            address);
        return -ENOKEY;
    }
    if (credentials_load(path, &credentials, problem)) {
        snprintf(ret_reason, RESEAT_STREAM_REASON, "the credentials for %s: %s", address, problem);
        return -ENOKEY;
    }
    credentials_finish(&credentials);
    return 0;
}

static int connect_link(const char *address, uint64_t deadline_ns, struct link **ret_link,
                        char *ret_reason)
{
    const char *where;
    const struct link_kind *kind = link_kind_of(address, &where);
    if (!kind) {
        snprintf(ret_reason, RESEAT_STREAM_REASON,
                 "%.200s is not an address: say unix:PATH or tcp:HOST:PORT", address);
        return -EINVAL;
    }
    int error = kind->anyone ? connect_check_credentials(address, ret_reason) : 0;
    if (error)
        return error;
    error = kind->connect(where, NULL, deadline_ns, ret_link);
    if (error && kind->anyone && tls_reason()[0])
        snprintf(ret_reason, RESEAT_STREAM_REASON, "%.200s: %.700s", address, tls_reason());
    else if (error)
        snprintf(ret_reason, RESEAT_STREAM_REASON,
                 "no service of streams at %.200s (%s): start one with reseat stream serve",
                 address, strerror(-error));
    return error;
}

/* Ask, and receive the answer. Returns 0 or -errno with the reason. */
static int connect_ask(struct link *link, enum stream_frame type, const struct stream_body *asked,
                       enum stream_frame wanted, uint64_t deadline_ns, struct stream_body *ret_body,
                       char *ret_reason, bool *ret_refused)
{
    enum stream_frame got;
    int error = stream_frame_send(link, type, asked->bytes, asked->size, deadline_ns);
    error = error ? error : stream_frame_receive(link, deadline_ns, &got, ret_body);
    *ret_refused = !error;
    if (error)
        return connect_fail(ret_reason, error, "the service does not answer");
    if (got == wanted)
        return 0;
    error = got == STREAM_REFUSED ? stream_refused_get(ret_body, ret_reason, RESEAT_STREAM_REASON)
                                  : connect_fail(ret_reason, -EPROTO, "the service");
    stream_body_finish(ret_body);
    return error;
}

static int connect_once(const char *address, const struct stream_body *open, uint64_t deadline_ns,
                        struct connection **ret_connection, char *ret_reason, bool *ret_refused,
                        bool *ret_unreachable)
{
    struct stream_body body = {0};
    struct connection *connection = calloc(1, sizeof(*connection));
    *ret_refused = false;
    if (!connection)
        return connect_fail(ret_reason, -ENOMEM, "the stream");
    int error = connect_link(address, deadline_ns, &connection->link, ret_reason);
    if (error) {
        *ret_refused = error == -EINVAL || error == -ENOKEY || error == -EPERM || error == -EACCES;
        free(connection);
        return error;
    }
    /* A kernel may take minutes to build: the service ends the connection if it cannot. */
    error = connect_ask(connection->link, STREAM_OPEN, open, STREAM_OPENED, UINT64_MAX, &body,
                        ret_reason, ret_refused);
    if (!error) {
        error = connect_begin(connection, &body);
        *ret_unreachable = error == -ENOENT || error == -EACCES || error == -EPERM;
        if (error)
            (void)connect_fail(ret_reason, error, "the stream's memory");
        stream_body_finish(&body);
    }
    if (error) {
        connection->link->ops->destroy(connection->link);
        free(connection);
        return error;
    }
    *ret_connection = connection;
    return 0;
}

int connection_make(const char *address, struct stream_body *open, uint64_t deadline_ns,
                    struct connection **ret_connection, char *ret_reason, bool *ret_refused)
{
    bool unreachable = false;
    int error = connect_once(address, open, deadline_ns, ret_connection, ret_reason, ret_refused,
                             &unreachable);
    if (!unreachable)
        return error;
    /* A service in another namespace of processes: its /proc is not ours. */
    stream_open_unshare(open);
    return connect_once(address, open, deadline_ns, ret_connection, ret_reason, ret_refused,
                        &unreachable);
}

void connection_destroy(struct connection *connection)
{
    if (!connection)
        return;
    connection->link->ops->shut_down(connection->link);
    if (connection->other >= 0) {
        (void)shutdown(connection->doorbell, SHUT_RDWR);
        pthread_join(connection->sender, NULL);
        pthread_join(connection->receiver, NULL);
        close(connection->doorbell);
        close(connection->other);
    }
    area_unmap((char *)connection->area.header, connection->area.shape.size);
    connection->link->ops->destroy(connection->link);
    free(connection);
}

bool connection_is_missing(const char *address, uint64_t deadline_ns)
{
    const char *where;
    const struct link_kind *kind = link_kind_of(address, &where);
    struct link *link;
    if (!kind || kind->anyone)
        return false;
    int error = kind->connect(where, NULL, deadline_ns, &link);
    if (!error)
        link->ops->destroy(link);
    return error == -ENOENT || error == -ECONNREFUSED;
}

int connection_list(const char *address, uint64_t deadline_ns, char **ret_text, char *ret_reason)
{
    struct stream_body body = {0}, none = {0};
    struct link *link;
    bool refused;
    int error = connect_link(address, deadline_ns, &link, ret_reason);
    if (error)
        return error;
    error = connect_ask(link, STREAM_LIST, &none, STREAM_LISTED, deadline_ns, &body, ret_reason,
                        &refused);
    if (!error)
        *ret_text = body.bytes;
    link->ops->destroy(link);
    return error;
}
