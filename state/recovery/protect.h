#ifndef RESEAT_STATE_RECOVERY_PROTECT_H
#define RESEAT_STATE_RECOVERY_PROTECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/driver/driver.h"
#include "state/recovery/recovery.h"

/*
 * Protection: the program outlives the loss of its device.
 *
 * Snapshots are made at intervals, and the commands between them are kept in the journal.
 * recovery.h tells what happens when the device is lost.
 *
 * A launch that is given in pieces (command/pieces.h) may have a snapshot in its middle. Each group
 * counts once:
 * - groups given before the snapshot's moment have ended at it, and their results are in its bytes;
 * - groups given since are in the journal, a command for each piece, or for what a helper did and
 *   brought home;
 * - all others are still to be given (struct pieces), after a loss on the new device.
 * What must come after the launch is deferred until all of its groups have ended, so it is neither
 * in such a snapshot nor before any of the launch's pieces in the journal.
 *
 * A program that cannot be protected runs as without protection, and protect_read tells why: it is
 * pinned (object/pin.h), has several virtual devices, or since the last snapshot gave a command
 * that failed. Output that kernels printed is printed again. Where the replayed
 * results depend on chance (the order of atomic operations on floats), they may differ.
 */

/** Configured mean time between faults of the device; 0: it is not known. Set before protection
 * begins, or by tests. */
extern _Atomic uint64_t protect_fault_ns;
/** Interval between snapshots where none is set and none can be chosen (policy/interval.h), because
 * the mean time to a fault is neither configured nor learnt from a loss. */
#define PROTECT_INTERVAL_NS UINT64_C(10000000000)
/** Default limit of the journal, in bytes. */
#define PROTECT_BYTES (UINT64_C(256) << 20)
/** Largest share of the time that snapshots may take. */
#define PROTECT_BUDGET 0.01
/** A snapshot that is made because its interval has passed stops the program for no longer than
 * this, or than the budget for the time since the last one if that is more; else it is put off. */
#define PROTECT_PAUSE_NS MOVE_DOWNTIME_NS

struct protect_settings {
    uint64_t interval_ns; /**< 0: chosen. */
    uint64_t bytes;       /**< Limit of the journal; 0: PROTECT_BYTES. */
    /** Devices for the recovery, besides the present one and the first; copied. None: all devices
     * of the drivers (driver_list). */
    const struct device_key *keys;
    size_t key_count;
};

/** Turn protection on, or change its settings. Thread-safe; not inside the gate. 0, -ENOMEM,
 * -EAGAIN (no thread). */
MUST_CHECK int protect_begin(const struct protect_settings *settings);
/** Turn protection off. Blocks on a snapshot or a move that is under way. */
void protect_end(void);
/** Make a snapshot at once. 0, or as snapshot_make. */
int protect_now(void);
/** Make a snapshot for another purpose, as snapshot_make; for a protected program the journal
 * starts again with it. */
struct snapshot_request;
struct snapshot_report;
int protect_snapshot(const struct snapshot_request *wanted, struct snapshot_report *ret_report);
/** The latest snapshot is not needed for another purpose any more: free it unless the program is
 * protected. */
void protect_forget(void);

struct protect_status {
    bool on;
    enum recovery_state recovery;
    const char *broken; /**< Why the program is not protected at present; NULL: it is. Static. */
    uint64_t snapshots; /**< Snapshots made. */
    uint64_t recoveries;
    uint64_t differences; /**< Replayed reads that gave other bytes than the program was given. */
    uint64_t commands, bytes; /**< Commands in the journal, and their bytes. */
    uint64_t snapshot_bytes;
    uint64_t at_ns;       /**< Time of the last snapshot, CLOCK_MONOTONIC; 0: there was none. */
    uint64_t downtime_ns; /**< Pause of the last snapshot. */
    uint64_t paused_ns;   /**< Pauses of all snapshots since protection began... */
    uint64_t since_ns;    /**< ...at this time, CLOCK_MONOTONIC. */
    uint64_t put_off_ns;  /**< The next snapshot is put off because it would pause the program for
                             this long; 0: it is not. */
    uint64_t interval_ns; /**< Between snapshots. */
    uint64_t cost_ns;     /**< For how long the last snapshot delayed the program, about. */
    uint64_t fault_ns;    /**< Mean time to a fault, configured or learnt; 0: not known. */
    uint64_t outage_ns;   /**< From the last loss until the snapshot was restored; 0: none was. */
};
/** Thread-safe; takes no lock that is held for long. */
void protect_read(struct protect_status *ret_status);
/** True when the program released an object with a callback that tells when it is gone, and the
 * object is kept for the journal: then the next snapshot is not put off. Thread-safe; walks all
 * memory objects. */
bool protect_is_waited_for(void);

/* For this folder only. */

/** The time from the last loss until the snapshot's bytes were restored; 0: there was none. */
uint64_t recovery_outage_ns(void);

/** True when protection was turned on, so the thread (recovery.h) runs. */
bool protect_wants_thread(void);
/** True when the program is protected at present; and the reason why it is not, NULL: it is, or
 * protection is off. */
bool protect_is_on(void);
const char *protect_refusal(void);
/** What the journal has is of no use any more, and its objects are let go: commands that a lost
 * device did not end fail. @why: as journal_end. Not inside the gate. */
void protect_end_journal(const char *why);
/** Called by the thread while no device is lost: make a snapshot if it is time. */
void protect_make_if_due(void);
/** upcalls.h: relieve. */
bool protect_relieve(bool anyway);

#endif
