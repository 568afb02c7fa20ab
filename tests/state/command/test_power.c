#include "state/command/power.h"
#include "tests/state/command/test_events.h"

/* Launches under a power cap: none without power, few at once, in order, also on another device. */

#define LAUNCHES 12
#define AT_ONCE  4 /* power.c */
/* 64 items a launch: 50 ms. */
#define SLOW "[one] name=one base=1 items_per_s=1280 [two] name=two base=1"

static uint64_t given(const struct events_scene *s, const char *device)
{
    return emu_shared_calls(s->rig.emu, device, "clEnqueueNDRangeKernel");
}

static void add(struct events_scene *s, unsigned count)
{
    size_t items = EVENTS_WORDS;
    while (count-- > 0)
        OK(clEnqueueNDRangeKernel(s->program.queue, s->add, 1, NULL, &items, NULL, 0, NULL, NULL));
    OK(clFlush(s->program.queue));
}

static struct power_state state_of(void)
{
    struct power_state state;
    power_read(&state);
    return state;
}

static bool comes(bool (*is)(void))
{
    for (unsigned ms = 0; ms < 10000 && !is(); ms++)
        engine_rig_sleep(1);
    return is();
}

static bool is_idle(void)
{
    return !state_of().runs;
}

static bool wants(void)
{
    return state_of().wants;
}

Test(launch_power, without_power_nothing_is_launched_and_moves_go_on, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, 0);
    power_set(true, 0);
    cr_assert(comes(is_idle) && !state_of().wants);
    uint64_t before = given(&s, "one");
    add(&s, LAUNCHES);
    cr_assert(comes(wants));
    engine_rig_sleep(50);
    cr_assert_eq(given(&s, "one"), before, "it was launched without power");
    engine_rig_moves(&s.rig, "two");
    engine_rig_sleep(20);
    cr_assert_eq(given(&s, "two"), 0);
    cr_assert(state_of().wants && !state_of().runs);
    power_set(true, UINT64_MAX);
    cr_assert_not(state_of().wants);
    events_check_words(&s, s.program.queue, LAUNCHES);
    cr_assert_eq(given(&s, "two"), LAUNCHES);
}

Test(launch_power, few_launches_are_with_the_driver_at_once, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, SLOW, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    power_set(true, UINT64_MAX);
    add(&s, LAUNCHES);
    cr_assert_leq(given(&s, "one"), AT_ONCE);
    OK(clFinish(s.program.queue));
    cr_assert_eq(given(&s, "one"), LAUNCHES);
}

Test(launch_power, it_runs_until_launches_have_ended_and_launches_nothing_more, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, SLOW, 0);
    power_set(true, UINT64_MAX);
    add(&s, LAUNCHES);
    power_set(true, 0);
    uint64_t with_it = given(&s, "one");
    cr_assert_leq(with_it, AT_ONCE);
    cr_assert(state_of().runs, "its launches have not ended");
    cr_assert(comes(is_idle));
    engine_rig_sleep(100);
    cr_assert_leq(given(&s, "one"), with_it + 1, "it was launched without power");
    with_it = given(&s, "one");
    cr_assert_lt(with_it, LAUNCHES);
    cr_assert(state_of().wants);
    engine_rig_sleep(100);
    cr_assert_eq(given(&s, "one"), with_it);
    power_set(false, 0); /* the cap is gone */
    events_check_words(&s, s.program.queue, LAUNCHES);
    cr_assert_eq(given(&s, "one"), LAUNCHES);
}

Test(launch_power, what_waited_for_the_program_waits_for_power_too, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, 0);
    power_set(true, 0);
    cl_event user = events_user(&s), added = events_add(&s, s.program.queue, 1, &user);
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    engine_rig_sleep(50);
    cr_assert_eq(given(&s, "one"), 0);
    cr_assert_gt(events_status(added), CL_COMPLETE);
    power_set(true, UINT64_MAX);
    OK(clWaitForEvents(1, &added));
    events_check_words(&s, s.program.queue, 1);
    RELEASE(user, added);
}

Test(launch_power, launches_end_on_a_driver_that_works_while_it_is_waited_for, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, "[one] name=one base=1 late_status=yes callbacks=never", 0);
    power_set(true, UINT64_MAX);
    add(&s, LAUNCHES);
    OK(clFinish(s.program.queue));
    cl_event last = events_add(&s, s.program.queue, 0, NULL);
    OK(clWaitForEvents(1, &last));
    OK(clReleaseEvent(last));
    events_check_words(&s, s.program.queue, LAUNCHES + 1);
}

static _Atomic unsigned woken;

static void wake(void)
{
    woken++;
}

Test(launch_power, who_grants_power_hears_of_each_change, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, SLOW, 0);
    power_set_waker(wake);
    add(&s, 1);
    power_set(true, 0);
    cr_assert(state_of().runs);
    cr_assert(events_wait(&woken, 1), "what was launched before the cap has ended");
    cr_assert(comes(is_idle));
    woken = 0;
    add(&s, 1);
    cr_assert(events_wait(&woken, 1), "%u", woken);
    power_set(true, UINT64_MAX);
    cr_assert(events_wait(&woken, 2), "%u", woken);
    OK(clFinish(s.program.queue));
    power_set(true, 0);
    cr_assert(events_wait(&woken, 3), "%u", woken);
    cr_assert_not(state_of().runs);
}

Test(launch_power, launches_from_before_a_cap_count_until_they_have_ended, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, SLOW, 0);
    add(&s, LAUNCHES);
    power_set(true, 0);
    cr_assert(state_of().runs, "launches from before the cap are with the driver");
    engine_rig_sleep(100);
    cr_assert(state_of().runs);
    OK(clFinish(s.program.queue));
    cr_assert(comes(is_idle));
    events_check_words(&s, s.program.queue, LAUNCHES);
}

Test(launch_power, launches_deferred_before_a_cap_wait_for_power, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, 0);
    cl_event user = events_user(&s), added = events_add(&s, s.program.queue, 1, &user);
    size_t items = EVENTS_WORDS;
    OK(clEnqueueNDRangeKernel(s.program.queue, s.add, 1, NULL, &items, NULL, 0, NULL, NULL));
    power_set(true, 0);
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    engine_rig_sleep(100);
    cr_assert_eq(given(&s, "one"), 0, "it was launched without power");
    cr_assert(state_of().wants);
    power_set(true, UINT64_MAX);
    OK(clFinish(s.program.queue));
    cr_assert_eq(events_status(added), CL_COMPLETE);
    events_check_words(&s, s.program.queue, 2);
    RELEASE(user, added);
}

Test(launch_power, a_grant_that_is_not_renewed_ends, .timeout = 60)
{
    struct events_scene s;
    events_open(&s, EVENTS_CONFIG, 0);
    power_set(true, 1);
    engine_rig_sleep(1);
    add(&s, 1);
    cr_assert(comes(wants));
    engine_rig_sleep(50);
    cr_assert_eq(given(&s, "one"), 0, "it was launched after its grant had ended");
    cr_assert(state_of().runs, "the agent has not withdrawn its grant");
    power_set(true, UINT64_MAX);
    events_check_words(&s, s.program.queue, 1);
}
