#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "remote/rings/bell.h"
#include "state/base/clock.h"
#include "stream/client/connect.h"
#include "stream/client/reseat_stream.h"

/*
 * A client keeps each record in its ring until its answer was taken. When the service ends, what it
 * has answered is still in the area, and is taken; the records that it has not answered are then
 * sent to the next one.
 */

#define DEADLINE_MS 10000
/* How often a service that does not listen is tried again. */
#define RETRY_NS (50 * NS_PER_MS)

struct reseat_stream {
    char address[PATH_MAX];
    struct stream_body open;
    uint64_t deadline_ns;          /* For connecting. */
    struct connection *connection; /* NULL: not open. Changed by the reader, under `lock`. */
    uint32_t input, output;        /* Of all its connections. */
    char program[64];
    int wake; /* An eventfd: the reader should look again. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t sent, answered, taken; /* Of this connection. Under `lock`. */
    struct bell_spin spin;          /* The reader's. */
    uint64_t pack_ns, unpack_ns;    /* When room, and answers, were borrowed. Each of one thread. */
    bool packing;                   /* Room of the ring is borrowed. Under `lock`. */
    bool finished;                  /* Under `lock`. */
    int error;                      /* The stream has failed. Under `lock`. */
    char reason[RESEAT_STREAM_REASON];
};

/* ---- opening and closing ---- */

static struct stream_text client_text(const char *text)
{
    return (struct stream_text){text ? text : "", text ? (uint32_t)strlen(text) : 0};
}

static int client_write_open(struct reseat_stream *stream, const char *kernel,
                             const struct reseat_stream_options *options)
{
    struct stream_open open = {.version = STREAM_VERSION,
                               .flags = options->unshared ? 0 : STREAM_OPEN_SHARED,
                               .kernel = client_text(kernel),
                               .description = client_text(options->description),
                               .source = client_text(options->source),
                               .device = client_text(options->device),
                               .count = (uint32_t)options->count};
    if (options->count > STREAM_CONSTANTS_MAX || options->size < sizeof(*options))
        return -EINVAL;
    for (size_t i = 0; i < options->count; i++) {
        const struct reseat_stream_constant *constant = &options->constants[i];
        if (constant->size > STREAM_FRAME_MAX)
            return -EMSGSIZE;
        open.constants[i].name = client_text(constant->name);
        open.constants[i].value = (struct stream_text){constant->bytes, (uint32_t)constant->size};
    }
    stream_open_put(&stream->open, &open);
    if (!stream->open.error && stream->open.size > STREAM_FRAME_MAX)
        return -EMSGSIZE;
    return stream->open.error;
}

static int client_find_address(struct reseat_stream *stream, const char *named)
{
    if (!named)
        return stream_address_find(stream->address);
    return snprintf(stream->address, sizeof(stream->address), "%s", named) <
                   (int)sizeof(stream->address)
               ? 0
               : -ENAMETOOLONG;
}

/* Try until a service answers. */
static int client_open_connection(struct reseat_stream *stream, struct connection **ret_connection,
                                  char *ret_reason)
{
    uint64_t deadline = clock_now_ns() + stream->deadline_ns;
    for (;;) {
        bool refused;
        int error = connection_make(stream->address, &stream->open, deadline, ret_connection,
                                    ret_reason, &refused);
        if (!error || refused || clock_now_ns() + RETRY_NS >= deadline)
            return error;
        clock_sleep(RETRY_NS);
    }
}

int reseat_stream_open(const char *kernel, const struct reseat_stream_options *options,
                       struct reseat_stream **ret_stream, char *ret_reason)
{
    static const struct reseat_stream_options defaults = {.size = sizeof(defaults)};
    struct reseat_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return -ENOMEM;
    options = options ? options : &defaults;
    stream->deadline_ns = (options->deadline_ms ? options->deadline_ms : DEADLINE_MS) * NS_PER_MS;
    stream->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    bell_spin_init(&stream->spin, BELL_SPIN_DEVICE);
    int error = stream->wake < 0 ? -errno : client_find_address(stream, options->address);
    error = error ? error : client_write_open(stream, kernel, options);
    if (error) {
        snprintf(ret_reason, RESEAT_STREAM_REASON, "the options of the stream: %s",
                 strerror(-error));
    } else {
        error = client_open_connection(stream, &stream->connection, ret_reason);
    }
    if (error) {
        reseat_stream_close(stream);
        return error;
    }
    stream->input = stream->connection->area.shape.input;
    stream->output = stream->connection->area.shape.output;
    strcpy(stream->program, stream->connection->program);
    *ret_stream = stream;
    return 0;
}

