#ifndef RESEAT_STATE_DRIVER_LOST_CALLS_H
#define RESEAT_STATE_DRIVER_LOST_CALLS_H

#include <CL/cl_icd.h>

/**
 * What is called in place of a driver that has lost its device. It reaches no driver, so that no
 * call hangs there. What it was given is leaked: a release may hang as well as any other call.
 */
extern const cl_icd_dispatch driver_lost;

#endif
