#ifndef RESEAT_REMOTE_SERVER_SESSION_PEER_COPY_H
#define RESEAT_REMOTE_SERVER_SESSION_PEER_COPY_H

#include "remote/server/session/server.h"

/*
 * Bytes of a buffer that go to a buffer of another context, of this session or of another one, and
 * never to the client. Each end is a command of its queue: what was given before it is done before,
 * and what follows waits. Bytes move in a thread for each, through a queue of its own, so that
 * reading, sending and writing go on at once.
 *
 * An end that fails fails alone: its event says so, its queue goes on, and the other end learns it
 * from the link. Every wait for the other end has a limit.
 */
struct peer_copy;

struct peer_copy_wish {
    struct server *server;
    bool gives;
    uint64_t transfer, offset, size;
    cl_mem buffer;
    const struct entry *queue;
    cl_uint wait_count;
    const cl_event *waits;
    enum transfer_way way;
    const char *where; /**< Of TRANSFER_CONNECT. */
    const void *ticket;
    size_t ticket_size;
};

/**
 * Begin one. By the session's thread.
 *
 * @ret_event    Ends with the peer copy, and always well.
 * @ret_peer_copy  A reference: how the peer copy itself ended, once that event has.
 * Returns an OpenCL error: then there is none.
 */
cl_int peer_copy_begin(const struct peer_copy_wish *wish, cl_event *ret_event,
                       struct peer_copy **ret_peer_copy);

/** There is none, as its command cannot be given: the other end learns that, and what came with it
 * is nobody else's. */
void peer_copy_refuse(const struct peer_copy_wish *wish);

/**
 * Begin one of memory of this process's, instead of a buffer: of no queue, and at once.
 *
 * @wish   Without what is of a buffer; its way is by a ticket.
 * @bytes  Stay until @done.
 * @done   Called once, in a thread of the peer copy's, with CL_SUCCESS or an error.
 * Returns an OpenCL error: then @done is not called.
 */
cl_int peer_copy_begin_bytes(const struct peer_copy_wish *wish, unsigned char *bytes,
                             void (*done)(void *data, cl_int error), void *data);

/** Somebody came with a ticket, whom @channel (channel.h) leads to; it is closed. Never blocks. */
void peer_copy_meet(int channel);

/** CL_COMPLETE or an error. Its event has ended. */
cl_int peer_copy_status(const struct peer_copy *peer_copy);
/** Gives a reference back; NULL is allowed. Any thread. */
void peer_copy_unref(struct peer_copy *peer_copy);

#endif
