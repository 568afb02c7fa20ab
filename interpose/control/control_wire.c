#include "interpose/control/control_priv.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "state/base/files/access.h"

#define OUT_MAX (8u << 20)

int wire_open(struct wire *wire, const char *path)
{
    int fd = agent_connect(path, geteuid());
    struct owned own;

    if (fd < 0)
        return fd;
    int error = owned_take(fd, &own);
    if (error)
        return error;
    frame_reader_init(&wire->reader);
    msgpack_sbuffer_init(&wire->out);
    wire->out_sent = 0;
    wire->socket = own;
    return 0;
}

void wire_close(struct wire *wire)
{
    if (wire_is_open(wire)) {
        int fd = owned_fd(&wire->socket);
        /* shutdown() takes effect at once, while a thread that polls the socket keeps it open for a
         * while. */
        if (fd >= 0)
            (void)shutdown(fd, SHUT_RDWR);
        owned_close(&wire->socket);
        frame_reader_finish(&wire->reader);
        msgpack_sbuffer_destroy(&wire->out);
        wire->out_sent = 0;
    }
}

int wire_flush(struct wire *wire)
{
    while (wire->out_sent < wire->out.size) {
        ssize_t count = send(owned_fd(&wire->socket), wire->out.data + wire->out_sent,
                             wire->out.size - wire->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
        wire->out_sent += (size_t)count;
    }
    wire->out.size = 0;
    wire->out_sent = 0;
    return 0;
}

int wire_send(struct wire *wire, struct frame *frame)
{
    int error = frame_seal(frame);

    if (!error && wire->out.size > OUT_MAX)
        error = -ENOBUFS;
    if (!error && msgpack_sbuffer_write(&wire->out, frame->buffer.data, frame->buffer.size))
        error = -ENOMEM;
    frame_finish(frame);
    return error ? error : wire_flush(wire);
}

int wire_receive(struct wire *wire)
{
    char bytes[16384];
    ssize_t count = recv(owned_fd(&wire->socket), bytes, sizeof(bytes), MSG_DONTWAIT);

    if (count < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
    return count == 0 ? -EPIPE : frame_reader_feed(&wire->reader, bytes, (size_t)count);
}
