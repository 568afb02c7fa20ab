#ifndef RESEAT_STATE_RECOVERY_REPLAY_H
#define RESEAT_STATE_RECOVERY_REPLAY_H

#include "state/object/context.h"

/**
 * Give the objects of @contexts, which were just moved from lost residences, the bytes of the
 * latest snapshot at move_context.to, and then all commands of the journal. Those that the program
 * may know to have ended give it nothing again; the others end, and their events with them.
 *
 * Gate closed. Blocks on the devices. 0, or -errno with the reason: the same can be tried again.
 */
MUST_CHECK int replay_run(struct move_context *contexts, size_t count, char *ret_reason,
                          size_t reason_size);

/** Reads that, done again, gave other bytes than the program was given. */
uint64_t replay_differences(void);

#endif
