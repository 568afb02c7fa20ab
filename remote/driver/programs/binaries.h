#ifndef RESEAT_REMOTE_DRIVER_PROGRAMS_BINARIES_H
#define RESEAT_REMOTE_DRIVER_PROGRAMS_BINARIES_H

#include "remote/driver/session/session.h"
#include "state/base/bytes/content_hash.h"

/* Which of this process's servers have which binaries, so that a binary that many servers need is
 * sent from this host once: the first server gets it from here, and servers that have it give it to
 * the others, a few at a time. If that fails for any reason, the binary is sent from here. */

struct binary_name {
    unsigned char bytes[CONTENT_HASH_SIZE];
};

/** Does @client's server keep binaries of that size? */
bool binaries_are_kept(const struct client *client, size_t size);
void binary_name_of(const void *bytes, size_t size, struct binary_name *ret_name);

/**
 * Have a server that has the binary give it to @client's server, which lacks it. Blocks for a
 * limited time; also while another thread is having it brought there.
 *
 * Returns whether it is there now. If not, the caller sends it, and reports by binaries_learn() how
 * that went, since others may be waiting for it.
 */
bool binaries_bring(struct client *client, const struct binary_name *name, size_t size);
/** Report whether the server has the binary. */
void binaries_learn(struct client *client, const struct binary_name *name, bool has);

#endif
