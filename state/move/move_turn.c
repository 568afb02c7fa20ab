#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "state/base/clock.h"
#include "state/base/fork.h"
#include "state/base/long_lock.h"
#include "state/base/span.h"
#include "state/base/work.h"
#include "state/move/move_priv.h"

/* What all parts of a move ask: whose turn it is, whether it may go on, and what is said of it. */

static struct long_lock one_at_a_time = LONG_LOCK_INITIALIZER;
/* Movers that wait for that lock: those that yield give way to them. */
static _Atomic unsigned waiting;

bool move_lock_until(uint64_t deadline_ns, bool yields)
{
    atomic_fetch_add(&waiting, !yields);
    bool taken = long_lock_take(&one_at_a_time, deadline_ns);
    atomic_fetch_sub(&waiting, !yields);
    return taken;
}

void move_lock(void)
{
    (void)move_lock_until(0, false);
}

void move_unlock(void)
{
    long_lock_release(&one_at_a_time);
}

bool move_is_awaited(void)
{
    return atomic_load(&waiting) != 0;
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
    const char *reason = pin_reason(move->seat);
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

static void in_child(void)
{
    long_lock_init(&one_at_a_time);
    atomic_store(&waiting, 0);
    for (uint32_t i = 0; i < the_seat_count; i++)
        atomic_store(&the_seats[i]->moving, false);
}

FORK_PART = {.rank = FORK_TABLE, .in_child = in_child};
