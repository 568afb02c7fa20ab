#ifndef RESEAT_REMOTE_SERVER_SESSION_BINARY_H
#define RESEAT_REMOTE_SERVER_SESSION_BINARY_H

#include "remote/server/session/server.h"
#include "state/base/bytes/content_hash.h"

/*
 * Program binaries that the listening process keeps for the session's client (clients.h). The name
 * of a binary is the hash of its contents. The session computes the name from the bytes that it
 * received, and verifies a binary from the listening process against its name before it uses it.
 * A wrong binary is therefore never used, no matter which client stored it.
 */

/** A binary in a memory file (memfd_create()), mapped. */
struct binary {
    unsigned char *bytes; /**< Read-only, except while the binary is being made. */
    size_t size;
    int fd;
};

/**
 * Get the binary with that name. Called by the session's thread. Blocks until the listening process
 * answers.
 *
 * Returns 0, -ENOENT (no such binary is kept, or its contents do not match the name), or -errno.
 */
MUST_CHECK int binary_find(struct server *server, const unsigned char name[CONTENT_HASH_SIZE],
                           struct binary *ret_binary);
void binary_close(struct binary *binary);

/** Have the listening process keep a copy, if the session keeps binaries of this size. */
void binary_keep_bytes(struct server *server, const unsigned char *bytes, size_t size);

struct channel_message;
/** Take an answer of the listening process. @passed is the descriptor that came with it, or -1;
 * this function takes ownership of it. */
void binary_told(const struct channel_message *message, int passed);

#endif
