#ifndef RESEAT_REMOTE_RINGS_AREA_H
#define RESEAT_REMOTE_RINGS_AREA_H

#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Memory that two processes share which do not trust each other: a memfd, sealed so that neither
 * can make it shorter under the other one, whose next access would end it with SIGBUS. What is in
 * it the other one may change at any moment.
 *
 * Everything here is thread-safe.
 */

struct owned;

/** Where the content of an area begins in memory, and may end in it: large pages fit there. */
#define AREA_ALIGNMENT ((size_t)2 << 20)

/** The size of a page: of what is mapped, all sizes and offsets are multiples. */
size_t area_page(void);

/**
 * Make an area of zeroes. Its pages come when they are first touched.
 *
 * @name  What /proc shows.
 * @size  Bytes: whole pages.
 * @ret_fd  To be closed, also once it is mapped and sent; closed by exec.
 * Returns 0, -EFBIG (RLIMIT_FSIZE, at which the kernel would end the program), or -errno.
 */
MUST_CHECK int area_create(const char *name, size_t size, int *ret_fd);

/**
 * Look at an area that came from the other process, before anything of it is mapped.
 *
 * @size  Bytes that it has to have.
 * Returns 0, or -EPROTO: it is of another size, can change it, or is no ordinary memory (of huge
 * pages, which can be missing at an access).
 */
MUST_CHECK int area_check(int fd, size_t size);

/** Map all of it, from a multiple of AREA_ALIGNMENT. Returns 0 or -ENOMEM; area_unmap() it. */
MUST_CHECK int area_map(int fd, size_t size, char **ret_bytes);
void area_unmap(char *bytes, size_t size);

/**
 * Addresses that nobody uses, of @size bytes, for area_map_at(); then area_unmap() for all at once.
 * Returns 0 or -ENOMEM.
 */
MUST_CHECK int area_reserve(size_t size, char **ret_bytes);
/** Map @size bytes of an area from @offset at @at, within what was reserved. No child of a fork
 * has them. Returns 0 or -ENOMEM. */
MUST_CHECK int area_map_at(int fd, size_t offset, size_t size, char *at);

/**
 * Make @size bytes at @at, which are mapped from @offset of an area, this process's alone, with the
 * content that they have, also while other threads write there. Their pages in the area are freed.
 *
 * Blocks: it copies. Returns 0; or -EBADF (the program has closed @area's descriptor) or -ENOMEM:
 * then the other process's writes may still be seen there.
 */
MUST_CHECK int area_make_private(const struct owned *area, size_t offset, size_t size, char *at);

/**
 * Have the pages there before they are touched, so that want of memory is an error and no signal.
 *
 * Blocks for a millisecond for every few MiB that are fresh. Returns 0 or -ENOMEM.
 */
MUST_CHECK int area_populate(char *bytes, size_t size);

/*
 * Who is asking: the process that made something, or a child of a fork that only has a copy. What
 * is shared with a third process must not be written by both. pthread_atfork does not see all
 * forks, and getpid() is a system call; the kernel empties a page of every child instead.
 */

/** A number of this process, which no parent or child of it has. A nanosecond. 0: out of memory,
 * then nothing is to be made that depends on it. Thread-safe. */
uint64_t process_mark(void);

#endif
