#include "state/base/clock.h"
#include "state/command/deferred.h"
#include "state/command/parts.h"
#include "state/command/place.h"

/*
 * Chooses the next command of a queue whose launches may be placed on other devices (place.h).
 * Owns no state: it reads the queue's list, under engine_lock.
 *
 * The queue is in order. A launch that may be placed may pass earlier commands with which it shares
 * no bytes; every other command waits until those before it were given to the queue's own device or
 * have ended. No event that the program has ends before those of earlier commands: a launch that
 * passed one is held until it is the first of the list.
 */

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
    bool away = pieces && window_waits_have_ended(h);
    uint64_t free_ns = queue->home_ended_ns;
    unsigned ahead = 0;
    bool passes = false;
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
        away = away && !conflicts;
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
    uint32_t to = place_decide(h->command, pieces, free_ns, !away);
    return to == PLACE_HOME && ahead >= AHEAD && free_ns - now >= AHEAD_NS ? PLACE_WAIT : to;
}

struct deferred *window_pick(struct queue *queue, uint8_t residence_index)
{
    struct deferred *first = queue->deferred_first;
    unsigned looked = 0;
    if (first && first->held && window_is_done(first) && !event_has_ended(first->event))
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
        h->to = window_place_of(queue, h);
        if (h->to != PLACE_WAIT)
            return h;
    }
    return NULL;
}
