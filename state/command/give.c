#include "state/base/clock.h"
#include "state/command/deferred.h"
#include "state/command/elsewhere.h"
#include "state/command/journal.h"
#include "state/command/parts.h"
#include "state/command/place.h"
#include "state/command/traced.h"
#include "state/object/lost.h"
#include "state/object/upcalls.h"
#include "state/program/pace.h"

/*
 * Gives one deferred command to a driver: as a whole, piece by piece, in another residence that has
 * the bytes it reads, or to a helper. Runs in the thread that pumps the command's queue, inside the
 * gate; it takes engine_lock for fields that other threads read or write (pieces.h, parts.h).
 */

static bool give_wait_list_failed(const struct deferred *deferred)
{
    for (cl_uint i = 0; i < deferred->waits; i++)
        if (event_failed(deferred->wait_list[i]))
            return true;
    return false;
}

/* Make an event for a command that the program has none of. Other threads may read the list. */
static bool give_make_event(struct deferred *deferred)
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

/* With the number of its queue's copies that pass. */
static void give_note_passing(struct deferred *deferred, bool passes)
{
    pthread_mutex_lock(&engine_lock);
    deferred->passes = passes;
    if (passes)
        deferred->queue->passing++;
    else
        deferred->queue->passing--;
    pthread_mutex_unlock(&engine_lock);
}

/* Have a copy pass, whose marker has ended. The launches of a tracked queue may leave it, so there
 * it stays at home. */
static cl_int give_pass(struct deferred *deferred, uint8_t residence_index)
{
    struct command *command = deferred->command;
    if (event_failed(deferred->marker))
        return CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    struct event *passing =
        deferred->tracked ? NULL : elsewhere_pass(command, deferred->marker, residence_index);
    command->stays = !passing;
    if (!passing)
        return COMMAND_ABSENT;
    object_unhold(deferred->marker);
    deferred->marker = passing;
    give_note_passing(deferred, true);
    return MARKED;
}

/* The copy has ended. False: it failed. */
static bool give_passed(struct deferred *deferred)
{
    give_note_passing(deferred, false);
    bool failed = event_failed(deferred->marker);
    deferred->command->stays = failed;
    if (!failed && deferred->event)
        elsewhere_passed(deferred->marker, deferred->event);
    return !failed;
}

/*
 * Read from a residence other than the queue's. First a marker is enqueued, so that the read keeps
 * its order in the queue; when the marker has ended, the read is issued in the residence with the
 * bytes.
 */
static cl_int give_elsewhere(struct deferred *deferred, struct residence *residence,
                             uint8_t residence_index)
{
    struct command *command = deferred->command;
    if (!deferred->marker) {
        deferred->marker = elsewhere_mark(command->queue, residence, residence_index,
                                          deferred->waits, deferred->wait_list, deferred->since);
        return deferred->marker ? MARKED : COMMAND_ABSENT;
    }
    if (!command->ops->reads_to_host)
        return give_pass(deferred, residence_index);
    if (!give_make_event(deferred))
        return COMMAND_ABSENT;
    cl_int error = elsewhere_give(command, deferred->marker, deferred->event);
    return error == CL_SUCCESS ? PARTS_GIVEN : error;
}

static void give_measure(struct pieces *pieces, struct parts *parts)
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
static void give_sample(const struct pieces *pieces)
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
static void give_be_alone(struct pieces *pieces, const struct queue *queue,
                          const struct residence *residence)
{
    if (!(residence->device->quirks & QUIRK_OFFSETS_MIXED) || pieces->alone || pieces->measures)
        return;
    pieces->alone = queue_alone_begin(queue);
    pieces->measures = !pieces->alone;
    pieces->whole = "its driver cannot run pieces beside the commands of other queues";
    pieces->offset_aware = pieces->offset_aware && (pieces->alone || pieces->given != 0);
}

static void give_end_alone(struct pieces *pieces)
{
    if (pieces->alone)
        queue_alone_end();
    pieces->alone = false;
}

/* Announce the launch to helpers, once its duration can be predicted. */
static void give_tell(struct pieces *pieces)
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
static bool give_take(struct pieces *pieces)
{
    pthread_mutex_lock(&engine_lock);
    bool any = !pieces_none_left(pieces);
    if (any)
        pieces_take(pieces, pieces_of_slice(pieces));
    pthread_mutex_unlock(&engine_lock);
    return any;
}

static void give_untake(struct pieces *pieces)
{
    pthread_mutex_lock(&engine_lock);
    pieces_untake(pieces);
    pthread_mutex_unlock(&engine_lock);
}

/* Close the parts if no helper has groups left. */
static cl_int give_close(const struct pieces *pieces, struct parts *parts)
{
    pthread_mutex_lock(&engine_lock);
    bool given = pieces_are_given(pieces);
    pthread_mutex_unlock(&engine_lock);
    if (given)
        parts_close(parts, CL_SUCCESS);
    return CL_SUCCESS;
}

