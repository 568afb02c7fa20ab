#include "tests/support/cases.h"
#include <jansson.h>
#include <signal.h>
#include <unistd.h>

#include "tests/agent/harness.h"
#include "tests/agent/puppet.h"

/* What operators say about memory and devices: limit, drain, rebalance, explain, report, move. */

#define SOON 8000
#define MANY 10

static void begin(void)
{
    puppets_begin("gpu:one,gpu:larger");
    RESEAT("devices");
}

TestSuite(operator, .init = begin, .fini = puppets_finish, .timeout = 120);

static int64_t number(json_t *object, const char *key)
{
    cr_assert(json_is_integer(json_object_get(object, key)), "%s is no number", key);
    return harness_number(object, key);
}

static struct puppet *start(const char *name, const char *device, uint64_t bytes)
{
    struct puppet_kind kind = {.device = device};
    struct puppet *puppet = puppet_start(name, &kind);

    puppet->vdevs[0].least = 10 * MIB;
    cr_assert(puppet_allocate(puppet, bytes, SOON));
    return puppet;
}

Test(operator, drain_moves_every_program_off_and_keeps_new_ones_away_until_undone)
{
    struct puppet *puppets[MANY];
    uint64_t granted = 0;

    for (unsigned i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof(name), "p%u", i);
        puppets[i] = start(name, "gpu:one", (i + 1) * 10 * MIB);
    }
    json_t *object = harness_json(PUPPETS_RESEAT("drain", "gpu0", "--json"), "drain");
    cr_assert_eq(number(object, "moved"), MANY);
    cr_assert_eq(json_array_size(json_object_get(object, "steps")), MANY);
    cr_assert_eq(json_array_size(json_object_get(object, "left")), 0);
    cr_assert(json_is_true(json_object_get(object, "drained")));
    for (unsigned i = 0; i < MANY; i++) {
        cr_assert_str_eq(puppets[i]->vdevs[0].device, "gpu:larger");
        cr_assert_geq(puppets[i]->vdevs[0].granted, (i + 1) * 10 * MIB);
        granted += puppets[i]->vdevs[0].granted;
    }
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), 0);
    cr_assert_eq(devices_say("gpu1", "granted_bytes"), granted);

    /* New ones: to where programs are taken, and nowhere else. */
    harness_says(PUPPETS_RESEAT("run", "--device", "gpu0", "true"), 4, "--off");
    harness_says(PUPPETS_RESEAT("move", "p3", "gpu0"), 4, "drained");
    harness_says(PUPPETS_RESEAT("drain", "gpu0", "--off"), 0, "takes programs again");
    cr_assert_eq(PUPPETS_RESEAT("move", "p3", "gpu0")->status, 0);
    cr_assert_str_eq(puppets[3]->vdevs[0].device, "gpu:one");
}

Test(operator, a_dry_drain_says_where_programs_would_go_and_moves_none)
{
    struct puppet *small = start("small", "gpu:one", 10 * MIB);
    struct puppet *pinned = start("pinned", "gpu:one", 10 * MIB);

    json_t *object = harness_json(PUPPETS_RESEAT("drain", "gpu0", "--dry-run", "--json"), "drain");
    cr_assert_eq(number(object, "moved"), 2);
    json_t *step = json_array_get(json_object_get(object, "steps"), 0);
    cr_assert_str_eq(harness_text(step, "from"), "gpu0");
    cr_assert_str_eq(harness_text(step, "to"), "gpu1");
    cr_assert_eq(json_array_size(json_object_get(object, "left")), 0);
    pinned->pinned = "a native kernel";
    puppet_say(pinned);
    harness_says(PUPPETS_RESEAT("drain", "gpu0", "--dry-run"), 4, "stays: a native kernel");
    cr_assert_eq(small->moves + small->suspends + pinned->moves, 0);
    cr_assert_eq(PUPPETS_RESEAT("run", "--device", "gpu0", "true")->status, 0, "it is drained");

    /* And then the drain waits for the one that stays no longer than it was told. */
    harness_ends(PUPPETS_RESEAT("drain", "gpu0", "--dry-run", "--off"), 2);
}

