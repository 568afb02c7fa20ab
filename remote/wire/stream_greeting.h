#ifndef RESEAT_REMOTE_WIRE_STREAM_GREETING_H
#define RESEAT_REMOTE_WIRE_STREAM_GREETING_H

#include "remote/wire/stream.h"

/** What each frame begins with; a greeting has no flags and no number. */
struct stream_header {
    uint32_t size;
    uint16_t type, flags;
    uint64_t number;   /* From 1; 0: the header only acknowledges. */
    uint64_t received; /* The sender has received all frames up to this number. */
};
_Static_assert(sizeof(struct stream_header) == 24, "as it is sent");

/** Messages that are exchanged before the stream begins. */
#define STREAM_GREETING_MAX 4096
MUST_CHECK int greeting_send(struct link *link, unsigned type, const void *body, size_t size,
                             uint64_t deadline_ns);
MUST_CHECK int greeting_receive(struct link *link, unsigned char buffer[STREAM_GREETING_MAX],
                                uint64_t deadline_ns, struct message *ret_message);

/** Pass a descriptor to the same machine over the link of a stream, or before that begins: in a
 * message of @type with a @number, by which the receiver knows that it is the one it expects. */
MUST_CHECK int greeting_send_descriptor(struct link *link, unsigned type, uint32_t number, int fd,
                                        uint64_t deadline_ns);
/** -EPROTO: something else came, or the message without a descriptor. */
MUST_CHECK int greeting_receive_descriptor(struct link *link, unsigned type, uint32_t number,
                                           uint64_t deadline_ns, int *ret_fd);

#endif
