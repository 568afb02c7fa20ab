#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cli/show/reports.h"
#include "agent/cli/verb.h"
#include "simulate/sim_csv.h"
#include "state/base/cleanup.h"

#define NODES_NAME   "openb_node_list_gpu_node.csv"
#define TASKS_NAME   "openb_pod_list_default.csv"
#define SYNTHETIC    "synthetic"
#define THREADS_MAX  16
#define GROW_DEFAULT 25
/* The simulation ends after this multiple of the trace; tasks that still run are given up. */
#define HORIZON_TIMES 4
/* Default of --price: for devices that can be reclaimed, in thousandths of the usual price. */
#define SPOT_PRICE 350

struct simulate {
    const struct output *output;
    struct sim_models models;
    struct sim_options options;
    struct sim_load load;
    const char *trace, *nodes, *tasks;
    const char *published;
    struct published_options assumed;
    bool show_models;
    size_t price_count;
    struct sim_result results[SIM_LEVELS_MAX * SIM_REGIMES];
};

/* ---- options ---- */

/** Parse a list such as "0,0.01,0.05": a value for each level. */
static int simulate_take_levels(struct call *call, const struct option_row *option,
                                const char *text)
{
    struct simulate *simulate = call->options;
    bool reclaim = strcmp(option->name, "reclaim") == 0;
    size_t count = 0;

    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char number[32];
        uint64_t value;
        snprintf(number, sizeof(number), "%.*s", (int)strcspn(at, ","), at);
        if (count == SIM_LEVELS_MAX || strcspn(at, ",") >= sizeof(number) ||
            !sim_parse(number, option->places, option->most, &value)) {
            return output_usage(&call->output, "--%s is up to %d %s, not \"%s\"", option->name,
                                SIM_LEVELS_MAX, option->unit, text);
        }
        struct sim_level *level = &simulate->options.levels[count++];
        *(reclaim ? &level->reclaim : &level->price) = (uint32_t)value;
    }
    *(reclaim ? &simulate->options.level_count : &simulate->price_count) = count;
    return 0;
}

static int simulate_take_setting(struct call *call, const struct option_row *option,
                                 const char *text)
{
    struct simulate *simulate = call->options;
    char name[64], reason[POLICY_REASON];
    const char *value = strchr(text, '=');

    if (!value || value == text || (size_t)(value - text) >= sizeof(name))
        return output_usage(&call->output, "--%s is NAME=VALUE, not \"%s\"", option->name, text);
    snprintf(name, sizeof(name), "%.*s", (int)(value - text), text);
    const struct setting *setting = settings_find(name);
    if (!setting)
        return output_usage(&call->output, "the policy has no setting \"%s\"", name);
    if (settings_set(&simulate->options.settings, setting, value + 1, reason, sizeof(reason)))
        return output_usage(&call->output, "--%s %s: %s", option->name, name, reason);
    return 0;
}

static int simulate_take_models(struct call *call, const struct option_row *option,
                                const char *path)
{
    struct simulate *simulate = call->options;
    char error[SIM_ERROR] = "";

    (void)option;
    simulate->show_models = true;
    if (path && sim_models_read(path, &simulate->models, error))
        return output_fail(&call->output, ERR_USAGE, "%s", error);
    return 0;
}

static int simulate_take_assumption(struct call *call, const struct option_row *option,
                                    const char *text)
{
    struct simulate *simulate = call->options;
    const char *value = strchr(text, '=');
    size_t length = value ? (size_t)(value - text) : 0;
    uint64_t number;

    for (size_t i = 0; i < PUBLISHED_ASSUMPTIONS && value; i++) {
        const struct published_assumed *assumed = &published_assumed[i];
        if (strlen(assumed->name) != length || strncmp(assumed->name, text, length))
            continue;
        if (!sim_parse(value + 1, 3, (uint64_t)(1000 * assumed->most), &number) ||
            (double)number < 1000 * assumed->least)
            return output_usage(&call->output, "--%s %s is a number from %g to %g, not \"%s\"",
                                option->name, assumed->name, assumed->least, assumed->most,
                                value + 1);
        simulate->assumed.value[i] = (double)number / 1000;
        return 0;
    }
    return output_usage(&call->output, "--%s is NAME=VALUE of an assumption, not \"%s\"",
                        option->name, text);
}

