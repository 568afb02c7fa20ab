#ifndef RESEAT_STATE_MEMORY_MAPPING_H
#define RESEAT_STATE_MEMORY_MAPPING_H

#include "state/memory/memory.h"

/*
 * Maps. A map's pointer lies in the root's host copy, so it is known when the call is made, is the
 * same on every device, and stays valid across moves. Where the real object was made over the
 * host copy the driver maps it; elsewhere mapping reads the region into the host copy, which is
 * registered with the driver where that pays (registered.h), and unmapping writes it back.
 */

/** One clEnqueueMap* that was not unmapped yet. */
struct mapping {
    /* All but what was asked for is guarded by the lists' lock, or the closed gate. */
    struct mapping *next;
    unsigned refs;         /**< The root's list, the map command, and who makes it. */
    struct memory *memory; /**< The object that was mapped: the root or a view of it. */
    char *pointer;
    cl_map_flags flags;
    size_t origin[3], region[3]; /**< As given; bytes for buffers. */
    size_t offset, length;       /**< The span of root bytes that it covers. */
    uint8_t residence_index;     /**< Whose driver mapped it, as its real object was made over the
                            host copy; or RESIDENCE_NONE. */
    bool pending;                /**< Its command is held: nothing was mapped yet. */
    bool closing;                /**< Its unmap was enqueued. */
    bool unlinked;               /**< It was unmapped. */
    bool settled;                /**< Its map command was issued or given up. */
};

/** True while something of @root is mapped. Any thread. */
bool map_any(struct memory *root);
/** @memory is gone, and with it what the program left mapped of it. Inside the gate. */
void map_forget(struct memory *memory);

/*
 * Visits: a mover copies a root with the program running. Whoever would give the program a pointer
 * into the host copy, bring another version to one of the replicas, or let the program have its
 * CL_MEM_USE_HOST_PTR memory back, waits until the visit has ended.
 */

/** False when something of @root is mapped, or the program has its memory back. Movers, on a held
 *  root. */
bool map_visit(struct memory *root);
void map_visit_end(struct memory *root);
/** Wait until nobody visits @root, which the caller holds. Blocks for as long as a slice takes. */
void map_visit_await(struct memory *root);

/*
 * For movers, with the gate closed and the queues drained. What is mapped to be written belongs to
 * the host: its bytes in the host copy are the latest, and the program may be writing them at any
 * time. What is mapped only to be read has the same bytes on both sides.
 */

/** True when some issued mapping of @root is for writing. */
bool map_written(struct memory *root);
/** Unmap what @residence's driver at @residence_index mapped of @root. The host copy keeps its
 * bytes.
 */
cl_int map_leave(struct memory *root, struct residence *residence, uint8_t residence_index);
/**
 * Map in the new residence @to what the driver at @from mapped, and what none did, without touching
 * the host copy's bytes. Nothing where @root has no latest replica there: its unmap will see to it.
 */
cl_int map_arrive(struct memory *root, struct residence *residence, uint8_t from, uint8_t to);
/** After COMMIT: which mappings the driver at @to has. RESIDENCE_HOST: map_arrive was not called.
 */
void map_moved(struct memory *root, uint8_t from, uint8_t to);
/**
 * Call @copy for each run of bytes [from, to) of @range, of @root's host copy, that nothing has
 * mapped to be written, in order, until it fails.
 */
int map_each_gap(struct memory *root, struct range range,
                 int (*copy)(void *data, size_t from, size_t to), void *data);

#endif
