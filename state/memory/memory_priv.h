#ifndef RESEAT_STATE_MEMORY_MEMORY_PRIV_H
#define RESEAT_STATE_MEMORY_MEMORY_PRIV_H

#include "state/memory/mapping.h"
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

#define WRITE_FLAGS (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION)

/* The lists of mappings (mapping.c). A mover, who has the gate closed, walks them without their
 * lock: they change inside the gate only. */

/** Put @mapping on its root's list, with the host copy's address. Inside the gate. False while a
 * mover visits the root: then nothing is changed, and map_visit_await is to be called outside. */
bool mapping_link(struct mapping *mapping);
/** Take it off the list, and drop the list's reference. Inside the gate. */
void mapping_unlink(struct mapping *mapping);
void mapping_ref(struct mapping *mapping);
/** Drop a reference, of its creator or of mapping_ref. */
void mapping_unref(struct mapping *mapping);
/** The mapping of @memory at @pointer whose unmap was not enqueued, or NULL; marks it closing. */
struct mapping *mapping_close(struct memory *memory, const void *pointer);
/** Its unmap could not be enqueued. */
void mapping_reopen(struct mapping *mapping);
/** Its map command was given to the driver at @residence_index, or to none (RESIDENCE_NONE). */
void mapping_issued(struct mapping *mapping, uint8_t residence_index);
/** Its map command was given up, unless it was issued or given up before. */
void mapping_settle(struct mapping *mapping);
/** True when another mapping, to be written, covers all bytes of @mapping: the host copy has them.
 */
bool mapping_is_covered(struct mapping *mapping);

/** Have the driver map it: the root, which has the host copy's address. */
cl_int mapping_enter(const struct mapping *mapping, struct residence *residence,
                     uint8_t residence_index, cl_command_queue queue, cl_map_flags flags,
                     cl_uint waits, const cl_event *wait_list, cl_event *ret_event);
/** From the driver that mapped it to the one at @residence_index, or to none where the object was
 * not made over its host copy. With the gate closed, and the queues of the old residence drained.
 */
cl_int mapping_carry(struct mapping *mapping, uint8_t residence_index);

#endif
