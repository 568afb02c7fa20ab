#ifndef RESEAT_STREAM_SERVICE_BRIDGE_H
#define RESEAT_STREAM_SERVICE_BRIDGE_H

#include "remote/link/link.h"
#include "state/base/compiler.h"
#include "stream/service/supervisor.h"

/**
 * Serve a client that does not share the area: this process is the client of the worker, copies
 * what comes in RECORDS into the area, and sends its answers in ANSWERS. Sets the members of
 * @supervisor that concern the client. Blocks until the stream has ended; sends the reason when it
 * has failed. Returns 0 or -errno.
 */
MUST_CHECK int bridge_run(struct link *link, struct supervisor *supervisor);

#endif
