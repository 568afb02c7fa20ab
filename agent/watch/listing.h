#ifndef RESEAT_AGENT_WATCH_LISTING_H
#define RESEAT_AGENT_WATCH_LISTING_H

#include <stdint.h>

#include "state/base/compiler.h"

/** Measurements of the link between this host and the server's first device; 0: not known. */
struct listing {
    uint64_t devices;
    uint64_t round_trip_ns; /**< Shortest duration of a blocking read of 4 bytes. */
    uint64_t read, write;   /**< Bytes per second. */
};

/**
 * Write an inventory of a server's devices as programs see them through our driver, and measure the
 * link. Starts a session that ends with the process: call this once in a process.
 *
 * @path  As for inventory_write().
 * Returns 0, -ENOENT (no session, or no device in it; the log gives the reason), or -errno.
 */
MUST_CHECK int listing_make(const char *address, const char *path, struct listing *ret_listing);

#endif
