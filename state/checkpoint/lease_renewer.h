#ifndef RESEAT_STATE_CHECKPOINT_LEASE_RENEWER_H
#define RESEAT_STATE_CHECKPOINT_LEASE_RENEWER_H

#include "state/image/image_lease.h"

/*
 * The process keeps the right to run its program (state/image/image_lease.h): a thread says again
 * and again that it is alive, and at exit(), behind all handlers, that it ended. When it could not
 * say so for its lease, another host may take it for dead: then its calls wait, with the gate
 * closed, until it could again; or for ever, once somebody has taken the right. So of one program
 * two do not run at once.
 *
 * Thread-safe; not for inside the gate.
 */

/**
 * Have a right for the images in @path, unless there is one.
 *
 * Blocks on the disk. Returns 0, -EBUSY (there is one for another folder), -ENOMEM or -errno.
 */
MUST_CHECK int lease_renewer_begin(const char *path, uint32_t lease_ms);
/** The process took @lease over, just now. Until it is the program that it was
 * (lease_renewer_settle), it does not say of its end that it is the program's. Returns 0, -EBUSY or
 * -ENOMEM. */
MUST_CHECK int lease_renewer_adopt(const struct lease *lease);
void lease_renewer_settle(void);
/** The process had the right @id, for the images in @path, before it executed (execve) the program
 * that it is now: it says on that it lives, in a while, if the right is its own still. Returns 0 or
 * -errno. */
MUST_CHECK int lease_renewer_follow(const char *path, const char *id);
/** The process was restored from an image of it, perhaps where the clock is another: it is fenced
 * until it could say that it lives, and for ever where somebody has taken its right meanwhile.
 * Waits for the disk, but not for long. */
void lease_renewer_restored(void);

#define LEASE_RENEWER_PROBLEM_MAX 512
/** How it is with the right. */
struct lease_renewer_status {
    char path[PATH_MAX]; /**< Of the images; "": it has none. */
    char id[LEASE_ID_MAX];
    bool fenced;                             /**< The program's calls wait. */
    char problem[LEASE_RENEWER_PROBLEM_MAX]; /**< Why it could not say that it lives when it last
                                           tried; one line, or "". */
};
void lease_renewer_read(struct lease_renewer_status *ret_status);
/** The right for the images in @path. False: there is none. */
bool lease_renewer_lease(const char *path, struct lease *ret_lease);

#endif
