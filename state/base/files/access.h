#ifndef RESEAT_STATE_BASE_FILES_ACCESS_H
#define RESEAT_STATE_BASE_FILES_ACCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "state/base/compiler.h"

/* Who is believed, by the user ids that the kernel vouches for (SO_PEERCRED, stat). */

/** The folder of the host's agent, and its socket there. Root decides whose the folder is. */
#define ACCESS_HOST_FOLDER "/run/reseat"
#define ACCESS_HOST_SOCKET ACCESS_HOST_FOLDER "/host.sock"

/**
 * Do two numbers, as the kernel tells them, mean one user? Not where a user namespace, such as a
 * container's, shows all users by this number who have none in it (proc(5), overflowuid).
 */
bool access_same_user(uid_t one, uid_t other);

/** Is @peer the user that serves it, @agent, or root? They may do everything. */
bool access_may_manage(uid_t agent, uid_t peer);

/**
 * May this process believe the agent that listens at @path, or the file there, if it is @owner's?
 * Its own user and root are believed, and in ACCESS_HOST_FOLDER the user who has that folder, also
 * if that user has no number in a container: who made the container decided what is mounted there.
 */
bool access_may_believe(const char *path, uid_t owner);

/**
 * Connect to an agent that access_may_believe(); or, for root, to that of another @user and nobody
 * else's, as that user decides where the path leads. Who it is comes from the kernel. Never blocks.
 *
 * @user  geteuid(), or whose agent root means.
 * Returns a descriptor that does not block, -ENOENT or -ECONNREFUSED (none listens there), -EAGAIN
 * (it has too many that it has not taken: it may be stopped), -EPERM (it is another user's),
 * -ENAMETOOLONG, or what socket() or connect() said.
 */
MUST_CHECK int agent_connect(const char *path, uid_t user);

/**
 * Listen at @path, with a socket of @type that does not block and that only this user can use.
 * Replaces a socket at which no process listens: one that was killed left it.
 *
 * Returns 0, -EADDRINUSE (a process listens there), -ENAMETOOLONG or -errno.
 */
MUST_CHECK int access_listen(const char *path, int type, int backlog, int *ret_fd);

#endif
