#ifndef RESEAT_AGENT_WATCH_LISTING_H
#define RESEAT_AGENT_WATCH_LISTING_H

#include <stdint.h>

#include "state/base/compiler.h"

/** What was measured between this host and the first device; 0: not known. */
struct listing {
    uint64_t devices;
    uint64_t round_trip_ns; /**< The least that a blocking read of 4 bytes took. */
    uint64_t read, write;   /**< Bytes a second. */
};

/**
 * Write an inventory of a server's devices, as programs find them through our driver, and measure
 * the link. Begins a session; to be called once in a process, which it is to end with.
 *
 * @path  As inventory_write() takes it.
 * Returns 0, -ENOENT (there is no session, or no device in it; the log says why), or -errno.
 */
MUST_CHECK int listing_make(const char *address, const char *path, struct listing *ret_listing);

#endif
