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
    /* Without any left, the parts must be closed. */
    return atomic_load(&parts->open) && !pieces->rests &&
           (!pieces_none_left(pieces) || pieces_are_given(pieces)) &&
           parts->left < (pieces_know_pace(pieces) ? PIECES_AT_ONCE : 1);
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
    const struct pieces *pieces = deferred->places;
    return deferred->given &&
           (pieces ? !pieces->placed && pieces_are_given(pieces) : !deferred->event->parts);
}

/* What it reads and writes is not known: all before it, and all behind it, keep their place. */
static bool window_is_unknown(const struct command *command)
{
    const struct command_ops *ops = command->ops;
    bool launch = ops->type == CL_COMMAND_NDRANGE_KERNEL || ops->type == CL_COMMAND_TASK;
    return (command->use_count == 0 && !command->more) || (launch && !ops->pieces);
}

/* The bit of a buffer. The last bit is that of each command of which is known what it uses. */
#define WINDOW_KNOWN (UINT64_C(1) << 63)
static uint64_t window_bit(const struct memory *root)
{
    return UINT64_C(1) << ((uintptr_t)root / sizeof(*root) % 63);
}

static void window_note_uses(struct deferred *deferred)
{
    struct memory *memory;
    bool writes;
    if (deferred->reads != 0)
        return;
    deferred->reads = deferred->writes = UINT64_MAX;
    if (window_is_unknown(deferred->command))
        return;
    deferred->reads = WINDOW_KNOWN;
    deferred->writes = 0;
    for (unsigned i = 0; (memory = command_use(deferred->command, &i, &writes));) {
        deferred->reads |= window_bit(memory->root);
        deferred->writes |= writes ? window_bit(memory->root) : 0;
    }
}

/*
 * True when @later must come after @earlier: one of them writes a buffer that the other one uses,
 * or what one of them uses is not known. Parts of one buffer are not told apart: a copy to a helper
 * may be of more bytes than the launch uses, and another command may be writing those.
 */
static bool window_conflict(const struct deferred *earlier, const struct deferred *later)
{
    struct memory *a, *b;
    bool a_writes, b_writes;
    if ((earlier->writes & later->reads) == 0 && (earlier->reads & later->writes) == 0)
        return false;
    if (window_is_unknown(earlier->command) || window_is_unknown(later->command))
        return true;
    for (unsigned i = 0; (a = command_use(earlier->command, &i, &a_writes));)
        for (unsigned j = 0; (b = command_use(later->command, &j, &b_writes));)
            if (a->root == b->root && (a_writes || b_writes))
                return true;
    return false;
}

void window_forget(const struct queue *queue, const struct deferred *deferred)
{
    unsigned looked = 0;
    for (struct deferred *h = queue->places ? queue->deferred_first : NULL; h && looked++ < WINDOW;
         h = h->next)
        h->behind = h->behind == deferred ? NULL : h->behind;
}

static bool window_waits_have_ended(const struct deferred *deferred)
{
    for (cl_uint i = 0; i < deferred->waits; i++)
        if (!event_has_ended(deferred->wait_list[i]))
            return false;
    return true;
}

/* The driver ends the events of commands at home in their order, but for those held. */
static bool window_is_ordered(const struct deferred *deferred)
{
    return window_is_at_home(deferred) && !deferred->held;
}

/* The command that @h was found to wait for is still in its way. */
static bool window_is_behind(const struct deferred *h)
{
    const struct deferred *e = h->behind;
    return e && (!e->given || (!event_has_ended(e->event) &&
                               (h->places ? !window_is_at_home(e) && !window_is_done(e)
                                          : !window_is_ordered(e))));
}

/* Where @h can be given now: PLACE_WAIT, PLACE_HOME or a helper. With engine_lock. */
static uint32_t window_place_of(const struct queue *queue, struct deferred *h)
{
    struct pieces *pieces = h->places;
    bool needs_home = false, passes = false;
    uint64_t free_ns = queue->home_ended_ns;
    unsigned ahead = 0;
    if (window_is_behind(h))
        return PLACE_WAIT;
    window_note_uses(h);
    for (struct deferred *e = queue->deferred_first; e != h; e = e->next) {
        if (e->given && event_has_ended(e->event))
            continue;
        bool home = window_is_at_home(e), ordered = home && !e->held, done = window_is_done(e);
        window_note_uses(e);
        bool conflicts = pieces && !done && !(home && needs_home) && window_conflict(e, h);
        if (!ordered && (!pieces || (!home && conflicts))) {
            h->behind = e;
            return PLACE_WAIT;
        }
        passes = passes || !ordered;
        needs_home = needs_home || conflicts;
        if (home && e->places && !done) {
            ahead++;
            free_ns += e->places->costs[PLACE_HOME].ns;
        }
    }
    h->held = h->visible && pieces && passes;
    if (!pieces)
        return PLACE_HOME;
    uint64_t now = clock_now_ns();
    free_ns = free_ns > now ? free_ns : now;
    bool full = ahead >= AHEAD && free_ns - now >= AHEAD_NS, leaves = window_waits_have_ended(h);
    /* It cannot leave now, nor is home in need of it: nothing is lost by choosing later. */
    if (full && (needs_home || !leaves || !place_is_any_free()))
        return PLACE_WAIT;
    uint32_t to = place_decide(h->command, pieces, now, free_ns,
                               !leaves      ? UINT64_MAX
                               : needs_home ? free_ns
                                            : 0);
    return to == PLACE_HOME && full ? PLACE_WAIT : to;
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
