#include "tests/support/cases.h"
#include <errno.h>

#include "state/base/clock.h"
#include "state/object/device_clock.h"
#include "state/object/residence.h"

/* The program's clock across moves, on drivers that are nothing but clocks. */

TestSuite(clock, .timeout = 60);

#define MS 1000000u

/* A device's clock is the host's, @ahead; its markers end @late after they were queued. */
static struct {
    uint64_t ahead, late;
    bool says_queued;
    uint64_t queued;
} device;

static cl_int CL_API_CALL enqueue_marker(cl_command_queue queue, cl_uint count,
                                         const cl_event *list, cl_event *ret_event)
{
    (void)queue, (void)count, (void)list;
    device.queued = clock_now_ns() + device.ahead;
    *ret_event = (cl_event)&device;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL wait_for(cl_uint count, const cl_event *list)
{
    (void)count, (void)list;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL tell_time(cl_event event, cl_profiling_info name, size_t size,
                                    void *value, size_t *ret_size)
{
    (void)event, (void)size, (void)ret_size;
    *(cl_ulong *)value = name == CL_PROFILING_COMMAND_END ? device.queued + device.late
                         : device.says_queued             ? device.queued
                                                          : 0;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL release(cl_event event)
{
    (void)event;
    return CL_SUCCESS;
}

static cl_icd_dispatch driver = {
    .clEnqueueMarkerWithWaitList = enqueue_marker,
    .clWaitForEvents = wait_for,
    .clGetEventProfilingInfo = tell_time,
    .clReleaseEvent = release,
};
static struct residence residence = {.cl = &driver};

/* How much further than the host's the program's clock goes, where markers end that late on the
 * device that is left, and on the one that is next. */
static int64_t gained_by_moves(int moves, uint64_t late_here, uint64_t late_there)
{
    struct device_clock clock = {0};
    uint64_t begin = clock_now_ns(), last = device_clock_translate(&clock, begin + device.ahead);
    int64_t before = (int64_t)(last - begin);
    for (int i = 0; i < moves; i++) {
        device.late = late_here;
        device_clock_leave(&clock, &residence);
        device.late = late_there;
        device.ahead = (device.ahead + 7919 * MS) % (100000 * (uint64_t)MS);
        device_clock_arrive(&clock, &residence);
        cr_assert(device_clock_is_known(&clock));
        uint64_t now = device_clock_translate(&clock, clock_now_ns() + device.ahead);
        cr_assert_geq(now, last, "it ran back by %llu ns", (unsigned long long)(last - now));
        last = now;
    }
    return (int64_t)(last - clock_now_ns()) - before;
}

Test(clock, gains_nothing_where_markers_end_late)
{
    device.says_queued = true;
    device.ahead = 5000 * (uint64_t)MS;
    /* Of twenty markers that end a second late, less than one. */
    for (int there = 0; there < 2; there++) {
        int64_t gained = gained_by_moves(20, there ? 0 : 1000 * MS, there ? 1000 * MS : 0);
        cr_expect_lt(gained, 1000 * (int64_t)MS, "it gained %lld ns", (long long)gained);
        cr_expect_gt(gained, -1000 * (int64_t)MS, "it lost %lld ns", (long long)-gained);
    }
}

Test(clock, never_runs_back_where_a_driver_says_when_markers_end_alone)
{
    device.says_queued = false;
    device.ahead = 1000 * (uint64_t)MS;
    for (uint64_t late = 0; late <= 2 * MS; late += MS / 2) {
        (void)gained_by_moves(20, late, 0);
        (void)gained_by_moves(20, late, late);
    }
}

static void pass(uint64_t ns)
{
    uint64_t until = clock_now_ns() + ns;
    while (clock_now_ns() < until)
        ;
}

/* The program's clock at the device's present time. */
static uint64_t now_of(struct device_clock *clock)
{
    return device_clock_translate(clock, clock_now_ns() + device.ahead);
}

/* A clock of which the program has asked nothing, over a suspension. */
Test(clock, runs_on_while_nobody_asks)
{
    struct device_clock clock = {0};
    device.says_queued = true;
    device.ahead = 5000 * (uint64_t)MS;
    uint64_t begin = clock_now_ns(), first = begin + device.ahead;
    pass(3 * MS);
    device_clock_leave(&clock, &residence);
    device_clock_arrive(&clock, NULL);
    pass(3 * MS);
    device_clock_leave(&clock, NULL);
    device.ahead = 77 * (uint64_t)MS;
    device_clock_arrive(&clock, &residence);
    uint64_t now = now_of(&clock), passed = clock_now_ns() - begin;
    cr_assert_geq(now - first, 6 * (uint64_t)MS, "it stood still");
    cr_assert_leq(now - first, passed + 1000 * (uint64_t)MS);
}

/* The first device does not say what its clock is when it is left. */
Test(clock, runs_on_until_the_first_move)
{
    struct device_clock clock = {0};
    device.says_queued = true;
    device.ahead = 5000 * (uint64_t)MS;
    uint64_t last = now_of(&clock);
    pass(3 * MS);
    device_clock_leave(&clock, NULL);
    device.ahead = 77 * (uint64_t)MS;
    device_clock_arrive(&clock, &residence);
    cr_assert_geq(now_of(&clock) - last, 3 * (uint64_t)MS, "it stood still");
}

/* What ended last there lies before all that comes. */
Test(clock, is_not_behind_a_device_whose_clock_runs_fast)
{
    struct device_clock clock = {0};
    device.says_queued = true;
    device.ahead = 5000 * (uint64_t)MS;
    (void)now_of(&clock);
    device.ahead += 400 * (uint64_t)MS;
    uint64_t last = clock_now_ns() + device.ahead;
    device_clock_leave(&clock, &residence);
    device.ahead = 77 * (uint64_t)MS;
    device_clock_arrive(&clock, &residence);
    cr_assert_geq(now_of(&clock), last);
}

/* What is changed is the clock of the test's own process. */

Test(clock, goes_on_where_the_hosts_is_behind)
{
    uint64_t host = clock_now_ns(), before = host + 1000 * NS_PER_S;
    clock_resume(host - NS_PER_S);
    cr_expect_lt(clock_now_ns(), before, "a host's clock that is ahead stays");
    clock_resume(before);
    uint64_t now = clock_now_ns();
    cr_expect_geq(now, before);
    cr_expect_lt(now, before + 100 * NS_PER_S);
    /* What another process means by a time of the host's is as far away as it was. */
    cr_expect_geq(clock_of_host(host), before - NS_PER_S);
    cr_expect_leq(clock_of_host(host), now);
}

Test(clock, waits_as_long_as_before_on_a_clock_that_goes_on)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    clock_resume(clock_now_ns() + 1000 * NS_PER_S);
    uint64_t begun = clock_now_ns(), until = begun + 50 * MS;
    int error = 0;
    pthread_mutex_lock(&lock);
    cr_expect_eq(clock_wait(&never, &lock, 1), ETIMEDOUT, "long past");
    while (error == 0)
        error = clock_wait(&never, &lock, until);
    pthread_mutex_unlock(&lock);
    cr_expect_eq(error, ETIMEDOUT);
    cr_expect_geq(clock_now_ns(), until);
    cr_expect_lt(clock_now_ns(), until + 30 * NS_PER_S, "it waited for the host's clock");
}
