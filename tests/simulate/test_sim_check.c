#include "simulate/sim_check.h"
#include "tests/support/leaks.h"

/* A log that is right, and each way to break it. */

TestSuite(sim_check, .fini = leaks_check, .timeout = 60);

#define MOST 28

static struct sim_device devices[] = {{0, 0, 0}, {0, 0, 1}};
static struct sim_node nodes[] = {{.host = 100, .first = 0, .count = 2}};
static struct sim_task tasks[] = {{.share = 1000, .work = 10000}, {.share = 1000, .work = 5000}};
static const struct sim_trace trace = {
    .models = {.items = {{"m", 100, 1000, 1000}}, .count = 1},
    .devices = devices,
    .nodes = nodes,
    .tasks = tasks,
    .device_count = 2,
    .node_count = 1,
    .task_count = 2,
};

/*
 * 0 works on device 0, is saved at 3 ms and killed at 5 ms with 5000 done, of which 2000 are lost,
 * works again from 6 to 13 ms on device 1. 1 takes what is left of device 1 at 13 ms, moves at 15
 * ms to device 0, which is back, and ends at 19 ms.
 */
static const struct sim_event good[] = {
    {SIM_DEVICE, SIM_NONE, 0, 0, 100},
    {SIM_DEVICE, SIM_NONE, 1, 0, 100},
    {SIM_ARRIVE, 0, SIM_NONE, 0, 10000},
    {SIM_HOLD, 0, 0, 0, 60},
    {SIM_RATE, 0, 0, 0, 1000},
    {SIM_RATE, 0, 0, 3, 0},
    {SIM_SAVE, 0, SIM_NONE, 3, 3000},
    {SIM_RATE, 0, 0, 3, 1000},
    {SIM_RATE, 0, 0, 5, 0},
    {SIM_HOLD, 0, 0, 5, 0},
    {SIM_LOSE, 0, SIM_NONE, 5, 2000},
    {SIM_DEVICE, SIM_NONE, 0, 5, 0},
    {SIM_HOLD, 0, 1, 6, 60},
    {SIM_RATE, 0, 1, 6, 1000},
    {SIM_ARRIVE, 1, SIM_NONE, 7, 5000},
    {SIM_HOLD, 1, 1, 8, 40},
    {SIM_END, 0, SIM_NONE, 13, 0},
    {SIM_RATE, 0, 1, 13, 0},
    {SIM_HOLD, 0, 1, 13, 0},
    {SIM_RATE, 1, 1, 13, 1000},
    {SIM_DEVICE, SIM_NONE, 0, 14, 100},
    {SIM_HOLD, 1, 0, 15, 40},
    {SIM_RATE, 1, 1, 15, 0},
    {SIM_HOLD, 1, 1, 15, 0},
    {SIM_RATE, 1, 0, 15, 1000},
    {SIM_END, 1, SIM_NONE, 18, 0},
    {SIM_RATE, 1, 0, 18, 0},
    {SIM_HOLD, 1, 0, 18, 0},
};

_Static_assert(sizeof(good) / sizeof(*good) == MOST, "the places below are of this log");

static void judge(const struct sim_event *events, uint64_t asked, uint64_t lost, char *ret_problem)
{
    struct sim_check *check = sim_check_create(&trace, false);

    cr_assert(check);
    for (size_t i = 0; i < MOST; i++)
        sim_check_event(check, &events[i]);
    sim_check_end(check, asked, lost);
    snprintf(ret_problem, SIM_ERROR, "%s", sim_check_problem(check));
    sim_check_destroy(check);
}

static struct sim_event event_log[MOST];

static void expect_problem(const char *part)
{
    char problem[SIM_ERROR];

    judge(event_log, 15000, 2000, problem);
    cr_expect(strstr(problem, part), "\"%s\" is not about \"%s\"", problem, part);
}

/* The log is right but for @change. */
#define WRONG(change, part)                                                                        \
    do {                                                                                           \
        memcpy(event_log, good, sizeof(good));                                                     \
        change;                                                                                    \
        expect_problem(part);                                                                      \
    } while (0)

Test(sim_check, a_log_that_is_right_passes)
{
    char problem[SIM_ERROR];

    judge(good, 15000, 2000, problem);
    cr_expect_str_eq(problem, "");
}

