#include <criterion/criterion.h>
#include <inttypes.h>

#include "agent/sim.h"
#include "agent/sim_random.h"
#include "tests/unit/leaks.h"

/*
 * Worlds so small that what has to come of them is computed here, in full, by hand: two devices and
 * up to three programs. Bytes are decimal so that they divide: the link brings a gigabyte a second.
 */

TestSuite(sim, .fini = leaks_check, .timeout = 60);

#define GB     1000000000ull
#define SECOND 1000ull
#define HOUR   3600000ull

static struct sim_trace trace;
static struct sim_options options;

static void begin(uint64_t memory_a, uint32_t speed_a, uint64_t memory_b, uint32_t speed_b)
{
    const struct sim_models models = {
        .items = {{"a", memory_a, speed_a, 1000}, {"b", memory_b, speed_b, 1000}},
        .count = 2,
        .from = "the test"};

    sim_trace_init(&trace, &models);
    sim_options_init(&options);
    options.levels[0] = (struct sim_level){0, 1000};
    options.level_count = 1;
    options.link = 1000000;
    options.fixed_ms = 500;
    options.touch_ms = 4000;
    options.horizon_ms = 1000 * HOUR;
    options.check = true;
    options.settings.automatic = false;
}

static void add_device(uint32_t model, uint64_t from_ms)
{
    const struct sim_device device = {model, from_ms};

    cr_assert_eq(sim_trace_add_device(&trace, &device), 0);
}

/* @models  Bits: 1 is a, 2 is b. */
static void add_program(uint64_t arrive_ms, uint64_t seconds, uint64_t bytes, uint32_t share,
                        uint8_t steps, uint64_t models)
{
    struct sim_task task = {.arrive_ms = arrive_ms,
                            .work = seconds * 1000000,
                            .bytes = bytes,
                            .share = share,
                            .steps = steps};

    cr_assert_eq(sim_trace_rule(&trace, models, &task.rule), 0);
    cr_assert_eq(sim_trace_add_task(&trace, &task), 0);
}

static struct sim_result run(enum sim_regime regime)
{
    const struct sim_load load = {.seed = 1};
    struct sim_result result = {0};
    char error[SIM_ERROR] = "";

    cr_assert_eq(sim_trace_seal(&trace, &load, error), 0, "%s", error);
    cr_assert_eq(sim_run(&trace, &options, regime, 0, &result), 0);
    cr_assert_str_eq(result.problem, "");
    cr_assert_gt(result.checked, 0);
    return result;
}

static void end(void)
{
    sim_trace_finish(&trace);
}

static void expect(uint64_t actual, uint64_t expected, const char *what)
{
    cr_expect_eq(actual, expected, "%s: %" PRIu64 ", not %" PRIu64, what, actual, expected);
}

/* ---- nothing is reclaimed ---- */

/* Two programs of 6 GB on two devices of 8 GB, and after 10 s one of 8 GB. */
static void crowd(void)
{
    begin(8 * GB, 1000, 8 * GB, 1000);
    add_device(0, 0);
    add_device(0, 0);
    add_program(0, 100, 6 * GB, 500, 0, UINT64_MAX);
    add_program(0, 100, 6 * GB, 500, 0, UINT64_MAX);
    add_program(10 * SECOND, 50, 8 * GB, 500, 0, UINT64_MAX);
}

Test(sim, under_termination_the_third_program_waits_for_a_whole_device)
{
    crowd();
    struct sim_result result = run(SIM_TERMINATION);

    expect(result.finished, 3, "finished");
    expect(result.end_ms, 150 * SECOND, "end");
    expect(result.wait_mean_ms, 30 * SECOND, "mean wait");
    expect(result.wait_p50_ms, 0, "median wait");
    expect(result.wait_p99_ms, 90 * SECOND, "99th percentile");
    expect(result.took_mean_ms, (100 + 100 + 140) * SECOND / 3, "mean time");
    expect(result.occupied_ms, 250 * SECOND, "occupied");
    expect(result.busy_ms, 125 * SECOND, "busy");
    expect(result.asked_ms, 125 * SECOND, "asked");
    expect(result.terminations + result.lost_ms + result.moves + result.spills, 0, "no more");
    cr_expect_float_eq(result.cost, 250.0 / 3600, 1e-9);
    end();
}

