#include "remote/wire/stream.h"

#include <errno.h>
#include <string.h>

#include "state/base/compiler.h"

int greeting_send(struct link *link, unsigned type, const void *body, size_t size,
                  uint64_t deadline_ns)
{
    struct stream_header header = {.size = (uint32_t)size, .type = (uint16_t)type};
    struct iovec iov[] = {{&header, sizeof(header)}, {(void *)body, size}};
    return link->ops->send(link, iov, ARRAY_SIZE(iov), deadline_ns);
}

static int greeting_receive_exactly(struct link *link, void *bytes, size_t size,
                                    uint64_t deadline_ns)
{
    int error = 0;
    for (size_t at = 0; error == 0 && at < size;) {
        size_t got = 0;
        error = link->ops->receive(link, (char *)bytes + at, size - at, deadline_ns, &got);
        at += error ? 0 : got;
    }
    return error;
}

int greeting_receive(struct link *link, unsigned char buffer[STREAM_GREETING_MAX],
                     uint64_t deadline_ns, struct message *ret_message)
{
    struct stream_header header;
    int error = greeting_receive_exactly(link, &header, sizeof(header), deadline_ns);
    if (error == 0 && (header.size > STREAM_GREETING_MAX || header.flags || header.number))
        error = -EPROTO;
    if (error == 0)
        error = greeting_receive_exactly(link, buffer, header.size, deadline_ns);
    if (error == 0)
        *ret_message = (struct message){header.type, buffer, header.size};
    return error;
}

int greeting_send_descriptor(struct link *link, unsigned type, uint32_t number, int fd,
                             uint64_t deadline_ns)
{
    int error = link->ops->send_descriptor(link, fd);
    return error ? error : greeting_send(link, type, &number, sizeof(number), deadline_ns);
}

int greeting_receive_descriptor(struct link *link, unsigned type, uint32_t number,
                                uint64_t deadline_ns, int *ret_fd)
{
    unsigned char buffer[STREAM_GREETING_MAX];
    struct message message;
    int error = greeting_receive(link, buffer, deadline_ns, &message);
    if (error)
        return error;
    if (message.type != type || message.size != sizeof(number) ||
        memcmp(message.body, &number, sizeof(number)) != 0)
        return -EPROTO;
    return link->ops->take_descriptor(link, ret_fd) ? -EPROTO : 0;
}
