#ifndef RESEAT_STATE_OBJECT_AWAIT_H
#define RESEAT_STATE_OBJECT_AWAIT_H

#include "state/object/residence.h"

/*
 * Waits for drivers that end when the residence is lost, even if the driver's own call never
 * returns.
 *
 * A thread cannot be taken out of a driver. So where a device can be lost without the driver
 * reporting it, a helper thread of ours calls the driver, and the caller waits for the helper,
 * which it can leave behind: the helper then ends later, or never. The handles that it uses stay
 * valid, because nothing of such a residence is released (lost.h). Waits for a CPU, which cannot be
 * lost without the process, and waits in drivers that are known to report an error
 * (residence_create), are done by the calling thread itself.
 */

enum answer {
    ANSWER_GOOD,
    ANSWER_ERROR,
    ANSWER_NONE, /**< No answer in time. */
};
/** Test the device of @residence, which is not lost, with a command of ours (lost.h). Blocks for
 * @patience_ns at most. ANSWER_GOOD also without a thread or memory for the test. */
enum answer await_answer(struct residence *residence, uint64_t patience_ns);

/** A residence was lost: wake those who wait for it. Callable anywhere. */
void await_lost(void);

#endif
