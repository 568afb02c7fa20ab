#ifndef RESEAT_REMOTE_WATCH_CONTACT_H
#define RESEAT_REMOTE_WATCH_CONTACT_H

#include "state/server/news.h"

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

#endif
