#ifndef RESEAT_REMOTE_DRIVER_SERVERS_PLUG_H
#define RESEAT_REMOTE_DRIVER_SERVERS_PLUG_H

#include "state/driver/served.h"

/*
 * Servers that come while a program runs. OpenCL lists a driver's platforms once, so there is no
 * call for them: reseat's engine asks for these two by clGetExtensionFunctionAddress().
 */

/** served_open_fn. Returns 0, -EINVAL (no room), -ENOMEM, or why there is no session. */
MUST_CHECK int plug_open(const char *address, cl_uint room, cl_platform_id *ret_platforms,
                         cl_uint *ret_count);
/** served_leave_fn: clients_leave(). */
MUST_CHECK int plug_leave(void);
/** served_ended_fn. */
bool plug_ended(cl_platform_id platform);

#endif
