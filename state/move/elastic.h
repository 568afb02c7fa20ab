#ifndef RESEAT_STATE_MOVE_ELASTIC_H
#define RESEAT_STATE_MOVE_ELASTIC_H

#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "state/driver/driver.h"

/*
 * Spreads a program's long launches over more devices than its own, for as long as the agent allows
 * it (`reseat spread`). A thread prewarms those devices and has them join launches (spread.h). It
 * holds the movers' lock as a mover that yields: when somebody waits to move the program, the
 * devices leave the launch in its middle, and what they computed is brought home first.
 */

/** Most devices that a program may be spread over, beside its own. */
#define ELASTIC_MAX 8

/**
 * Spread long launches over @devices from now on, where that is worth it. Residences on devices
 * that are not listed any more are released; with @count 0 nothing is spread. Does not block on a
 * device. Thread-safe. 0, -E2BIG, -ENOTSUP (launches are not given in pieces) or the error of
 * starting the thread.
 *
 * @devices  Copied. May contain the program's own device, which makes no difference.
 */
MUST_CHECK int elastic_set(const struct device_key *devices, size_t count);
/** upcalls.h: elastic_wake. */
void elastic_wake(void);

#endif
