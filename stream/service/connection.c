#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "remote/link/tls.h"
#include "remote/rings/area.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "stream/area.h"
#include "stream/service/service.h"

/* The process of one connection: it admits the client, opens its stream, and looks after it. */

/* How long a client has for its handshake, and then for OPEN. On a busy machine a virtual machine
 * that has just begun needs 10 s. Who is slow gives way to others (preauth.h). */
#define ADMIT_NS (30 * NS_PER_S)

struct connection {
    const struct service *service;
    struct service_slot *slot;
    struct link *link;
    bool stranger;
    struct grant grant; /* Of a stranger. */
    struct stream_body frame;
    struct stream_open open;
    struct stream_description description;
    char *text, *source; /* Of a kernel in the folders; NULL: the client's. */
    char device[GRANT_DEVICE_MAX], only[GRANT_DEVICES_MAX * GRANT_DEVICE_MAX];
    struct stream_area area;
    int area_fd;
};

static int connection_refuse(struct connection *connection, int error, const char *format, ...)
    PRINTF(3, 4);
static int connection_refuse(struct connection *connection, int error, const char *format, ...)
{
    char reason[STREAM_REASON_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    log_info("stream: %s was refused: %s", connection->link->peer, reason);
    stream_frame_refuse(connection->link, error, reason);
    return error;
}

/* ---- who it is ---- */

struct connection_counts {
    unsigned all, remote, same;
};

/* Count the connections that came before: all, those of strangers, and those of this client. Each
 * process says that it comes before it takes its place in the order, so that of two at the same
 * time at least one sees the other. */
static struct connection_counts connection_count(const struct connection *connection)
{
    const struct service_table *table = connection->service->table;
    uint64_t own = atomic_load(&connection->slot->order);
    struct connection_counts counts = {0};
    for (unsigned i = 0; i < table->count; i++) {
        const struct service_slot *slot = &table->slots[i];
        uint64_t order = atomic_load(&slot->order);
        if (slot == connection->slot || !atomic_load(&slot->pid) || !order || order >= own)
            continue;
        counts.all++;
        counts.remote += slot->remote;
        counts.same += strcmp(slot->peer, connection->link->peer) == 0;
    }
    return counts;
}

/* Take a place among the streams. A quarter of them is kept from strangers, and a certificate that
 * says no number may have a quarter. */
static int connection_take_place(struct connection *connection)
{
    struct service_slot *slot = connection->slot;
    unsigned streams = connection->service->streams;
    unsigned quarter = streams / 4, own = connection->grant.sessions;
    if (own == GRANT_UNLIMITED_SESSIONS)
        own = quarter ? quarter : 1;
    atomic_store(&slot->order, 1);
    atomic_store(&slot->order, atomic_fetch_add(&connection->service->table->last, 1) + 1);
    struct connection_counts counts = connection_count(connection);
    if (connection->stranger && counts.same >= own)
        return connection_refuse(
            connection, -EMFILE,
            "the limit of streams of your certificate is %u at a time: close one first", own);
    if (connection->stranger && counts.remote >= streams - quarter)
        return connection_refuse(connection, -EMFILE,
                                 "all %u streams for clients with certificates are open: try later",
                                 streams - quarter);
    if (counts.all >= streams)
        return connection_refuse(connection, -EMFILE,
                                 "all %u streams are open: close one, or start reseat stream serve "
                                 "with more --streams",
                                 streams);
    return 0;
}

/* A stranger's connection counts before it is a stream: it holds a process. */
static int connection_enter(struct connection *connection, const struct link_kind *kind)
{
    struct service_slot *slot = connection->slot;
    connection->stranger = kind->anyone;
    snprintf(slot->peer, sizeof(slot->peer), "%s", connection->link->peer);
    atomic_store(&slot->admitted, true);
    if (!connection->stranger)
        return 0;
    int error = tls_grant(connection->link, &connection->grant);
    tls_server_close();
    return error ? error : connection_take_place(connection);
}

/* The devices that a certificate grants, with commas; "": all. */
static void connection_list_devices(struct connection *connection)
{
    const struct grant *grant = &connection->grant;
    size_t used = 0;
    connection->only[0] = '\0';
    for (size_t i = 0; connection->stranger && i < grant->device_count; i++)
        used += (size_t)snprintf(connection->only + used, sizeof(connection->only) - used, "%s%s",
                                 used ? "," : "", grant->devices[i]);
}

/* The device to start on: what the client asks for, within what its certificate grants. */
static int connection_choose_device(struct connection *connection)
{
    const char *asked = connection->open.device.bytes;
    if (strlen(asked) >= sizeof(connection->device))
        return connection_refuse(connection, -ENODEV, "no device has so long a name");
    if (connection->stranger && *asked && !grant_has_device(&connection->grant, asked))
        return connection_refuse(connection, -EACCES, "your certificate does not grant %s", asked);
    strcpy(connection->device, asked);
    connection_list_devices(connection);
    return 0;
}

/* ---- the kernel ---- */

/* Could a source include a file? Of a stranger's kernel the worker, which is not contained, would
 * read it, and the compiler's log would tell. Directives can be written in many ways (split lines,
 * signs in place of others), so only letters count. */
static bool connection_may_include(const struct stream_text *text)
{
    static const char *const words[] = {"include", "import", "embed"};
    CLEANUP(cleanup_free) char *letters = malloc(text->size + 1);
    size_t count = 0;
    for (uint32_t i = 0; letters && i < text->size; i++)
        if (isalpha((unsigned char)text->bytes[i]))
            letters[count++] = text->bytes[i];
    if (letters)
        letters[count] = '\0';
    for (size_t i = 0; letters && i < ARRAY_SIZE(words); i++)
        if (strstr(letters, words[i]))
            return true;
    return !letters;
}

/* The options of the compiler that a stranger may give: those that name no file. */
static bool connection_has_plain_options(const char *options)
{
    static const char *const begin[] = {"-cl-", "-D"}, *const whole[] = {"-w", "-Werror"};
    char copy[STREAM_OPTIONS_MAX], *rest = copy;
    snprintf(copy, sizeof(copy), "%s", options);
    for (char *word; (word = strtok_r(rest, " \t\n\r\v\f", &rest));) {
        bool plain = false;
        for (size_t i = 0; i < ARRAY_SIZE(begin); i++)
            plain = plain || strncmp(word, begin[i], strlen(begin[i])) == 0;
        for (size_t i = 0; i < ARRAY_SIZE(whole); i++)
            plain = plain || strcmp(word, whole[i]) == 0;
        if (!plain || strchr(word, '"') || strcmp(word, "-D") == 0)
            return false;
    }
    return true;
}

static int connection_find_kernel(struct connection *connection)
{
    struct stream_open *open = &connection->open;
    char problem[STREAM_PROBLEM_MAX];
    uint32_t order[STREAM_CONSTANTS_MAX];
    if (open->description.size == 0) {
        int error = kernels_find(connection->service, open->kernel.bytes, &connection->text,
                                 &connection->source, problem);
        if (error)
            return connection_refuse(connection, error, "%s", problem);
        open->description =
            (struct stream_text){connection->text, (uint32_t)strlen(connection->text)};
        open->source =
            (struct stream_text){connection->source, (uint32_t)strlen(connection->source)};
    } else if (!stream_name_is_valid(open->kernel.bytes)) {
        return connection_refuse(connection, -EINVAL,
                                 "give the kernel a name of letters, digits, "
                                 "\"_\" and \"-\"");
    } else if (connection->stranger && connection_may_include(&open->source)) {
        return connection_refuse(connection, -EACCES,
                                 "a kernel of a client with a certificate must not include files: "
                                 "write it in one text, without the words include, import, embed");
    }
    int error =
        stream_description_parse(open->description.bytes, &connection->description, problem);
    error =
        error ? error : stream_description_match(&connection->description, open, order, problem);
    if (error)
        return connection_refuse(connection, error, "kernel %s: %s", open->kernel.bytes, problem);
    if (connection->stranger && !connection->text &&
        !connection_has_plain_options(connection->description.options))
        return connection_refuse(connection, -EACCES,
                                 "the options of a kernel of a client with a certificate may be "
                                 "-cl-..., -DNAME=VALUE, -w and -Werror");
    return 0;
}

/* A file with the body of OPEN for the worker, which reads it again after a restart. */
static int connection_write_job(const struct connection *connection, int *ret_fd)
{
    struct stream_body body = {0};
    int fd = memfd_create("reseat-stream-job", MFD_CLOEXEC);
    stream_open_put(&body, &connection->open);
    int error = fd < 0 ? -errno : body.error;
    if (!error && write(fd, body.bytes, body.size) != (ssize_t)body.size)
        error = -ENOSPC;
    stream_body_finish(&body);
    if (error && fd >= 0)
        close(fd);
    else if (!error)
        *ret_fd = fd;
    return error;
}

static int connection_make_area(struct connection *connection)
{
    struct service_slot *slot = connection->slot;
    struct stream_shape shape =
        stream_shape_of(connection->description.input, connection->description.output, 0);
    char *bytes;
    int error = area_create("reseat-stream", shape.size, &connection->area_fd);
    error = error ? error : area_map(connection->area_fd, shape.size, &bytes);
    if (error)
        return connection_refuse(connection, error, "no memory for the stream: %s",
                                 strerror(-error));
    stream_area_init(&connection->area, bytes, &shape);
    slot->area_size = shape.size;
    snprintf(slot->kernel, sizeof(slot->kernel), "%s", connection->open.kernel.bytes);
    snprintf(slot->program, sizeof(slot->program), "stream-%.40s-%llu", slot->kernel,
             (unsigned long long)atomic_load(&slot->order));
    atomic_store(&slot->area, connection->area_fd);
    return 0;
}

/* ---- the stream ---- */

/* The worker is ready for the first time. */
static int connection_answer_opened(void *data)
{
    const struct connection *connection = data;
    const struct stream_shape *shape = &connection->area.shape;
    const struct service_slot *slot = connection->slot;
    struct stream_body body = {0};
    char path[64] = "";
    if (slot->shared)
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), connection->area_fd);
    struct stream_opened opened = {
        .version = STREAM_VERSION,
        .input = shape->input,
        .output = shape->output,
        .capacity = shape->capacity,
        .area = shape->size,
        .path = {path, (uint32_t)strlen(path)},
        .program = {slot->program, (uint32_t)strlen(slot->program)},
    };
    stream_opened_put(&body, &opened);
    int error = body.error ? body.error
                           : stream_frame_send(connection->link, STREAM_OPENED, body.bytes,
                                               body.size, clock_now_ns() + ADMIT_NS);
    stream_body_finish(&body);
    return error;
}

