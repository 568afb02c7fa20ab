#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/threads/callback.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/command/elsewhere.h"
#include "state/command/journal.h"
#include "state/command/parts.h"
#include "state/command/pieces.h"
#include "state/command/place.h"
#include "state/command/power.h"
#include "state/command/traced.h"
#include "state/command/watch.h"
#include "state/object/lost.h"
#include "state/object/upcalls.h"
#include "state/program/pace.h"

/*
 * A deferred command. It is on its queue's list, which engine_lock guards, until it was issued or
 * cancelled.
 */
struct deferred {
    struct deferred *next;
    uint64_t serial;
    bool issuing;
    bool given;     /* issued in parts: stays on the list until all of them have ended */
    unsigned tries; /* retries, for context_outlives */
    bool paced;     /* it is being issued under a power cap */
    bool kept;      /* the journal owns its command */
    bool left;      /* in a forked child: only the parent issues it */
    bool visible;   /* the program has its event */
    bool tracked; /* it stays on the list until it has ended: the queue's launches may be placed */
    bool held;    /* its event does not end before it is the first on the list (a sharer) */
    uint32_t to;  /* PLACE_HOME, or the helper that it is to be given to */
    struct event
        *marker;    /* held; for a read elsewhere: the marker that has to end first. Or NULL */
    uint64_t since; /* when it was enqueued, by the host's clock */
    cl_int refused; /* the last error of the driver */
    cl_int error;   /* the error that cancels it although its wait list succeeded */
    struct command *command; /* owned */
    struct event *event;     /* deferred; or NULL */
    cl_uint waits;
    struct event *wait_list[]; /* deferred */
};

/* Results of defer_let_go besides OpenCL errors and COMMAND_ABSENT. */
#define MARKED      2
#define PARTS_GIVEN 3

/* ---- power caps: power.h ---- */

/*
 * Launches submitted to the driver at once: enough that small ones keep the device busy, few enough
 * that they end soon.
 */
#define POWER_AT_ONCE 4

atomic_bool power_capped;

static atomic_bool power_used; /* set when a cap first concerned the program */

static struct {
    uint64_t until;     /* launches may be submitted until then; 0: not at all */
    bool refused;       /* a launch waits for power */
    bool unmarked;      /* launches from before the cap are not in the list yet */
    unsigned beginning; /* launches being submitted to the driver */
    /* Launches submitted to the driver, and markers behind those from before the cap. Held. */
    struct event *first;
    void (*wake)(void);
    struct power_state said; /* the state that was last read, or told of by `wake` */
} power;                     /* guarded by engine_lock */

/*
 * True when no driver has work of the launch: its remaining pieces, or launches that come before
 * it, may wait for power.
 */
static bool power_is_idle(const struct event *event)
{
    return event_has_ended(event) || (event->parts && event->parts->left == 0 &&
                                      event->parts->sharers <= (event->parts->held ? 1u : 0u));
}

static bool power_any_runs(void)
{
    const struct event *event = power.first;
    while (event && power_is_idle(event))
        event = event->power_next;
    return power.unmarked || power.beginning != 0 || event != NULL;
}

static unsigned power_count(void)
{
    unsigned count = power.beginning;
    for (const struct event *event = power.first; event; event = event->power_next)
        count += !event_has_ended(event);
    return count;
}

/* True when @command must wait for power. With engine_lock, and valid as long. */
static bool power_paces(const struct command *command)
{
    return command->ops->launches && power_is_capped();
}

/*
 * True when a launch may be submitted or, with @begun, the next piece of one. If power is not
 * granted, records that the program waits for it. With engine_lock.
 */
static bool power_admits(bool begun)
{
    if (power.until == 0 || clock_now_ns() >= power.until) {
        power.refused = true;
        return false;
    }
    return begun || power_count() < POWER_AT_ONCE;
}

/* A launch or a piece of one is about to be submitted to the driver. With engine_lock. */
static void power_begin(void)
{
    power.beginning++;
}

/*
 * Count the launch, or the launches before the marker, until @event has ended. Last in the list:
 * who waits for power_running() waits for what ends first. With engine_lock.
 */
static void power_add(struct event *event)
{
    struct event **link = &power.first;
    while (*link && *link != event)
        link = &(*link)->power_next;
    if (*link)
        return;
    object_hold(event);
    event->power_next = NULL;
    *link = event;
}

/* Remove @event (held) or, with NULL, all that have ended. Returns them; the caller unholds them.
 */
static struct event *power_remove(const struct event *event)
{
    struct event *removed = NULL;
    for (struct event **link = &power.first, *one; (one = *link);) {
        if (event ? one != event : !event_has_ended(one)) {
            link = &one->power_next;
            continue;
        }
        *link = one->power_next;
        one->power_next = removed;
        removed = one;
    }
    return removed;
}

/*
 * The submission has ended: @event is that of the launch, or NULL if it failed. With engine_lock.
 */
static void power_end(struct event *event)
{
    power.beginning--;
    if (event)
        power_add(event);
}

/*
 * Returns a launch that the driver runs, held for the caller, or NULL. The caller waits for it
 * because some drivers make progress only while a thread waits. With engine_lock.
 */
static struct event *power_running(void)
{
    for (struct event *event = power.first; event; event = event->power_next) {
        if (!event->parts && !event_has_ended(event)) {
            object_hold(event);
            return event;
        }
    }
    return NULL;
}

/* Remove a launch that the caller waited for: it has ended, whatever status the driver reported. */
static void power_waited(const struct event *event)
{
    pthread_mutex_lock(&engine_lock);
    struct event *removed = power_remove(event);
    pthread_mutex_unlock(&engine_lock);
    object_unhold(removed);
}

static struct power_state power_state_locked(void)
{
    return (struct power_state){.runs = power.until != 0 || power_any_runs(),
                                .wants = power.refused};
}

/* Remove the launches that have ended. Outside the gate. */
static void power_tidy(void)
{
    if (LIKELY(!atomic_load_explicit(&power_used, memory_order_relaxed)))
        return;
    pthread_mutex_lock(&engine_lock);
    struct event *ended = power_remove(NULL);
    struct power_state state = power_state_locked();
    bool changed = state.runs != power.said.runs || state.wants != power.said.wants;
    void (*wake)(void) = changed ? power.wake : NULL;
    power.said = state;
    pthread_mutex_unlock(&engine_lock);
    for (struct event *next; ended; ended = next) {
        next = ended->power_next;
        object_unhold(ended);
    }
    if (wake)
        wake();
}