/* A cell for each device: the first two go to one each, since that has more room, and the third to
 * one of them. */
Test(sim, cells_keep_their_programs_and_the_totals_are_those_of_all)
{
    crowd();
    options.cell = 1;
    struct sim_result result = run(SIM_TERMINATION);

    expect(result.finished, 3, "finished");
    expect(result.end_ms, 150 * SECOND, "end");
    expect(result.wait_p99_ms, 90 * SECOND, "99th percentile");
    expect(result.occupied_ms, 250 * SECOND, "occupied");
    end();
}

/*
 * With 2 of its 8 GB on the device it pays 12 s of link for each 4 s of work: a quarter of the
 * speed from 10 s on. The first look after the others ended, at 120 s, gives it the rest: it
 * did 27.5 s.
 */
Test(sim, under_overcommit_it_starts_at_once_and_spills)
{
    crowd();
    struct sim_result result = run(SIM_OVERCOMMIT);

    expect(result.finished, 3, "finished");
    expect(result.wait_p99_ms, 0, "waits");
    expect(result.end_ms, 142500, "end");
    expect(result.took_mean_ms, (100000 + 100000 + 132500) / 3, "mean time");
    expect(result.occupied_ms, 242500, "occupied");
    expect(result.terminations + result.lost_ms + result.moves + result.suspends, 0, "no more");
    end();
}

Test(sim, a_device_that_is_added_serves_who_waits)
{
    begin(8 * GB, 1000, 8 * GB, 1000);
    add_device(0, 50 * SECOND);
    add_program(0, 10, GB, 1000, 0, UINT64_MAX);
    for (int regime = 0; regime < SIM_REGIMES; regime++) {
        struct sim_result result = run((enum sim_regime)regime);
        expect(result.wait_mean_ms, 50 * SECOND, "wait");
        expect(result.end_ms, 60 * SECOND, "end");
        expect(result.occupied_ms, 10 * SECOND, "occupied");
    }
    end();
}

Test(sim, programs_on_one_device_share_its_time)
{
    begin(8 * GB, 2000, 8 * GB, 1000);
    add_device(0, 0);
    add_program(0, 100, GB, 1000, 0, UINT64_MAX);
    add_program(0, 100, GB, 1000, 0, UINT64_MAX);
    /* Half of its time is not the device's: a device twice as fast takes three quarters. */
    add_program(100 * SECOND, 75, GB, 500, 0, UINT64_MAX);
    struct sim_result result = run(SIM_TERMINATION);

    /* 1333 thousandths: 56.3 s, rounded up to the millisecond. */
    expect(result.end_ms, 100 * SECOND + (75000000 + 1332) / 1333, "end");
    expect(result.occupied_ms, result.end_ms, "occupied");
    end();
}

/* ---- growth ---- */

/* a: 8 GB, fast; b: 16 GB, half as fast. It starts with 5 GB, and wants 10 when half is done. */
static void growing(void)
{
    begin(8 * GB, 1000, 16 * GB, 500);
    add_device(0, 0);
    add_device(1, 0);
    add_program(0, 100, 10 * GB, 1000, 1, UINT64_MAX);
}

Test(sim, what_grows_past_its_device_is_moved_to_one_that_fits)
{
    growing();
    struct sim_result result = run(SIM_RECONFIGURATION);

    /* 50 s on a, 0.5 s and 10 GB to move, 50 s of work at half the speed. */
    expect(result.moves, 1, "moves");
    expect(result.stopped_ms, 10500, "stopped");
    expect(result.end_ms, 50000 + 10500 + 100000, "end");
    /* b is held while it moves. */
    expect(result.occupied_ms, 60500 + 110500, "occupied");
    expect(result.wait_mean_ms, 0, "wait");
    end();
}

