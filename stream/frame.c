#include "stream/frame.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/bytes/little_endian.h"
#include "state/base/bytes/text.h"
#include "state/base/clock.h"
#include "state/base/files/folder.h"

/* How long a client that is refused may take to read why. */
#define REFUSE_NS (2 * NS_PER_S)

/* ---- bodies ---- */

static char *stream_body_make_room(struct stream_body *body, size_t size)
{
    char *bytes = body->error ? NULL : realloc(body->bytes, body->size + size);
    if (!bytes) {
        body->error = -ENOMEM;
        return NULL;
    }
    body->bytes = bytes;
    body->size += size;
    return bytes + body->size - size;
}

static void stream_body_put(struct stream_body *body, uint64_t value, unsigned size)
{
    char *at = stream_body_make_room(body, size);
    if (at)
        little_endian_put((unsigned char *)at, value, size);
}

static void stream_body_put_text(struct stream_body *body, const void *bytes, size_t size)
{
    stream_body_put(body, size, 4);
    char *at = size ? stream_body_make_room(body, size) : NULL;
    if (at)
        memcpy(at, bytes, size);
}

static uint64_t stream_body_get(struct stream_body *body, unsigned size)
{
    if (body->error || body->size - body->at < size) {
        body->error = -EPROTO;
        return 0;
    }
    body->at += size;
    return little_endian_get((unsigned char *)body->bytes + body->at - size, size);
}

static struct stream_text stream_body_get_text(struct stream_body *body)
{
    uint64_t size = stream_body_get(body, 4);
    if (body->error || body->size - body->at < size) {
        body->error = -EPROTO;
        return (struct stream_text){"", 0};
    }
    body->at += size;
    return (struct stream_text){body->bytes + body->at - size, (uint32_t)size};
}

void stream_body_finish(struct stream_body *body)
{
    free(body->bytes);
    *body = (struct stream_body){0};
}

/* Put a NUL behind a text, over the first byte of what follows it, which has been read. */
static void stream_body_end_text(struct stream_body *body, struct stream_text *text)
{
    if (text->size == 0)
        text->bytes = "";
    else if (memchr(text->bytes, '\0', text->size))
        body->error = -EPROTO;
    else
        ((char *)text->bytes)[text->size] = '\0';
}

void stream_open_put(struct stream_body *body, const struct stream_open *open)
{
    const struct stream_text *texts[] = {&open->kernel, &open->description, &open->source,
                                         &open->device};
    stream_body_put(body, open->version, 4);
    stream_body_put(body, open->flags, 4);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        stream_body_put_text(body, texts[i]->bytes, texts[i]->size);
    stream_body_put(body, open->count, 4);
    for (uint32_t i = 0; i < open->count; i++) {
        stream_body_put_text(body, open->constants[i].name.bytes, open->constants[i].name.size);
        stream_body_put_text(body, open->constants[i].value.bytes, open->constants[i].value.size);
    }
}

void stream_open_unshare(struct stream_body *body)
{
    body->bytes[4] &= (char)~STREAM_OPEN_SHARED; /* The lowest byte of the flags. */
}

int stream_open_get(struct stream_body *body, struct stream_open *ret_open)
{
    struct stream_open open = {.version = (uint32_t)stream_body_get(body, 4)};
    struct stream_text *texts[] = {&open.kernel, &open.description, &open.source, &open.device};
    open.flags = (uint32_t)stream_body_get(body, 4);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        *texts[i] = stream_body_get_text(body);
    open.count = (uint32_t)stream_body_get(body, 4);
    if (open.count > STREAM_CONSTANTS_MAX)
        body->error = -EPROTO;
    for (uint32_t i = 0; !body->error && i < open.count; i++) {
        open.constants[i].name = stream_body_get_text(body);
        open.constants[i].value = stream_body_get_text(body);
    }
    if (body->at != body->size)
        body->error = -EPROTO;
    for (size_t i = 0; !body->error && i < ARRAY_SIZE(texts); i++)
        stream_body_end_text(body, texts[i]);
    for (uint32_t i = 0; !body->error && i < open.count; i++)
        stream_body_end_text(body, &open.constants[i].name);
    if (!body->error)
        *ret_open = open;
    return body->error;
}

