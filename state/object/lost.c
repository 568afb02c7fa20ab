#include "state/object/lost.h"

#include <stdlib.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/work.h"
#include "state/driver/lost_calls.h"
#include "state/driver/served.h"
#include "state/object/context.h"
#include "state/object/residence.h"
#include "state/object/upcalls.h"

uint64_t lost_patience_ns = 2000000000u;
uint64_t lost_answer_ns = 5000000000u;

/* Errors from here down are vendors' own: NVIDIA's driver returns -9999 for a kernel that faulted.
 */
#define VENDORS_OWN (-1200)

/* Errors that a shortage of memory causes as well. */
static bool lost_is_like_shortage(cl_int error)
{
    return error == CL_OUT_OF_RESOURCES || error == CL_OUT_OF_HOST_MEMORY;
}

static bool lost_is_suspicious(cl_int error)
{
    switch (error) {
    case CL_DEVICE_NOT_AVAILABLE:
    case CL_INVALID_DEVICE:
    case CL_INVALID_CONTEXT:
    case CL_INVALID_COMMAND_QUEUE:
    case CL_INVALID_EVENT:
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST:
        return true;
    default:
        return lost_is_like_shortage(error) || error <= VENDORS_OWN;
    }
}

bool residence_failed(struct residence *residence, cl_int error)
{
    if (residence_is_lost(residence))
        return true;
    if (!lost_is_suspicious(error) || residence->runs_in_caller || work_is_over())
        return false;
    switch (await_answer(residence, lost_answer_ns)) {
    case ANSWER_ERROR:
        residence_lose(residence, "it answers with errors only", true);
        break;
    case ANSWER_NONE:
        if (!lost_is_like_shortage(error))
            residence_lose(residence, "it does not answer any more", false);
        break;
    case ANSWER_GOOD:
        break;
    }
    return residence_is_lost(residence);
}

/* Errors that a lost device may cause, including those of builds and allocations. */
static bool lost_may_be_loss(cl_int error)
{
    return lost_is_suspicious(error) || error == CL_MEM_OBJECT_ALLOCATION_FAILURE ||
           error == CL_BUILD_PROGRAM_FAILURE || error == CL_COMPILE_PROGRAM_FAILURE ||
           error == CL_LINK_PROGRAM_FAILURE || error == CL_INVALID_PROGRAM_EXECUTABLE ||
           error == CL_COMPILER_NOT_AVAILABLE;
}

bool context_outlives(struct context *context, cl_int error, unsigned *tries)
{
    if (!the_upcalls || !the_upcalls->is_protected() || !lost_may_be_loss(error))
        return false;
    gate_enter();
    uint8_t residence_index = context_home(context);
    struct residence *residence =
        residence_index < context->residences ? context->at[residence_index] : NULL;
    if (residence)
        residence_ref(residence);
    gate_leave();
    bool lost = residence && residence_failed(residence, CL_OUT_OF_RESOURCES);
    bool again = lost ? the_upcalls->await_recovery(residence) : (*tries)++ == 0;
    if (lost)
        *tries = 0;
    residence_unref(residence);
    return again;
}

bool residence_outlives(struct residence *residence, cl_int error)
{
    return error != CL_SUCCESS && the_upcalls && the_upcalls->is_protected() &&
           lost_may_be_loss(error) && residence_failed(residence, CL_OUT_OF_RESOURCES) &&
           the_upcalls->await_recovery(residence);
}

bool lost_may_say(cl_int error)
{
    return error != CL_SUCCESS && lost_is_suspicious(error);
}

static bool lost_has_vdev(const struct context *context, const struct vdev *vdev)
{
    bool has = false;
    for (cl_uint i = 0; i < context->vdev_count; i++)
        has = has || context->vdevs[i] == vdev;
    return has;
}

/* A context of @vdev, held; or NULL. */
static struct context *lost_context_of(const struct vdev *vdev)
{
    uintptr_t cursor = 0;
    struct context *context;
    while ((context = object_next(OBJECT_CONTEXT, &cursor)) && !lost_has_vdev(context, vdev))
        object_unhold(context);
    return context;
}

bool vdevs_outlive(cl_uint count, struct vdev *const *vdevs, cl_int error)
{
    unsigned tries = 1; /* no retry without a loss */
    if (count != 1 || !the_upcalls || !the_upcalls->is_protected())
        return false;
    struct context *context = lost_context_of(vdevs[0]);
    bool again = context ? context_outlives(context, error, &tries)
                         : error == CL_DEVICE_NOT_AVAILABLE && the_upcalls->await_replacement();
    object_unhold(context);
    return again;
}

void residence_doubt(struct residence *residence)
{
    if (!residence_is_lost(residence) && !residence->runs_in_caller && !work_is_over() &&
        await_answer(residence, lost_patience_ns / 8) == ANSWER_ERROR)
        residence_lose(residence, "it does not end what it was given, and answers with errors",
                       false);
}

/* The table of calls for a lost device that still answers, made once for each device. */
static const cl_icd_dispatch *lost_answering(struct device *device)
{
    cl_icd_dispatch *known = atomic_load(&device->lost_calls);
    cl_icd_dispatch *made = known ? NULL : malloc(sizeof(*made));
    if (!made)
        return known ? known : &driver_lost;
    driver_lost_answers(device->cl, made);
    if (atomic_compare_exchange_strong(&device->lost_calls, &known, made))
        return made;
    free(made);
    return known;
}

static struct {
    pthread_mutex_t lock;
    struct loss loss; /* guarded by lock */
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};

FORK_PART = {.rank = FORK_OBJECT, .lock = &last.lock};

static void lost_remember(const struct device *device, const char *reason, bool works)
{
    bool isolated = isolated_is_on() && !served_is_address(device->key.icd);
    pthread_mutex_lock(&last.lock);
    last.loss = (struct loss){last.loss.count + 1, device, reason, clock_now_ns(), isolated, works};
    pthread_mutex_unlock(&last.lock);
}

void lost_last(struct loss *ret_loss)
{
    pthread_mutex_lock(&last.lock);
    *ret_loss = last.loss;
    pthread_mutex_unlock(&last.lock);
}

static void lost_declare(struct residence *residence, const char *reason, bool answers, bool works)
{
    if (atomic_exchange(&residence->life, RESIDENCE_LOST) == RESIDENCE_LOST)
        return;
    lost_remember(residence->device, reason, works);
    log_warn("%s is %s: %s", device_name(residence->device), works ? "left" : "lost", reason);
    if (!works)
        atomic_store(&residence->device->lost, true);
    /* Keep the table if a thread that saw the loss has found meanwhile that the driver hangs. */
    const cl_icd_dispatch *own = residence->device->cl;
    atomic_compare_exchange_strong(&residence->cl, &own,
                                   answers ? lost_answering(residence->device) : &driver_lost);
    await_lost();
    if (the_upcalls)
        the_upcalls->lost();
}

void residence_lose(struct residence *residence, const char *reason, bool answers)
{
    lost_declare(residence, reason, answers, false);
}

void residence_give_up(struct residence *residence, const char *reason)
{
    lost_declare(residence, reason, true, true);
}

void residence_hangs(struct residence *residence)
{
    residence_lose(residence, "a call of its driver does not return", false);
    atomic_store(&residence->cl, &driver_lost);
}
