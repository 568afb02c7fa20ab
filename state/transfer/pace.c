#include "state/transfer/pace.h"

#include "state/base/clock.h"

/* Nanoseconds that @bytes take at @rate: in two steps, so that no product overflows. */
static uint64_t cost_ns(uint64_t bytes, uint64_t rate)
{
    uint64_t seconds = bytes / rate, rest = bytes % rate;
    double part = (double)rest / (double)rate * (double)NS_PER_S;
    return seconds > UINT64_MAX / (4 * NS_PER_S) ? UINT64_MAX / 4
                                                 : seconds * NS_PER_S + (uint64_t)part;
}

uint64_t pace_take(struct pace *pace, uint64_t bytes, uint64_t now_ns)
{
    uint64_t full = now_ns > PACE_BURST_NS ? now_ns - PACE_BURST_NS : 0;
    if (pace->rate == 0)
        return now_ns;
    if (pace->paid_ns < full)
        pace->paid_ns = full;
    if (__builtin_add_overflow(pace->paid_ns, cost_ns(bytes, pace->rate), &pace->paid_ns))
        pace->paid_ns = UINT64_MAX;
    return pace->paid_ns > now_ns ? pace->paid_ns : now_ns;
}
