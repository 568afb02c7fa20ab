#ifndef RESEAT_REMOTE_DRIVER_SERVERS_SERVERS_H
#define RESEAT_REMOTE_DRIVER_SERVERS_SERVERS_H

#include "remote/driver/session/session.h"
#include "state/driver/served.h"

/** The platforms of the servers that the environment names, after connecting at the first call. */
cl_uint clients_platforms(struct platform ***ret_platforms);

/*
 * What reseat's engine asks for by clGetExtensionFunctionAddress(): OpenCL lists a driver's
 * platforms once, and has no call for a server that comes while a program runs.
 */

/** isolated_open_fn. */
MUST_CHECK int isolate_open(const char *server, const char *icd, cl_uint room,
                            cl_platform_id *ret_platforms, cl_uint *ret_count);
/** isolated_standby_fn. */
void isolate_standby(cl_platform_id platform, bool wanted);
/** served_open_fn. Returns 0, -EINVAL (no room), -ENOMEM, or why there is no session. */
MUST_CHECK int plug_open(const char *address, cl_uint room, cl_platform_id *ret_platforms,
                         cl_uint *ret_count);
/** served_ended_fn. */
bool plug_ended(cl_platform_id platform);

#endif
