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
 * (closefrom(3), daemons), reuse them, and leave 0 to 2 open to whoever comes first. So ours are
 * above 2, out of the way of small numbers where the limit allows, and known by what they lead to:
 * before each use the number is looked at, and one that leads elsewhere is the program's, which is
 * neither used nor closed.
 *
 * A number can still change hands between the look and the use. Only dup2() onto that very number,
 * by another thread, at that moment, does it; and what is used is chosen so that it does least
 * then: send(2) and recv(2), which fail on anything but a socket, and descriptors of files that are
 * kept for one line or one read.
 */
struct owned {
    int fd; /**< -1: none. */
    dev_t device;
    ino_t inode;
};

#define OWNED_NONE ((struct owned){.fd = -1})

/**
 * Own what @fd leads to, under another number; @fd itself, which was just opened, is closed in any
 * case. It will not survive exec.
 *
 * @fd  Or -1 of a call that failed: then its errno is returned.
 * Returns 0 or -errno.
 */
MUST_CHECK int owned_take(int fd, struct owned *ret_owned);

/** What @fd leads to now, to be known again; it stays the program's: not to be closed. */
struct owned owned_of(int fd);

/** The descriptor to be used now, or -1 when it is not ours any more. */
int owned_fd(const struct owned *owned);

/**
 * Append @bytes to a file, all of them. A file that may not become as long (RLIMIT_FSIZE) stays as
 * it is: the kernel would end the program with a signal.
 *
 * Blocks on the disk. Returns 0, -EFBIG, or -errno; then some of it may be there.
 */
MUST_CHECK int owned_append(const struct owned *owned, const void *bytes, size_t size);

/* What RLIMIT_NOFILE was, and was made; the same: it was left. */
struct owned_room {
    rlim_t before, now;
};
/**
 * Where the program has all but a few of the descriptors that it may, let there be more, as far as
 * it could have had them itself, for a driver that cannot do without: until owned_room_end. Those
 * that are open then stay so.
 */
void owned_room_begin(struct owned_room *ret_room);
/** The limit is the program's again, unless it set another meanwhile. */
void owned_room_end(const struct owned_room *room);

/** Close it if it is ours still; OWNED_NONE from then on. */
void owned_close(struct owned *owned);

/*
 * What files the process can reach. Drivers open theirs (device nodes, compilers, caches) as they
 * need them, so one that worked may not work again once the process has given up its root folder,
 * its user or its descriptors.
 */

struct reach {
    dev_t root_device; /**< Of the root folder. */
    ino_t root_inode;
    uid_t user; /**< The effective ones. */
    gid_t group;
    uint64_t files; /**< How many descriptors it may have. */
};

void reach_read(struct reach *ret_reach);
/** What @now is less than @before in, as "its root folder (chroot)"; NULL for nothing. */
const char *reach_lost(const struct reach *before, const struct reach *now);

#endif
