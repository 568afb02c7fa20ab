#ifndef RESEAT_REMOTE_SERVER_SESSION_SANDBOX_H
#define RESEAT_REMOTE_SERVER_SESSION_SANDBOX_H

#include "remote/server/session/server.h"

/*
 * What a session's process gives up, in three steps, so that a driver that a client took over has
 * little of its user's rights: of system calls (seccomp), of files (Landlock, where the kernel has
 * it), and all capabilities. Nothing of it can be had again, by no program that it runs either.
 */

/**
 * At its beginning, before a byte of its client's: no look into other processes and no signal to
 * them, no mount, no name space, no module, no key, no way around the filter. 0 or -errno.
 */
MUST_CHECK int sandbox_begin(void);

/**
 * For a client that is another machine's: have drivers find folders of its own in the environment,
 * for what they have built and what they need for a while. What one client left there another one,
 * or its user, would run.
 *
 * @client  Its name.
 *
 * Before the next step. 0 or -errno.
 */
MUST_CHECK int sandbox_own_caches(const char *client);

/**
 * Once its client is admitted, before it has threads: it writes to caches, to temporary folders and
 * to devices, though to no disk or terminal, and reads nothing of its user's home but those, and
 * drivers that are there.
 *
 * @authority   A folder that it does not read, wherever it is; or NULL.
 * @own_caches  It has those of sandbox_own_caches(), and none of its user's, nor /tmp.
 */
MUST_CHECK int sandbox_files(const struct devices *known, const char *authority, bool own_caches);

/**
 * Before it has threads: the kernel asks before it starts a process, of this one or of one that it
 * started.
 *
 * @ret_notices  Where it asks (processes.h); the caller's, and nobody's of the session in the end.
 * 0, or -errno: -ENOSYS where the kernel cannot.
 */
MUST_CHECK int sandbox_processes(int *ret_notices);

/**
 * Once its drivers are open, for all its threads: no new socket but of networks (tcp, vsock), which
 * may be connected with other servers; nothing is listened to; and no program is run unless a
 * driver does so to compile.
 */
MUST_CHECK int sandbox_calls(const struct server *server);

/** For a process that only carries bytes between descriptors that it has: it can do that, and end.
 */
MUST_CHECK int sandbox_relay(void);

#endif
