#include "tests/support/cases.h"
#include <jansson.h>

#include "tests/agent/harness.h"

/* `reseat simulate`: what it reads, refuses, prints and draws. TEST_TRACE is a tiny trace. */

TestSuite(simulate, .init = harness_init, .fini = harness_finish, .timeout = 120);

#define NODES "sn,cpu_milli,memory_mib,gpu,model\n"
#define TASKS                                                                                      \
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"            \
    "deletion_time,scheduled_time\n"
#define NODE "n,1,1,1,T4\n"
#define TASK "t,1,1,1,1000,,LS,Running,0,100,0\n"

static const char *path_of(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", harness_folder(), name);
    return path;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    cr_assert(file);
    cr_assert_geq(fputs(text, file), 0);
    cr_assert_eq(fclose(file), 0);
}

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    cr_assert(json_is_integer(value), "%s", key);
    return json_integer_value(value);
}

/*
 * A node with two T4 and, of the tasks, one without GPU and one that never ran left out. Alone on 2
 * devices from 0 s: task-0 for 100 s, task-1 for 100 s, which ran from 10 to 110 s; task-2, of 50
 * s, waits from 10 to 100 s; task-5 takes both for 50 s at 200 s.
 */
Test(simulate, a_trace_comes_to_what_its_times_say)
{
    struct result *result = RESEAT("simulate", getenv("TEST_TRACE"), "--reclaim", "0", "--grow",
                                   "0", "--check", "--json");
    cr_assert_eq(result->status, 0, "%s", result->err);
    json_t *object = harness_parse(result->out), *trace = json_object_get(object, "trace");
    json_t *run = json_array_get(json_object_get(object, "runs"), 0);

    cr_expect_eq(number(object, "schema"), 1);
    cr_expect_eq(number(trace, "devices"), 2);
    cr_expect_eq(number(trace, "nodes"), 1);
    cr_expect_eq(number(trace, "programs"), 4);
    cr_expect_eq(number(trace, "tasks"), 6);
    cr_expect_eq(number(trace, "without_gpu"), 1);
    cr_expect_eq(number(trace, "pending"), 1);
    cr_expect_eq(number(trace, "failed"), 1);
    cr_expect_eq(number(trace, "several_gpus"), 1);
    cr_expect_eq(number(trace, "bound"), 1);
    cr_expect_eq(number(trace, "best_effort"), 1);
    cr_expect_str_eq(json_string_value(json_object_get(run, "regime")), "termination");
    cr_expect_eq(number(run, "finished"), 4);
    cr_expect_eq(number(run, "wait_mean_ms"), 90000 / 4);
    cr_expect_eq(number(run, "wait_p99_ms"), 90000);
    cr_expect_eq(number(run, "end_ms"), 250000);
    cr_expect_eq(number(run, "occupied_device_ms"), 350000);
    cr_expect_eq(number(run, "busy_device_ms"), 350000);
    cr_expect_float_eq(json_real_value(json_object_get(run, "cost")), 350.0 / 3600, 1e-9);
}

static const json_t *run_of(const json_t *object, const char *regime)
{
    const json_t *runs = json_object_get(object, "runs"), *run;
    size_t i;

    json_array_foreach(runs, i, run)
    {
        if (!strcmp(json_string_value(json_object_get(run, "regime")), regime))
            return run;
    }
    cr_assert_fail("%s", regime);
    return NULL;
}

/* Within a node nothing survives its reclaim; what is saved at the notice does, and between hosts,
 * where nearly all of them are idle, all of it. */
Test(simulate, a_reclaim_is_survived_by_what_was_saved_or_went_to_another_node)
{
    static const char trace[] = "synthetic:devices=40,programs=60,hours=6,mix=T4,load=20";
    struct result *result =
        RESEAT("simulate", trace, "--reclaim", "0.5", "--notice", "600", "--check", "--json");
    cr_assert_eq(result->status, 0, "%s", result->err);
    json_t *object = harness_parse(result->out);
    cr_expect_gt(number(run_of(object, "termination"), "terminations"), 0);
    cr_expect_gt(number(run_of(object, "reconfiguration"), "terminations"), 0);
    cr_expect_eq(number(run_of(object, "reconfiguration"), "between_nodes"), 0);
    cr_expect_gt(number(run_of(object, "saving"), "saves"), 0);
    result = RESEAT("simulate", trace, "--reclaim", "0.5", "--notice", "600", "--between-hosts",
                    "--save", "--check", "--json");
    cr_assert_eq(result->status, 0, "%s", result->err);
    object = harness_parse(result->out);
    cr_expect_gt(number(run_of(object, "reconfiguration"), "between_nodes"), 0);
    cr_expect_eq(number(run_of(object, "reconfiguration"), "terminations"), 0);
    cr_expect_gt(number(run_of(object, "overcommit"), "saves"), 0);
}

