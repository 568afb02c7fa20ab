#ifndef RESEAT_STATE_MOVE_MOVE_PRIV_H
#define RESEAT_STATE_MOVE_MOVE_PRIV_H

#include "state/move/move.h"
#include "state/object/context.h"
#include "state/transfer/transfer.h"

/** What PLAN compares with the target. */
enum move_basis {
    MOVE_BY_USE,     /**< All that the program ever did, and what is alive. */
    MOVE_BY_REST,    /**< What is alive: what it did is past. */
    MOVE_BY_MINIMUM, /**< What it asks for. */
};

/** What the rounds of copies ahead showed. */
struct move_rounds {
    double bandwidth; /**< Bytes a second of the link; 0: not known. */
    uint64_t took_ns; /**< The last one. */
    bool idle;        /**< It found all being written: the next one comes another time. */
    unsigned in_vain; /**< How many did not leave less than the one before; and pauses. */
    unsigned pauses; /**< How often the program was stopped, and that would have lasted too long. */
};

/** A move under way. Owned by move_run. */
struct move {
    enum move_basis basis;
    const struct plan_use *minimum; /**< MOVE_BY_MINIMUM. */
    const struct move_request *request;
    struct move_report *report;
    struct vdev *vdev;
    struct device *target; /**< NULL: suspend. */
    /** What it runs is not waited for by move_quiesce; or NULL. */
    const struct queue *apart;
    struct move_context *contexts;
    size_t context_count;
    struct transfer_limits limits;
    struct throttle throttle;      /**< Of what is copied ahead. */
    struct transfer_series series; /**< Of all copies. */
    struct move_rounds rounds;
    uint64_t refreshed; /**< Bytes that are up to date at the target now, copied or shared. */
    _Atomic uint64_t done;
    uint64_t total;
    struct move_progress builds; /**< Of that only what is built. */
    bool paused;
    bool rehearses;        /**< Every context gets a residence of its own: move_rehearse. */
    struct spread *spread; /**< The launch that source and target did together; or NULL. Owned. */
    bool yields;           /**< To whoever waits to move. */
    int unrecovered;       /**< What move_recover said. */
    bool recovers;         /**< The virtual device is lost, and what it did is done again. */
    bool on_demand;        /**< Content stays where it is at COMMIT: fetch.h. */
    bool resumes;  /**< From host memory: the program may wait for it, so it is not given up. */
    bool gave_way; /**< Of a request to prewarm: to another mover, which waits; then it goes on. */
    struct move *next; /**< Of those that prewarm at once: move_lock.c. */
    uint64_t begun_at, paused_at;
    uint64_t phase_at;      /**< When report->reached began, for who traces; 0: nobody does. */
    struct residence *left; /**< By COMMIT: residences. Owned. */
    struct retired_list *retired; /**< And what was left in those that stay. Owned. */
};

/*
 * move_lock.c: what all parts of a move ask.
 */

/** The lock of move_run, until @deadline_ns (0: none). False: it was not to be had.
 * @yields  Who takes it lets go of it as soon as somebody else waits for it. */
bool move_lock_until(uint64_t deadline_ns, bool yields);
/** The same, also until @cancel (or NULL) is true. */
MUST_CHECK bool move_lock_unless(uint64_t deadline_ns, const atomic_bool *cancel);
void move_lock(void); /**< For as long as it takes. */
void move_unlock(void);
/**
 * The same for a request to prewarm. Several are served at once: between the two calls below each
 * builds at a place of its own, without the lock, which only others of them can have meanwhile.
 */
MUST_CHECK bool move_lock_to_prewarm(uint64_t deadline_ns, const atomic_bool *cancel);
void move_make_begin(struct move *move);
void move_make_end(struct move *move);
/** One of them builds for @target. With the lock. */
bool move_is_made_ready(const struct device_key *target);
/** Somebody waits for it who does not yield. */
bool move_is_awaited(void);
/** 0, or -EPERM with the reason written. */
MUST_CHECK int move_check_pins(struct move *move);
/** Write the reason (once) and give @error back. */
int move_fail(struct move *move, int error, const char *format, ...) PRINTF(3, 4);
/** 0, -ETIMEDOUT, -ECANCELED or -ESHUTDOWN; -EAGAIN where a mover waits for one that prewarms. */
int move_check(struct move *move);
/**
 * Close the gate, and look whether the program pinned itself since: then it is open again, and
 * nothing of the source was touched. 0, -ETIMEDOUT, -ECANCELED or -EPERM, with the reason written.
 */