Test(operator, a_drain_waits_no_longer_than_it_is_told)
{
    struct puppet *slow = start("slow", "gpu:one", 10 * MIB);

    slow->move = NULL;
    harness_says(PUPPETS_RESEAT("drain", "gpu0", "--timeout", "1s"), 5, "it stays drained");
    cr_assert_eq(PUPPETS_RESEAT("run", "--device", "gpu0", "true")->status, 4);
}

Test(operator, a_cordoned_device_keeps_its_programs_and_gets_no_others_until_undone)
{
    struct puppet *puppet = start("stays", "gpu:one", 10 * MIB);
    harness_ends(PUPPETS_RESEAT("drain", "gpu0", "--keep"), 0);
    harness_says(PUPPETS_RESEAT("run", "--device", "gpu0", "true"), 4, "is cordoned");
    puppets_for(1500);
    cr_assert_eq(puppet->moves + puppet->suspends, 0);
    cr_assert(strstr(PUPPETS_RESEAT("devices")->out, "cordoned"));
    cr_assert_eq(RESEAT("agent", "stop")->status, 0);
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    puppet_hang_up(puppet);
    puppet_connect(puppet);
    harness_ends(PUPPETS_RESEAT("run", "--device", "gpu0", "true"), 4);
    cr_assert_eq(PUPPETS_RESEAT("drain", "gpu0", "--off")->status, 0);
    cr_assert_eq(PUPPETS_RESEAT("run", "--device", "gpu0", "true")->status, 0);
}

Test(operator, drain_says_who_cannot_leave_and_who_failed_to)
{
    struct puppet *pinned = start("pinned", "gpu:one", 20 * MIB);

    pinned->pinned = "it uses shared virtual memory";
    puppet_say(pinned);
    json_t *object = harness_json(PUPPETS_RESEAT("drain", "gpu0", "--json"), "drain");
    json_t *left = json_object_get(object, "left");
    cr_assert_eq(number(object, "status"), 4);
    cr_assert_eq(json_array_size(left), 1);
    cr_assert_str_eq(harness_text(json_array_get(left, 0), "reason"),
                     "it uses shared virtual memory");
    puppet_kill(pinned);

    cr_assert_eq(PUPPETS_RESEAT("drain", "gpu0", "--off")->status, 0);
    struct puppet *stopped = start("stopped", "gpu:one", 20 * MIB);
    stopped->stopped = true;
    struct result *held = harness_says(PUPPETS_RESEAT("drain", "gpu0"), 1, "stopped");
    cr_assert(strstr(held->err, "does not answer"), "%s", held->err);
    /* Also where nothing is asked of it any more. */
    harness_says(PUPPETS_RESEAT("drain", "gpu0"), 4, "does not answer");
    puppet_kill(stopped);

    struct puppet *failing = start("failing", "gpu:larger", 20 * MIB);
    failing->move = RESULT_ROLLED_BACK;
    struct result *result = harness_ends(PUPPETS_RESEAT("drain", "gpu1"), 1);
    cr_assert(strstr(result->out, "rolled-back"), "%s", result->out);
    cr_assert(strstr(result->err, "failing"), "%s", result->err);
    cr_assert_eq(devices_say("gpu1", "granted_bytes"), failing->vdevs[0].granted);
    cr_assert_eq(devices_say("gpu1", "drained"), 1);
}

/** What `reseat explain --json` says of the first device that does not run "a"; NULL: there is
 * none. */
static json_t *explained(void)
{
    json_t *object = harness_json(PUPPETS_RESEAT("explain", "a", "--json"), "explain");
    json_t *exclusion =
        json_array_get(json_object_get(json_object_get(object, "app"), "refused_by"), 0);
    return exclusion;
}

