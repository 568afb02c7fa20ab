#include "interpose/control_wire.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/connect.h"

#define OUT_MAX (8u << 20)

int wire_open(struct wire *wire, const char *path)
{
    int fd = agent_connect(path);

    if (fd < 0) {
        return fd;
    }
    frame_reader_init(&wire->reader);
    msgpack_sbuffer_init(&wire->out);
    wire->out_sent = 0;
    wire->fd = fd;
    return 0;
}

void wire_close(struct wire *wire)
{
    int fd = wire->fd;

    /* In this order, so that a fork in between does not make the child close another's fd. */
    wire->fd = -1;
    if (fd >= 0) {
        close(fd);
        frame_reader_finish(&wire->reader);
        msgpack_sbuffer_destroy(&wire->out);
        wire->out_sent = 0;
    }
}

int wire_flush(struct wire *wire)
{
    while (wire->out_sent < wire->out.size) {
        ssize_t count = send(wire->fd, wire->out.data + wire->out_sent,
                             wire->out.size - wire->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
        }
        wire->out_sent += (size_t)count;
    }
    wire->out.size = 0;
    wire->out_sent = 0;
    return 0;
}

int wire_send(struct wire *wire, struct frame *frame)
{
    int error = frame_seal(frame);

    if (!error && wire->out.size > OUT_MAX) {
        error = -ENOBUFS;
    }
    if (!error && msgpack_sbuffer_write(&wire->out, frame->buffer.data, frame->buffer.size)) {
        error = -ENOMEM;
    }
    frame_finish(frame);
    return error ? error : wire_flush(wire);
}

int wire_receive(struct wire *wire)
{
    char bytes[16384];
    ssize_t count = recv(wire->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (count < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
    }
    return count == 0 ? -EPIPE : frame_reader_feed(&wire->reader, bytes, (size_t)count);
}
