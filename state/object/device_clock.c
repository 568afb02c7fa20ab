#include "state/object/device_clock.h"

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/object/residence.h"

/* The program's time at @host, advanced by the host's clock since the last move. */
static uint64_t device_clock_at_host(const struct device_clock *clock, uint64_t host)
{
    return clock->at_move + (host - clock->host_at_move);
}

void device_clock_find(struct device_clock *clock, uint64_t end)
{
    /* Not before the time of the move, so that no event on this device lies before it. */
    int64_t unknown = DEVICE_CLOCK_UNKNOWN;
    atomic_compare_exchange_strong(&clock->shift, &unknown,
                                   (int64_t)(device_clock_at_host(clock, clock_now_ns()) - end));
}

uint64_t device_clock_translate(struct device_clock *clock, uint64_t time)
{
    time += (uint64_t)atomic_load_explicit(&clock->shift, memory_order_relaxed);
    uint64_t latest = atomic_load_explicit(&clock->latest, memory_order_relaxed);
    while (latest < time)
        if (atomic_compare_exchange_weak(&clock->latest, &latest, time)) {
            atomic_store(&clock->host_at_latest, clock_now_ns());
            break;
        }
    return time;
}

/* Lower bound of the program's time at @host, since it advances as the host's clock does. */
static uint64_t device_clock_at_least(const struct device_clock *clock, uint64_t host)
{
    uint64_t time = clock->host_at_move ? device_clock_at_host(clock, host) : 0;
    uint64_t latest = atomic_load(&clock->latest);
    if (latest != 0)
        latest += host - atomic_load(&clock->host_at_latest);
    return latest > time ? latest : time;
}

uint64_t device_clock_guess(const struct device_clock *clock)
{
    return device_clock_at_least(clock, clock_now_ns());
}

uint64_t device_clock_last(struct device_clock *clock)
{
    if (clock->last == 0)
        clock->last = device_clock_guess(clock);
    if (clock->last == 0)
        clock->last = clock_now_ns(); /* the program has seen no time: any will do */
    return clock->last;
}

void device_clock_inherit(struct device_clock *clock, const struct device_clock *whole)
{
    atomic_store(&clock->shift, atomic_load(&whole->shift));
    clock->at_move = whole->at_move;
    clock->host_at_move = whole->host_at_move;
}

/* Device time when a completed marker was queued; or when it ended, if the driver does not tell
 * that. */
static bool device_clock_marker_time(struct residence *residence, cl_event event,
                                     cl_ulong *ret_time)
{
    const cl_icd_dispatch *cl = residence->cl;
    cl_ulong end = 0, queued = 0;
    if (cl->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof(end), &end, NULL) !=
            CL_SUCCESS ||
        end == 0) /* NVIDIA's driver reports 0 for commands without times */
        return false;
    bool known = cl->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED, sizeof(queued),
                                             &queued, NULL) == CL_SUCCESS;
    *ret_time = known && queued != 0 && queued < end ? queued : end;
    return true;
}

/*
 * Read both clocks at nearly the same moment: the device's when a marker was queued, the host's
 * right before. The marker's end is no use: on a busy machine it may come much later, and each move
 * would add that to the program's clock. The small error that remains never makes the program's
 * clock run backwards.
 */
static bool device_clock_read(struct residence *residence, uint64_t *ret_device, uint64_t *ret_host)
{
    cl_event event;
    cl_ulong time = 0;
    bool known = false;
    uint64_t host = clock_now_ns();
    if (residence->cl->clEnqueueMarkerWithWaitList(residence->io, 0, NULL, &event) != CL_SUCCESS)
        return false;
    if (residence_await_events(residence, 1, &event) == CL_SUCCESS &&
        device_clock_marker_time(residence, event, &time)) {
        *ret_host = host;
        *ret_device = time;
        known = true;
    }
    residence->cl->clReleaseEvent(event);
    if (!known)
        log_warn("%s does not say what its clock is: profiling times go by the host's",
                 residence->device->key.device);
    return known;
}

void device_clock_leave(struct device_clock *clock, struct residence *residence)
{
    int64_t shift = atomic_load(&clock->shift);
    uint64_t device, host = clock_now_ns(), time = 0;
    if (residence && shift != DEVICE_CLOCK_UNKNOWN && device_clock_read(residence, &device, &host))
        time = device + (uint64_t)shift;
    /* Clocks drift, and some devices' clocks stand still: take the latest time, so that the
     * program's clock never runs backwards. */
    if (device_clock_at_least(clock, host) > time)
        time = device_clock_at_least(clock, host);
    if (clock->last > time)
        time = clock->last;
    clock->last = 0;
    clock->at_move = time != 0 ? time : host; /* the program has seen no time: any will do */
    clock->host_at_move = host;
    atomic_store(&clock->shift, DEVICE_CLOCK_UNKNOWN);
}

void device_clock_arrive(struct device_clock *clock, struct residence *residence)
{
    uint64_t device, host;
    if (residence && device_clock_read(residence, &device, &host))
        atomic_store(&clock->shift, (int64_t)(device_clock_at_host(clock, host) - device));
}
