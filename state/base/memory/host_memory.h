#ifndef RESEAT_STATE_BASE_MEMORY_HOST_MEMORY_H
#define RESEAT_STATE_BASE_MEMORY_HOST_MEMORY_H

#include <stdint.h>

#include "state/base/compiler.h"

/** What memory the host has for this process, as the kernel says now. */
struct host_memory {
    uint64_t total;      /**< Bytes: the host's, or the least that a control group of it has. */
    uint64_t available;  /**< Of these, for whoever asks next, without swapping. */
    uint64_t stalled_us; /**< That processes have waited for memory since the host began; 0 where
                              the kernel does not say. Rises. */
    double load;         /**< Threads that run or want to, over the last minute. */
    unsigned processors; /**< Of the host. */
};

/**
 * Reads a few small files of /proc and /sys/fs/cgroup, both kinds of control groups. Thread-safe.
 * Returns 0, or -errno where /proc does not say what memory there is.
 */
MUST_CHECK int host_memory_read(struct host_memory *ret_host);

/** What stands before the paths of these files: for tests. */
extern const char *host_memory_root;

#endif
