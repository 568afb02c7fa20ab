#ifndef RESEAT_STATE_RECOVERY_RECOVERY_H
#define RESEAT_STATE_RECOVERY_RECOVERY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "state/driver/driver.h"

/*
 * The state machine of a lost device: one in a process, since only programs with one virtual device
 * are protected (protect.h).
 *
 * running:   the program has all that it needs.
 *            A residence is lost: noticed. A mover finds the device lost: opening.
 * noticed:   a residence was lost, and nobody has looked yet what was lost with it.
 *            The thread looks: running, choosing or failed. A mover begins: opening.
 * choosing:  the program waits for another device.
 *            A mover begins: opening. The thread looks again: failed or running.
 * opening:   a move makes the residence and its objects on the new device.
 *            COMMIT: restoring. The move fails: choosing.
 * restoring: the objects get the bytes of the snapshot.
 *            All are copied: replaying. A copy fails: choosing.
 * replaying: the commands of the journal are given again.
 *            All have ended: running. One fails: choosing.
 * failed:    the program cannot be recovered: its calls fail, and so do the commands that the lost
 *            device did not end.
 *            A residence is lost: noticed. A mover begins: opening. The thread looks: running.
 *
 * Who causes the events:
 * - any thread that a driver's error or a wait leads to residence_lose (state/object/lost.c);
 * - the thread of this file, which looks at each loss and, unless the agent does, chooses a device
 *   and moves the program there. In opening, restoring and replaying it only waits;
 * - a mover: this thread, or the agent's request on its own thread. It holds the movers' lock from
 *   opening on, and the gate is closed in restoring and replaying.
 *
 * The machine's lock is the innermost: movers take it with the gate closed. So nobody enters or
 * closes the gate, calls a driver, or waits for a mover while holding it. A loss that comes in any
 * other state than running and failed does not change the state; the thread looks again after it.
 *
 * A thread whose call met a lost residence waits (upcalls.h: await_recovery) until that residence
 * is marked as `recovered`, or until the program is not protected any more; it does not look at the
 * state. Residences are marked once the journal was replayed, also those of targets that were lost
 * on the way.
 */
enum recovery_state {
    RECOVERY_RUNNING,
    RECOVERY_NOTICED,
    RECOVERY_CHOOSING,
    RECOVERY_OPENING,
    RECOVERY_RESTORING,
    RECOVERY_REPLAYING,
    RECOVERY_FAILED,
};

/** Wait-free. */
enum recovery_state recovery_state(void);
/** The state in words, for operators; "" for running. */
const char *recovery_state_text(enum recovery_state state);
/** True while a recovery is needed or under way. */
static inline bool recovery_is_under_way(enum recovery_state state)
{
    return state >= RECOVERY_CHOOSING && state <= RECOVERY_REPLAYING;
}

/**
 * Install the upward calls (upcalls.h). Once, before the program's first object.
 *
 * @agent_chooses  True while an agent chooses the device and moves the program there. Called
 *                 repeatedly. NULL: no agent ever does.
 */
void recovery_install(bool (*agent_chooses)(void));

/** How often the program was recovered. Thread-safe. */
uint64_t recovery_count(void);
/**
 * Call after a request of a protected program failed. If its device was lost, waits until the
 * program was recovered. True: it was, and the request can be tried again.
 *
 * @count  recovery_count() before the request: the recovery may be over by now.
 * @deadline_ns  CLOCK_MONOTONIC; 0: none. @cancel: may be NULL.
 * Not inside the gate.
 */
bool recovery_outlived(uint64_t count, uint64_t deadline_ns, const atomic_bool *cancel);

/* For this folder only. */

/** Called by the mover that replays: the next state. */
void recovery_step(enum recovery_state state);

/** Start the thread if it does not run; a running one checks at once whether protection is on.
 * @keys: as in protect_settings, copied. 0, -ENOMEM, -EAGAIN. */
MUST_CHECK int recovery_start(const struct device_key *keys, size_t key_count);
/** After protection was turned off: wait until the thread has ended. */
void recovery_await_end(void);

/* replay.c: */

struct move_context;

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

/** The journal's commands that a lost device did not end have ended in @status: they were given
 * again, or never will be. Gate closed. */
void replay_end_events(cl_int status);

/** Replayed reads that gave other bytes than the program was given. */
uint64_t replay_differences(void);

#endif
