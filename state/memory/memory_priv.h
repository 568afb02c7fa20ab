#ifndef RESEAT_STATE_MEMORY_MEMORY_PRIV_H
#define RESEAT_STATE_MEMORY_MEMORY_PRIV_H

#include "state/memory/memory.h"

/** Release the real object of @memory in @residence_index, if any, and what it has of the device's
 * memory. Its host copy stays until the driver lets go of it. Inside the gate, or with it closed.
 */
void memory_release_real(struct memory *memory, uint8_t residence_index);
/** Release every real object of @memory; its host copy stays until the drivers let go of it. Inside
 *  the gate. */
void memory_release_reals(struct memory *memory);

/** What @memory holds and owns, but for real objects and its host copy; the last thing before its
 * slot is given back. */
void memory_let_go(struct memory *memory);

/** Drop one part of what an object's destructor callbacks wait for. From any thread, a driver's
 *  too: when it is the last one they are called on the callback thread. */
void farewell_drop(struct farewell *farewell);

#endif
