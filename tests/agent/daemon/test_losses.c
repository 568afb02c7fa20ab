#include "tests/support/cases.h"

#include "tests/agent/harness.h"
#include "tests/agent/puppet.h"

/* Programs whose device is lost, and where the agent has those go that go on elsewhere. */

#define SOON 8000

/** The devices that there are, now. */
static void there_are(const char *devices)
{
    harness_write(harness_path("devices"), devices);
}

static void begin(void)
{
    puppets_begin("");
    setenv("FAKE_MORE_DEVICES", harness_path("devices"), 1);
    there_are("gpu:one,gpu:larger");
    RESEAT("devices");
}

TestSuite(losses, .init = begin, .fini = puppets_finish, .timeout = 120);

static struct puppet *start(const char *name, const char *device, uint64_t bytes)
{
    struct puppet_kind kind = {.device = device};
    struct puppet *puppet = puppet_start(name, &kind);

    cr_assert(puppet_allocate(puppet, bytes, SOON));
    return puppet;
}

static void lose(struct puppet *puppet, bool seeks)
{
    puppet->vdevs[0].lost = true;
    puppet->vdevs[0].seeks = seeks;
    puppet_say(puppet);
}

static bool is_elsewhere(void *data)
{
    const struct puppet *puppet = data;

    return !puppet->vdevs[0].lost;
}

static struct puppet *start_on_the_only_one(void)
{
    there_are("gpu:one");
    cr_assert_eq(RESEAT("config", "reload")->status, 0);
    return start("a", "gpu:one", 300 * MIB);
}

Test(losses, a_protected_program_is_given_another_device_and_room_there)
{
    struct puppet *a = start("a", "gpu:one", 300 * MIB);

    cr_assert_geq(devices_say("gpu0", "granted_bytes"), 300 * MIB);
    lose(a, true);
    cr_assert(puppets_run(is_elsewhere, a, SOON));
    cr_assert_str_eq(a->vdevs[0].device, "gpu:larger");
    cr_assert_eq(a->moves, 1);
    cr_assert_eq(a->resumes, 0);
    cr_assert_str_eq(a->manner, "needed");
    cr_assert_geq(a->vdevs[0].granted, 300 * MIB);
    cr_assert(state_comes_to("a", "running", SOON));
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), 0, "it is free at once");
    cr_assert_eq(devices_say("gpu1", "granted_bytes"), a->vdevs[0].granted);
    cr_assert_eq(ps_says("a", "displaced"), 0);
}

/* The agent hears of the second loss while the first one is the last that it knows. */
Test(losses, a_device_that_is_lost_before_the_move_there_is_reported_is_left_as_well)
{
    there_are("gpu:one,gpu:larger,gpu:third");
    RESEAT("devices");
    struct puppet *a = start("a", "gpu:one", 300 * MIB);

    a->vdevs[0].loses_again = true;
    there_are("gpu:larger,gpu:third"); /* else the first one might answer again in time */
    lose(a, true);
    cr_assert(puppets_run(is_elsewhere, a, SOON), "it waits on %s", a->vdevs[0].device);
    cr_assert_eq(a->moves, 2);
    cr_assert_str_neq(a->vdevs[0].device, "gpu:one");
    cr_assert(state_comes_to("a", "running", SOON));
}

/* Nobody else can say what its bytes were. What it was granted it may have still. */
Test(losses, a_program_that_is_not_protected_stays_and_says_so)
{
    struct puppet *a = start("a", "gpu:one", 300 * MIB);
    uint64_t granted = devices_say("gpu0", "granted_bytes");

    lose(a, false);
    cr_assert(state_comes_to("a", "lost", SOON));
    puppets_for(500);
    cr_assert_eq(a->moves, 0);
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), granted);
}

/* The first list after the loss says that there is nothing, a later one that something came. */
Test(losses, with_no_device_it_waits_for_the_next_one)
{
    struct puppet *a = start_on_the_only_one();

    there_are("");
    lose(a, true);
    cr_assert(state_comes_to("a", "lost", SOON));
    puppets_for(1000);
    cr_assert_eq(a->moves, 0);
    cr_assert_eq(ps_says("a", "granted_bytes"), 0);
    cr_assert_eq(ps_says("a", "displaced"), 1);
    there_are("cpu:new");
    cr_assert(puppets_run(is_elsewhere, a, SOON));
    cr_assert_str_eq(a->vdevs[0].device, "cpu:new");
    cr_assert_eq(devices_say("cpu0", "granted_bytes"), a->vdevs[0].granted);
}

