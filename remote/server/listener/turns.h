#ifndef RESEAT_REMOTE_SERVER_LISTENER_TURNS_H
#define RESEAT_REMOTE_SERVER_LISTENER_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "state/base/clock.h"

/*
 * Whose turn it is on one device: start-time fair queueing of its sessions, each with a weight, by
 * the time for which they had the device. Pure: no clock, no I/O.
 *
 * Who is alone has the turn until another asks, and is told nothing meanwhile. With others waiting,
 * a turn lasts TURN_NS; then its holder gives the device nothing more, and says when what it gave
 * has ended. One that does not is passed over after TURN_OVERTIME_NS: what it left on the device is
 * the driver's to divide, and its to pay for, and it gets turns beside those of others, rarely,
 * until all of that has ended.
 */

#define TURN_NS          (20 * NS_PER_MS)
#define TURN_OVERTIME_NS (250 * NS_PER_MS)
#define TURN_BESIDE_NS   NS_PER_S
#define TURN_SHARE       100u  /**< The weight of who has no other. */
#define TURN_SHARE_MAX   1000u /**< And the largest. */

enum turn_word {
    TURN_YOURS,    /**< For as many ns; UINT64_MAX: until it is recalled. */
    TURN_RECALLED, /**< It ends in as many ns. */
    TURN_LOST,     /**< It went to the next. */
};

/** One session on one device. Zero, but for its owner and share, before it asks. */
struct turn_user {
    struct turn_user *next; /* Of those who wait, or owe. */
    void *owner;            /**< Whatever `tell` needs. */
    uint32_t share;         /**< 1 to TURN_SHARE_MAX. */
    bool waits;
    bool owes;           /**< It lost a turn and has not said that what it gave has ended. */
    uint64_t beside_ns;  /* When one who owes and waits gets a turn beside others. */
    uint64_t since_ns;   /* From when on it pays. */
    uint64_t most_ns;    /* What it pays at most. */
    uint64_t start, end; /* Virtual times of its turn. */
};

struct turns {
    void (*tell)(void *data, struct turn_user *user, enum turn_word word, uint64_t ns);
    void *data;
    struct turn_user *holder; /**< NULL: nobody. */
    bool alone;               /* Nobody waited when its turn began, or since. */
    uint64_t until_ns;        /* When the holder is passed over, unless alone. */
    uint64_t now;             /* Virtual. */
    struct turn_user *waiting, *owing;
};

/** It asks for a turn. Asking twice is asking once. */
void turns_want(struct turns *turns, struct turn_user *user, uint64_t now_ns);
/** What it gave has ended, and so its turn has. @again: it wants another; who says so later only
 *  comes after whoever waits now. */
void turns_over(struct turns *turns, struct turn_user *user, bool again, uint64_t now_ns);
/** It is gone. */
void turns_leave(struct turns *turns, struct turn_user *user, uint64_t now_ns);
/** See to what time does. When it is to be called next; UINT64_MAX: there is nothing. */
uint64_t turns_tick(struct turns *turns, uint64_t now_ns);

#endif
