#ifndef RESEAT_STATE_MOVE_MOVE_PRIV_H
#define RESEAT_STATE_MOVE_MOVE_PRIV_H

#include <stdint.h>

#include "state/move/move.h"
#include "state/object/context.h"
#include "state/transfer/transfer.h"

/** What PLAN compares with the target. */
enum move_basis {
    MOVE_BY_USE,     /**< Everything that the program ever used, and its live objects. */
    MOVE_BY_REST,    /**< Live objects only: the program released the rest to be moved. */
    MOVE_BY_MINIMUM, /**< The requirements that the program stated. */
};

/** Results of the rounds of copying ahead. */
struct move_rounds {
    double bandwidth; /**< Bytes a second of the link; 0: not known. */
    uint64_t took_ns; /**< Duration of the last round. */
    bool idle; /**< The last round found every object being written: try another a little later. */
    unsigned in_vain; /**< Rounds that did not reduce what is left, and pauses that were undone. */
    unsigned pauses;  /**< Pauses that were undone because they would have lasted too long. */
};

/** A move under way. Owned by move_run. */
struct move {
    enum move_basis basis;
    const struct plan_use *minimum; /**< MOVE_BY_MINIMUM. */
    const struct move_request *request;
    struct move_report *report;
    struct vdev *vdev;
    struct device *target; /**< NULL: suspend. */
    /** A queue that move_quiesce does not wait for; or NULL. */
    const struct queue *apart;
    struct move_context *contexts;
    size_t context_count;
    struct transfer_limits limits;
    struct throttle throttle;      /**< Of copying ahead. */
    struct transfer_series series; /**< Of all copies. */
    struct move_rounds rounds;
    uint64_t refreshed; /**< Bytes up to date at the target, whether copied or shared. */
    _Atomic uint64_t done;
    uint64_t total;
    struct move_progress builds; /**< Only the fields about builds are used. */
    bool paused;
    bool rehearses;        /**< Every context gets a residence of its own: move_rehearse. */
    struct spread *spread; /**< The launch that source and target run together; or NULL. Owned. */
    bool yields;           /**< Gives way to any mover that waits. */
    int unrecovered;       /**< Error of move_recover. */
    bool recovers;  /**< The virtual device is lost; this move restores a snapshot and replays the
                       journal. */
    bool on_demand; /**< Content is left at the source and fetched after COMMIT: fetch.c. */
    bool resumes; /**< A resume from host memory: goes on even while the program exits, for a thread
                     may wait for it. */
    bool gave_way;     /**< A prewarm that released the lock for another mover, and continues
                          afterwards. */
    struct move *next; /**< Next of the moves that prewarm at the same time: move_lock.c. */
    uint64_t begun_at, paused_at;
    uint64_t phase_at;            /**< When report->reached began, for traces; 0: not traced. */
    struct residence *left;       /**< Residences that COMMIT took out of their contexts. Owned. */
    struct retired_list *retired; /**< Objects of the source in residences that stay. Owned. */
};

/*
 * move_lock.c: what all parts of a move ask.
 */

/**
 * Take the movers' lock (of move_run). Returns false when it was not free by @deadline_ns (0: no
 * deadline).
 * @yields  The caller will release the lock as soon as a mover that does not yield waits.
 */
bool move_lock_until(uint64_t deadline_ns, bool yields);
/** The same, also until @cancel (or NULL) is true. */
MUST_CHECK bool move_lock_unless(uint64_t deadline_ns, const atomic_bool *cancel);
void move_lock(void); /**< Without a deadline. */
void move_unlock(void);
/**
 * Take the lock for a request to prewarm. Several requests build at the same time, each for its own
 * device: between move_make_begin and move_make_end a request does not hold the lock, and only
 * other requests to prewarm may take it.
 */