/* An option that sets a number of options.* or load.*, in units of 10^-digits. */
#define NUMBER(member, digits, from, to, what)                                                     \
    .kind = OPTION_NUMBER, OPTION_VALUE(struct simulate, member), .unit = what, .places = digits,  \
    .least = from, .most = to

static const struct option_row simulate_options[] = {
    {"nodes", "FILE", "The nodes of the trace, in the openb format.",
     OPTION_VALUE(struct simulate, nodes)},
    {"tasks", "FILE", "The tasks of the trace, in the openb format.",
     OPTION_VALUE(struct simulate, tasks)},
    {"reclaim", "LIST",
     "Levels: reclaims of each node in an hour, with commas. Default: 0,0.01,0.05,0.2. All regimes "
     "have the same reclaims.",
     .unit = "numbers from 0 to 60 with commas, reclaims of a node in an hour", .places = 6,
     .most = 60000000, .take = simulate_take_levels},
    {"price", "LIST",
     "Price of a device at each level, as a part of the price on demand. Default: 1 at level 0, "
     "otherwise 0.35. COST is what devices cost while a program is on them, NODES what whole nodes "
     "do.",
     .unit = "numbers from 0 to 1000 with commas, parts of the price on demand", .places = 3,
     .most = 1000000, .take = simulate_take_levels},
    {"notice", "TIME", "From the notice to the reclaim (120).",
     OPTION_SECONDS(struct simulate, options.notice_ms, 3, 0, 86400000)},
    {"away", "TIME", "From the reclaim until the node is back, on average (1800).",
     OPTION_SECONDS(struct simulate, options.away_ms, 3, 1000, 31536000000)},
    {"fail", "NUMBER", "Failures of each node in an hour, without a notice, for a day (0).",
     NUMBER(options.fail, 6, 0, 60000000, "failures of a node in an hour")},
    {"checkpoint", "TIME",
     "Work between two checkpoints (3600). 0: none, and programs start again from zero.",
     OPTION_SECONDS(struct simulate, options.checkpoint_ms, 3, 0, 31536000000)},
    {"storage", "GB/S",
     "Speed of each node's storage (1; 0: unlimited). A program stands while its checkpoint is "
     "written or it is loaded, one after the other.",
     NUMBER(options.storage, 6, 0, 10000000000, "GB/s")},
    {"save", NULL,
     "Under overcommit and reconfiguration, too, save what is left on a node at the notice.",
     OPTION_VALUE(struct simulate, options.save)},
    {"between-hosts", NULL,
     "Under reconfiguration, one policy governs several nodes, moves programs between them, and "
     "empties a node at its notice. Programs suspended in host memory move only to a free device.",
     OPTION_VALUE(struct simulate, options.between_hosts)},
    {"network", "GB/S", "Speed of a move between nodes (3), which occupies the network of both.",
     NUMBER(options.network, 6, 1000, 10000000000, "GB/s")},
    {"latency", "TIME", "Added to each such move (0.001).",
     OPTION_SECONDS(struct simulate, options.latency_ms, 3, 0, 3600000)},
    {"link", "GB/S", "Speed between a device and host memory (10).",
     NUMBER(options.link, 6, 1000, 10000000000, "GB/s")},
    {"stop", "TIME",
     "Pause of each move, suspend, resume and spill (0.5), besides the copy over the link.",
     OPTION_SECONDS(struct simulate, options.fixed_ms, 3, 0, 3600000)},
    {"touch", "TIME",
     "Time in which a program uses all of its memory once (10); spilled memory then crosses the "
     "link.",
     OPTION_SECONDS(struct simulate, options.touch_ms, 3, 1, 86400000)},
    {"grow", "PERCENT",
     "Share of programs (25) that start with a half to a quarter of their memory and grow in equal "
     "steps; not those with several devices.",
     NUMBER(load.grow_percent, 0, 0, 100, "percent")},
    {"devices", "N", "Use about so many devices of the trace, by an even selection of its nodes.",
     NUMBER(load.devices, 0, 1, SIM_DEVICES_MAX, "devices")},
    {"cell", "N", "With --between-hosts: devices that one policy governs, about (1000).",
     NUMBER(options.cell, 0, 1, SIM_DEVICES_MAX, "devices")},
    {"pending", NULL, "Also run the tasks that never ran, from creation to deletion.",
     OPTION_VALUE(struct simulate, load.pending)},
    {"models", "[FILE]",
     "Print the table of models, or read it from FILE: the line model,memory_gib,speed,price, then "
     "a line for each; speed and price relative to a reference device.",
     .take = simulate_take_models},
    {"published", "hype",
     "Instead of a trace, compute a published evaluation of training on GPUs and FPGAs again, with "
     "its scheduler and with reseat's, beside its figures.",
     OPTION_VALUE(struct simulate, published)},
    {"assume", "NAME=VALUE",
     "With --published: a value for what the paper does not say; the output lists the names.",
     .take = simulate_take_assumption},
    {"set", "NAME=VALUE", "A setting of the policy (reseat.conf(5)).",
     .take = simulate_take_setting},
    {"seed", "N", "Seed of reclaims, failures, growth and synthetic traces. Default: 1.",
     NUMBER(options.seed, 0, 0, INT64_MAX, NULL)},
    {"check", NULL,
     "Check the results by a second accounting of the simulation's log: no device or host memory "
     "above its size, no device above its time, each program on one node with all its devices, no "
     "work lost or done twice.",
     OPTION_VALUE(struct simulate, options.check)},
    {NULL}};

