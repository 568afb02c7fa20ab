#ifndef RESEAT_STATE_COMMAND_DEFERRED_H
#define RESEAT_STATE_COMMAND_DEFERRED_H

#include "state/command/command.h"
#include "state/command/pieces.h"
#include "state/command/power.h"

/*
 * Shared by the files of deferred commands:
 *
 * - defer.c: the list of each queue, and the threads that wait for it.
 * - window.c: chooses the command that can be given next.
 * - give.c: giving the chosen command to a driver, as a whole or in pieces, or to a helper.
 * - power.c: launches wait while a power cap concerns the program.
 *
 * engine_lock guards the lists, and is released while a command is given. One thread at a time
 * gives commands of a queue (queue->pumping), inside the gate. It alone changes a command that is
 * on the list; other threads read the fields of a command under engine_lock.
 */

/*
 * A deferred command. It is on its queue's list until it was given to its driver or cancelled, and
 * until it has ended where it was given in parts or is tracked.
 */
struct deferred {
    struct deferred *next;
    struct queue *queue; /* held */
    /* In the list of what was given of all queues (window.c); active_link is NULL: it is not. */
    struct deferred *active_next, **active_link;
    uint64_t serial;
    bool issuing;   /* the thread that pumps is giving it */
    bool given;     /* issued in parts: stays on the list until all of them have ended */
    unsigned tries; /* retries, for context_outlives */
    bool paced;     /* it is being issued under a power cap */
    bool kept;      /* the journal owns its command */
    bool left;      /* in a forked child: only the parent issues it */
    bool visible;   /* the program has its event */
    bool tracked;   /* it stays on the list until it has ended: defer_track_begin */
    bool marks;     /* a marker behind what the driver was given before that */
    bool held;      /* its event does not end before it is the first on the list (a sharer) */
    uint32_t to;    /* PLACE_HOME, or the helper that it is to be given to */
    /* What it uses, for window.c: a bit for each buffer, by a hash. 0: not looked at yet. */
    uint64_t reads, writes;
    struct deferred *behind; /* an earlier one on the list that it was last found to wait for */
    struct event *marker; /* held; of what elsewhere.h is about: the marker that has to end first,
                             and while it `passes` the copy's own event. Or NULL */
    bool passes;          /* its bytes are copied between residences */
    uint64_t since;       /* when it was enqueued, by the host's clock */
    cl_int refused;       /* the last error of the driver */
    cl_int error;         /* the error that cancels it although its wait list succeeded */
    struct command *command; /* owned */
    struct pieces *places;   /* the command's, if it is a launch that may be placed; or NULL */
    struct event *event;     /* held; or NULL */
    cl_uint waits;
    struct event *wait_list[]; /* held */
};

/* Results of give_deferred besides OpenCL errors and COMMAND_ABSENT. All are positive: the command
 * stays on the list. */
#define MARKED      2
#define PARTS_GIVEN 3

/* ---- window.c: with engine_lock ---- */

/**
 * The next command of @queue that can be given, or that was given in parts and has ended. NULL:
 * there is none now.
 */
struct deferred *window_pick(struct queue *queue, uint8_t residence_index);
/** True when the driver that serves @residence_index can itself wait for @event. Any thread. */
bool window_driver_can_wait(const struct event *event, uint8_t residence_index);
/** True for a marker or a barrier that waits for all commands before it. */
bool window_waits_for_all(const struct command *command);
/** The device of @queue, whose commands are tracked, runs launches of other queues, too. */
bool window_home_is_shared(const struct queue *queue);
/** @deferred, of a tracked queue, is about to be given. */
void window_activate(struct deferred *deferred);
/** It was not. */
void window_deactivate(struct deferred *deferred);
/** @deferred is about to leave the list. */
void window_forget(struct deferred *deferred);
/** Markers behind what was given before commands were tracked, that have not ended: until then it
 * is not known what the devices do. Guarded by engine_lock. */
extern unsigned window_markers;

/* ---- give.c: inside the gate, by the one thread that pumps the queue ---- */

/**
 * Give the command, or its next piece, to its driver, or cancel it.
 *
 * Returns CL_SUCCESS or an error when the command is finished with; COMMAND_ABSENT: bring its
 * objects and try again; MARKED, PARTS_GIVEN: it stays on the list.
 */
cl_int give_deferred(struct deferred *deferred, struct residence *residence,
                     uint8_t residence_index);
/** All parts and the event of a launch have ended: learn how long it took. */
void give_ended(struct command *command, struct event *event);

/* ---- power.c: with engine_lock, unless said otherwise ---- */

/** True when @command must wait for power; valid until engine_lock is released. */
bool power_paces(const struct command *command);
/**
 * True when a launch may be submitted or, with @begun, the next piece of one. If power is not
 * granted, records that the program waits for it.
 */
bool power_admits(bool begun);
/** A launch or a piece of one is about to be submitted to the driver. */
void power_begin(void);
/** The submission has ended: @event is that of the launch, or NULL if it failed. */
void power_end(struct event *event);
/**
 * A launch that the driver runs, held for the caller, or NULL. The caller waits for it because some
 * drivers make progress only while a thread waits.
 */
struct event *power_running(void);
/** Without engine_lock: the launch that the caller waited for has ended, whatever its status. */
void power_waited(const struct event *event);
/** Without engine_lock, outside the gate: stop counting the launches that have ended. */
void power_tidy(void);
/** Without engine_lock: the agent's decision (power.h, power_set). */
void power_change(bool capped, uint64_t grant_ns);
/** Count @event's launch, or the launches before a marker, until it has ended. */
void power_add(struct event *event);
/** True while launches from before the cap are not counted yet. */
bool power_is_unmarked(void);
void power_marked(void);

#endif