static void state_is(const char *state)
{
    json_t *object = harness_json(PUPPETS_RESEAT("ps", "--json"), "ps");
    json_t *app = json_array_get(json_object_get(object, "apps"), 0);
    cr_assert_str_eq(harness_text(app, "state"), state);
}

static int64_t downtime(void)
{
    json_t *object = harness_json(PUPPETS_RESEAT("ps", "--json"), "ps");
    int64_t ns = number(json_array_get(json_object_get(object, "apps"), 0), "last_downtime_ns");
    return ns;
}

Test(operator, ps_says_how_long_the_last_move_stopped_a_program)
{
    struct puppet *puppet = start("p", "gpu:one", 20 * MIB);

    puppet->moved = 1;
    puppet->downtime_ns = 3000000;
    puppet_say(puppet);
    cr_assert_eq(downtime(), 3000000);
    /* It counts the next one before it knows how long that took. */
    puppet->moved = 2;
    puppet_say(puppet);
    puppet->downtime_ns = 5000000;
    puppet_say(puppet);
    cr_assert_eq(downtime(), 5000000);
}

Test(operator, ps_says_whose_device_is_lost_until_it_is_elsewhere)
{
    struct puppet *puppet = start("p", "gpu:one", 20 * MIB);

    state_is("running");
    puppet->vdevs[0].lost = true;
    puppet_say(puppet);
    state_is("lost");
    /* Suspended it is on no device that could be. */
    puppet->vdevs[0].suspended = true;
    puppet_say(puppet);
    state_is("suspended");
    puppet->vdevs[0].suspended = false;
    puppet->vdevs[0].lost = false;
    puppet_say(puppet);
    state_is("running");
}

Test(operator, a_device_on_which_a_program_does_not_build_is_remembered)
{
    struct puppet *a = start("a", "gpu:one", 100 * MIB);

    /* Whoever asked for the move. */
    a->move = RESULT_ROLLED_BACK;
    cr_assert_eq(PUPPETS_RESEAT("move", "a", "gpu1")->status, 1);
    cr_assert_null(explained());
    a->lasting = true;
    cr_assert_eq(PUPPETS_RESEAT("move", "a", "gpu1")->status, 1);
    json_t *exclusion = explained();
    cr_assert_str_eq(harness_text(exclusion, "device"), "gpu1");
    cr_assert(json_is_false(json_object_get(exclusion, "for_now")));
    cr_assert(strstr(harness_text(exclusion, "reason"), "local memory"));
    /* The policy does not try it: it has nowhere to go. */
    json_t *object = harness_json(PUPPETS_RESEAT("drain", "gpu0", "--json"), "drain");
    json_t *one = json_array_get(json_object_get(object, "steps"), 0);
    cr_assert_str_eq(harness_text(one, "to"), "");
    cr_assert_eq(a->moves, 0);
    cr_assert_eq(PUPPETS_RESEAT("drain", "gpu0", "--off")->status, 0);
    /* An operator may try. */
    a->move = RESULT_DONE;
    cr_assert_eq(PUPPETS_RESEAT("move", "a", "gpu1")->status, 0);
}

static bool was_asked_twice(void *data)
{
    return ((struct puppet *)data)->prewarms == 2;
}

static bool was_told_to_drop(void *data)
{
    return ((struct puppet *)data)->drops == 1;
}

Test(operator, what_a_program_is_ready_for_keeps_up_and_goes_when_the_device_is_wanted)
{
    struct puppet *a = start("a", "gpu:one", 100 * MIB);

    cr_assert_eq(PUPPETS_RESEAT("prewarm", "a", "gpu1")->status, 0);
    cr_assert_eq(a->prewarms, 1);
    cr_assert_eq(a->moves, 0);
    cr_assert_eq(devices_say("gpu1", "granted_bytes"), 0, "it is not there");
    a->behind = 3;
    puppet_say(a);
    cr_assert(puppets_run(was_asked_twice, a, SOON), "what it built since is not made there");
    /* Another asks for memory there, and the driver has none. */
    struct puppet *b = start("b", "gpu:larger", 10 * MIB);
    puppet_need(b, 0, 10 * MIB, true);
    cr_assert(puppets_run(was_told_to_drop, a, SOON), "it keeps what another needs");
    cr_assert_str_eq(a->ready, "");
}

