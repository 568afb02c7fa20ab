#ifndef RESEAT_REMOTE_SERVER_SESSION_PASSAGE_H
#define RESEAT_REMOTE_SERVER_SESSION_PASSAGE_H

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
struct passage;

struct passage_wish {
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
 * @ret_event    Ends with the passage, and always well.
 * @ret_passage  A reference: how the passage itself ended, once that event has.
 * Returns an OpenCL error: then there is none.
 */
cl_int passage_begin(const struct passage_wish *wish, cl_event *ret_event,
                     struct passage **ret_passage);

/** There is none, as its command cannot be given: the other end learns that, and what came with it
 * is nobody else's. */
void passage_refuse(const struct passage_wish *wish);

/**
 * Begin one of memory of this process's, instead of a buffer: of no queue, and at once.
 *
 * @wish   Without what is of a buffer; its way is by a ticket.
 * @bytes  Stay until @done.
 * @done   Called once, in a thread of the passage's, with CL_SUCCESS or an error.
 * Returns an OpenCL error: then @done is not called.
 */
cl_int passage_begin_bytes(const struct passage_wish *wish, unsigned char *bytes,
                           void (*done)(void *data, cl_int error), void *data);

/** Somebody came with a ticket, whom @channel (channel.h) leads to; it is closed. Never blocks. */
void passage_meet(int channel);

/** CL_COMPLETE or an error. Its event has ended. */
cl_int passage_status(const struct passage *passage);
/** Gives a reference back; NULL is allowed. Any thread. */
void passage_unref(struct passage *passage);

#endif
