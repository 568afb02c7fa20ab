#ifndef RESEAT_STATE_MOVE_SPREAD_H
#define RESEAT_STATE_MOVE_SPREAD_H

#include "state/move/move_priv.h"

/*
 * One launch in several places. A launch that is given in pieces goes on where its queue is, from
 * its first group on; other residences of its context, which a mover has made ready, do groups from
 * its end, as many as each has time for. They begin with what the launch's buffers have at that
 * moment; what each of them wrote is found by its difference to that, and brought to where the
 * queue is (merge.h). Work-groups that use no atomic functions cannot tell: natively, too, none may
 * rely on what another one wrote (3.3.4 of the specification). Where two places wrote the same
 * bytes, and something else, what one of them did is thrown away and done again where the queue is,
 * and the kernel is not spread any more.
 *
 * Nothing that a residence did counts before its difference has been brought home: where it fails,
 * is lost, or is too slow to be worth it, its groups are given back. So a launch takes no longer
 * than without it, but for what home does again.
 *
 * Merging by difference is how Pandit and Govindarajan spread launches ("Fluidic Kernels:
 * Cooperative Execution of OpenCL Programs on Multiple Heterogeneous Devices", CGO 2014).
 *
 * All of it is a mover's: under move_run's lock, with the gate open.
 */

struct spread;

struct spread_request {
    struct vdev *vdev; /**< Whose launch. */
    /** It may be what is left of one that was spread: not worth it says nothing of the kernel. */
    bool again;
    /** True for a place of @context that is to do a part, if it can. */
    bool (*offers)(const void *data, const struct context *context, uint8_t residence_index);
    /** Asked between pieces, by several threads: no more are to be taken. */
    bool (*stops)(const void *data);
    const void *data;
    /** Once home has nothing left to do, a place that is slower at its part than home would be is
     *  waited for by spread_end alone, and the launch ends before. For who does not go to it. */
    bool abandons;
    /** It gives way to whoever waits to move, while what came before the launch is awaited. */
    bool yields;
    struct transfer_limits limits; /**< Of what is copied before. */
};

/**
 * Have what is offered join the launch that the program is in the middle of, and do a part of it,
 * until no group is left or request->stops; then bring home what it did. The launch goes on
 * meanwhile, but it does not end, nor goes on after a stop, before spread_end.
 *
 * Blocks for as long as the launch takes. 0, or why not: -ENOENT (no launch that is worth it),
 * -EAGAIN (how long it takes is not known yet), -EINTR (it gave way to a mover, and may be begun
 * again), -ENOTSUP, -EBUSY, -ENOSPC, -ENOMEM, -EIO, -ETIMEDOUT, -ECANCELED. The program is never
 * worse off.
 */
MUST_CHECK int spread_run(const struct spread_request *request, struct spread **ret_spread);
/** The launch ends, or goes on, where its queue is now. Blocks for as long as a place takes for a
 *  piece that it was abandoned with. NULL is allowed. */
void spread_end(struct spread *spread);

/** Launches that were spread so far, and work-items of them that other places did. Wait-free. */
void spread_read(uint64_t *ret_launches, uint64_t *ret_items);

#endif