Test(operator, a_program_that_fails_to_be_ready_is_not_said_to_have_moved)
{
    struct puppet *a = start("a", "gpu:one", 100 * MIB);

    a->move = RESULT_ROLLED_BACK;
    a->lasting = true;
    harness_says(PUPPETS_RESEAT("prewarm", "a", "gpu1"), 1, "not made ready");
    json_t *exclusion = explained();
    cr_assert_str_eq(harness_text(exclusion, "device"), "gpu1");
    cr_assert_eq(devices_say("gpu1", "granted_bytes"), 0);
    cr_assert_geq(devices_say("gpu0", "granted_bytes"), 100 * MIB);
}

Test(operator, every_step_has_its_reason_and_a_program_that_ends_is_no_failure)
{
    struct puppet *a = start("a", "gpu:one", 100 * MIB);
    struct puppet *b = start("b", "gpu:one", 50 * MIB);

    b->move = RESULT_ENDED;
    struct result *result = harness_says(PUPPETS_RESEAT("move", "b", "gpu1"), 3, "ended");
    cr_assert(!strstr(result->err, "cancel"), "%s", result->err);
    puppet_kill(b);
    json_t *object = harness_json(PUPPETS_RESEAT("drain", "gpu0", "--json"), "drain");
    json_t *step = json_array_get(json_object_get(object, "steps"), 0);
    cr_assert_str_eq(harness_text(step, "result"), "done");
    cr_assert(strstr(harness_text(step, "reason"), "gpu0 is drained"), "%s",
              harness_text(step, "reason"));
    cr_assert_eq(a->moves, 1);
}

Test(operator, a_move_that_does_not_fit_is_refused_with_numbers_or_spills)
{
    struct puppet *a = start("alpha", "gpu:one", 300 * MIB);
    struct puppet_kind stiff = {.device = "gpu:one", .ways = "w"};
    struct puppet *b = puppet_start("beta", &stiff);

    cr_assert(puppet_allocate(b, 300 * MIB, SOON));
    cr_assert_eq(PUPPETS_RESEAT("limit", "gpu1", "--memory", "100MiB")->status, 0);
    struct result *result = harness_says(PUPPETS_RESEAT("move", "beta", "gpu1"), 4, "300 MiB");
    cr_assert(strstr(result->err, "100 MiB free of 100 MiB"), "%s", result->err);
    cr_assert_eq(strchr(result->err, '\n'), result->err + strlen(result->err) - 1);
    harness_json(PUPPETS_RESEAT("move", "beta", "gpu1", "--json"), "move");
    cr_assert_eq(b->moves, 0);
    cr_assert_eq(devices_say("gpu1", "granted_bytes"), 0);

    /* One that may spill gets what there is. */
    harness_ends(PUPPETS_RESEAT("move", "alpha", "gpu1"), 0);
    cr_assert_eq(a->vdevs[0].granted, 100 * MIB);
    cr_assert_eq(a->vdevs[0].spilled, 200 * MIB);
    cr_assert(devices_come_to("gpu1", "granted_bytes", 100 * MIB, SOON));
    cr_assert(state_comes_to("alpha", "spilled", SOON));
    /* But not less than one command of it needs. */
    cr_assert_eq(PUPPETS_RESEAT("move", "alpha", "gpu0")->status, 0);
    cr_assert_eq(PUPPETS_RESEAT("limit", "gpu1", "--memory", "5MiB")->status, 0);
    harness_says(PUPPETS_RESEAT("move", "alpha", "gpu1"), 4, "10.0 MiB at once");
}

