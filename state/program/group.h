#ifndef RESEAT_STATE_PROGRAM_GROUP_H
#define RESEAT_STATE_PROGRAM_GROUP_H

#include "state/driver/devinfo.h"

/*
 * The work-group size of launches that do not give one (5.8, a NULL local_work_size). Programs rely
 * on the largest group that they were told, for example for the length of local arrays. A driver
 * only knows the limits of its device. Where these are larger, we choose the size here.
 */

struct kernel;
struct launch_space; /* usage.h */
struct residence;

/**
 * The largest sizes that divide @global, at most @sizes, and with a product of at most @items. The
 * first dimension is chosen first, so that neighbours in memory are in one group.
 */
void group_divide(uint32_t dims, const size_t *global, size_t items, const size_t sizes[3],
                  size_t ret_local[3]);

/**
 * The local size for a launch of @real without one, in @residence_index: @ret_local, or NULL when
 * the driver may choose, since its limits are within what the program was told or the source gives
 * the size. Inside the gate.
 */
const size_t *group_choose(struct kernel *kernel, const struct residence *residence,
                           uint8_t residence_index, cl_kernel real,
                           const struct launch_space *space, size_t ret_local[3]);

#endif