void reseat_stream_close(struct reseat_stream *stream)
{
    if (!stream)
        return;
    connection_destroy(stream->connection);
    if (stream->wake >= 0)
        close(stream->wake);
    stream_body_finish(&stream->open);
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->changed);
    free(stream);
}

/* ---- what it is ---- */

size_t reseat_stream_input(const struct reseat_stream *stream)
{
    return stream->input;
}

size_t reseat_stream_output(const struct reseat_stream *stream)
{
    return stream->output;
}

const char *reseat_stream_program(const struct reseat_stream *stream)
{
    return stream->program;
}

/* A hint of the area, whose connection the reader may be replacing. */
static size_t client_payload(struct reseat_stream *stream, bool packs)
{
    pthread_mutex_lock(&stream->lock);
    struct stream_area_header *header = stream->connection->area.header;
    uint32_t records = atomic_load(packs ? &header->pack_payload : &header->unpack_payload);
    pthread_mutex_unlock(&stream->lock);
    return records;
}

size_t reseat_stream_pack_payload(struct reseat_stream *stream)
{
    return client_payload(stream, true);
}

size_t reseat_stream_unpack_payload(struct reseat_stream *stream)
{
    return client_payload(stream, false);
}

const char *reseat_stream_reason(const struct reseat_stream *stream)
{
    return stream->reason;
}

/* ---- another service ---- */

/* The stream has failed, for the reason in `reason`. */
static int client_fail(struct reseat_stream *stream, int error)
{
    stream->error = error;
    pthread_cond_broadcast(&stream->changed);
    return error;
}

/* Copy the records whose answers were not taken to a new connection. */
static int client_send_again(struct reseat_stream *stream, struct connection *to)
{
    const struct stream_area *old = &stream->connection->area, *new = &to->area;
    uint64_t count = stream->sent - stream->taken;
    if (old->shape.input != new->shape.input || old->shape.output != new->shape.output ||
        count > new->shape.capacity) {
        snprintf(stream->reason, sizeof(stream->reason),
                 "the kernel has changed while the service was away: open the stream again");
        return -ESTALE;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t together;
        char *at = stream_area_input(new, i, &together);
        memcpy(at, stream_area_input(old, stream->taken + i, &together), old->shape.input);
    }
    stream->sent = count;
    stream->answered = stream->taken = 0;
    stream_area_advance(&new->header->sent, count, &new->header->worker_sleeps, to->doorbell);
    return 0;
}

/* The service has hung up. Called by the reader, under the lock, which others wait for. */
static int client_reconnect(struct reseat_stream *stream)
{
    struct connection *next;
    while (stream->packing)
        pthread_cond_wait(&stream->changed, &stream->lock);
    int error = client_open_connection(stream, &next, stream->reason);
    if (error)
        return client_fail(stream, error);
    error = client_send_again(stream, next);
    if (error) {
        connection_destroy(next);
        return client_fail(stream, error);
    }
    connection_destroy(stream->connection);
    stream->connection = next;
    strcpy(stream->program, next->program);
    return 0;
}

/* Tell the worker what packing or unpacking takes for a record: a running mean. */
static void client_tell_ns(_Atomic uint32_t *ns, uint64_t since_ns, size_t count)
{
    uint32_t mean = atomic_load_explicit(ns, memory_order_relaxed);
    if (count == 0)
        return;
    uint64_t now = (clock_now_ns() - since_ns) / count + 1;
    now = now < UINT32_MAX / 4 ? now : UINT32_MAX / 4;
    atomic_store_explicit(ns, mean ? (uint32_t)((3 * (uint64_t)mean + now + 3) / 4) : (uint32_t)now,
                          memory_order_relaxed);
}

/* ---- records ---- */

int reseat_stream_pack(struct reseat_stream *stream, size_t most, void **ret_records,
                       size_t *ret_count)
{
    pthread_mutex_lock(&stream->lock);
    uint64_t capacity = stream->connection->area.shape.capacity, together;
    while (!stream->error && stream->sent - stream->taken >= capacity) {
        pthread_cond_wait(&stream->changed, &stream->lock);
        capacity = stream->connection->area.shape.capacity;
    }
    int error = stream->error;
    if (!error) {
        uint64_t room = stream->taken + capacity - stream->sent;
        *ret_records = stream_area_input(&stream->connection->area, stream->sent, &together);
        room = room < together ? room : together;
        *ret_count = most < room ? most : (size_t)room;
        stream->packing = true;
    }
    pthread_mutex_unlock(&stream->lock);
    stream->pack_ns = clock_now_ns();
    return error;
}

int reseat_stream_packed(struct reseat_stream *stream, size_t count)
{
    pthread_mutex_lock(&stream->lock);
    struct stream_area_header *header = stream->connection->area.header;
    client_tell_ns(&header->pack_ns, stream->pack_ns, count);
    stream->packing = false;
    stream->sent += count;
    stream_area_advance(&header->sent, stream->sent, &header->worker_sleeps,
                        stream->connection->doorbell);
    pthread_cond_broadcast(&stream->changed);
    int error = stream->error;
    pthread_mutex_unlock(&stream->lock);
    return error;
}

