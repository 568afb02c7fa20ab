#ifndef RESEAT_REMOTE_SERVER_SESSION_PEER_COPY_PRIV_H
#define RESEAT_REMOTE_SERVER_SESSION_PEER_COPY_PRIV_H

#include <pthread.h>

#include "remote/link/link.h"
#include "remote/server/session/peer_copy.h"

/** One end. */
struct peer_copy {
    struct peer_copy *next; /**< Of those that have not ended. */
    atomic_uint holders;
    pthread_cond_t changed; /**< What peer_copy_lock guards. */
    struct server *server;
    const cl_icd_dispatch *cl;
    cl_context context;
    cl_device_id device;
    cl_mem buffer;        /**< A reference, as the two events. */
    unsigned char *bytes; /**< In place of all these; then `done` is told of its end. */
    void (*done)(void *data, cl_int error);
    void *data;
    uint64_t transfer, offset, size;
    bool gives;
    enum transfer_way way;
    cl_event start; /**< What came before has ended; NULL: it need not. */
    cl_event gate;  /**< What follows waits for it. */
    _Atomic cl_int status;
    char *where; /**< Owned. */
    struct ticket ticket;
    uint64_t begun_ns;
    /* Guarded by peer_copy_lock: */
    bool ready;              /**< `start` has ended. */
    bool forgotten;          /**< Nobody wants it any more. */
    bool refused;            /**< Its device cannot. Is listed to tell the other end. */
    struct peer_copy *other; /**< Of this session; NULL: it did not come yet. */
    bool met;                /**< Somebody came with its ticket. */
    struct link *link;
};

/** Move the bytes, once both ends are ready, of which one is at the other end of a link (then the
 * other is NULL). An OpenCL error, or CL_SUCCESS. */
cl_int pump_run(struct peer_copy *from, struct peer_copy *to, struct link *link);

/** What is said over a link before and after the bytes; CL_SUCCESS, or an error. */
cl_int pump_agree(struct peer_copy *peer_copy, struct link *link);
cl_int pump_part(struct peer_copy *peer_copy, struct link *link, cl_int error);

/** `start` has ended, or nobody wants the peer copy any more: CL_SUCCESS or an error. @tick is
 * called each second; what it returns ends the wait. */
cl_int peer_copy_await_start(struct peer_copy *peer_copy, cl_int (*tick)(void *data), void *data);

#endif
