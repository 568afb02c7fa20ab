#include "state/transfer/transfer.h"

#include "state/base/clock.h"

/* Nanoseconds for @bytes at @rate, computed in two steps, so that no product overflows. */
static uint64_t throttle_cost_ns(uint64_t bytes, uint64_t rate)
{
    uint64_t seconds = bytes / rate, rest = bytes % rate;
    double part = (double)rest / (double)rate * (double)NS_PER_S;
    return seconds > UINT64_MAX / (4 * NS_PER_S) ? UINT64_MAX / 4
                                                 : seconds * NS_PER_S + (uint64_t)part;
}

uint64_t throttle_take(struct throttle *throttle, uint64_t bytes, uint64_t now_ns)
{
    uint64_t full = now_ns > THROTTLE_BURST_NS ? now_ns - THROTTLE_BURST_NS : 0;
    if (throttle->rate == 0)
        return now_ns;
    if (throttle->paid_ns < full)
        throttle->paid_ns = full;
    if (__builtin_add_overflow(throttle->paid_ns, throttle_cost_ns(bytes, throttle->rate),
                               &throttle->paid_ns))
        throttle->paid_ns = UINT64_MAX;
    return throttle->paid_ns > now_ns ? throttle->paid_ns : now_ns;
}