/*
 * Count the launches of @queue from before the cap. Returns false if that is not possible now. With
 * the gate closed.
 */
static bool power_mark_queue(struct queue *queue)
{
    uint8_t residence_index = atomic_load(&queue->context->residence_index[queue->vdev_index]);
    struct residence *residence = queue->real ? queue->context->at[residence_index] : NULL;
    if (!residence || residence_is_lost(residence))
        return true;
    struct event *marker =
        elsewhere_mark(queue, residence, residence_index, 0, NULL, clock_now_ns());
    if (marker)
        residence_flush(residence, queue->real);
    pthread_mutex_lock(&engine_lock);
    if (marker)
        power_add(marker);
    /* Pieces may be in other queues of the driver, or on helpers' devices. */
    for (const struct deferred *h = queue->deferred_first; h; h = h->next)
        if (h->given && h->command->ops->launches)
            power_add(h->event);
    pthread_mutex_unlock(&engine_lock);
    object_unhold(marker);
    return marker != NULL;
}

/*
 * After a cap began to concern the program: count its launches from before. Whether there is a cap
 * is asked inside the gate, so once the gate was closed all launches are either counted here or
 * paced. Outside the gate.
 */
static void power_mark(void)
{
    bool marked = true;
    uintptr_t cursor = 0;
    struct queue *queue;
    pthread_mutex_lock(&engine_lock);
    bool unmarked = power.unmarked;
    pthread_mutex_unlock(&engine_lock);
    if (!unmarked || gate_close(0) != 0)
        return;
    for (; (queue = object_next(OBJECT_QUEUE, &cursor)); object_unhold(queue))
        marked = power_mark_queue(queue) && marked;
    pthread_mutex_lock(&engine_lock);
    power.unmarked = !marked;
    pthread_mutex_unlock(&engine_lock);
    gate_open();
}

void power_set(bool capped, uint64_t grant_ns)
{
    uint64_t now = clock_now_ns();
    pthread_mutex_lock(&engine_lock);
    if (capped)
        atomic_store(&power_used, true);
    if (capped != atomic_exchange(&power_capped, capped))
        power.unmarked = capped;
    power.until = !capped || grant_ns == 0      ? 0
                  : grant_ns < UINT64_MAX - now ? now + grant_ns
                                                : UINT64_MAX;
    if (power.until != 0 || !capped)
        power.refused = false;
    pthread_mutex_unlock(&engine_lock);
    if (callback_start() == 0)
        defer_pump_soon();
}

void power_read(struct power_state *ret_state)
{
    pthread_mutex_lock(&engine_lock);
    *ret_state = power.said = power_state_locked();
    pthread_mutex_unlock(&engine_lock);
}

void power_set_waker(void (*wake)(void))
{
    pthread_mutex_lock(&engine_lock);
    power.wake = wake;
    pthread_mutex_unlock(&engine_lock);
}

/* ---- deferred commands ---- */

/* True when the driver that serves @residence_index can itself wait for @event. */
static bool defer_driver_can_wait(const struct event *event, uint8_t residence_index)
{
    switch (event_state(event)) {
    case EVENT_DEFERRED:
        return false;
    case EVENT_ISSUED:
        return (event->residence_index == residence_index && !event->parts) ||
               atomic_load(&event->ended);
    default:
        return true;
    }
}

static bool defer_waits_for_all(const struct command *command)
{
    return command->ops->waits_for_all && command->wait_list_empty;
}

/*
 * True when a barrier holds @command back in an out-of-order queue, or @command is a barrier that
 * has to wait for earlier commands.
 */
static bool defer_behind_barrier(struct queue *queue, const struct command *command)
{
    bool behind = defer_waits_for_all(command);
    pthread_mutex_lock(&engine_lock);
    for (const struct deferred *h = queue->deferred_first; h && !behind; h = h->next)
        behind = h->command->ops->blocks_later;
    behind = behind && queue->deferred_first != NULL;
    pthread_mutex_unlock(&engine_lock);
    return behind;
}

HOT bool defer_needed(const struct command *command, uint8_t residence_index, cl_uint waits,
                      struct event *const *wait_list)
{
    struct queue *queue = command->queue;
    if (UNLIKELY(command->ops->launches && power_is_capped()))
        return true;
    for (cl_uint i = 0; i < waits; i++)
        if (UNLIKELY(!defer_driver_can_wait(wait_list[i], residence_index) ||
                     event_failed(wait_list[i])))
            return true;
    if (LIKELY(atomic_load_explicit(&queue->deferred_count, memory_order_acquire) == 0))
        return false;
    return queue->in_order || defer_behind_barrier(queue, command);
}

static void defer_deferred_free(struct deferred *deferred)
{
    for (cl_uint i = 0; i < deferred->waits; i++)
        object_unhold(deferred->wait_list[i]);
    object_unhold(deferred->event);
    object_unhold(deferred->marker);
    free(deferred->command);
    free(deferred);
}

/*
 * Watch the events of other virtual devices: they may be on different drivers now or after a move,
 * and no driver learns of the end of another driver's command.
 */
static bool defer_watch_others(const struct queue *queue, cl_uint waits,
                               struct event *const *wait_list)
{
    for (cl_uint i = 0; i < waits; i++) {
        const struct queue *other = wait_list[i]->queue;
        if (other && other->vdev != queue->vdev && !event_watch(wait_list[i]))
            return false;
    }
    return true;
}

static struct pieces *defer_places(const struct command *command)
{
    struct pieces *pieces =
        command->ops->pieces ? command->ops->pieces((struct command *)(uintptr_t)command) : NULL;
    return pieces && pieces->places ? pieces : NULL;
}

static cl_int defer_add_one(struct command *command, cl_uint waits, struct event *const *wait_list,
                            struct event *event, bool *ret_added);

