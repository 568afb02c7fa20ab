#ifndef RESEAT_INTERPOSE_CONTROL_CONTROL_WIRE_H
#define RESEAT_INTERPOSE_CONTROL_CONTROL_WIRE_H

#include "agent/protocol/protocol.h"
#include "state/base/files/owned.h"

/** A non-blocking socket to the agent, with the bytes to be sent and those that were received. */
struct wire {
    struct owned socket;
    struct frame_reader reader;
    msgpack_sbuffer out;
    size_t out_sent;
};

/** Returns 0, -ENAMETOOLONG, or the error of socket() or connect(). */
MUST_CHECK int wire_open(struct wire *wire, const char *path);
void wire_close(struct wire *wire);

static inline bool wire_is_open(const struct wire *wire)
{
    return wire->socket.fd >= 0;
}

/** Send what can be sent now. Returns 0 or -errno: then the connection cannot be used any more
 * (-EBADF: the program has taken its descriptor's number). */
MUST_CHECK int wire_flush(struct wire *wire);

/** Queue a frame, finish it, and send what can be sent. -ENOBUFS: the peer does not read. */
MUST_CHECK int wire_send(struct wire *wire, struct frame *frame);

/** Read what has arrived, for frame_reader_next(). Returns 0, -EPIPE (closed) or -errno. */
MUST_CHECK int wire_receive(struct wire *wire);

#endif