Test(simulate, whole_nodes_are_kept)
{
    struct result *result = RESEAT("simulate", "synthetic:devices=40,programs=20,mix=T4,node=8",
                                   "--devices", "17", "--reclaim", "0", "--json");
    cr_assert_eq(result->status, 0, "%s", result->err);
    json_t *object = harness_parse(result->out), *trace = json_object_get(object, "trace");
    cr_expect_eq(number(trace, "nodes"), 2);
    cr_expect_eq(number(trace, "devices"), 16);
}

Test(simulate, tasks_that_never_ran_count_when_asked_for)
{
    struct result *result = RESEAT("simulate", getenv("TEST_TRACE"), "--pending", "--json");
    json_t *object = harness_parse(result->out);

    cr_assert_eq(result->status, 0, "%s", result->err);
    cr_expect_eq(number(json_object_get(object, "trace"), "programs"), 5);
}

#define SMALL "synthetic:devices=12,programs=150,hours=6,late=10"

Test(simulate, the_same_seed_gives_the_same_bytes)
{
    static char first[65536];

    struct result *result = RESEAT("simulate", SMALL, "--seed", "7", "--json");
    cr_assert_eq(result->status, 0, "%s", result->err);
    memcpy(first, result->out, sizeof(first));
    result = RESEAT("simulate", SMALL, "--seed", "7", "--json");
    cr_expect_str_eq(result->out, first);
    result = RESEAT("simulate", SMALL, "--seed", "8", "--json");
    cr_expect_str_neq(result->out, first);
}

/* Over every level the books agree; nothing is terminated where nothing is taken. */
Test(simulate, without_reclaims_nothing_is_terminated_and_books_agree)
{
    struct result *result = RESEAT("simulate", SMALL, "--reclaim", "0,0.5", "--check", "--json");
    cr_assert_eq(result->status, 0, "%s%s", result->out, result->err);
    json_t *object = harness_parse(result->out), *runs = json_object_get(object, "runs");

    cr_assert_eq(json_array_size(runs), 10);
    for (size_t i = 0; i < 10; i++) {
        const json_t *run = json_array_get(runs, i);
        cr_expect_eq(number(run, "finished"), 150);
        cr_expect_gt(number(run, "checked_events"), 450);
        cr_expect_eq(number(run, "asked_device_ms"),
                     number(json_array_get(runs, 0), "asked_device_ms"));
        if (i < 5) {
            cr_expect_eq(number(run, "terminations"), 0);
            cr_expect_eq(number(run, "lost_device_ms"), 0);
        } else {
            cr_expect_gt(number(run, "reclaims"), 0);
        }
    }
    cr_expect_gt(number(json_array_get(runs, 5), "terminations"), 0);
}

Test(simulate, the_table_says_what_it_assumes)
{
    struct result *result =
        harness_says(RESEAT("simulate", SMALL, "--reclaim", "0.25"), 0, "reconfiguration");
    cr_expect(strstr(result->out, "0.25/h"));
    cr_expect(strstr(result->out, "RECLAIM: of each node, with its"));
    for (const char *at = result->out; *at; at += strcspn(at, "\n") + 1)
        cr_expect_leq(strcspn(at, "\n"), 80, "%s", at);
}

