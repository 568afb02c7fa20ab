#ifndef RESEAT_REMOTE_SERVER_SESSION_PEER_COPY_PRIV_H
#define RESEAT_REMOTE_SERVER_SESSION_PEER_COPY_PRIV_H

#include <pthread.h>

#include "remote/link/link.h"
#include "remote/server/session/peer_copy.h"

/** One end of a peer copy. */
struct peer_copy {
    struct peer_copy *next; /**< In the list of peer copies that have not ended. */
    atomic_uint holders;
    pthread_cond_t changed; /**< What peer_copy_lock guards. */
    struct server *server;
    const cl_icd_dispatch *cl;
    cl_context context;
    cl_device_id device;
    cl_mem buffer;        /**< Holds a reference, as do `start` and `gate`. */
    unsigned char *bytes; /**< Memory to copy instead of `buffer`; `done` is called at the end. */
    void (*done)(void *data, cl_int error);
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

/** Exchange the messages before (pump_agree()) and after (pump_part()) the bytes over a link. Both
 * return CL_SUCCESS or an OpenCL error. */
cl_int pump_agree(struct peer_copy *peer_copy, struct link *link);
cl_int pump_part(struct peer_copy *peer_copy, struct link *link, cl_int error);

/** Wait until `start` completes or the peer copy is given up. @tick is called each second; an error
 * that it returns ends the wait. Returns CL_SUCCESS or an OpenCL error. */
cl_int peer_copy_await_start(struct peer_copy *peer_copy, cl_int (*tick)(void *data), void *data);

#endif
