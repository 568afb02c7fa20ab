#ifndef RESEAT_STATE_BASE_FILES_ACCESS_H
#define RESEAT_STATE_BASE_FILES_ACCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "state/base/compiler.h"

/* Who may do what, by the user ids that the kernel vouches for (SO_PEERCRED). Pure. */

/** May this user connect at all? The agent's own user, root, and anyone to a host's (root's) agent.
 */
bool access_may_connect(uid_t agent, uid_t peer);

/** May this user see and act on a program of @owner? Their own; root all. */
bool access_may_act(uid_t peer, uid_t owner);

/**
 * May this user do what concerns all that the agent does: stop it, have it read its configuration
 * again, say which drivers its helper loads (with the agent's rights), take devices from all
 * programs? Its own user, and root.
 */
bool access_may_manage(uid_t agent, uid_t peer);

/**
 * Connect to an agent that may be believed: one of this user's, or of root's; or, for root, that of
 * another @user and nobody else's, as that user decides where the path leads. Who it is comes from
 * the kernel. Never blocks.
 *
 * @user  geteuid(), or whose agent root means.
 * Returns a descriptor that does not block, -ENOENT or -ECONNREFUSED (none listens there), -EAGAIN
 * (it has too many that it has not taken: it may be stopped), -EPERM (it is another user's),
 * -ENAMETOOLONG, or what socket() or connect() said.
 */
MUST_CHECK int agent_connect(const char *path, uid_t user);

#endif
