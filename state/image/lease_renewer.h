#ifndef RESEAT_STATE_IMAGE_LEASE_RENEWER_H
#define RESEAT_STATE_IMAGE_LEASE_RENEWER_H

#include "state/image/image_lease.h"

/*
 * Keeps the lease of the program (state/image/image_lease.h): a thread renews it, and at exit(),
 * after all handlers, marks it as ended. When it could not be renewed in time, another host may
 * take the program for dead: then the program is fenced, that is, its calls wait at the closed gate
 * until the lease was renewed, or forever if another process has taken it. So the same program
 * never runs twice.
 *
 * Thread-safe; not for inside the gate.
 */

/**
 * Begin a lease for the images in @path, unless the process has one.
 *
 * Blocks on the disk. Returns 0, -EBUSY (it has one for another folder), -ENOMEM or -errno.
 */
MUST_CHECK int lease_renewer_begin(const char *path, uint32_t lease_ms);
/** The process has just taken over @lease. Until its objects are restored (lease_renewer_settle),
 * its exit does not mark the lease as ended. Returns 0, -EBUSY or -ENOMEM. */
MUST_CHECK int lease_renewer_adopt(const struct lease *lease);
void lease_renewer_settle(void);
/** The process had the lease @id for the images in @path before it called execve(): renew it in a
 * while, if it is still its own. Returns 0 or -errno. */
MUST_CHECK int lease_renewer_follow(const char *path, const char *id);
/** The process was restored from an image of it, perhaps on a host with another clock: fence it
 * until the lease was renewed, or forever if another process has taken it. Waits for the disk, but
 * not for long. */
void lease_renewer_restored(void);

#define LEASE_RENEWER_PROBLEM_MAX 512
/** The state of the lease. */
struct lease_renewer_status {
    char path[PATH_MAX]; /**< Folder of the images; "": no lease. */
    char id[LEASE_ID_MAX];
    bool fenced;                             /**< The program's calls wait. */
    uint64_t age_ns;                         /**< Time since the last successful renewal began. */
    char problem[LEASE_RENEWER_PROBLEM_MAX]; /**< Why the last renewal failed; one line, or "". */
};
void lease_renewer_read(struct lease_renewer_status *ret_status);
/** The lease for the images in @path. False: there is none. */
bool lease_renewer_lease(const char *path, struct lease *ret_lease);

#endif
