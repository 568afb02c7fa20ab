#ifndef RESEAT_STATE_MOVE_SOURCE_H
#define RESEAT_STATE_MOVE_SOURCE_H

#include "state/object/context.h"

/*
 * Residences that a seat left on demand (RESIDENCE_SOURCE): of all that they had they keep the
 * memory objects whose latest bytes are still to be fetched (fetch.h). No command runs there. They
 * go once no byte is there alone any more (R4), or are where a seat moves to again.
 */

/** Places of @context that @seat left on demand and that can be read, as bits. By movers. */
uint32_t source_places(const struct seat *seat, const struct context *context);
/** True when there is any, in some context. By movers. */
bool source_any(const struct seat *seat);
/** Take the residences of @context that @seat left on demand out of it, if nothing is there alone
 * any more or they are lost: in front of *@list, to be unreferenced. Gate closed. */
void source_release(const struct seat *seat, struct context *context, struct residence **list);
/** The same in all contexts. */
void source_release_all(const struct seat *seat, struct residence **list);

/** A device that a seat left on demand and that has memory of the program's still. */
struct source {
    struct device *device;
    uint64_t bytes; /**< What the program has there, unless a virtual device of it counts that. */
};
/** What source_read says of @seat from now on. By movers. */
void source_tell(const struct seat *seat);
/** Returns how many there are. Wait-free. */
uint32_t source_read(uint32_t seat, struct source ret_sources[PLACES]);

#endif
