#ifndef RESEAT_REMOTE_DRIVER_PROGRAMS_BINARIES_H
#define RESEAT_REMOTE_DRIVER_PROGRAMS_BINARIES_H

#include "remote/driver/session/session.h"
#include "state/base/bytes/content_hash.h"

/*
 * Which of this process's servers have which binaries, so that one that many need leaves this host
 * once: the first server gets it from here, and those that have it give it to the others, a few
 * each at a time. Whatever is in the way of that, it is sent from here.
 */

struct binary_name {
    unsigned char bytes[CONTENT_HASH_SIZE];
};

/** Is a binary of so many bytes one that @client's server keeps? */
bool binaries_are_kept(const struct client *client, size_t size);
void binary_name_of(const void *bytes, size_t size, struct binary_name *ret_name);

/**
 * Have it brought to @client's server, which lacks it, from one that has it. Blocks, for a limited
 * time, also for who gets it just now.
 *
 * Returns whether it is there now. If not, the caller sends it, and says with binaries_learn() how
 * that went: others may wait for it.
 */
bool binaries_bring(struct client *client, const struct binary_name *name, size_t size);
/** The server has it, or has not. */
void binaries_learn(struct client *client, const struct binary_name *name, bool has);

#endif
