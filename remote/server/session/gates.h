#ifndef RESEAT_REMOTE_SERVER_SESSION_GATES_H
#define RESEAT_REMOTE_SERVER_SESSION_GATES_H

#include <CL/cl_icd.h>

/*
 * A gate is a user event that commands in a driver's queue wait for. A device supports gates if
 * commands submitted earlier complete while the event is not set, and if the call that sets the
 * event returns. Drivers that complete all commands of one flush together fail the first condition.
 * Each device is tried once. The trial has a thread of its own, because some drivers hang in it;
 * no thread joins that one.
 */
enum gates {
    GATES_UNKNOWN, /**< The trial has not ended: do not use gates yet. */
    GATES_GOOD,
    GATES_NONE,
};

/** Start the trial of a device of @context, unless it was started before. Does not block. Called by
 *  the session's thread. */
void gates_try(const cl_icd_dispatch *cl, cl_context context, cl_device_id device);

/** The result of the device's trial. Blocks briefly, for about as long as the trial takes with a
 *  driver that does not hang. Called by the session's thread. */
enum gates gates_of(const cl_icd_dispatch *cl, cl_context context, cl_device_id device);

#endif