Test(sim_check, work_comes_from_where_it_was_kept)
{
    WRONG(event_log[6].amount = 3001,
          "program 0 saves 3001 of 3000 done, with 1 devices and at the speed 0");
    WRONG(event_log[5] = event_log[7],
          "program 0 saves 3000 of 3000 done, with 1 devices and at the speed 1000");
    /* Nothing was saved, and its device is gone. */
    WRONG(event_log[6] = event_log[5], "program 0 begins with 3000 done, but only 0 was saved");
    /* It keeps 1000 more than was saved. */
    WRONG(event_log[10].amount = 1000, "program 0 begins with 4000 done, but only 3000 was saved");
}

Test(sim_check, work_that_was_lost_has_to_be_done_again)
{
    WRONG(event_log[10].amount = 3000,
          "event 17, at 13 ms: program 0 ends having done 12000 and lost 3000");
    WRONG(event_log[10].amount = 5001, "program 0 lost 5001 in all, but did only 5000");
}

Test(sim_check, totals_are_those_of_the_log)
{
    char problem[SIM_ERROR];

    judge(good, 15000, 1999, problem);
    cr_expect(strstr(problem, "the totals are 15000 asked and 1999 lost"), "%s", problem);
    judge(good, 14999, 2000, problem);
    cr_expect(strstr(problem, "the totals are 14999 asked"), "%s", problem);
}

Test(sim_check, a_device_is_never_over_its_memory)
{
    WRONG(event_log[15].amount = 41, "event 16, at 8 ms: 101 bytes of device 1 are held, of 100");
    WRONG(event_log[3].amount = 101, "program 0 was given too much");
}

Test(sim_check, a_device_that_is_gone_has_nobody)
{
    WRONG((event_log[11] = (struct sim_event){SIM_DEVICE, SIM_NONE, 1, 5, 0}),
          "program 0 was given too much");
    WRONG((event_log[20] = (struct sim_event){SIM_DEVICE, SIM_NONE, 1, 14, 0}),
          "device 1 goes while 40 bytes of it are held");
    WRONG(event_log[20].amount = 0, "40 bytes of device 0 are held, of 0");
}

Test(sim_check, a_program_works_where_it_holds_memory_and_nowhere_else)
{
    WRONG(event_log[4].device = 1, "program 0 works on device 1, of which it holds nothing");
    WRONG(event_log[8].amount = 1000, "program 0 leaves device 0 while it works there");
    WRONG(event_log[27] = event_log[26], "program 1 ended and still holds a device or host memory");
}

Test(sim_check, a_device_gives_no_more_than_its_time)
{
    WRONG(event_log[13].amount = 1002, "programs kept device 1 busy for 1002000 millionths");
}

Test(sim_check, programs_come_once_and_end_once)
{
    WRONG(event_log[2].program = 1, "event 4, at 0 ms: program 0 is not there, or there already");
    WRONG(event_log[19] = event_log[16], "event 20, at 13 ms: program 0 is not there");
    WRONG(event_log[14].program = 2, "there is no program 2");
    WRONG(event_log[12].device = 2, "there is no device 2");
}

TestCall(sim_check, time_does_not_go_back,
         WRONG(event_log[15].time_ms = 6, "the next event is at 6 ms"));
TestCall(sim_check, who_is_refused_lost_all_that_it_did,
         WRONG(event_log[25].kind = SIM_REFUSE,
               "program 1 is refused: it did 5000 and lost only 0"));

/* ---- nodes ---- */

/* Two nodes of two devices. Program 0 wants two devices, program 1 one. */
static struct sim_device four[] = {{0, 0, 0}, {0, 0, 1}, {0, 1, 2}, {0, 1, 3}};
static struct sim_node two[] = {{.host = 100, .first = 0, .count = 2, .id = 0},
                                {.host = 100, .first = 2, .count = 2, .id = 1}};
static struct sim_task both[] = {{.share = 1000, .work = 10000, .more = 1},
                                 {.share = 1000, .work = 5000}};
static const struct sim_trace cluster = {
    .models = {.items = {{"m", 100, 1000, 1000}}, .count = 1},
    .devices = four,
    .nodes = two,
    .tasks = both,
    .device_count = 4,
    .node_count = 2,
    .task_count = 2,
};

#define START                                                                                      \
    {SIM_DEVICE, SIM_NONE, 0, 0, 100}, {SIM_DEVICE, SIM_NONE, 1, 0, 100},                          \
        {SIM_DEVICE, SIM_NONE, 2, 0, 100}, {SIM_DEVICE, SIM_NONE, 3, 0, 100},                      \
        {SIM_ARRIVE, 0, SIM_NONE, 0, 10000},                                                       \
    {                                                                                              \
        SIM_ARRIVE, 1, SIM_NONE, 0, 5000                                                           \
    }