/* A marker behind all that was given so far, before the first launch that may be placed. */
static cl_int defer_add_marker(struct queue *queue)
{
    static const struct command_ops ops = {.type = CL_COMMAND_MARKER,
                                           .size = sizeof(struct command),
                                           .issue = command_marker_issue,
                                           .defer = command_nothing_to_hold,
                                           .drop = command_nothing_to_drop};
    struct command mark;
    bool added;
    command_init(&mark, &ops, queue);
    mark.wait_list_empty = false;
    return defer_add_one(&mark, 0, NULL, NULL, &added);
}

cl_int defer_add(struct command *command, cl_uint waits, struct event *const *wait_list,
                 struct event *event)
{
    bool added = false;
    cl_int error = CL_SUCCESS;
    while (error == CL_SUCCESS && !added) {
        error = defer_add_one(command, waits, wait_list, event, &added);
        if (error == CL_SUCCESS && !added)
            error = defer_add_marker(command->queue);
    }
    return error;
}

/* @ret_added  False: a marker comes first. */
static cl_int defer_add_one(struct command *command, cl_uint waits, struct event *const *wait_list,
                            struct event *event, bool *ret_added)
{
    struct queue *queue = command->queue;
    /* defer_pump_soon needs the callback thread. */
    if (!defer_watch_others(queue, waits, wait_list) || callback_start() != 0)
        return CL_OUT_OF_HOST_MEMORY;
    struct deferred *deferred = calloc(1, sizeof(*deferred) + waits * sizeof(struct event *));
    if (!deferred)
        return CL_OUT_OF_HOST_MEMORY;
    deferred->command = malloc(command->ops->size);
    if (!deferred->command) {
        free(deferred);
        return CL_OUT_OF_HOST_MEMORY;
    }
    memcpy(deferred->command, command, command->ops->size);
    cl_int error = command->ops->defer(deferred->command);
    if (error != CL_SUCCESS) {
        free(deferred->command);
        free(deferred);
        return error;
    }
    bool marks = command->ops->type == CL_COMMAND_MARKER && !event && waits == 0 &&
                 command->ops->drop == command_nothing_to_drop && !command->ops->waits_for_all;
    const struct pieces *places = defer_places(deferred->command);
    deferred->to = PLACE_HOME;
    deferred->visible = places ? places->visible : event != NULL;
    deferred->event = event;
    deferred->since = clock_now_ns();
    if (event)
        object_hold(event);
    for (deferred->waits = 0; deferred->waits < waits; deferred->waits++) {
        deferred->wait_list[deferred->waits] = wait_list[deferred->waits];
        object_hold(wait_list[deferred->waits]);
    }
    object_hold(queue);
    pthread_mutex_lock(&engine_lock);
    *ret_added = !places || queue->places;
    if (!*ret_added) {
        pthread_mutex_unlock(&engine_lock);
        deferred->command->ops->drop(deferred->command);
        defer_deferred_free(deferred);
        object_unhold(queue);
        return CL_SUCCESS;
    }
    queue->places = queue->places || marks;
    deferred->serial = ++queue->deferred_serial;
    if (queue->deferred_last)
        queue->deferred_last->next = deferred;
    else
        queue->deferred_first = deferred;
    queue->deferred_last = deferred;
    atomic_fetch_add_explicit(&queue->deferred_count, 1, memory_order_release);
    pthread_mutex_unlock(&engine_lock);
    return CL_SUCCESS;
}

static bool defer_is_ready(const struct deferred *deferred, uint8_t residence_index)
{
    if (deferred->marker && !event_has_ended(deferred->marker))
        return false;
    for (cl_uint i = 0; i < deferred->waits; i++)
        if (!defer_driver_can_wait(deferred->wait_list[i], residence_index))
            return false;
    return true;
}

/* True when the driver has fewer pieces than it may, and more are left. With engine_lock. */
static bool defer_pieces_wanted(const struct command *command, const struct event *event)
{
    const struct parts *parts = event->parts;
    const struct pieces *pieces = command->ops->pieces((struct command *)(uintptr_t)command);
    unsigned most = pieces_know_pace(pieces) ? PIECES_AT_ONCE : 1;
    bool any =
        !pieces_none_left(pieces) || pieces_are_given(pieces); /* or the parts must be closed */
    return atomic_load(&parts->open) && !pieces->rests && any && parts->left < most;
}

/*
 * For a command whose parts run: true when all have ended, or another piece can be submitted. With
 * engine_lock.
 */
static bool defer_goes_on(const struct queue *queue, const struct deferred *deferred)
{
    return event_has_ended(deferred->event) ||
           (deferred->command->ops->pieces && queue->real && !deferred->issuing &&
            defer_pieces_wanted(deferred->command, deferred->event) &&
            (!power_paces(deferred->command) || power_admits(true)));
}

/* So many deferred commands are looked at for one that can be given. */
#define WINDOW 32
/* So many launches, or so much time of them, home has to do at least. */
#define AHEAD    2
#define AHEAD_NS NS_PER_MS

/* All that it does has ended. With engine_lock. */
static bool defer_is_done(const struct deferred *deferred)
{
    const struct parts *parts = deferred->event ? deferred->event->parts : NULL;
    return deferred->given &&
           (event_has_ended(deferred->event) ||
            (deferred->held && parts && !atomic_load(&parts->open) && parts->left == 0));
}

/* All of it was given to the queue's own driver queue, which keeps the order. Pieces of a launch
 * that is divided may run in another one, and so may a read that runs elsewhere, which has parts.
 */
static bool defer_is_at_home(const struct deferred *deferred)
{
    const struct pieces *pieces = defer_places(deferred->command);
    return deferred->given &&
           (pieces ? !pieces->placed && pieces_are_given(pieces) : !deferred->event->parts);
}

static bool defer_waits_have_ended(const struct deferred *deferred)
{
    for (cl_uint i = 0; i < deferred->waits; i++)
        if (!event_has_ended(deferred->wait_list[i]))
            return false;
    return true;
}

