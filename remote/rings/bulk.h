#ifndef RESEAT_REMOTE_RINGS_BULK_H
#define RESEAT_REMOTE_RINGS_BULK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Bulk data in shared memory, so that it is never copied on its way: the client takes blocks of
 * areas (area.h), and the server maps the areas and registers them with the device
 * (CL_MEM_USE_HOST_PTR).
 *
 * Who owns what:
 * - The client makes areas and blocks, and only it frees them. It keeps all bookkeeping in its own
 * memory; areas contain nothing but data.
 * - A block that a frame has named belongs to the server until it has answered that frame; only
 * then may the client write, read or give it back. The client cannot revoke a block. The end of the
 * session returns all of them, once the areas are unmapped or the server has ended.
 * - The server maps an area from when it is offered until it was withdrawn and nothing of it is
 * held. Its contents may change at any moment: they are data for a device, and the server never
 * reads anything there twice.
 * - A block to which the program has a pointer is a loan. It stays valid memory until it is
 * returned, even after the end of the session, and a child of a fork gets a copy.
 * - All other blocks stay shared with a child of a fork, but belong to the parent; the child
 * neither takes nor gives any.
 */

/** Limits that both sides know and keep. */
struct bulk_limits {
    unsigned areas;     /**< Areas at a time; at most BULK_AREAS_MOST. */
    size_t area_size;   /**< Size of an area for several blocks: a multiple of AREA_ALIGNMENT. */
    uint64_t all_bytes; /**< Bytes of all areas together. */
};
#define BULK_AREAS_MOST 256u

struct bulk;

struct bulk_block {
    uint32_t area;
    uint64_t offset;
    size_t size; /**< Whole pages. */
    char *bytes;
};

/** How the server is told of areas. Called without locks, by the thread that takes or trims. */
struct bulk_link {
    /** Offer an area before any of its blocks is used; its pages are allocated. @fd is borrowed. 0
     * or -errno, which bulk_take() then returns. */
    int (*offer)(void *data, uint32_t area, int fd, size_t size);
    /** The area is unmapped here, and none of its blocks is in use. */
    void (*withdraw)(void *data, uint32_t area);
    void *data;
};

/** @limits and @link are copied. Returns 0, -EINVAL or -ENOMEM. */
MUST_CHECK int bulk_create(const struct bulk_limits *limits, const struct bulk_link *link,
                           struct bulk **ret_bulk);
/** No block may be in use, except for loans, which bulk_detach() makes private and of which only
 * the program may still use the bytes. Areas are not withdrawn. NULL is allowed. */
void bulk_destroy(struct bulk *bulk);

/**
 * Take a block of at least @size bytes (more than 0), with undefined contents. Blocks of
 * AREA_ALIGNMENT and more are aligned to it. Thread-safe. Blocks if a new area must be made, while
 * its pages are allocated (25 GB/s at best, state/base/memory/pages.h).
 *
 * Returns 0, -ENOMEM, -ENOSPC (the limits), -EFBIG (RLIMIT_FSIZE), -ECHILD (a child of a fork), or
 * the error of offer().
 */
MUST_CHECK int bulk_take(struct bulk *bulk, size_t size, struct bulk_block *ret_block);
/** Take a block of an area that was made after area @after; bulk_last() returns the number of the
 * newest area, 0 if there is none. The server registers an area when it is offered, with the
 * contexts that exist by then. */
MUST_CHECK int bulk_take_after(struct bulk *bulk, uint32_t after, size_t size,
                               struct bulk_block *ret_block);
uint32_t bulk_last(struct bulk *bulk);
/** Give back a block of bulk_take(), once. Thread-safe, does not block. Does nothing in a child. */
void bulk_give(struct bulk *bulk, const struct bulk_block *block);

struct bulk_loan;

/** A loan of @size bytes, whose block bulk_lend() adds. From now on it counts as lent, so that
 * threads that lend at the same time keep to @most bytes of loans together. NULL: that would be
 * more than @most, or would leave less than half of the areas for transfers, or there is no memory.
 * Thread-safe. */
struct bulk_loan *bulk_loan_begin(struct bulk *bulk, size_t size, uint64_t most);
/**
 * The program has a pointer to @block, of the size that the loan was begun with, from now on.
 * Thread-safe.
 *
 * @maps  Borrowed until the loan is returned. While it is not 0 a child of a fork gets a copy of
 *        the bytes at its address, else zeroes.
 * Returns 0, -EINVAL (the size) or -ENOMEM: the block is the caller's still.
 */
MUST_CHECK int bulk_lend(struct bulk_loan *loan, const struct bulk_block *block,
                         const atomic_uint *maps);
const struct bulk_block *bulk_loan_block(const struct bulk_loan *loan);
/** End a loan, and give its block back if it has one. Thread-safe; of a loan with a block also once
 * the session has ended and the bulk is destroyed. NULL is allowed. */
void bulk_return(struct bulk_loan *loan);
/** The session has ended: make all loans private memory, so that no device writes there any more.
 * Blocks: it copies. */
void bulk_detach(struct bulk *bulk);

/** Find [@bytes, @bytes + @size) in an area. Thread-safe, does not block. */
bool bulk_find(struct bulk *bulk, const void *bytes, size_t size, uint32_t *ret_area,
               uint64_t *ret_offset);
/** Unmap and withdraw areas that have no blocks, until those have at most @keep bytes together.
 * Thread-safe. Returns the bytes of the areas that are left. */
uint64_t bulk_trim(struct bulk *bulk, uint64_t keep);

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
