#include "tests/support/cases.h"
#include <signal.h>
#include <unistd.h>

#include "tests/agent/harness.h"
#include "tests/agent/puppet.h"

/*
 * The ledger and what the agent does when memory is short, with programs that say what the test has
 * them say. Each test counts by itself what everyone was granted and compares with the agent.
 */

#define SOON 8000 /* Milliseconds: far more than needed, so that a busy machine passes. */

static void begin(void)
{
    puppets_begin("gpu:one");
}

TestSuite(memory, .init = begin, .fini = puppets_finish, .timeout = 120);

/** Devices are listed, and gpu0 has that much for programs. */
static void begin_with(const char *memory)
{
    cr_assert_eq(RESEAT("devices")->status, 0);
    puppets_limit("gpu0", memory);
}

static struct puppet *start(const char *name, const char *device, const char *ways)
{
    struct puppet_kind kind = {.device = device, .ways = ways};

    return puppet_start(name, &kind);
}

Test(memory, grants_come_in_steps_and_what_is_returned_is_free)
{
    begin_with("1GiB");
    struct puppet *a = start("a", "gpu:one", NULL);

    /* A step (64 MiB, as a 64th of 1 GiB is less) with the welcome. */
    cr_assert_eq(a->vdevs[0].granted, 64 * MIB);
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), 64 * MIB);
    cr_assert(puppet_allocate(a, 65 * MIB, SOON));
    cr_assert_str_eq(a->way, WAY_AGAIN);
    cr_assert_eq(a->vdevs[0].granted, 128 * MIB);
    cr_assert(devices_come_to("gpu0", "granted_bytes", 128 * MIB, SOON));
    cr_assert(puppet_allocate(a, 300 * MIB, SOON));
    cr_assert_eq(a->vdevs[0].granted, 365 * MIB);
    cr_assert(devices_come_to("gpu0", "used_bytes", 365 * MIB, SOON));
    a->vdevs[0].held = a->vdevs[0].wanted = 65 * MIB;
    puppet_return(a, 0, 300 * MIB);
    puppet_say(a);
    cr_assert(devices_come_to("gpu0", "granted_bytes", 65 * MIB, SOON));
    cr_assert_eq(ps_says("a", "granted_bytes"), 65 * MIB);
    cr_assert_eq(devices_say("gpu0", "held_peak_bytes"), 365 * MIB);
    cr_assert_eq(ps_says("a", "peak_bytes"), 365 * MIB);
}

Test(memory, returns_and_grants_may_cross)
{
    begin_with("1GiB");
    struct puppet *a = start("a", "gpu:one", NULL);

    /* All on its way at once, in an order in which nobody has seen what the other did. */
    puppet_return(a, 0, 60 * MIB);
    puppet_need(a, 0, 100 * MIB, false);
    puppet_return(a, 0, 4 * MIB);
    puppet_need(a, 0, 10 * MIB, false);
    cr_assert(puppet_answered(a, 2, SOON));
    cr_assert(devices_come_to("gpu0", "granted_bytes", a->vdevs[0].granted, SOON));
    cr_assert_geq(a->vdevs[0].granted, 110 * MIB);
}

Test(memory, a_quota_holds)
{
    begin_with("1GiB");
    struct puppet_kind kind = {.device = "gpu:one", .ways = "", .quota = 100 * MIB};
    struct puppet *a = puppet_start("a", &kind);

    cr_assert(puppet_allocate(a, 90 * MIB, SOON));
    cr_assert_str_eq(a->way, WAY_AGAIN);
    cr_assert_leq(a->vdevs[0].granted, 100 * MIB);
    puppet_need(a, 0, 50 * MIB, false);
    cr_assert(puppet_answered(a, 2, SOON));
    cr_assert_str_eq(a->way, WAY_REFUSE);
    cr_assert(strstr(a->reason, "quota"), "%s", a->reason);
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), a->vdevs[0].granted);
    /* With a larger one it goes on. */
    puppets_limit("a", "200MiB");
    puppet_need(a, 0, 50 * MIB, false);
    cr_assert(puppet_answered(a, 3, SOON));
    cr_assert_str_eq(a->way, WAY_AGAIN);
    cr_assert_leq(a->vdevs[0].granted, 200 * MIB);
}

