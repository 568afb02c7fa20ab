#include "tests/simulate/sim_worlds.h"

/* Nodes: what goes with them, what they hold, what they share, and how they are chosen. */

TestSuite(sim_nodes, .fini = leaks_check, .timeout = 60);

/* ---- what is on a node goes with it ---- */

/*
 * Node 0 has a, node 1 has b, both of 8 GB. The first program is bound to a, so is the second,
 * which goes first and comes at 100 s; the third is bound to b. Nobody gets half of a device here.
 */
static uint64_t displaced(uint64_t host)
{
    begin(8 * GB, 1000, 8 * GB, 1000);
    uint64_t when = reclaim_first();
    options.settings.ways = POLICY_SUSPEND | POLICY_WAIT;
    options.settings.age_s = 0;
    options.checkpoint_ms = 0;
    add_node(0, host);
    add_device(0);
    add_node(0, 100 * GB);
    add_device(1);
    add_program(0, 10000, 6 * GB, 1000, 0, 1);
    add_program(100 * SECOND, 500, 8 * GB, 1000, 0, 1);
    trace.tasks[1].priority = 1;
    add_program(0, 3000, 8 * GB, 1000, 0, 2);
    return when;
}

Test(sim_nodes,
     a_reclaim_kills_what_runs_on_the_node_and_what_its_host_memory_holds_and_nobody_else)
{
    uint64_t when = displaced(10 * GB);
    trace.tasks[1].work = 10000000000;
    struct sim_result result = run(SIM_RECONFIGURATION);

    /* The first was suspended at 100 s: 0.5 s and 6 GB. */
    expect(result.suspends, 1, "suspends");
    expect(result.terminations, 2, "terminations");
    expect(result.reclaims, 1, "reclaims");
    expect(result.lost_ms, 100 * SECOND + (when - 106500), "lost: what both did");
    expect(result.finished, 1, "finished: the third");
    expect(result.end_ms, 3000 * SECOND, "end of the third");
    expect(result.unfinished, 2, "no other node may have them");
    end();
}

Test(sim_nodes, what_host_memory_has_no_room_for_is_not_suspended)
{
    displaced(10 * GB);
    options.levels[0].reclaim = 0;
    trace.tasks[0].work = 1000000000;
    struct sim_result result = run(SIM_RECONFIGURATION);
    expect(result.suspends, 1, "suspends where there is room");
    expect(result.wait_p99_ms, 500 * SECOND, "the first waits for the second");
    expect(result.resumes, 1, "resumes");
    end();

    displaced(6 * GB - 1);
    options.levels[0].reclaim = 0;
    trace.tasks[0].work = 1000000000;
    result = run(SIM_RECONFIGURATION);
    expect(result.suspends, 0, "suspends where there is none");
    expect(result.wait_p99_ms, 900 * SECOND, "the second waits for the first");
    expect(result.end_ms, 3000 * SECOND, "end");
    end();
}

/* A program keeps its own host memory, and a node takes no more than it has. */
Test(sim_nodes, programs_go_where_their_host_memory_fits)
{
    begin(8 * GB, 1000, 8 * GB, 1000);
    add_node(0, 3 * GB);
    add_device(0);
    add_program(0, 100, GB, 100, 0, UINT64_MAX);
    add_program(0, 100, GB, 100, 0, UINT64_MAX);
    add_program(0, 100, GB, 100, 0, UINT64_MAX);
    trace.tasks[0].host = 2 * GB;
    trace.tasks[1].host = 2 * GB;
    trace.tasks[2].host = 4 * GB;
    struct sim_result result = run(SIM_TERMINATION);

    expect(result.refused, 1, "refused: no node has so much");
    expect(result.end_ms, 200 * SECOND, "end: one after the other");
    end();
}

/* ---- several devices ---- */

/*
 * Two nodes of two devices. One device of each is taken, until 100 s and until 300 s; one program
 * that wants two devices comes at 10 s; one that wants one at 20 s.
 */
