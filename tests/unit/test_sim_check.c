#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "agent/sim_check.h"
#include "tests/unit/leaks.h"

/* A log that is right, and each way to break it. */

TestSuite(sim_check, .fini = leaks_check, .timeout = 60);

#define MOST 24

static struct sim_device devices[] = {{0, 0}, {0, 0}};
static struct sim_task tasks[] = {{.share = 1000, .work = 10000}, {.share = 1000, .work = 5000}};
static const struct sim_trace trace = {
    .models = {.items = {{"m", 100, 1000, 1000}}, .count = 1},
    .devices = devices,
    .tasks = tasks,
    .device_count = 2,
    .task_count = 2,
};

/*
 * 0 works on device 0, is killed at 5 ms with 5000 done, of which 2000 are lost, works again from 6
 * to 13 ms on device 1. 1 takes what is left of device 1 at 13 ms, moves at 15 ms to device 0,
 * which is back, and ends at 19 ms.
 */
static const struct sim_event good[] = {
    {SIM_DEVICE, SIM_NONE, 0, 0, 100},
    {SIM_DEVICE, SIM_NONE, 1, 0, 100},
    {SIM_ARRIVE, 0, SIM_NONE, 0, 10000},
    {SIM_HOLD, 0, 0, 0, 60},
    {SIM_RATE, 0, 0, 0, 1000},
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
    {SIM_RATE, 1, 0, 15, 1000},
    {SIM_HOLD, 1, 1, 15, 0},
    {SIM_END, 1, SIM_NONE, 18, 0},
    {SIM_RATE, 1, 0, 18, 0},
    {SIM_HOLD, 1, 0, 18, 0},
};

_Static_assert(sizeof(good) / sizeof(*good) == MOST, "the places below are of this log");

static void judge(const struct sim_event *log, uint64_t asked, uint64_t lost, char *ret_problem)
{
    struct sim_check *check = sim_check_create(&trace);

    cr_assert(check);
    for (size_t i = 0; i < MOST; i++) {
        sim_check_event(check, &log[i]);
    }
    sim_check_end(check, asked, lost);
    snprintf(ret_problem, SIM_ERROR, "%s", sim_check_problem(check));
    sim_check_destroy(check);
}

static void copy(struct sim_event *ret_log)
{
    memcpy(ret_log, good, sizeof(good));
}

static void expect_problem(const struct sim_event *log, const char *part)
{
    char problem[SIM_ERROR];

    judge(log, 15000, 2000, problem);
    cr_expect(strstr(problem, part), "\"%s\" is not about \"%s\"", problem, part);
}

Test(sim_check, a_log_that_is_right_passes)
{
    char problem[SIM_ERROR];

    judge(good, 15000, 2000, problem);
    cr_expect_str_eq(problem, "");
}

Test(sim_check, work_that_was_lost_has_to_be_done_again)
{
    struct sim_event log[MOST];

    copy(log);
    log[7].amount = 3000;
    expect_problem(log, "event 14, at 13 ms: program 0 ends having done 12000 and lost 3000");
    copy(log);
    log[7].amount = 1000;
    expect_problem(log, "program 0 ends having done 12000 and lost 1000");
    copy(log);
    log[7].amount = 5001;
    expect_problem(log, "program 0 lost 5001 in all, but did only 5000");
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
    struct sim_event log[MOST];

    copy(log);
    log[12].amount = 41;
    expect_problem(log, "event 13, at 8 ms: 101 bytes of device 1 are held, of 100");
    copy(log);
    log[3].amount = 101;
    expect_problem(log, "program 0 was given too much");
}

Test(sim_check, a_device_that_is_gone_has_nobody)
{
    struct sim_event log[MOST];

    copy(log);
    log[8] = (struct sim_event){SIM_DEVICE, SIM_NONE, 1, 5, 0};
    expect_problem(log, "program 0 was given too much");
    copy(log);
    log[17] = (struct sim_event){SIM_DEVICE, SIM_NONE, 1, 14, 0};
    expect_problem(log, "device 1 goes while 40 bytes of it are held");
    copy(log);
    log[17].amount = 0;
    expect_problem(log, "40 bytes of device 0 are held, of 0");
}

Test(sim_check, a_program_works_where_it_holds_memory_and_nowhere_else)
{
    struct sim_event log[MOST];

    copy(log);
    log[4].device = 1;
    expect_problem(log, "program 0 works on device 1, of which it holds nothing");
    copy(log);
    log[5].amount = 1000;
    expect_problem(log, "program 0 leaves device 0 while it works there");
    copy(log);
    log[20] = log[19];
    expect_problem(log, "program 1 ended and still holds a device");
}

Test(sim_check, a_device_gives_no_more_than_its_time)
{
    struct sim_event log[MOST];

    copy(log);
    log[10].amount = 1002;
    expect_problem(log, "programs kept device 1 busy for 1002000 millionths");
}

Test(sim_check, programs_come_once_and_end_once)
{
    struct sim_event log[MOST];

    copy(log);
    log[2].program = 1;
    expect_problem(log, "event 4, at 0 ms: program 0 is not there, or there already");
    copy(log);
    log[16] = log[13];
    expect_problem(log, "event 17, at 13 ms: program 0 is not there");
    copy(log);
    log[11].program = 2;
    expect_problem(log, "there is no program 2");
    copy(log);
    log[9].device = 2;
    expect_problem(log, "there is no device 2");
}

Test(sim_check, time_does_not_go_back)
{
    struct sim_event log[MOST];

    copy(log);
    log[12].time_ms = 6;
    expect_problem(log, "the next event is at 6 ms");
}

Test(sim_check, who_is_refused_lost_all_that_it_did)
{
    struct sim_event log[MOST];

    copy(log);
    log[21].kind = SIM_REFUSE;
    expect_problem(log, "program 1 is refused: it did 5000 and lost only 0");
}
