#ifndef RESEAT_STATE_MOVE_SOURCE_H
#define RESEAT_STATE_MOVE_SOURCE_H

#include "state/object/context.h"

/*
 * Residences that a virtual device left on demand (RESIDENCE_SOURCE): of all that they had they
 * keep the memory objects whose latest bytes are still to be fetched (fetch.h). No command runs
 * there. They go once no byte is there alone any more (R4), or are where a virtual device moves to
 * again.
 */

/** Residence indexes of @context that @vdev left on demand and that can be read, as bits. By
 * movers. */
uint32_t source_residences(const struct vdev *vdev, const struct context *context);
/** True when there is any, in some context. By movers. */
bool source_any(const struct vdev *vdev);
/** Take the residences of @context that @vdev left on demand out of it, if nothing is there alone
 * any more or they are lost: in front of *@list, to be unreferenced. Gate closed. */
void source_release(const struct vdev *vdev, struct context *context, struct residence **list);
/** The same in all contexts. */
void source_release_all(const struct vdev *vdev, struct residence **list);

/** A device that a virtual device left on demand and that has memory of the program's still. */
struct source {
    struct device *device;
    uint64_t bytes; /**< What the program has there, unless a virtual device of it counts that. */
};
/** Update what source_read reports of @vdev. By movers. */
void source_tell(const struct vdev *vdev);
/** Returns how many there are. Wait-free. */
uint32_t source_read(uint32_t vdev, struct source ret_sources[RESIDENCES_MAX]);

#endif
