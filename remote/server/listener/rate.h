#ifndef RESEAT_REMOTE_SERVER_LISTENER_RATE_H
#define RESEAT_REMOTE_SERVER_LISTENER_RATE_H

#include <stdbool.h>
#include <stdint.h>

/* A limit on how often something is done for a peer that may be hostile. Pure. */

/** `burst` times at once, refilled by `refill` every `every_ns`. */
struct rate_limit {
    unsigned burst, refill;
    uint64_t every_ns;
};

struct rate {
    unsigned used;         /**< How much of the burst is used. */
    uint64_t since_ns;     /**< When it was last refilled. */
    unsigned long refused; /**< How often rate_take() refused, since the caller reset it. */
};

/** Would rate_take() return true? */
static inline bool rate_has_room(const struct rate *rate, const struct rate_limit *limit,
                                 uint64_t now_ns)
{
    return rate->used < limit->burst || now_ns - rate->since_ns >= limit->every_ns;
}

/** Count one more; false: over the limit. */
static inline bool rate_take(struct rate *rate, const struct rate_limit *limit, uint64_t now_ns)
{
    uint64_t periods = (now_ns - rate->since_ns) / limit->every_ns;
    uint64_t back = periods * limit->refill;
    rate->since_ns += periods * limit->every_ns;
    rate->used -= back < rate->used ? (unsigned)back : rate->used;
    if (rate->used >= limit->burst) {
        rate->refused++;
        return false;
    }
    rate->used++;
    return true;
}

#endif
