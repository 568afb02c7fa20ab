#ifndef RESEAT_REMOTE_SERVER_LISTENER_KEPT_H
#define RESEAT_REMOTE_SERVER_LISTENER_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "remote/link/link.h"
#include "state/base/bytes/content_hash.h"

/*
 * Program binaries that clients sent, kept for later sessions of the same client. The listening
 * process holds sealed memfds and never reads them. A session that gets one checks that the content
 * matches the name, a content hash (binary.h), since the session that stored it is not trusted.
 *
 * A client only ever gets its own binaries, so no client can learn what another has, or plant
 * something for it.
 */

/** Limits for all clients and for one client, in bytes. When they are reached, the least recently
 * used binaries go, those of the client that stores more first. */
#define KEPT_BYTES       (UINT64_C(1) << 30)
#define KEPT_OWNER_BYTES (UINT64_C(256) << 20)
/** Limits of the number: each binary holds a descriptor. */
#define KEPT_COUNT       128
#define KEPT_OWNER_COUNT 32

struct kept_row {
    char owner[LINK_PEER_MAX];
    unsigned char name[CONTENT_HASH_SIZE];
    int fd;
    uint64_t size;
    uint64_t used; /**< Value of `uses` at its last use. */
};

struct kept {
    struct kept_row rows[KEPT_COUNT];
    size_t count;
    uint64_t bytes, uses;
};

/** Keep @fd, replacing a binary of the same name. Takes @fd; returns false, and closes it, if it is
 * not acceptable. */
bool kept_add(struct kept *kept, const char *owner, const unsigned char name[CONTENT_HASH_SIZE],
              int fd);
/** A borrowed descriptor, or -1. */
int kept_find(struct kept *kept, const char *owner, const unsigned char name[CONTENT_HASH_SIZE]);

/** The size of @fd if it is a sealed memfd of an acceptable size; else 0. */
uint64_t kept_check(int fd);

#endif