static int connection_stream(struct connection *connection)
{
    struct service_slot *slot = connection->slot;
    struct owned *(*socket)(struct link *) = connection->link->ops->socket;
    slot->shared = socket && !connection->stranger && connection->open.flags & STREAM_OPEN_SHARED;
    struct supervisor supervisor = {
        .reseat = connection->service->reseat,
        .worker = connection->service->worker,
        .program = slot->program,
        .device = connection->device,
        .only = connection->only,
        .isolate = connection->stranger,
        .certified = connection->stranger ? connection->link : NULL,
        .ready_ns = connection->service->ready_ns,
        .patience_ns = connection->stranger ? connection->service->patience_ns : UINT64_MAX,
        .quota = connection->stranger ? connection->grant.memory : GRANT_UNLIMITED_MEMORY,
        .area = &connection->area,
        .area_fd = connection->area_fd,
        .begin = connection_answer_opened,
        .data = connection,
    };
    char reason[STREAM_REASON_MAX];
    int error = connection_write_job(connection, &supervisor.job);
    if (error)
        return connection_refuse(connection, error, "%s", strerror(-error));
    learnt_find(&supervisor, connection->service, connection->stranger ? slot->peer : "",
                &connection->open);
    if (!slot->shared)
        return bridge_run(connection->link, &supervisor);
    supervisor.doorbell = supervisor.client = owned_fd(socket(connection->link));
    supervisor.client_events = POLLRDHUP;
    error = supervisor_run(&supervisor);
    /* Once the stream is open, the reason is in the area. */
    if (error && !supervisor.begun &&
        stream_area_failure(&connection->area, reason, sizeof(reason)))
        return connection_refuse(connection, error, "%s", reason);
    return error;
}