static void simulate_prepare(void *values)
{
    struct simulate *simulate = values;

    simulate->load = (struct sim_load){.grow_percent = GROW_DEFAULT};
    sim_models_init(&simulate->models);
    sim_options_init(&simulate->options);
    published_options_init(&simulate->assumed);
}

static int simulate_set_levels(struct simulate *simulate)
{
    struct sim_options *options = &simulate->options;

    if (simulate->price_count && simulate->price_count != options->level_count) {
        return output_usage(simulate->output, "--price has %zu numbers, --reclaim %zu",
                            simulate->price_count, options->level_count);
    }
    for (size_t i = 0; !simulate->price_count && i < options->level_count; i++)
        options->levels[i].price = options->levels[i].reclaim ? SPOT_PRICE : 1000;
    return 0;
}

/* ---- the trace ---- */

static int simulate_load(struct simulate *simulate, struct sim_trace *trace)
{
    char error[SIM_ERROR] = "there is not enough memory", nodes[PATH_MAX], tasks[PATH_MAX];
    const char *name = simulate->trace;
    bool synthetic = name && strncmp(name, SYNTHETIC, strlen(SYNTHETIC)) == 0 &&
                     (name[strlen(SYNTHETIC)] == ':' || !name[strlen(SYNTHETIC)]);

    if (!name && !(simulate->nodes && simulate->tasks)) {
        return output_usage(simulate->output,
                            "give a trace: a folder, --nodes and --tasks, or synthetic");
    }
    if (synthetic && (simulate->nodes || simulate->tasks))
        return output_usage(simulate->output, "a synthetic trace has no --nodes and no --tasks");
    snprintf(nodes, sizeof(nodes), "%s/" NODES_NAME, name ? name : "");
    snprintf(tasks, sizeof(tasks), "%s/" TASKS_NAME, name ? name : "");
    const char *text = synthetic ? name + strlen(SYNTHETIC) : "";
    int result = synthetic ? sim_trace_make(trace, text + (*text == ':'), &simulate->load, error)
                           : sim_trace_read(trace, simulate->nodes ? simulate->nodes : nodes,
                                            simulate->tasks ? simulate->tasks : tasks,
                                            &simulate->load, error);
    if (result) {
        return output_fail(simulate->output, result == -ENOMEM ? ERR_FAILED : ERR_USAGE, "%s",
                           error);
    }
    return 0;
}

/* ---- runs ---- */

struct work {
    const struct sim_trace *trace;
    const struct sim_options *options;
    struct sim_result *results;
    size_t count;
    atomic_size_t next;
    atomic_int error;
};

/* The runs share no data that changes, so they can be in any order. */
static void *simulate_run_some(void *argument)
{
    struct work *work = argument;

    for (;;) {
        size_t i = atomic_fetch_add(&work->next, 1);
        if (i >= work->count || atomic_load(&work->error))
            return NULL;
        int error = sim_run(work->trace, work->options, (enum sim_regime)(i % SIM_REGIMES),
                            i / SIM_REGIMES, &work->results[i]);
        if (error)
            atomic_store(&work->error, error);
    }
}