MUST_CHECK bool move_lock_to_prewarm(uint64_t deadline_ns, const atomic_bool *cancel);
void move_make_begin(struct move *move);
void move_make_end(struct move *move);
/** True while one of them builds for @target. Movers' lock held. */
bool move_is_made_ready(const struct device_key *target);
/** True when a mover that does not yield waits for the lock. */
bool move_is_awaited(void);
/** True when a request to prewarm waits for it. */
bool move_prewarm_is_awaited(void);
/** 0, or -EPERM with the reason in the report when the program is pinned. */
MUST_CHECK int move_check_pins(struct move *move);
/** Write the report's reason unless it has one, and return @error. */
int move_fail(struct move *move, int error, const char *format, ...) PRINTF(3, 4);
/** 0, or why the move must end: -ETIMEDOUT, -ECANCELED, -ESHUTDOWN; -EAGAIN for a mover that yields
 * while another waits. */
int move_check(struct move *move);
/**
 * Close the gate and check the pins again. If the program became pinned meanwhile, the gate is
 * opened and nothing of the source was touched. 0, -ETIMEDOUT, -ECANCELED or -EPERM, with the
 * reason written.
 */
MUST_CHECK int move_close_gate(struct move *move);
void move_enter_phase(struct move *move, enum move_phase phase);
void move_end_phase(struct move *move); /**< The last one. */
void move_tell(struct move *move);

/* Walks over the objects of a move (move_undo.c). */

/** A walk over the objects of the moving contexts in the order of their types, so that an object
 * comes after those it is made from; or backwards. */
struct move_walk {
    bool back;
    /** Which classes (of those with real objects) to visit. NULL: all. */
    bool (*takes)(const struct object_class *class);
    /** @object is held. 0, or what ends the walk. */
    int (*act)(struct move *move, const struct object_class *class, struct object *object,
               struct move_context *entry);
};
/** 0, or the error that ended the walk. */
int move_walk(struct move *move, const struct move_walk *walk);
/** For move_walk.takes: the classes whose objects the target has to have made. */
bool move_is_made(const struct object_class *class);

/** Write the reason that @object cannot be @done at the target: the message of its class for
 * @error, else a general one. */
int move_fail_object(struct move *move, const struct object_class *class,
                     const struct object *object, const struct move_context *entry,
                     const char *done, cl_int error);

/*
 * move_prepare.c: makes the target residence and all objects in it, without content. All functions
 * are idempotent: a second pass makes what was added since the first.
 */

/**
 * Before a suspend: check that the program could be resumed on its present device. This costs
 * nothing while the process can open the same files as when that driver last worked. Otherwise
 * residences and programs are made on the device, as a resume would, and released again. 0, -EPERM
 * with the reason written, or as move_check.
 */
MUST_CHECK int move_rehearse(struct move *move);
void move_forget_contexts(struct move *move);
/** True when the program made a context or built a program since move_prepare. Gate closed. */
bool move_is_stale(struct move *move);
/** Make residences and all real objects in them, programs first. The program runs. */
MUST_CHECK int move_prepare(struct move *move);
/** Make only programs, kernels and other objects without bytes, for a request to prewarm. */
MUST_CHECK int move_prepare_code(struct move *move);
/** In the pause: make the objects that were added since, except programs and contexts
 * (move_is_stale), so that it takes little time. */
MUST_CHECK int move_prepare_rest(struct move *move);

/* move_drain.c: waits for what the source still runs. */

/** Wait until everything given to the source has ended. Gate closed. 0, -EIO, -ETIMEDOUT... */
MUST_CHECK int move_drain(struct move *move);
/** Wait, with the program running, until everything given to the source so far has ended, so that
 * draining with the gate closed only waits for what was given since. */
MUST_CHECK int move_quiesce(struct move *move);

struct move_markers {
    struct move_marker *markers;
    size_t count;
};
/** Put a marker in every queue whose commands must have ended before content is copied, and add the
 * events of commands that run beside those queues. Gate closed. */
MUST_CHECK int move_markers_put(struct move *move, struct move_markers *ret_markers);
MUST_CHECK int move_markers_await(struct move *move, const struct move_markers *markers);
void move_markers_finish(struct move_markers *markers);