Test(operator, dry_runs_change_nothing)
{
    struct puppet *a = start("alpha", "gpu:one", 100 * MIB);
    uint64_t granted = a->vdevs[0].granted;

    cr_assert_eq(PUPPETS_RESEAT("move", "alpha", "gpu1", "--dry-run")->status, 0);
    json_t *object = harness_json(PUPPETS_RESEAT("rebalance", "--dry-run", "--json"), "rebalance");
    cr_assert(json_is_true(json_object_get(object, "dry_run")));
    puppets_for(200);
    cr_assert_eq(a->moves, 0);
    cr_assert_eq(a->vdevs[0].granted, granted);
    cr_assert_eq(devices_say("gpu0", "granted_bytes"), granted);
    cr_assert_eq(devices_say("gpu1", "granted_bytes"), 0);
    cr_assert_eq(devices_say("gpu1", "granted_peak_bytes"), 0);
}

Test(operator, limits_are_of_devices_and_of_programs)
{
    struct puppet *a = start("alpha", "gpu:one", 100 * MIB);
    json_t *object =
        harness_json(PUPPETS_RESEAT("limit", "gpu1", "--memory", "1GiB", "--json"), "limit");

    cr_assert_eq(number(object, "memory_bytes"), 1024 * MIB);
    cr_assert_eq(number(object, "capacity_bytes"), 1024 * MIB);
    cr_assert(json_is_true(json_object_get(object, "limited")));
    object = harness_json(PUPPETS_RESEAT("limit", "alpha", "--memory", "50MiB", "--json"), "limit");
    cr_assert_str_eq(harness_text(json_object_get(object, "app"), "name"), "alpha");
    /* It has more than that: it gives the rest back. */
    cr_assert(devices_come_to("gpu0", "granted_bytes", 50 * MIB, SOON));
    cr_assert_eq(a->vdevs[0].granted, 50 * MIB);
    cr_assert_eq(ps_says("alpha", "quota_bytes"), 50 * MIB);
    struct result *result = PUPPETS_RESEAT("devices");
    cr_assert(strstr(result->out, "1.0GiB"), "%s", result->out);
    /* More than the device has promises no more. */
    object = harness_json(PUPPETS_RESEAT("limit", "gpu1", "--memory", "9TiB", "--json"), "limit");
    cr_assert_eq(number(object, "capacity_bytes"), 2048 * MIB);
}

Test(operator, a_limit_above_what_a_device_has_is_not_said_to_hold)
{
    harness_says(PUPPETS_RESEAT("limit", "gpu0", "--memory", "100TiB"), 0,
                 "so a limit of 100 TiB changes nothing");
    struct result *result = PUPPETS_RESEAT("limit", "gpu0", "--memory", "64MiB");
    cr_assert(strstr(result->out, "programs may have 64.0 MiB"), "%s", result->out);
}

