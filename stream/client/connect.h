#ifndef RESEAT_STREAM_CLIENT_CONNECT_H
#define RESEAT_STREAM_CLIENT_CONNECT_H

#include <pthread.h>
#include <stdbool.h>

#include "remote/link/link.h"
#include "stream/area.h"
#include "stream/client/reseat_stream.h"
#include "stream/frame.h"

/*
 * One connection of a stream's client. Its area is shared with the worker; or it is the process's
 * own, and two threads take the worker's place in it: they send its records in RECORDS, and receive
 * its answers.
 */
struct connection {
    struct link *link;
    struct stream_area area;
    int doorbell; /**< The client's end. */
    int other;    /**< That of the two threads; -1: the area is shared. */
    pthread_t sender, receiver;
    char program[64];
};

/**
 * Connect, open the stream, and wait until its worker is ready.
 *
 * @open        The body of OPEN. If the area that it asks for cannot be opened here, it asks for
 * none.
 * @ret_reason  Of RESEAT_STREAM_REASON bytes; written on failure.
 * @ret_refused On failure: the service has answered, so another attempt is of no use.
 * Returns 0 or -errno.
 */
MUST_CHECK int connection_make(const char *address, struct stream_body *open, uint64_t deadline_ns,
                               struct connection **ret_connection, char *ret_reason,
                               bool *ret_refused);
/** End it. NULL is allowed. */
void connection_destroy(struct connection *connection);

/** Does nobody listen at an address of this machine? */
bool connection_is_missing(const char *address, uint64_t deadline_ns);

/** Ask a local service what it has. @ret_text: free() it. As above. */
MUST_CHECK int connection_list(const char *address, uint64_t deadline_ns, char **ret_text,
                               char *ret_reason);

#endif