static void expect_of_cluster(const struct sim_event *events, size_t count, bool between,
                              const char *part)
{
    struct sim_check *check = sim_check_create(&cluster, between);

    cr_assert(check);
    for (size_t i = 0; i < count; i++)
        sim_check_event(check, &events[i]);
    const char *problem = sim_check_problem(check);
    cr_expect(*part ? strstr(problem, part) != NULL : !*problem, "\"%s\" is not \"%s\"", problem,
              part);
    sim_check_destroy(check);
}

#define EXPECT(log, between, part)                                                                 \
    expect_of_cluster(log, sizeof(log) / sizeof(*(log)), between, part)

Test(sim_check, one_of_several_devices_works_with_all_of_them_and_on_one_node)
{
    static const struct sim_event whole[] = {
        START, {SIM_HOLD, 0, 0, 1, 100}, {SIM_HOLD, 0, 1, 1, 100}, {SIM_RATE, 0, 0, 1, 1000}};
    static const struct sim_event half[] = {
        START, {SIM_HOLD, 0, 0, 1, 100}, {SIM_RATE, 0, 0, 1, 1000}};
    static const struct sim_event split[] = {
        START, {SIM_HOLD, 0, 1, 1, 100}, {SIM_HOLD, 0, 2, 1, 100}, {SIM_RATE, 0, 1, 1, 1000}};
    static const struct sim_event leaves[] = {START,
                                              {SIM_HOLD, 0, 0, 1, 100},
                                              {SIM_HOLD, 0, 1, 1, 100},
                                              {SIM_RATE, 0, 0, 1, 1000},
                                              {SIM_HOLD, 0, 1, 2, 0}};

    EXPECT(whole, false, "");
    EXPECT(half, false, "program 0 works with 1 devices and asked for 2");
    EXPECT(split, true, "program 0 works on node 0 and has a device of node 1");
    EXPECT(split, false, "program 0 is on two nodes, 0 and 1");
    EXPECT(leaves, false, "program 0 leaves device 1 while it works there");
}

Test(sim_check, a_program_is_on_one_node_where_none_goes_to_another)
{
    static const struct sim_event moves[] = {START,
                                             {SIM_HOLD, 1, 0, 1, 50},
                                             {SIM_HOLD, 1, 2, 2, 50},
                                             {SIM_HOLD, 1, 0, 3, 0},
                                             {SIM_RATE, 1, 2, 3, 1000}};
    static const struct sim_event in_two[] = {
        START, {SIM_HOST, 1, 0, 1, 50}, {SIM_HOLD, 1, 2, 2, 50}};

    EXPECT(moves, true, "");
    EXPECT(moves, false, "program 1 is on two nodes, 0 and 1");
    EXPECT(in_two, false, "program 1 is on two nodes, 0 and 1");
}

Test(sim_check, host_memory_is_never_over_its_size_and_goes_with_its_node)
{
    static const struct sim_event over[] = {
        START, {SIM_HOST, 0, 0, 1, 60}, {SIM_HOST, 1, 0, 1, 41}};
    static const struct sim_event again[] = {START,
                                             {SIM_HOST, 0, 0, 1, 60},
                                             {SIM_HOST, 1, 0, 1, 40},
                                             {SIM_HOST, 0, 0, 2, 10},
                                             {SIM_HOST, 1, 0, 2, 90}};
    static const struct sim_event gone[] = {START,
                                            {SIM_HOST, 1, 0, 1, 60},
                                            {SIM_DEVICE, SIM_NONE, 0, 2, 0},
                                            {SIM_DEVICE, SIM_NONE, 1, 2, 0}};
    static const struct sim_event late[] = {START,
                                            {SIM_DEVICE, SIM_NONE, 0, 2, 0},
                                            {SIM_DEVICE, SIM_NONE, 1, 2, 0},
                                            {SIM_HOST, 1, 0, 3, 60}};
    static const struct sim_event nowhere[] = {START, {SIM_HOST, 1, 2, 1, 60}};

    EXPECT(over, false, "101 bytes of host memory of node 0 are held, of 100: program 1");
    EXPECT(again, false, "");
    EXPECT(gone, false, "node 0 goes while 60 bytes of its host memory are held");
    EXPECT(late, false, "60 bytes of host memory of node 0 are held, of 0");
    EXPECT(nowhere, false, "there is no node 2");
}