Test(simulate, the_table_of_models_is_shown_and_taken)
{
    write_file(path_of("models.csv"), "model,memory_gib,speed,price\nT4,0.5,0.25,3\n");
    struct result *result = RESEAT("simulate", "--models", path_of("models.csv"), "--json");
    json_t *object = harness_parse(result->out);
    json_t *model = json_array_get(json_object_get(object, "models"), 0);

    cr_assert_eq(result->status, 0);
    cr_expect_eq(number(model, "memory_bytes"), 512 << 20);
    cr_expect_float_eq(json_real_value(json_object_get(model, "speed")), 0.25, 1e-9);
    harness_says(RESEAT("simulate", "--models"), 0, "V100M32");
    /* At a price of 3, and as slow as what the tasks' times are taken of. */
    result = RESEAT("simulate", getenv("TEST_TRACE"), "--models", path_of("models.csv"),
                    "--reclaim", "0", "--grow", "0", "--json");
    object = harness_parse(result->out);
    json_t *run = json_array_get(json_object_get(object, "runs"), 0);
    cr_expect_eq(number(run, "end_ms"), 250000);
    cr_expect_float_eq(json_real_value(json_object_get(run, "cost")), 3 * 350.0 / 3600, 1e-9);
}

/* ---- what is refused ---- */

static void expect_refused(const struct result *result, const char *reason)
{
    cr_expect_eq(result->status, 2, "%d: %s", result->status, reason);
    cr_expect(strstr(result->err, reason), "\"%s\" is not about \"%s\"", result->err, reason);
    cr_expect_str_empty(result->out);
    cr_expect_eq(strcspn(result->err, "\n"), strlen(result->err) - 1, "one line: %s", result->err);
}

static void try_files(const char *nodes, const char *tasks, const char *reason)
{
    write_file(path_of("nodes.csv"), nodes);
    write_file(path_of("tasks.csv"), tasks);
    expect_refused(
        RESEAT("simulate", "--nodes", path_of("nodes.csv"), "--tasks", path_of("tasks.csv")),
        reason);
}

Test(simulate, malformed_nodes_are_refused_with_their_line)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"", "nodes.csv:1: the header is not \"sn,"},
        {"sn,cpu_milli\n", "nodes.csv:1: the header is not"},
        {NODES, "tasks.csv has no device"},
        {NODES "n,1,1,1\n", "nodes.csv:2: 4 fields instead of 5"},
        {NODES "n,1,1,1,T4,\n", "nodes.csv:2: 6 fields instead of 5"},
        {NODES NODE ",1,1,1,T4\n", "nodes.csv:3: sn is empty"},
        {NODES NODE "n,x,1,1,T4\n", "nodes.csv:3: cpu_milli is \"x\""},
        {NODES NODE "n,1,-1,1,T4\n", "nodes.csv:3: memory_mib is \"-1\""},
        {NODES NODE "n,1,1,65,T4\n", "nodes.csv:3: gpu is \"65\", not a whole number from 0 to 64"},
        {NODES NODE "n,1,1,1,T5\n", "nodes.csv:3: model \"T5\" is not in the table"},
        {NODES NODE "n,1,1,1,\n", "nodes.csv:3: model \"\" is not in the table"},
        {NODES NODE "\n", "nodes.csv:3: 1 field instead of 5"},
        {NODES NODE "\"n\",1,1,1,T4\n", "nodes.csv:3: there is a byte 0x22"},
        {NODES NODE "n\t,1,1,1,T4\n", "nodes.csv:3: there is a byte 0x09"},
        {NODES "n,1,1,1,T4,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1\n", "nodes.csv:2: 20 fields"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        try_files(cases[i].text, TASKS TASK, cases[i].reason);
}