Test(memory, a_quota_below_what_two_virtual_devices_need_at_once_keeps_no_move_from_its_target)
{
    setenv("POCL_FAKE_DEVICES", "gpu:one,gpu:larger", 1);
    begin_with("512MiB");
    puppets_limit("gpu1", "512MiB");
    struct puppet_kind kind = {.device = "gpu:one", .second = "gpu:one", .quota = 10 * MIB};
    struct puppet *a = puppet_start("a", &kind);

    for (unsigned vdev = 0; vdev < 2; vdev++)
        a->vdevs[vdev].held = a->vdevs[vdev].wanted = a->vdevs[vdev].least = 32 * MIB;
    puppet_say(a);
    harness_ends(PUPPETS_RESEAT("move", "a", "gpu1"), 0);
    cr_assert_str_eq(a->vdevs[0].device, "gpu:larger");
    cr_assert_str_eq(a->vdevs[1].device, "gpu:larger");
    cr_assert_geq(a->vdevs[0].granted + a->vdevs[1].granted, 64 * MIB);
}

Test(memory, who_finds_no_room_waits_until_another_ends)
{
    begin_with("256MiB");
    struct puppet *a = start("a", "gpu:one", "w");
    struct puppet *b = start("b", "gpu:one", "w");

    cr_assert(puppet_allocate(a, 200 * MIB, SOON));
    puppet_need(b, 0, 200 * MIB - b->vdevs[0].granted, false);
    cr_assert(state_comes_to("b", "waiting", SOON));
    cr_assert_eq(b->answers, 0);
    char *text = PUPPETS_RESEAT("explain", "b")->out, *wait = strstr(text, "expected to take ");
    cr_assert(strstr(text, "waiting") && wait, "%s", text);
    double expected_s = strtod(wait + strlen("expected to take "), NULL);
    cr_expect(expected_s >= 0 && expected_s < 60, "%s", text);
    cr_assert_gt(ps_says("b", "ticket"), 0);
    cr_assert_eq(ps_says("a", "ticket"), 0);
    puppet_kill(a);
    cr_assert(puppet_answered(b, 1, SOON));
    cr_assert_eq(ps_says("b", "ticket"), 0);
    cr_assert_str_eq(b->way, WAY_AGAIN);
    cr_assert_geq(b->vdevs[0].granted, 200 * MIB);
    cr_assert(devices_come_to("gpu0", "granted_bytes", b->vdevs[0].granted, SOON));
    cr_assert_leq(b->vdevs[0].granted, 256 * MIB);
}

Test(memory, what_others_were_granted_and_do_not_use_is_asked_back_first)
{
    begin_with("256MiB");
    struct puppet *idle[3] = {start("i0", "gpu:one", ""), start("i1", "gpu:one", ""),
                              start("i2", "gpu:one", "")};
    struct puppet *a = start("a", "gpu:one", "");

    cr_assert_gt(idle[0]->vdevs[0].granted, 0);
    cr_assert(puppet_allocate(a, 256 * MIB, SOON));
    cr_assert_str_eq(a->way, WAY_AGAIN);
    cr_assert_eq(a->vdevs[0].granted, 256 * MIB);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(idle[i]->vdevs[0].granted, 0);
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), 256 * MIB);
}

Test(memory, one_that_grows_is_moved_to_where_it_fits)
{
    setenv("POCL_FAKE_DEVICES", "gpu:one,gpu:larger", 1);
    begin_with("128MiB");
    struct puppet *a = start("a", "gpu:one", NULL);

    cr_assert(puppet_allocate(a, 100 * MIB, SOON));
    cr_assert_str_eq(a->vdevs[0].device, "gpu:one");
    puppet_need(a, 0, 200 * MIB, false);
    cr_assert(puppet_answered(a, a->answers + 1, SOON));
    cr_assert_str_eq(a->way, WAY_AGAIN);
    cr_assert_str_eq(a->vdevs[0].device, "gpu:larger");
    cr_assert_geq(a->vdevs[0].granted, 300 * MIB);
    cr_assert(devices_come_to("gpu0", "granted_bytes", 0, SOON));
    cr_assert(devices_come_to("gpu1", "granted_bytes", a->vdevs[0].granted, SOON));
}

