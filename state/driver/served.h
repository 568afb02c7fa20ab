#ifndef RESEAT_STATE_DRIVER_SERVED_H
#define RESEAT_STATE_DRIVER_SERVED_H

#include <CL/cl.h>
#include <stdbool.h>

#include "state/base/compiler.h"

/*
 * Devices of device servers. Where a device's key names a driver library, that of a served device
 * has the server's address ("tcp:gpuhost:7460"). What is opened for it is always our own driver in
 * front of servers, and it decides whether a server may be believed: an address alone gives nobody
 * a way in.
 */

/** What our driver gives out for its extension function of this name: see
 * remote/driver/servers/plug.c. */
#define SERVED_ENTRY "reseat_server_open"
#define SERVED_ENDED "reseat_server_ended"
#define SERVED_LEAVE "reseat_server_leave"

typedef int (*served_open_fn)(const char *address, cl_uint room, cl_platform_id *ret_platforms,
                              cl_uint *ret_count);
typedef bool (*served_ended_fn)(cl_platform_id platform);
/** End all sessions, also those of isolated drivers; what is asked of their devices later begins
 *  others. 0 or -errno. */
typedef int (*served_leave_fn)(void);

/** Is it an address of a server, and so no library's name? */
bool served_is_address(const char *icd);

/** Where our driver is, before the first server is opened; NULL or "": beside this library. Copied.
 */
void served_set_library(const char *path);

/**
 * Begin a session with a server that the program may never have heard of.
 *
 * Each call begins another session. Thread-safe; blocks until the server has told its devices, a
 * minute at most, and three seconds where nobody is there.
 *
 * @ret_platforms  @room of them at most.
 * Returns 0, -ENOENT (our driver is not there, or the reason is in the log), or -ENOMEM.
 */
MUST_CHECK int served_open(const char *address, cl_uint room, cl_platform_id *ret_platforms,
                           cl_uint *ret_count);

/** served_leave_fn, where our driver is loaded; else 0. After all calls of served_open(). */
MUST_CHECK int served_leave(void);
/** The session that @platform of served_open() is of has ended for good. */
bool served_ended(cl_platform_id platform);

#endif