Test(sim, without_moves_it_spills_where_it_is)
{
    growing();
    struct sim_result result = run(SIM_OVERCOMMIT);

    /* 2 of 10 GB do not fit: 4 s of link for each 4 s. */
    expect(result.moves, 0, "moves");
    expect(result.spills, 1, "spills");
    expect(result.end_ms, 50000 + 100000, "end");
    end();
}

Test(sim, who_cannot_grow_takes_all_of_it_from_the_start)
{
    growing();
    struct sim_result result = run(SIM_TERMINATION);

    expect(result.end_ms, 200000, "end, on the slow device that holds it");
    expect(result.occupied_ms, 200000, "occupied");
    end();
}

/* ---- devices are reclaimed ---- */

static uint64_t time_of_reclaim(uint32_t device, double mean_ms)
{
    return (uint64_t)(sim_exponential(sim_random(options.seed, device, 0)) * mean_ms) + 1;
}

/*
 * a: 8 GB, twice as fast; b: 12 or 8 GB. The first program goes to a and may go to b, where two of
 * 3 GB stay. a is reclaimed once, at the time that is returned; b when all is over.
 */
static uint64_t reclaimed(uint64_t memory_b, uint64_t seconds_there)
{
    const double mean = HOUR;
    uint64_t when;

    begin(8 * GB, 2000, memory_b, 1000);
    options.levels[0].reclaim = 1000000;
    options.away_ms = 100000 * HOUR;
    options.checkpoint_ms = 600 * SECOND;
    for (options.seed = 1;; options.seed++) {
        when = time_of_reclaim(0, mean);
        if (when > 1000 * SECOND && when < 2000 * SECOND && time_of_reclaim(1, mean) > 4 * HOUR) {
            break;
        }
    }
    add_device(0, 0);
    add_device(1, 0);
    add_program(0, 4000, 6 * GB, 600, 0, UINT64_MAX);
    add_program(SECOND, seconds_there, 3 * GB, 200, 0, 2);
    add_program(2 * SECOND, seconds_there, 3 * GB, 200, 0, 2);
    return when;
}

/* On a, 600 thousandths of it with the device: 2000 / (0.4 * 2000 + 0.6 * 1000), rounded down. */
#define RATE_A 1428ull

Test(sim, under_termination_it_begins_again_at_its_checkpoint_when_there_is_room)
{
    uint64_t when = reclaimed(8 * GB, 3000);
    uint64_t did = when * RATE_A, lost = did % 600000000, left = 4000000000 - (did - lost);
    struct sim_result result = run(SIM_TERMINATION);

    expect(result.terminations, 1, "terminations");
    expect(result.reclaims, 1, "reclaims of a device in use");
    expect(result.lost_ms, lost / 1000 * 600 / 1000, "lost");
    /* Both on b have to end: at 3001 s and 3002 s. Then 0.5 s and 6 GB. */
    expect(result.wait_p99_ms, 3002 * SECOND - when, "wait");
    expect(result.stopped_ms, 6500, "stopped");
    expect(result.end_ms, 3002 * SECOND + 6500 + (left + 999) / 1000, "end");
    expect(result.finished, 3, "finished");
    end();
}

