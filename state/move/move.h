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
    MOVE_REFUSED,  /**< The target cannot run this program, or the program is pinned: found in PLAN
                      or later. */
    MOVE_EXPIRED,  /**< The deadline passed; rolled back. */
    MOVE_CANCELED, /**< The operator changed their mind; rolled back. */
    MOVE_ENDED,    /**< The program is exiting. */
};

struct move_progress {
    enum move_phase phase;
    uint64_t bytes_done;
    uint64_t bytes_total;
    /** Programs to build at the target, and those built so far; 0: none is being built. */
    uint32_t builds, built;
    char building[64]; /**< A kernel of the program being built, or "" where none is known. */
    uint32_t round;    /**< The round of copying ahead, from 1; 0: none yet. */
};

/** What a program that registered to be asked (reseat.h) is asked before a move. */
enum move_manner {
    MOVE_ASKED,  /**< It may refuse. */
    MOVE_TAKEN,  /**< It is asked to prepare, but moved even without its help: its device is being
                    taken away. */
    MOVE_NEEDED, /**< It is only told afterwards: one of its threads waits for this move. */
};

/** Longest pause aimed at where the request gives none. */
#define MOVE_DOWNTIME_NS UINT64_C(50000000)

/** When the content of memory objects is copied. */
enum move_fetch {
    MOVE_FETCH_AUTO,      /**< On demand for a resume of 256 MiB or more; else whole. */
    MOVE_FETCH_ON_DEMAND, /**< The program runs at once; objects are copied when a command names
                             them, the rest in the background. Not for a suspend. */
    MOVE_FETCH_WHOLE,     /**< Everything is copied before the program runs. */
};

/** What is changed while a move is under way; 0: as requested. Any thread may write it. */
struct move_change {
    _Atomic uint64_t bandwidth;
    _Atomic uint64_t max_downtime_ns; /**< A limit, as with `strict`. */
};

struct move_request {
    const struct device_key *target;   /**< Borrowed. NULL: host memory (suspend). */
    char target_name[DEVICE_NAME_MAX]; /**< The target's name in messages; "": the driver's name for
                                          it. */
    enum move_manner manner;
    uint32_t vdev;        /**< Which virtual device moves; 0 is the first. */
    uint64_t deadline_ns; /**< CLOCK_MONOTONIC; 0: none. */
    bool dry_run;         /**< Run PLAN only. */
    /** Copy ahead until the pause would be no longer than this; 0: MOVE_DOWNTIME_NS. */
    uint64_t max_downtime_ns;
    bool strict; /**< Give up instead of pausing for longer; else max_downtime_ns is only an aim. */
    uint64_t bandwidth; /**< Bytes a second while copying ahead; 0: no limit. Copies during the
                           pause are not limited. */
    /** Have source and target run the rest of a long launch together, and switch at its end
     * (spread.h), instead of pausing in its middle. Where that is not possible, pause. */
    bool spreads;
    enum move_fetch fetch;
    bool prewarm; /**< Run PLAN and the slow part of PREPARE only: make the context, programs and
                     kernels on the target for a later move. The program stays where it is. */
    const uint64_t *grant; /**< Bytes that the program may have on the target, or NULL: no limit.
                              The rest stays in host memory. */
    const atomic_bool *cancel;        /**< Polled until COMMIT; may be NULL. */
    const struct move_change *change; /**< The same. */
    /** Called on the moving thread, outside every lock, a few times a second; may be NULL. */
    void (*progress)(void *data, const struct move_progress *progress);
    void *data;
};

struct move_report {
    enum move_result result;
    enum move_phase reached;
    char reason[512];  /**< One line, "" when done. */
    bool lasting;      /**< The same move would fail again as long as the program keeps its present
                          objects. */
    uint64_t total_ns; /**< Until the driver of the source has released everything. */
    uint64_t arrived_ns;   /**< Until the program ran at the target; 0: it did not. */
    uint64_t downtime_ns;  /**< From the gate's closing to its opening. */
    uint64_t bytes;        /**< Copied, ahead and in the pause. */
    uint64_t left;         /**< On demand: to be fetched after COMMIT. */
    uint64_t build_ns;     /**< Of total_ns: building programs at the target. */
    uint32_t built;        /**< Programs built at the target. */
    uint64_t drain_ns;     /**< Of downtime_ns: waiting for commands that the source ran. */
    char waited_for[160];  /**< The kernels of these commands, with commas; "": not known. */
    uint64_t aim_ns;       /**< The limit or aim for downtime_ns; 0: the program was not paused. */
    uint32_t rounds;       /**< Rounds of copying ahead. */
    uint64_t predicted_ns; /**< Time for the copies of the pause as predicted when it began; 0: the
                              bandwidth was not known. */
};