Test(operator, explain_and_report_say_what_the_ledger_knows)
{
    struct puppet *a = start("alpha", "gpu:one", 300 * MIB);
    struct puppet *b = start("beta", "gpu:one", 100 * MIB);

    puppet_kill(b);
    puppets_for(1300);
    json_t *object = harness_json(PUPPETS_RESEAT("report", "--json"), "report"), *one;
    one = json_array_get(json_object_get(object, "devices"), 0);
    cr_assert_str_eq(harness_text(one, "name"), "gpu0");
    cr_assert_eq(number(one, "held_bytes"), 300 * MIB);
    cr_assert_eq(number(one, "held_peak_bytes"), 400 * MIB);
    cr_assert_gt(json_array_size(json_object_get(one, "held")), 0);
    one = json_array_get(json_object_get(object, "apps"), 0);
    cr_assert_eq(number(one, "peak_bytes"), 300 * MIB);
    cr_assert_eq(number(one, "granted_bytes"), (int64_t)a->vdevs[0].granted);
    one = json_array_get(json_object_get(object, "ended"), 0);
    cr_assert_str_eq(harness_text(one, "name"), "beta");
    cr_assert_eq(number(one, "peak_bytes"), 100 * MIB);
    struct result *result = harness_ends(PUPPETS_RESEAT("report", "alpha"), 0);
    cr_assert(strstr(result->out, " 300MiB ") && strstr(result->out, " 15% "), "%s", result->out);
    cr_assert(!strstr(result->out, "gpu1"), "%s", result->out);

    result = PUPPETS_RESEAT("report", "--census");
    cr_assert(strstr(result->out, "\nalpha 300MiB  1.8%  1.8%"), "%s", result->out);
    cr_assert(strstr(result->out, "\nbeta  100MiB 0.61% 0.61%"), "%s", result->out);
    const char *models = harness_path("models.csv");
    harness_write(models, "model,memory_gib,speed,price\nsmall,0.5,1,1\n");
    object =
        harness_json(PUPPETS_RESEAT("report", "--census", "--json", "--models", models), "report");
    one = json_array_get(json_object_get(object, "census"), 1);
    cr_assert_str_eq(harness_text(one, "name"), "alpha");
    cr_assert_eq(number(one, "peak_bytes"), 300 * MIB);
    one = json_object_get(one, "percent");
    cr_assert_float_eq(json_real_value(json_object_get(one, "small")), 58.6, 0.1);

    object = harness_json(PUPPETS_RESEAT("explain", "alpha", "--json"), "explain");
    one = json_object_get(object, "app");
    cr_assert_str_eq(harness_text(one, "name"), "alpha");
    cr_assert_eq(json_array_size(json_object_get(one, "devices")), 1);
    result = PUPPETS_RESEAT("explain", "alpha");
    cr_assert(strstr(result->out, "gpu0"), "%s", result->out);
}

Test(operator, explain_names_kernels_that_a_move_waits_for)
{
    struct puppet *a = start("alpha", "gpu:one", 100 * MIB);
    struct result *result = PUPPETS_RESEAT("explain", "alpha");

    cr_assert(!strstr(result->out, "pieces"), "%s", result->out);
    a->whole = "sieve";
    puppet_say(a);
    result = PUPPETS_RESEAT("explain", "alpha");
    cr_assert(
        strstr(result->out, "  launches of kernel sieve are not given in pieces: it uses a pipe\n"),
        "%s", result->out);
    json_t *object = harness_json(PUPPETS_RESEAT("explain", "alpha", "--json"), "explain");
    json_t *whole = json_object_get(json_object_get(object, "app"), "whole");
    cr_assert_eq(json_array_size(whole), 16);
    cr_assert_str_eq(harness_text(json_array_get(whole, 15), "kernel"), "sieve");
    a->whole = NULL;
    puppet_say(a);
    result = PUPPETS_RESEAT("explain", "alpha");
    cr_assert(!strstr(result->out, "pieces"), "%s", result->out);
}

Test(operator, report_counts_what_was_wanted_and_names_programs_whole)
{
    puppets_limit("gpu0", "512MiB");
    struct puppet *a = start("a-name-of-some-length", "gpu:one", 100 * MIB);

    a->vdevs[0].wanted = 1000 * MIB;
    puppet_say(a);
    a->vdevs[0].wanted = 200 * MIB;
    puppet_say(a);
    cr_assert_eq(ps_says("a-name-of-some-length", "wanted_peak_bytes"), 1000 * MIB);
    struct result *result = PUPPETS_RESEAT("report");
    cr_assert(strstr(result->out, "\na-name-of-some-length a"), "its id: %s", result->out);
    cr_assert(strstr(result->out, " 1000MiB ") && strstr(result->out, " 49% "), "%s", result->out);
    /* A terminal is drawn to with the letters that it has. */
    setenv("LC_ALL", "C.UTF-8", 1);
    for (unsigned i = 0; i < 50 && !strstr(PUPPETS_RESEAT("report")->out, "\xe2\x96"); i++)
        usleep(100000);
    cr_expect(strstr(PUPPETS_RESEAT("report")->out, "\xe2\x96"), "it draws nothing");
    setenv("LC_ALL", "C", 1);
    result = PUPPETS_RESEAT("report");
    for (const char *at = result->out; *at; at++)
        cr_assert_gt(*at, 0, "not ASCII: %s", at);
    puppet_kill(a);
    do {
        result = PUPPETS_RESEAT("report");
    } while (!strstr(result->out, "ended"));
    result = PUPPETS_RESEAT("report", "-o", "name,kind,needed,share", "--no-header");
    cr_assert(strstr(result->out, "a-name-of-some-length ended  1000MiB   49%\n"), "%s",
              result->out);
}

