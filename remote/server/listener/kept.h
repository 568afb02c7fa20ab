#ifndef RESEAT_REMOTE_SERVER_LISTENER_KEPT_H
#define RESEAT_REMOTE_SERVER_LISTENER_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "remote/link/link.h"
#include "state/base/bytes/content_hash.h"

/*
 * Binaries of programs that clients gave the server, kept for later sessions of the same client:
 * the listening process has their memory, and never looks into it. Each is a file of the kernel's
 * memory that nobody can change any more. Whoever takes one sees for itself that it has the content
 * that its name says (binary.h): the session that gave it is not believed.
 *
 * What is one client's is nobody else's: so no other one learns what it has, or gives it anything.
 */

/** Bytes of all, and of one client's: more, and what was not used for the longest goes. First the
 *  client's own, which wants more. */
#define KEPT_BYTES       (UINT64_C(1) << 30)
#define KEPT_OWNER_BYTES (UINT64_C(256) << 20)
/** Each is a descriptor. */
#define KEPT_COUNT       128
#define KEPT_OWNER_COUNT 32

struct kept_row {
    char owner[LINK_PEER_MAX];
    unsigned char name[CONTENT_HASH_SIZE];
    int fd;
    uint64_t size;
    uint64_t used; /**< When, counted in uses. */
};

struct kept {
    struct kept_row rows[KEPT_COUNT];
    size_t count;
    uint64_t bytes, uses;
};

/** Keep @fd, in place of one of that name. False: it is no binary that can be kept, and is closed.
 */
bool kept_add(struct kept *kept, const char *owner, const unsigned char name[CONTENT_HASH_SIZE],
              int fd);
/** Borrowed; -1: there is none. */
int kept_find(struct kept *kept, const char *owner, const unsigned char name[CONTENT_HASH_SIZE]);

/** Is it memory that nobody can change, of a size that is kept? Returns that; 0: it is not. */
uint64_t kept_check(int fd);

#endif