/**
 * Move one virtual device, with all of its objects in every context, to @request->target.
 *
 * Blocks until the program runs again, on the target or where it was. One move at a time in a
 * process: a second caller waits for the first, within its own deadline; but requests to prewarm
 * build for several devices at once. Thread-safe; not to be called inside the gate or from a
 * callback of a driver.
 */
void move_run(const struct move_request *request, struct move_report *ret_report);

/**
 * Wait until the program's virtual devices exist. Its first OpenCL call may still be opening a
 * driver, and how many devices it gets is known only afterwards.
 *
 * Waits until @deadline_ns (CLOCK_MONOTONIC; 0: half a minute). Returns false after that;
 * @ret_report has the reason (MOVE_EXPIRED). Thread-safe; not inside the gate.
 */
MUST_CHECK bool move_await_start(uint64_t deadline_ns, struct move_report *ret_report);

/**
 * Release what was made ahead (request->prewarm) on @target; with NULL, on all devices.
 *
 * Waits for a move that is under way, until @deadline_ns (CLOCK_MONOTONIC; 0: none), and for the
 * driver. Thread-safe; not inside the gate. 0, -ETIMEDOUT, or -ENOENT: there was none.
 */
MUST_CHECK int move_cool(const struct device_key *target, uint64_t deadline_ns);

/** What a program that registered is told about a move it was not asked about. */
enum move_news {
    MOVE_NEWS_MOVED, /**< It was moved (MOVE_NEEDED). */
    MOVE_NEWS_BACK,  /**< It was moved back because `arrive` returned -EIO. */
    MOVE_NEWS_STAYS, /**< `arrive` returned -EIO, but moving back failed. */
};

/**
 * The callbacks of a program that reconfigures itself (interpose/aware). move_run calls them on the
 * moving thread, outside the gate and every lock; they may block within their own deadlines and the
 * request's.
 */
struct plan_use;
struct vdev;
struct move_partner {
    /** The program's least requirements of a device. Returns false where it has not stated any:
     * PLAN then compares all that it used. */
    bool (*minimum)(struct plan_use *ret_use);
    /**
     * Before PREPARE: have the program save its progress and release what it can make again.
     *
     * @target  NULL: suspend. Borrowed.
     *
     * Returns 0, 1 (move it like a program that did not register), or an error that ends the move:
     * -EBUSY, -ECANCELED, -ETIMEDOUT, -EIO, with one line in @ret_reason. After 0 and 1 `arrive` is
     * called, then `told` if `arrive` returned -EIO; until then another mover's `leave` blocks.
     */
    int (*leave)(const struct move_request *request, const struct device *target, char *ret_reason,
                 size_t reason_size);
    /**
     * After the move: have the program configure itself for the device where it now is, if that
     * changed or if the program released anything before.
     *
     * @done  The move succeeded.
     *
     * Returns 0, or -EIO with the reason: the program wants to go back to its former device. Never
     * -EIO after a failed move, nor after one to or from host memory.
     */
    int (*arrive)(const struct move_request *request, bool done, char *ret_reason,
                  size_t reason_size);
    /** Something else happened to its virtual device. Never blocks. */
    void (*told)(const struct move_request *request, enum move_news news);
};
/** Cannot be undone. @partner has static storage. */
void move_set_partner(const struct move_partner *partner);

/**
 * Move @vdev back to the device where it started, because its present device lacks what the first
 * one promised to the program. Blocks as move_run. Returns false when it is there already,
 * suspended, or the move failed.
 */
bool move_home(struct vdev *vdev);
/** upcalls.h: move_back, await_move. */
bool move_back(struct vdev *vdev, struct device *here, const char *kernel);
void move_await(void);

const char *move_phase_name(enum move_phase phase);
const char *move_result_name(enum move_result result);
/** The result for an operation that ended in @error (0 or -errno) after its PREPARE had begun. */
enum move_result move_result_of(int error);

#endif