Test(memory, a_move_that_fails_gives_its_room_back_and_is_not_tried_again_at_once)
{
    setenv("POCL_FAKE_DEVICES", "gpu:one,gpu:larger", 1);
    begin_with("128MiB");
    struct puppet *a = start("a", "gpu:one", "up");

    a->move = RESULT_REFUSED;
    cr_assert(puppet_allocate(a, 100 * MIB, SOON));
    uint64_t granted = a->vdevs[0].granted;
    puppet_need(a, 0, 200 * MIB, false);
    cr_assert(puppet_answered(a, a->answers + 1, SOON));
    cr_assert_str_eq(a->way, WAY_SPILL);
    cr_assert_eq(a->moves, 0);
    cr_assert(devices_come_to("gpu1", "granted_bytes", 0, SOON));
    cr_assert_geq(a->vdevs[0].granted, granted);
    struct result *result = PUPPETS_RESEAT("explain", "a");
    cr_assert(strstr(result->out, "64 KiB used, 32 KiB offered"), "%s", result->out);
    /* What refused it is not asked again. */
    uint64_t last = a->last_grant;
    a->last_grant = 0;
    puppet_need(a, 0, 200 * MIB, false);
    cr_assert(puppet_answered(a, a->answers + 1, SOON));
    cr_assert_gt(last, 0);
    cr_assert_eq(a->last_grant, 0);
}

Test(memory, a_driver_that_has_no_more_is_believed)
{
    begin_with("1GiB");
    struct puppet *a = start("a", "gpu:one", NULL);

    cr_assert(puppet_allocate(a, 50 * MIB, SOON));
    cr_assert(devices_come_to("gpu0", "used_bytes", 50 * MIB, SOON));
    puppet_need(a, 0, 10 * MIB, true);
    cr_assert(puppet_answered(a, 1, SOON));
    cr_assert_str_eq(a->way, WAY_SPILL);
    /* What it was granted and could not have is nobody's. */
    cr_assert(devices_come_to("gpu0", "granted_bytes", 50 * MIB, SOON));
    cr_assert_eq(a->vdevs[0].granted, 50 * MIB);
}

Test(memory, higher_priority_displaces_and_the_displaced_comes_back)
{
    begin_with("256MiB");
    struct puppet *low = start("low", "gpu:one", "ws");
    struct puppet_kind kind = {.device = "gpu:one", .priority = "5", .ways = "w"};

    cr_assert(puppet_allocate(low, 200 * MIB, SOON));
    puppets_for(50);
    struct puppet *high = puppet_start("high", &kind);
    cr_assert(puppet_allocate(high, 200 * MIB, 20000));
    cr_assert_str_eq(high->way, WAY_AGAIN);
    cr_assert_eq(low->suspends, 1);
    cr_assert_eq(low->vdevs[0].granted, 0);
    cr_assert(state_comes_to("low", "suspended", SOON));
    cr_assert(devices_come_to("gpu0", "granted_bytes", high->vdevs[0].granted, SOON));
    puppet_kill(high);
    cr_assert(state_comes_to("low", "running", 20000));
    cr_assert_eq(low->resumes, 1);
    cr_assert_geq(low->vdevs[0].granted, 200 * MIB);
    cr_assert_str_eq(low->vdevs[0].device, "gpu:one");
}

