#ifndef RESEAT_REMOTE_RINGS_LOOKOUT_H
#define RESEAT_REMOTE_RINGS_LOOKOUT_H

#include "remote/rings/bell.h"

/*
 * A thread that notices when the peer hangs up, for programs that may close any descriptor, as
 * daemons do. The thread has a descriptor table of its own, with nothing but the socket. So the
 * peer sees the socket hang up only when the program ends, not when the program closes it.
 */
struct lookout;

/**
 * Start the thread; blocks until it has the socket. From then on only the thread checks the socket
 * of @peer, which must outlive it.
 *
 * @wake  Called by the thread when waits for @peer have ended: must wake sleeping threads.
 *
 * Returns 0; or, with nothing changed, -ENOMEM, -EAGAIN (no thread), -ENOSYS (the kernel or a
 * sandbox does not allow a separate table), -EBADF (the program has closed the socket already).
 */
MUST_CHECK int lookout_create(struct bell_peer *peer, void (*wake)(void *data), void *data,
                              struct lookout **ret_lookout);
/** NULL is allowed. Blocks for a second at most. */
void lookout_destroy(struct lookout *lookout);

#endif
