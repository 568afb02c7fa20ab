#ifndef RESEAT_STATE_MEMORY_MAPPING_H
#define RESEAT_STATE_MEMORY_MAPPING_H

#include "state/memory/memory.h"

/*
 * Maps. A map's pointer lies in the root's host copy, so it is known when the call is made, is the
 * same on every device, and stays valid across moves. Where the real object was made over the
 * host copy the driver maps it; elsewhere mapping reads the region into the host copy, which is
 * registered with the driver where that pays (registered.h), and unmapping writes it back.
 */

/** A clEnqueueMap* that was not unmapped yet. */
struct mapping {
    /* Guarded by the lists' lock or the closed gate, but for the arguments of the call. */
    struct mapping *next;
    unsigned refs; /**< Of the root's list, the map command, and the thread that creates it. */
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
/** @memory is destroyed: remove the mappings that the program never unmapped. Inside the gate. */
void map_forget(struct memory *memory);

/*
 * Visits: a mover copies a root while the program runs. Until the visit ends a thread waits that is
 * about to give the program a pointer into the host copy, bring a new version to a replica, or let
 * the program free its CL_MEM_USE_HOST_PTR memory.
 */

/** Begin a visit. False while something of @root is mapped, or once the program may free its
 * memory. By movers, which hold @root. */
bool map_visit(struct memory *root);
void map_visit_end(struct memory *root);
/** Wait until nobody visits @root, which the caller holds. Blocks for as long as a slice takes. */
void map_visit_await(struct memory *root);

/*
 * For movers, with the gate closed and the queues drained. Of bytes that are mapped for writing the
 * host copy is the latest, and the program may write them at any time. Bytes that are mapped only
 * for reading are the same in the host copy and on the device.
 */

/** True when some issued mapping of @root is for writing. */
bool map_written(struct memory *root);
/** Undo the driver's maps of @root in @residence, at @residence_index. The host copy keeps its
 * bytes.
 */
cl_int map_leave(struct memory *root, struct residence *residence, uint8_t residence_index);
/**
 * Have the driver of the new residence @to map what the one at @from had mapped, and what no driver
 * had, without changing the host copy's bytes. Where @to has no latest replica of @root this is
 * left to the unmap.
 */
cl_int map_arrive(struct memory *root, struct residence *residence, uint8_t from, uint8_t to);
/** After COMMIT: record which mappings the driver at @to has. RESIDENCE_HOST: none, as map_arrive
 * was not called. */
void map_moved(struct memory *root, uint8_t from, uint8_t to);
/**
 * Call @copy for each run of bytes [from, to) of @range that is not mapped for writing, in order,
 * until it fails.
 */
int map_each_gap(struct memory *root, struct range range,
                 int (*copy)(void *data, size_t from, size_t to), void *data);

#endif