Test(memory, one_that_is_stopped_is_displaced_by_nobody_and_another_is)
{
    begin_with("256MiB");
    struct puppet *stopped = start("stopped", "gpu:one", "ws"),
                  *other = start("other", "gpu:one", "ws");
    struct puppet_kind kind = {.device = "gpu:one", .priority = "5", .ways = "w"};

    /* The smaller is the first choice, as it alone is enough. */
    cr_assert(puppet_allocate(stopped, 100 * MIB, SOON));
    cr_assert(puppet_allocate(other, 130 * MIB, SOON));
    puppets_for(50);
    struct puppet *high = puppet_start("high", &kind);
    stopped->stopped = true;
    cr_assert(puppet_allocate(high, 90 * MIB, 20000), "who is behind it waits without end");
    cr_expect_str_eq(high->way, WAY_AGAIN);
    cr_expect_eq(other->suspends, 1);
    cr_expect_geq(high->vdevs[0].granted, 90 * MIB);
    cr_assert(state_comes_to("stopped", "away", SOON));
    /* It goes on, and does what it was asked before it hears that nobody wants it any more. */
    stopped->stopped = false;
    cr_assert(state_comes_to("stopped", "suspended", SOON));
    puppet_kill(high);
    cr_assert(state_comes_to("stopped", "running", 20000), "nobody resumes it");
}

Test(memory, two_that_would_wait_for_each_other_both_finish)
{
    begin_with("320MiB");
    struct puppet *a = start("a", "gpu:one", "w");
    struct puppet *b = start("b", "gpu:one", "w");

    cr_assert(puppet_allocate(a, 160 * MIB, SOON));
    cr_assert(puppet_allocate(b, 160 * MIB, SOON));
    /* Each wants 100 MiB more and holds what the other would need. */
    puppet_need(a, 0, 260 * MIB - a->vdevs[0].granted, false);
    cr_assert(state_comes_to("a", "waiting", SOON));
    puppet_need(b, 0, 260 * MIB - b->vdevs[0].granted, false);
    cr_assert(puppet_answered(a, a->answers + 1, 20000));
    cr_assert_str_eq(a->way, WAY_AGAIN);
    cr_assert_eq(b->suspends, 1);
    cr_assert_geq(a->vdevs[0].granted, 260 * MIB);
    puppet_kill(a);
    cr_assert(puppet_answered(b, b->answers + 1, 20000));
    cr_assert_str_eq(b->way, WAY_AGAIN);
    cr_assert_geq(b->vdevs[0].granted, 260 * MIB);
    cr_assert_eq(b->resumes, 1);
}

Test(memory, what_the_dead_held_or_waited_for_is_free_within_a_second)
{
    begin_with("256MiB");
    struct puppet *holder = start("holder", "gpu:one", "w");
    struct puppet *waiter = start("waiter", "gpu:one", "w");

    cr_assert(puppet_allocate(holder, 200 * MIB, SOON));
    puppet_need(waiter, 0, 200 * MIB, false);
    cr_assert(state_comes_to("waiter", "waiting", SOON));
    kill(waiter->pid, SIGKILL);
    puppet_kill(waiter);
    cr_assert(devices_come_to("gpu0", "granted_bytes", holder->vdevs[0].granted, 1000));
    puppet_kill(holder);
    cr_assert(devices_come_to("gpu0", "granted_bytes", 0, 1000));
    cr_assert_eq(devices_say("gpu0", "used_bytes"), 0);
    cr_assert_eq(ps_says("waiter", "pid"), UINT64_MAX);
}

Test(memory, a_connection_that_ends_keeps_what_the_program_was_granted)
{
    begin_with("512MiB");
    struct puppet *a = start("a", "gpu:one", NULL);

    cr_assert(puppet_allocate(a, 200 * MIB, SOON));
    uint64_t granted = a->vdevs[0].granted;
    puppet_hang_up(a);
    cr_assert(state_comes_to("a", "away", SOON));
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), granted);
    puppet_connect(a);
    cr_assert(state_comes_to("a", "running", SOON));
    cr_assert_eq(a->vdevs[0].granted, granted);
    cr_assert(devices_come_to("gpu0", "granted_bytes", granted, SOON));
}

