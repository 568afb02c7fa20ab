#ifndef RESEAT_STATE_MOVE_MOVE_H
#define RESEAT_STATE_MOVE_MOVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "state/base/compiler.h"
#include "state/driver/driver.h"

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
    MOVE_ENDED,       /**< The program ends, and needs no device any more. */
};

struct move_progress {
    enum move_phase phase;
    uint64_t bytes_done;
    uint64_t bytes_total;
    /** Programs that have to be built there, all and those that are; 0: none is being built. */
    uint32_t builds, built;
    char building[64]; /**< A kernel of the one under way, where one is known; else "". */
    uint32_t round;    /**< Of copies ahead, from 1; 0: none yet. */
};

/** What a program that reconfigures itself is asked before; others are never asked. */
enum move_manner {
    MOVE_ASKED,  /**< It is asked, and what it refuses does not happen. */
    MOVE_TAKEN,  /**< It is asked, but its device is being taken: without its help, if need be. */
    MOVE_NEEDED, /**< It is told afterwards: a thread of it waits for this move. */
};

/** How long the program may be stopped, where nobody says. */
#define MOVE_DOWNTIME_NS UINT64_C(50000000)

/** How what the program has gets to where it goes. */
enum move_fetch {
    MOVE_FETCH_AUTO,      /**< Of a resume on demand where it is much: 256 MiB. Else whole. */
    MOVE_FETCH_ON_DEMAND, /**< The program runs at once; what a command names comes first. Until
                               the rest is there, it stays where it was. Not of a suspend. */
    MOVE_FETCH_WHOLE,     /**< All of it is there before the program runs. */
};

struct move_request {
    const struct device_key *target;   /**< Borrowed. NULL: host memory (suspend). */
    char target_name[DEVICE_NAME_MAX]; /**< What messages call it; "": what its driver does. */
    enum move_manner manner;
    uint32_t vdev;        /**< Which virtual device moves; 0 is the first. */
    uint64_t deadline_ns; /**< CLOCK_MONOTONIC; 0: none. */
    bool dry_run;         /**< PLAN alone. */
    /** Copies ahead go on until the program would be stopped for no longer; 0: MOVE_DOWNTIME_NS. */
    uint64_t max_downtime_ns;
    bool strict; /**< Rather not at all than longer. Else the time aimed at, where it can be had. */
    uint64_t bandwidth; /**< Bytes a second for what is copied while the program runs; 0: no limit.
                             What is copied while it is stopped goes as fast as it can. */
    /** Not a pause in the middle of a long launch, but its rest done here and there at once, and
     * the switch at its end (spread.h); where that cannot be, as usual. */
    bool spreads;
    enum move_fetch fetch;
    bool prewarm; /**< PLAN, and of PREPARE what takes long: the context, programs and kernels are
                       made there, for a move that may come. The program stays where it is. */
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
    char reason[512];  /**< One line, "" when done. */
    bool lasting;      /**< It would fail there again for as long as the program has what it has. */
    uint64_t total_ns; /**< Until the driver that it left has released what it had, too. */
    uint64_t arrived_ns;   /**< Of it until the program ran at the target; 0: it did not. */
    uint64_t downtime_ns;  /**< From the gate's closing to its opening. */
    uint64_t bytes;        /**< Copied, in both parts of the move. */
    uint64_t left;         /**< On demand: to be fetched while the program runs. */
    uint64_t build_ns;     /**< Of total_ns: what programs took to be built at the target, ... */
    uint32_t built;        /**< ...and how many they were. */
    uint64_t drain_ns;     /**< Of downtime_ns: the wait for commands that the device ran. */
    uint64_t aim_ns;       /**< What downtime_ns was to be at most; 0: nothing was stopped. */
    uint32_t rounds;       /**< Of copies ahead. */
    uint64_t predicted_ns; /**< What copying was to stop it for, when it was stopped; 0: no
                              bandwidth was known. */
};

/**
 * Move one virtual device, with everything of it in every context, to @request->target.
 *
 * Blocks until the program runs again, on the target or where it was. One move at a time in a
 * process: a second caller waits for the first, within its own deadline; but requests to prewarm
 * build for several devices at once. Thread-safe; not to be called inside the gate or from a
 * callback of a driver.
 */
void move_run(const struct move_request *request, struct move_report *ret_report);

/**
 * Wait until the program has its virtual devices: its first OpenCL call may still be opening a
 * driver, and how many they are is known only then.
 *
 * Until @deadline_ns (CLOCK_MONOTONIC; 0: half a minute). False: @ret_report says why
 * (MOVE_EXPIRED). Thread-safe; not inside the gate.
 */
MUST_CHECK bool move_await_start(uint64_t deadline_ns, struct move_report *ret_report);

/**
 * Let go of what was made ahead on @target (request->prewarm), or on any device with NULL.
 *
 * Waits for a move that is under way, until @deadline_ns (CLOCK_MONOTONIC; 0: none), and for the
 * driver. Thread-safe; not inside the gate. 0, -ETIMEDOUT, or -ENOENT: there was none.
 */
MUST_CHECK int move_cool(const struct device_key *target, uint64_t deadline_ns);

/** What a program is told without having been asked. */
enum move_news {
    MOVE_NEWS_MOVED, /**< It is somewhere else (MOVE_NEEDED). */
    MOVE_NEWS_BACK,  /**< It is back where it was, after `arrive` had it so. */
    MOVE_NEWS_STAYS, /**< It could not go back. */
};

/**
 * Who speaks for a program that reconfigures itself. move_run calls it on the moving thread,
 * outside the gate and every lock; it may block, within its own deadlines and the request's.
 */
struct plan_use;
struct vdev;
struct move_partner {
    /** What the program asks of a device. False: it is moved like any other. */
    bool (*minimum)(struct plan_use *ret_use);
    /**
     * Before PREPARE: have the program save its progress and let go of what it can make again.
     *
     * @target  NULL: suspend. Borrowed.
     * Returns 0, 1 (it is to be moved as it is), or why not: -EBUSY, -ECANCELED, -ETIMEDOUT, -EIO,
     * with one line in @ret_reason. After 0 and 1 `arrive` follows, then `told` if that gave -EIO;
     * another mover's `leave` waits for that.
     */
    int (*leave)(const struct move_request *request, const struct device *target, char *ret_reason,
                 size_t reason_size);
    /**
     * It ended: have the program configure itself for the device that it has now, if it is another
     * one or the program let go of anything.
     *
     * @done  It is where it was to go.
     * Returns 0, or -EIO: the program wants to go back to where it was, with the reason. Never
     * after a move that was not done, nor one to or from host memory.
     */
    int (*arrive)(const struct move_request *request, bool done, char *ret_reason,
                  size_t reason_size);
    /** What else happened to its virtual device. Never blocks. */
    void (*told)(const struct move_request *request, enum move_news news);
};
/** For good. Static storage. */
void move_set_partner(const struct move_partner *partner);

/**
 * Move @vdev back to the device where it started, because the one where it is does not do what that
 * one promised. As move_run. False when it is there already, suspended, or the move failed.
 */
bool move_home(struct vdev *vdev);
/** upcalls.h: move_back, await_move. */
bool move_back(struct vdev *vdev, struct device *here, const char *kernel);
void move_await(void);

const char *move_phase_name(enum move_phase phase);
const char *move_result_name(enum move_result result);
/** Of what ended with 0 or -errno, after something had begun. */
enum move_result move_result_of(int error);

#endif
