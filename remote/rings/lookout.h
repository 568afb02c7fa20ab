#ifndef RESEAT_REMOTE_RINGS_LOOKOUT_H
#define RESEAT_REMOTE_RINGS_LOOKOUT_H

#include "remote/rings/bell.h"

/*
 * A thread that sees the peer hang up, in a program that may close any descriptor: daemons close
 * all that they do not know. Its table of descriptors is its own, and nothing but the socket is in
 * it. So the peer does not hear a program that closed its socket hang up, only one that has ended.
 */
struct lookout;

/**
 * Blocks until the thread has the socket. From then on nobody but it asks the socket of @peer,
 * which outlives it.
 *
 * @wake  Called once the waits for @peer are to end, by the thread: wakes those who sleep.
 *
 * 0; or, with all as it was, -ENOMEM, -EAGAIN (no thread), -ENOSYS (an old kernel, or a sandbox
 * does not let it have a table), -EBADF (the program has closed the socket already).
 */
MUST_CHECK int lookout_create(struct bell_peer *peer, void (*wake)(void *data), void *data,
                              struct lookout **ret_lookout);
/** NULL is allowed. Blocks for a second at most. */
void lookout_destroy(struct lookout *lookout);

#endif
