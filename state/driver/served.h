#ifndef RESEAT_STATE_DRIVER_SERVED_H
#define RESEAT_STATE_DRIVER_SERVED_H

#include <CL/cl.h>
#include <stdbool.h>

#include "state/base/compiler.h"

/*
 * Devices in other processes, which our own driver (remote/driver/) stands for in this one.
 *
 * Of device servers: where a device's key names a driver library, that of a served device has the
 * server's address ("tcp:gpuhost:7460"). Our driver decides whether a server may be believed: an
 * address alone gives nobody a way in.
 *
 * Isolated: the vendors' drivers are opened by a device server of this machine, each in a process
 * of its own. Everything else is as it would be: a device has the key that its vendor's driver
 * gives it, and the answers.
 */

/* What our driver gives out for its extension functions of these names: remote/driver/servers/. */

#define SERVED_ENTRY "reseat_server_open"
typedef int (*served_open_fn)(const char *address, cl_uint room, cl_platform_id *ret_platforms,
                              cl_uint *ret_count);
#define SERVED_ENDED "reseat_server_ended"
typedef bool (*served_ended_fn)(cl_platform_id platform);
#define SERVED_LEAVE "reseat_server_leave"
/** End all sessions, also those of isolated drivers; what is asked of their devices later begins
 *  others. 0 or -errno. */
typedef int (*served_leave_fn)(void);
#define ISOLATED_ENTRY "reseat_isolated_open"
/** Begin a session in which the driver @icd is opened. 0 or -errno. */
typedef int (*isolated_open_fn)(const char *server, const char *icd, cl_uint room,
                                cl_platform_id *ret_platforms, cl_uint *ret_count);
#define ISOLATED_STANDBY "reseat_isolated_standby"
/** Have a second session like @platform's ready for when that one is lost, or not any more. */
typedef void (*isolated_standby_fn)(cl_platform_id platform, bool wanted);

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
/** The session that @platform of served_open() is of has ended for good. */
bool served_ended(cl_platform_id platform);
/** served_leave_fn, where our driver is loaded, for servers or isolation; else 0. After all calls
 * of served_open() and isolated_open(). */
MUST_CHECK int served_leave(void);

/** Our driver in front of servers, and the server: both absolute, or there is no isolation. */
#define ISOLATED_ENV_DRIVER "RESEAT_ISOLATED_DRIVER"
#define ISOLATED_ENV_SERVER "RESEAT_ISOLATED_SERVER"

/** From the environment, before the first driver is opened; it counts from then on. Of programs:
 *  servers open drivers themselves. */
void isolated_init(void);
bool isolated_is_on(void);

/**
 * Have a vendor's driver opened by the server. As served_open().
 *
 * Returns 0, or -ENOENT: the reason is in the log. It is never opened here instead.
 */
MUST_CHECK int isolated_open(const char *icd, cl_uint room, cl_platform_id *ret_platforms,
                             cl_uint *ret_count);

/**
 * Where @platform is of isolated_open(): have its driver opened once more, in a process for when
 * the one it is in dies, unless it is; or that process ended. A hint, to be given again and again.
 * Does not block where @wanted.
 */
void isolated_standby(cl_platform_id platform, bool wanted);

#endif
