#ifndef RESEAT_STATE_MEMORY_REGISTERED_H
#define RESEAT_STATE_MEMORY_REGISTERED_H

#include "state/memory/memory.h"

/*
 * Host copies that a device transfers to and from at the speed of its link.
 *
 * Where the real object is not made over its host copy, a map reads into the host copy and an unmap
 * writes from it. NVIDIA's driver copies between the device and memory that it does not know at a
 * quarter of the link's speed or less, and takes 40 us more for a few bytes. Its own maps use
 * registered memory; so do ours, once a host copy was mapped often enough to pay for it.
 *
 * One residence at a time has a host copy registered: what NVIDIA's driver registered for one
 * context it also uses for the copies of others (residence_is_sibling). It ends when the object
 * leaves that residence, or with the host copy.
 *
 * A driver in another process cannot register memory of this one. Our remote driver lends memory
 * that both processes have (between.h) for a host copy that a map is about to make. The host copy
 * keeps it for its life, wherever the object moves.
 */

/** Host copies of at least so many bytes are whole pages, which nothing else lies in, and may be
 *  registered. */
#define REGISTERED_LEAST ((size_t)4096)

/** Smaller objects are copied, and what is mapped in small parts as well. */
#define LENT_LEAST ((size_t)2 << 20)

/**
 * A queue of virtual device @vdev is about to map @length bytes of @root: if it has no host copy,
 * have a driver in another process lend the memory for it. Blocks; outside the gate.
 */
void registered_borrow(struct memory *root, unsigned vdev, size_t length);
/**
 * A queue of virtual device @vdev is about to map @length bytes of @root, whose host copy exists
 * and cannot be dropped: register the host copy where that pays. A driver that refuses is not asked
 * again. Blocks on the driver; outside the gate.
 */
void registered_map(struct memory *root, unsigned vdev, size_t length);
/**
 * @root leaves @residence, whose commands for it have ended. By a mover with the gate closed.
 *
 * @now  Not set aside to be released with other objects.
 */
void registered_leave(struct memory *root, struct residence *residence, bool now);
/** @root, which has a host copy, ends: as registered_leave() where the device is lost. */
void registered_leave_lost(struct memory *root);
/** The last reference to @host_copy went: nothing is copied from or to it any more. */
void registered_release(struct host_copy *host_copy);
/** True when @host_copy is registered: then the driver's own threads do not end it. */
bool registered_is(const struct host_copy *host_copy);

#endif