static int connection_send_list(const struct connection *connection)
{
    CLEANUP(cleanup_free) char *text = kernels_list(connection->service);
    if (!text)
        return -ENOMEM;
    return stream_frame_send(connection->link, STREAM_LISTED, text, strlen(text),
                             clock_now_ns() + ADMIT_NS);
}

static int connection_open(struct connection *connection)
{
    int error = stream_open_get(&connection->frame, &connection->open);
    if (error)
        return connection_refuse(connection, error, "OPEN is not understood");
    if (connection->open.version != STREAM_VERSION)
        return connection_refuse(connection, -EPROTONOSUPPORT,
                                 "this service speaks version %d: update the older of client and "
                                 "service",
                                 STREAM_VERSION);
    error = connection->stranger ? 0 : connection_take_place(connection);
    error = error ? error : connection_choose_device(connection);
    error = error ? error : connection_find_kernel(connection);
    error = error ? error : connection_make_area(connection);
    return error ? error : connection_stream(connection);
}

int connection_run(const struct service *service, const struct link_kind *kind, int fd,
                   struct service_slot *slot)
{
    struct connection connection = {.service = service, .slot = slot, .area_fd = -1};
    enum stream_frame type;
    int error = kind->admit(fd, clock_now_ns() + ADMIT_NS, &connection.link);
    if (error) {
        log_info("stream: a connection was not admitted: %s",
                 kind->anyone ? tls_reason() : strerror(-error));
        return 1;
    }
    error = connection_enter(&connection, kind);
    if (!error) {
        error = stream_frame_receive(connection.link, clock_now_ns() + ADMIT_NS, &type,
                                     &connection.frame);
        if (error && error != -EPIPE)
            (void)connection_refuse(&connection, error,
                                    "the first frame must be OPEN, of at most "
                                    "%u bytes: %s",
                                    STREAM_FRAME_MAX, strerror(-error));
    }
    if (!error && type == STREAM_LIST && !connection.stranger)
        error = connection_send_list(&connection);
    else if (!error && type == STREAM_OPEN)
        error = connection_open(&connection);
    else if (!error)
        error = connection_refuse(&connection, -EPROTO, "the first frame must be OPEN");
    connection.link->ops->shut_down(connection.link);
    stream_body_finish(&connection.frame);
    free(connection.text);
    free(connection.source);
    return error != 0;
}
