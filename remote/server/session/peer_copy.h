#ifndef RESEAT_REMOTE_SERVER_SESSION_PEER_COPY_H
#define RESEAT_REMOTE_SERVER_SESSION_PEER_COPY_H

#include "remote/server/session/server.h"

/*
 * A peer copy moves bytes from a buffer to a buffer of another context, in this session or another
 * one, without sending them to the client. Each end is a command of a queue: it starts after the
 * queue's earlier commands, and later commands wait for it. Each end moves bytes in a thread and a
 * queue of its own, so that reading, sending and writing overlap.
 *
 * When one end fails, its peer_copy_status() reports the error, its queue continues, and the other
 * end gets the error over the link. Every wait for the other end has a time limit.
 */
struct peer_copy;

struct peer_copy_wish {
    struct server *server;
    bool gives;
    uint64_t offset, size;
    cl_mem buffer;
    const struct entry *queue;
    cl_uint wait_count;
    const cl_event *waits;
    /** Of the message. `way` was checked; `where`: addresses of the other server, for
     * TRANSFER_CONNECT. */
    const struct msg_peer *peer;
};

/**
 * Begin a peer copy. Called by the session's thread.
 *
 * @ret_event      Completes when the peer copy ends, and never with an error.
 * @ret_peer_copy  A reference. After the event, peer_copy_status() gives the peer copy's result.
 * Returns CL_SUCCESS, or an OpenCL error: then no peer copy was begun.
 */
cl_int peer_copy_begin(const struct peer_copy_wish *wish, cl_event *ret_event,
                       struct peer_copy **ret_peer_copy);

/** Refuse a peer copy whose command cannot be submitted, and tell the other end. */
void peer_copy_refuse(const struct peer_copy_wish *wish);

/**
 * Begin a peer copy of memory of this process instead of a buffer. It has no queue and starts at
 * once.
 *
 * @wish   The fields about the buffer and the queue are unset; the way must use a ticket.
 * @bytes  Must stay valid until @done is called.
 * @done   Called once, in the peer copy's thread, with CL_SUCCESS or an error.
 * Returns CL_SUCCESS, or an OpenCL error: then @done is not called.
 */
cl_int peer_copy_begin_bytes(const struct peer_copy_wish *wish, unsigned char *bytes,
                             void (*done)(void *data, cl_int error), void *data);

/** Take a peer that connected with a ticket. @channel (channel.h) leads to it; this function takes
 *  ownership of the descriptor. Does not block. */
void peer_copy_meet(int channel);

/** The result, CL_COMPLETE or an OpenCL error. The peer copy's event must have completed. */
cl_int peer_copy_status(const struct peer_copy *peer_copy);
/** Drop a reference. NULL is allowed. May be called from any thread. */
void peer_copy_unref(struct peer_copy *peer_copy);

#endif
