#include "state/base/clock.h"
#include "state/command/deferred.h"
#include "state/command/parts.h"
#include "state/command/place.h"

/*
 * Chooses the deferred command of a queue that is given next, by what it waits for, by power, and
 * by its place in the queue. Owns no state: it reads the queue's list, under engine_lock.
 *
 * Where launches may be placed on other devices (place.h), the queue is in order, and its commands
 * stay on the list until they have ended. A launch that may be placed may pass earlier commands
 * with which it shares no bytes; every other command waits until those before it were given to the
 * queue's own device or have ended. No event that the program has ends before those of earlier
 * commands: a launch that passed one is held until it is the first of the list.
 */

bool window_driver_can_wait(const struct event *event, uint8_t residence_index)
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

bool window_waits_for_all(const struct command *command)
{
    return command->ops->waits_for_all && command->wait_list_empty;
}

static bool window_is_ready(const struct deferred *deferred, uint8_t residence_index)
{
    if (deferred->marker && !event_has_ended(deferred->marker))
        return false;
    for (cl_uint i = 0; i < deferred->waits; i++)
        if (!window_driver_can_wait(deferred->wait_list[i], residence_index))
            return false;
    return true;
}

/* True when the driver has fewer pieces than it may, and more are left. With engine_lock. */
static bool window_wants_pieces(const struct command *command, const struct event *event)
{
    const struct parts *parts = event->parts;
    const struct pieces *pieces = command->ops->pieces((struct command *)(uintptr_t)command);
    unsigned most = pieces_know_pace(pieces) ? PIECES_AT_ONCE : 1;
    bool any =
        !pieces_none_left(pieces) || pieces_are_given(pieces); /* or the parts must be closed */
    return atomic_load(&parts->open) && !pieces->rests && any && parts->left < most;
}

/*
 * For a command whose parts run: true when all have ended, or another piece can be submitted.
 */
static bool window_goes_on(const struct queue *queue, const struct deferred *deferred)
{
    return event_has_ended(deferred->event) ||
           (deferred->command->ops->pieces && queue->real && !deferred->issuing &&
            window_wants_pieces(deferred->command, deferred->event) &&
            (!power_paces(deferred->command) || power_admits(true)));
}

/* So many deferred commands are looked at for one that can be given. */
#define WINDOW 32
/* So many launches, or so much time of them, home has to do at least. */
#define AHEAD    2
#define AHEAD_NS NS_PER_MS

struct pieces *window_places(const struct command *command)
{
    struct pieces *pieces =
        command->ops->pieces ? command->ops->pieces((struct command *)(uintptr_t)command) : NULL;
    return pieces && pieces->places ? pieces : NULL;
}

/* All that it does has ended. With engine_lock. */
static bool window_is_done(const struct deferred *deferred)
{
    const struct parts *parts = deferred->event ? deferred->event->parts : NULL;
    return deferred->given &&
           (event_has_ended(deferred->event) ||
            (deferred->held && parts && !atomic_load(&parts->open) && parts->left == 0));
}

/* All of it was given to the queue's own driver queue, which keeps the order. Pieces of a launch
 * that is divided may run in another one, and so may a read that runs elsewhere, which has parts.
 */
static bool window_is_at_home(const struct deferred *deferred)
{
    const struct pieces *pieces = window_places(deferred->command);
    return deferred->given &&
           (pieces ? !pieces->placed && pieces_are_given(pieces) : !deferred->event->parts);
}

static bool window_waits_have_ended(const struct deferred *deferred)
{
    for (cl_uint i = 0; i < deferred->waits; i++)
        if (!event_has_ended(deferred->wait_list[i]))
            return false;
    return true;
}

/* Where @h can be given now: PLACE_WAIT, PLACE_HOME or a helper. With engine_lock. */
static uint32_t window_place_of(const struct queue *queue, struct deferred *h)
{
    struct pieces *pieces = window_places(h->command);
    bool needs_home = false, passes = false;
    uint64_t free_ns = queue->home_ended_ns;
    unsigned ahead = 0;
    for (struct deferred *e = queue->deferred_first; e != h; e = e->next) {
        bool home = window_is_at_home(e);
        const struct pieces *earlier = window_places(e->command);
        if (e->given && event_has_ended(e->event))
            continue;
        /* The driver ends the events of commands at home in their order, but for those held. */
        bool ordered = home && !e->held;
        bool conflicts = !window_is_done(e) && pieces && place_conflict(e->command, h->command);
        if (!ordered && (!pieces || (!home && conflicts)))
            return PLACE_WAIT;
        passes = passes || !ordered;
        needs_home = needs_home || conflicts;
        if (home && earlier && !window_is_done(e)) {
            ahead++;
            free_ns += earlier->expected_ns;
        }
    }
    h->held = h->visible && pieces && passes;
    if (!pieces)
        return PLACE_HOME;
    uint64_t now = clock_now_ns();
    free_ns = free_ns > now ? free_ns : now;
    uint64_t leaves_at_ns = !window_waits_have_ended(h) ? UINT64_MAX : needs_home ? free_ns : 0;
    uint32_t to = place_decide(h->command, pieces, free_ns, leaves_at_ns);
    return to == PLACE_HOME && ahead >= AHEAD && free_ns - now >= AHEAD_NS ? PLACE_WAIT : to;
}

static struct deferred *window_pick_placing(struct queue *queue, uint8_t residence_index)
{
    struct deferred *first = queue->deferred_first;
    unsigned looked = 0;
    if (first && first->held && window_is_done(first) && !event_has_ended(first->event))
        return first;
    for (struct deferred *h = first; h && looked++ < WINDOW; h = h->next) {
        if (h->left)
            return NULL;
        if (h->given && window_goes_on(queue, h))
            return h;
        if (h->given)
            continue;
        if (!queue->real || !window_is_ready(h, residence_index) ||
            (power_paces(h->command) && !power_admits(false)))
            return NULL;
        h->to = window_place_of(queue, h);
        if (h->to != PLACE_WAIT)
            return h;
    }
    return NULL;
}

struct deferred *window_pick(struct queue *queue, uint8_t residence_index)
{
    if (UNLIKELY(queue->places))
        return window_pick_placing(queue, residence_index);
    for (struct deferred *h = queue->deferred_first; h; h = h->next) {
        bool first = h == queue->deferred_first;
        if (!h->left &&
            (h->given ? window_goes_on(queue, h)
                      : queue->real && !h->issuing && window_is_ready(h, residence_index) &&
                            (first || !window_waits_for_all(h->command)) &&
                            (!power_paces(h->command) || power_admits(false))))
            return h;
        if (queue->in_order || h->command->ops->blocks_later)
            return NULL;
    }
    return NULL;
}
