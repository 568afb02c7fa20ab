#ifndef RESEAT_REMOTE_SERVER_SESSION_BINARY_H
#define RESEAT_REMOTE_SERVER_SESSION_BINARY_H

#include "remote/server/session/server.h"
#include "state/base/bytes/content_hash.h"

/*
 * Binaries that the listening process keeps for the session's client (kept.h), by the names of
 * their contents. Names are made here, of the bytes that came, and what the listening process has
 * is looked at before it is used: so nothing is taken for what it is not, whoever gave it.
 */

/** Memory of a file of the kernel's. */
struct binary {
    unsigned char *bytes; /**< Read only, unless it is being made. */
    size_t size;
    int fd;
};

/**
 * The one of that name. By the session's thread. Blocks until the listening process answers.
 *
 * Returns 0, -ENOENT (it is not kept, or is not what its name says), or -errno.
 */
MUST_CHECK int binary_find(struct server *server, const unsigned char name[CONTENT_HASH_SIZE],
                           struct binary *ret_binary);
void binary_close(struct binary *binary);

/** Keep a copy, if it is one that is kept. */
void binary_keep_bytes(struct server *server, const unsigned char *bytes, size_t size);

struct channel_message;
/** What the listening process answers. @passed is this one's, or -1. */
void binary_told(const struct channel_message *message, int passed);

#endif