Test(memory, the_next_agent_knows_what_was_granted_limited_and_drained)
{
    setenv("POCL_FAKE_DEVICES", "gpu:one,gpu:larger", 1);
    begin_with("512MiB");
    struct puppet_kind kind = {.device = "gpu:one", .quota = 400 * MIB, .priority = "-3"};
    struct puppet *a = puppet_start("a", &kind);
    struct puppet *b = start("b", "gpu:one", NULL);

    cr_assert(puppet_allocate(a, 200 * MIB, SOON));
    cr_assert(puppet_allocate(b, 30 * MIB, SOON));
    cr_assert_eq(PUPPETS_RESEAT("drain", "gpu1")->status, 0);
    cr_assert_eq(PUPPETS_RESEAT("suspend", "b")->status, 0);
    cr_assert(devices_come_to("gpu0", "granted_bytes", a->vdevs[0].granted, SOON));
    kill(harness_agent(), SIGKILL);
    puppet_hang_up(a);
    puppet_hang_up(b);
    /* Alone, it takes what it wants. */
    a->vdevs[0].held = a->vdevs[0].wanted = 300 * MIB;
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    puppet_connect(a);
    puppet_connect(b);
    cr_assert(devices_come_to("gpu0", "granted_bytes", 300 * MIB, SOON));
    cr_assert_eq(a->vdevs[0].granted, 300 * MIB);
    cr_assert_eq(devices_say("gpu0", "capacity_bytes"), 512 * MIB);
    cr_assert_eq(devices_say("gpu1", "drained"), 1);
    cr_assert_eq(ps_says("a", "quota_bytes"), 400 * MIB);
    cr_assert(state_comes_to("b", "suspended", SOON));
    cr_assert_eq(ps_says("b", "displaced"), 0);
}

Test(memory, who_was_displaced_is_resumed_by_the_next_agent)
{
    begin_with("256MiB");
    struct puppet *low = start("low", "gpu:one", "ws");
    struct puppet_kind kind = {.device = "gpu:one", .priority = "5", .ways = "w"};
    struct puppet *high = puppet_start("high", &kind);

    cr_assert(puppet_allocate(low, 150 * MIB, SOON));
    cr_assert(puppet_allocate(high, 200 * MIB, 20000));
    cr_assert_eq(ps_says("low", "displaced"), 1);
    kill(harness_agent(), SIGKILL);
    puppet_hang_up(low);
    puppet_hang_up(high);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    puppet_connect(high);
    puppet_connect(low);
    puppet_kill(high);
    cr_assert(state_comes_to("low", "running", 20000));
    cr_assert_geq(low->vdevs[0].granted, 150 * MIB);
}

Test(memory, the_next_agent_grants_nothing_before_it_knows_who_has_what)
{
    begin_with("256MiB");
    struct puppet *a = start("a", "gpu:one", "w");
    struct puppet *b = start("b", "gpu:one", "w");

    cr_assert(puppet_allocate(a, 200 * MIB, SOON));
    puppet_need(b, 0, 100 * MIB, false);
    cr_assert(state_comes_to("b", "waiting", SOON));
    uint64_t granted = b->vdevs[0].granted;
    kill(harness_agent(), SIGKILL);
    puppet_hang_up(a);
    puppet_hang_up(b);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    /* The one that asks comes first, and a new one. */
    puppet_connect(b);
    puppet_need(b, 0, 100 * MIB, false);
    struct puppet *c = start("c", "gpu:one", "w");
    puppet_connect(a);
    cr_assert(state_comes_to("b", "waiting", SOON));
    cr_assert_eq(b->answers, 0);
    cr_assert_eq(b->vdevs[0].granted, granted);
    cr_assert_eq(c->vdevs[0].granted, 0);
    puppet_kill(a);
    cr_assert(puppet_answered(b, 1, SOON));
    cr_assert_str_eq(b->way, WAY_AGAIN);
}

Test(memory, the_next_agent_does_not_wait_for_those_that_do_not_come)
{
    begin_with("256MiB");
    struct puppet *a = start("a", "gpu:one", "w");
    struct puppet *b = start("b", "gpu:one", "w");

    kill(harness_agent(), SIGKILL);
    puppet_hang_up(a);
    puppet_hang_up(b);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    puppet_connect(b);
    cr_assert(puppet_allocate(b, 100 * MIB, 2 * SOON));
    cr_assert_str_eq(b->way, WAY_AGAIN);
    cr_assert_eq(a->fd, -1);
}

/** Both together have no more than 256 MiB. */
static bool fits(void *data)
{
    struct puppet **both = data;

    return both[0]->vdevs[0].granted + both[1]->vdevs[0].granted <= 256 * MIB;
}