/*
 * Bring the command's objects and issue its next piece, in queue @beside if that is not NULL. In
 * that case everything that the command must follow has ended. The journal of a protected program
 * gets the piece as a command of its own. Returns as command_issue().
 */
static cl_int give_issue(struct command *command, struct event *event, struct residence *residence,
                         uint8_t residence_index, cl_command_queue beside, cl_uint waits,
                         struct event *const *wait_list, uint64_t *ret_begun, uint64_t *ret_given,
                         cl_event *ret_real)
{
    cl_int error = command_ready(command, residence, residence_index);
    if (error != CL_SUCCESS)
        return error;
    bool kept = atomic_load_explicit(&journal_is_kept, memory_order_relaxed);
    struct journal_entry *entry = kept ? journal_prepare(command, true, waits, wait_list) : NULL;
    *ret_begun = queue_step(command->queue);
    *ret_given = clock_now_ns();
    if (beside)
        error = command_issue_in(command, residence, residence_index, beside, 0, NULL, ret_real);
    else
        error = command_issue(command, residence, residence_index, waits, wait_list, ret_real);
    if (kept && error == CL_SUCCESS)
        (void)journal_add(entry, command, event);
    else if (kept)
        journal_drop(entry);
    if (beside && error == CL_SUCCESS)
        residence_flush(residence, beside);
    return error;
}

/* Issue the next piece in a vacant part. From the first piece on, the event owns the parts. */
static cl_int give_piece(struct command *command, struct pieces *pieces, struct event *event,
                         struct parts *parts, struct residence *residence, uint8_t residence_index,
                         cl_uint waits, struct event *const *wait_list)
{
    cl_event real;
    struct part *part = parts_vacant(event, parts);
    if (!part)
        return COMMAND_ABSENT; /* not reached: PIECES_AT_ONCE limits the pieces that run */
    give_be_alone(pieces, command->queue, residence);
    uint64_t begun, given;
    cl_int error = CL_SUCCESS;
    bool any = give_take(pieces);
    if (any)
        error = give_issue(command, event, residence, residence_index,
                           parts_queue(event, part, residence, residence_index), waits, wait_list,
                           &begun, &given, &real);
    if (any && error != CL_SUCCESS)
        give_untake(pieces);
    if (error != CL_SUCCESS)
        return error;
    if (!any)
        return give_close(pieces, parts);
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
    give_tell(pieces);
    return give_close(pieces, parts);
}

/*
 * Handle an error of the driver. In a protected program the device may be lost, which is checked
 * outside the gate: returns COMMAND_ABSENT in that case.
 */
static cl_int give_doubt(struct deferred *deferred, cl_int error)
{
    if (!atomic_load_explicit(&journal_is_kept, memory_order_relaxed) || journal_broken())
        return error;
    deferred->refused = error;
    return COMMAND_ABSENT;
}

/*
 * Issue the next piece. The command's event is DEFERRED before the first piece and ISSUED
 * afterwards. Inside the gate. Returns CL_SUCCESS, COMMAND_ABSENT or, before the first piece only,
 * the error that the command ends with.
 */
