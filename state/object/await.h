#ifndef RESEAT_STATE_OBJECT_AWAIT_H
#define RESEAT_STATE_OBJECT_AWAIT_H

#include "state/object/residence.h"

/*
 * Waits for drivers that end when the residence is lost, though the driver's own does not.
 *
 * Nothing gets a thread out of a driver. So a wait for a device that can be lost without a word is
 * done by a thread of ours, and who waits for that one can leave it behind: it then ends by itself,
 * or never. What it uses there stays valid, for then nothing of that residence is released
 * (lost.h). Waits for a CPU, which is lost with the process, are done in the thread itself, and so
 * are those in drivers that are known to end them with an error (residence_create).
 */

enum answer {
    ANSWER_GOOD,
    ANSWER_ERROR,
    ANSWER_NONE, /**< In the time that it had. */
};
/** Ask the device of @residence, which is not lost, to end a command of ours (lost.h). Blocks, but
 *  no longer than @patience_ns. ANSWER_GOOD without a thread or memory for it. */
enum answer await_answer(struct residence *residence, uint64_t patience_ns);

/** Some residence is lost: who waits for it looks. Anywhere. */
void await_lost(void);

#endif
