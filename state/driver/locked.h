#ifndef RESEAT_STATE_DRIVER_LOCKED_H
#define RESEAT_STATE_DRIVER_LOCKED_H

#include <CL/cl_icd.h>

/**
 * Wraps a driver that is not thread-safe (QUIRK_NO_LOCKS), so that only one thread is in it at a
 * time. Even a program with one thread needs this: threads of ours copy ahead of a move, and the
 * thread that sets a user event gives deferred commands to the driver.
 *
 * The lock is held while the driver waits, so the driver must do everything that it waits for in
 * that thread; a callback from it may call it again. Thread-safe.
 *
 * @own  Lives as long as the process.
 * Returns a table that does too; @own itself for a second driver, since one of a process is kept.
 */
const cl_icd_dispatch *locked_calls(const cl_icd_dispatch *own);

/** Between these two calls, no other thread is in the driver; the thread itself may enter again. */
void locked_enter(void);
void locked_leave(void);
/** Generated: calls of @driver, each between the two; those that it lacks are left as they are. */
void locked_fill(const cl_icd_dispatch *driver, cl_icd_dispatch *ret_table);

#endif