Test(memory, a_limit_below_what_is_in_use_shrinks_it)
{
    begin_with(NULL);
    struct puppet *a = start("a", "gpu:one", NULL);
    struct puppet *b = start("b", "gpu:one", NULL);

    a->vdevs[0].least = b->vdevs[0].least = 10 * MIB;
    cr_assert(puppet_allocate(a, 300 * MIB, SOON));
    cr_assert(puppet_allocate(b, 300 * MIB, SOON));
    puppets_limit("gpu0", "256MiB");
    cr_assert(puppets_run(fits, (struct puppet *[]){a, b}, SOON));
    cr_assert_leq(a->vdevs[0].granted + b->vdevs[0].granted, 256 * MIB);
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), a->vdevs[0].granted + b->vdevs[0].granted);
    cr_assert(a->vdevs[0].spilled + b->vdevs[0].spilled >= 344 * MIB);
    cr_assert(state_comes_to("a", a->vdevs[0].spilled ? "spilled" : "running", SOON));
    /* And they take it back when they may. */
    puppets_limit("gpu0", NULL);
    cr_assert(devices_come_to("gpu0", "capacity_bytes", 2048 * MIB, SOON));
    puppets_for(1500);
    cr_assert_geq(a->vdevs[0].granted, 300 * MIB);
    cr_assert_geq(b->vdevs[0].granted, 300 * MIB);
}

Test(memory, one_that_gives_nothing_back_is_not_asked_without_end)
{
    begin_with(NULL);
    struct puppet *a = start("a", "gpu:one", "p");

    a->vdevs[0].least = 10 * MIB;
    a->stubborn = true;
    cr_assert(puppet_allocate(a, 300 * MIB, SOON));
    puppets_limit("gpu0", "100MiB");
    puppets_for(1500);
    cr_assert_leq(a->shrinks, 4);
    cr_assert_eq(a->vdevs[0].granted, devices_say("gpu0", "granted_bytes"));
}

Test(memory, waiting_has_a_deadline)
{
    harness_ends(harness_run(getenv("TEST_RESEATD"), "--daemon", "--wait-deadline", "1", NULL), 0);
    begin_with("128MiB");
    struct puppet *a = start("a", "gpu:one", "w");
    struct puppet *b = start("b", "gpu:one", "w");

    cr_assert(puppet_allocate(a, 128 * MIB, SOON));
    puppet_need(b, 0, 100 * MIB, false);
    cr_assert(puppet_answered(b, 1, SOON));
    cr_assert_str_eq(b->way, WAY_REFUSE);
    cr_assert(strstr(b->reason, "deadline"), "%s", b->reason);
    cr_assert(state_comes_to("b", "running", SOON));
}

Test(memory, virtual_devices_on_one_device_share_what_is_granted)
{
    setenv("POCL_FAKE_DEVICES", "gpu:one,gpu:larger", 1);
    begin_with("512MiB");
    struct puppet_kind kind = {.device = "gpu:one", .second = "gpu:one"};
    struct puppet *a = puppet_start("a", &kind);
    uint64_t first = a->vdevs[0].granted, second = a->vdevs[1].granted;

    cr_assert_gt(first, 0);
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), first + second);
    /* What both hold is said of the first alone; it may be more than that one was granted. */
    a->vdevs[0].held = first + second;
    a->vdevs[0].wanted = first;
    a->vdevs[1].wanted = second;
    puppet_say(a);
    cr_assert(devices_come_to("gpu0", "used_bytes", first + second, SOON));
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), first + second);
    /* One of them leaves with what it has. */
    cr_assert_eq(PUPPETS_RESEAT("move", "a:1", "gpu1")->status, 0);
    a->vdevs[0].held = first;
    puppet_say(a);
    cr_assert(devices_come_to("gpu0", "granted_bytes", first, SOON));
    cr_assert(devices_come_to("gpu1", "granted_bytes", a->vdevs[1].granted, SOON));
    cr_assert_geq(a->vdevs[1].granted, second);
}

