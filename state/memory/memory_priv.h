#ifndef RESEAT_STATE_MEMORY_MEMORY_PRIV_H
#define RESEAT_STATE_MEMORY_MEMORY_PRIV_H

#include "state/memory/memory.h"

/** Release the real object of @memory in @residence_index, if any, and return its bytes to the
 * device's budget. Its host copy stays until the driver lets go of it. Inside the gate, or with it
 * closed.
 */
void memory_release_real(struct memory *memory, uint8_t residence_index);
/** Release every real object of @memory; its host copy stays until the drivers let go of it. Inside
 *  the gate. */
void memory_release_reals(struct memory *memory);

/** Release all that @memory holds and owns but its real objects and its host copy. The caller then
 * gives its slot back. */
void memory_let_go(struct memory *memory);

/** One of the ends that an object's destructor callbacks wait for has come. After the last one they
 * are called on the callback thread. From any thread, also a driver's. */
void farewell_drop(struct farewell *farewell);

#endif
