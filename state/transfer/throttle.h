#ifndef RESEAT_STATE_TRANSFER_THROTTLE_H
#define RESEAT_STATE_TRANSFER_THROTTLE_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * A bandwidth limit for copies: a token bucket with one token a byte, which fills at the limit's
 * rate and holds BURST_NS worth of tokens. Taking more than it holds incurs a debt, which the taker
 * waits out. It has no clock of its own: callers pass the time, so that tests can choose it.
 */

/** Most tokens that the bucket holds, as nanoseconds of the rate. */
#define THROTTLE_BURST_NS 10000000u

/** Zeroed: no limit. Not thread-safe. */
struct throttle {
    uint64_t rate; /**< Bytes a second; 0: no limit. */
    /** The rate from now on, unless 0; or NULL. Any thread may write it. */
    const _Atomic uint64_t *changed;
    uint64_t paid_ns;  /**< When the debt is paid off. */
    uint64_t slept_ns; /**< Time that its users have waited, in all. */
};

/**
 * Take @bytes, any number. Returns when they may be sent: @now_ns, or later if the bucket held too
 * few tokens.
 */
uint64_t throttle_take(struct throttle *throttle, uint64_t bytes, uint64_t now_ns);
/** When what was taken before may be sent. A rate that changed shortens or extends the wait. */
uint64_t throttle_due(struct throttle *throttle, uint64_t now_ns);
/** Bytes a second at present; 0: no limit. */
uint64_t throttle_rate(const struct throttle *throttle);

#endif
