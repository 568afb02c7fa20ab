#ifndef RESEAT_STATE_DRIVER_SERVED_H
#define RESEAT_STATE_DRIVER_SERVED_H

#include <CL/cl.h>
#include <stdbool.h>

#include "state/base/compiler.h"

/*
 * Devices in other processes, reached through our own driver (remote/driver/).
 *
 * Device servers: where other keys have a driver library, the key of a served device has the
 * server's address ("tcp:gpuhost:7460"). Our driver checks the server's credentials; an address
 * alone is not enough.
 *
 * Isolation: a device server of this machine opens the vendors' drivers, each in a process of its
 * own. Devices keep the keys and answers of their vendor's driver.
 */

/* Types of our driver's extension functions: remote/driver/servers/. */

#define SERVED_ENTRY "reseat_server_open"
typedef int (*served_open_fn)(const char *address, cl_uint room, cl_platform_id *ret_platforms,
                              cl_uint *ret_count);
#define SERVED_ENDED "reseat_server_ended"
typedef bool (*served_ended_fn)(cl_platform_id platform);
#define SERVED_LEAVE "reseat_server_leave"
/** End all sessions, also of isolated drivers; later use of their devices begins new ones. 0 or
 * -errno. */
typedef int (*served_leave_fn)(void);
#define ISOLATED_ENTRY "reseat_isolated_open"
/** Begin a session in which the driver @icd is opened. 0 or -errno. */
typedef int (*isolated_open_fn)(const char *server, const char *icd, cl_uint room,
                                cl_platform_id *ret_platforms, cl_uint *ret_count);
#define ISOLATED_STANDBY "reseat_isolated_standby"
/** Keep a second session ready in case that of @platform is lost, or end it. */
typedef void (*isolated_standby_fn)(cl_platform_id platform, bool wanted);

/** True for the address of a server, as opposed to a library's name. */
bool served_is_address(const char *icd);

/** Set the path of our driver, before the first server is opened; NULL or "": beside this library.
 * Copied. */
void served_set_library(const char *path);

/**
 * Begin a session with a server that the user's OpenCL configuration need not name.
 *
 * Each call begins another session. Thread-safe; blocks until the server has told its devices, a
 * minute at most, and three seconds where nobody is there.
 *
 * @ret_platforms  @room of them at most.
 * Returns 0, -ENOENT (our driver is not there, or the reason is in the log), or -ENOMEM.
 */
MUST_CHECK int served_open(const char *address, cl_uint room, cl_platform_id *ret_platforms,
                           cl_uint *ret_count);
/** True when the session of @platform, from served_open(), has ended for good. */
bool served_ended(cl_platform_id platform);
/** Call our driver's served_leave_fn if it is loaded, for servers or isolation; else 0. Only after
 * all calls of served_open() and isolated_open() have returned. */
MUST_CHECK int served_leave(void);

/** Paths of our driver and of the server program, both absolute; without them there is no
 * isolation. */
#define ISOLATED_ENV_DRIVER "RESEAT_ISOLATED_DRIVER"
#define ISOLATED_ENV_SERVER "RESEAT_ISOLATED_SERVER"

/** Read the settings from the environment, before the first driver is opened. For programs only:
 * servers open drivers themselves. */
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
 * For a @platform of isolated_open(): keep its driver open in a second process, in case the present
 * one dies, or end that process. A hint, to be repeated. Does not block if @wanted.
 */
void isolated_standby(cl_platform_id platform, bool wanted);

#endif
