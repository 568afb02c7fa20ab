#ifndef RESEAT_STATE_DRIVER_ISOLATED_H
#define RESEAT_STATE_DRIVER_ISOLATED_H

#include <CL/cl.h>
#include <stdbool.h>

#include "state/base/compiler.h"

/*
 * Isolation: the vendors' drivers are opened by a device server of this machine, each in a process
 * of its own, and this one has our driver in front of servers instead. Everything else is as it
 * would be: a device has the key that its vendor's driver gives it, and the answers.
 */

/** Our driver in front of servers, and the server: both absolute, or there is no isolation. */
#define ISOLATED_ENV_DRIVER "RESEAT_ISOLATED_DRIVER"
#define ISOLATED_ENV_SERVER "RESEAT_ISOLATED_SERVER"

/** What our driver gives out for its extension function of this name:
 * remote/driver/servers/isolate.c. */
#define ISOLATED_ENTRY "reseat_isolated_open"
/** Begin a session in which the driver @icd is opened. 0 or -errno. */
typedef int (*isolated_open_fn)(const char *server, const char *icd, cl_uint room,
                                cl_platform_id *ret_platforms, cl_uint *ret_count);

/** The same, of this name. */
#define ISOLATED_STANDBY "reseat_isolated_standby"
/** Have a second session like @platform's ready for when that one is lost, or not any more. */
typedef void (*isolated_standby_fn)(cl_platform_id platform, bool wanted);

/** From the environment, before the first driver is opened; it counts from then on. Of programs:
 *  servers open drivers themselves. */
void isolated_init(void);
bool isolated_is_on(void);

/**
 * Have a vendor's driver opened by the server.
 *
 * Thread-safe; blocks until the server has told its devices.
 *
 * @ret_platforms  @room of them at most.
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

/** End all sessions, as served_leave_fn says. 0 or -errno. After all calls of isolated_open(). */
MUST_CHECK int isolated_leave(void);

#endif
