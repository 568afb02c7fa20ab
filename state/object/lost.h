#ifndef RESEAT_STATE_OBJECT_LOST_H
#define RESEAT_STATE_OBJECT_LOST_H

#include "state/object/context.h"
#include "state/object/residence.h"

/*
 * Devices that are lost: unplugged, reset, hung, or with a context that no longer works.
 *
 * How a loss is recognised, only here. No driver error is proof: CL_OUT_OF_RESOURCES is reported by
 * a lost device, by a full one, and by one that a launch is too large for; a program's kernel that
 * faults ends its command as a loss does. So after an error that a loss may have caused, the device
 * is tested with commands that neither the program nor a shortage can make fail: a marker, and a
 * write of four bytes if there is room, on a queue of our own. An error of these is proof. No
 * answer within a deadline is proof only after an error that no shortage causes, because the test
 * may be waiting behind a long kernel of the program. Where a driver reports no error and a wait
 * just lasts, the same test is made now and then; then only an error is proof.
 *
 * What follows from a loss, only here as well (residence_lose): the residence is `lost` for good,
 * and its driver is called only to release objects, and only as long as it answers (lost_calls.h);
 * where it hangs, the objects are leaked. So new commands fail with CL_OUT_OF_RESOURCES, unfinished
 * ones end with that status, each callback is called once with it, and waits return. Deferred
 * commands are given to the driver when their turn comes, which is in another residence if the
 * program was moved by then. A new residence on the device is made only after the device has
 * answered.
 */

/** A wait that lasts this long has its device tested, then again after twice that time, and so on.
 */
extern uint64_t lost_patience_ns;
/** Time that a device has to answer after an error. */
extern uint64_t lost_answer_ns;

/**
 * Call after the driver of @residence returned @error for valid handles, to find out whether its
 * device is lost.
 *
 * Tests the device if a loss may cause @error: blocks until it answers, for lost_answer_ns at most.
 * Not inside the gate, except for movers. True when the device is lost.
 */
bool residence_failed(struct residence *residence, cl_int error);
/**
 * Call after a call of the program for @context failed with @error without effect. If the program
 * is protected and a device was lost, waits until the program was recovered on another one. True:
 * try the call again. Not inside the gate.
 *
 * @tries  0 before the first call. One retry is allowed without a loss, which may have been
 *         recovered already.
 */
struct context;
bool context_outlives(struct context *context, cl_int error, unsigned *tries);
/**
 * The same for an error of @residence, for an object that nobody else uses yet. True: make it
 * again, where the program is now.
 */
bool residence_outlives(struct residence *residence, cl_int error);
/** The same for a context that could not be made for @vdevs. */
bool vdevs_outlive(cl_uint count, struct vdev *const *vdevs, cl_int error);
/** True for errors of a query that a lost device may cause and wrong arguments do not. */
bool lost_may_say(cl_int error);
/** A command of @residence lasts: test its device. Blocks briefly; not inside the gate, except for
 * movers. */
void residence_doubt(struct residence *residence);
/**
 * Declare @residence lost, for @reason. @answers: calls of its driver return, as far as is known.
 * Callable anywhere, more than once.
 */
void residence_lose(struct residence *residence, const char *reason, bool answers);
/** The same where the device works, and the program alone cannot go on in @residence. */
void residence_give_up(struct residence *residence, const char *reason);
/** The latest loss of any residence. */
struct loss {
    uint64_t count;              /**< Losses so far; 0: none, and the other fields are empty. */
    const struct device *device; /**< Borrowed. */
    const char *reason;          /**< Static. */
    uint64_t at_ns;              /**< CLOCK_MONOTONIC. */
    bool isolated; /**< Its driver ran in a process of its own; recovery would start another one. */
    bool works;    /**< residence_give_up. */
};
/** Thread-safe. */
void lost_last(struct loss *ret_loss);
/** A thread was left behind in the driver of @residence: nothing is released there any more. */
void residence_hangs(struct residence *residence);

/*
 * Operations that a move forces to start again, because they run outside the gate for the device
 * where they began: builds, and the creation of contexts. If moves came faster than such an
 * operation ends, it would never end; so once it had to start again a few times, moves of its
 * devices wait for it before they begin.
 *
 * They wait within their own deadline and cancellation, and for LOST_RETRY_NS at most, since the
 * operation may hang in a driver. A resume does not wait, since the operation may be waiting for
 * it.
 */

#define RETRY_AFTER   3 /**< Attempts in vain. */
#define LOST_RETRY_NS 120000000000u

/** One such operation; initialised as {.vdevs, .count}. */
struct retry {
    struct vdev *const *vdevs; /**< Borrowed. */
    cl_uint count;
    unsigned attempts; /**< Attempts in vain so far. */
};

/** Note an attempt in vain. Not inside the gate. */
void retry_again(struct retry *retry);
/** The operation has ended; also to be called where no attempt was in vain. */
void retry_end(struct retry *retry);

/** True while moves of @vdev must wait. */
bool retry_delays_moves(const struct vdev *vdev);
/** Wait until some operation has ended, but no longer than @wait_ns. */
void retry_wait(uint64_t wait_ns);

#endif
