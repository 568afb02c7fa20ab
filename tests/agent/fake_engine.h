#ifndef RESEAT_TESTS_AGENT_FAKE_ENGINE_H
#define RESEAT_TESTS_AGENT_FAKE_ENGINE_H

#include "state/driver/driver.h"

/*
 * A stand-in for the engine: move_run() and status_vdev() that do what FAKE_MOVE says, so that the
 * control thread, the agent and the command line are tested without OpenCL.
 *
 *   FAKE_SEEKS=1           its device is lost at once, and it waits for another one that the agent
 *                          finds; where no agent does, it goes to "its own choice"
 *   FAKE_MOVE=WORD[:MILLISECONDS]   what becomes of a move, and how long it takes: done, fail,
 *                          fail1 (only virtual device 1), failtwo (only what goes to the device
 *                          "Fake two"), refuse, strand (only a resume fails), slow (until canceled
 *                          or the deadline), adjusted (until bandwidth and downtime were changed),
 *                          late (slow, with all copied), die (the process ends in the middle)
 */

/** The program has begun to use OpenCL on these devices, one a virtual device. */
void fake_engine_start(const struct device_key *devices, uint32_t count);

/** It registered with policy/reseat.h, wants these bytes at least and these rather, and some more
 *  that is always the same; 0 rather: it unregistered. Notices are printed, a line each. */
void fake_engine_wish(uint64_t memory, uint64_t preferred);

#endif