Test(losses, a_device_that_answers_again_is_used_again)
{
    struct puppet *a = start_on_the_only_one();

    lose(a, true);
    cr_assert(puppets_run(is_elsewhere, a, SOON));
    cr_assert_str_eq(a->vdevs[0].device, "gpu:one");
    cr_assert_geq(devices_say("gpu0", "granted_bytes"), 300 * MIB);
}

/* The process of its driver ended, and the device may be well: who lists devices hangs, and is not
   needed. */
Test(losses, a_device_that_was_lost_with_a_driver_s_process_is_tried_in_another_one)
{
    struct puppet *a = start_on_the_only_one();

    there_are("hang");
    a->vdevs[0].isolated = true;
    lose(a, true);
    cr_assert(puppets_run(is_elsewhere, a, SOON));
    cr_assert_str_eq(a->vdevs[0].device, "gpu:one");
    /* reseat devices would wait for who hangs. */
    cr_assert_geq(ps_says("a", "granted_bytes"), 300 * MIB);
}

/* But once: then it is asked, and found gone. */
Test(losses, a_device_that_went_with_a_driver_s_process_is_found_gone)
{
    struct puppet *a = start_on_the_only_one();

    there_are("");
    a->vdevs[0].isolated = true;
    a->move = RESULT_ROLLED_BACK;
    lose(a, true);
    puppets_for(3000);
    cr_assert_eq(a->refusals, 1);
    cr_assert(state_comes_to("a", "lost", SOON));
    there_are("cpu:new");
    a->move = RESULT_DONE;
    cr_assert(puppets_run(is_elsewhere, a, SOON));
    cr_assert_str_eq(a->vdevs[0].device, "cpu:new");
}

/* It takes nobody until it answers: who could go there meanwhile is not sent there. */
Test(losses, a_lost_device_is_offered_to_nobody_until_it_answers)
{
    struct puppet *a = start("a", "gpu:one", 300 * MIB), *b = start("b", "gpu:larger", 300 * MIB);

    there_are("gpu:larger,hang");
    lose(a, false);
    cr_assert(state_comes_to("a", "lost", SOON));
    there_are("hang");
    lose(b, true);
    puppets_for(1000);
    cr_assert_eq(b->moves, 0, "%s", b->vdevs[0].device);
    cr_assert_eq(ps_says("b", "displaced"), 1);
}

/* What one program cannot do again there keeps no other one away: nobody has to ask the device. */
Test(losses, a_device_that_works_is_left_by_one_program_alone)
{
    struct puppet *a = start("a", "gpu:one", 300 * MIB), *b = start("b", "gpu:larger", 300 * MIB);

    there_are("hang");
    a->vdevs[0].works = true;
    lose(a, true);
    cr_assert(puppets_run(is_elsewhere, a, SOON));
    cr_assert_str_eq(a->vdevs[0].device, "gpu:larger");
    lose(b, true);
    cr_assert(puppets_run(is_elsewhere, b, SOON));
    cr_assert_str_eq(b->vdevs[0].device, "gpu:one");
}

Test(losses, what_fails_is_tried_again)
{
    struct puppet *a = start("a", "gpu:one", 300 * MIB);

    a->move = RESULT_ROLLED_BACK;
    lose(a, true);
    puppets_for(500);
    cr_assert(a->vdevs[0].lost);
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), 0);
    a->move = RESULT_DONE;
    cr_assert(puppets_run(is_elsewhere, a, 4 * SOON));
    cr_assert_eq(ps_says("a", "displaced"), 0);
}

Test(losses, one_that_went_by_itself_does_not_queue_any_more)
{
    struct puppet *a = start("a", "gpu:one", 300 * MIB);

    a->move = NULL; /* it does not answer */
    lose(a, true);
    puppets_for(300);
    snprintf(a->vdevs[0].device, sizeof(a->vdevs[0].device), "gpu:larger");
    a->vdevs[0].lost = a->vdevs[0].seeks = false;
    puppet_say(a);
    cr_assert(state_comes_to("a", "running", SOON));
    cr_assert_eq(ps_says("a", "displaced"), 0);
}
