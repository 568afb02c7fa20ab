#ifndef RESEAT_STATE_COMMAND_EVENT_H
#define RESEAT_STATE_COMMAND_EVENT_H

#include "state/object/context.h"

/*
 * Events. A command's event is DEFERRED until the command is given to a driver, then ISSUED with a
 * real event, then DONE once a mover saw it complete and released the real one. User events exist
 * only in the library: no driver ever waits for the program.
 */

enum event_state {
    EVENT_DEFERRED, /**< Its command was not given to a driver yet; or a user event that was not
                       set. */
    EVENT_ISSUED,   /**< Its status is that of `real`, or of `parts`. */
    EVENT_DONE,     /**< Its status and times are in `status` and `times`. */
};

struct parts; /* parts.h */
struct queue;
struct watch;

/**
 * Guards the graph of deferred commands and the callbacks of events. Innermost lock, taken after
 * the gate; no driver or program code runs under it. engine_changed: some event or queue is not
 * deferred any more.
 */
extern pthread_mutex_t engine_lock;
extern pthread_cond_t engine_changed;

struct event {
    struct object object;
    struct context *context; /**< Held through the queue, or for user events by itself. */
    struct queue *queue;     /**< Held; NULL for user events. */
    cl_command_type type;
    bool user;
    bool profiled;           /**< Its queue has profiling. */
    uint8_t residence_index; /**< Residence of `real`. */
    _Atomic uint32_t state;
    _Atomic cl_int status; /**< While DEFERRED: CL_QUEUED or CL_SUBMITTED; when it failed or is
                              DONE: the final status. */
    /** An error that its driver reported of a program that is protected: not asked for, asked what
     * is behind it, or its own. */
    _Atomic uint8_t doubt;
    uint64_t digest;  /**< Digest of the bytes that a blocking read gave; 0: not known. */
    bool kept;        /**< Its command is or was in the journal, so it can be replayed. */
    uint64_t settled; /**< Used by journal_settle: the last pass that found a later command to have
                         ended. */
    _Atomic cl_int seen; /**< While ISSUED in a protected program: the last status that the program
                            was told. */
    atomic_bool ended;   /**< While ISSUED: its driver reported that it ended. */
    cl_event real;
    struct parts *parts; /**< Owned; for a command that consists of several driver commands: there
                            is no `real`. */
    /** The queue's `order` just before and just after the command was given to the driver; `given`
     * is 0 once it was waited for. */
    uint64_t begun;
    _Atomic uint64_t given;
    /** When DONE: QUEUED, SUBMIT, START, END, COMPLETE, in the program's clock. Before that,
     * times[0] is when a deferred command was enqueued, by the host's clock; while ISSUED: how long
     * it was deferred, and the other times are what the program was told, or 0. */
    cl_ulong times[5];
    struct event *power_next;    /**< Used by power.c; guarded by engine_lock. */
    struct watch *_Atomic watch; /**< Owned; NULL: nothing waits for a change of its status. */
    /** Part of the object's references: those of pending callbacks, which keep the handle valid for
     * them.
     */
    _Atomic uint32_t callback_refs;
};

static inline struct event *event_get(cl_event handle)
{
    return object_get(handle, OBJECT_EVENT);
}
/** NULL: the handle is not valid. */
static inline const void *event_context_of(cl_event handle)
{
    const struct event *event = event_get(handle);
    return event ? event->context : NULL;
}
static inline enum event_state event_state(const struct event *event)
{
    return (enum event_state)atomic_load_explicit(&event->state, memory_order_acquire);
}

/** True when @event is known to have ended. */
static inline bool event_has_ended(const struct event *event)
{
    return event_state(event) == EVENT_DONE || atomic_load(&event->ended);
}

/** A DEFERRED event, unpublished; NULL without memory. @queue is NULL for user events. */
struct event *event_create(struct context *context, struct queue *queue, cl_command_type type);

/** The driver's wait for @event, which was ISSUED then, succeeded. */
void event_waited(struct event *event);
/** The command was given to the driver: DEFERRED becomes ISSUED. Inside the gate. Owns @real. */
void event_issued(struct event *event, uint8_t residence_index, cl_event real);
/** The same for a deferred command: threads that wait for it continue, callbacks are registered. */
void event_issued_late(struct event *event, uint8_t residence_index, cl_event real);
/** Have deferred commands checked when @event, which is ISSUED in another residence, ends. Inside
 * the gate. False without memory or threads for that. */
