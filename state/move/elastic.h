#ifndef RESEAT_STATE_MOVE_ELASTIC_H
#define RESEAT_STATE_MOVE_ELASTIC_H

#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "state/driver/driver.h"

/*
 * The elastic form: a program's long launches are done on more devices than the one that it is on
 * (spread.h), while it was given them. A thread of ours has them made ready, as a request to
 * prewarm does, and has them join launches. It is a mover, and yields: whoever waits to move the
 * program has them leave a launch in its middle, and what they did is brought home before.
 */

/** Devices that a program may be spread over, beside its own. */
#define ELASTIC_MAX 8

/**
 * From now on long launches are spread over @devices, where that is worth it; none: over none.
 * Those that are not named any more leave, and are let go of. Does not block on a device.
 * Thread-safe. 0, -E2BIG, -ENOTSUP (launches are not given in pieces) or why there is no thread.
 *
 * @devices  Copied. The one where the program is does what it does anyway.
 */
MUST_CHECK int elastic_set(const struct device_key *devices, size_t count);
/** Of upcalls. */
void elastic_wake(void);

#endif
