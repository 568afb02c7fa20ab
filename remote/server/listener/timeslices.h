#ifndef RESEAT_REMOTE_SERVER_LISTENER_TIMESLICES_H
#define RESEAT_REMOTE_SERVER_LISTENER_TIMESLICES_H

#include <stdbool.h>
#include <stdint.h>

#include "state/base/clock.h"

/*
 * Whose time slice it is on one device: start-time fair queueing of its sessions, each with a
 * weight, by the time for which they had the device. Pure: no clock, no I/O.
 *
 * Who is alone has the time slice until another asks, and is told nothing meanwhile. With others
 * waiting, a time slice lasts TIMESLICE_NS; then its holder gives the device nothing more, and says
 * when what it gave has ended. One that does not is passed over after TIMESLICE_OVERTIME_NS: what
 * it left on the device is the driver's to divide, and its to pay for, and it gets time slices
 * beside those of others, rarely, until all of that has ended.
 */

#define TIMESLICE_NS          (20 * NS_PER_MS)
#define TIMESLICE_OVERTIME_NS (250 * NS_PER_MS)
#define TIMESLICE_BESIDE_NS   NS_PER_S
#define TIMESLICE_SHARE       100u  /**< The weight of who has no other. */
#define TIMESLICE_SHARE_MAX   1000u /**< And the largest. */

enum timeslice_event {
    TIMESLICE_BEGINS,   /**< For as many ns; UINT64_MAX: until it is recalled. */
    TIMESLICE_RECALLED, /**< It ends in as many ns. */
    TIMESLICE_LOST,     /**< It went to the next. */
};

/** One session on one device. Zero, but for its owner and share, before it asks. */
struct timeslice_user {
    struct timeslice_user *next; /* Of those who wait, or owe. */
    void *owner;                 /**< Whatever `tell` needs. */
    uint32_t share;              /**< 1 to TIMESLICE_SHARE_MAX. */
    bool waits;
    bool owes;           /**< It lost a time slice and has not said that what it gave has ended. */
    uint64_t beside_ns;  /* When one who owes and waits gets a time slice beside others. */
    uint64_t since_ns;   /* From when on it pays. */
    uint64_t most_ns;    /* What it pays at most. */
    uint64_t start, end; /* Virtual times of its time slice. */
};

struct timeslices {
    void (*tell)(void *data, struct timeslice_user *user, enum timeslice_event event, uint64_t ns);
    void *data;
    struct timeslice_user *holder; /**< NULL: nobody. */
    bool alone;                    /* Nobody waited when its time slice began, or since. */
    uint64_t until_ns;             /* When the holder is passed over, unless alone. */
    uint64_t now;                  /* Virtual. */
    struct timeslice_user *waiting, *owing;
};

/** It asks for a time slice. Asking twice is asking once. */
void timeslices_want(struct timeslices *timeslices, struct timeslice_user *user, uint64_t now_ns);
/** What it gave has ended, and so its time slice has. @again: it wants another; who says so later
 * only comes after whoever waits now. */
void timeslices_over(struct timeslices *timeslices, struct timeslice_user *user, bool again,
                     uint64_t now_ns);
/** It is gone. */
void timeslices_leave(struct timeslices *timeslices, struct timeslice_user *user, uint64_t now_ns);
/** See to what time does. When it is to be called next; UINT64_MAX: there is nothing. */
uint64_t timeslices_tick(struct timeslices *timeslices, uint64_t now_ns);

#endif