/* Where @h can be given now: PLACE_WAIT, PLACE_HOME or a helper. With engine_lock. */
static uint32_t defer_place_of(const struct queue *queue, struct deferred *h)
{
    struct pieces *pieces = defer_places(h->command);
    bool away = pieces && defer_waits_have_ended(h);
    uint64_t free_ns = queue->home_ended_ns;
    unsigned ahead = 0;
    bool passes = false;
    for (struct deferred *e = queue->deferred_first; e != h; e = e->next) {
        bool home = defer_is_at_home(e);
        const struct pieces *earlier = defer_places(e->command);
        if (e->given && event_has_ended(e->event))
            continue;
        /* The driver ends the events of commands at home in their order, but for those held. */
        bool ordered = home && !e->held;
        bool conflicts = !defer_is_done(e) && pieces && place_conflict(e->command, h->command);
        if (!ordered && (!pieces || (!home && conflicts)))
            return PLACE_WAIT;
        passes = passes || !ordered;
        away = away && !conflicts;
        if (home && earlier && !defer_is_done(e)) {
            ahead++;
            free_ns += earlier->expected_ns;
        }
    }
    h->held = h->visible && pieces && passes;
    if (!pieces)
        return PLACE_HOME;
    uint64_t now = clock_now_ns();
    free_ns = free_ns > now ? free_ns : now;
    uint32_t to = place_decide(h->command, pieces, free_ns, !away);
    return to == PLACE_HOME && ahead >= AHEAD && free_ns - now >= AHEAD_NS ? PLACE_WAIT : to;
}

/* As defer_pick, for a queue whose launches may be placed: these may pass commands with which they
 * have nothing to do. */
static struct deferred *defer_pick_placing(struct queue *queue, uint8_t residence_index)
{
    struct deferred *first = queue->deferred_first;
    unsigned looked = 0;
    if (first && first->held && defer_is_done(first) && !event_has_ended(first->event))
        return first;
    for (struct deferred *h = first; h && looked++ < WINDOW; h = h->next) {
        if (h->left)
            return NULL;
        if (h->given && defer_goes_on(queue, h))
            return h;
        if (h->given)
            continue;
        if (!queue->real || !defer_is_ready(h, residence_index) ||
            (power_paces(h->command) && !power_admits(false)))
            return NULL;
        h->to = defer_place_of(queue, h);
        if (h->to != PLACE_WAIT)
            return h;
    }
    return NULL;
}

/*
 * The next command of @queue that can be issued, or that was issued in parts and has ended. With
 * engine_lock.
 */
static struct deferred *defer_pick(struct queue *queue, uint8_t residence_index)
{
    if (UNLIKELY(queue->places))
        return defer_pick_placing(queue, residence_index);
    for (struct deferred *h = queue->deferred_first; h; h = h->next) {
        bool first = h == queue->deferred_first;
        if (!h->left &&
            (h->given ? defer_goes_on(queue, h)
                      : queue->real && !h->issuing && defer_is_ready(h, residence_index) &&
                            (first || !defer_waits_for_all(h->command)) &&
                            (!power_paces(h->command) || power_admits(false))))
            return h;
        if (queue->in_order || h->command->ops->blocks_later)
            return NULL;
    }
    return NULL;
}

/* With engine_lock. */
static void defer_unlink(struct queue *queue, struct deferred *deferred)
{
    struct deferred **link = &queue->deferred_first;
    struct deferred *previous = NULL;
    while (*link != deferred) {
        previous = *link;
        link = &previous->next;
    }
    *link = deferred->next;
    if (queue->deferred_last == deferred)
        queue->deferred_last = previous;
    queue->places = queue->places && queue->deferred_first;
    atomic_fetch_sub_explicit(&queue->deferred_count, 1, memory_order_release);
    pthread_cond_broadcast(&engine_changed);
}

static bool defer_waited_for_an_error(const struct deferred *deferred)
{
    for (cl_uint i = 0; i < deferred->waits; i++)
        if (event_failed(deferred->wait_list[i]))
            return true;
    return false;
}

/* Make an event for a command that the program has none of. Other threads may read the list. */
static bool defer_make_event(struct deferred *deferred)
{
    const struct command *command = deferred->command;
    struct queue *queue = command->queue;
    if (deferred->event)
        return true;
    struct event *event = event_create(queue->context, queue, command->ops->type);
    if (!event)
        return false;
    object_publish_internal(event); /* so that movers find and settle it */
    pthread_mutex_lock(&engine_lock);
    deferred->event = event;
    pthread_mutex_unlock(&engine_lock);
    return true;
}

/*
 * Read from a residence other than the queue's. First a marker is enqueued, so that the read keeps
 * its order in the queue; when the marker has ended, the read is issued in the residence with the
 * bytes.
 */
static cl_int defer_read_elsewhere(struct deferred *deferred, struct residence *residence,
                                   uint8_t residence_index)
{
    struct command *command = deferred->command;
    if (!deferred->marker) {
        deferred->marker = elsewhere_mark(command->queue, residence, residence_index,
                                          deferred->waits, deferred->wait_list, deferred->since);
        return deferred->marker ? MARKED : COMMAND_ABSENT;
    }
    if (!defer_make_event(deferred))
        return COMMAND_ABSENT;
    cl_int error = elsewhere_give(command, deferred->marker, deferred->event);
    return error == CL_SUCCESS ? PARTS_GIVEN : error;
}

static void defer_measure(struct pieces *pieces, struct parts *parts)
{
    uint64_t items, ns;
    if (!parts || !parts_measure(parts, &items, &ns))
        return;
    if (pieces->probes)
        pace_doubt(pieces->pace);
    pieces->probes = false;
    pace_measured(pieces->pace, items, ns);
    pieces->timed_items += items;
    pieces->timed_ns += ns;
}

/*
 * Report the cost of the launch to the agent. Requires that most of it was timed on one device, and
 * that the program has no other queue, whose commands would distort the time.
 */
static void defer_sample(const struct pieces *pieces)
{
    uint64_t items = pieces->groups * pieces->row;
    if (pieces->on && pieces->timed_items >= items / 2 && object_count(OBJECT_QUEUE) == 1)
        pace_sample(pieces->pace, pieces->on, items, pieces->timed_items, pieces->timed_ns);
}

/*
 * If pieces of a kernel must not run beside other commands on this driver: make the launch the only
 * command or, where that is impossible, issue the rest as one piece. If no piece was issued yet, it
 * then uses the original program.
 */
