#ifndef RESEAT_STATE_IMAGE_IMAGE_LEASE_H
#define RESEAT_STATE_IMAGE_IMAGE_LEASE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/base/files/file.h"
#include "state/image/image_record.h"

/*
 * A lease is the right to run a program that has images in a folder: one process has it, on any
 * host. FOLDER/rights/ID.0 is written by the process that began the lease, ID.1 by the one that
 * took it over after that one had died, and so on: the writer of the last file is the holder.
 *
 * A holder rewrites its file before its lease has passed. A process that sees no change for that
 * time, by its own clock (hosts' clocks need not agree), may create the next file. It is created by
 * link(2), which only one of several hosts can do, on NFS too, and is not removed while the program
 * may run: so nobody can take a lease that was taken already, however late. A holder that finds a
 * later file than its own has lost the lease.
 *
 * A host on which `reseat recover --watch` runs has a lease of its own there, whose ID is made from
 * the boot id of its kernel. It gives nobody a right: its renewals are the host's heartbeat.
 *
 * Everything is thread-safe, and blocks on the disk.
 */

#define LEASE_LEAST_MS 1000u
#define LEASE_MOST_MS  3600000u
/** Interval at which a holder rewrites its file. */
#define LEASE_BEAT(lease_ms) ((lease_ms) / 4)

/** Size of a reason. */
#define LEASE_REASON_MAX 160

enum lease_state {
    LEASE_TAKEN,   /**< Held by a process that is about to start the program. */
    LEASE_RUNNING, /**< Held by the running program. */
    LEASE_ENDED,   /**< The program ended by itself: it must not be started again. */
};

/** Content of a file. */
struct lease_holder {
    enum lease_state state;
    uint32_t lease_ms;
    uint64_t pid;
    uint64_t beat; /**< Incremented each time. */
    char host[65];
    char boot[37]; /**< Boot id of the host's kernel, or what LEASE_ENV_BOOT says. */
    /** Of a TAKEN lease: why the program could not be started. One safe line, or "". */
    char reason[LEASE_REASON_MAX];
};

/** Where several hosts are containers of one kernel: an identity of this one that differs from
 * those of the others and of its earlier lives, instead of the boot id. At most 36 bytes, without
 * spaces. */
#define LEASE_ENV_BOOT "RESEAT_BOOT_ID"

/** A lease that the process has, or looks at. */
struct lease {
    char path[PATH_MAX]; /**< The folder of images; absolute and resolved. */
    char id[LEASE_ID_MAX];
    uint64_t generation;
    struct lease_holder holder;
};

/** Size of a file. */
#define LEASE_BLOCK 512

/** Parse the content of a file, which is untrusted. Returns 0 or -EBADMSG. Pure. */
MUST_CHECK int lease_decode(const char block[LEASE_BLOCK], struct lease_holder *ret_holder);

/** True when a process of this host, in its present boot, holds the lease. */
bool lease_is_of_this_host(const struct lease *lease);
/** True when the calling process has the lease and runs. */
bool lease_is_own(const struct lease *lease);
/** True for a valid id. */
bool lease_id_is_valid(const char *id);

/**
 * Create a lease, for the calling process.
 *
 * @path  A folder of images, as image_folder_open() found it; it is open.
 * Returns 0, -EPERM (it is not the user's alone) or -errno.
 */
MUST_CHECK int lease_begin(const char *path, uint32_t lease_ms, struct lease *ret_lease);
/** The id of the lease of the host whose boot id is @boot. */
void lease_host_id(const char *boot, char ret_id[LEASE_ID_MAX]);
/**
 * As lease_begin(), for the lease of this host. An earlier process of this boot may have begun it:
 * then it goes on with that one.
 */
MUST_CHECK int lease_begin_host(const char *path, uint32_t lease_ms, struct lease *ret_lease);
/**
 * Read the latest file of lease @id.
 *
 * Returns 0, -ENOENT, -EPERM, -EBADMSG (its content is invalid) or -errno.
 */
MUST_CHECK int lease_find(const char *path, const char *id, struct lease *ret_lease);
/** What a process has seen of a lease: how long it has not changed, by the process's own clock. */
struct lease_sight {
    struct lease lease; /**< As it was last read; valid once that succeeded. */
    uint64_t since_ns;  /**< clock_now_ns() of the last change; 0: never looked at. */
    int error;          /**< Of the last look, as lease_find() returns it. */
};
/**
 * Look at lease @id. A look that fails begins the silence anew, because renewals may fail as well
 * then; but a damaged file does not, because its writer may have died. Returns true if the lease
 * was renewed, or taken, since the last look.
 */
bool lease_look(struct lease_sight *sight, const char *path, const char *id);
/** True when no change was seen for @ns. */
bool lease_is_silent(const struct lease_sight *sight, uint64_t ns);
/**
 * Remove unfinished files of processes that died while they created a lease, from @folder, a folder
 * of images whose lock the caller has exclusively (creating one takes it shared). What cannot be
 * removed stays.
 */
void lease_sweep(const struct owned *folder);
/**
 * Take over the lease @from, whose holder is dead, or lets the calling process have it.
 *
 * The caller has the folder of images open. Returns 0, -EEXIST (another process took it), or
 * -errno.
 */
MUST_CHECK int lease_take(const struct lease *from, enum lease_state state,
                          struct lease *ret_lease);
/**
 * Rewrite the file: the lease is still held, or has the new @state, or another holder.reason.
 *
 * Returns 0, -ESTALE (another process took it), or -errno.
 */
MUST_CHECK int lease_renew(struct lease *lease, enum lease_state state);

#endif