Test(memory, messages_about_what_is_not_there_change_nothing)
{
    begin_with("512MiB");
    struct puppet *a = start("a", "gpu:one", NULL);
    uint64_t granted = a->vdevs[0].granted;
    struct frame frame;

    puppet_need(a, 0, UINT64_MAX, false);
    cr_assert(puppet_answered(a, 1, SOON));
    cr_assert_str_neq(a->way, WAY_AGAIN);
    frame_init(&frame, MSG_NEED);
    frame_u64(&frame, "id", 77);
    frame_u64(&frame, "vdev", 9);
    frame_u64(&frame, "bytes", MIB);
    puppet_send(a, &frame);
    cr_assert(puppet_answered(a, 2, SOON));
    cr_assert_str_eq(a->way, WAY_REFUSE);
    frame_init(&frame, MSG_RETURN);
    frame_u64(&frame, "vdev", 9);
    frame_u64(&frame, "bytes", MIB);
    puppet_send(a, &frame);
    frame_init(&frame, MSG_RETURN);
    frame_string(&frame, "bytes", "all");
    puppet_send(a, &frame);
    frame_init(&frame, MSG_REPORT);
    frame_u64(&frame, "request", 12345);
    frame_string(&frame, "result", RESULT_DONE);
    puppet_send(a, &frame);
    cr_assert(state_comes_to("a", "running", SOON));
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), a->vdevs[0].granted);
    cr_assert_geq(a->vdevs[0].granted, granted);
    /* More than it has: nothing is left, and not less than nothing. */
    frame_init(&frame, MSG_RETURN);
    frame_u64(&frame, "bytes", 1ull << 60);
    puppet_send(a, &frame);
    a->vdevs[0].granted = 0;
    cr_assert(devices_come_to("gpu0", "granted_bytes", 0, SOON));
}

/* What it allocated since it last told is granted too, or not there at all. */
Test(memory, a_move_counts_with_what_a_program_has_by_now)
{
    setenv("POCL_FAKE_DEVICES", "gpu:one,gpu:two", 1);
    begin_with("1GiB");
    puppets_limit("gpu1", "512MiB");
    struct puppet *a = start("a", "gpu:one", "");

    a->move = RESULT_DONE;
    cr_assert(puppet_allocate(a, 100 * MIB, SOON));
    a->outgrows = 1;
    a->more = 200 * MIB;
    harness_ends(PUPPETS_RESEAT("move", "a", "gpu1"), 0);
    cr_assert_eq(a->outgrows, 0);
    cr_assert_eq(a->moves, 1);
    cr_assert_geq(a->last_grant, 300 * MIB);
    cr_assert_eq(devices_say("gpu1", "granted_bytes"), a->last_grant);
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), 0);

    cr_assert_eq(PUPPETS_RESEAT("move", "a", "gpu0")->status, 0);
    a->outgrows = 1;
    a->more = 300 * MIB;
    harness_says(PUPPETS_RESEAT("move", "a", "gpu1"), 4,
                 "needs 600 MiB, but gpu1 has 512 MiB free");
    cr_assert_eq(a->moves, 2);
    cr_assert_eq(devices_say("gpu1", "granted_bytes"), 0);

    /* Nobody waits for a detached move: the agent decides again by itself. */
    puppets_limit("gpu1", "4GiB");
    a->outgrows = 1;
    a->more = MIB;
    unsigned moves = a->moves;
    cr_assert_eq(PUPPETS_RESEAT("move", "a", "gpu1", "--detach")->status, 0);
    cr_assert_eq(PUPPETS_RESEAT("wait", "a", "running", "--timeout", "30s")->status, 0);
    cr_assert_eq(a->outgrows, 0);
    cr_assert_eq(a->moves, moves + 1);
    cr_assert_str_eq(a->vdevs[0].device, "gpu:two");
    puppets_limit("gpu1", "700MiB");
    cr_assert_eq(PUPPETS_RESEAT("move", "a", "gpu0")->status, 0);
    a->outgrows = 1;
    a->more = 300 * MIB;
    moves = a->moves;
    cr_assert_eq(PUPPETS_RESEAT("move", "a", "gpu1", "--detach")->status, 0);
    cr_assert_eq(PUPPETS_RESEAT("wait", "a", "running", "--timeout", "30s")->status, 0);
    cr_assert_eq(a->moves, moves, "it has 901 MiB, and 700 are there");
    cr_assert(strstr(PUPPETS_RESEAT("events")->out, "but gpu1 has 700 MiB free"), "%s",
              PUPPETS_RESEAT("events")->out);

    /* One that never stops growing is not asked for ever. */
    puppets_limit("gpu1", "4GiB");
    a->outgrows = 100;
    a->more = MIB;
    cr_assert_eq(PUPPETS_RESEAT("move", "a", "gpu1")->status, 0);
    cr_assert_eq(a->moves, moves + 1);
    cr_assert_eq(a->outgrows, 97);
    cr_assert_geq(a->last_grant, 603 * MIB);

    /* Nor one that says so whatever it is asked, be it of a suspend, which counts nothing. */
    a->move = RESULT_AGAIN;
    a->outgrows = 0;
    harness_says(PUPPETS_RESEAT("move", "a", "gpu0"), 1, "does not say what became of it");
    cr_assert_eq(PUPPETS_RESEAT("suspend", "a")->status, 1);
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), 0);
}