Test(operator, one_virtual_device_is_explained_as_all_are)
{
    struct puppet_kind kind = {.device = "gpu:one", .second = "gpu:one"};

    (void)puppet_start("pair", &kind);
    json_t *object = harness_json(PUPPETS_RESEAT("explain", "pair", "--json"), "explain");
    json_t *all = json_array_get(json_object_get(json_object_get(object, "app"), "devices"), 0);
    for (int i = 0; i < 2; i++) {
        json_t *other =
            harness_json(PUPPETS_RESEAT("explain", i ? "pair:1" : "pair:0", "--json"), "explain");
        json_t *devices = json_object_get(json_object_get(other, "app"), "devices");
        cr_assert_eq(json_array_size(devices), 1);
        json_t *one = json_array_get(devices, 0);
        cr_assert_eq(number(one, "vdev"), i);
        cr_assert(json_equal(json_object_get(one, "lines"), json_object_get(all, "lines")));
    }
    struct result *result = PUPPETS_RESEAT("explain", "pair:1");
    cr_assert(strstr(result->out, "virtual device 1, gpu0"), "%s", result->out);
}

Test(operator, columns_stay_and_help_is_there_for_each_command)
{
    (void)start("alpha", "gpu:one", 10 * MIB);
    cr_assert(strstr(PUPPETS_RESEAT("ps")->out, " LIMIT "));
    cr_assert(strstr(PUPPETS_RESEAT("devices")->out, " LIMIT "));
    struct result *result = harness_ends(RESEAT("help", "resume"), 0);
    cr_assert_str_eq(result->out, RESEAT("resume", "--help")->out);
    cr_assert_eq(RESEAT("help", "nothing")->status, 2);
    cr_assert(strstr(RESEAT("help")->out, "resume APP"));
}

Test(operator, the_first_command_of_all_sees_the_devices)
{
    static const char *const commands[][4] = {{"drain", "gpu1", NULL, NULL},
                                              {"limit", "gpu1", "--memory", "1GiB"},
                                              {"report", "gpu1", NULL, NULL},
                                              {"drain", "gpu1", "--off", NULL}};

    for (size_t i = 0; i < 4; i++) {
        /* As after a boot. */
        harness_finish();
        harness_init();
        setenv("POCL_FAKE_DEVICES", "gpu:one,gpu:larger", 1);
        RESEAT("agent", "start");
        harness_ends(RESEAT(commands[i][0], commands[i][1], commands[i][2], commands[i][3]), 0);
    }
    cr_assert_eq(RESEAT("drain", "gpu9")->status, 3);
}

Test(operator, run_says_how_a_program_is_treated)
{
    pid_t pid = harness_spawn(harness_reseat(), "run", "--name", "treated", "--quota", "64MiB",
                              "--priority", "-7", "--preemptible", "--on-full", "wait,spill",
                              "--memory", "1GiB", "--", "sleep", "30", NULL);
    cr_assert(harness_state("treated", "starting", SOON));
    json_t *object = harness_json(RESEAT("ps", "--json"), "ps");
    json_t *app = json_array_get(json_object_get(object, "apps"), 0);
    json_t *ways = json_object_get(app, "on_full");

    cr_assert_eq(number(app, "quota_bytes"), 64 * MIB);
    cr_assert_str_eq(harness_text(app, "priority"), "-7");
    cr_assert(json_is_true(json_object_get(app, "preemptible")));
    cr_assert_eq(json_array_size(ways), 2);
    cr_assert_str_eq(json_string_value(json_array_get(ways, 0)), "spill");
    cr_assert_str_eq(json_string_value(json_array_get(ways, 1)), "wait");
    kill(pid, SIGKILL);
    harness_wait(pid);
    setenv("RESEAT_LIBRARY", getenv("TEST_LIBRARY"), 1);
    struct result *result =
        harness_run(harness_reseat(), "run", "--memory", "1GiB", "--", "env", NULL);
    cr_assert(strstr(result->out, "RESEAT_MEMORY=1GiB\n"), "%s", result->out);
    result = harness_run(harness_reseat(), "run", "--", "env", NULL);
    cr_assert(!strstr(result->out, "RESEAT_MEMORY"));
}

