#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/threads/callback.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread.h"
#include "state/base/threads/thread_own.h"
#include "state/base/threads/work.h"
#include "state/command/deferred.h"
#include "state/command/elsewhere.h"
#include "state/command/event.h"
#include "state/command/parts.h"
#include "state/command/place.h"
#include "state/object/lost.h"
#include "state/object/upcalls.h"

/*
 * The deferred commands of each queue, in their order, and the threads that wait for them. Owns
 * the lists, which engine_lock guards. defer_pump gives what can be given; threads that wait sleep
 * on engine_changed, or wait in a driver, because some drivers make progress only while a thread
 * waits.
 */

/*
 * True when a barrier holds @command back in an out-of-order queue, or @command is a barrier that
 * has to wait for earlier commands.
 */
static bool defer_behind_barrier(struct queue *queue, const struct command *command)
{
    bool behind = window_waits_for_all(command);
    pthread_mutex_lock(&engine_lock);
    for (const struct deferred *h = queue->deferred_first; h && !behind; h = h->next)
        behind = h->command->ops->blocks_later;
    behind = (behind && queue->deferred_first != NULL) || queue->tracked;
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
        if (UNLIKELY(!window_driver_can_wait(wait_list[i], residence_index) ||
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

/* For how long threads inside the gate, whose driver may run a kernel in the call, delay a launch
 * that begins to track the queues; and for how long none tries it after that. */
#define TRACK_MOST_NS (50 * NS_PER_MS)
#define TRACK_REST_NS NS_PER_S

static const struct command_ops track_ops = {
    .type = CL_COMMAND_MARKER, .size = sizeof(struct command), .issue = command_marker_issue};

/* Deferred commands of all queues, and launches that track the queues (defer_track_begin). The
 * queues that are tracked: all, or those that were marked before one could not be. */
static unsigned deferred_total;
static bool tracking;
static _Atomic uint64_t track_rests_until_ns;
static struct queue *tracked_queues;

/* With engine_lock, as the next one. The count keeps commands from being given at once. */
static void defer_begin_tracking(struct queue *queue)
{
    queue->tracked = true;
    queue->tracked_next = tracked_queues;
    tracked_queues = queue;
    atomic_fetch_add_explicit(&queue->deferred_count, 1, memory_order_release);
}

static void defer_one_less(void)
{
    if (--deferred_total != 0)
        return;
    for (; tracked_queues; tracked_queues = tracked_queues->tracked_next) {
        tracked_queues->tracked = false;
        atomic_fetch_sub_explicit(&tracked_queues->deferred_count, 1, memory_order_release);
    }
    tracking = false;
}

void defer_track_queue(struct queue *queue)
{
    pthread_mutex_lock(&engine_lock);
    if (tracking)
        defer_begin_tracking(queue);
    pthread_mutex_unlock(&engine_lock);
}

void defer_forget_queue(struct queue *queue)
{
    pthread_mutex_lock(&engine_lock);
    struct queue **link = &tracked_queues;
    while (*link && *link != queue)
        link = &(*link)->tracked_next;
    if (*link)
        *link = queue->tracked_next;
    pthread_mutex_unlock(&engine_lock);
}

/* Track @queue, behind a marker. Gate closed. */
static bool defer_mark_tracked(struct queue *queue)
{
    struct command mark;
    pthread_mutex_lock(&engine_lock);
    bool tracked = queue->tracked;
    pthread_mutex_unlock(&engine_lock);
    command_init(&mark, &track_ops, queue);
    mark.wait_list_empty = false;
    if (tracked || defer_add(&mark, 0, NULL, NULL) != CL_SUCCESS)
        return tracked;
    pthread_mutex_lock(&engine_lock);
    defer_begin_tracking(queue);
    pthread_mutex_unlock(&engine_lock);
    return true;
}

/* Returns whether queues are tracked, which then goes on until defer_track_end. */
static bool defer_hold_tracking(bool begin)
{
    pthread_mutex_lock(&engine_lock);
    tracking = tracking || begin;
    bool tracks = tracking;
    deferred_total += tracks;
    pthread_mutex_unlock(&engine_lock);
    return tracks;
}

/* Gate closed: no thread gives a command that is neither tracked nor before the marker. */
static bool defer_track_queues(void)
{
    bool marked = true;
    uintptr_t cursor = 0;
    struct queue *queue;
    for (; (queue = object_next(OBJECT_QUEUE, &cursor)); object_unhold(queue))
        marked = marked && defer_mark_tracked(queue);
    return defer_hold_tracking(marked);
}

bool defer_track_begin(void)
{
    int before = cancel_hold();
    uint64_t now = clock_now_ns();
    bool tracks = defer_hold_tracking(false),
         begins = !tracks && now >= atomic_load(&track_rests_until_ns);
    if (begins && gate_close(now + TRACK_MOST_NS) == 0) {
        tracks = defer_track_queues();
        gate_open();
        defer_pump(); /* the markers */
    } else if (begins) {
        atomic_store(&track_rests_until_ns, clock_now_ns() + TRACK_REST_NS);
    }
    cancel_allow(before);
    return tracks;
}

void defer_track_end(void)
{
    pthread_mutex_lock(&engine_lock);
    defer_one_less();
    pthread_mutex_unlock(&engine_lock);
}

/* A copy of @command, with holds on what it needs. Returns NULL, and sets *ret_error, if there is
 * no memory or the command cannot be deferred. */
static struct deferred *defer_create(const struct command *command, cl_uint waits,
                                     struct event *const *wait_list, struct event *event,
                                     cl_int *ret_error)
{
    struct deferred *deferred = calloc(1, sizeof(*deferred) + waits * sizeof(struct event *));
    struct command *copy = deferred ? malloc(command->ops->size) : NULL;
    *ret_error = CL_OUT_OF_HOST_MEMORY;
    if (copy) {
        memcpy(copy, command, command->ops->size);
        *ret_error = command_defer(copy);
    }
    if (*ret_error != CL_SUCCESS) {
        free(copy);
        free(deferred);
        return NULL;
    }
    struct pieces *pieces = copy->ops->pieces ? copy->ops->pieces(copy) : NULL;
    deferred->command = copy;
    deferred->queue = command->queue;
    deferred->marks = command->ops == &track_ops;
    deferred->places = pieces && pieces->places ? pieces : NULL;
    deferred->to = PLACE_HOME;
    deferred->visible = deferred->places ? pieces->visible : event != NULL;
    deferred->event = event;
    deferred->since = clock_now_ns();
    if (event)
        object_hold(event);
    for (; deferred->waits < waits; deferred->waits++) {
        deferred->wait_list[deferred->waits] = wait_list[deferred->waits];
        object_hold(wait_list[deferred->waits]);
    }
    object_hold(deferred->queue);
    return deferred;
}

cl_int defer_add(struct command *command, cl_uint waits, struct event *const *wait_list,
                 struct event *event)
{
    struct queue *queue = command->queue;
    cl_int error;
    /* defer_pump_soon needs the callback thread. */
    if (!defer_watch_others(queue, waits, wait_list) || callback_start() != 0)
        return CL_OUT_OF_HOST_MEMORY;
    struct deferred *deferred = defer_create(command, waits, wait_list, event, &error);
    if (!deferred)
        return error;
    pthread_mutex_lock(&engine_lock);
    window_markers += deferred->marks;
    deferred_total++;
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

/* With engine_lock. */
static void defer_unlink(struct queue *queue, struct deferred *deferred)
{
    struct deferred **link = &queue->deferred_first;
    struct deferred *previous = NULL;
    window_forget(deferred);
    window_markers -= deferred->marks;
    while (*link != deferred) {
        previous = *link;
        link = &previous->next;
    }
    *link = deferred->next;
    if (queue->deferred_last == deferred)
        queue->deferred_last = previous;
    atomic_fetch_sub_explicit(&queue->deferred_count, 1, memory_order_release);
    defer_one_less();
    pthread_cond_broadcast(&engine_changed);
}

/* Once the process ends, no thread of ours calls a driver (work.h): those of the program that wait
 * give the commands. */
static bool defer_is_over(void)
{
    return the_thread.work_depth != 0 && work_is_over();
}

/* Give what was picked, or its next piece, or what is due when all of it has ended. As
 * give_deferred. With engine_lock, which is released meanwhile. */
static cl_int defer_give(struct deferred *deferred, struct residence *residence,
                         uint8_t residence_index)
{
    const bool pieces = deferred->command->ops->pieces;
    bool ended = deferred->given && event_has_ended(deferred->event);
    cl_int error = CL_SUCCESS;
    deferred->paced = !ended && power_paces(deferred->command);
    deferred->issuing = true;
    deferred->tracked = deferred->queue->tracked;
    if (deferred->tracked)
        window_activate(deferred);
    if (deferred->paced)
        power_begin();
    pthread_mutex_unlock(&engine_lock);
    if (ended && pieces)
        give_ended(deferred->command, deferred->event);
    if (ended && deferred->event->parts)
        parts_ended(deferred->event);
    if (!ended)
        error = give_deferred(deferred, residence, residence_index);
    pthread_mutex_lock(&engine_lock);
    deferred->issuing = false;
    if (deferred->paced)
        power_end(error == CL_SUCCESS || error == PARTS_GIVEN ? deferred->event : NULL);
    if (error != COMMAND_ABSENT)
        deferred->given = error == PARTS_GIVEN;
    if (!deferred->given)
        window_deactivate(deferred);
    return error;
}

/* Nothing is left to do for it. With engine_lock, which is released meanwhile. */
static void defer_done(struct deferred *deferred)
{
    struct queue *queue = deferred->queue;
    defer_unlink(queue, deferred);
    pthread_mutex_unlock(&engine_lock);
    if (deferred->kept)
        deferred->command = NULL;
    else
        command_drop(deferred->command);
    defer_deferred_free(deferred);
    object_unhold(queue);
    pthread_mutex_lock(&engine_lock);
}

/*
 * Issue the ready commands of one queue, one thread at a time so that the order is kept. Inside the
 * gate.
 * Returns true if any was issued. Sets *ret_absent to a command whose objects must be brought
 * outside the gate; the queue then stays marked as pumping until the caller clears that. Sets
 * *ret_again if the gate is to be closed before all were looked at.
 */
static bool defer_pump_inside(struct queue *queue, struct deferred **ret_absent, bool *ret_again)
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
    while (!(*ret_again = gate_is_awaited()) && !defer_is_over() &&
           (deferred = window_pick(queue, residence_index))) {
        cl_int error = defer_give(deferred, residence, residence_index);
        if (error == COMMAND_ABSENT) {
            *ret_absent = deferred;
            break;
        }
        /*
         * Wake threads that wait for a later command. They found no running part before, and must
         * wait for this one, because some drivers make progress only while a thread waits.
         */
        if (deferred->given)
            pthread_cond_broadcast(&engine_changed);
        bool stays = error == MARKED || error == PARTS_GIVEN;
        progress = progress || !stays ||
                   (deferred->given && (deferred->command->ops->pieces || queue->tracked));
        if (!stays)
            defer_done(deferred);
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
        again = false;
        gate_enter();
        progress = defer_pump_inside(queue, &absent, &again) || progress;
        again = again || absent != NULL;
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

/* Returns the address of the last queue of which any was issued, or NULL. */
static const struct queue *defer_pump_queues(void)
{
    const struct queue *progressed = NULL;
    uintptr_t cursor = 0;
    struct queue *queue;
    for (; (queue = object_next(OBJECT_QUEUE, &cursor)); object_unhold(queue))
        if (atomic_load_explicit(&queue->deferred_count, memory_order_acquire) != 0 &&
            defer_pump_queue(queue))
            progressed = queue;
    return progressed;
}

/* Whether any queue but @but has deferred commands. */
static bool defer_others(const struct queue *but)
{
    bool others = false;
    uintptr_t cursor = 0;
    struct queue *queue;
    for (; !others && (queue = object_next(OBJECT_QUEUE, &cursor)); object_unhold(queue))
        others =
            queue != but && atomic_load_explicit(&queue->deferred_count, memory_order_acquire) != 0;
    return others;
}

void defer_pump(void)
{
    int before = cancel_hold();
    const struct queue *progressed;
    power_tidy();
    /*
     * What was given of one queue may let another one's commands go, also those that a thread added
     * meanwhile: its own look came before what they wait for was given.
     */
    do {
        progressed = defer_pump_queues();
    } while (progressed && defer_others(progressed));
    power_tidy();
    cancel_allow(before);
}

/*
 * Count the launches of @queue from before the cap. Returns false if that is not possible now. With
 * the gate closed.
 */
static bool defer_mark_queue(struct queue *queue)
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
static void defer_mark(void)
{
    bool marked = true;
    uintptr_t cursor = 0;
    struct queue *queue;
    pthread_mutex_lock(&engine_lock);
    bool unmarked = power_is_unmarked();
    pthread_mutex_unlock(&engine_lock);
    if (!unmarked || gate_close(0) != 0)
        return;
    for (; (queue = object_next(OBJECT_QUEUE, &cursor)); object_unhold(queue))
        marked = defer_mark_queue(queue) && marked;
    pthread_mutex_lock(&engine_lock);
    if (marked)
        power_marked();
    pthread_mutex_unlock(&engine_lock);
    gate_open();
}

static atomic_bool pump_posted;

static void defer_pump_posted_job(struct callback_job *job)
{
    (void)job;
    atomic_store(&pump_posted, false); /* commands that get ready now need another job */
    if (!defer_is_over()) {
        defer_mark();
        defer_pump();
    }
    if (!defer_is_over())
        return;
    pthread_mutex_lock(&engine_lock);
    pthread_cond_broadcast(&engine_changed);
    pthread_mutex_unlock(&engine_lock);
}

void defer_await_change(void)
{
    pthread_cond_wait(&engine_changed, &engine_lock);
    if (LIKELY(!work_is_over()))
        return;
    pthread_mutex_unlock(&engine_lock);
    defer_pump();
    pthread_mutex_lock(&engine_lock);
}

void defer_pump_soon(void)
{
    static struct callback_job job = {.run = defer_pump_posted_job};
    if (!atomic_exchange(&pump_posted, true))
        callback_post(&job);
}

void power_set(bool capped, uint64_t grant_ns)
{
    power_change(capped, grant_ns);
    if (callback_start() == 0)
        defer_pump_soon();
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
    pthread_mutex_lock(&engine_lock);
    bool any = deferred_total != 0;
    pthread_mutex_unlock(&engine_lock);
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
            defer_await_change();
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
                      window_waits_for_all(last->command) || h == last;
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
            defer_await_change();
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
    deferred_total = 1;
    for (; (queue = object_next(OBJECT_QUEUE, &cursor)); object_unhold(queue)) {
        queue->pumping = false;
        queue->passing = 0;
        for (struct deferred *deferred = queue->deferred_first; deferred;
             deferred = deferred->next) {
            deferred_total++;
            deferred->issuing = false;
            /*
             * The parent issues it: the driver's locks and threads are unusable in the child, and
             * some pieces may have been issued already.
             */
            deferred->left = true;
        }
    }
    defer_one_less();
}

FORK_PART = {.rank = FORK_TABLE, .in_child = defer_in_child};
