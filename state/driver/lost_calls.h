#ifndef RESEAT_STATE_DRIVER_LOST_CALLS_H
#define RESEAT_STATE_DRIVER_LOST_CALLS_H

#include <CL/cl_icd.h>

/**
 * What is called in place of a driver that has lost its device and hangs. It reaches no driver.
 * What that one was given is leaked: a release may hang as well as any other call.
 */
extern const cl_icd_dispatch driver_lost;
/** The same for a driver that answers, with errors: it is given back what is released. */
void driver_lost_answers(const cl_icd_dispatch *driver, cl_icd_dispatch *ret_table);

#endif
