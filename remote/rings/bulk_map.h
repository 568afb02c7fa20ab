#ifndef RESEAT_REMOTE_RINGS_BULK_MAP_H
#define RESEAT_REMOTE_RINGS_BULK_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "remote/rings/bulk.h"
#include "state/base/compiler.h"

/*
 * The server's side of bulk data (bulk.h says who owns what): the areas that a client has offered,
 * by the client's numbers, and how often they are held. Everything here is thread-safe.
 */

struct bulk_map;

MUST_CHECK int bulk_map_create(const struct bulk_limits *limits, struct bulk_map **ret_map);
/** Unmap all areas, held or not; no device may use them. NULL is allowed. */
void bulk_map_destroy(struct bulk_map *map);

/**
 * Map an area that the client offers.
 *
 * @fd  Borrowed.
 * Returns 0, -ENOMEM, -ENOSPC (beyond the limits) or -EPROTO (the number is in use, or the
 * descriptor is no area of that size).
 */
MUST_CHECK int bulk_map_add(struct bulk_map *map, uint32_t area, int fd, size_t size);
/** The client withdraws an area: it cannot be held again, and is unmapped when it is not held any
 * more. 0 or -EPROTO: there is no such area. */
MUST_CHECK int bulk_map_remove(struct bulk_map *map, uint32_t area);

/**
 * Hold the bytes that a frame names, until bulk_map_release().
 *
 * Returns 0 or -EPROTO: they are not within an area.
 */
MUST_CHECK int bulk_map_hold(struct bulk_map *map, uint32_t area, uint64_t offset, uint64_t size,
                             char **ret_bytes);
/** A whole area; false: there is none of that number. Valid until it is removed. */
bool bulk_map_whole(struct bulk_map *map, uint32_t area, char **ret_bytes, size_t *ret_size);
void bulk_map_release(struct bulk_map *map, uint32_t area);

#endif
