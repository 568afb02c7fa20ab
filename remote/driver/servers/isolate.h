#ifndef RESEAT_REMOTE_DRIVER_SERVERS_ISOLATE_H
#define RESEAT_REMOTE_DRIVER_SERVERS_ISOLATE_H

#include "state/driver/served.h"

/* What reseat's engine asks for by clGetExtensionFunctionAddress(). */

/** isolated_open_fn. */
MUST_CHECK int isolate_open(const char *server, const char *icd, cl_uint room,
                            cl_platform_id *ret_platforms, cl_uint *ret_count);
/** isolated_standby_fn. */
void isolate_standby(cl_platform_id platform, bool wanted);

#endif
