#include "tests/support/cases.h"

#include "policy/decide.h"

TestSuite(elastic, .timeout = 60);

#define GIB (UINT64_C(1) << 30)

/* Three devices of one model and one of another, all free; programs "a" and "b" are on the first
 * two, and may be spread. */
static struct policy_device devices[4];
static struct policy_program programs[3];
static uint32_t queue[1], given[4];
static struct policy_world world;

static void begin(void)
{
    for (uint32_t i = 0; i < 4; i++)
        devices[i] = (struct policy_device){
            .memory = 8 * GIB, .model = i < 3 ? 1 : 2, .free_s = ELASTIC_FREE_S};
    for (uint32_t i = 0; i < 2; i++) {
        devices[i].residents = 1;
        devices[i].reserved = GIB;
        programs[i] = (struct policy_program){
            .state = POLICY_RUNNING, .device = i, .wanted = GIB, .elastic = true};
    }
    programs[2] =
        (struct policy_program){.state = POLICY_SUSPENDED, .device = POLICY_NONE, .wanted = GIB};
    queue[0] = 2;
    world = (struct policy_world){
        .devices = devices, .device_count = 4, .programs = programs, .program_count = 2};
    world.queue = queue;
}

static void expect_given(uint32_t third, uint32_t fourth)
{
    memset(given, 0x55, sizeof(given));
    elastic_share(&world, given);
    cr_assert_eq(given[0], POLICY_NONE, "somebody is on it");
    cr_assert_eq(given[1], POLICY_NONE, "somebody is on it");
    cr_assert_eq(given[2], third, "%u", given[2]);
    cr_assert_eq(given[3], fourth, "%u", given[3]);
}

Test(elastic, a_free_device_of_the_same_model_is_given)
{
    begin();
    expect_given(0, POLICY_NONE);
    programs[0].elastic = false;
    expect_given(1, POLICY_NONE);
    programs[1].elastic = false;
    expect_given(POLICY_NONE, POLICY_NONE);
}

Test(elastic, other_models_are_given_where_floats_may_differ)
{
    begin();
    programs[1].any_float = true;
    expect_given(0, 1);
    devices[0].model = devices[2].model = 0;
    expect_given(1, 1);
}

Test(elastic, priority_goes_first_and_then_who_has_fewest)
{
    begin();
    programs[0].any_float = programs[1].any_float = true;
    expect_given(0, 1);
    programs[1].priority = 1;
    expect_given(1, 1);
}

Test(elastic, what_somebody_wants_is_taken_back)
{
    begin();
    world.program_count = 3;
    world.queue_count = 1;
    expect_given(POLICY_NONE, POLICY_NONE);
    programs[2].wanted = 9 * GIB; /* No device will ever hold it. */
    expect_given(0, POLICY_NONE);
    programs[2].wanted = GIB;
    uint64_t barred = 1u << 2;
    programs[2].barred = &barred;
    expect_given(0, POLICY_NONE);
}

Test(elastic, what_is_not_free_is_not_given)
{
    begin();
    devices[2].free_s = ELASTIC_FREE_S - 1;
    expect_given(POLICY_NONE, POLICY_NONE);
    begin();
    devices[2].reserved = 1; /* A program comes. */
    expect_given(POLICY_NONE, POLICY_NONE);
    begin();
    devices[2].residents = 1;
    expect_given(POLICY_NONE, POLICY_NONE);
    begin();
    devices[2].drains = true;
    expect_given(POLICY_NONE, POLICY_NONE);
    begin();
    devices[2].closed = true;
    expect_given(POLICY_NONE, POLICY_NONE);
}

Test(elastic, who_cannot_run_there_gets_nothing)
{
    uint64_t barred = 1u << 2;

    begin();
    programs[0].barred = &barred;
    expect_given(1, POLICY_NONE);
    begin();
    programs[0].wanted = 9 * GIB;
    expect_given(1, POLICY_NONE);
    begin();
    programs[0].state = POLICY_STOPPED;
    expect_given(1, POLICY_NONE);
}
