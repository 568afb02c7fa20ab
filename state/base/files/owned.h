#ifndef RESEAT_STATE_BASE_FILES_OWNED_H
#define RESEAT_STATE_BASE_FILES_OWNED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "state/base/compiler.h"

/*
 * A descriptor of ours inside a program. Programs close numbers that they do not know
 * (closefrom(3), daemons), reuse them, and leave 0 to 2 free for the next open. So ours are above
 * 2, out of the way of small numbers if the limit allows, and are identified by the file they refer
 * to: before each use the number is checked, and if it refers to another file, it belongs to the
 * program and is neither used nor closed.
 *
 * Between check and use, another thread can still dup2() onto that very number. The operations are
 * chosen to do the least harm then: send(2) and recv(2), which fail on anything but a socket, and
 * descriptors of files that are open for one line or one read only.
 */
struct owned {
    int fd; /**< -1: none. */
    dev_t device;
    ino_t inode;
};

#define OWNED_NONE ((struct owned){.fd = -1})

/**
 * Take over what @fd refers to, under another number; @fd itself, which was just opened, is closed
 * in any case. Closed on exec.
 *
 * @fd  Or -1 from a failed call: then its errno is returned.
 * Returns 0 or -errno.
 */
MUST_CHECK int owned_take(int fd, struct owned *ret_owned);

/**
 * Have the kernel make room for the numbers that owned_take() chooses. Call it while the process
 * has one thread: with several, the kernel waits for every processor, 10 ms and more.
 */
void owned_prepare(void);

/** Remember what @fd refers to, to recognise it later; it stays the program's and must not be
 * closed. */
struct owned owned_of(int fd);

/** The number to use now, or -1 when it is not ours any more. */
int owned_fd(const struct owned *owned);

/**
 * Append all @bytes to a file. A file that would exceed RLIMIT_FSIZE is left unchanged, because the
 * kernel would end the program with a signal.
 *
 * Blocks on the disk. Returns 0, -EFBIG, or -errno; then some of it may be there.
 */
MUST_CHECK int owned_append(const struct owned *owned, const void *bytes, size_t size);

/* The former and the new RLIMIT_NOFILE; equal if it was not changed. */
struct owned_room {
    rlim_t before, now;
};
/**
 * If the program has used up almost all of its descriptors, raise its limit as far as the program
 * itself could, for a driver that needs some, until owned_room_end. Descriptors that are open then
 * stay open.
 */
void owned_room_begin(struct owned_room *ret_room);
/** Restore the program's limit, unless it set another meanwhile. */
void owned_room_end(const struct owned_room *room);

/** Close it if it is still ours; it is OWNED_NONE afterwards. */
void owned_close(struct owned *owned);

/*
 * Which files the process can reach. Drivers open files (device nodes, compilers, caches) as they
 * need them, so a driver that worked may fail after the process has changed its root folder, its
 * user or its limit of descriptors.
 */

struct reach {
    dev_t root_device; /**< Device of the root folder. */
    ino_t root_inode;
    uid_t user; /**< Effective ids. */
    gid_t group;
    uint64_t files; /**< Limit of descriptors. */
};

void reach_read(struct reach *ret_reach);
/** How @now is more restricted than @before, as "its root folder (chroot)"; NULL: it is not. */
const char *reach_lost(const struct reach *before, const struct reach *now);

#endif
