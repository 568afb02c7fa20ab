#include "tests/simulate/sim_worlds.h"

/* How long programs take, wait and stand under each regime. */

TestSuite(sim, .fini = leaks_check, .timeout = 60);

/* ---- nothing is reclaimed ---- */

/* Two programs of 6 GB on two devices of 8 GB, and after 10 s one of 8 GB. */
static void crowd(bool two_nodes)
{
    begin(8 * GB, 1000, 8 * GB, 1000);
    add_node(0, 100 * GB);
    add_device(0);
    if (two_nodes)
        add_node(0, 100 * GB);
    add_device(0);
    add_program(0, 100, 6 * GB, 500, 0, UINT64_MAX);
    add_program(0, 100, 6 * GB, 500, 0, UINT64_MAX);
    add_program(10 * SECOND, 50, 8 * GB, 500, 0, UINT64_MAX);
}

Test(sim, under_termination_the_third_program_waits_for_a_whole_device)
{
    crowd(false);
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

/* What waits for the one node may go to the other. */
Test(sim, who_waits_goes_to_the_node_that_is_free_first)
{
    crowd(true);
    trace.tasks[1].work /= 2;
    struct sim_result result = run(SIM_TERMINATION);

    expect(result.finished, 3, "finished");
    expect(result.end_ms, 100 * SECOND, "end");
    expect(result.wait_p99_ms, 40 * SECOND, "99th percentile");
    expect(result.occupied_ms, 200 * SECOND, "occupied");
    end();
}

/*
 * With 2 of its 8 GB on the device it pays 12 s of link for each 4 s of work: a quarter of the
 * speed from 10 s on. The look after the others ended, at 101 s, gives it the rest: it did
 * 22.75 s.
 */
Test(sim, under_overcommit_it_starts_at_once_and_spills)
{
    crowd(false);
    struct sim_result result = run(SIM_OVERCOMMIT);

    expect(result.finished, 3, "finished");
    expect(result.wait_p99_ms, 0, "waits");
    expect(result.end_ms, 128250, "end");
    expect(result.took_mean_ms, (100000 + 100000 + 118250) / 3, "mean time");
    expect(result.occupied_ms, 228250, "occupied");
    expect(result.terminations + result.lost_ms + result.moves + result.suspends, 0, "no more");
    end();
}

Test(sim, a_node_that_is_added_serves_who_waits)
{
    begin(8 * GB, 1000, 8 * GB, 1000);
    add_node(50 * SECOND, GB);
    add_device(0);
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
    add_node(0, GB);
    add_device(0);
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

/* a is fast, and taken for 20 s; who comes after a second goes to b, and up to a once it has stayed
 * for a minute. */
static struct sim_result goes_up(bool prewarm)
{
    begin(8 * GB, 2000, 8 * GB, 500);
    options.settings.automatic = true;
    options.settings.prewarm = prewarm;
    options.settings.stay_s = 60;
    add_node(0, 100 * GB);
    add_device(0);
    add_device(1);
    add_program(0, 40, 8 * GB, 1000, 0, 1);
    add_program(SECOND, 200, 6 * GB, 1000, 0, UINT64_MAX);
    struct sim_result result = run(SIM_RECONFIGURATION);
    end();
    return result;
}

Test(sim, a_move_to_a_device_that_was_made_ready_carries_bytes_alone)
{
    struct sim_result cold = goes_up(false), ready = goes_up(true);

    expect(cold.moves, 1, "moves");
    expect(cold.prewarms, 0, "made ready");
    expect(cold.stopped_ms, 6500, "stopped");
    expect(ready.moves, 1, "moves");
    expect(ready.prewarms, 1, "made ready");
    expect(ready.stopped_ms, 6000, "stopped");
}

/* The second goes before the first, which is resumed when that has ended. */
static struct sim_result comes_back(bool prewarm)
{
    begin(8 * GB, 1000, 8 * GB, 1000);
    options.settings.prewarm = prewarm;
    options.settings.ways = POLICY_WAIT | POLICY_SUSPEND;
    add_node(0, 100 * GB);
    add_device(0);
    add_program(0, 200, 6 * GB, 500, 0, 1);
    add_program(100 * SECOND, 20, 6 * GB, 500, 0, 1);
    trace.tasks[0].preemptible = true;
    struct sim_result result = run(SIM_RECONFIGURATION);
    end();
    return result;
}

Test(sim, a_resume_on_a_device_that_was_made_ready_carries_bytes_alone)
{
    struct sim_result cold = comes_back(false), ready = comes_back(true);

    expect(cold.suspends, 1, "suspends");
    expect(cold.prewarms, 0, "made ready");
    expect(ready.suspends, 1, "suspends");
    expect(ready.prewarms, 1, "made ready");
    expect(ready.stopped_ms, cold.stopped_ms - 500, "stopped");
    expect(ready.end_ms, cold.end_ms - 500, "end");
}

/* ---- growth ---- */

/* a: 8 GB, fast; b: 16 GB, half as fast. It starts with 5 GB, and wants 10 when half is done. */
static void growing(void)
{
    begin(8 * GB, 1000, 16 * GB, 500);
    add_node(0, 100 * GB);
    add_device(0);
    add_device(1);
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

/* ---- nodes are reclaimed ---- */

/*
 * Two nodes of one device: a: 8 GB, twice as fast; b: 12 or 8 GB. The first program goes to a and
 * may go to b, where two of 3 GB stay. a is reclaimed once, at the time that is returned.
 */
static uint64_t reclaimed(uint64_t memory_b, uint64_t seconds_there)
{
    begin(8 * GB, 2000, memory_b, 1000);
    uint64_t when = reclaim_first();
    options.checkpoint_ms = 600 * SECOND;
    add_node(0, 100 * GB);
    add_device(0);
    add_node(0, 100 * GB);
    add_device(1);
    add_program(0, 4000, 6 * GB, 600, 0, UINT64_MAX);
    add_program(SECOND, seconds_there, 3 * GB, 200, 0, 2);
    add_program(2 * SECOND, seconds_there, 3 * GB, 200, 0, 2);
    return when;
}

/* On a, 600 thousandths of it with the device: 2000 / (0.4 * 2000 + 0.6 * 1000), rounded down. */
#define RATE_A 1428ull

/* What it did on a by then since its last checkpoint: one at the end of the millisecond in which it
 * has done another 600 s. */
static uint64_t since_checkpoint(uint64_t ms)
{
    uint64_t checkpoints = ms * RATE_A / 600000000;

    return ms * RATE_A - (checkpoints * 600000000 + RATE_A - 1) / RATE_A * RATE_A;
}

Test(sim, under_termination_it_begins_again_at_its_checkpoint_when_there_is_room)
{
    uint64_t when = reclaimed(8 * GB, 3000);
    uint64_t lost = since_checkpoint(when), left = 4000000000 - (when * RATE_A - lost);
    struct sim_result result = run(SIM_TERMINATION);

    expect(result.terminations, 1, "terminations");
    expect(result.reclaims, 1, "reclaims of a node in use");
    expect(result.lost_ms, lost / 1000 * 600 / 1000, "lost");
    /* Both on b have to end: at 3001 s and 3002 s. Then 0.5 s: storage takes no time here. */
    expect(result.wait_p99_ms, 3002 * SECOND - when, "wait");
    expect(result.stopped_ms, 500, "stopped");
    expect(result.end_ms, 3002 * SECOND + 500 + (left + 999) / 1000, "end");
    expect(result.finished, 3, "finished");
    end();
}

Test(sim, under_overcommit_it_begins_again_on_what_is_left)
{
    uint64_t when = reclaimed(8 * GB, 13000);
    uint64_t lost = since_checkpoint(when), left = 4000000000 - (when * RATE_A - lost);
    struct sim_result result = run(SIM_OVERCOMMIT);

    /* 2 of 6 GB fit: 8 s of link for 4 s of work, a third of the speed. The others end later. */
    expect(result.terminations, 1, "terminations");
    expect(result.lost_ms, lost / 1000 * 600 / 1000, "lost");
    expect(result.wait_p99_ms, 0, "wait");
    expect(result.stopped_ms, 500, "stopped");
    expect(result.end_ms, 13002 * SECOND, "end");
    uint64_t first = when + 500 + (left + 332) / 333;
    expect(result.took_mean_ms, (first + 2 * 13000 * SECOND) / 3, "mean time");
    end();
}

Test(sim, between_hosts_it_leaves_in_time_and_loses_nothing)
{
    uint64_t when = reclaimed(12 * GB, 3000);
    uint64_t notice = when - 120 * SECOND, left = 4000000000 - notice * RATE_A;

    options.between_hosts = true;
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
    uint64_t lost = since_checkpoint(when - 6000);

    options.notice_ms = 6000;
    options.between_hosts = true;
    struct sim_result result = run(SIM_RECONFIGURATION);

    expect(result.moves, 0, "moves");
    expect(result.terminations, 1, "terminations");
    expect(result.lost_ms, lost / 1000 * 600 / 1000, "lost");
    expect(result.stopped_ms, 6000 + 500, "stopped, by the move and by starting again");
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
        if (when > 1000 * SECOND && when < 2000 * SECOND && other > 4 * HOUR)
            break;
    }
    failure = when + 1;
    struct sim_result result = run(SIM_RECONFIGURATION);

    expect(result.failures, 1, "failures");
    expect(result.terminations, 1, "terminations");
    expect(result.lost_ms, since_checkpoint(failure) / 1000 * 600 / 1000, "lost");
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
    add_node(0, GB);
    add_device(0);
    add_program(0, 10, 9 * GB, 1000, 0, UINT64_MAX);
    add_program(0, 10, 8 * GB, 1000, 0, UINT64_MAX);
    struct sim_result result = run(SIM_TERMINATION);

    expect(result.refused, 1, "refused");
    expect(result.finished, 1, "finished");
    expect(result.end_ms, 10 * SECOND, "end");
    end();
}
