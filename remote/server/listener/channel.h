#ifndef RESEAT_REMOTE_SERVER_LISTENER_CHANNEL_H
#define RESEAT_REMOTE_SERVER_LISTENER_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/* What a server's processes say to each other: packets of fixed sizes over pairs of SOCK_SEQPACKET,
 * each with one descriptor at most. Thread-safe. */

/** A new pair; the first end can send only a few packets that are not taken. 0 or -errno. */
MUST_CHECK int channel_make(int ret_ends[2]);

/**
 * Send a packet, and a copy of a descriptor unless @passed is -1. Never blocks.
 *
 * Returns 0, -EAGAIN (the other end has not taken what was sent before), -EPIPE, or -errno.
 */
MUST_CHECK int channel_send(int channel, const void *packet, size_t size, int passed);

/**
 * Receive a packet of exactly @size bytes, if there is one. Never blocks.
 *
 * @ret_passed  The caller's, close-on-exec; -1: none. NULL: there must be none.
 * Returns 0, -EAGAIN, -EPIPE (the other end is gone), -EPROTO (it was another packet), or -errno.
 */
MUST_CHECK int channel_receive(int channel, void *ret_packet, size_t size, int *ret_passed);

/** Wait until there is a packet, or an end. 0, -ETIMEDOUT or -errno. */
MUST_CHECK int channel_wait(int channel, uint64_t deadline_ns);

#endif
