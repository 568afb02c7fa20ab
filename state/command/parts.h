#ifndef RESEAT_STATE_COMMAND_PARTS_H
#define RESEAT_STATE_COMMAND_PARTS_H

#include "state/command/event.h"

/*
 * A command of several parts: several driver commands, each in some residence, with one event.
 *
 * Its parts are given to their drivers once all that it has to come after has ended (it is due), so
 * that they wait for nothing, and in whatever order they run the program sees one command:
 *
 * - It is CL_SUBMITTED once its parts were given to their drivers, CL_RUNNING once one of them runs
 *   or has ended, and ends when all of them have ended, failed ones too: until then some part may
 *   still write what the program may free afterwards. It ends in the error of the first part, by
 *   their order, that failed; what the others did stays done, as of any command that fails.
 * - A part that its driver refuses has ended, in that error.
 * - Nothing is taken back: OpenCL cancels no command that was given to a driver, and a part that
 *   failed is not given again. What waited for it in its driver may have failed with it by then,
 *   and what comes behind it may have changed what it would read.
 * - It was queued and submitted when its queue's device says so of what told that it is due. The
 *   times of its parts are by the clocks of their own devices, of which only differences mean
 *   something elsewhere: each part counts as queued when the command was due. So nothing lies
 *   before what the command waited for, and nothing behind what waited for the command.
 *
 * What comes behind it in its queue is held until it has ended, and so is what waits for its event,
 * whatever its residence: drivers wait for single commands of their own.
 *
 * Pieces (pieces.h) are parts that follow one another in their command's own queue: one that has
 * ended makes room for the next, until no more come. They wait in the driver for what their command
 * waits for; their times are by the clock of the virtual device that they run on.
 */

struct part {
    struct parts *all;
    uint8_t residence_index;
    cl_command_queue queue; /**< Its own; released, or retired by a mover, after its end... */
    cl_event real;          /**< ...as is this. Both are guarded by the parts' lock. */
    _Atomic cl_int status;  /**< CL_COMPLETE or an error once it has ended, CL_SUBMITTED before. */
    cl_ulong start, end;    /**< Since it was queued; kept once `real` is gone. */
    uint64_t serial;        /**< Which piece it is. Guarded by engine_lock, as the rest. */
    uint64_t given;         /**< When a piece was, by the host's clock. */
    uint64_t items;         /**< What a piece has to do. */
};

struct parts {
    _Atomic uint32_t refs; /**< The event's, and one for each report of a driver to come. */
    struct event *event;   /**< Guarded by engine_lock; NULL: it is gone. */
    /** Held over calls of drivers that ask of an event, keep it or let it go: while one thread asks
     *  of a piece another may have the next one take its place. Before engine_lock. */
    pthread_mutex_t lock;
    unsigned count;
    unsigned left;                /**< That have not ended. Guarded by engine_lock. */
    unsigned sharers;             /**< Who do some of it elsewhere (share.h). Likewise. */
    cl_ulong queued, submit, due; /**< In the program's clock. */

    /* Of pieces; guarded by engine_lock. */
    bool pieces;
    atomic_bool open;    /**< More may come: it has not ended. */
    uint64_t serial;     /**< Of the last one given. */
    uint64_t failed;     /**< Of the first that failed; 0: none. */
    cl_int error;        /**< What became of that one. */
    uint64_t ended;      /**< When one ended last, by the host's clock. */
    uint64_t items, ns;  /**< What was done since parts_measure, and how long that took. */
    cl_ulong start, end; /**< Of all that left their part to another; 0: none. */
    struct part of[];
};

/** @count parts that are in no residence yet; NULL without memory. Owned by the caller. */
struct parts *parts_create(unsigned count);
/** The same for pieces, of which @count at most are with the driver at once. */
struct parts *parts_create_open(unsigned count);
/** A part without a piece that runs, made free for another; NULL while all run. By the one thread
 *  that gives pieces, inside the gate. */
