#ifndef RESEAT_REMOTE_WATCH_WATCH_H
#define RESEAT_REMOTE_WATCH_WATCH_H

#include "state/server/news.h"

/* What reseat-watch does in its children. */

/**
 * Check whether a device server can be reached and would accept us, without starting a session or a
 * driver.
 *
 * @ret_news  The problem, or the duration of a message and its answer.
 * Blocks until @deadline_ns (of clock_now_ns()), or longer where the name resolver does not return.
 * A caller that cannot wait runs this in a child process; that also keeps the TLS errors of
 * different servers apart.
 */
void contact_look(const char *address, uint64_t deadline_ns, struct server_news *ret_news);

/**
 * Write an inventory of a server's devices as programs see them through our driver, and measure the
 * link. Starts a session that ends with the process: call this once in a process.
 *
 * @path      As for inventory_write().
 * @ret_news  The link between this host and the server's first device: the shortest duration of a
 *            blocking read of 4 bytes, and the rates of large transfers.
 * Returns 0, -ENOENT (no session, or no device in it; the log gives the reason), or -errno.
 */
MUST_CHECK int listing_write(const char *address, const char *path, struct server_news *ret_news);

#endif