static bool said_so(void *puppet)
{
    return ((const struct puppet *)puppet)->alive == 2;
}

/* It may wait for long, and is to know that somebody goes on thinking of it. */
Test(memory, who_waits_is_told_that_the_agent_is_there)
{
    begin_with("256MiB");
    struct puppet *a = start("a", "gpu:one", "w"), *b = start("b", "gpu:one", "w");

    cr_assert(puppet_allocate(a, 200 * MIB, SOON));
    puppet_need(b, 0, 100 * MIB, false);
    for (unsigned i = 0; i < 2; i++) {
        struct frame frame;
        frame_init(&frame, MSG_ALIVE);
        puppet_send(b, &frame);
    }
    cr_assert(puppets_run(said_so, b, SOON));
    cr_assert_eq(b->answers, 0);
    cr_assert_eq(a->alive, 0);
}

/** Nobody else is given it, who left it may go back to it, and a drain waits for its end. */
Test(memory, what_a_move_on_demand_left_behind_counts_where_it_is)
{
    setenv("POCL_FAKE_DEVICES", "gpu:one,gpu:larger", 1);
    begin_with("256MiB");
    struct puppet *a = start("a", "gpu:one", ""), *b = start("b", "gpu:larger", "");
    struct puppet_vdev *vdev = &a->vdevs[0];

    a->move = b->move = RESULT_DONE;

    cr_assert(puppet_allocate(a, 200 * MIB, SOON));
    cr_assert(puppet_allocate(b, 100 * MIB, SOON));
    cr_assert_eq(PUPPETS_RESEAT("move", "a", "gpu1", "--on-demand")->status, 0);
    vdev->source = "gpu:one";
    vdev->source_bytes = vdev->to_fetch = 200 * MIB;
    vdev->fetched = 50 * MIB;
    puppet_say(a);
    cr_assert(devices_come_to("gpu0", "used_bytes", 200 * MIB, SOON));
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), 200 * MIB);
    const char *ps = PUPPETS_RESEAT("ps")->out;
    cr_assert(strstr(ps, "running, 50.0 MiB of 200 MiB fetched from gpu0"), "%s", ps);
    harness_says(PUPPETS_RESEAT("move", "b", "gpu0"), 4, "beside a 200 MiB");
    /* Back to where it has most of it. */
    cr_assert_eq(PUPPETS_RESEAT("move", "a", "gpu0")->status, 0);
    cr_assert_eq(PUPPETS_RESEAT("move", "a", "gpu1", "--on-demand")->status, 0);
    puppet_say(a);
    cr_assert(devices_come_to("gpu0", "used_bytes", 200 * MIB, SOON));
    vdev->source = NULL;
    vdev->fetched = vdev->to_fetch = 0;
    puppet_say(a);
    cr_assert(devices_come_to("gpu0", "used_bytes", 0, SOON));
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), 0);
    cr_assert_eq(PUPPETS_RESEAT("move", "b", "gpu0")->status, 0);
}
