#ifndef RESEAT_STATE_COMMAND_MAP_H
#define RESEAT_STATE_COMMAND_MAP_H

#include "state/command/command.h"

/* The commands that map and unmap; mapping.h has the mappings themselves. */

/**
 * clEnqueueMapBuffer (origin[0], region[0] in bytes, the others 0 and 1) and clEnqueueMapImage.
 * Outputs may be NULL; they are untouched on failure.
 */
cl_int map_enqueue(struct queue *queue, struct memory *memory, cl_map_flags flags,
                   const size_t origin[3], const size_t region[3], bool blocking, cl_uint waits,
                   const cl_event *wait_list, cl_event *ret_event, size_t *ret_row_pitch,
                   size_t *ret_slice_pitch, void **ret_pointer);
/** clEnqueueUnmapMemObject. */
cl_int map_unmap(struct queue *queue, struct memory *memory, void *pointer, cl_uint waits,
                 const cl_event *wait_list, cl_event *ret_event);

#endif
