#ifndef RESEAT_STATE_MOVE_PARK_H
#define RESEAT_STATE_MOVE_PARK_H

#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"

/*
 * A suspended program whose process is to be kept as it is (CRIU) and restored, elsewhere or later.
 * Parked, it has nothing of a driver (driver_leave_all), no residence is made or moved, and no
 * thread is in an entry point that touches one: they wait at the gate, which is closed. What is
 * left in the process is memory, threads that wait, and what is the program's own.
 */

/**
 * Park. The program is suspended, all of it, with its bytes in host memory.
 *
 * @deadline_ns  CLOCK_MONOTONIC; 0: ten seconds from now.
 * Blocks on the servers. By a thread of ours, which ends it: what it has taken is its own.
 * Returns 0, -EBUSY (not all is suspended, or something of a residence is left), -EPERM (a driver
 * stays), -ETIMEDOUT, -ESHUTDOWN (the process ends) or -errno, with one line in @ret_reason; then
 * the program goes on as it was, suspended.
 */
MUST_CHECK int park_begin(uint64_t deadline_ns, char *ret_reason, size_t size);
/** It goes on, suspended, in this process or one that was restored from it. */
void park_end(void);

#endif
