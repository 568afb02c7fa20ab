#ifndef RESEAT_STATE_COMMAND_EVENT_H
#define RESEAT_STATE_COMMAND_EVENT_H

#include "state/object/context.h"

/*
 * Events. A command's event is DEFERRED until the command is given to a driver, then ISSUED with a
 * real event, then DONE once a mover saw it complete and let the real one go. User events are ours
 * alone: no driver ever waits for the program.
 */

enum event_state {
    EVENT_DEFERRED, /**< Its command waits with us; or a user event that was not set. */
    EVENT_ISSUED,   /**< `real` answers, or `parts`. */
    EVENT_DONE,     /**< `status` and `times` answer. */
};

struct parts; /* parts.h */
struct queue;
struct watch;

/**
 * Guards the graph of deferred commands and the callbacks of events. Order: after the gate, before
 * no other lock; no driver or program code runs under it. engine_changed: some event or queue is no
 * longer held.
 */
extern pthread_mutex_t engine_lock;
extern pthread_cond_t engine_changed;

struct event {
    struct object object;
    struct context *context; /**< Held through the queue, or for user events by itself. */
    struct queue *queue;     /**< Held; NULL for user events. */
    cl_command_type type;
    bool user;
    bool profiled;           /**< Its queue keeps times. */
    uint8_t residence_index; /**< Of `real`. */
    _Atomic uint32_t state;
    _Atomic cl_int
        status; /**< While DEFERRED: CL_QUEUED or CL_SUBMITTED; ended or DONE: the last. */
    /** An error that its driver reported of a program that is protected: not asked for, asked what
     * is behind it, or its own. */
    _Atomic uint8_t doubt;
    uint64_t digest;  /**< Of what a read gave that the program waited for; 0: not known. */
    bool kept;        /**< Its command is in the journal, or was: it can be given again. */
    uint64_t settled; /**< journal_settle: the last that found something behind it to have ended. */
    _Atomic cl_int seen; /**< ISSUED in a protected program: the last that it was told. */
    atomic_bool ended;   /**< ISSUED, and its driver said that it ended. */
    cl_event real;
    struct parts
        *parts; /**< Owned; of a command that is several for drivers: there is no `real`. */
    /** The queue's `order` just before and after it was given to the driver; `given` is 0 once it
     *  was waited for. */
    uint64_t begun;
    _Atomic uint64_t given;
    /** DONE: QUEUED, SUBMIT, START, END, COMPLETE, in the program's clock. The first before that,
     *  of a deferred command: when it was enqueued, by the host's clock; ISSUED: how long it was
     * held, and of SUBMIT, START and END what the program was told, or 0. */
    cl_ulong times[5];
    struct watch *_Atomic watch; /**< Owned; NULL: nobody is to be told what becomes of it. */
    /** Of object.refs: those of callbacks to come, which keep the handle valid for them. */
    _Atomic uint32_t callback_refs;
};

static inline struct event *event_get(cl_event handle)
{
    return object_get(handle, OBJECT_EVENT);
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

/** A wait of the driver's for @event, which was ISSUED then, succeeded. */
void event_waited(struct event *event);
/** The command was given to the driver: DEFERRED becomes ISSUED. Inside the gate. Owns @real. */
void event_issued(struct event *event, uint8_t residence_index, cl_event real);
/** The same for a command that was held: whoever waits for it goes on, callbacks are registered. */
void event_issued_late(struct event *event, uint8_t residence_index, cl_event real);
/** Have deferred commands looked at when @event, ISSUED in another residence, ends. Inside the
 * gate. False without memory or threads for that. */
MUST_CHECK bool event_watch(struct event *event);
/** Undo event_create of an event that was not published. NULL is allowed. */
void event_discard(struct event *event);
/** The end, without a driver: DEFERRED becomes DONE with CL_COMPLETE or an error; callbacks fire.
 */
void event_finish(struct event *event, cl_int status);

/** clSetUserEventStatus: deferred commands that waited for it go on, or end in error. */
cl_int event_set_user_status(struct event *event, cl_int status);

/** CL_EVENT_COMMAND_EXECUTION_STATUS now. Never blocks on a device, but where a protected program
 * may have lost it, until what it did there was done again elsewhere. */
cl_int event_status(struct event *event);
/** The same, for a caller inside the gate. */
cl_int event_status_inside(struct event *event);
/** What the driver says of an ISSUED event, but for one that is known to have ended; false when it
 *  does not answer. Inside the gate. */
bool event_real_status(const struct event *event, cl_int *ret_status);
/** Whom a callback of @residence's driver has to ask for the event's own status; NULL: nobody. */
static inline const cl_icd_dispatch *event_asks_in_callback(const struct residence *residence)
{
    const struct device *device = residence->device;
    return UNLIKELY(device->quirks & QUIRK_CALLS_COMPLETE) ? device->cl : NULL;
}
/** The status of @real, whose callback for CL_COMPLETE was called with @status: in that callback.
 * @asks  As above, of the time when the callback was registered. */
cl_int event_reported_end(const cl_icd_dispatch *asks, cl_event real, cl_int status);
/** True when @event is known to have ended in error. */
static inline bool event_failed(const struct event *event)
{
    return event_has_ended(event) && atomic_load(&event->status) < 0;
}

/**
 * What its driver says of @event, ISSUED, taken with care: where the program is protected an error
 * may be the device's, and what was begun on it is done again. True: it stands. Otherwise that is
 * being found out, and until then the command is under way. Anywhere, also with engine_lock.
 */
bool event_stands(struct event *event, cl_int status);
/** That is being found out of @event. Anywhere. */
bool event_is_doubted(const struct event *event);
/** Find it out at once where it is. True: its device is lost. Blocks as residence_failed; not
 * inside the gate. */
bool event_is_lost(struct event *event);
/** All its times are @time: nothing else is known. Before it is DONE; gate closed. */
void event_ended_at(struct event *event, cl_ulong time);

/**
 * Wait until all have ended; the entry point's clWaitForEvents. Outside the gate.
 * Returns CL_SUCCESS or CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST.
 */
cl_int event_wait(cl_uint count, struct event *const *events);

/** clSetEventCallback: called once, on a thread of ours, after those for earlier statuses. */
cl_int event_set_callback(struct event *event, cl_int type,
                          void(CL_CALLBACK *call)(cl_event, cl_int, void *), void *data);
cl_int event_profiling(struct event *event, cl_profiling_info name, cl_ulong *ret_time);
/** What its driver says of @real, in @residence_index, of a command of @event's queue, in the
 * program's clock; 0 where it says nothing. Inside the gate. */
cl_int event_real_time(struct event *event, uint8_t residence_index, cl_event real,
                       cl_profiling_info name, cl_ulong *ret_time);

#endif
