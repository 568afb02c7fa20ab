#ifndef RESEAT_STATE_BASE_MEMORY_HOST_MEMORY_H
#define RESEAT_STATE_BASE_MEMORY_HOST_MEMORY_H

#include <stdint.h>

#include "state/base/compiler.h"

/** The memory that the host has for this process, as the kernel reports now. */
struct host_memory {
    uint64_t total;      /**< Bytes of the host, or the lowest limit of its control groups. */
    uint64_t available;  /**< Bytes of these that can be allocated without swapping. */
    uint64_t stalled_us; /**< Microseconds that processes have waited for memory since the host
                            started; 0 if the kernel does not tell. Never decreases. */
    double load;         /**< Threads that run or want to, over the last minute. */
    unsigned processors; /**< Of the host. */
};

/**
 * Reads a few small files of /proc and /sys/fs/cgroup, both kinds of control groups. Thread-safe.
 * Returns 0, or -errno where /proc does not say what memory there is.
 */
MUST_CHECK int host_memory_read(struct host_memory *ret_host);

/** Prefix of the paths of these files: for tests. */
extern const char *host_memory_root;

#endif
