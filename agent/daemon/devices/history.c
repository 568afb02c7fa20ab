#include "agent/daemon/devices/history.h"

#define FIRST_SPAN_MS 1000

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void halve(struct history *history)
{
    for (uint32_t i = 0; i < HISTORY_SIZE / 2; i++) {
        history->spans[i].granted =
            most(history->spans[2 * i].granted, history->spans[2 * i + 1].granted);
        history->spans[i].held = most(history->spans[2 * i].held, history->spans[2 * i + 1].held);
    }
    history->count = HISTORY_SIZE / 2;
    history->span_ms *= 2;
}

void history_add(struct history *history, uint64_t now_ms, uint64_t granted, uint64_t held)
{
    if (!history->span_ms) {
        history->begin_ms = now_ms;
        history->span_ms = FIRST_SPAN_MS;
    }
    while ((now_ms - history->begin_ms) / history->span_ms >= HISTORY_SIZE) {
        /* After a long silence what is not filled yet repeats what was last seen. */
        for (; history->count && history->count < HISTORY_SIZE; history->count++)
            history->spans[history->count] = history->spans[history->count - 1];
        halve(history);
    }
    uint32_t at = (uint32_t)((now_ms - history->begin_ms) / history->span_ms);
    for (; history->count <= at; history->count++) {
        history->spans[history->count].granted = granted;
        history->spans[history->count].held = held;
    }
    history->spans[at].granted = most(history->spans[at].granted, granted);
    history->spans[at].held = most(history->spans[at].held, held);
}
