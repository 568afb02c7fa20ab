#ifndef RESEAT_REMOTE_SERVER_SESSION_SANDBOX_H
#define RESEAT_REMOTE_SERVER_SESSION_SANDBOX_H

#include "remote/server/session/server.h"

/*
 * What a session's process may do. A kernel may be native code, so that is what its client may do
 * on the server's machine; it is a list of what drivers need, of system calls (seccomp), of files
 * and devices (Landlock, where the kernel has it), in namespaces and under a user of its own, and
 * with bounds. Nothing that was given up can be had again, by no program that it runs either.
 *
 * The order: sandbox_begin(), the greeting, for strangers sandbox_space() and sandbox_become(),
 * sandbox_files(), sandbox_admitted(), sandbox_processes(), the drivers are opened,
 * sandbox_calls().
 */

/** Have system calls that are denied named in the log, once each. Programs that a driver runs are
 *  ended by them then. Before all else. 0 or -errno. */
MUST_CHECK int sandbox_show_denied(void);

/**
 * Before a byte of the client's is read: no system call that neither the greeting nor a later step
 * needs, and no capability but those that a server of root's needs to leave root. 0 or -errno.
 */
MUST_CHECK int sandbox_begin(void);

/**
 * Enter namespaces of its own, before it has threads: a network without anybody, System V and POSIX
 * queues, and mounts, where /dev/shm is its own and bounded. All that is gone when the process is.
 * An ordinary user's process gets a user namespace for it.
 *
 * 0 or -errno: this kernel, or a container around the server, does not let it.
 */
MUST_CHECK int sandbox_space(void);

/**
 * Of a server of root's, after sandbox_space(): become a user that nobody else is, with no group
 * but those of the devices that @grant gives. 0 or -errno.
 */
MUST_CHECK int sandbox_become(const struct devices *known, const struct grant *grant);

/** The same without any device; nothing where it is not root. */
MUST_CHECK int sandbox_leave_root(void);

/** Why a server of root's cannot have sessions that are not root's: -errno of the two above, tried
 *  by a child. 0: it can. */
MUST_CHECK int sandbox_try(void);

/**
 * For a client that is another machine's: have drivers find folders of its own in the environment,
 * for what they have built and what they need for a while. What one client left there another one,
 * or its user, would run. After sandbox_become() they are in memory, and end with the session.
 *
 * @client  Its name.
 *
 * Before the next step. 0 or -errno.
 */
MUST_CHECK int sandbox_own_caches(const char *client);

/**
 * Once its client is admitted, before it has threads: it reads what is installed and what drivers
 * are told in the environment, writes to caches and temporary folders, and opens the devices that
 * drivers of @grant need, and nothing else.
 *
 * @known       NULL: devices are not shared out, and it has all.
 * @authority   A folder that it does not read, wherever it is; or NULL.
 * @own_caches  It has those of sandbox_own_caches(), and none of its user's, nor /tmp.
 */
MUST_CHECK int sandbox_files(const struct devices *known, const struct grant *grant,
                             const char *authority, bool own_caches);

/** Once its files are what they stay: drop the capabilities that are left, and what only the steps
 *  up to this one need. 0 or -errno. */
MUST_CHECK int sandbox_admitted(void);

/** Of a stranger's process: how much memory and how many tasks it may have, and how large a file
 *  may be. 0 or -errno. */
MUST_CHECK int sandbox_bounds(void);

/**
 * Before it has threads: the kernel asks before it starts a process, of this one or of one that it
 * started.
 *
 * @ret_notices  Where it asks (processes.h); the caller's, and nobody's of the session in the end.
 * 0, or -errno: -ENOSYS where the kernel cannot.
 */
MUST_CHECK int sandbox_processes(int *ret_notices);

/**
 * Once its drivers are open, for all its threads: no socket is made, connected or listened to, and
 * no program is run unless a driver does so to compile.
 */
MUST_CHECK int sandbox_calls(const struct server *server);

/** For a process that only carries bytes between descriptors that it has: it can do that, and end.
 */
MUST_CHECK int sandbox_relay(void);

/** Of sandbox_space(): was /dev/shm made the process's own? */
bool sandbox_has_memory(void);
/** Of sandbox_become(): is it a user of its own? */
bool sandbox_is_nobody(void);

/** Call @each with the path of each device node that drivers of @grant's devices open. */
void sandbox_each_node(const struct devices *known, const struct grant *grant,
                       void (*each)(void *data, const char *path), void *data);

#endif
