#ifndef RESEAT_REMOTE_SERVER_SESSION_PEER_COPY_H
#define RESEAT_REMOTE_SERVER_SESSION_PEER_COPY_H

#include <CL/cl_icd.h>
#include <pthread.h>

#include "remote/link/link.h"
#include "remote/server/session/server.h"

/*
 * A gate is a user event that commands in a driver's queue wait for. A device supports gates if
 * commands submitted earlier complete while the event is not set, and if the call that sets the
 * event returns. Drivers that complete all commands of one flush together fail the first condition.
 * Each device is tried once. The trial has a thread of its own, because some drivers hang in it;
 * no thread joins that one.
 */
enum gates {
    GATES_UNKNOWN, /**< The trial has not ended: do not use gates yet. */
    GATES_GOOD,
    GATES_NONE,
};

/** Start the trial of a device of @context, unless it was started before. Does not block. Called by
 *  the session's thread. */
void gates_try(const cl_icd_dispatch *cl, cl_context context, cl_device_id device);

/** The result of the device's trial. Blocks briefly, for about as long as the trial takes with a
 *  driver that does not hang. Called by the session's thread. */
enum gates gates_of(const cl_icd_dispatch *cl, cl_context context, cl_device_id device);

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

/** Bytes of this process instead of a buffer, which are copied while they come. Called in the peer
 * copy's thread. */
struct peer_copy_bytes {
    /** Of an end that gives: copy the bytes from @offset on. Blocks for a second at most; *ret_size
     * is 0 if there are none yet. Returns CL_SUCCESS or the error that ends the peer copy. */
    cl_int (*read)(void *data, uint64_t offset, unsigned char *bytes, size_t size,
                   size_t *ret_size);
    /** Of an end that takes: the next bytes came. */
    void (*write)(void *data, uint64_t offset, const unsigned char *bytes, size_t size);
    /** Called once, with CL_SUCCESS or an error. */
    void (*done)(void *data, cl_int error);
};

/**
 * Begin a peer copy of bytes. It has no queue and starts at once.
 *
 * @wish   The fields about the buffer and the queue are unset; the way must use a ticket.
 * @data   Must stay valid until done() is called.
 * Returns CL_SUCCESS, or an OpenCL error: then no function is called.
 */
cl_int peer_copy_begin_bytes(const struct peer_copy_wish *wish, const struct peer_copy_bytes *bytes,
                             void *data);

/** Take a peer that connected with a ticket. @channel (channel.h) leads to it; this function takes
 *  ownership of the descriptor. Does not block. */
void peer_copy_meet(int channel);

/** The result, CL_COMPLETE or an OpenCL error. The peer copy's event must have completed. */
cl_int peer_copy_status(const struct peer_copy *peer_copy);
/** Drop a reference. NULL is allowed. May be called from any thread. */
void peer_copy_unref(struct peer_copy *peer_copy);

/** One end of a peer copy. */
struct peer_copy {
    struct peer_copy *next; /**< In the list of peer copies that have not ended. */
    atomic_uint holders;
    pthread_cond_t changed; /**< What peer_copy_lock guards. */
    struct server *server;
    const cl_icd_dispatch *cl;
    cl_context context;
    cl_device_id device;
    cl_mem buffer;                       /**< Holds a reference, as do `start` and `gate`. */
    const struct peer_copy_bytes *bytes; /**< What is copied instead of `buffer`, with: */
    void *data;
    uint64_t transfer, offset, size;
    bool gives;
    enum transfer_way way;
    cl_event start; /**< Completes when earlier commands have; NULL: do not wait. */
    cl_event gate;  /**< User event that later commands of the queue wait for. */
    _Atomic cl_int status;
    char *where; /**< Owned. */
    struct ticket ticket;
    uint64_t begun_ns;
    /* Guarded by peer_copy_lock: */
    bool ready;     /**< `start` has completed. */
    bool forgotten; /**< The peer copy was given up. */
    bool refused; /**< Its command cannot be submitted. It stays in the list to tell the other end.
                   */
    struct peer_copy *other; /**< The other end, if in this session; NULL: not known yet. */
    bool met;                /**< A peer has connected with its ticket. */
    struct link *link;
};

/** Move the bytes after both ends are ready. If one end is in another session, its pointer is NULL
 * and @link leads to it. Blocks. Returns CL_SUCCESS or an OpenCL error. */
cl_int pump_run(struct peer_copy *from, struct peer_copy *to, struct link *link);

/** The same of the bytes of @peer_copy, whose other end @link leads to. */
cl_int pump_run_bytes(struct peer_copy *peer_copy, struct link *link);

/** Exchange the messages before (pump_agree()) and after (pump_part()) the bytes over a link. Both
 * return CL_SUCCESS or an OpenCL error. */
cl_int pump_agree(struct peer_copy *peer_copy, struct link *link);
cl_int pump_part(struct peer_copy *peer_copy, struct link *link, cl_int error);

/** Wait until `start` completes or the peer copy is given up. @tick is called each second; an error
 * that it returns ends the wait. Returns CL_SUCCESS or an OpenCL error. */
cl_int peer_copy_await_start(struct peer_copy *peer_copy, cl_int (*tick)(void *data), void *data);

#endif
