#ifndef RESEAT_STREAM_WORKER_TUNE_H
#define RESEAT_STREAM_WORKER_TUNE_H

#include <stdbool.h>
#include <stdint.h>

#include "stream/worker/choose.h"

/*
 * Improves chosen payloads by trying others. What choose.h knows of a stage is what it takes alone;
 * that stages share caches, memory and cores shows only in the rate of answers. So payloads grow
 * and shrink while records flow, of one stage or of all, as long as the rate grows by it.
 * What is in use and what is tried take turns, so that a load that changes does not decide. Pure:
 * no clock, no blocking; of one thread.
 */

struct tune {
    uint32_t payloads[CHOOSE_STAGES]; /**< Records: what to use now. */
    uint32_t best[CHOOSE_STAGES];     /**< The best so far, with which the others are compared. */
    uint32_t least[CHOOSE_STAGES], most[CHOOSE_STAGES];
    bool tries;      /**< It compares; if false, `payloads` are `best`. */
    unsigned change; /**< The change that is tried now: of which stage, and how. */
    unsigned failed; /**< Changes in a row that did not help. */
    int score;       /**< How often the change was better, less how often it was not. */
    bool other;      /**< It is in use, in this window of time; if false, the best is. */
    double rate;     /**< Of the best in the window before: records a second. */
    unsigned skip;   /**< Payloads that were begun before this window. */
    unsigned count;  /**< Payloads of the window. */
    uint64_t records, since_ns;
    uint64_t again_ns, patience_ns; /**< When it tries again; the time until then. */
};

/** Start from what @choose has chosen. */
void tune_begin(struct tune *tune, const struct choose *choose, uint64_t now_ns);

/**
 * @records have been answered, in one payload. Returns true when @tune->payloads have changed.
 */
bool tune_answered(struct tune *tune, uint64_t records, uint64_t now_ns);

/** True while other payloads than the best are in use: what stages take then tells nothing. */
static inline bool tune_differs(const struct tune *tune)
{
    return tune->other;
}

#endif