static void defer_be_alone(struct pieces *pieces, const struct queue *queue,
                           const struct residence *residence)
{
    if (!(residence->device->quirks & QUIRK_OFFSETS_MIXED) || pieces->alone || pieces->measures)
        return;
    pieces->alone = queue_alone_begin(queue);
    pieces->measures = !pieces->alone;
    pieces->whole = "its driver cannot run pieces beside the commands of other queues";
    pieces->offset_aware = pieces->offset_aware && (pieces->alone || pieces->given != 0);
}

static void defer_end_alone(struct pieces *pieces)
{
    if (pieces->alone)
        queue_alone_end();
    pieces->alone = false;
}

/* Announce the launch to helpers, once its duration can be predicted. */
static void defer_tell(struct pieces *pieces)
{
    if (LIKELY(!atomic_load_explicit(&pieces_shared, memory_order_relaxed)) || pieces->announced ||
        pieces->stays || pieces->measures || !pieces_know_pace(pieces))
        return;
    pieces->announced = true;
    uint32_t left = atomic_load(&pieces->pace->unspread);
    if (left != 0)
        atomic_store(&pieces->pace->unspread, left - 1);
    else
        the_upcalls->share();
}

/* Take the next piece. Returns false if helpers have taken all groups. */
static bool defer_take(struct pieces *pieces)
{
    pthread_mutex_lock(&engine_lock);
    bool any = !pieces_none_left(pieces);
    if (any)
        pieces_take(pieces, pieces_of_slice(pieces));
    pthread_mutex_unlock(&engine_lock);
    return any;
}

static void defer_untake(struct pieces *pieces)
{
    pthread_mutex_lock(&engine_lock);
    pieces_untake(pieces);
    pthread_mutex_unlock(&engine_lock);
}

/* Close the parts if no helper has groups left. */
static cl_int defer_close_given(const struct pieces *pieces, struct parts *parts)
{
    pthread_mutex_lock(&engine_lock);
    bool given = pieces_are_given(pieces);
    pthread_mutex_unlock(&engine_lock);
    if (given)
        parts_close(parts, CL_SUCCESS);
    return CL_SUCCESS;
}

/*
 * Bring the command's objects and issue it, in queue @beside if that is not NULL. In that case
 * everything that the command must follow has ended. Returns as command_issue().
 */
static cl_int defer_issue(struct command *command, struct residence *residence,
                          uint8_t residence_index, cl_command_queue beside, cl_uint waits,
                          struct event *const *wait_list, uint64_t *ret_begun, uint64_t *ret_given,
                          cl_event *ret_real)
{
    cl_int error = command_ready(command, residence, residence_index);
    if (error != CL_SUCCESS)
        return error;
    *ret_begun = queue_step(command->queue);
    *ret_given = clock_now_ns();
    journal_break("a launch is given in pieces");
    if (!beside)
        return command_issue(command, residence, residence_index, waits, wait_list, ret_real);
    error = command_issue_in(command, residence, residence_index, beside, 0, NULL, ret_real);
    if (error == CL_SUCCESS)
        residence_flush(residence, beside);
    return error;
}

/* Issue the next piece in a vacant part. From the first piece on, the event owns the parts. */
static cl_int defer_give(struct command *command, struct pieces *pieces, struct event *event,
                         struct parts *parts, struct residence *residence, uint8_t residence_index,
                         cl_uint waits, struct event *const *wait_list)
{
    cl_event real;
    struct part *part = parts_vacant(event, parts);
    if (!part)
        return COMMAND_ABSENT; /* not reached: PIECES_AT_ONCE limits the pieces that run */
    defer_be_alone(pieces, command->queue, residence);
    uint64_t begun, given;
    cl_int error = CL_SUCCESS;
    bool any = defer_take(pieces);
    if (any)
        error = defer_issue(command, residence, residence_index,
                            parts_queue(event, part, residence, residence_index), waits, wait_list,
                            &begun, &given, &real);
    if (any && error != CL_SUCCESS)
        defer_untake(pieces);
    if (error != CL_SUCCESS)
        return error;
    if (!any)
        return defer_close_given(pieces, parts);
    command_begin_anew(command); /* bring objects again: each piece may need room */
    if (event_state(event) == EVENT_DEFERRED) {
        event->begun = begun;
        event_issued_in_parts(event, parts);
    }
    parts_give(event, part, residence_index, real, given, pieces->count * pieces->row);
    if (pieces->given == 1)
        pieces->on = residence->device;
    else if (pieces->on != residence->device)
        pieces->on = NULL;
    defer_tell(pieces);
    return defer_close_given(pieces, parts);
}

/*
 * Issue the next piece. The command's event is DEFERRED before the first piece and ISSUED
 * afterwards. Inside the gate. Returns CL_SUCCESS, COMMAND_ABSENT or, before the first piece only,
 * the error that the command ends with.
 */
static cl_int defer_pieces_give(struct deferred *deferred, struct residence *residence,
                                uint8_t residence_index)
{
    struct command *command = deferred->command;
    struct event *event = deferred->event, *const *wait_list = deferred->wait_list;
    struct pieces *pieces = command->ops->pieces(command);
    cl_uint waits = deferred->waits;
    if (event->parts) {
        defer_measure(pieces, event->parts);
        cl_int error = defer_give(command, pieces, event, event->parts, residence, residence_index,
                                  waits, wait_list);
        if (error != CL_SUCCESS && error != COMMAND_ABSENT) {
            parts_close(event->parts, error);
            return CL_SUCCESS;
        }
        return error;
    }
    struct parts *parts = event_watch(event) ? parts_create_open(PIECES_AT_ONCE) : NULL;
    if (!parts)
        return CL_OUT_OF_HOST_MEMORY;
    parts->sharers = parts->held = deferred->held; /* nobody else knows the parts yet */
    cl_int error =
        defer_give(command, pieces, event, parts, residence, residence_index, waits, wait_list);
    if (error != CL_SUCCESS) {
        defer_end_alone(pieces);
        parts_leave(parts);
    }
    return error;
}

/* How long a launch took at home: from when it was given, or the launch before it ended. */
static void defer_learn(const struct pieces *pieces, struct queue *queue, const struct event *event)
{
    const struct parts *parts = event->parts;
    pthread_mutex_lock(&engine_lock);
    uint64_t given = parts->of[0].given, ended = parts->ended;
    uint64_t since = given > queue->home_ended_ns ? given : queue->home_ended_ns;
    if (parts->serial != 0 && !event_failed(event) && ended > since && pieces->on)
        place_learn(pieces->pace, pieces->on, pieces->row, ended - since);
    if (pieces->on)
        place_count(pieces->on);
    queue->home_ended_ns = ended > queue->home_ended_ns ? ended : queue->home_ended_ns;
    pthread_mutex_unlock(&engine_lock);
}

