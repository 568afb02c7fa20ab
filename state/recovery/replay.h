#ifndef RESEAT_STATE_RECOVERY_REPLAY_H
#define RESEAT_STATE_RECOVERY_REPLAY_H

#include "state/object/context.h"

/**
 * Restore the objects of @contexts, which were just moved from lost residences, from the latest
 * snapshot, at move_context.to; then replay all commands of the journal. Commands that the program
 * may know to have ended give it no results again; the others end, and their events with them.
 *
 * Gate closed. Blocks on the devices. 0, or -errno with the reason: then the recovery can be tried
 * again.
 */
MUST_CHECK int replay_run(struct move_context *contexts, size_t count, char *ret_reason,
                          size_t reason_size);

/** Replayed reads that gave other bytes than the program was given. */
uint64_t replay_differences(void);

#endif
