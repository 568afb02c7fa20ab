#ifndef RESEAT_STATE_MOVE_STATUS_H
#define RESEAT_STATE_MOVE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "state/budget/budget.h"
#include "state/command/place.h"
#include "state/move/source.h"
#include "state/program/pace.h"

/** A device left in a move on demand, with bytes of the program that are not fetched yet. Bytes
 * that another virtual device counts are left out. */
struct source_status {
    struct device_key device;
    uint64_t bytes;
};

/** A virtual device as an operator sees it. */
struct vdev_status {
    struct device_key device; /**< Where it is; of a suspended one, where it was before. */
    bool suspended;
    bool moving;
    bool lost;                  /**< The device was lost, and has not answered since. */
    uint64_t device_bytes;      /**< Bytes of memory objects held in residences on this device. */
    uint64_t fetched, to_fetch; /**< Of a move on demand: bytes fetched so far, and in all; or 0. */
    uint32_t source_count;
    struct source_status sources[SOURCES_MAX];
    uint64_t spilled_bytes; /**< Bytes in host memory because the device has no room for them. */
    struct budget_use room;
    uint32_t
        busy; /**< Share of recent time, in thousandths, in which a thread waited for the device. */
    /** Bytes transferred from the device and to it, in a second: rounded, of the last second. */
    uint64_t from_bytes_s, to_bytes_s;
    uint32_t moves; /**< Completed moves, suspends and resumes included. */
    uint64_t last_downtime_ns;
    uint64_t contexts, queues, memories, programs, kernels, events; /**< Live objects. */
    const char *pinned; /**< Why it cannot move, or NULL. Static. */
};

/** Most devices that a program may be ready for at once. */
#define STATUS_READY_MAX 8

/** A prewarmed device (move_request.prewarm). */
struct ready_status {
    struct device_key device;
    uint32_t behind; /**< Programs and contexts that were made since and are missing there. */
};

/** Fill in the prewarmed devices. Thread-safe; takes no lock. Returns the number of entries. */
uint32_t status_ready(struct ready_status ret_ready[STATUS_READY_MAX]);

/** Most kernels listed by status_whole. */
#define STATUS_WHOLE_MAX 16
/** With `--slice`: the kernels launched so far whose launches cannot be given in pieces, and why.
 * Thread-safe; takes no lock. Returns the number of entries. */
uint32_t status_whole(struct pace_refusal ret_whole[STATUS_WHOLE_MAX]);

/** Launches that were spread over several devices. */
struct spread_status {
    uint64_t slice_ns; /**< Target duration of a piece; 0: launches are given whole. */
    uint64_t launches; /**< Launches that other devices did, or had a part in, so far. */
    uint64_t items;    /**< Their work-items that other devices did. */
    struct place_status placed;
};

/** Wait-free. */
void status_spread(struct spread_status *ret_status);

/** Number of virtual devices; 0 until the program has started. */
uint32_t status_vdev_count(void);
/** Thread-safe; takes no lock that a program's call holds while it blocks. */
void status_vdev(uint32_t vdev, struct vdev_status *ret_status);
/**
 * Bytes of large memory objects for which a suspend would have to allocate host memory, at most as
 * many as may be kept warm; 0 while something moves. Thread-safe; takes no lock that a program's
 * call holds while it blocks.
 */
uint64_t status_host_need(void);

#endif
