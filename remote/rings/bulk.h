#ifndef RESEAT_REMOTE_RINGS_BULK_H
#define RESEAT_REMOTE_RINGS_BULK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Bulk data in memory that both processes have, so that nothing is copied on its way: the client
 * takes blocks of areas (area.h), the server maps the areas and registers them with the device
 * (CL_MEM_USE_HOST_PTR).
 *
 * Who owns what:
 * - The client makes areas and blocks, and only the client frees them. All that is known of them it
 *   keeps in memory of its own; in the areas there is nothing but data.
 * - A block that a frame has named is the server's until the server has answered that frame: then
 *   the client may write, read and give it. It cannot take a block back; a session that ends takes
 *   all of them, once the areas are unmapped or the server is gone.
 * - The server maps an area from when it was offered until it was withdrawn and nothing of it is
 *   held. What it reads there may change at any moment: it is data for a device, never something to
 *   be looked at twice.
 * - A block that the program has a pointer to is a loan. It is valid memory until it is returned,
 *   also where the session has ended before; and a child of a fork has a copy of it.
 * - Of other blocks a child of a fork has the same, not copies, and it takes and gives none: they
 * are the parent's.
 */

/** What both sides agree on; neither goes beyond it. */
struct bulk_limits {
    unsigned areas;     /**< At a time; at most BULK_AREAS_MOST. */
    size_t area_size;   /**< Of an area with several blocks: whole large pages (AREA_ALIGNMENT). */
    uint64_t all_bytes; /**< Of all areas. */
};
#define BULK_AREAS_MOST 256u

struct bulk;

struct bulk_block {
    uint32_t area;
    uint64_t offset;
    size_t size; /**< Whole pages. */
    char *bytes;
};

/** How the server gets to know of areas. Called without locks, by the thread that takes or trims.
 */
struct bulk_link {
    /** Offer an area, whose pages are there; before any of its blocks is used. @fd is borrowed.
     *  0 or -errno, with which bulk_take() fails. */
    int (*offer)(void *data, uint32_t area, int fd, size_t size);
    /** It is unmapped here, and none of its blocks is used. */
    void (*withdraw)(void *data, uint32_t area);
    void *data;
};

/** @limits and @link are copied. Returns 0, -EINVAL or -ENOMEM. */
MUST_CHECK int bulk_create(const struct bulk_limits *limits, const struct bulk_link *link,
                           struct bulk **ret_bulk);
/** Nobody uses a block any more; nothing is withdrawn. Loans stay, made private by bulk_detach();
 * nobody but the program uses their bytes meanwhile. NULL is allowed. */
void bulk_destroy(struct bulk *bulk);

/**
 * A block of at least @size bytes, more than 0; what is in it is whatever was. Blocks of
 * AREA_ALIGNMENT and more begin at a multiple of it. Thread-safe. Blocks where a new area is made,
 * for as long as its pages take (25 GB/s at best, state/base/memory/pages.h).
 *
 * Returns 0, -ENOMEM, -ENOSPC (the limits), -EFBIG (RLIMIT_FSIZE), -ECHILD (a child of a fork), or
 * what offer() returned.
 */
MUST_CHECK int bulk_take(struct bulk *bulk, size_t size, struct bulk_block *ret_block);
/** The same, of areas that were made after the one of number @after alone; and that number, of the
 *  last one that was begun; 0: of none. A server registers an area when it is offered: one that is
 *  made after something was said to it finds that there. */
MUST_CHECK int bulk_take_after(struct bulk *bulk, uint32_t after, size_t size,
                               struct bulk_block *ret_block);
uint32_t bulk_last(struct bulk *bulk);
/** Give back what bulk_take() returned, once. Thread-safe, does not block; in a child nothing. */
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

/** Where [@bytes, @bytes + @size) is, if it is in an area. Thread-safe, does not block. */
bool bulk_find(struct bulk *bulk, const void *bytes, size_t size, uint32_t *ret_area,
               uint64_t *ret_offset);
/** Unmap and withdraw areas without a block until at most @keep bytes of such are left.
 *  Thread-safe. Returns the bytes of areas that are left. */
uint64_t bulk_trim(struct bulk *bulk, uint64_t keep);

#endif
