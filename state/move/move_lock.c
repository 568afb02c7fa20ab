#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "state/base/clock.h"
#include "state/base/span.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/work.h"
#include "state/move/move_priv.h"

/* The movers' lock, and what all parts of a move use: limits, progress and the reason of a failure.
 */

/* A lock with deadline, cancellation and shared use by requests to prewarm, which a long_lock does
 * not have. */
static struct {
    pthread_mutex_t lock; /* held for a moment only */
    pthread_cond_t changed;
    bool held;           /* guarded by lock, like all below */
    struct move *making; /* requests to prewarm that build without it */
} movers_lock = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
/* Movers that wait for that lock and do not yield: others give way to them. */
static _Atomic unsigned waiting;
/* Requests to prewarm that wait for it. */
static _Atomic unsigned prewarms_waiting;

/* How often a waiting mover checks for cancellation. */
#define LOOK_NS (50 * NS_PER_MS)

/* Wait for a change of movers_lock, whose mutex is held. False: the deadline passed, or it was
 * canceled. */
static bool move_lock_await_change(uint64_t deadline_ns, const atomic_bool *cancel)
{
    uint64_t look = clock_now_ns() + LOOK_NS;
    bool looks = cancel && (deadline_ns == 0 || look < deadline_ns);
    int error = clock_wait(&movers_lock.changed, &movers_lock.lock, looks ? look : deadline_ns);
    return (error == 0 || looks) && !(cancel && atomic_load(cancel));
}

/* @beside  Also take it while requests to prewarm build. */
static bool move_lock_take(uint64_t deadline_ns, const atomic_bool *cancel, bool beside)
{
    bool waits = true;
    pthread_mutex_lock(&movers_lock.lock);
    while (waits && (movers_lock.held || (movers_lock.making && !beside)))
        waits = move_lock_await_change(deadline_ns, cancel);
    bool taken = !movers_lock.held && (beside || !movers_lock.making);
    movers_lock.held = movers_lock.held || taken;
    pthread_mutex_unlock(&movers_lock.lock);
    return taken;
}

static bool move_lock_take_alone(uint64_t deadline_ns, const atomic_bool *cancel, bool yields)
{
    atomic_fetch_add(&waiting, !yields);
    bool taken = move_lock_take(deadline_ns, cancel, false);
    atomic_fetch_sub(&waiting, !yields);
    return taken;
}

bool move_lock_until(uint64_t deadline_ns, bool yields)
{
    return move_lock_take_alone(deadline_ns, NULL, yields);
}

bool move_lock_unless(uint64_t deadline_ns, const atomic_bool *cancel)
{
    return move_lock_take_alone(deadline_ns, cancel, false);
}

bool move_lock_to_prewarm(uint64_t deadline_ns, const atomic_bool *cancel)
{
    atomic_fetch_add(&prewarms_waiting, 1);
    bool taken = move_lock_take(deadline_ns, cancel, true);
    atomic_fetch_sub(&prewarms_waiting, 1);
    return taken;
}

bool move_is_made_ready(const struct device_key *target)
{
    pthread_mutex_lock(&movers_lock.lock);
    const struct move *other = movers_lock.making;
    while (other && !device_key_equal(&other->target->key, target))
        other = other->next;
    pthread_mutex_unlock(&movers_lock.lock);
    return other != NULL;
}

void move_make_begin(struct move *move)
{
    pthread_mutex_lock(&movers_lock.lock);
    move->next = movers_lock.making;
    movers_lock.making = move;
    movers_lock.held = false;
    pthread_cond_broadcast(&movers_lock.changed);
    pthread_mutex_unlock(&movers_lock.lock);
}

void move_make_end(struct move *move)
{
    struct move **at = &movers_lock.making;
    pthread_mutex_lock(&movers_lock.lock);
    /* Only other requests to prewarm can hold it now, and only briefly. */
    while (movers_lock.held)
        (void)clock_wait(&movers_lock.changed, &movers_lock.lock, 0);
    movers_lock.held = true;
    while (*at != move)
        at = &(*at)->next;
    *at = move->next;
    pthread_mutex_unlock(&movers_lock.lock);
}

void move_lock(void)
{
    (void)move_lock_until(0, false);
}

void move_unlock(void)
{
    pthread_mutex_lock(&movers_lock.lock);
    movers_lock.held = false;
    pthread_cond_broadcast(&movers_lock.changed);
    pthread_mutex_unlock(&movers_lock.lock);
}

bool move_is_awaited(void)
{
    return atomic_load(&waiting) != 0;
}

bool move_prewarm_is_awaited(void)
{
    return atomic_load(&prewarms_waiting) != 0;
}

const char *move_phase_name(enum move_phase phase)
{
    static const char *const names[] = {"plan", "prepare", "pause", "copy", "commit", "resume"};
    return (unsigned)phase < ARRAY_SIZE(names) ? names[phase] : "unknown";
}

const char *move_result_name(enum move_result result)
{
    static const char *const names[] = {"done",    "rolled-back", "refused",
                                        "expired", "canceled",    "ended"};
    return (unsigned)result < ARRAY_SIZE(names) ? names[result] : "unknown";
}

int move_fail(struct move *move, int error, const char *format, ...)
{
    if (move->report->reason[0] == '\0') {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(move->report->reason, sizeof(move->report->reason), format, arguments);
        va_end(arguments);
    }
    return error;
}

int move_check(struct move *move)
{
    if (work_is_over() && !move->resumes)
        return -ESHUTDOWN;
    if (move->limits.cancel && atomic_load(move->limits.cancel))
        return -ECANCELED;
    if (move->limits.deadline_ns != 0 && clock_now_ns() >= move->limits.deadline_ns)
        return -ETIMEDOUT;
    return move->yields && move_is_awaited() ? -EAGAIN : 0;
}

void move_tell(struct move *move)
{
    struct move_progress progress = move->builds;
    progress.phase = move->report->reached;
    progress.bytes_done = atomic_load(&move->done);
    progress.bytes_total = move->total;
    progress.round = move->report->rounds;
    if (move->request->progress)
        move->request->progress(move->request->data, &progress);
}

void move_end_phase(struct move *move)
{
    span_end(move->phase_at, "move", move_phase_name(move->report->reached), NULL, 0);
    move->phase_at = 0;
}

void move_enter_phase(struct move *move, enum move_phase phase)
{
    move_end_phase(move);
    move->phase_at = span_begin();
    move->report->reached = phase;
    move_tell(move);
}

int move_check_pins(struct move *move)
{
    const char *reason = pin_reason(move->vdev);
    return reason ? move_fail(move, -EPERM, "the program is pinned to its device: %s", reason) : 0;
}

int move_close_gate(struct move *move)
{
    int error = gate_close_unless(move->limits.deadline_ns, move->limits.cancel);
    if (error != 0)
        return error;
    error = move_check_pins(move);
    if (error != 0)
        gate_open();
    return error;
}

static void move_lock_in_child(void)
{
    pthread_mutex_init(&movers_lock.lock, NULL);
    pthread_cond_init(&movers_lock.changed, NULL);
    movers_lock.held = false;
    movers_lock.making = NULL;
    atomic_store(&waiting, 0);
    atomic_store(&prewarms_waiting, 0);
    for (uint32_t i = 0; i < vdevs_count(); i++)
        atomic_store(&the_vdevs[i]->moving, false);
}

FORK_PART = {.rank = FORK_TABLE, .in_child = move_lock_in_child};