Test(simulate, malformed_tasks_are_refused_with_their_line)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"", "tasks.csv:1: the header is not \"name,"},
        {TASKS, "tasks.csv has no task that wants a device"},
        {TASKS "t,1,1,0,0,,LS,Running,0,1,0\n", "tasks.csv has no task that wants a device"},
        {TASKS TASK ",1,1,1,1,,LS,Running,0,1,0\n", "tasks.csv:3: name is empty"},
        {TASKS TASK "t,1,1,1,1,,LS,Running,0,1\n", "tasks.csv:3: 10 fields instead of 11"},
        {TASKS "t,1.5,1,1,1,,LS,Running,0,1,0\n", "tasks.csv:2: cpu_milli is \"1.5\""},
        {TASKS "t,1,1000000001,1,1,,LS,Running,0,1,0\n", "tasks.csv:2: memory_mib is"},
        {TASKS "t,1,1,65,1,,LS,Running,0,1,0\n", "tasks.csv:2: num_gpu is \"65\""},
        {TASKS "t,1,1,1,0,,LS,Running,0,1,0\n", "tasks.csv:2: gpu_milli is \"0\""},
        {TASKS "t,1,1,1,1001,,LS,Running,0,1,0\n", "tasks.csv:2: gpu_milli is \"1001\""},
        {TASKS "t,1,1,1,1,T4|X,LS,Running,0,1,0\n", "tasks.csv:2: model \"X\" is not in"},
        {TASKS "t,1,1,1,1,T4|,LS,Running,0,1,0\n", "tasks.csv:2: gpu_spec \"T4|\" ends with |"},
        {TASKS "t,1,1,1,1,,ls,Running,0,1,0\n", "tasks.csv:2: qos is \"ls\""},
        {TASKS "t,1,1,1,1,,LS,Gone,0,1,0\n", "tasks.csv:2: pod_phase is \"Gone\""},
        {TASKS "t,1,1,1,1,,LS,Running,,1,0\n", "tasks.csv:2: creation_time is \"\""},
        {TASKS "t,1,1,1,1,,LS,Running,0,,0\n", "tasks.csv:2: deletion_time is \"\""},
        {TASKS "t,1,1,1,1,,LS,Running,0,1,\n", "tasks.csv:2: scheduled_time is \"\""},
        {TASKS "t,1,1,1,1,,LS,Running,5,9,4\n", "2: scheduled_time is before creation_time"},
        {TASKS "t,1,1,1,1,,LS,Running,5,8,9\n", "2: deletion_time is before scheduled_time"},
        {TASKS "t,1,1,1,1,,LS,Pending,5,4,\n", "2: deletion_time is before creation_time"},
        {TASKS "t,1,1,1,1,,LS,Running,0,315360001,0\n", "tasks.csv:2: deletion_time is"},
        {TASKS "t,1,1,1,1,,LS,Running,0,99999999999999999999999,0\n", "tasks.csv:2: deletion_time"},
        {TASKS "t,1,1,1,1,,LS,Running,0,0x10,0\n", "tasks.csv:2: deletion_time is \"0x10\""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        try_files(NODES NODE, cases[i].text, cases[i].reason);
}

Test(simulate, malformed_models_are_refused_with_their_line)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"model,memory\n", "models.csv:1: the header is not"},
        {"T4,16,1,1\n", "models.csv:2: there is no model"},
        {"a b,16,1,1\n", "models.csv:2: model is \"a b\""},
        {"T4,16,1,1\nT4,16,1,1\n", "models.csv:3: model T4 is there twice"},
        {"T4,0,1,1\n", "models.csv:2: memory_gib is \"0\""},
        {"T4,5000,1,1\n", "models.csv:2: memory_gib is \"5000\""},
        {"T4,16,0.01,1\n", "models.csv:2: speed is \"0.01\""},
        {"T4,16,1.,1\n", "models.csv:2: speed is \"1.\""},
        {"T4,16,1,1.2345\n", "models.csv:2: price is \"1.2345\""},
        {"T4,16,1,nan\n", "models.csv:2: price is \"nan\""},
    };
    char text[512];

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        bool own_header = i == 0;
        snprintf(text, sizeof(text), "%s%s", own_header ? "" : "model,memory_gib,speed,price\n",
                 i == 1 ? "" : cases[i].text);
        write_file(path_of("models.csv"), text);
        expect_refused(RESEAT("simulate", getenv("TEST_TRACE"), "--models", path_of("models.csv")),
                       cases[i].reason);
    }
}

Test(simulate, a_line_without_end_and_a_folder_are_refused)
{
    static char text[9000];

    memset(text, 'x', sizeof(text) - 1);
    try_files(text, TASKS TASK, "nodes.csv:1: the line is longer than 4095 bytes");
    expect_refused(RESEAT("simulate", "--nodes", "/", "--tasks", "/"), "/:1: it cannot be read");
    expect_refused(RESEAT("simulate", "/nowhere"), "/nowhere/openb_node_list_gpu_node.csv cannot");
}

