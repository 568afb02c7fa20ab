#ifndef RESEAT_REMOTE_WATCH_LISTING_H
#define RESEAT_REMOTE_WATCH_LISTING_H

#include "state/base/compiler.h"
#include "state/server/news.h"

/**
 * Write an inventory of a server's devices as programs see them through our driver, and measure the
 * link. Starts a session that ends with the process: call this once in a process.
 *
 * @path      As for inventory_write().
 * @ret_news  The link between this host and the server's first device: the shortest duration of a
 *            blocking read of 4 bytes, and the rates of large transfers.
 * Returns 0, -ENOENT (no session, or no device in it; the log gives the reason), or -errno.
 */
MUST_CHECK int listing_make(const char *address, const char *path, struct server_news *ret_news);

#endif