MUST_CHECK bool event_watch(struct event *event);
/** Undo event_create of an event that was not published. NULL is allowed. */
void event_discard(struct event *event);
/** End an event that no driver has: DEFERRED becomes DONE with CL_COMPLETE or an error; callbacks
 * are called. */
void event_finish(struct event *event, cl_int status);

/** clSetUserEventStatus: deferred commands that waited for it continue, or fail. */
cl_int event_set_user_status(struct event *event, cl_int status);

/** The present CL_EVENT_COMMAND_EXECUTION_STATUS. Does not block on a device, except in a protected
 * program whose device may be lost: then until the work was done again elsewhere. */
cl_int event_status(struct event *event);
/** The same, for a caller inside the gate. */
cl_int event_status_inside(struct event *event);
/** The driver's status of an ISSUED event, or the final one if that is known; false when the driver
 * does not answer. Inside the gate. */
bool event_real_status(const struct event *event, cl_int *ret_status);
/** The table for asking the event's own status in a callback of @residence's driver; NULL: the
 * callback's status is right. */
static inline const cl_icd_dispatch *event_asks_in_callback(const struct residence *residence)
{
    const struct device *device = residence->device;
    return UNLIKELY(device->quirks & QUIRK_CALLS_COMPLETE) ? device->cl : NULL;
}
/**
 * The status of @real, for use in its callback for CL_COMPLETE, which was called with @status.
 * @asks  Result of event_asks_in_callback when the callback was registered.
 */
cl_int event_reported_end(const cl_icd_dispatch *asks, cl_event real, cl_int status);
/** True when @event is known to have ended in error. */
static inline bool event_failed(const struct event *event)
{
    return event_has_ended(event) && atomic_load(&event->status) < 0;
}

/**
 * Check a driver's @status of an ISSUED event: in a protected program an error may come from a lost
 * device, and then the work is done again. True: the status is final. False: this is being checked
 * on another thread, and until then the command counts as running. Anywhere, also with engine_lock.
 */
bool event_stands(struct event *event, cl_int status);
/** True while that check of @event is under way. Anywhere. */
bool event_is_doubted(const struct event *event);
/** What it was doubted for was done again elsewhere. Anywhere. */
void event_trust(struct event *event);
/** Complete that check at once if it is under way. True: its device is lost. Blocks as
 * residence_failed; not inside the gate. */
bool event_is_lost(struct event *event);
/** Set all of its times to @time, because no others are known. Before it is DONE; gate closed. */
void event_ended_at(struct event *event, cl_ulong time);

/** Wait until all events have ended, for clWaitForEvents. Outside the gate. Returns CL_SUCCESS or
 * CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST. */
cl_int event_wait(cl_uint count, struct event *const *events);

/** clSetEventCallback: called once, on a thread of ours, after those for earlier statuses. */
cl_int event_set_callback(struct event *event, cl_int type,
                          void(CL_CALLBACK *call)(cl_event, cl_int, void *), void *data);
cl_int event_profiling(struct event *event, cl_profiling_info name, cl_ulong *ret_time);
/** The one time of a command that ended on a device which is lost, and did not tell: when it was
 * lost, but not after what came later in an in-order queue and is known. By a mover. */
cl_ulong event_lost_time(const struct event *event);
/** The profiling time @name of @real, in @residence_index, of a command in @event's queue, in the
 * program's clock; 0 if the driver does not tell it. Inside the gate. */
cl_int event_real_time(struct event *event, uint8_t residence_index, cl_event real,
                       cl_profiling_info name, cl_ulong *ret_time);

/*
 * Follows the status of an event, for the program's callbacks, and for deferred commands that wait
 * for a command of another residence.
 *
 * Drivers report it by their own callbacks. Some report it late, in a strange order, or never: a
 * thread of ours polls as well, a few milliseconds later. A status that was reached once is never
 * reported as lower afterwards.
 */

/** Additional state that few events need. Owned by the event and by pending reports of drivers. */
struct watch;

/** The furthest status that the event is known to have reached; CL_QUEUED when nothing is known. */
cl_int watch_reached(const struct event *event);
/** @event has reached @status: post the callbacks that are due. With engine_lock; does nothing for
 * an event without a watch. */
void watch_advance(struct event *event, cl_int status);
/** @event has become ISSUED: ask its driver to report. Inside the gate. */
void watch_issued(struct event *event);
/** @event is destroyed. It has no watch from then on. */
void watch_leave(struct event *event);

#endif
