#ifndef RESEAT_STATE_COMMAND_PARTS_H
#define RESEAT_STATE_COMMAND_PARTS_H

#include "state/command/event.h"

/*
 * A command of several parts: several driver commands, each in some residence, with one event for
 * the program.
 *
 * The parts are given to their drivers once everything that the command must come after has ended
 * (it is due), so that they wait for nothing. In whatever order they run, the program sees one
 * command:
 *
 * - It is CL_SUBMITTED once its parts were given to their drivers, CL_RUNNING once one of them runs
 *   or has ended, and ends when all of them have ended, failed ones too: until then some part may
 *   still write what the program may free afterwards. It ends in the error of the first part, by
 *   their order, that failed; what the others did stays done, as of any command that fails.
 * - A part that its driver refuses has ended, in that error.
 * - Nothing is undone: OpenCL does not cancel commands, and a failed part is not repeated, because
 *   what waited for it in its driver may have failed with it, and later commands may have changed
 *   what it reads.
 * - It was queued and submitted at the times that its queue's device reports for the marker that
 *   showed it to be due. The times of its parts are by the clocks of their own devices, where only
 *   differences are meaningful elsewhere: each part counts as queued when the command was due. So
 *   no time lies before the end of what the command waited for, nor after the begin of what waited
 *   for the command.
 *
 * Commands behind it in its queue are deferred until it has ended, and so are commands that wait
 * for its event, in any residence: drivers can only wait for single commands of their own.
 *
 * Pieces (pieces.h) are parts that follow one another in their command's own queue: each one that
 * ends makes room for the next, until all are given. They wait in the driver for what their command
 * waits for; their times are by the clock of their virtual device.
 *
 * Pieces of a protected program that run on a device which is lost are given again by the recovery
 * (recovery/replay.c). Until then they count as running, and have no real event.
 */

struct part {
    struct parts *all;
    uint8_t residence_index;
    cl_command_queue
        queue; /**< Queue of its own or NULL; released, or retired by a mover, after its end... */
    cl_event real; /**< ...as is this. Both are guarded by the parts' lock. */
    _Atomic cl_int
        status; /**< CL_COMPLETE or an error once the part has ended, CL_SUBMITTED before. */
    cl_ulong start, end; /**< Times since it was queued; kept once `real` is gone. */
    bool timed;          /**< The times of its piece were saved in `all`. Guarded as `real`. */
    uint64_t serial;     /**< Number of its piece. Guarded by engine_lock, like the rest. */
    uint64_t given;      /**< When its piece was given, by the host's clock. */
    uint64_t items;      /**< Work-items of its piece. */
};

struct parts {
    _Atomic uint32_t
        refs; /**< References: the event's, and one for each pending report of a driver. */
    struct event *event; /**< Guarded by engine_lock; NULL: destroyed. */
    /** Held during driver calls that query, retain or release an event: while one thread queries a
     * piece, another may put the next one in its place. Taken before engine_lock. */
    pthread_mutex_t lock;
    unsigned count;
    unsigned left; /**< Parts that have not ended. Guarded by engine_lock. */
    unsigned lost; /**< Those of them that are to be given again. Guarded by engine_lock. */
    unsigned
        sharers; /**< Helpers that do some of it elsewhere (share.h). Guarded by engine_lock. */
    /** The queue of a launch is a sharer, so that events end in its order. Guarded likewise. */
    bool held;
    cl_ulong queued, submit, due; /**< In the program's clock. */

    /* For pieces; guarded by engine_lock. */
    bool pieces;
    atomic_bool open;    /**< More pieces may be given: the command has not ended. */
    uint64_t serial;     /**< Number of the last piece given. */
    uint64_t failed;     /**< Number of the first piece that failed; 0: none. */
    cl_int error;        /**< Its error. */
    uint64_t ended;      /**< When a piece ended last, by the host's clock. */
    uint64_t items, ns;  /**< Work-items done since parts_measure, and how long that took. */
    cl_ulong start, end; /**< First start and last end of pieces whose part was reused; 0: none. */
    struct part of[];
};

/** @count parts that are in no residence yet; NULL without memory. Owned by the caller. */
struct parts *parts_create(unsigned count);
/** The same for pieces, of which at most @count are with the driver at once. */
struct parts *parts_create_open(unsigned count);
/** A part that is free for the next piece; NULL while all run. By the one thread that gives pieces,
 * inside the gate. */
