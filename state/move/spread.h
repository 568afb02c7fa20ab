#ifndef RESEAT_STATE_MOVE_SPREAD_H
#define RESEAT_STATE_MOVE_SPREAD_H

#include "state/move/move_priv.h"

/*
 * One launch on several devices. A launch that is given in pieces continues on its queue's
 * residence ("home"), from its first work-group on; other residences of its context, prewarmed by a
 * mover, take groups from its end, as many as each has time for. They begin with a copy of the
 * launch's buffers; what each of them wrote is found as the difference from that copy, and brought
 * home (merge.h). Work-groups without atomic functions cannot notice: without reseat, too, none may
 * rely on what another one wrote (3.3.4 of the specification). Where two residences wrote different
 * values to the same bytes, the work of the helper is thrown away and done again at home, and the
 * kernel is not spread any more.
 *
 * A helper's work counts only once its difference has been brought home. If the helper fails, is
 * lost, or is too slow, its groups are given back to home. So spreading costs at most what home
 * does again.
 *
 * Merging by difference is how Pandit and Govindarajan spread launches ("Fluidic Kernels:
 * Cooperative Execution of OpenCL Programs on Multiple Heterogeneous Devices", CGO 2014).
 *
 * All functions but spread_read are called by a mover, under the movers' lock, with the gate open.
 */

struct spread;

struct spread_request {
    struct vdev *vdev; /**< The virtual device whose launch is spread. */
    /** The launch may be the rest of one that was spread before, so -ENOENT does not mean that the
     * kernel is not worth spreading. */
    bool again;
    /** True for a residence of @context that may help. */
    bool (*offers)(const void *data, const struct context *context, uint8_t residence_index);
    /** True when helpers must stop. Called between pieces, by several threads. */
    bool (*stops)(const void *data);
    const void *data;
    /** When home has nothing left to do, end the launch without waiting for a helper that takes
     * longer than home would to do its part again; spread_end waits for it. For callers that do not
     * move to a helper's device. */
    bool abandons;
    /** Give way to a waiting mover while earlier commands are awaited. */
    bool yields;
    struct transfer_limits limits; /**< Of the copies before the launch is joined. */
};

/**
 * Have the residences that @request offers join the launch that the program runs now, until no
 * group is left or request->stops, then bring home what they did. The launch continues meanwhile,
 * but it does not end, nor continue after a stop, before spread_end.
 *
 * Blocks for as long as the launch takes. 0, or why it was not spread: -ENOENT (no launch that is
 * worth it), -EAGAIN (its speed is not known yet), -EINTR (it gave way to a mover; call again),
 * -ENOTSUP, -EBUSY, -ENOSPC, -ENOMEM, -EIO, -ETIMEDOUT, -ECANCELED. After an error the launch runs
 * as if this had not been called.
 */
MUST_CHECK int spread_run(const struct spread_request *request, struct spread **ret_spread);
/** Let the launch end, or continue where its queue is now. Blocks until helpers that were abandoned
 * have finished their current piece. NULL is allowed. */
void spread_end(struct spread *spread);

/** Launches spread so far, and their work-items done by helpers. Wait-free. */
void spread_read(uint64_t *ret_launches, uint64_t *ret_items);

/*
 * Runs launches on prewarmed residences for their queue's device ("home"; command/place.h says
 * which ones). A helper's results count once they are at home: until then home's bytes are as they
 * were before the launch, so a launch whose helper fails, is lost or is late runs at home instead.
 * What a late helper still writes is dropped: its residence is released.
 *
 * By a mover that yields, under the movers' lock, with the gate open: while launches are placed no
 * other move goes on, and when it ends nothing of the program is on a helper alone.
 */

/**
 * Place launches of request->vdev on the residences that @request offers, until request->stops or
 * none came for a while. 0, or -ENOTSUP: a program was built since the residences were prewarmed.
 */
MUST_CHECK int placement_run(const struct spread_request *request);

#endif