struct part *parts_vacant(struct event *event, struct parts *parts);
/**
 * The driver's queue that @part's piece is given to in @residence: its own, where pieces may run
 * beside one another there, else NULL. On a GPU what one piece leaves idle at its end the next one
 * fills. One of its own waits for nothing, so it is had only once a piece has ended. As
 * parts_vacant.
 */
cl_command_queue parts_queue(struct event *event, struct part *part, struct residence *residence,
                             uint8_t residence_index);
/** @real, given to @residence_index at @given, is the next piece, with @items to do, of @event,
 * which is ISSUED with @parts. Owns @real. As parts_vacant. */
void parts_give(struct event *event, struct part *part, uint8_t residence_index, cl_event real,
                uint64_t given, uint64_t items);
/** No more come; unless @error is CL_SUCCESS, it is what became of the one that was to come. */
void parts_close(struct parts *parts, cl_int error);
/**
 * Somebody does some of it elsewhere: whatever becomes of its pieces, it does not end before
 * parts_unshare. Under engine_lock.
 */
void parts_share(struct parts *parts);
/** What was done elsewhere is here, or given back: it ends now at the earliest. Inside the gate;
 * not under engine_lock. */
void parts_unshare(struct event *event);
/** How much was done since it was asked last, and how long that took. False while that says too
 *  little about how fast it is. */
bool parts_measure(struct parts *parts, uint64_t *ret_items, uint64_t *ret_ns);
/**
 * A command on @queue, in no order with any other: @issue gives it to the driver. A refusal is what
 * becomes of the part. Inside the gate; returns what the driver says.
 */
cl_int part_issue(struct part *part, struct context *context, uint8_t residence_index,
                  bool profiled,
                  cl_int (*issue)(void *data, struct residence *residence, uint8_t residence_index,
                                  cl_command_queue queue, cl_event *ret_event),
                  void *data);
/** Release what is left of them, which nobody waits for. Inside the gate. */
void parts_release(struct parts *parts, const struct context *context);
/** The event ends its life. Any thread. */
void parts_leave(struct parts *parts);

/**
 * The parts of @event, DEFERRED, were given to their drivers: it becomes ISSUED, and is watched (a
 * watch exists: event_watch). Owns @parts. Inside the gate.
 */
void event_issued_in_parts(struct event *event, struct parts *parts);

/** Ask the drivers; what has ended is noted. Returns the event's status. Inside the gate. */
cl_int parts_status(struct event *event);
/** The place of a part that runs, or RESIDENCE_NONE. Inside the gate. */
uint8_t parts_residence_index(const struct event *event);
/** Have the drivers report the ends. Inside the gate; once. */
void parts_ask(struct event *event);
/** Wait in the drivers until all have ended; pieces to come are given meanwhile. Outside the gate;
 *  @event is held. */
void parts_wait(struct event *event);
/** As event_profiling, of an event that is ISSUED. Inside the gate. */
cl_int parts_time(struct event *event, cl_profiling_info name, cl_ulong *ret_time);
/** All have ended: give back what drivers need no more. Inside the gate; by one thread. */
void parts_ended(struct event *event);

/** Wait for every part in @residence_index: no event of @context uses what is there afterwards. By
 * a mover, with the gate closed. */
void parts_drain(const struct context *context, uint8_t residence_index);
/** Call @visit for each piece that runs in a queue of its own, behind which no marker in the
 *  program's queues comes. Gate closed. */
void parts_each_beside(void (*visit)(void *data, const struct event *event, uint8_t residence_index,
                                     cl_event real),
                       void *data);
/** Real objects that they have in all; for residence_reserve. */
size_t parts_real_count(void);
/** Retire with @residence what the parts of @event have in @residence_index. They were drained. By
 *  a mover, at COMMIT. True when none has anything anywhere any more. */
bool parts_settle(struct event *event, struct residence *residence, uint8_t residence_index);

#endif