/* move_copy.c: copies content. */

/**
 * Copy ahead what the program does not write at the moment, objects of @least bytes or more. The
 * program runs.
 * @ret_ns  Time that the copies took.
 */
MUST_CHECK int move_copy_round(struct move *move, uint64_t least, uint64_t *ret_bytes,
                               uint64_t *ret_ns);
/** After PREPARE: true when @move is on demand, because that was asked for or because it is a
 * resume of many bytes. */
bool move_is_on_demand(const struct move *move);
/** Bytes that a pause would have to copy if it began now. Approximate while the program runs. */
uint64_t move_left(const struct move *move);
/** Copy what is left. Gate closed; may be called again after a failure. */
MUST_CHECK int move_copy_rest(struct move *move);
/** After the last copy: set kernel arguments and map what the program has mapped. Gate closed until
 * COMMIT or ROLLBACK. */
MUST_CHECK int move_arrive(struct move *move);

/* move_rounds.c: decides when to pause the program. */

/**
 * Copy ahead in rounds while each makes the pause shorter, until it is as short as requested. The
 * program runs. -EBUSY with the reason written: a strict request's limit cannot be met.
 */
MUST_CHECK int move_copy_ahead(struct move *move);
/** Longest pause of a strict move; of others, the pause aimed at. */
uint64_t move_downtime_limit(const struct move *move);
/** Whether a longer pause is undone. */
bool move_is_strict(const struct move *move);
/** When a pause that begins now must end: by the strict limit or the deadline; 0: no limit. */
uint64_t move_pause_limit(const struct move *move);
/** True when one more round and then a pause of @predicted ns would end after the deadline. */
bool move_rounds_is_late(const struct move *move, uint64_t predicted);
/** After draining: 0, or -ETIMEDOUT when the rest of a strict move's pause would exceed its limit.
 */
MUST_CHECK int move_check_pause(struct move *move);
/** After a pause that was undone: let the program run for a while before the next. Counts as a
 * round in vain. Returns as move_check. */
MUST_CHECK int move_rest(struct move *move);

/*
 * move_lost.c: moves from a device that is lost.
 */

/** Where the bytes of @from are read: there, or in host memory if that residence is lost. */
uint8_t move_source(const struct move_context *entry, uint8_t from);
/** 0, or -EPERM with the reason written when some object's latest bytes were only on the lost
 * device. Not with a table locked. */
MUST_CHECK int move_check_survivors(struct move *move);
/**
 * Before a rollback: when the source was lost, bytes that were copied ahead may exist only in the
 * target. Copies them to host memory (R4). If that fails, the target stays in the context as a
 * residence.
 *
 * Blocks on the link and ignores the move's limits. Returns @error, or -EPERM with the reason
 * written where the target is lost as well. Gate open; movers' lock held.
 */
MUST_CHECK int move_rescue(struct move *move, int error);
/** The virtual device is lost, and this move can recover it (upcalls.h). */
bool move_can_recover(const struct move *move);
/** After COMMIT of a recovery, gate closed: replay the journal. 0, or -errno with the reason
 * written: the new residences count as lost. */
MUST_CHECK int move_recover(struct move *move);

/** After a driver error in the move: find out whether the target was lost, before it is taken
 * apart. */
void move_examine_target(const struct move *move);

/* move_commit.c: the point of no return. */

/** Allocate what move_commit needs, so that it cannot fail. Gate closed. */
MUST_CHECK int move_reserve(struct move *move);
/** Switch every object to the target; objects of the source that nothing refers to any more are
 * left in @move. Gate closed. */
void move_commit(struct move *move);
/** Release what move_commit left. Gate open. */
void move_release_left(struct move *move);

/*
 * move_undo.c: rollback.
 *
 * Objects in the target are released with the gate open, because the program only uses residences
 * where its virtual devices are. The target residence itself is taken out of the context's table
 * with the gate closed, for a thread that is about to release an object may still read that table.
 * Closing the gate for this must not take long, as a thread may be in a slow driver call (M4): a
 * residence that cannot go at once stays vacant until later, or becomes the target of the next
 * move.
 */

