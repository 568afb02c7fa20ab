#ifndef RESEAT_REMOTE_DRIVER_SERVERS_RENEW_H
#define RESEAT_REMOTE_DRIVER_SERVERS_RENEW_H

#include "remote/driver/session/session.h"

/*
 * Sessions that follow one that has ended. Of one in which a driver was opened for this process,
 * another may be kept ready, its driver open, so that who loses the one has not to wait for what a
 * GPU's driver takes to start: about as long as all else of a recovery.
 */

/**
 * For a new context of a client's devices: where a session in which a driver was opened for this
 * process has ended, or one that was left, use another one, the spare where there is one, for what
 * is made from now on; what was made is lost. Blocks as client_open(). Returns the session to use:
 * @client where there is no other.
 */
struct client *client_renew(struct client *client);

/**
 * @wanted  Have a spare begun, by a thread, unless there is one or was moments ago: to be asked for
 *          again and again; does not block. Else let go of it, which waits for one that is being
 *          begun.
 * Any thread. Nothing for sessions of other kinds, and in the child of a fork.
 */
void client_keep_standby(struct client *client, bool wanted);

/**
 * End all sessions, so that no thread, descriptor or shared memory of any is left in the process;
 * client_renew() begins others. Nobody has an object of a context, nor is in a call of one, until
 * this has returned. Blocks for as long as an attempt to go on with a broken link takes.
 * 0 or -ECHILD: what a child of a fork has is its parent's.
 */
MUST_CHECK int clients_leave(void);

#endif
