#ifndef RESEAT_REMOTE_DRIVER_SESSION_BLOCK_H
#define RESEAT_REMOTE_DRIVER_SESSION_BLOCK_H

#include <stdbool.h>
#include <stddef.h>

#include "remote/rings/bulk.h"

/*
 * Memory that the server of a client has as well, for what is large: bulk.h. A client whose session
 * goes over a link has none, and everything is in messages.
 */

struct client;
struct device_object;

/** Of less the copies cost nothing, and go with the message. */
#define BLOCK_LEAST ((size_t)16 << 10)

/** A session over rings begins. 0 or -ENOMEM. */
MUST_CHECK int blocks_init(struct client *client);
/** Post a message over rings that a descriptor belongs to, which goes over the socket, in the same
 *  order. 0 or -errno. */
MUST_CHECK int blocks_post_descriptor(struct client *client, unsigned type, const void *body,
                                      size_t size, int fd);

/** When the server was told of a context whose first device is @device: the last area before it, or
 *  0. Where the device has memory of its own, areas that are there already are not registered with
 *  it, and none of the context's blocks is of one while there can be others: to register memory
 * that is in use is not safe with every driver (remote/server/session/areas.c). */
uint32_t blocks_before(const struct device_object *device);
/** One of at least @size bytes, for transfers of queues of a context, with what blocks_before()
 * said of it; false: there is none, or @size is less than BLOCK_LEAST. Blocks for a round trip
 * where there has to be a new area. No lock is held that who receives takes. */
bool block_take(struct client *client, uint32_t before, size_t size, struct bulk_block *ret_block);
/** Nobody uses it any more; one of 0 bytes is none. Any thread. */
void block_give(struct client *client, struct bulk_block *block);
/** block_take() and bulk_lend(). NULL: there is none, or loans would be more than @most bytes. */
struct bulk_loan *block_lend(struct client *client, uint32_t before, size_t size, uint64_t most,
                             const atomic_uint *maps);
/** Where the server has these bytes; false: nowhere. */
bool block_find(struct client *client, const void *bytes, size_t size, uint32_t *ret_area,
                uint64_t *ret_place);

#endif