int reseat_stream_write(struct reseat_stream *stream, const void *records, size_t count)
{
    const char *from = records;
    while (count > 0) {
        size_t now, size;
        void *to;
        int error = reseat_stream_pack(stream, count, &to, &now);
        if (error)
            return error;
        size = now * reseat_stream_input(stream);
        memcpy(to, from, size);
        error = reseat_stream_packed(stream, now);
        if (error)
            return error;
        from += size;
        count -= now;
    }
    return 0;
}

int reseat_stream_finish(struct reseat_stream *stream)
{
    uint64_t one = 1;
    pthread_mutex_lock(&stream->lock);
    stream->finished = true;
    int error = stream->error;
    pthread_mutex_unlock(&stream->lock);
    (void)!write(stream->wake, &one, sizeof(one));
    return error;
}

/* ---- answers ---- */

/* `taken` is changed by the reader alone, which is who asks. */
static bool client_has_answers(void *data)
{
    const struct reseat_stream *stream = data;
    return atomic_load(&stream->connection->area.header->answered) != stream->taken;
}

/* Wait until the worker rings. Called under the lock, which it gives up meanwhile. */
static int client_sleep(struct reseat_stream *stream)
{
    struct connection *connection = stream->connection;
    struct stream_area_header *header = connection->area.header;
    struct pollfd polls[] = {{.fd = connection->doorbell, .events = POLLIN},
                             {.fd = stream->wake, .events = POLLIN}};
    uint64_t count;
    bool here = true;
    pthread_mutex_unlock(&stream->lock);
    if (!bell_spin_until(&stream->spin, client_has_answers, stream)) {
        atomic_store(&header->client_sleeps, 1);
        if (!client_has_answers(stream) && !atomic_load(&header->status))
            (void)poll(polls, 2, -1);
        atomic_store(&header->client_sleeps, 0);
    }
    if (polls[0].revents)
        here = stream_area_hear(connection->doorbell);
    if (polls[1].revents)
        (void)!read(stream->wake, &count, sizeof(count));
    pthread_mutex_lock(&stream->lock);
    if (here)
        return 0;
    int error = stream_area_failure(&connection->area, stream->reason, sizeof(stream->reason));
    return error ? client_fail(stream, error) : client_reconnect(stream);
}

/* Wait until there are answers, or all were taken. Under the lock. */
static int client_wait(struct reseat_stream *stream)
{
    while (!stream->error) {
        struct stream_area_header *header = stream->connection->area.header;
        if (stream_area_look(&header->answered, stream->sent, &stream->answered)) {
            snprintf(stream->reason, sizeof(stream->reason), "the service counts wrongly");
            return client_fail(stream, -EPROTO);
        }
        if (stream->answered != stream->taken ||
            (stream->finished && stream->sent == stream->taken))
            return 0;
        int error =
            stream_area_failure(&stream->connection->area, stream->reason, sizeof(stream->reason));
        error = error ? client_fail(stream, error) : client_sleep(stream);
        if (error)
            return error;
    }
    return stream->error;
}

int reseat_stream_unpack(struct reseat_stream *stream, size_t most, const void **ret_answers,
                         size_t *ret_count)
{
    pthread_mutex_lock(&stream->lock);
    int error = client_wait(stream);
    if (!error) {
        uint64_t together, ready = stream->answered - stream->taken;
        *ret_answers = stream_area_output(&stream->connection->area, stream->taken, &together);
        ready = ready < together ? ready : together;
        *ret_count = most < ready ? most : (size_t)ready;
    }
    pthread_mutex_unlock(&stream->lock);
    stream->unpack_ns = clock_now_ns();
    return error;
}

int reseat_stream_unpacked(struct reseat_stream *stream, size_t count)
{
    pthread_mutex_lock(&stream->lock);
    struct stream_area_header *header = stream->connection->area.header;
    client_tell_ns(&header->unpack_ns, stream->unpack_ns, count);
    stream->taken += count;
    stream_area_advance(&header->taken, stream->taken, &header->worker_sleeps,
                        stream->connection->doorbell);
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return 0;
}

int reseat_stream_read(struct reseat_stream *stream, void *answers, size_t most, size_t *ret_count)
{
    const void *from;
    size_t count;
    int error = reseat_stream_unpack(stream, most, &from, &count);
    if (error)
        return error;
    memcpy(answers, from, count * reseat_stream_output(stream));
    *ret_count = count;
    return reseat_stream_unpacked(stream, count);
}
