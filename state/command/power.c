#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/command/deferred.h"
#include "state/command/parts.h"

/*
 * Launches under a power cap. Owns the state of the agent's grant and the list of launches that
 * drivers have, both guarded by engine_lock. Deferred launches ask power_admits before they are
 * given (defer.c, window.c).
 */

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

bool power_paces(const struct command *command)
{
    return command->ops->launches && power_is_capped();
}

bool power_admits(bool begun)
{
    if (power.until == 0 || clock_now_ns() >= power.until) {
        power.refused = true;
        return false;
    }
    return begun || power_count() < POWER_AT_ONCE;
}

void power_begin(void)
{
    power.beginning++;
}

/* Last in the list: who waits for power_running() waits for what ends first. */
void power_add(struct event *event)
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

void power_end(struct event *event)
{
    power.beginning--;
    if (event)
        power_add(event);
}

struct event *power_running(void)
{
    for (struct event *event = power.first; event; event = event->power_next) {
        if (!event->parts && !event_has_ended(event)) {
            object_hold(event);
            return event;
        }
    }
    return NULL;
}

void power_waited(const struct event *event)
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

void power_tidy(void)
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

bool power_is_unmarked(void)
{
    return power.unmarked;
}

void power_marked(void)
{
    power.unmarked = false;
}

void power_change(bool capped, uint64_t grant_ns)
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

static void power_in_child(void)
{
    atomic_store(&power_capped, false);
    power.until = 0;
    power.refused = power.unmarked = false;
    power.beginning = 0;
    power.first = NULL;
}

FORK_PART = {.rank = FORK_TABLE, .in_child = power_in_child};