MUST_CHECK int move_close_gate(struct move *move);
void move_enter_phase(struct move *move, enum move_phase phase);
void move_end_phase(struct move *move); /**< The last one. */
void move_tell(struct move *move);

/*
 * move_undo.c, too: what a move does with objects is up to their classes.
 */

/** A walk over the objects of the moving contexts in the order of their types, or back: what is
 *  made from others after them, or before. */
struct move_walk {
    bool back;
    /** Of types with real objects: those to go to. NULL: all. */
    bool (*takes)(const struct object_class *class);
    /** @object is held. 0, or what ends the walk. */
    int (*act)(struct move *move, const struct object_class *class, struct object *object,
               struct move_context *entry);
};
/** 0, or what ended it. */
int move_walk(struct move *move, const struct move_walk *walk);

/** Write that @object cannot be @done at the target for @error, or what its class said of that. */
int move_fail_object(struct move *move, const struct object_class *class,
                     const struct object *object, const struct move_context *entry,
                     const char *done, cl_int error);

/*
 * move_prepare.c: the target residence and everything in it but content. All are idempotent: a
 * second pass makes what came since the first.
 */

/**
 * Before a suspend: could the program be resumed where it is? Free where the process can reach what
 * it could when that driver last worked. Otherwise what a resume makes (residences, programs) is
 * made there and taken apart again. 0, -EPERM with the reason written, or as move_check.
 */
MUST_CHECK int move_rehearse(struct move *move);
void move_forget_contexts(struct move *move);
/** True when the program made a context or built a program since move_prepare. Gate closed. */
bool move_is_stale(struct move *move);
/** Residences, and in them real objects, of programs first. The program runs. */
MUST_CHECK int move_prepare(struct move *move);
/** Of that only programs, kernels and what else is made of no bytes, for a request to prewarm. */
MUST_CHECK int move_prepare_code(struct move *move);
/** Real objects that came since, which are quick to make: those of programs built already. */
MUST_CHECK int move_prepare_rest(struct move *move);

/*
 * move_drain.c: what the source still runs.
 */

/** Wait until everything given to the source has ended. Gate closed. 0, -EIO, -ETIMEDOUT... */
MUST_CHECK int move_drain(struct move *move);
/** Wait, with the program running, until what was given to the source so far has ended: what is
 * left to drain once the gate is closed is what came since. */
MUST_CHECK int move_quiesce(struct move *move);

struct move_markers {
    struct move_marker *markers;
    size_t count;
};
/** A marker in every queue whose commands the move has to see ended, and what runs beside them.
 * Gate closed. */
MUST_CHECK int move_markers_index(struct move *move, struct move_markers *ret_markers);
MUST_CHECK int move_markers_await(struct move *move, const struct move_markers *markers);
void move_markers_finish(struct move_markers *markers);

/*
 * move_copy.c: content.
 */

/** Copy ahead what the program does not write at the moment, where it is @least bytes. The program
 * runs.
 * @ret_ns  How long the link took for it. */
MUST_CHECK int move_copy_round(struct move *move, uint64_t least, uint64_t *ret_bytes,
                               uint64_t *ret_ns);
/** True when @move, prepared, is on demand: asked for, or a resume that is worth it for what there
 *  is. */
bool move_is_on_demand(const struct move *move);
/** Bytes that would have to be copied if the program were stopped now. From anywhere: what others
 * do at the same time may be counted or not. */
uint64_t move_left(const struct move *move);
/** Bring the rest up to date. Gate closed; may be tried again later. */
MUST_CHECK int move_copy_rest(struct move *move);
/** Then: give kernels their arguments, map what is mapped. Gate closed until COMMIT or ROLLBACK. */
MUST_CHECK int move_arrive(struct move *move);

