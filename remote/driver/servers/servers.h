#ifndef RESEAT_REMOTE_DRIVER_SERVERS_SERVERS_H
#define RESEAT_REMOTE_DRIVER_SERVERS_SERVERS_H

#include "remote/driver/session/session.h"
#include "state/driver/served.h"

/** The platforms of the servers that the environment names, after connecting at the first call. */
cl_uint clients_platforms(struct platform ***ret_platforms);

/*
 * What reseat's engine asks for by clGetExtensionFunctionAddress(): OpenCL lists a driver's
 * platforms once, and has no call for a server that comes while a program runs.
 */

/** isolated_open_fn. */
MUST_CHECK int isolate_open(const char *server, const char *icd, cl_uint room,
                            cl_platform_id *ret_platforms, cl_uint *ret_count);
/** isolated_standby_fn. */
void isolate_standby(cl_platform_id platform, bool wanted);
/** served_open_fn. Returns 0, -EINVAL (no room), -ENOMEM, or why there is no session. */
MUST_CHECK int plug_open(const char *address, cl_uint room, cl_platform_id *ret_platforms,
                         cl_uint *ret_count);
/** served_ended_fn. */
bool plug_ended(cl_platform_id platform);

/* Sessions that replace one that has ended. For a session in which the server opened a driver for
 * this process, a standby session can be kept, with its driver open, so that a recovery does not
 * wait for a GPU's driver to start, which takes about as long as everything else in a recovery. */

/**
 * The session for a new context of a client's devices. Where a session with a driver of this
 * process has ended, or was closed, it is replaced: by the standby session if there is one. Objects
 * of the old session are lost.
 *
 * Blocks as client_open(). Returns the session to use: @client where it stands, or where there is
 * no other.
 */
struct client *client_renew(struct client *client);

/**
 * @wanted  True: begin a standby session, in a thread, unless there is one or an attempt was
 * moments ago; to be called again and again; does not block. False: close the standby session;
 * waits for one that is being begun. Any thread. Does nothing for sessions of other kinds, and in
 * the child of a fork.
 */
void client_keep_standby(struct client *client, bool wanted);

/**
 * Close all sessions, so that no thread, descriptor or shared memory of any is left in the process;
 * client_renew() begins others. Until this has returned, no object of a context exists and no call
 * that uses one runs. Blocks for as long as one attempt to reconnect a broken link takes.
 * 0, or -ECHILD in the child of a fork, whose sessions are its parent's.
 */
MUST_CHECK int clients_leave(void);

#endif
