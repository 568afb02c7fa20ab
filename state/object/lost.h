#ifndef RESEAT_STATE_OBJECT_LOST_H
#define RESEAT_STATE_OBJECT_LOST_H

#include "state/object/residence.h"

/*
 * Devices that are lost: unplugged, reset, hung, or with a context that no longer works.
 *
 * How a loss is recognised, here alone. No error of a driver is proof: CL_OUT_OF_RESOURCES is what
 * a lost device says, and a full one, and one that a launch is too large for; a program's own
 * kernel that fails ends its command as a loss does. So an error that a loss may be behind has the
 * device asked something that neither the program nor a shortage can spoil: a marker, and four
 * bytes where there is room for them, on a queue of our own. An error of that is the proof. No
 * answer at all is proof only after an error that no shortage has: it may lie behind a long kernel
 * of the program. Where a driver gives no error and a wait just lasts, the same is asked beside it,
 * now and then; then only an error is proof.
 *
 * What follows, here alone as well (residence_lose): the residence is `lost` for good, and its
 * driver is not called any more, but to be given back what it has as long as it answers
 * (lost_calls.h); where it hangs that is leaked. So commands fail with CL_OUT_OF_RESOURCES, those
 * that had not ended have that status, each callback comes once with it, and waits return. Commands
 * held for the program's sake are given to the driver when their turn comes, which is in another
 * residence if the program was moved by then. A new residence on the device has to answer first.
 */

/** A wait that lasts so long has its residence asked, and then at twice the distance each time. */
extern uint64_t lost_patience_ns;
/** So long an answer is waited for after an error. */
extern uint64_t lost_answer_ns;

/**
 * The driver of @residence answered @error, where the handles that it was given are valid.
 *
 * Blocks until the device answered, for lost_answer_ns at most, if @error is one that a lost device
 * has; not in the gate but by a mover. True when the device is lost.
 */
bool residence_failed(struct residence *residence, cl_int error);
/**
 * A call of the program for @context failed with @error and did nothing. Where the program is
 * protected that may be a loss: wait until it is on another device. True: the call is to be tried
 * again. Not inside the gate.
 *
 * @tries  0 before the first call: the loss may be over when it is looked at.
 */
struct context;
bool context_outlives(struct context *context, cl_int error, unsigned *tries);
/**
 * The same where it is known which residence said so, while what it was to make is nobody else's.
 * True: it is to be made again where the program is now.
 */
bool residence_outlives(struct residence *residence, cl_int error);
/** The same of a context that could not be made for @vdevs. */
bool vdevs_outlive(cl_uint count, struct vdev *const *vdevs, cl_int error);
/** Of a query: what a driver says of a lost device, and of no question. */
bool lost_may_say(cl_int error);
/** Something given to @residence lasts: ask its device, for a moment. As above; blocks briefly. */
void residence_doubt(struct residence *residence);
/** @residence is lost, for @reason. @answers: no call of its driver hangs, as far as is known.
 *  Anywhere, more than once. */
void residence_lose(struct residence *residence, const char *reason, bool answers);
/** The last loss of all. */
struct loss {
    uint64_t count;              /**< How many there were; 0: none, and nothing else is said. */
    const struct device *device; /**< Borrowed. */
    const char *reason;          /**< Static. */
    uint64_t at_ns;              /**< CLOCK_MONOTONIC. */
    bool isolated; /**< Its driver was in a process of its own, and would be in another one. */
};
/** Thread-safe. */
void lost_last(struct loss *ret_loss);
/** A thread was left behind in the driver of @residence: nothing is released there any more. */
void residence_hangs(struct residence *residence);

#endif
