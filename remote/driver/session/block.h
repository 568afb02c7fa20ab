#ifndef RESEAT_REMOTE_DRIVER_SESSION_BLOCK_H
#define RESEAT_REMOTE_DRIVER_SESSION_BLOCK_H

#include <stdbool.h>
#include <stddef.h>

#include "remote/rings/bulk.h"

/*
 * Memory that a client shares with its server, for large data (bulk.h). A client whose session goes
 * over a link has none, and sends all bytes in messages.
 */

struct client;
struct device_object;

/** Fewer bytes go in the message: copying them costs nothing. */
#define BLOCK_LEAST ((size_t)16 << 10)

/** A session over rings begins. 0 or -ENOMEM. */
MUST_CHECK int blocks_init(struct client *client);
/** Post a message over rings that a descriptor belongs to, which goes over the socket, in the same
 *  order. 0 or -errno. */
MUST_CHECK int blocks_post_descriptor(struct client *client, unsigned type, const void *body,
                                      size_t size, int fd);

/** Called before the server is told of a context whose first device is @device: the number of the
 * last area until then, or 0. If the device has memory of its own, older areas are not registered
 * with the context, because registering memory that is in use is not safe with every driver
 * (remote/server/session/areas.c); the context's blocks are taken from newer areas where possible.
 */
uint32_t blocks_before(const struct device_object *device);
/** Take a block of at least @size bytes, for transfers of a context. @before: of blocks_before()
 * for that context. False: there is none, or @size is less than BLOCK_LEAST. Blocks for a round
 * trip if a new area is needed; so no lock may be held that the receiving thread takes. */
bool block_take(struct client *client, uint32_t before, size_t size, struct bulk_block *ret_block);
/** Give back a block that nothing uses any more; one of 0 bytes is none. Any thread. */
void block_give(struct client *client, struct bulk_block *block);
/** A block_take() that is lent. NULL: there is none, or loans would be more than @most bytes. */
struct bulk_loan *block_lend(struct client *client, uint32_t before, size_t size, uint64_t most,
                             const atomic_uint *maps);
/** Find these bytes in shared memory; false: they are not there. */
bool block_find(struct client *client, const void *bytes, size_t size, uint32_t *ret_area,
                uint64_t *ret_place);

#endif