Test(simulate, a_time_is_seconds_or_has_its_unit)
{
    static char plain[sizeof(((struct result *)0)->out)];

    snprintf(plain, sizeof(plain), "%s", RESEAT("simulate", SMALL, "--touch", "90")->out);
    cr_expect_gt(strlen(plain), 500);
    cr_expect_str_eq(RESEAT("simulate", SMALL, "--touch", "90s")->out, plain);
    cr_expect_str_eq(RESEAT("simulate", SMALL, "--touch", "1.5m")->out, plain);
    cr_expect_str_eq(RESEAT("simulate", SMALL, "--touch", "0.025h")->out, plain);
    cr_expect_str_neq(RESEAT("simulate", SMALL, "--touch", "91")->out, plain);
    expect_refused(RESEAT("simulate", SMALL, "--touch", "90x"),
                   "--touch must be 0.001 to 86400 seconds, not \"90x\"");
    expect_refused(RESEAT("simulate", SMALL, "--touch", "m"), "not \"m\"");
    expect_refused(RESEAT("simulate", SMALL, "--grow", "10m"), "not \"10m\"");
}

/* Of each network five configurations by four schedulers, and three caps by four. */
Test(simulate, a_published_evaluation_is_computed_again)
{
    harness_says(RESEAT("simulate", "--published", "hype"), 0, "it is 30.7 % less energy a");
    struct result *result =
        RESEAT("simulate", "--published", "hype", "--assume", "host=50.5", "--json");
    cr_assert_eq(result->status, 0, "%s", result->err);
    json_t *object = harness_parse(result->out);
    cr_expect_eq(json_array_size(json_object_get(object, "runs")), 6 * (5 * 4 + 3 * 4));
    cr_expect_float_eq(json_real_value(json_object_get(json_object_get(object, "assumed"), "host")),
                       50.5, 1e-9);
    expect_refused(RESEAT("simulate", "--published", "hope"), "--published must be hype");
    expect_refused(RESEAT("simulate", SMALL, "--published", "hype"), "--published has no trace");
    expect_refused(RESEAT("simulate", "--published", "hype", "--assume", "host"),
                   "--assume is NAME=VALUE of an assumption, not \"host\"");
    expect_refused(RESEAT("simulate", "--published", "hype", "--assume", "sizes=0"),
                   "--assume sizes is a number from 1 to 7, not \"0\"");
}

Test(simulate, bad_arguments_are_refused)
{
    static const struct {
        const char *option, *value, *reason;
    } cases[] = {
        {"--reclaim", "0,", "--reclaim is up to 16 numbers"},
        {"--reclaim", "61", "--reclaim is up to 16 numbers"},
        {"--reclaim", "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0", "--reclaim is up to 16 numbers"},
        {"--price", "1,1", "--price has 2 numbers, --reclaim 4"},
        {"--price", "-1", "--price is up to 16 numbers"},
        {"--seed", "-1", "--seed must be 0 to 9223372036854775807"},
        {"--link", "0", "--link must be 0.001 to 10000 GB/s, not \"0\""},
        {"--network", "0", "--network must be 0.001 to 10000 GB/s, not \"0\""},
        {"--storage", "-1", "--storage must be 0 to 10000 GB/s"},
        {"--latency", "3601", "--latency must be 0 to 3600 seconds"},
        {"--notice", "x", "--notice must be 0 to 86400 seconds"},
        {"--grow", "101", "--grow must be 0 to 100 percent"},
        {"--devices", "13", "--devices is a number from"},
        {"--set", "budget", "--set is NAME=VALUE"},
        {"--set", "nothing=1", "the policy has no setting \"nothing\""},
        {"--set", "budget=x", "--set budget: "},
        {"--nodes", "x", "a synthetic trace has no --nodes"},
        {"--nonsense", "1", "option --nonsense is unknown"},
    };
    static const char *const traces[] = {
        "synthetic:devices=0", "synthetic:programs=x",  "synthetic:devices",
        "synthetic:colour=1",  "synthetic:mix=T9*2",    "synthetic:mix=T4*0",
        "synthetic:mix=",      "synthetic:hours=87601", "synthetic:devices=100001",
        "synthetic:node=65",   "synthetic:host=4097",
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        expect_refused(RESEAT("simulate", SMALL, cases[i].option, cases[i].value), cases[i].reason);
    for (size_t i = 0; i < sizeof(traces) / sizeof(*traces); i++)
        expect_refused(RESEAT("simulate", traces[i]), "reseat simulate: ");
    expect_refused(RESEAT("simulate"), "give a trace");
    struct result *result = RESEAT("simulate", "synthetic:devices=0", "--json");
    json_t *object = harness_parse(result->out);
    cr_expect_eq(number(object, "status"), 2);
    cr_expect(json_object_get(object, "error"));
}