Test(sim_nodes, one_of_several_devices_waits_for_a_node_that_has_them_all)
{
    begin(8 * GB, 1000, 8 * GB, 1000);
    for (int node = 0; node < 2; node++) {
        add_node(0, 100 * GB);
        add_device(0);
        add_device(0);
    }
    add_program(0, 100, 8 * GB, 1000, 0, UINT64_MAX);
    add_program(0, 10, 8 * GB, 1000, 0, UINT64_MAX);
    add_program(0, 300, 8 * GB, 1000, 0, UINT64_MAX);
    add_program(0, 10, 8 * GB, 1000, 0, UINT64_MAX);
    add_program(10 * SECOND, 50, GB, 1000, 0, UINT64_MAX);
    trace.tasks[4].more = 1;
    add_program(20 * SECOND, 100, GB, 1000, 0, UINT64_MAX);
    struct sim_result result = run(SIM_RECONFIGURATION);

    expect(result.finished, 6, "finished");
    expect(result.wait_p99_ms, 90 * SECOND, "it waits from 10 to 100 s");
    expect(result.wait_mean_ms, 90 * SECOND / 6, "and nobody else does");
    /* The devices of the first four, both of the fifth, and the last one's. */
    expect(result.occupied_ms, (100 + 300 + 10 + 10 + 2 * 50 + 100) * SECOND, "occupied");
    expect(result.busy_ms, result.occupied_ms, "busy");
    expect(result.moves + result.suspends, 0, "nobody is moved for it");
    end();
}

/* Two nodes of two devices, the first of which is reclaimed; one program of 8 GB on each of two. */
static uint64_t whole(void)
{
    begin(8 * GB, 1000, 8 * GB, 1000);
    uint64_t when = reclaim_first();
    options.checkpoint_ms = 0;
    for (int node = 0; node < 2; node++) {
        add_node(0, 100 * GB);
        add_device(0);
        add_device(0);
    }
    add_program(0, 4000, 8 * GB, 1000, 0, UINT64_MAX);
    trace.tasks[0].more = 1;
    return when;
}

Test(sim_nodes, one_of_several_devices_dies_whole_and_starts_again_whole)
{
    uint64_t when = whole();
    struct sim_result result = run(SIM_TERMINATION);

    expect(result.terminations, 1, "terminations");
    expect(result.lost_ms, 2 * when, "lost, of two devices");
    expect(result.end_ms, when + 4000 * SECOND, "end");
    end();
}

/* 16 GB, at a gigabyte a second to storage and back. */
Test(sim_nodes, one_of_several_devices_is_saved_whole)
{
    whole();
    options.storage = 1000000;
    struct sim_result result = run(SIM_SAVING);

    expect(result.saves, 1, "saved");
    expect(result.lost_ms, 0, "lost");
    expect(result.end_ms, 4000 * SECOND + 16000 + 500 + 16000, "end");
    end();
}

Test(sim_nodes, one_of_several_devices_moves_whole_between_hosts_or_stays_whole)
{
    whole();
    options.between_hosts = true;
    struct sim_result result = run(SIM_RECONFIGURATION);
    expect(result.moves, 1, "moves");
    expect(result.lost_ms, 0, "lost");
    expect(result.end_ms, 4000 * SECOND + 16500, "end");
    end();

    /* The notice is too short: all of it begins again there, on both devices. */
    uint64_t when = whole();
    options.between_hosts = true;
    options.notice_ms = 16000;
    result = run(SIM_RECONFIGURATION);
    expect(result.moves, 0, "moves that were cut off");
    expect(result.terminations, 1, "terminations");
    expect(result.lost_ms, 2 * (when - 16000), "lost");
    expect(result.end_ms, when + 4000 * SECOND, "end");
    end();

    /* One device of the other node is taken. */
    when = whole();
    options.between_hosts = true;
    add_program(0, 4000, 8 * GB, 1000, 0, UINT64_MAX);
    result = run(SIM_RECONFIGURATION);
    expect(result.moves, 0, "moves to half of a node");
    expect(result.end_ms, (4000 + 4000) * SECOND, "it waits for the other to end");
    expect(result.wait_p99_ms, 4000 * SECOND - when, "wait");
    end();
}

Test(sim_nodes, one_of_more_devices_than_any_node_has_is_left_out)
{
    whole();
    trace.tasks[0].more = 2;
    struct sim_result result = run(SIM_TERMINATION);
    expect(result.refused, 1, "refused");
    end();
}

/* ---- links ---- */

/* Two programs, of 4 and of 6 GB, on node 0, with a device each; node 1 has two devices, too. */
static uint64_t pair(uint64_t checkpoint_s)
{
    begin(8 * GB, 1000, 8 * GB, 1000);
    uint64_t when = reclaim_first();
    options.checkpoint_ms = checkpoint_s * SECOND;
    for (int node = 0; node < 2; node++) {
        add_node(0, 100 * GB);
        add_device(0);
        add_device(0);
    }
    add_program(0, 4000, 4 * GB, 1000, 0, UINT64_MAX);
    add_program(0, 4000, 6 * GB, 1000, 0, UINT64_MAX);
    return when;
}

