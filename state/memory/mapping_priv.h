#ifndef RESEAT_STATE_MEMORY_MAPPING_PRIV_H
#define RESEAT_STATE_MEMORY_MAPPING_PRIV_H

#include "state/memory/mapping.h"

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