struct part *parts_vacant(struct event *event, struct parts *parts);
/**
 * The driver queue for @part's piece in @residence: its own, where pieces may run beside one
 * another there, else NULL. On a GPU the next piece then uses what the last one leaves idle at its
 * end. A queue of its own waits for nothing, so it is used only once a piece has ended. Called as
 * parts_vacant.
 */
cl_command_queue parts_queue(struct event *event, struct part *part, struct residence *residence,
                             uint8_t residence_index);
/**
 * @real, given to @residence_index at @given, is the next piece, with @items work-items, of @event,
 * which is ISSUED with its parts. Owns @real. Called as parts_vacant.
 */
void parts_give(struct event *event, struct part *part, uint8_t residence_index, cl_event real,
                uint64_t given, uint64_t items);
/** No more pieces will be given; @error is that of the next piece if it was refused, else
 * CL_SUCCESS. */
void parts_close(struct parts *parts, cl_int error);
/**
 * A helper does some of the command elsewhere: it does not end before parts_unshare, whatever
 * happens to its pieces. With engine_lock.
 */
void parts_share(struct parts *parts);
/** The helper's results were merged, or its groups given back: the command may end now. Inside the
 * gate; not with engine_lock. */
void parts_unshare(struct event *event);
/** Work-items done since the last call, and the time they took. False while that is too little to
 * tell the speed. */
bool parts_measure(struct parts *parts, uint64_t *ret_items, uint64_t *ret_ns);
/**
 * Give a part to @queue by @issue, in no order with other commands. If the driver refuses it, the
 * part ends with that error. Inside the gate; returns the driver's error.
 */
cl_int part_issue(struct part *part, struct context *context, uint8_t residence_index,
                  bool profiled,
                  cl_int (*issue)(void *data, struct residence *residence, uint8_t residence_index,
                                  cl_command_queue queue, cl_event *ret_event),
                  void *data);
/** Release the driver objects of parts that nobody waits for. Inside the gate. */
void parts_release(struct parts *parts, const struct context *context);
/** The event is destroyed. Any thread. */
void parts_leave(struct parts *parts);

/**
 * The parts of @event, DEFERRED, were given to their drivers: it becomes ISSUED, and is watched (a
 * watch exists: event_watch). Owns @parts. Inside the gate.
 */
void event_issued_in_parts(struct event *event, struct parts *parts);

/** Ask the drivers, and note which parts have ended. Returns the event's status. Inside the gate.
 */
cl_int parts_status(struct event *event);
/** The residence of a part that runs, or RESIDENCE_NONE. Inside the gate. */
uint8_t parts_residence_index(const struct event *event);
/** Have the drivers report the end of each part. Inside the gate; once. */
void parts_ask(struct event *event);
/**
 * Wait in the drivers until all parts have ended; remaining pieces are given meanwhile. Outside the
 * gate; @event is held.
 * @event is held.
 */
void parts_wait(struct event *event);
/** As event_profiling, for an event that is ISSUED. Inside the gate. */
cl_int parts_time(struct event *event, cl_profiling_info name, cl_ulong *ret_time);
/** When the pieces began whose times are known; 0: none is. */
cl_ulong parts_start_so_far(const struct event *event);
/** After all parts have ended: release driver objects that are not needed any more. Inside the
 * gate; by one thread. */
void parts_ended(struct event *event);

/** Wait for every part in @residence_index, so that no event of @context uses that residence
 * afterwards. By a mover, with the gate closed. */
void parts_drain(const struct context *context, uint8_t residence_index);
/** Call @visit for each part that runs in a queue of its own, since markers in the program's
 * queues do not come behind it. Gate closed. */
void parts_each_beside(void (*visit)(void *data, const struct event *event, uint8_t residence_index,
                                     cl_event real),
                       void *data);
/** Number of driver objects of all parts; for residence_reserve. */
size_t parts_real_count(void);
/** Retire the driver objects that the parts of @event have in @residence_index. They were drained,
 * or, with @recovers, pieces that have not ended are given again. By a mover, at COMMIT. True when
 * no part has any left anywhere, and none is given again. */
bool parts_settle(struct event *event, struct residence *residence, uint8_t residence_index,
                  bool recovers);
/** The pieces of @event that parts_settle found lost have ended in @status: they were given again,
 * or never will be. Gate closed. */
void parts_end_lost(struct event *event, cl_int status);
/** Note that all pieces given so far have ended, as markers behind them have. By a mover, with the
 * gate closed. False: a driver says otherwise. */
MUST_CHECK bool parts_note_ends(struct event *event);
/** The residence whose driver reports an error of a piece that counts as running; RESIDENCE_NONE:
 * none does. Inside the gate. */
uint8_t parts_failing(const struct event *event);

#endif
