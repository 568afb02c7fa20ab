#ifndef RESEAT_STATE_DRIVER_LOCKED_CALLS_H
#define RESEAT_STATE_DRIVER_LOCKED_CALLS_H

#include <CL/cl_icd.h>

/** Between these two, no other thread is in the driver; who is may enter again. */
void locked_enter(void);
void locked_leave(void);
/** Calls of @driver, each between the two; those that it lacks are left as they are. */
void locked_fill(const cl_icd_dispatch *driver, cl_icd_dispatch *ret_table);

#endif
