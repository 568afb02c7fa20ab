#include "state/base/clock.h"
#include "state/command/deferred.h"
#include "state/command/elsewhere.h"
#include "state/command/parts.h"
#include "state/command/place.h"

/*
 * Chooses the deferred command of a queue that is given next, by what it waits for, by power, and
 * by its place in the queue. Owns the list of what was given (`active`); all is under engine_lock.
 *
 * Where launches may be placed on other devices (place.h), the commands of all queues stay on their
 * lists until they have ended, and those that were given are in one list more: what all queues have
 * their devices do. In an in-order queue a launch that may be placed may pass earlier commands
 * with which it shares no bytes; every other command waits until those before it were given to the
 * queue's own device or have ended. No event that the program has ends before those of earlier
 * commands: a launch that passed one is held until it is the first of the list.
 *
 * Commands of different queues, and of one that is out of order, wait for each other only where
 * events or barriers say so; but while a helper has a launch, nothing else may write what it uses
 * or use what it writes, not even other parts of the same buffer: its results are whole buffers. So
 * a launch does not leave while such a command runs, and none is given before it is back.
 */

unsigned window_markers;
static struct deferred *active; /* given by tracked queues, and not unlinked yet */

void window_activate(struct deferred *deferred)
{
    if (deferred->active_link)
        return;
    deferred->active_next = active;
    deferred->active_link = &active;
    if (active)
        active->active_link = &deferred->active_next;
    active = deferred;
}

void window_deactivate(struct deferred *deferred)
{
    if (!deferred->active_link)
        return;
    *deferred->active_link = deferred->active_next;
    if (deferred->active_next)
        deferred->active_next->active_link = deferred->active_link;
    deferred->active_link = NULL;
}

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
    if (deferred->marker && !deferred->passes && !deferred->command->ops->reads_to_host &&
        deferred->queue->passing >= ELSEWHERE_PASSING)
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
    /* Its pump may be changing the command. */
    if (earlier->issuing || window_is_unknown(earlier->command) ||
        window_is_unknown(later->command))
        return true;
    for (unsigned i = 0; (a = command_use(earlier->command, &i, &a_writes));)
        for (unsigned j = 0; (b = command_use(later->command, &j, &b_writes));)
            if (a->root == b->root && (a_writes || b_writes))
                return true;
    return false;
}

