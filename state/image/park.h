#ifndef RESEAT_STATE_IMAGE_PARK_H
#define RESEAT_STATE_IMAGE_PARK_H

#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * Parking prepares the process of a suspended program to be saved by CRIU and restored elsewhere or
 * later. A parked process has no open driver (driver_leave_all), and no residence is made or moved.
 * Threads that call an entry point wait at the closed gate. What remains in the process is memory,
 * waiting threads, and what the program itself owns.
 */

/**
 * Park the program, which must be suspended completely with its bytes in host memory.
 *
 * @deadline_ns  CLOCK_MONOTONIC; 0: ten seconds from now.
 *
 * Blocks on the device servers. park_end has to be called by the same thread of ours, which keeps
 * the movers' lock and the gate until then. Returns 0, -EBUSY (not everything is suspended, or
 * something still refers to a residence), -EPERM (a driver cannot be closed), -ETIMEDOUT,
 * -ESHUTDOWN (the process is exiting) or -errno, with one line in @ret_reason; then the program
 * stays suspended and is not parked.
 */
MUST_CHECK int park_begin(uint64_t deadline_ns, char *ret_reason, size_t size);
/** Unpark: the program is suspended as before, in this process or in one restored from it. */
void park_end(void);

#endif
