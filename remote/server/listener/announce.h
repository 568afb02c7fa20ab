#ifndef RESEAT_REMOTE_SERVER_LISTENER_ANNOUNCE_H
#define RESEAT_REMOTE_SERVER_LISTENER_ANNOUNCE_H

#include <signal.h>

/**
 * Have a server that listens at @where ("HOST:PORT") announced by another process, reseat-mdns, for
 * as long as this one lives. What keeps it from that is said, and nothing else: who has its address
 * finds it all the same.
 *
 * @mask  Of signals, in that process.
 */
void announce(const char *where, const sigset_t *mask);

#endif