static cl_int give_next_piece(struct deferred *deferred, struct residence *residence,
                              uint8_t residence_index)
{
    struct command *command = deferred->command;
    struct event *event = deferred->event, *const *wait_list = deferred->wait_list;
    struct pieces *pieces = command->ops->pieces(command);
    cl_uint waits = deferred->waits;
    if (event->parts) {
        give_measure(pieces, event->parts);
        cl_int error = give_piece(command, pieces, event, event->parts, residence, residence_index,
                                  waits, wait_list);
        if (error != CL_SUCCESS && error != COMMAND_ABSENT)
            error = give_doubt(deferred, error);
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
        give_piece(command, pieces, event, parts, residence, residence_index, waits, wait_list);
    if (error != CL_SUCCESS) {
        give_end_alone(pieces);
        parts_leave(parts);
    }
    return error == CL_SUCCESS || error == COMMAND_ABSENT ? error : give_doubt(deferred, error);
}

/* How long a launch took at home: from when it was given, or the launch before it ended, of
 * whichever queue. Where another queue's launches may have run at once, that is its share of what
 * all took, which the placement needs; the agent is told of launches that had the device alone. */
static void give_learn(const struct pieces *pieces, const struct queue *queue,
                       const struct event *event)
{
    const struct parts *parts = event->parts;
    struct vdev *vdev = queue->vdev;
    pthread_mutex_lock(&engine_lock);
    uint64_t given = parts->of[0].given, ended = parts->ended;
    bool waited = vdev->home_ended_ns > given;
    uint64_t since = waited ? vdev->home_ended_ns : given;
    bool known = parts->serial != 0 && !event_failed(event) && ended > since && pieces->on;
    bool alone = (!waited || vdev->home_ended == queue) && !window_home_is_shared(queue);
    if (known)
        place_learn(pieces->pace, pieces->on, pieces->row, ended - since);
    if (pieces->on)
        place_count(pieces, pieces->on);
    if (ended > vdev->home_ended_ns) {
        vdev->home_ended_ns = ended;
        vdev->home_ended = queue;
    }
    pthread_mutex_unlock(&engine_lock);
    if (known && alone)
        pace_sample(pieces->pace, pieces->on, pieces->row, pieces->row, ended - since);
}

void give_ended(struct command *command, struct event *event)
{
    struct pieces *pieces = command->ops->pieces(command);
    give_end_alone(pieces);
    if (pieces->places) {
        give_learn(pieces, command->queue, event);
        return;
    }
    give_measure(pieces, event->parts);
    traced_pieces(command->queue, pieces);
    if (event_failed(event))
        return;
    give_sample(pieces);
    pace_settle(pieces->pace, pieces->groups * pieces->row);
    if (pieces->measures && pieces->groups * pieces->row >= atomic_load(&pieces->pace->whole))
        pace_goes_whole(pieces->pace, pieces->whole);
}

/* Issue the next piece of a command, or end it. Returns as give_deferred(). */
static cl_int give_piece_or_end(struct deferred *deferred, struct residence *residence,
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
    error = give_next_piece(deferred, residence, residence_index);
    return error == CL_SUCCESS ? PARTS_GIVEN : error;
}

/*
 * Issue the whole command. Returns as command_issue(). In a protected program, the journal may own
 * the command afterwards.
 */
static cl_int give_whole(struct deferred *deferred, struct residence *residence,
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

/* Give a launch to a helper. False: without memory, or the program was protected or its power
 * capped since the launch was deferred; home does it. */
static bool give_to_helper(struct deferred *deferred)
{
    struct command *command = deferred->command;
    struct event *event = deferred->event;
    struct pieces *pieces = command->ops->pieces(command);
    if (atomic_load(&journal_is_kept) || power_is_capped() || !event_watch(event))
        return false;
    struct parts *parts = parts_create_open(PIECES_AT_ONCE);
    if (!parts)
        return false;
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
static cl_int give_release(struct deferred *deferred)
{
    deferred->held = false;
    parts_unshare(deferred->event);
    return PARTS_GIVEN;
}

/* Its end has to be seen: in a queue that is tracked each command stays on the list until then, and
 * under a power cap the end of a launch lets the next one begin. */
static bool give_track(struct deferred *deferred)
{
    return give_make_event(deferred) && event_watch(deferred->event);
}

/* Its objects are there, or are read where they are, and it goes to the driver as one command. */
static cl_int give_all(struct deferred *deferred, struct residence *residence,
                       uint8_t residence_index, cl_event *ret_real)
{
    struct command *command = deferred->command;
    cl_int error = command_ready(command, residence, residence_index);
    if (error == COMMAND_ABSENT && elsewhere_can(command, residence_index))
        error = give_elsewhere(deferred, residence, residence_index);
    if (error == CL_SUCCESS && deferred->event)
        deferred->event->begun = queue_step(command->queue);
    if (error == CL_SUCCESS)
        error = give_whole(deferred, residence, residence_index, deferred->event ? ret_real : NULL);
    return error < CL_SUCCESS ? give_doubt(deferred, error) : error;
}

/* The command is the driver's, or ends with @error. */
static cl_int give_settle(struct deferred *deferred, uint8_t residence_index, cl_int error,
                          uint64_t given_ns, cl_event real)
{
    struct command *command = deferred->command;
    residency_token_release(command);
    if (error != CL_SUCCESS && command->ops->cancel)
        command->ops->cancel(command);
    if (!deferred->event)
        return error;
    if (error != CL_SUCCESS) {
        event_finish(deferred->event, error);
        return error;
    }
    deferred->event->times[0] = given_ns - deferred->since; /* still DEFERRED, so nobody reads it */
    event_issued_late(deferred->event, residence_index, real);
    return deferred->tracked ? PARTS_GIVEN : CL_SUCCESS;
}

cl_int give_deferred(struct deferred *deferred, struct residence *residence,
                     uint8_t residence_index)
{
    struct command *command = deferred->command;
    cl_event real = NULL;
    uint64_t given_ns = clock_now_ns();
    if (deferred->given && deferred->held && !atomic_load(&deferred->event->parts->open))
        return give_release(deferred);
    if (deferred->given)
        return give_piece_or_end(deferred, residence, residence_index);
    if (deferred->passes && give_passed(deferred)) {
        residency_token_release(command);
        return CL_SUCCESS;
    }
    cl_int error = give_wait_list_failed(deferred) ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
                                                   : deferred->error;
    if (error == CL_SUCCESS && deferred->to < PLACE_HOME && give_to_helper(deferred))
        return PARTS_GIVEN;
    if (error == CL_SUCCESS && (deferred->tracked || deferred->paced) && !give_track(deferred))
        error = CL_OUT_OF_HOST_MEMORY;
    if (error == CL_SUCCESS)
        error = command->ops->pieces ? give_piece_or_end(deferred, residence, residence_index)
                                     : give_all(deferred, residence, residence_index, &real);
    return error > CL_SUCCESS ? error
                              : give_settle(deferred, residence_index, error, given_ns, real);
}
