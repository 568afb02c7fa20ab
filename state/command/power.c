#include "state/command/power.h"

#include "state/base/threads/fork.h"
#include "state/command/command.h"
#include "state/command/parts.h"

/* Launches with the driver at once: enough that small ones keep the device busy, few enough that
 * they end soon. */
#define POWER_AT_ONCE 4
/* Some that have ended may not be forgotten yet. */
#define POWER_KEPT (2 * POWER_AT_ONCE)

atomic_bool power_capped;

static atomic_bool power_used; /* once a cap concerned the program */

static struct {
    bool granted;
    bool refused;                     /* a launch waits for power */
    unsigned beginning;               /* launches that are being given to the driver */
    struct event *events[POWER_KEPT]; /* held: of launches with the driver */
    void (*wake)(void);
    struct power_state said; /* when `wake` was last called */
} power;                     /* guarded by engine_lock */

/* True when the driver has nothing of its launch: the rest of one in pieces may wait here. */
static bool power_is_idle(const struct event *event)
{
    return event_has_ended(event) || (event->parts && event->parts->left == 0);
}

static unsigned power_running(void)
{
    unsigned count = power.beginning;
    for (unsigned i = 0; i < POWER_KEPT; i++)
        count += power.events[i] && !power_is_idle(power.events[i]);
    return count;
}

static unsigned power_kept(void)
{
    unsigned count = power.beginning;
    for (unsigned i = 0; i < POWER_KEPT; i++)
        count += power.events[i] != NULL;
    return count;
}

bool power_admits(bool begun)
{
    if (!power_is_capped())
        return power_kept() < POWER_KEPT || begun;
    if (!power.granted) {
        power.refused = true;
        return false;
    }
    return begun || (power_running() < POWER_AT_ONCE && power_kept() < POWER_KEPT);
}

void power_begin(void)
{
    power.beginning++;
}

void power_end(struct event *event)
{
    unsigned at = 0;
    power.beginning--;
    for (unsigned i = 0; event && i < POWER_KEPT; i++)
        if (power.events[i] == event)
            return;
    while (event && at < POWER_KEPT && power.events[at])
        at++;
    if (!event || at == POWER_KEPT)
        return; /* power_admits() left a slot */
    object_hold(event);
    power.events[at] = event;
}

static struct power_state power_state_locked(void)
{
    return (struct power_state){.runs = power.granted || power_running() != 0,
                                .wants = power.refused};
}

void power_tidy(void)
{
    struct event *ended[POWER_KEPT];
    unsigned count = 0;
    if (LIKELY(!atomic_load_explicit(&power_used, memory_order_relaxed)))
        return;
    pthread_mutex_lock(&engine_lock);
    for (unsigned i = 0; i < POWER_KEPT; i++) {
        if (power.events[i] && event_has_ended(power.events[i])) {
            ended[count++] = power.events[i];
            power.events[i] = NULL;
        }
    }
    struct power_state state = power_state_locked();
    bool changed = state.runs != power.said.runs || state.wants != power.said.wants;
    void (*wake)(void) = changed ? power.wake : NULL;
    power.said = state;
    pthread_mutex_unlock(&engine_lock);
    while (count > 0)
        object_unhold(ended[--count]);
    if (wake)
        wake();
}

void power_set(bool capped, bool granted)
{
    pthread_mutex_lock(&engine_lock);
    if (capped)
        atomic_store(&power_used, true);
    atomic_store(&power_capped, capped);
    power.granted = capped && granted;
    if (power.granted || !capped)
        power.refused = false;
    pthread_mutex_unlock(&engine_lock);
    defer_pump_soon();
}

void power_read(struct power_state *ret_state)
{
    pthread_mutex_lock(&engine_lock);
    *ret_state = power_state_locked();
    pthread_mutex_unlock(&engine_lock);
}

void power_set_waker(void (*wake)(void))
{
    pthread_mutex_lock(&engine_lock);
    power.wake = wake;
    pthread_mutex_unlock(&engine_lock);
}

/* The parent's launches are not the child's, and it has no agent yet. */
static void power_in_child(void)
{
    atomic_store(&power_capped, false);
    power.granted = power.refused = false;
    power.beginning = 0;
    for (unsigned i = 0; i < POWER_KEPT; i++)
        power.events[i] = NULL;
}

FORK_PART = {.rank = FORK_TABLE, .in_child = power_in_child};
