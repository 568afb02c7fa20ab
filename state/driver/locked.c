#include "state/driver/locked.h"

#include <pthread.h>

#include "state/base/threads/fork.h"

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static const cl_icd_dispatch
    *locked;                  /* Calls that the table wraps; or NULL. Guarded by the lock. */
static cl_icd_dispatch table; /* Guarded by the lock until `locked` is set, constant afterwards. */

void locked_enter(void)
{
    pthread_mutex_lock(&lock);
}

void locked_leave(void)
{
    pthread_mutex_unlock(&lock);
}

const cl_icd_dispatch *locked_calls(const cl_icd_dispatch *own)
{
    locked_enter();
    if (!locked) {
        locked_fill(own, &table);
        locked = own;
    }
    const cl_icd_dispatch *calls = locked == own ? &table : own;
    locked_leave();
    return calls;
}

/* The lock is held while commands run, so a fork does not wait for it. */
static void locked_in_child(void)
{
    lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

FORK_PART = {.rank = FORK_TABLE, .in_child = locked_in_child};
