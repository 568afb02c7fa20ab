#ifndef RESEAT_STATE_IMAGE_IMAGE_LEASE_H
#define RESEAT_STATE_IMAGE_IMAGE_LEASE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/base/files/file.h"
#include "state/image/image_record.h"

/*
 * The right to run a program that has images in a folder: who may, once, on whichever host.
 *
 *     FOLDER/rights/ID.0   who began it
 *     FOLDER/rights/ID.1   who took it from him when he was dead; and so on: the last one has it
 *
 * A holder writes its file again before its lease has passed; who finds that it did not for as long
 * as its lease, by its own clock (hosts' clocks need not agree), may make the next file. That is
 * made by link(2), which one of any number of hosts can do, on NFS too, and never removed while the
 * program may run: so nobody takes a right that was taken already, however late he comes. A holder
 * that finds a later file than its own has it no more.
 *
 * Everything is thread-safe, and blocks on the disk.
 */

#define LEASE_LEASE_LEAST_MS 1000u
#define LEASE_LEASE_MOST_MS  3600000u
/** Between two times that a holder writes its file. */
#define LEASE_BEAT(lease_ms) ((lease_ms) / 4)

enum lease_state {
    LEASE_TAKEN,   /**< By who is about to start the program. */
    LEASE_RUNNING, /**< By the program. */
    LEASE_ENDED,   /**< It ended by itself: nobody is to start it again. */
};

/** What a file says. */
struct lease_holder {
    enum lease_state state;
    uint32_t lease_ms;
    uint64_t pid;
    uint64_t beat; /**< Another number each time. */
    char host[65];
    char boot[37]; /**< The boot of its kernel. */
};

/** A right that the process has, or looks at. */
struct lease {
    char path[PATH_MAX]; /**< The folder of images; absolute, without links. */
    char id[LEASE_ID_MAX];
    uint64_t generation;
    struct lease_holder holder;
};

/** Of a file. */
#define LEASE_BLOCK 512

/** Read what a file says, nothing of which is trusted. Returns 0 or -EBADMSG. Pure. */
MUST_CHECK int lease_decode(const char block[LEASE_BLOCK], struct lease_holder *ret_holder);

/** True when it is the calling process that has it, and runs. */
bool lease_is_own(const struct lease *lease);
/** True for what an id can be. */
bool lease_id_is_valid(const char *id);

/**
 * A new one, for the calling process.
 *
 * @path  A folder of images, as image_folder_open() found it; it is open.
 * Returns 0, -EPERM (it is not the user's alone) or -errno.
 */
MUST_CHECK int lease_begin(const char *path, uint32_t lease_ms, struct lease *ret_lease);
/**
 * The latest of @id.
 *
 * Returns 0, -ENOENT, -EPERM, -EBADMSG (it says nothing that can be) or -errno.
 */
MUST_CHECK int lease_find(const char *path, const char *id, struct lease *ret_lease);
/**
 * Remove what somebody left who died while he made a right, from @folder, a folder of images whose
 * lock the caller has alone: who makes one shares it. What cannot be removed stays.
 */
void lease_sweep(const struct owned *folder);
/**
 * Take over from @from, whose holder is dead, or lets the calling process have it.
 *
 * The caller has the folder of images open. Returns 0, -EEXIST (somebody else took it), or -errno.
 */
MUST_CHECK int lease_take(const struct lease *from, enum lease_state state,
                          struct lease *ret_lease);
/**
 * Say that it is held still, or (@state) what became of it.
 *
 * Returns 0, -ESTALE (somebody took it), or -errno.
 */
MUST_CHECK int lease_renew(struct lease *lease, enum lease_state state);

#endif