static int simulate_run_all(struct work *work)
{
    pthread_t threads[THREADS_MAX];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    size_t started = 0;

    while (started + 1 < (size_t)(processors < THREADS_MAX ? processors : THREADS_MAX) &&
           started + 1 < work->count) {
        if (pthread_create(&threads[started], NULL, simulate_run_some, work))
            break;
        started++;
    }
    simulate_run_some(work);
    while (started)
        pthread_join(threads[--started], NULL);
    return atomic_load(&work->error);
}

static int simulate_print_report(struct simulate *simulate, const struct sim_trace *trace)
{
    const struct sim_report report = {trace, &simulate->options, &simulate->load, simulate->results,
                                      simulate->options.level_count * SIM_REGIMES};

    for (size_t i = 0; i < report.count; i++) {
        if (simulate->results[i].problem[0]) {
            return output_fail(simulate->output, ERR_FAILED,
                               "the simulation is wrong, at reclaim level %zu under %s: %s",
                               i / SIM_REGIMES + 1, sim_regime_name(simulate->results[i].regime),
                               simulate->results[i].problem);
        }
    }
    json_auto_t *answer = sim_report_json(&report);
    if (!answer)
        return output_fail(simulate->output, ERR_FAILED, "there is not enough memory");
    return simulate->output->json ? output_result(simulate->output, answer, NULL, NULL)
                                  : sim_report_print(&report, answer);
}

static int simulate_trace(struct simulate *simulate)
{
    struct sim_trace trace;

    sim_trace_init(&trace, &simulate->models);
    int status = simulate_load(simulate, &trace);
    if (!status) {
        struct work work = {.trace = &trace,
                            .options = &simulate->options,
                            .results = simulate->results,
                            .count = simulate->options.level_count * SIM_REGIMES};
        uint64_t end = 0;
        for (uint32_t i = 0; i < trace.task_count; i++) {
            uint64_t alone = trace.tasks[i].arrive_ms + trace.tasks[i].work / 1000;
            end = alone > end ? alone : end;
        }
        simulate->options.horizon_ms = HORIZON_TIMES * end;
        status = simulate_run_all(&work) ? output_fail(simulate->output, ERR_FAILED,
                                                       "there is not enough memory for this trace")
                                         : simulate_print_report(simulate, &trace);
    }
    sim_trace_finish(&trace);
    return status;
}

static int simulate_published(struct simulate *simulate)
{
    if (simulate->trace || simulate->nodes || simulate->tasks)
        return output_usage(simulate->output, "--published has no trace");
    struct published_all *CLEANUP(cleanup_free) all = calloc(1, sizeof(*all));
    if (!all || published_run_all(&simulate->assumed, all))
        return output_fail(simulate->output, ERR_FAILED, "there is not enough memory");
    if (!simulate->output->json)
        return published_report_print(&simulate->assumed, all);
    json_auto_t *answer = published_report_json(&simulate->assumed, all);
    return output_result(simulate->output, answer, NULL, NULL);
}

static int simulate_run(struct call *call)
{
    struct simulate *simulate = call->options;

    simulate->output = &call->output;
    simulate->trace = call->words[0];
    simulate->load.seed = simulate->options.seed;
    if (simulate->published)
        return simulate_published(simulate);
    int status = simulate_set_levels(simulate);
    if (status)
        return status;
    if (!simulate->show_models || simulate->trace || simulate->nodes || simulate->tasks)
        return simulate_trace(simulate);
    json_auto_t *answer = json_pack("{s:o}", "models", sim_models_json(&simulate->models));
    return simulate->output->json
               ? output_result(simulate->output, answer, NULL, NULL)
               : sim_models_print(&simulate->models, json_object_get(answer, "models"));
}

const struct verb verb_simulate = {
    .name = "simulate",
    .arguments = "[TRACE]",
    .summary = "Simulate a trace of a cluster under the policy, and compare regimes.",
    .text = "Five regimes, from termination (as today) to reconfiguration, at several levels of "
            "reclaim, with the agent's policy. No program runs, and no agent is asked. The same "
            "trace, options and seed give the same output.\nTRACE is a folder with "
            "openb_node_list_gpu_node.csv and openb_pod_list_default.csv (or see --nodes and "
            "--tasks), or "
            "synthetic[:devices=N,programs=N,hours=N,load=PERCENT,best-effort=PERCENT,late=PERCENT,"
            "node=N,host=GIB,mix=MODEL*N+MODEL*N].",
    .members = "trace? assumed? models? runs?",
    .options = simulate_options,
    .size = sizeof(struct simulate),
    .prepare = simulate_prepare,
    .run = simulate_run,
};
