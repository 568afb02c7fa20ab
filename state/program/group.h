#ifndef RESEAT_STATE_PROGRAM_GROUP_H
#define RESEAT_STATE_PROGRAM_GROUP_H

#include "state/driver/devinfo.h"

/*
 * The work-groups of launches that leave their size to us (5.8, a NULL local_work_size). A program
 * may count on what it was told: local arrays as long as the largest group are no exception. A
 * driver knows its device's limits only, so that where those go beyond what the program was told
 * the size is chosen here.
 */

struct kernel;
struct launch_space; /* usage.h */
struct residence;

/**
 * The largest sizes that divide @global each, and fit into @sizes each and @items together, the
 * first dimension first: neighbours in memory stay in one group.
 */
void group_divide(uint32_t dims, const size_t *global, size_t items, const size_t sizes[3],
                  size_t ret_local[3]);

/**
 * The local size of a launch without one, in @residence_index, as @real. NULL: whatever the driver
 * chooses is within what the program was told, or the kernel's source says it. Else @ret_local.
 * Inside the gate.
 */
const size_t *group_choose(struct kernel *kernel, const struct residence *residence,
                           uint8_t residence_index, cl_kernel real,
                           const struct launch_space *space, size_t ret_local[3]);

#endif
