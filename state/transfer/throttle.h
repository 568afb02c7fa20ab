#ifndef RESEAT_STATE_TRANSFER_THROTTLE_H
#define RESEAT_STATE_TRANSFER_THROTTLE_H

#include <stdint.h>

/*
 * A bandwidth that copies keep to: a bucket of tokens, one a byte, that fills at that rate and
 * holds what a moment brings. Whoever takes more than there is owes it, and waits until that is
 * paid. It knows no clock: times are the caller's, so that tests have their own.
 */

/** How much may be saved up: nanoseconds of the rate. */
#define THROTTLE_BURST_NS 10000000u

/** Zeroed: no limit. One thread at a time. */
struct throttle {
    uint64_t rate;     /**< Bytes a second; 0: no limit. */
    uint64_t paid_ns;  /**< When all that was taken is paid for. */
    uint64_t slept_ns; /**< How long its users have waited for it, all together. */
};

/**
 * Take @bytes. Returns when they may go: @now_ns, or later. Any number of bytes may be taken at
 * once; what they cost is waited for before they go, but for what was saved up.
 */
uint64_t throttle_take(struct throttle *throttle, uint64_t bytes, uint64_t now_ns);

#endif
