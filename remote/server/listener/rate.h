#ifndef RESEAT_REMOTE_SERVER_LISTENER_RATE_H
#define RESEAT_REMOTE_SERVER_LISTENER_RATE_H

#include <stdbool.h>
#include <stdint.h>

/* How often something is done for somebody who may be hostile. Pure. */

/** `burst` times at once, and then `refill` times more each `every_ns`. */
struct rate_limit {
    unsigned burst, refill;
    uint64_t every_ns;
};

struct rate {
    unsigned used;         /**< Of the burst. */
    uint64_t since_ns;     /**< When it was last refilled. */
    unsigned long refused; /**< Times, since the caller set it to 0. */
};

/** Will rate_take() say true? */
static inline bool rate_has_room(const struct rate *rate, const struct rate_limit *limit,
                                 uint64_t now_ns)
{
    return rate->used < limit->burst || now_ns - rate->since_ns >= limit->every_ns;
}

/** May it be done once more? */
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