void window_forget(struct deferred *deferred)
{
    const struct queue *queue = deferred->queue;
    unsigned looked = 0;
    window_deactivate(deferred);
    for (struct deferred *h = queue->tracked ? queue->deferred_first : NULL;
         h && (looked++ < WINDOW || !queue->in_order); h = h->next)
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

/* Of a command that was given and is not done: a helper has the launch or is to, or gave it back
 * and home does not have it yet. */
static bool window_is_away(const struct deferred *e)
{
    return e->places && (e->given ? !window_is_at_home(e) : e->to != PLACE_HOME);
}

static bool window_only_waits(const struct command *command)
{
    return command->ops->type == CL_COMMAND_MARKER || command->ops->type == CL_COMMAND_BARRIER;
}

/* What the devices do for all queues while @h is to be given. */
struct activity {
    unsigned ahead;            /* launches that home has of the queue of @h */
    uint64_t ahead_ns, all_ns; /* what they take, and those of all queues */
    bool away, home;           /* a helper, or home, does what @h may not run beside */
};

/* Of an in-order queue only the order of its own commands was looked at before. */
static struct activity window_activity(const struct queue *queue, const struct deferred *h)
{
    struct activity now = {.away = false};
    for (struct deferred *e = active; e && !now.away; e = e->active_next) {
        if (e->given && window_is_done(e))
            continue;
        bool own = e->queue == queue, away = window_is_away(e);
        if (!away && e->places && e->queue->vdev == queue->vdev) {
            uint64_t ns = e->places->costs[PLACE_HOME].ns;
            now.all_ns += ns;
            now.ahead += own;
            now.ahead_ns += own ? ns : 0;
        }
        if ((own && queue->in_order) || window_only_waits(h->command) || (!away && !h->places) ||
            (!own && window_only_waits(e->command)) || !window_conflict(e, h))
            continue;
        now.away = away;
        now.home = true;
    }
    return now;
}

bool window_home_is_shared(const struct queue *queue)
{
    bool shared = false;
    for (const struct deferred *e = active; e && !shared; e = e->active_next)
        shared = e->queue != queue && e->queue->vdev == queue->vdev && e->command->ops->launches &&
                 !window_is_away(e) && !window_is_done(e);
    return shared;
}

static uint64_t window_free_ns(const struct queue *queue, uint64_t work_ns, uint64_t now)
{
    uint64_t free_ns = queue->vdev->home_ended_ns + work_ns;
    return free_ns > now ? free_ns : now;
}

/* What @h finds before it in its queue. */
struct before {
    struct deferred *waits_for; /* the command that has to be done first, or NULL */
    bool needs_home;            /* home has what it must follow: there it may be given at once */
    bool passes;                /* it may be done before one of them */
};

static struct before window_before(const struct queue *queue, struct deferred *h)
{
    struct before before = {.waits_for = NULL};
    for (struct deferred *e = queue->deferred_first; e != h; e = e->next) {
        /* A marker is for what the driver was given: copies that pass, too. */
        if (e->given ? event_has_ended(e->event) : h->marks && !e->passes)
            continue;
        bool home = window_is_at_home(e), ordered = window_is_ordered(e);
        window_note_uses(e);
        bool conflicts = h->places && !window_is_done(e) && !(home && before.needs_home) &&
                         window_conflict(e, h);
        if (!ordered && (!h->places || (!home && conflicts))) {
            before.waits_for = e;
            break;
        }
        before.passes = before.passes || !ordered;
        before.needs_home = before.needs_home || conflicts;
    }
    return before;
}

/* Choose a place for the launch @h. @needs_home: at home it may be given at once, elsewhere only
 * when home is done with all that it has. */
static uint32_t window_choose(const struct queue *queue, const struct deferred *h,
                              const struct activity *activity, bool needs_home)
{
    uint64_t now = clock_now_ns(), free_ns = window_free_ns(queue, activity->all_ns, now);
    bool full = activity->ahead >= AHEAD &&
                window_free_ns(queue, activity->ahead_ns, now) - now >= AHEAD_NS;
    bool leaves = window_markers == 0 && window_waits_have_ended(h);
    /* It cannot leave now, nor is home in need of it: nothing is lost by choosing later. */
    if (full && (needs_home || !leaves || !place_is_any_free()))
        return PLACE_WAIT;
    uint64_t leaves_ns = !leaves ? UINT64_MAX : needs_home ? free_ns : 0;
    uint32_t to = place_decide(h->command, h->places, now, free_ns, leaves_ns);
    return to == PLACE_HOME && full ? PLACE_WAIT : to;
}

/* Where @h can be given now: PLACE_WAIT, PLACE_HOME or a helper. With engine_lock. */
static uint32_t window_place_of(const struct queue *queue, struct deferred *h)
{
    struct before before = {.waits_for = NULL};
    if (window_is_behind(h))
        return PLACE_WAIT;
    window_note_uses(h);
    if (queue->in_order || h->marks || window_waits_for_all(h->command))
        before = window_before(queue, h);
    if (before.waits_for) {
        h->behind = before.waits_for;
        return PLACE_WAIT;
    }
    struct activity activity = window_activity(queue, h);
    if (activity.away)
        return PLACE_WAIT;
    h->held = h->visible && h->places && before.passes;
    return h->places ? window_choose(queue, h, &activity, before.needs_home || activity.home)
                     : PLACE_HOME;
}

/* Nothing of its own keeps @h from its device. */
static bool window_may_begin(const struct queue *queue, struct deferred *h, uint8_t residence_index)
{
    return queue->real && window_is_ready(h, residence_index) &&
           (!power_paces(h->command) || power_admits(false));
}

static struct deferred *window_pick_placing(struct queue *queue, uint8_t residence_index)
{
    struct deferred *first = queue->deferred_first;
    unsigned looked = 0;
    if (first && first->held && window_is_done(first) && !event_has_ended(first->event))
        return first;
    for (struct deferred *h = first; h && looked < WINDOW; h = h->next) {
        if (h->left)
            return NULL;
        if (h->given && window_goes_on(queue, h))
            return h;
        bool ready = !h->given && window_may_begin(queue, h, residence_index);
        /* Out of order, what waits for the program is passed by all that does not. */
        looked += queue->in_order || h->given || (ready && h->places);
        if (h->given)
            continue;
        h->to = ready ? window_place_of(queue, h) : PLACE_WAIT;
        if (h->to != PLACE_WAIT)
            return h;
        /* What it waits for may need the room that it had made for itself. */
        if (h->command->residency_token != 0)
            residency_token_release(h->command);
        if (queue->in_order ? !ready : h->command->ops->blocks_later)
            return NULL;
    }
    return NULL;
}

struct deferred *window_pick(struct queue *queue, uint8_t residence_index)
{
    if (UNLIKELY(queue->tracked))
        return window_pick_placing(queue, residence_index);
    for (struct deferred *h = queue->deferred_first; h; h = h->next) {
        bool in_turn = h == queue->deferred_first || !window_waits_for_all(h->command);
        if (!h->left &&
            (h->given ? window_goes_on(queue, h)
                      : !h->issuing && in_turn && window_may_begin(queue, h, residence_index)))
            return h;
        if (queue->in_order || h->command->ops->blocks_later)
            return NULL;
    }
    return NULL;
}