Test(sim, under_overcommit_it_begins_again_on_what_is_left)
{
    uint64_t when = reclaimed(8 * GB, 13000);
    uint64_t did = when * RATE_A, lost = did % 600000000, left = 4000000000 - (did - lost);
    struct sim_result result = run(SIM_OVERCOMMIT);

    /* 2 of 6 GB fit: 8 s of link for 4 s of work, a third of the speed. The others end later. */
    expect(result.terminations, 1, "terminations");
    expect(result.lost_ms, lost / 1000 * 600 / 1000, "lost");
    expect(result.wait_p99_ms, 0, "wait");
    expect(result.stopped_ms, 2500, "stopped");
    expect(result.end_ms, 13002 * SECOND, "end");
    uint64_t first = when + 2500 + (left + 332) / 333;
    expect(result.took_mean_ms, (first + 2 * 13000 * SECOND) / 3, "mean time");
    end();
}

Test(sim, under_reconfiguration_it_leaves_in_time_and_loses_nothing)
{
    uint64_t when = reclaimed(12 * GB, 3000);
    uint64_t notice = when - 120 * SECOND, left = 4000000000 - notice * RATE_A;
    struct sim_result result = run(SIM_RECONFIGURATION);

    expect(result.terminations, 0, "terminations");
    expect(result.lost_ms, 0, "lost");
    expect(result.reclaims, 1, "reclaims");
    expect(result.moves, 1, "moves");
    expect(result.stopped_ms, 6500, "stopped");
    expect(result.wait_p99_ms, 0, "wait");
    uint64_t first = notice + 6500 + (left + 999) / 1000;
    expect(result.took_mean_ms, (first + 2 * 3000 * SECOND) / 3, "mean time");
    end();
}

Test(sim, with_too_short_a_notice_the_move_is_cut_off)
{
    uint64_t when = reclaimed(12 * GB, 3000);
    uint64_t did = (when - 6000) * RATE_A, lost;

    options.notice_ms = 6000;
    lost = did % 600000000;
    struct sim_result result = run(SIM_RECONFIGURATION);

    expect(result.moves, 0, "moves");
    expect(result.terminations, 1, "terminations");
    expect(result.lost_ms, lost / 1000 * 600 / 1000, "lost");
    expect(result.stopped_ms, 6000 + 6500, "stopped, by the move and by starting again");
    end();
}

Test(sim, a_failure_gives_no_notice)
{
    uint64_t when = reclaimed(12 * GB, 3000);
    uint64_t mean = HOUR, failure;

    options.levels[0].reclaim = 0;
    options.fail = 1000000;
    for (options.seed = 1;; options.seed++) {
        uint64_t other = (uint64_t)(sim_exponential(sim_random(options.seed, 1, 1)) * (double)mean);
        when = (uint64_t)(sim_exponential(sim_random(options.seed, 0, 1)) * (double)mean);
        if (when > 1000 * SECOND && when < 2000 * SECOND && other > 4 * HOUR) {
            break;
        }
    }
    failure = when + 1;
    struct sim_result result = run(SIM_RECONFIGURATION);

    expect(result.failures, 1, "failures");
    expect(result.terminations, 1, "terminations");
    expect(result.lost_ms, failure * RATE_A % 600000000 / 1000 * 600 / 1000, "lost");
    end();
}

Test(sim, without_checkpoints_everything_is_lost)
{
    uint64_t when = reclaimed(12 * GB, 3000);

    options.checkpoint_ms = 0;
    struct sim_result result = run(SIM_TERMINATION);

    expect(result.lost_ms, when * RATE_A / 1000 * 600 / 1000, "lost");
    expect(result.stopped_ms, 0, "nothing to bring back");
    expect(result.end_ms, when + 4000 * SECOND, "end");
    end();
}

Test(sim, what_fits_no_device_is_left_out)
{
    begin(8 * GB, 1000, 8 * GB, 1000);
    add_device(0, 0);
    add_program(0, 10, 9 * GB, 1000, 0, UINT64_MAX);
    add_program(0, 10, 8 * GB, 1000, 0, UINT64_MAX);
    struct sim_result result = run(SIM_TERMINATION);

    expect(result.refused, 1, "refused");
    expect(result.finished, 1, "finished");
    expect(result.end_ms, 10 * SECOND, "end");
    end();
}
