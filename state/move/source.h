#ifndef RESEAT_STATE_MOVE_SOURCE_H
#define RESEAT_STATE_MOVE_SOURCE_H

#include "state/object/context.h"

/*
 * Sources: residences that a virtual device left in a move on demand (RESIDENCE_SOURCE). They keep
 * only the memory objects whose latest bytes are still to be fetched (fetch.c). No command runs
 * there. A source is released once it is the only holder of no byte (R4); a move back makes it an
 * ordinary residence again.
 */

/** Residence indexes of readable sources of @vdev in @context, as bits. For movers. */
uint64_t source_residences(const struct vdev *vdev, const struct context *context);
/** True when @vdev has a source in some context. For movers. */
bool source_any(const struct vdev *vdev);
/** Take the sources of @vdev that are lost, or no longer the only holder of a byte, out of
 * @context. They are put in front of *@list; the caller unreferences them. Gate closed. */
void source_release(const struct vdev *vdev, struct context *context, struct residence **list);
/** The same in all contexts. */
void source_release_all(const struct vdev *vdev, struct residence **list);

/** Sources of a virtual device that are reported, at most. */
#define SOURCES_MAX 8
/** A source's device, as reported to operators. */
struct source {
    struct device *device;
    uint64_t bytes; /**< Bytes of the program there; 0 where a virtual device on the same device
                       already counts them. */
};
/** Update what source_read reports for @vdev. For movers. */
void source_tell(const struct vdev *vdev);
/** Returns the number of entries. Wait-free. */
uint32_t source_read(uint32_t vdev, struct source ret_sources[SOURCES_MAX]);

#endif
