#ifndef RESEAT_REMOTE_RINGS_PROCESS_H
#define RESEAT_REMOTE_RINGS_PROCESS_H

#include <stdint.h>

/*
 * Who is asking: the process that made something, or a child of a fork that only has a copy. What
 * is shared with a third process must not be written by both. pthread_atfork does not see all
 * forks, and getpid() is a system call; the kernel empties a page of every child instead.
 */

/** A number of this process, which no parent or child of it has. A nanosecond. 0: out of memory,
 * then nothing is to be made that depends on it. Thread-safe. */
uint64_t process_mark(void);

#endif
