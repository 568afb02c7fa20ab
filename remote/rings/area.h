#ifndef RESEAT_REMOTE_RINGS_AREA_H
#define RESEAT_REMOTE_RINGS_AREA_H

#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Memory shared by two processes that do not trust each other: a memfd, sealed so that neither can
 * shrink it, which would make the other's next access fail with SIGBUS. The other process may
 * change the contents at any moment.
 *
 * Everything here is thread-safe.
 */

struct owned;

/** Alignment of an area in memory, which lets it have huge pages. */
#define AREA_ALIGNMENT ((size_t)2 << 20)

/** The size of a page. All mapped sizes and offsets are multiples of it. */
size_t area_page(void);

/**
 * Make an area filled with zeroes. Its pages are allocated when they are first touched.
 *
 * @name  The name that /proc shows.
 * @size  Bytes: whole pages.
 * @ret_fd  Close-on-exec; the caller closes it, which does not end mappings or copies.
 * Returns 0, -EFBIG (beyond RLIMIT_FSIZE, where the kernel would end the program), or -errno.
 */
MUST_CHECK int area_create(const char *name, size_t size, int *ret_fd);

/**
 * Check an area that the other process has sent, before it is mapped.
 *
 * @size  Bytes that it must have.
 * Returns 0, or -EPROTO: the size differs or can change, or it is no ordinary memory (huge pages
 * may be missing at an access).
 */
MUST_CHECK int area_check(int fd, size_t size);

/** Map a whole area, aligned to AREA_ALIGNMENT. Returns 0 or -ENOMEM; the caller calls
 * area_unmap(). */
MUST_CHECK int area_map(int fd, size_t size, char **ret_bytes);
void area_unmap(char *bytes, size_t size);

/**
 * Reserve @size bytes of addresses for area_map_at(). One area_unmap() releases all. Returns 0 or
 * -ENOMEM.
 */
MUST_CHECK int area_reserve(size_t size, char **ret_bytes);
/** Map @size bytes of an area, from @offset on, at @at within reserved addresses. The children of a
 * fork do not inherit the mapping. Returns 0 or -ENOMEM. */
MUST_CHECK int area_map_at(int fd, size_t offset, size_t size, char *at);

/**
 * Replace @size shared bytes at @at, which are mapped from @offset of an area, by private memory
 * with the same contents, even while other threads write there. Frees the area's pages.
 *
 * Blocks: it copies. Returns 0; or -EBADF (the program has closed @area's descriptor) or -ENOMEM:
 * then writes of the other process may still be seen there.
 */
MUST_CHECK int area_make_private(const struct owned *area, size_t offset, size_t size, char *at);

/**
 * Allocate pages before they are touched, so that a lack of memory is an error rather than a
 * signal.
 *
 * Blocks for a millisecond for every few MiB of new pages. Returns 0 or -ENOMEM.
 */
MUST_CHECK int area_populate(char *bytes, size_t size);

/*
 * Tells the process that made something from a child of a fork, which has only a copy: memory
 * shared with a third process must not be written by both. pthread_atfork() does not see all forks,
 * and getpid() is a system call. Instead the kernel clears a page in each child (MADV_WIPEONFORK).
 */

/** A number that no parent or child of this process has. Takes a nanosecond. 0: out of memory; the
 * caller must then make nothing that depends on the number. Thread-safe. */
uint64_t process_mark(void);

#endif
