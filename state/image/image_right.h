#ifndef RESEAT_STATE_IMAGE_IMAGE_RIGHT_H
#define RESEAT_STATE_IMAGE_IMAGE_RIGHT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/image/image_file.h"
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

#define RIGHT_LEASE_LEAST_MS 1000u
#define RIGHT_LEASE_MOST_MS  3600000u
/** Between two times that a holder writes its file. */
#define RIGHT_BEAT(lease_ms) ((lease_ms) / 4)

enum right_state {
    RIGHT_TAKEN,   /**< By who is about to start the program. */
    RIGHT_RUNNING, /**< By the program. */
    RIGHT_ENDED,   /**< It ended by itself: nobody is to start it again. */
};

/** What a file says. */
struct right_holder {
    enum right_state state;
    uint32_t lease_ms;
    uint64_t pid;
    uint64_t beat; /**< Another number each time. */
    char host[65];
    char boot[37]; /**< The boot of its kernel. */
};

/** A right that the process has, or looks at. */
struct right {
    char path[PATH_MAX]; /**< The folder of images; absolute, without links. */
    char id[RIGHT_ID_MAX];
    uint64_t generation;
    struct right_holder holder;
};

/** Of a file. */
#define RIGHT_BLOCK 512

/** Read what a file says, nothing of which is trusted. Returns 0 or -EBADMSG. Pure. */
MUST_CHECK int right_decode(const char block[RIGHT_BLOCK], struct right_holder *ret_holder);

/** True when it is the calling process that has it, and runs. */
bool right_is_own(const struct right *right);
/** True for what an id can be. */
bool right_id_is_valid(const char *id);

/**
 * A new one, for the calling process.
 *
 * @path  A folder of images, as image_folder_open() found it; it is open.
 * Returns 0, -EPERM (it is not the user's alone) or -errno.
 */
MUST_CHECK int right_begin(const char *path, uint32_t lease_ms, struct right *ret_right);
/**
 * The latest of @id.
 *
 * Returns 0, -ENOENT, -EPERM, -EBADMSG (it says nothing that can be) or -errno.
 */
MUST_CHECK int right_find(const char *path, const char *id, struct right *ret_right);
/**
 * Remove what somebody left who died while he made a right, from @folder, a folder of images whose
 * lock the caller has alone: who makes one shares it. What cannot be removed stays.
 */
void right_sweep(const struct owned *folder);
/**
 * Take over from @from, whose holder is dead, or lets the calling process have it.
 *
 * The caller has the folder of images open. Returns 0, -EEXIST (somebody else took it), or -errno.
 */
MUST_CHECK int right_take(const struct right *from, enum right_state state,
                          struct right *ret_right);
/**
 * Say that it is held still, or (@state) what became of it.
 *
 * Returns 0, -ESTALE (somebody took it), or -errno.
 */
MUST_CHECK int right_renew(struct right *right, enum right_state state);

#endif
