#ifndef RESEAT_STATE_DRIVER_LOST_CALLS_H
#define RESEAT_STATE_DRIVER_LOST_CALLS_H

#include <CL/cl_icd.h>

/**
 * The table for a driver that has lost its device and hangs: no call reaches the driver. Its
 * objects are leaked, since a release may hang as well.
 */
extern const cl_icd_dispatch driver_lost;
/** The same for a driver that still answers, with errors: it gets calls that release objects. */
void driver_lost_answers(const cl_icd_dispatch *driver, cl_icd_dispatch *ret_table);

#endif
