#ifndef RESEAT_STATE_MOVE_STATUS_H
#define RESEAT_STATE_MOVE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "state/budget/budget.h"
#include "state/program/pace.h"

/** A device that a virtual device left on demand, with bytes of the program's that are there still,
 *  unless another virtual device counts them. */
struct source_status {
    struct device_key device;
    uint64_t bytes;
};

/** A virtual device as an operator sees it. */
struct vdev_status {
    struct device_key device; /**< Where it is; of a suspended one, where it was. */
    bool suspended;
    bool moving;
    bool lost;                  /**< The device was lost, and has not answered since. */
    uint64_t device_bytes;      /**< Bytes of memory objects held in residences on this device. */
    uint64_t fetched, to_fetch; /**< Bytes left behind on demand: there by now, and in all; or 0. */
    uint32_t source_count;
    struct source_status sources[RESIDENCES_MAX];
    uint64_t spilled_bytes; /**< Of those that are in host memory for want of room there. */
    struct budget_use room;
    uint32_t busy;  /**< Thousandths of its time, of late, that a thread waited for the device. */
    uint32_t moves; /**< Completed ones, suspends and resumes included. */
    uint64_t last_downtime_ns;
    uint64_t contexts, queues, memories, programs, kernels, events; /**< Live objects. */
    const char *pinned; /**< Why it cannot move, or NULL. Static. */
};

/** Devices that a program may be ready for at once, at most. */
#define STATUS_READY_MAX 8

/** A device that a program could move to with nothing made first (move_request.prewarm). */
struct ready_status {
    struct device_key device;
    uint32_t behind; /**< Programs built, and contexts made, since. */
};

/** Thread-safe; takes no lock. Returns how many there are. */
uint32_t status_ready(struct ready_status ret_ready[STATUS_READY_MAX]);

/** Kernels whose launches are not given in pieces that are told of, at most. */
#define STATUS_WHOLE_MAX 16
/** Those that were launched so far, and why; with a slice. Thread-safe, likewise. Returns how many
 *  there are. */
uint32_t status_whole(struct pace_refusal ret_whole[STATUS_WHOLE_MAX]);

/** What launches were done in several places. */
struct spread_status {
    uint64_t slice_ns; /**< How long their pieces are to take; 0: they are given whole. */
    uint64_t launches; /**< So many were spread so far, ... */
    uint64_t items;    /**< ...and other places did so many of their work-items. */
};

/** Wait-free. */
void status_spread(struct spread_status *ret_status);

/** How many virtual devices the program has; 0 until it has started. */
uint32_t status_vdev_count(void);
/** Thread-safe; takes no lock that a program's call holds while it blocks. */
void status_vdev(uint32_t vdev, struct vdev_status *ret_status);
/**
 * Bytes of large memory objects that a suspend would find no host memory for yet, counted up to
 * what is kept warm at most; 0 while something moves. Thread-safe, likewise.
 */
uint64_t status_host_need(void);

#endif
