#ifndef RESEAT_REMOTE_SERVER_SESSION_GATES_H
#define RESEAT_REMOTE_SERVER_SESSION_GATES_H

#include <CL/cl_icd.h>

/*
 * Whether a device can have commands that wait for an event of ours: what comes before them ends
 * meanwhile, which drivers that end all that was flushed together do not do, and setting the event
 * returns. Each device is tried once, in a thread of its own, since some hang there; nobody waits
 * for them.
 */
enum gates {
    GATES_UNKNOWN, /**< It is being tried: not now. */
    GATES_GOOD,
    GATES_NONE,
};

/** Have a device of @context's tried, if it was not yet. Never waits. By the session's thread. */
void gates_try(const cl_icd_dispatch *cl, cl_context context, cl_device_id device);

/** What is known of it. Waits for a moment, as long as a driver takes that does not hang. By the
 *  session's thread. */
enum gates gates_of(const cl_icd_dispatch *cl, cl_context context, cl_device_id device);

#endif
