#ifndef RESEAT_REMOTE_SERVER_SESSION_SANDBOX_H
#define RESEAT_REMOTE_SERVER_SESSION_SANDBOX_H

#include "remote/server/session/server.h"

/*
 * Restricts what a session's process may do. An OpenCL kernel may be native code, so a client can
 * do on the server's machine whatever its session may do. The process is limited to what drivers
 * need: system calls (seccomp), files and devices (Landlock, where the operating system has it),
 * namespaces and a user of its own, and resource limits. Neither the process nor a program that it
 * executes can get a dropped right back.
 *
 * The order: sandbox_begin(), the greeting, for strangers sandbox_space() and sandbox_become(),
 * sandbox_files(), sandbox_admitted(), sandbox_processes(), the drivers are opened,
 * sandbox_calls().
 */

/** Log the name of each denied system call, once. Programs that a driver runs are then killed by a
 *  denied call. Call this before all other steps. Returns 0 or -errno. */
MUST_CHECK int sandbox_show_denied(void);

/**
 * Keep only the system calls that the greeting or a later step needs, and only the capabilities
 * that a server started as root needs to change its user. Call this before the first byte of the
 * client is read. Returns 0 or -errno.
 */
MUST_CHECK int sandbox_begin(void);

/**
 * Enter new namespaces: an empty network, System V IPC and POSIX message queues, and mounts, with a
 * private /dev/shm of limited size. They end with the process. If the server does not run as root,
 * the process also gets a user namespace. Call this before the process has threads.
 *
 * Returns 0, or -errno if the operating system, or a container around the server, forbids it.
 */
MUST_CHECK int sandbox_space(void);

/**
 * For a server that runs as root, after sandbox_space(): become a user that no other process has,
 * with only the groups of the devices that @grant gives. Returns 0 or -errno.
 */
MUST_CHECK int sandbox_become(const struct devices *known, const struct grant *grant);

/** As sandbox_become(), without any device. Does nothing if the process is not root. */
MUST_CHECK int sandbox_leave_root(void);

/** Test in a child process whether a server that runs as root can have sessions that do not.
 *  Returns 0, or the -errno of sandbox_space() or sandbox_become(). */
MUST_CHECK int sandbox_try(void);

/**
 * For a client on another machine: set environment variables that give drivers cache and temporary
 * folders of this client only. In shared folders, one client could leave code that another client,
 * or the server's user, would run. After sandbox_become() the folders are in memory, and end with
 * the session.
 *
 * @client  The client's name.
 *
 * Call this before sandbox_files(). Returns 0 or -errno.
 */
MUST_CHECK int sandbox_own_caches(const char *client);

/**
 * Limit file access. The process may read installed files and the paths that the environment gives
 * to drivers, write to caches and temporary folders, and open the devices that drivers of @grant
 * need. Call this after the client is admitted, before the process has threads.
 *
 * @known       NULL: devices are not shared out, and the process may open all of them.
 * @authority   A folder that the process may never read; or NULL.
 * @own_caches  Use the folders of sandbox_own_caches(), and neither the user's caches nor /tmp.
 */
MUST_CHECK int sandbox_files(const struct devices *known, const struct grant *grant,
                             const char *authority, bool own_caches);

/** After sandbox_files(): drop the remaining capabilities, and the system calls that only the steps
 *  up to this one need. Returns 0 or -errno. */
MUST_CHECK int sandbox_admitted(void);

/** For an untrusted client's process: limit its memory, its number of tasks and the size of its
 *  files. Returns 0 or -errno. */
MUST_CHECK int sandbox_bounds(void);

/**
 * Have the operating system ask before this process or one of its descendants starts a process.
 * Call this before the process has threads.
 *
 * @ret_notices  The descriptor of the questions (listener/clients.h). The caller owns it, and no
 * process of the session may keep it. Returns 0, or -errno: -ENOSYS where the operating system
 * cannot ask.
 */
MUST_CHECK int sandbox_processes(int *ret_notices);

/**
 * For all threads, after the drivers are open: forbid to create, connect or listen on sockets, and
 * to execute programs other than those that drivers use to compile. Returns 0 or -errno.
 */
MUST_CHECK int sandbox_calls(const struct server *server);

/** For a process that only carries bytes between descriptors that it has: allow only that, and to
 *  exit. Returns 0 or -errno. */
MUST_CHECK int sandbox_relay(void);

/** Whether sandbox_space() gave the process a private /dev/shm. */
bool sandbox_has_memory(void);
/** Whether sandbox_become() gave the process a user of its own. */
bool sandbox_is_nobody(void);

/** Call @each with the path of each device node that drivers of @grant's devices open. */
void sandbox_each_node(const struct devices *known, const struct grant *grant,
                       void (*each)(void *data, const char *path), void *data);

#endif
