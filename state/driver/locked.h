#ifndef RESEAT_STATE_DRIVER_LOCKED_H
#define RESEAT_STATE_DRIVER_LOCKED_H

#include <CL/cl_icd.h>

/**
 * What is called in place of a driver without locks (QUIRK_NO_LOCKS): its own calls, one at a time.
 * A program of one thread has several here: ours copy ahead of a move, and what was held for a user
 * event is given to the driver by the thread that sets it.
 *
 * The lock is kept while the driver waits, so it must run itself all that it waits for; what it
 * calls meanwhile may call it. Thread-safe.
 *
 * @own  Lives as long as the process.
 * Returns a table that does too; @own itself for a second driver, since one of a process is kept.
 */
const cl_icd_dispatch *locked_calls(const cl_icd_dispatch *own);

/** Between these two, no other thread is in the driver; who is may enter again. */
void locked_enter(void);
void locked_leave(void);
/** Generated: calls of @driver, each between the two; those that it lacks are left as they are. */
void locked_fill(const cl_icd_dispatch *driver, cl_icd_dispatch *ret_table);

#endif
