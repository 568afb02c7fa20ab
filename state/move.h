#ifndef RESEAT_STATE_MOVE_H
#define RESEAT_STATE_MOVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/compiler.h"
#include "state/driver.h"

/*
 * A move is a transaction: PLAN, PREPARE, PAUSE, COPY, COMMIT, RESUME, and ROLLBACK from anywhere
 * before COMMIT (invariants M1 to M4). Suspending and resuming are moves too: to and from host
 * memory.
 */

enum move_phase { MOVE_PLAN, MOVE_PREPARE, MOVE_PAUSE, MOVE_COPY, MOVE_COMMIT, MOVE_RESUME };

enum move_result {
    MOVE_DONE,
    MOVE_ROLLED_BACK, /**< Tried and failed: the program runs on where it was. */
    MOVE_REFUSED,     /**< PLAN says that the target cannot run this program, or it is pinned:
                           when asked, or since. */
    MOVE_EXPIRED,     /**< The deadline passed; rolled back. */
    MOVE_CANCELED,    /**< The operator changed their mind; rolled back. */
};

struct move_progress {
    enum move_phase phase;
    uint64_t bytes_done;
    uint64_t bytes_total;
};

struct move_request {
    const struct device_key *target; /**< Borrowed. NULL: host memory (suspend). */
    uint32_t seat;                   /**< Which virtual device moves; 0 is the first. */
    uint64_t deadline_ns;            /**< CLOCK_MONOTONIC; 0: none. */
    bool dry_run;                    /**< PLAN alone. */
    const uint64_t *grant;     /**< Bytes that it may have on the target, or NULL: no limit. What is
                                    beyond stays in host memory. */
    const atomic_bool *cancel; /**< Polled until COMMIT; may be NULL. */
    /** Called on the moving thread, outside every lock, a few times a second; may be NULL. */
    void (*progress)(void *data, const struct move_progress *progress);
    void *data;
};

struct move_report {
    enum move_result result;
    enum move_phase reached;
    char reason[512]; /**< One line, "" when done. */
    uint64_t total_ns;
    uint64_t downtime_ns; /**< From the gate's closing to its opening. */
    uint64_t bytes;       /**< Copied, in both parts of the move. */
};

/**
 * Move one virtual device, with everything of it in every context, to @request->target.
 *
 * Blocks until the program runs again, on the target or where it was. One move at a time in a
 * process: a second caller waits for the first, within its own deadline. Thread-safe; not to be
 * called inside the gate or from a callback of a driver.
 */
void move_run(const struct move_request *request, struct move_report *ret_report);

/**
 * Move @seat back to the device where it started, because the one where it is does not do what that
 * one promised. As move_run. False when it is there already, suspended, or the move failed.
 */
struct seat;
bool move_home(struct seat *seat);
/** Wait until the move that runs, if any, has ended. As move_run. */
void move_await(void);
/** In the child of a fork: the threads that move are gone. */
void move_after_fork(void);

const char *move_phase_name(enum move_phase phase);
const char *move_result_name(enum move_result result);

#endif