void stream_opened_put(struct stream_body *body, const struct stream_opened *opened)
{
    stream_body_put(body, opened->version, 4);
    stream_body_put(body, opened->input, 4);
    stream_body_put(body, opened->output, 4);
    stream_body_put(body, opened->capacity, 8);
    stream_body_put(body, opened->area, 8);
    stream_body_put_text(body, opened->path.bytes, opened->path.size);
    stream_body_put_text(body, opened->program.bytes, opened->program.size);
}

int stream_opened_get(struct stream_body *body, struct stream_opened *ret_opened)
{
    struct stream_opened opened = {.version = (uint32_t)stream_body_get(body, 4)};
    opened.input = (uint32_t)stream_body_get(body, 4);
    opened.output = (uint32_t)stream_body_get(body, 4);
    opened.capacity = stream_body_get(body, 8);
    opened.area = stream_body_get(body, 8);
    opened.path = stream_body_get_text(body);
    opened.program = stream_body_get_text(body);
    if (!body->error)
        stream_body_end_text(body, &opened.path);
    if (!body->error)
        stream_body_end_text(body, &opened.program);
    if (!body->error)
        *ret_opened = opened;
    return body->error;
}

int stream_refused_get(struct stream_body *body, char *ret_reason, size_t size)
{
    int error = (int)(int32_t)stream_body_get(body, 4);
    struct stream_text reason = stream_body_get_text(body);
    text_make_safe(ret_reason, size, reason.bytes, reason.size);
    return body->error ? body->error : error < 0 ? error : -EPROTO;
}

int stream_address_find(char ret_address[PATH_MAX])
{
    const char *named = getenv("RESEAT_STREAM");
    char folder[PATH_MAX];
    bool given = named && *named;
    int error = given ? 0 : folder_runtime_name(folder);
    if (error)
        return error;
    int length = given ? snprintf(ret_address, PATH_MAX, "%s", named)
                       : snprintf(ret_address, PATH_MAX, "unix:%s/stream.sock", folder);
    return length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* ---- on the link ---- */

int stream_frame_send(struct link *link, enum stream_frame type, const void *body, size_t size,
                      uint64_t deadline_ns)
{
    unsigned char header[STREAM_FRAME_HEADER] = {0};
    struct iovec iov[] = {{header, sizeof(header)}, {(void *)body, size}};
    little_endian_put(header, size, 4);
    little_endian_put(header + 4, type, 2);
    return link->ops->send(link, iov, size ? 2 : 1, deadline_ns);
}

void stream_frame_refuse(struct link *link, int error, const char *reason)
{
    struct stream_body body = {0};
    stream_body_put(&body, (uint32_t)error, 4);
    stream_body_put_text(&body, reason, strlen(reason));
    if (!body.error)
        (void)!stream_frame_send(link, STREAM_REFUSED, body.bytes, body.size,
                                 clock_now_ns() + REFUSE_NS);
    stream_body_finish(&body);
}

int stream_frame_receive_all(struct link *link, void *bytes, size_t size, uint64_t deadline_ns)
{
    for (size_t at = 0, got; at < size; at += got) {
        int error = link->ops->receive(link, (char *)bytes + at, size - at, deadline_ns, &got);
        if (error)
            return error;
    }
    return 0;
}

int stream_frame_header(const unsigned char header[STREAM_FRAME_HEADER],
                        enum stream_frame *ret_type, size_t *ret_size)
{
    uint64_t size = little_endian_get(header, 4), type = little_endian_get(header + 4, 2);
    if (type < STREAM_OPEN || type > STREAM_LISTED || little_endian_get(header + 6, 2) != 0)
        return -EPROTO;
    if (size > STREAM_FRAME_MAX)
        return -EMSGSIZE;
    *ret_type = (enum stream_frame)type;
    *ret_size = size;
    return 0;
}

int stream_frame_receive(struct link *link, uint64_t deadline_ns, enum stream_frame *ret_type,
                         struct stream_body *ret_body)
{
    unsigned char header[STREAM_FRAME_HEADER];
    struct stream_body body = {0};
    enum stream_frame type;
    int error = stream_frame_receive_all(link, header, sizeof(header), deadline_ns);
    error = error ? error : stream_frame_header(header, &type, &body.size);
    if (error)
        return error;
    /* One byte more, for the NUL of a text at the end. */
    body.bytes = malloc(body.size + 1);
    error =
        body.bytes ? stream_frame_receive_all(link, body.bytes, body.size, deadline_ns) : -ENOMEM;
    if (error) {
        free(body.bytes);
        return error;
    }
    body.bytes[body.size] = '\0';
    *ret_type = type;
    *ret_body = body;
    return 0;
}