/* All parts and the event have ended. */
static void defer_pieces_ended(struct command *command, struct event *event)
{
    struct pieces *pieces = command->ops->pieces(command);
    defer_end_alone(pieces);
    if (pieces->places) {
        defer_learn(pieces, command->queue, event);
        return;
    }
    defer_measure(pieces, event->parts);
    traced_pieces(command->queue, pieces);
    if (event_failed(event))
        return;
    defer_sample(pieces);
    pace_settle(pieces->pace, pieces->groups * pieces->row);
    if (pieces->measures && pieces->groups * pieces->row >= atomic_load(&pieces->pace->whole))
        pace_goes_whole(pieces->pace, pieces->whole);
}

/* Issue the next piece of a command, or end it. Returns as defer_let_go(). */
static cl_int defer_let_piece_go(struct deferred *deferred, struct residence *residence,
                                 uint8_t residence_index)
{
    cl_int error = deferred->error;
    if (deferred->given && error != CL_SUCCESS) {
        residency_token_release(deferred->command);
        parts_close(deferred->event->parts, error);
        return PARTS_GIVEN;
    }
    if (!deferred->given)
        deferred->event->times[0] = clock_now_ns() - deferred->since;
    error = defer_pieces_give(deferred, residence, residence_index);
    return error == CL_SUCCESS ? PARTS_GIVEN : error;
}

/*
 * Issue the whole command. Returns as command_issue(). In a protected program, the journal may own
 * the command afterwards.
 */
static cl_int defer_give_whole(struct deferred *deferred, struct residence *residence,
                               uint8_t residence_index, cl_event *ret_real)
{
    bool kept = atomic_load_explicit(&journal_is_kept, memory_order_relaxed);
    struct journal_entry *entry =
        kept ? journal_prepare(deferred->command, true, deferred->waits, deferred->wait_list)
             : NULL;
    cl_int error = command_issue(deferred->command, residence, residence_index, deferred->waits,
                                 deferred->wait_list, ret_real);
    if (kept && error == CL_SUCCESS)
        deferred->kept = journal_add(entry, deferred->command, deferred->event);
    else if (kept)
        journal_drop(entry);
    return error;
}

/*
 * Handle an error of the driver. In a protected program the device may be lost, which is checked
 * outside the gate: returns COMMAND_ABSENT in that case.
 */
static cl_int defer_doubt(struct deferred *deferred, cl_int error)
{
    if (!atomic_load_explicit(&journal_is_kept, memory_order_relaxed) || journal_broken())
        return error;
    deferred->refused = error;
    return COMMAND_ABSENT;
}

/* Give a launch to a helper. False: without memory, or another queue is there, or the program was
 * protected or its power capped since the launch was deferred; home does it. */
static bool defer_place(struct deferred *deferred)
{
    struct command *command = deferred->command;
    struct event *event = deferred->event;
    struct pieces *pieces = command->ops->pieces(command);
    if (atomic_load(&journal_is_kept) || power_is_capped() || !event_watch(event) ||
        !(pieces->alone = queue_alone_begin(command->queue)))
        return false;
    struct parts *parts = parts_create_open(PIECES_AT_ONCE);
    if (!parts) {
        defer_end_alone(pieces);
        return false;
    }
    event->begun = queue_step(command->queue);
    event->times[0] = clock_now_ns() - deferred->since;
    event_issued_in_parts(event, parts);
    pthread_mutex_lock(&engine_lock);
    parts_share(parts);
    deferred->held = parts->held = true;
    bool placed = place_give(deferred->to, (struct placed){.queue = command->queue,
                                                           .event = event,
                                                           .command = command,
                                                           .pieces = pieces});
    if (placed) {
        parts_share(parts); /* the helper; placement.c ends that */
        pieces->done = pieces->end;
        pieces->taken = 1;
        pieces->placed = true;
    }
    /* Else the next piece of the launch, which is all of it, is given at home. */
    pthread_mutex_unlock(&engine_lock);
    return true;
}

/* Let the event of a command end, that had to wait for those before it. */
static cl_int defer_release(struct deferred *deferred)
{
    deferred->held = false;
    parts_unshare(deferred->event);
    return PARTS_GIVEN;
}

/* In a queue whose launches may be placed, each command stays on the list until it has ended, so it
 * needs an event. */
static bool defer_track(struct deferred *deferred)
{
    return defer_make_event(deferred) && event_watch(deferred->event);
}

/*
 * Issue the command, or cancel it. Inside the gate. Returns CL_SUCCESS or an error when the command
 * is finished with; COMMAND_ABSENT: bring its objects and try again; MARKED, PARTS_GIVEN: it stays
 * on the list.
 */
