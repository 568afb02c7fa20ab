#ifndef RESEAT_AGENT_DAEMON_DEVICES_HISTORY_H
#define RESEAT_AGENT_DAEMON_DEVICES_HISTORY_H

#include <stddef.h>
#include <stdint.h>

/*
 * Use over time in bounded memory: when there is no more space, neighbours become one and samples
 * are taken half as often. Of each span the most is kept, so that no peak is lost. Pure.
 */

#define HISTORY_SIZE 64

struct history {
    uint64_t begin_ms; /**< Of the first span. */
    uint64_t span_ms;  /**< 0: nothing yet. */
    uint32_t count;
    struct {
        uint64_t granted, held;
    } spans[HISTORY_SIZE];
};

/** @now_ms never decreases. */
void history_add(struct history *history, uint64_t now_ms, uint64_t granted, uint64_t held);

#endif
