#include <errno.h>
#include <stdio.h>

#include "state/base/clock.h"
#include "state/base/span.h"
#include "state/move/move_priv.h"

/*
 * Rounds of copying ahead. Each copies what the program wrote during the one before; what is left
 * after a round, divided by the bandwidth measured in it, predicts the pause. While the program
 * writes more slowly than the link copies, each round leaves less than the one before. Otherwise
 * the move accepts the longer pause, or, if the limit is strict, gives up with the reason.
 */

/* Fewer bytes are not worth a round while they fit in the pause. */
#define WORTH ((uint64_t)8 << 20)
/* Rounds made even when the pause would be short enough, while they help: a shorter pause is
 * better. */
#define SOME 3
/* A round helps when it leaves less than this share of what the one before left. */
#define HELPS 0.9
/* After this many rounds in vain, only a strict move whose deadline has not come goes on. */
#define IN_VAIN_MAX 2
/* After an undone pause the program runs for this multiple of the longest pause. */
#define RESTS        4
#define REST_STEP_NS 5000000u

static uint64_t move_rounds_changed(const struct move *move)
{
    const struct move_change *change = move->request->change;
    return change ? atomic_load(&change->max_downtime_ns) : 0;
}

uint64_t move_downtime_limit(const struct move *move)
{
    uint64_t changed = move_rounds_changed(move), asked = move->request->max_downtime_ns;
    return changed != 0 ? changed : asked != 0 ? asked : MOVE_DOWNTIME_NS;
}

bool move_is_strict(const struct move *move)
{
    return move->request->strict || move_rounds_changed(move) != 0;
}

uint64_t move_pause_limit(const struct move *move)
{
    uint64_t until = clock_now_ns() + move_downtime_limit(move),
             deadline = move->request->deadline_ns;
    return move_is_strict(move) && (deadline == 0 || until < deadline) ? until : deadline;
}

static uint64_t move_rounds_predict(const struct move *move, uint64_t left)
{
    double bandwidth = move->rounds.bandwidth;
    double seconds = bandwidth > 0 ? (double)left / bandwidth : 0;
    return seconds < 1e6 ? (uint64_t)(seconds * NS_PER_S) : UINT64_C(1000000) * NS_PER_S;
}

bool move_rounds_is_late(const struct move *move, uint64_t predicted)
{
    uint64_t deadline = move->request->deadline_ns;
    return deadline != 0 && clock_now_ns() + move->rounds.took_ns + predicted >= deadline;
}

static int move_rounds_give_up(struct move *move, uint64_t left, uint64_t predicted)
{
    double limit = (double)move_downtime_limit(move) / NS_PER_MS;
    if (predicted <= move_downtime_limit(move))
        return move_fail(move, -EBUSY,
                         "what the program has given to its device does not end, or is not copied, "
                         "within the %.0f ms that it may be stopped for",
                         limit);
    return move_fail(move, -EBUSY,
                     "the program keeps writing %.1f MB, and the link takes %.2f GB/s: it would be "
                     "stopped for %.0f ms, and may be for %.0f ms",
                     (double)left / 1e6, move->rounds.bandwidth / 1e9,
                     (double)predicted / NS_PER_MS, limit);
}

/* 1: another round. 0: begin the pause. -EBUSY: give up. */
static int move_rounds_decide(struct move *move, uint64_t left)
{
    const struct move_rounds *rounds = &move->rounds;
    uint64_t predicted = move_rounds_predict(move, left);
    bool strict = move_is_strict(move), in_vain = rounds->in_vain >= IN_VAIN_MAX;
    bool late = move_rounds_is_late(move, predicted);
    /* Without a known bandwidth, the first pause is simply tried. */
    bool fits =
        rounds->bandwidth > 0 ? predicted <= move_downtime_limit(move) : rounds->pauses == 0;
    if (move->report->rounds == 0 && rounds->pauses == 0)
        return left != 0 && (strict || left >= WORTH);
    if (fits && (!in_vain || !strict))
        return move->report->rounds < SOME && rounds->in_vain == 0 && left >= WORTH && !late;
    if (!in_vain && !late)
        return 1;
    if (!strict)
        return 0;
    if (move->request->deadline_ns == 0 || late)
        return move_rounds_give_up(move, left, predicted);
    return !fits;
}

/* Let the program run for @ns. Returns as move_check. */
static int move_rounds_rest(struct move *move, uint64_t ns)
{
    uint64_t until = clock_now_ns() + ns;
    int error = 0;
    while (error == 0 && clock_now_ns() < until) {
        clock_sleep(REST_STEP_NS);
        error = move_check(move);
    }
    return error;
}

static int move_rounds_copy_round(struct move *move)
{
    struct move_rounds *rounds = &move->rounds;
    uint64_t least = rounds->bandwidth > 0 || move_is_strict(move) ? 1 : WORTH;
    uint64_t began = clock_now_ns(), traced, bytes = 0, ns;
    char name[SPAN_NAME];
    move->report->rounds++;
    move_tell(move);
    int error = rounds->idle ? move_rounds_rest(move, move_downtime_limit(move)) : 0;
    traced = span_begin();
    if (error == 0)
        error = move_copy_round(move, least, &bytes, &ns);
    (void)!snprintf(name, sizeof(name), "round %u", move->report->rounds);
    span_end(traced, "move", name, "bytes", bytes);
    if (error != 0)
        return error;
    rounds->idle = bytes == 0;
    /* The time of a small copy is mostly overhead and says little about the link. */
    if (ns != 0 && bytes != 0 && (bytes >= WORTH || rounds->bandwidth <= 0))
        rounds->bandwidth = (double)bytes * NS_PER_S / (double)ns;
    rounds->took_ns = clock_now_ns() - began;
    return 0;
}

int move_copy_ahead(struct move *move)
{
    struct move_rounds *rounds = &move->rounds;
    uint64_t left = move_left(move);
    int more;
    while ((more = move_rounds_decide(move, left)) > 0) {
        uint64_t before = left;
        int error = move_rounds_copy_round(move);
        if (error != 0)
            return error;
        left = move_left(move);
        rounds->in_vain += (double)left >= HELPS * (double)before;
    }
    move->report->predicted_ns = move_rounds_predict(move, left);
    return more;
}

int move_rest(struct move *move)
{
    move->rounds.in_vain++;
    move->rounds.pauses++;
    return move_rounds_rest(move, RESTS * move_downtime_limit(move));
}

int move_check_pause(struct move *move)
{
    uint64_t until = move->limits.deadline_ns;
    bool bounded = move_is_strict(move) && until != 0;
    return !bounded || clock_now_ns() + move_rounds_predict(move, move_left(move)) <= until
               ? 0
               : -ETIMEDOUT;
}