static cl_int defer_let_go(struct deferred *deferred, struct residence *residence,
                           uint8_t residence_index)
{
    struct command *command = deferred->command;
    cl_event real = NULL;
    uint64_t given = clock_now_ns();
    cl_int error = deferred->error;
    if (deferred->given && deferred->held && !atomic_load(&deferred->event->parts->open))
        return defer_release(deferred);
    if (deferred->given)
        return defer_let_piece_go(deferred, residence, residence_index);
    if (defer_waited_for_an_error(deferred))
        error = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    if (error == CL_SUCCESS && deferred->to < PLACE_HOME && defer_place(deferred))
        return PARTS_GIVEN;
    if (error == CL_SUCCESS && deferred->tracked && !defer_track(deferred))
        error = CL_OUT_OF_HOST_MEMORY;
    /*
     * Under a power cap, the end of this launch must be seen, because it lets the next one start.
     */
    if (error == CL_SUCCESS && deferred->paced &&
        (!defer_make_event(deferred) || !event_watch(deferred->event)))
        error = CL_OUT_OF_HOST_MEMORY;
    if (error == CL_SUCCESS && command->ops->pieces) {
        error = defer_let_piece_go(deferred, residence, residence_index);
    } else if (error == CL_SUCCESS) {
        error = command_ready(command, residence, residence_index);
        if (error == COMMAND_ABSENT && elsewhere_can(command, residence_index))
            error = defer_read_elsewhere(deferred, residence, residence_index);
        if (error == CL_SUCCESS && deferred->event)
            deferred->event->begun = queue_step(command->queue);
        if (error == CL_SUCCESS)
            error = defer_give_whole(deferred, residence, residence_index,
                                     deferred->event ? &real : NULL);
        if (error != CL_SUCCESS && error != COMMAND_ABSENT && error != MARKED &&
            error != PARTS_GIVEN)
            error = defer_doubt(deferred, error);
    }
    if (error == COMMAND_ABSENT || error == MARKED || error == PARTS_GIVEN)
        return error;
    residency_token_release(command);
    if (error != CL_SUCCESS && command->ops->cancel)
        command->ops->cancel(command);
    if (deferred->event && error == CL_SUCCESS) {
        deferred->event->times[0] =
            given - deferred->since; /* still DEFERRED, so nobody reads it */
        event_issued_late(deferred->event, residence_index, real);
        return deferred->tracked ? PARTS_GIVEN : error;
    } else if (deferred->event) {
        event_finish(deferred->event, error);
    }
    return error;
}

/*
 * Issue the ready commands of one queue, one thread at a time so that the order is kept. Inside the
 * gate.
 * Returns true if any was issued. Sets *ret_absent to a command whose objects must be brought
 * outside the gate; the queue then stays marked as pumping until the caller clears that.
 */
static bool defer_pump_inside(struct queue *queue, struct deferred **ret_absent)
{
    bool progress = false;
    uint8_t residence_index = atomic_load(&queue->context->residence_index[queue->vdev_index]);
    /*
     * While suspended there is no residence; the mover that resumes the context calls defer_pump().
     */
    struct residence *residence = queue->real ? queue->context->at[residence_index] : NULL;
    struct deferred *deferred;
    pthread_mutex_lock(&engine_lock);
    if (queue->pumping) {
        pthread_mutex_unlock(&engine_lock);
        return false;
    }
    queue->pumping = true;
    /* Some drivers run a piece within the call, so that the next one can be issued at once. */
    while (!gate_is_awaited() && (deferred = defer_pick(queue, residence_index))) {
        bool ended = deferred->given && event_has_ended(deferred->event);
        deferred->paced = !ended && power_paces(deferred->command);
        deferred->issuing = true;
        deferred->tracked = queue->places;
        if (deferred->paced)
            power_begin();
        pthread_mutex_unlock(&engine_lock);
        cl_int error = CL_SUCCESS;
        if (ended && deferred->command->ops->pieces)
            defer_pieces_ended(deferred->command, deferred->event);
        if (ended && deferred->event->parts)
            parts_ended(deferred->event);
        if (!ended)
            error = defer_let_go(deferred, residence, residence_index);
        pthread_mutex_lock(&engine_lock);
        deferred->issuing = false;
        if (deferred->paced)
            power_end(error == CL_SUCCESS || error == PARTS_GIVEN ? deferred->event : NULL);
        if (error == COMMAND_ABSENT) {
            *ret_absent = deferred;
            break;
        }
        deferred->given = error == PARTS_GIVEN;
        /*
         * Wake threads that wait for a later command. They found no running part before, and must
         * wait for this one, because some drivers make progress only while a thread waits.
         */
        if (deferred->given)
            pthread_cond_broadcast(&engine_changed);
        progress =
            progress || (deferred->given && (deferred->command->ops->pieces || queue->places));
        if (error == MARKED || error == PARTS_GIVEN)
            continue;
        defer_unlink(queue, deferred);
        pthread_mutex_unlock(&engine_lock);
        if (deferred->kept)
            deferred->command = NULL;
        else
            deferred->command->ops->drop(deferred->command);
        defer_deferred_free(deferred);
        object_unhold(queue);
        progress = true;
        pthread_mutex_lock(&engine_lock);
    }
    queue->pumping = *ret_absent != NULL;
    pthread_mutex_unlock(&engine_lock);
    if (progress && queue->real)
        residence_flush(residence, queue->real);
    return progress;
}

/*
 * Bring the command's objects, or handle its driver's error. Outside the gate. On CL_SUCCESS, the
 * caller tries to issue the command again.
 */
static cl_int defer_bring(struct deferred *deferred)
{
    struct command *command = deferred->command;
    cl_int error = deferred->refused;
    deferred->refused = CL_SUCCESS;
    if (error == CL_SUCCESS)
        error = the_upcalls->bring(command);
    if (error != CL_SUCCESS && context_outlives(command->queue->context, error, &deferred->tries)) {
        command_begin_anew(command);
        error = CL_SUCCESS;
    }
    return error;
}

static bool defer_pump_queue(struct queue *queue)
{
    bool progress = false, again = true;
    while (again) {
        struct deferred *absent = NULL;
        gate_enter();
        progress = defer_pump_inside(queue, &absent) || progress;
        again = absent != NULL || gate_is_awaited();
        gate_leave();
        if (absent) {
            cl_int error = defer_bring(absent);
            pthread_mutex_lock(&engine_lock);
            absent->error = error;
            queue->pumping = false;
            pthread_mutex_unlock(&engine_lock);
        }
    }
    return progress;
}

void defer_pump(void)
{
    int before = cancel_hold();
    bool progress = true;
    power_tidy();
    while (progress) {
        progress = false;
        uintptr_t cursor = 0;
        struct queue *queue;
        while ((queue = object_next(OBJECT_QUEUE, &cursor))) {
            if (atomic_load_explicit(&queue->deferred_count, memory_order_acquire) != 0)
                progress = defer_pump_queue(queue) || progress;
            object_unhold(queue);
        }
    }
    power_tidy();
    cancel_allow(before);
}

static atomic_bool pump_posted;

static void defer_pump_posted_job(struct callback_job *job)
{
    (void)job;
    atomic_store(&pump_posted, false); /* commands that get ready now need another job */
    power_mark();
    defer_pump();
}

void defer_pump_soon(void)
{
    static struct callback_job job = {.run = defer_pump_posted_job};
    if (!atomic_exchange(&pump_posted, true))
        callback_post(&job);
}

