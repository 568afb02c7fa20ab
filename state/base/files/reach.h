#ifndef RESEAT_STATE_BASE_FILES_REACH_H
#define RESEAT_STATE_BASE_FILES_REACH_H

#include <stdint.h>
#include <sys/types.h>

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