/*
 * move_rounds.c: how long the program will be stopped.
 */

/**
 * Copy ahead in rounds, for as long as that makes the pause shorter: until it is as short as was
 * asked for. The program runs. -EBUSY with the reason written: it cannot be, and nothing else was
 * to be.
 */
MUST_CHECK int move_copy_ahead(struct move *move);
/** How long the move may stop the program, or aims to, where that is no strict limit. */
uint64_t move_downtime_limit(const struct move *move);
/** When a pause that begins now has to be over: a strict move's limit, or its deadline; 0: any
 * time. */
uint64_t move_pause_limit(const struct move *move);
/** The program is stopped, and drained. 0, or -ETIMEDOUT when a strict move's pause would last
 * longer than it may. */
MUST_CHECK int move_check_pause(struct move *move);
/** It did, and the program runs again: let it, for a while. Counts as a round in vain. As
 * move_check. */
MUST_CHECK int move_rest(struct move *move);

/*
 * move_lost.c: moves from a device that is lost.
 */

/** Where bytes that are at @from are read: there, or in host memory if that residence is lost. */
uint8_t move_source(const struct move_context *entry, uint8_t from);
/** 0, or -EPERM with the reason written: the latest bytes of some object were on the lost device
 *  of the virtual device alone. Not with a table locked. */
MUST_CHECK int move_check_survivors(struct move *move);
/**
 * Before a rollback: what was copied ahead from a device that is lost may be in the target alone,
 * and is brought to host memory (R4). Where that fails the target stays, as the context's.
 *
 * Blocks on the link, whatever the move's limits. Returns @error, or where the target is lost as
 * well -EPERM with the reason written. Gate open; move_run's lock held.
 */
MUST_CHECK int move_rescue(struct move *move, int error);
/** The virtual device is lost, and this move can recover it (upcalls.h). */
bool move_can_recover(const struct move *move);
/** After COMMIT of a recovery, gate closed. 0 or -errno with the reason written: what was made is
 *  taken for lost. */
MUST_CHECK int move_recover(struct move *move);

/** A driver failed in the move: find out whether what it made was lost, before it is taken apart.
 */
void move_examine_target(const struct move *move);

/*
 * move_commit.c: the point of no return, and the way back from before it.
 */

/** Memory for what move_commit will set aside, so that it cannot fail. Gate closed. */
MUST_CHECK int move_reserve(struct move *move);
/** Point every object at the target; what nothing refers to any more is left in @move. Gate closed.
 */
void move_commit(struct move *move);
/** Release what move_commit left. Gate open. */
void move_release_left(struct move *move);

/*
 * move_undo.c: the way back.
 *
 * What is in the target is released at once; that takes no closed gate, for the program looks only
 * where its virtual devices are. But a thread that is about to release an object may still look at
 * the table of residences, so that the target's goes with the gate closed, and then it must not
 * take long: a thread may be inside a call of a driver that lasts (M4). What cannot go within a
 * moment goes later, or is the target of the next move.
 */

/** Take everything out of the target again, and leave residences that were made for it vacant. Gate
 *  open; move_run's lock held. */
void move_undo(struct move *move);
/** True when @residence was left vacant: it is this move's target now. move_run's lock held. */
bool move_take_vacant(const struct residence *residence);
/** Another try for the residences that earlier rollbacks left vacant. Gate open; move_run's lock
 *  held. */
void move_release_vacant(void);

/**
 * move.c: one transaction. @move is filled in by the caller up to `minimum`, with its request and
 * report. One at a time in a process.
 */
void move_transact(struct move *move);

/** move_reconfigure.c: the body of move_run. The report has no times yet. */
void reconfigure_run(const struct move_request *request, struct move_report *ret_report);
/** What the program did is past: what is alive is noted anew. It was not past after all, if
 *  @restore. move_run's lock held. */
void reconfigure_marks_renew(void);
void reconfigure_marks_end(bool restore);

#endif