struct command *defer_in_pieces(const struct queue *queue, struct event **ret_event, bool *ret_busy)
{
    const struct deferred *deferred = queue->deferred_first;
    /*
     * `given` is set only after the first piece was issued and announced; `issuing` covers the time
     * before.
     */
    while (deferred && !((deferred->given || deferred->issuing) && deferred->command->ops->pieces &&
                         deferred->event->parts && atomic_load(&deferred->event->parts->open)))
        deferred = deferred->next;
    if (!deferred)
        return NULL;
    *ret_busy = queue->pumping;
    *ret_event = deferred->event;
    return queue->pumping ? NULL : deferred->command;
}

bool defer_any(void)
{
    bool any = false;
    uintptr_t cursor = 0;
    struct queue *queue;
    for (; (queue = object_next(OBJECT_QUEUE, &cursor)); object_unhold(queue))
        any = any || atomic_load(&queue->deferred_count) != 0;
    return any;
}

/*
 * True when a command with a serial up to @serial is deferred. Sets *ret_event to an event to wait
 * for: that of such a command whose parts run, or of a launch under a power cap; it is held for the
 * caller, and untouched if there is none. With engine_lock.
 */
static bool defer_deferred_until(const struct queue *queue, uint64_t serial,
                                 struct event **ret_event)
{
    bool any = false;
    for (const struct deferred *h = queue->deferred_first; h && !*ret_event; h = h->next) {
        any = any || h->serial <= serial;
        if (h->serial <= serial && h->given && !event_has_ended(h->event)) {
            object_hold(h->event);
            *ret_event = h->event;
        }
    }
    if (any && !*ret_event)
        *ret_event = power_running();
    return any;
}

static void defer_unlock_engine(void *unused)
{
    (void)unused;
    pthread_mutex_unlock(&engine_lock);
}

/* Wait for a command of one part: a launch that power was granted, or one of a queue whose launches
 * may be placed. */
static void defer_wait_for_one(struct event *event)
{
    (void)event_wait(1, &event);
    power_waited(event);
    cl_int status = event_status(event);
    pthread_mutex_lock(&engine_lock);
    watch_advance(event, status);
    pthread_mutex_unlock(&engine_lock);
}

/* Wait until all parts of @runs have ended, and drop the caller's hold. Releases engine_lock
 * meanwhile. */
static void defer_wait_unlocked(struct event *runs)
{
    int before = cancel_hold();
    pthread_mutex_unlock(&engine_lock);
    if (runs->parts)
        parts_wait(runs);
    else
        defer_wait_for_one(runs);
    object_unhold(runs);
    defer_pump();
    pthread_mutex_lock(&engine_lock);
    cancel_allow(before);
}

void defer_wait_queue(struct queue *queue)
{
    if (atomic_load_explicit(&queue->deferred_count, memory_order_acquire) == 0)
        return;
    pthread_mutex_lock(&engine_lock);
    pthread_cleanup_push(defer_unlock_engine, NULL);
    uint64_t serial = queue->deferred_serial;
    struct event *runs = NULL;
    while (defer_deferred_until(queue, serial, &runs)) {
        if (!runs) {
            pthread_cond_wait(&engine_changed, &engine_lock);
            continue;
        }
        defer_wait_unlocked(runs);
        runs = NULL;
    }
    pthread_cleanup_pop(1);
}

/* Longest chain of events that is searched for one whose parts run. */
#define CHAIN_MAX 16

/*
 * Returns an event, held for the caller, of a command whose parts run and that @event (held)
 * depends on, or NULL. With engine_lock.
 */
static struct event *defer_runs_before(const struct event *event, unsigned chain)
{
    const struct queue *queue = event->queue;
    const struct deferred *last = queue ? queue->deferred_first : NULL;
    struct event *runs = NULL;
    while (last && last->event != event)
        last = last->next;
    for (const struct deferred *h = queue ? queue->deferred_first : NULL; last && h && !runs;
         h = h->next) {
        bool before = queue->in_order || h->command->ops->blocks_later ||
                      defer_waits_for_all(last->command) || h == last;
        if (before && h->given && !event_has_ended(h->event))
            runs = h->event;
        for (cl_uint i = 0; before && !runs && i < h->waits; i++)
            if (h->wait_list[i]->parts && !event_has_ended(h->wait_list[i]))
                runs = h->wait_list[i];
            else if (event_state(h->wait_list[i]) == EVENT_DEFERRED)
                return chain < CHAIN_MAX ? defer_runs_before(h->wait_list[i], chain + 1) : NULL;
        if (h == last)
            break;
    }
    if (runs)
        object_hold(runs);
    return runs;
}

/*
 * Some drivers make progress only while a thread waits: also wait for the running parts of the
 * commands before this one.
 */
void defer_wait_event(struct event *event)
{
    if (LIKELY(event_state(event) != EVENT_DEFERRED))
        return;
    pthread_mutex_lock(&engine_lock);
    pthread_cleanup_push(defer_unlock_engine, NULL);
    while (event_state(event) == EVENT_DEFERRED) {
        struct event *runs = defer_runs_before(event, 0);
        runs = runs ? runs : power_running();
        if (!runs) {
            pthread_cond_wait(&engine_changed, &engine_lock);
            continue;
        }
        defer_wait_unlocked(runs);
    }
    pthread_cleanup_pop(1);
}

/*
 * In the child: the threads that issued deferred commands do not exist, and there is no agent yet.
 */
static void defer_in_child(void)
{
    uintptr_t cursor = 0;
    struct queue *queue;
    atomic_store(&pump_posted, false);
    atomic_store(&power_capped, false);
    power.until = 0;
    power.refused = power.unmarked = false;
    power.beginning = 0;
    power.first = NULL;
    for (; (queue = object_next(OBJECT_QUEUE, &cursor)); object_unhold(queue)) {
        queue->pumping = false;
        for (struct deferred *deferred = queue->deferred_first; deferred;
             deferred = deferred->next) {
            deferred->issuing = false;
            /*
             * The parent issues it: the driver's locks and threads are unusable in the child, and
             * some pieces may have been issued already.
             */
            deferred->left = true;
        }
    }
}

FORK_PART = {.rank = FORK_TABLE, .in_child = defer_in_child};
