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

uint64_t throttle_rate(const struct throttle *throttle)
{
    uint64_t changed = throttle->changed ? atomic_load(throttle->changed) : 0;
    return changed != 0 ? changed : throttle->rate;
}

uint64_t throttle_due(struct throttle *throttle, uint64_t now_ns)
{
    uint64_t rate = throttle_rate(throttle);
    if (rate != throttle->rate && throttle->paid_ns > now_ns) {
        double left = (double)(throttle->paid_ns - now_ns) * (double)throttle->rate / (double)rate;
        throttle->paid_ns =
            left < (double)(UINT64_MAX / 4) ? now_ns + (uint64_t)left : UINT64_MAX / 2;
    }
    throttle->rate = rate;
    return throttle->paid_ns > now_ns ? throttle->paid_ns : now_ns;
}

uint64_t throttle_take(struct throttle *throttle, uint64_t bytes, uint64_t now_ns)
{
    uint64_t full = now_ns > THROTTLE_BURST_NS ? now_ns - THROTTLE_BURST_NS : 0;
    (void)throttle_due(throttle, now_ns);
    if (throttle->rate == 0)
        return now_ns;
    if (throttle->paid_ns < full)
        throttle->paid_ns = full;
    if (__builtin_add_overflow(throttle->paid_ns, throttle_cost_ns(bytes, throttle->rate),
                               &throttle->paid_ns))
        throttle->paid_ns = UINT64_MAX;
    return throttle->paid_ns > now_ns ? throttle->paid_ns : now_ns;
}
