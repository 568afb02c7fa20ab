#ifndef RESEAT_REMOTE_RINGS_BULK_MAP_H
#define RESEAT_REMOTE_RINGS_BULK_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "remote/rings/bulk.h"
#include "state/base/compiler.h"

/*
 * The server's side of bulk data (bulk.h, with who owns what): the areas that a client has offered,
 * by the client's numbers, and what is held of them. Everything here is thread-safe.
 */

struct bulk_map;

MUST_CHECK int bulk_map_create(const struct bulk_limits *limits, struct bulk_map **ret_map);
/** Unmap all, held or not: no device uses it any more. NULL is allowed. */
void bulk_map_destroy(struct bulk_map *map);

/**
 * An area was offered. Thread-safe, as all of these.
 *
 * @fd  Borrowed.
 * Returns 0, -ENOMEM, -ENOSPC (beyond the limits) or -EPROTO (its number is in use, or the area is
 * not such a one or not of that size).
 */
MUST_CHECK int bulk_map_add(struct bulk_map *map, uint32_t area, int fd, size_t size);
/** It was withdrawn: no more is held of it; the last bulk_map_release() unmaps it. 0 or -EPROTO:
 *  there is none. */
MUST_CHECK int bulk_map_remove(struct bulk_map *map, uint32_t area);

/**
 * Hold the bytes that a frame named, until bulk_map_release().
 *
 * Returns 0 or -EPROTO: not all of them are in an area that is there.
 */
MUST_CHECK int bulk_map_hold(struct bulk_map *map, uint32_t area, uint64_t offset, uint64_t size,
                             char **ret_bytes);
/** All of an area that is there: false where there is none. Valid until it is removed. */
bool bulk_map_whole(struct bulk_map *map, uint32_t area, char **ret_bytes, size_t *ret_size);
void bulk_map_release(struct bulk_map *map, uint32_t area);

#endif
