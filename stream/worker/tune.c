#include "stream/worker/tune.h"

#include <limits.h>
#include <string.h>

#include "state/base/clock.h"

/*
 * Each stage's payload stays, grows or shrinks: a digit of the change, of base 3. By a factor of
 * two, and by four where the change has CHANGES added: what small changes gain may hide in the
 * noise.
 */
#define CHANGES         243
#define WINDOW_NS       (10 * NS_PER_MS)
#define WINDOW_PAYLOADS 16
#define IN_FLIGHT       (3 * CHOOSE_DEPTH + 2) /* payloads on the device, and the client's */
#define GAIN            1.01
/* Rates vary more than changes gain, so one comparison does not decide. */
#define ACCEPTED         4
#define REJECTED         (-2)
#define REJECTED_BY_FOUR (-1)
#define PATIENCE_NS      (16 * NS_PER_S) /* A round of trials takes nearly as long. */
#define PATIENCE_MOST    (64 * NS_PER_S)

/*
 * Changes of a lower rank are tried before others: those by two of one stage first, since most of
 * what can be gained is gained by them, and once, before these, those by four.
 */
static unsigned tune_rank(unsigned change)
{
    unsigned stages = 0;
    for (unsigned digits = change % CHANGES; digits; digits /= 3)
        stages += digits % 3 != 0;
    return change < CHANGES ? stages : stages <= 1 ? 0 : UINT_MAX;
}

static unsigned tune_next(unsigned change)
{
    unsigned rank = tune_rank(change);
    do {
        change = (change + 1) % (2 * CHANGES);
        if (change == 0)
            rank = rank % CHOOSE_STAGES + 1;
    } while (tune_rank(change) != rank);
    return change;
}

/* What the change that is tried makes of the best. False: it makes nothing of it. */
static bool tune_apply(struct tune *tune)
{
    unsigned digits = tune->change % CHANGES, factor = tune->change < CHANGES ? 2 : 4;
    bool any = false;
    for (unsigned i = 0; i < CHOOSE_STAGES; i++, digits /= 3) {
        uint32_t records =
            tune->best[i] * (digits % 3 == 1 ? factor : 1) / (digits % 3 == 2 ? factor : 1);
        records = records < tune->least[i] ? tune->least[i] : records;
        tune->payloads[i] = records > tune->most[i] ? tune->most[i] : records;
        any = any || tune->payloads[i] != tune->best[i];
    }
    return any;
}

/* Use the best, or the other, from now on. */
static void tune_use(struct tune *tune, bool other)
{
    if (other)
        (void)tune_apply(tune);
    else
        memcpy(tune->payloads, tune->best, sizeof(tune->payloads));
    tune->other = other;
    tune->skip = IN_FLIGHT;
    tune->count = 0;
    tune->records = 0;
}

/* Compare the best with this change, or the next one that makes a difference. */
static void tune_try(struct tune *tune, uint64_t now_ns)
{
    while (tune->failed < CHANGES && !tune_apply(tune)) {
        tune->change = tune_next(tune->change);
        tune->failed++;
    }
    tune->score = 0;
    tune->tries = tune->failed < CHANGES;
    if (!tune->tries) {
        tune->again_ns = now_ns + tune->patience_ns;
        tune->patience_ns *= tune->patience_ns < PATIENCE_MOST ? 2 : 1;
    }
    tune_use(tune, false);
}

void tune_begin(struct tune *tune, const struct choose *choose, uint64_t now_ns)
{
    *tune = (struct tune){.change = CHANGES, .patience_ns = PATIENCE_NS};
    for (unsigned i = 0; i < CHOOSE_STAGES; i++) {
        tune->best[i] = choose->payloads[i];
        tune->least[i] = 1u << choose->least[i];
        tune->most[i] = choose_most(choose, i);
    }
    tune_try(tune, now_ns);
}

static void tune_end_window(struct tune *tune, double rate, uint64_t now_ns)
{
    if (!tune->other) {
        tune->rate = rate;
        tune_use(tune, true);
        return;
    }
    tune->score += rate > GAIN * tune->rate ? 1 : -1;
    if (tune->score == ACCEPTED) {
        memcpy(tune->best, tune->payloads, sizeof(tune->best));
        tune->failed = 0;
        tune_try(tune, now_ns);
    } else if (tune->score == (tune->change < CHANGES ? REJECTED : REJECTED_BY_FOUR)) {
        tune->change = tune_next(tune->change);
        tune->failed++;
        tune_try(tune, now_ns);
    } else {
        tune_use(tune, false);
    }
}

bool tune_answered(struct tune *tune, uint64_t records, uint64_t now_ns)
{
    if (!tune->tries) {
        if (now_ns < tune->again_ns)
            return false;
        tune->failed = 0;
        tune_try(tune, now_ns);
        return false;
    }
    if (tune->skip > 0) {
        tune->skip--;
        tune->since_ns = now_ns;
        return false;
    }
    tune->records += records;
    tune->count++;
    if (tune->count < WINDOW_PAYLOADS || now_ns - tune->since_ns < WINDOW_NS)
        return false;
    tune_end_window(tune, (double)tune->records / (double)(now_ns - tune->since_ns), now_ns);
    return true;
}