Test(operator, every_error_has_its_exit_status_and_its_json)
{
    static const struct {
        int status;
        const char *command, *first, *second, *third;
    } wrong[] = {
        {2, "limit", NULL, NULL, NULL},
        {2, "limit", "gpu0", NULL, NULL},
        {2, "limit", "gpu0", "--memory", "lots"},
        {2, "limit", "gpu0", "--memory", "12"},
        {2, "limit", "gpu0", "--memory", "0B"},
        {2, "limit", "gpu0", "--memory", NULL},
        {3, "limit", "nothing", "--memory", "1GiB"},
        {2, "limit", "alpha:0", "--memory", "1GiB"},
        {2, "drain", NULL, NULL, NULL},
        {2, "drain", "gpu0", "gpu1", NULL},
        {2, "drain", "gpu0", "--undo", NULL},
        {3, "drain", "gpu7", NULL, NULL},
        {2, "rebalance", "gpu0", NULL, NULL},
        {2, "rebalance", "--undo", NULL, NULL},
        {2, "explain", NULL, NULL, NULL},
        {2, "explain", "a", "b", NULL},
        {3, "explain", "nobody", NULL, NULL},
        {3, "explain", "alpha:5", NULL, NULL},
        {2, "report", "a", "b", NULL},
        {2, "report", "--wrong", NULL, NULL},
        {2, "report", "--models", "/nowhere", NULL},
        {3, "report", "nobody", NULL, NULL},
    };
    static const char *const options[][2] = {
        {"--quota", "1"},       {"--memory", "x"},           {"--priority", "1001"},
        {"--priority", "high"}, {"--quota", "0B"},           {"--memory", "0"},
        {"--on-full", ""},      {"--on-full", "wait,"},      {"--on-full", "wait,refuse"},
        {"--on-full", "panic"}, {"--on-full", "wait,,spill"}};

    (void)start("alpha", "gpu:one", 10 * MIB);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        const char *arguments[4] = {wrong[i].first, wrong[i].second, wrong[i].third, NULL};
        size_t count = 0;
        while (arguments[count])
            count++;
        struct result *result =
            PUPPETS_RESEAT(wrong[i].command, arguments[0], arguments[1], arguments[2]);
        cr_expect_eq(result->status, wrong[i].status, "%zu: %d %s", i, result->status, result->err);
        cr_expect_eq(strchr(result->err, '\n'), result->err + strlen(result->err) - 1, "%zu", i);
        if (strcmp(wrong[i].command, "limit") || count < 2 || wrong[i].third) {
            result = PUPPETS_RESEAT(wrong[i].command, "--json", arguments[0], arguments[1],
                                    arguments[2]);
            cr_expect_eq(result->status, wrong[i].status);
            harness_json(result, wrong[i].command);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        cr_expect_eq(RESEAT("run", options[i][0], options[i][1], "true")->status, 2, "%s %s",
                     options[i][0], options[i][1]);
    puppet_finish_all();
    RESEAT("agent", "stop");
    cr_assert_eq(RESEAT("explain", "a")->status, 3);
    cr_assert_eq(RESEAT("report")->status, 3);
    cr_assert_eq(RESEAT("rebalance")->status, 3);
}