/** Release everything in the target, and leave residences that were made for this move vacant. Gate
 * open; movers' lock held. */
void move_undo(struct move *move);
/** Take over @residence as this move's target if an earlier rollback left it vacant. Returns
 * whether it did. Movers' lock held. */
bool move_take_vacant(const struct residence *residence);
/** Try again to release residences that rollbacks left vacant. Gate open; movers' lock held. */
void move_release_vacant(void);

/**
 * move.c: one transaction. The caller fills in @move up to `minimum`, with request and report. One
 * at a time in a process.
 */
void move_transact(struct move *move);

/** move_reconfigure.c: the body of move_run. Leaves the times of the report to the caller. */
void reconfigure_run(const struct move_request *request, struct move_report *ret_report);
/**
 * Forget what the program used in the past, so that PLAN compares only live objects; with @restore,
 * undo that. Movers' lock held.
 */
void reconfigure_marks_renew(void);
void reconfigure_marks_end(bool restore);

/*
 * Residences made ahead of a possible move: the context, its programs and kernels, which take
 * longest to make. No virtual device is in such a residence, so the program, its grant and its
 * status do not change. A move to its device takes it over and makes what is missing; a move to
 * another device releases it. context->ready lists the devices of these residences and may be read
 * by any thread; everything else belongs to movers, under their lock and with the gate open. Only
 * programs are built without that lock, for several devices at once (move_lock_to_prewarm).
 */

/** Residence indexes of a context that are kept free for a move and for a target left by a
 * rollback. */
#define READY_STANDBY 2

/**
 * Serve a request to prewarm, after PLAN: make what is missing on move->target. On failure what was
 * made is released, except when it gave way to another mover (move->gave_way): then call it again
 * after that move. 0, -ENOSPC, -EIO, or as move_check.
 */
MUST_CHECK int ready_make(struct move *move);

/** Take over the residence for this move if it was made ahead. Returns whether it did. */
bool ready_take(struct context *context, uint8_t residence_index);

/** If residences were made ahead on @device, check whether it is lost, and release them if it is.
 */
void ready_examine(const struct device *device);

/** Release residences made ahead on @device (NULL: any) in contexts of @vdev (NULL: any). Returns
 * how many. */
unsigned ready_drop(const struct device *device, const struct vdev *vdev);

/*
 * Moves and resumes on demand. The program runs at once, with real objects on the target that have
 * no content yet: the latest bytes are still at the sources. A command that names an object has its
 * bytes brought (budget/bring.c). A thread fetches the rest while the program runs, most recently
 * used objects first. It copies in slices of some milliseconds, so that no command waits long
 * behind one, and pauses while commands bring bytes.
 *
 * Sources are host memory (after a resume) and the residences that the program left (source.h).
 * Their replicas stay until the last byte is fetched, so that no failure of the target loses one
 * (M1); then they are released. What does not fit on the target is copied to host memory.
 *
 * The thread holds the movers' lock while it copies, and releases it as soon as another mover
 * waits. That move copies what is not fetched yet from the sources to its own target; if it is on
 * demand too, they stay sources. A move back finds those bytes in their old residence.
 */

/**
 * Begin to fetch what only the sources of @vdev have, after a move that committed without content
 * (@on_demand) or where an earlier one left sources. Does not block. Without memory or a thread,
 * the bytes stay at the sources until commands name them. Called with the movers' lock held.
 *
 * @bandwidth  Bytes a second; 0: no limit.
 *
 * Returns the number of bytes to fetch.
 */
uint64_t fetch_begin(struct vdev *vdev, bool on_demand, uint64_t bandwidth);

/** Bytes fetched so far, and in all; both 0 where nothing is being fetched. Wait-free. */
void fetch_read(uint32_t vdev, uint64_t *ret_fetched, uint64_t *ret_total);

#endif
