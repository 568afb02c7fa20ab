#include "state/transfer/cost.h"

static bool has_copy(const struct cost_stage *stages, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (stages[i].kind == COST_COPY)
            return true;
    return false;
}

/* Two chunks in hand for each stage that can work on one: a stage that is late does not stop the
 * next. */
static unsigned ring_chunks(const struct cost_stage *stages, size_t n, uint64_t total, size_t chunk)
{
    unsigned count = 1;
    for (size_t i = 0; i < n; i++)
        count += stages[i].kind == COST_RING ? 0 : 1;
    if (count < 3)
        count = 3;
    uint64_t needed = (total + chunk - 1) / chunk;
    if (needed < count)
        count = needed ? (unsigned)needed : 1;
    return count;
}

double cost_predict(const struct cost_stage *stages, size_t n, uint64_t total, size_t chunk,
                    unsigned threads, unsigned *ret_chunks)
{
    unsigned chunks = ring_chunks(stages, n, total, chunk);
    uint64_t whole = (total + chunk - 1) / chunk;
    double steps = (double)whole;
    double bytes = (double)total / steps; /* of an average chunk */
    double workers = threads < 2 ? 1 : 1 + (threads - 1) * COST_EFFICIENCY;
    double sum = 0, slowest = 0, once = threads * COST_THREAD_START;

    for (size_t i = 0; i < n; i++) {
        const struct cost_stage *stage = &stages[i];
        if (stage->kind == COST_RING) {
            once += stage->setup + (double)chunk * chunks / stage->bandwidth;
            continue;
        }
        double bandwidth = stage->bandwidth * (stage->kind == COST_COPY ? workers : 1);
        double seconds = stage->setup + bytes / bandwidth;
        sum += seconds;
        if (seconds > slowest)
            slowest = seconds;
    }
    *ret_chunks = chunks;
    return once + sum + (steps - 1) * slowest;
}

void cost_choose(const struct cost_stage *stages, size_t n, uint64_t total, unsigned cores,
                 struct cost_choice *ret)
{
    unsigned most = has_copy(stages, n) && cores > 1 ? cores : 0;
    struct cost_choice best = {0};
    if (most > COST_THREADS_MAX)
        most = COST_THREADS_MAX;

    for (size_t chunk = COST_CHUNK_MIN; chunk <= COST_CHUNK_MAX; chunk *= 2) {
        for (unsigned threads = 0; threads <= most; threads++) {
            struct cost_choice choice = {.chunk = chunk, .threads = threads};
            choice.seconds = cost_predict(stages, n, total, chunk, threads, &choice.chunks);
            if ((uint64_t)chunk * choice.chunks > COST_RING_MAX)
                continue;
            if (best.chunk == 0 || choice.seconds < best.seconds * 0.99)
                best = choice;
        }
        if (chunk >= total)
            break;
    }
    *ret = best;
}