Test(sim_nodes, moves_between_two_hosts_share_the_link)
{
    pair(0);
    options.between_hosts = true;
    options.latency_ms = 100;
    struct sim_result result = run(SIM_RECONFIGURATION);

    expect(result.moves, 2, "moves");
    expect(result.between, 2, "between hosts");
    expect(result.lost_ms, 0, "lost");
    /* One after the other, whichever goes first: 4 or 6 s, then 10 s; 0.6 s each. */
    bool small = result.stopped_ms == (4 + 10) * SECOND + 1200;
    cr_expect(small || result.stopped_ms == (6 + 10) * SECOND + 1200, "%" PRIu64,
              result.stopped_ms);
    expect(result.end_ms, 4000 * SECOND + 10600, "end of the second");
    end();
}

/* 1 GB/s to storage, and 7 s of notice: the smaller one is saved in 4 s, the other one is not. */
Test(sim_nodes, what_can_be_saved_within_the_notice_is)
{
    uint64_t when = pair(0);
    options.storage = 1000000;
    options.notice_ms = 7000;
    struct sim_result result = run(SIM_SAVING);

    expect(result.saves, 1, "saved");
    expect(result.terminations, 1, "terminations");
    expect(result.lost_ms, when, "lost: all that the larger one did");
    /* It stands for 4 s, and for 0.5 s and 4 s more at its new place, where it brings that. */
    expect(result.stopped_ms, 8500, "stopped");
    expect(result.took_mean_ms, (4000 * SECOND + 8500 + when + 4000 * SECOND) / 2, "mean time");
    end();
}

/*
 * Every 1000 s, 4 and 6 s each: at 1000 s one of them waits for the other. From then on they are
 * apart by 4 s or 6 s. Node 0 is never reclaimed.
 */
Test(sim_nodes, checkpoints_take_time_and_share_the_link_to_storage)
{
    pair(1000);
    options.levels[0].reclaim = 0;
    options.storage = 1000000;
    struct sim_result result = run(SIM_TERMINATION);

    expect(result.checkpoints, 6, "checkpoints");
    /* The first: 3 * 4 s; the second: 10 s, for it waits, and then it is 6 s behind: 2 * 6 s. */
    expect(result.stopped_ms, (3 * 4 + 10 + 2 * 6) * SECOND, "stopped");
    expect(result.end_ms, (4000 + 22) * SECOND, "end");
    expect(result.lost_ms, 0, "lost");
    end();
}

/* ---- what it costs ---- */

/* a is twice as fast as b and costs three times as much; two programs of half a device. */
Test(sim_nodes, the_cheapest_device_is_one_that_is_paid_for_and_then_the_one_with_the_best_price)
{
    for (int regime = SIM_TERMINATION; regime <= SIM_CHEAPEST; regime++) {
        begin(8 * GB, 2000, 8 * GB, 1000);
        trace.models.items[0].price = 3000;
        add_node(0, GB);
        add_device(0);
        add_device(0);
        add_node(0, GB);
        add_device(1);
        add_device(1);
        add_program(0, 3600, GB, 500, 0, UINT64_MAX);
        add_program(SECOND, 3600, GB, 500, 0, UINT64_MAX);
        struct sim_result result = run((enum sim_regime)regime);
        if (regime == SIM_CHEAPEST) {
            expect(result.occupied_ms, 3601 * SECOND, "one device of b");
            cr_expect_float_eq(result.cost, 3601.0 / 3600, 1e-6);
            cr_expect_float_eq(result.node_cost, 2 * 3601.0 / 3600, 1e-6);
        } else {
            /* Each on a device of a: 1333 thousandths. */
            uint64_t took = (3600000000 + 1332) / 1333;
            expect(result.occupied_ms, 2 * took, "two devices of a");
            cr_expect_float_eq(result.cost, 3 * 2.0 * (double)took / 3600000, 1e-6);
            /* From the first's start to the second's end. */
            cr_expect_float_eq(result.node_cost, 3 * 2.0 * (double)(took + SECOND) / 3600000, 1e-6);
        }
        end();
    }
}

/* The agent starts programs where the least of the memory is in use, and not where it is fastest.
 */
Test(sim_nodes, on_its_node_a_program_starts_where_the_agent_starts_it)
{
    begin(8 * GB, 1000, 8 * GB, 2000);
    add_node(0, GB);
    add_device(0);
    add_device(1);
    add_program(0, 100, GB, 1000, 0, UINT64_MAX);
    add_program(SECOND, 100, GB, 1000, 0, UINT64_MAX);
    struct sim_result result = run(SIM_TERMINATION);

    expect(result.took_mean_ms, (100 + 50) * SECOND / 2, "the first on a, the second on b");
    end();
}
