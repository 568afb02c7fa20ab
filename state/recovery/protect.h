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
 * Snapshots are made again and again, and the commands between them are kept in the journal. What
 * becomes of the program when its device is lost is in recovery.h.
 *
 * What cannot be protected is said (protect_read), and is as it is without: programs that are
 * pinned (object/pin.h), have several virtual devices, or gave a launch in pieces or a command that
 * ended in an error since the last snapshot; and what was printed by kernels is printed again.
 * Where what is done again depends on chance (the order of atomic functions on floats) it may come
 * out otherwise.
 */

/** How often snapshots are made, where nobody says. */
#define PROTECT_INTERVAL_NS UINT64_C(10000000000)
/** What the journal may take, where nobody says. */
#define PROTECT_BYTES (UINT64_C(256) << 20)
/** Points are made no more often than so that they take this part of the time. */
#define PROTECT_BUDGET 0.01
/** And one that is made because it is time stops the program for no longer than this, or than the
 *  budget of the time since the one before, if that is more; else it is put off. */
#define PROTECT_PAUSE_NS MOVE_DOWNTIME_NS

struct protect_settings {
    uint64_t interval_ns; /**< 0: PROTECT_INTERVAL_NS. */
    uint64_t bytes;       /**< Of the journal; 0: PROTECT_BYTES. */
    /** Where it may go when its device is lost, besides where it is and began; copied. None: where
     *  the drivers have devices (driver_list). */
    const struct device_key *keys;
    size_t key_count;
};

/** From now on, or in another way. Thread-safe; not inside the gate. 0, -ENOMEM, -EAGAIN (no
 *  thread). */
MUST_CHECK int protect_begin(const struct protect_settings *settings);
/** Not any more. Blocks on a snapshot or a move that is under way. */
void protect_end(void);
/** Make a snapshot at once. 0, or as snapshot_make. */
int protect_now(void);
/** A snapshot for somebody else, as snapshot_make; of a program that is protected it is its point
 * from then on, and the journal begins anew with it. */
struct snapshot_request;
struct snapshot_report;
int protect_snapshot(const struct snapshot_request *wanted, struct snapshot_report *ret_report);
/** Nobody else needs the latest point any more: it goes, unless the program is protected. */
void protect_forget(void);

struct protect_status {
    bool on;
    enum recovery_state recovery;
    const char *broken; /**< Why the program is not protected at the moment; NULL: it is. Static. */
    uint64_t snapshots; /**< That were made. */
    uint64_t recoveries;
    uint64_t differences;     /**< Reads that, done again, gave other bytes than the program has. */
    uint64_t commands, bytes; /**< Of the journal. */
    uint64_t snapshot_bytes;
    uint64_t at_ns;       /**< CLOCK_MONOTONIC, of the last snapshot; 0: there was none. */
    uint64_t downtime_ns; /**< That it took. */
    uint64_t paused_ns;   /**< That all of them took since protection began... */
    uint64_t since_ns;    /**< ...then, by CLOCK_MONOTONIC. */
    uint64_t put_off_ns;  /**< The next one is put off, as it would stop the program for so long; 0:
                               it is not. */
};
/** Thread-safe; takes no lock that is held for long. */
void protect_read(struct protect_status *ret_status);
/** The program let go of something and asked to be told when it is gone, which is kept for the
 * journal: the next snapshot is not put off. Thread-safe; looks at all of its memory. */
bool protect_is_waited_for(void);

/*
 * Of this folder alone.
 */

/** Protection was turned on: the thread (recovery.h) runs. */
bool protect_wants_thread(void);
/** The program is protected at the moment, and why it is not; NULL: it is, or nobody wants that. */
bool protect_is_on(void);
const char *protect_refusal(void);
/** Of the thread, while no device is lost: make a snapshot if it is time. */
void protect_make_if_due(void);
/** As upcalls.h has it. */
bool protect_relieve(bool anyway);

#endif
