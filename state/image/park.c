#include "state/image/park.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/threads/gate.h"
#include "state/base/threads/work.h"
#include "state/image/stored.h"
#include "state/move/move_priv.h"

#define PARK_NS (10 * NS_PER_S)
#define LOOK_NS (5 * NS_PER_MS)

static uint64_t parked_ns; /* Guarded by the movers' lock. */

/* Wait for references to residences: threads that waited in a driver release theirs a moment after
 * the move. */
static void park_await_residences(uint64_t deadline_ns)
{
    while (residence_count() != 0 && clock_now_ns() < deadline_ns && !work_is_over())
        clock_sleep(LOOK_NS);
}

static bool park_is_suspended(void)
{
    uintptr_t cursor = 0;
    struct context *context;
    bool suspended = true;
    for (; (context = object_next(OBJECT_CONTEXT, &cursor)); object_unhold(context))
        suspended = suspended && context_is_suspended(context, 0);
    return suspended;
}

/* Gate closed. */
static int park_leave(char *ret_reason, size_t size)
{
    const char *why = NULL;
    if (stored_bytes() != 0)
        why = "some of its bytes are in the image that it was suspended to; resume it first";
    else if (!park_is_suspended())
        why = "some of the program came to a device meanwhile";
    else if (residence_count() != 0)
        why = "a driver has not let go of what the program had there";
    if (!why)
        return driver_leave_all(ret_reason, size);
    (void)!snprintf(ret_reason, size, "%s", why);
    return -EBUSY;
}

static int park(uint64_t deadline_ns, char *ret_reason, size_t size)
{
    bool goes_on = work_begin();
    if (goes_on) {
        (void)ready_drop(NULL, NULL);
        park_await_residences(deadline_ns);
    }
    int error = goes_on && !work_is_over() ? gate_close(deadline_ns) : -ESHUTDOWN;
    if (error == 0) {
        error = park_leave(ret_reason, size);
        if (error)
            gate_open();
    }
    work_end();
    return error;
}

int park_begin(uint64_t deadline_ns, char *ret_reason, size_t size)
{
    ret_reason[0] = '\0';
    if (!deadline_ns)
        deadline_ns = clock_now_ns() + PARK_NS;
    int error = -ETIMEDOUT;
    if (move_lock_until(deadline_ns, false)) {
        error = park(deadline_ns, ret_reason, size);
        if (error)
            move_unlock();
        else
            parked_ns = clock_now_ns();
    }
    if (error && !ret_reason[0])
        (void)!snprintf(ret_reason, size, "%s", strerror(-error));
    return error;
}

void park_end(void)
{
    clock_resume(parked_ns);
    gate_open();
    move_unlock();
}
