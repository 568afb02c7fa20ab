#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/cli/cmd.h"
#include "agent/cli/simulate_report.h"
#include "agent/simulate/sim_csv.h"

#define NODES_NAME   "openb_node_list_gpu_node.csv"
#define TASKS_NAME   "openb_pod_list_default.csv"
#define SYNTHETIC    "synthetic"
#define THREADS_MAX  16
#define GROW_DEFAULT 25
/* Times the trace's own length, after which those that did not end are given up. */
#define HORIZON_TIMES 4
/* What is paid for devices that can be reclaimed, where --price does not say. */
#define SPOT_PRICE 350

struct simulate {
    struct output output;
    struct sim_models models;
    struct sim_options options;
    struct sim_load load;
    const char *trace, *nodes, *tasks;
    bool show_models;
    size_t price_count;
    struct sim_result results[SIM_LEVELS_MAX * SIM_REGIMES];
};

/* ---- options ---- */

/* "0,0.01,0.05", with up to @places. Returns how many, or 0 when it is anything else. */
static size_t parse_list(const char *text, unsigned places, uint64_t most, uint64_t *ret_values)
{
    char copy[256], *rest = NULL;
    size_t count = 0;

    if (strlen(text) >= sizeof(copy) || !*text || text[strlen(text) - 1] == ',') {
        return 0;
    }
    memcpy(copy, text, strlen(text) + 1);
    for (char *at = strtok_r(copy, ",", &rest); at; at = strtok_r(NULL, ",", &rest)) {
        if (count == SIM_LEVELS_MAX || !sim_parse(at, places, most, &ret_values[count])) {
            return 0;
        }
        count++;
    }
    return count;
}

static int set_reclaim(struct simulate *simulate, const char *text)
{
    uint64_t values[SIM_LEVELS_MAX];
    size_t count = parse_list(text, 6, 60000000, values);

    if (!count) {
        return output_usage(&simulate->output,
                            "--reclaim is up to %d numbers from 0 to 60 with commas, reclaims of a "
                            "node in an hour, not \"%s\"",
                            SIM_LEVELS_MAX, text);
    }
    simulate->options.level_count = count;
    for (size_t i = 0; i < count; i++) {
        simulate->options.levels[i].reclaim = (uint32_t)values[i];
    }
    return 0;
}

static int set_price(struct simulate *simulate, const char *text)
{
    uint64_t values[SIM_LEVELS_MAX];
    size_t count = parse_list(text, 3, 1000000, values);

    if (!count) {
        return output_usage(&simulate->output,
                            "--price is up to %d numbers from 0 to 1000 with commas, parts of the "
                            "price on demand, not \"%s\"",
                            SIM_LEVELS_MAX, text);
    }
    simulate->price_count = count;
    for (size_t i = 0; i < count; i++) {
        simulate->options.levels[i].price = (uint32_t)values[i];
    }
    return 0;
}

static int set_policy(struct simulate *simulate, const char *text)
{
    char name[64], reason[POLICY_REASON];
    const char *value = strchr(text, '=');

    if (!value || value == text || (size_t)(value - text) >= sizeof(name)) {
        return output_usage(&simulate->output, "--set is NAME=VALUE, not \"%s\"", text);
    }
    snprintf(name, sizeof(name), "%.*s", (int)(value - text), text);
    const struct setting *setting = settings_find(name);
    if (!setting) {
        return output_usage(&simulate->output, "the policy has no setting \"%s\"", name);
    }
    if (settings_set(&simulate->options.settings, setting, value + 1, reason, sizeof(reason))) {
        return output_usage(&simulate->output, "--set %s: %s", name, reason);
    }
    return 0;
}

/* Options that are one number, in units of 10^-places. */
struct number {
    const char *name;
    unsigned places;
    uint64_t least, most;
    const char *what;
};

enum number_option {
    NOTICE,
    AWAY,
    CHECKPOINT,
    STOP,
    TOUCH,
    LINK,
    STORAGE,
    NETWORK,
    LATENCY,
    FAIL,
    GROW,
    DEVICES,
    CELL,
    SEED,
    NUMBERS
};

static const struct number numbers[NUMBERS] = {
    [NOTICE] = {"notice", 3, 0, 86400000, "seconds, 0 to 86400"},
    [AWAY] = {"away", 3, 1000, 31536000000, "seconds, 1 to 31536000"},
    [CHECKPOINT] = {"checkpoint", 3, 0, 31536000000, "seconds, 0 to 31536000"},
    [STOP] = {"stop", 3, 0, 3600000, "seconds, 0 to 3600"},
    [TOUCH] = {"touch", 3, 1, 86400000, "seconds, 0.001 to 86400"},
    [LINK] = {"link", 6, 1000, 10000000000, "GB/s, 0.001 to 10000"},
    [STORAGE] = {"storage", 6, 0, 10000000000, "GB/s, 0 (no limit) to 10000"},
    [NETWORK] = {"network", 6, 1000, 10000000000, "GB/s, 0.001 to 10000"},
    [LATENCY] = {"latency", 3, 0, 3600000, "seconds, 0 to 3600"},
    [FAIL] = {"fail", 6, 0, 60000000, "failures of a node in an hour, 0 to 60"},
    [GROW] = {"grow", 0, 0, 100, "a percentage, 0 to 100"},
    [DEVICES] = {"devices", 0, 1, SIM_DEVICES_MAX, "a number of devices, 1 to 100000"},
    [CELL] = {"cell", 0, 1, SIM_DEVICES_MAX, "a number of devices, 1 to 100000"},
    [SEED] = {"seed", 0, 0, INT64_MAX, "a number, 0 to 9223372036854775807"},
};

static void store(struct simulate *simulate, enum number_option option, uint64_t value)
{
    struct sim_options *options = &simulate->options;

    switch (option) {
    case NOTICE:
        options->notice_ms = value;
        break;
    case AWAY:
        options->away_ms = value;
        break;
    case CHECKPOINT:
        options->checkpoint_ms = value;
        break;
    case STOP:
        options->fixed_ms = value;
        break;
    case TOUCH:
        options->touch_ms = value;
        break;
    case LINK:
        options->link = value;
        break;
    case STORAGE:
        options->storage = value;
        break;
    case NETWORK:
        options->network = value;
        break;
    case LATENCY:
        options->latency_ms = value;
        break;
    case FAIL:
        options->fail = (uint32_t)value;
        break;
    case GROW:
        simulate->load.grow_percent = (uint32_t)value;
        break;
    case DEVICES:
        simulate->load.devices = (uint32_t)value;
        break;
    case CELL:
        options->cell = (uint32_t)value;
        break;
    default:
        options->seed = simulate->load.seed = value;
    }
}

static int set_number(struct simulate *simulate, enum number_option option, const char *text)
{
    const struct number *number = &numbers[option];
    uint64_t value;

    if (!sim_parse(text, number->places, number->most, &value) || value < number->least) {
        return output_usage(&simulate->output, "--%s is %s, not \"%s\"", number->name, number->what,
                            text);
    }
    store(simulate, option, value);
    return 0;
}

static int read_models(struct simulate *simulate, const char *path)
{
    char error[SIM_ERROR] = "";

    if (sim_models_read(path, &simulate->models, error)) {
        return output_fail(&simulate->output, ERR_USAGE, "%s", error);
    }
    return 0;
}

enum { NODES = NUMBERS, TASKS, MODELS, RECLAIM, PRICE, SET, BETWEEN, SAVE, CHECK, PENDING, JSON };

static int take(struct simulate *simulate, int option, const char *value)
{
    switch (option) {
    case NODES:
        simulate->nodes = value;
        return 0;
    case TASKS:
        simulate->tasks = value;
        return 0;
    case MODELS:
        simulate->show_models = true;
        return value ? read_models(simulate, value) : 0;
    case RECLAIM:
        return set_reclaim(simulate, value);
    case PRICE:
        return set_price(simulate, value);
    case SET:
        return set_policy(simulate, value);
    case BETWEEN:
        simulate->options.between_hosts = true;
        return 0;
    case SAVE:
        simulate->options.save = true;
        return 0;
    case CHECK:
        simulate->options.check = true;
        return 0;
    case PENDING:
        simulate->load.pending = true;
        return 0;
    case JSON:
        return 0;
    default:
        return set_number(simulate, (enum number_option)option, value);
    }
}

static int set_levels(struct simulate *simulate)
{
    struct sim_options *options = &simulate->options;

    if (simulate->price_count && simulate->price_count != options->level_count) {
        return output_usage(&simulate->output, "--price has %zu numbers, --reclaim %zu",
                            simulate->price_count, options->level_count);
    }
    for (size_t i = 0; !simulate->price_count && i < options->level_count; i++) {
        options->levels[i].price = options->levels[i].reclaim ? SPOT_PRICE : 1000;
    }
    return 0;
}

static int parse(struct simulate *simulate, int argc, char **argv)
{
    static const struct option options[] = {{"notice", required_argument, NULL, NOTICE},
                                            {"away", required_argument, NULL, AWAY},
                                            {"stop", required_argument, NULL, STOP},
                                            {"checkpoint", required_argument, NULL, CHECKPOINT},
                                            {"touch", required_argument, NULL, TOUCH},
                                            {"link", required_argument, NULL, LINK},
                                            {"storage", required_argument, NULL, STORAGE},
                                            {"network", required_argument, NULL, NETWORK},
                                            {"latency", required_argument, NULL, LATENCY},
                                            {"fail", required_argument, NULL, FAIL},
                                            {"grow", required_argument, NULL, GROW},
                                            {"seed", required_argument, NULL, SEED},
                                            {"devices", required_argument, NULL, DEVICES},
                                            {"cell", required_argument, NULL, CELL},
                                            {"nodes", required_argument, NULL, NODES},
                                            {"tasks", required_argument, NULL, TASKS},
                                            {"models", optional_argument, NULL, MODELS},
                                            {"reclaim", required_argument, NULL, RECLAIM},
                                            {"price", required_argument, NULL, PRICE},
                                            {"set", required_argument, NULL, SET},
                                            {"between-hosts", no_argument, NULL, BETWEEN},
                                            {"save", no_argument, NULL, SAVE},
                                            {"check", no_argument, NULL, CHECK},
                                            {"pending", no_argument, NULL, PENDING},
                                            {"json", no_argument, NULL, JSON},
                                            {0}};
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", options, NULL)) >= 0) {
        if (option == '?' || option == ':') {
            return output_usage(&simulate->output, "option %s is unknown or lacks its value",
                                argv[optind - 1]);
        }
        if (option == MODELS && !optarg && optind < argc && argv[optind][0] != '-') {
            optarg = argv[optind++];
        }
        int status = take(simulate, option, optarg);
        if (status) {
            return status;
        }
    }
    if (argc - optind > 1) {
        return output_usage(&simulate->output, "there is more than one trace: \"%s\"",
                            argv[optind + 1]);
    }
    simulate->trace = optind < argc ? argv[optind] : NULL;
    return set_levels(simulate);
}

/* ---- the trace ---- */

static int load(struct simulate *simulate, struct sim_trace *trace)
{
    char error[SIM_ERROR] = "there is not enough memory", nodes[PATH_MAX], tasks[PATH_MAX];
    const char *name = simulate->trace;
    bool synthetic = name && strncmp(name, SYNTHETIC, strlen(SYNTHETIC)) == 0 &&
                     (name[strlen(SYNTHETIC)] == ':' || !name[strlen(SYNTHETIC)]);

    if (!name && !(simulate->nodes && simulate->tasks)) {
        return output_usage(&simulate->output, "no trace is named: a folder, --nodes and --tasks, "
                                               "or synthetic");
    }
    if (synthetic && (simulate->nodes || simulate->tasks)) {
        return output_usage(&simulate->output, "a synthetic trace has no --nodes and no --tasks");
    }
    snprintf(nodes, sizeof(nodes), "%s/" NODES_NAME, name ? name : "");
    snprintf(tasks, sizeof(tasks), "%s/" TASKS_NAME, name ? name : "");
    const char *text = synthetic ? name + strlen(SYNTHETIC) : "";
    int result = synthetic ? sim_trace_make(trace, text + (*text == ':'), &simulate->load, error)
                           : sim_trace_read(trace, simulate->nodes ? simulate->nodes : nodes,
                                            simulate->tasks ? simulate->tasks : tasks,
                                            &simulate->load, error);
    if (result) {
        return output_fail(&simulate->output, result == -ENOMEM ? ERR_FAILED : ERR_USAGE, "%s",
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

/* Runs share nothing that changes, so their order does not matter. */
static void *run_some(void *argument)
{
    struct work *work = argument;

    for (;;) {
        size_t i = atomic_fetch_add(&work->next, 1);
        if (i >= work->count || atomic_load(&work->error)) {
            return NULL;
        }
        int error = sim_run(work->trace, work->options, (enum sim_regime)(i % SIM_REGIMES),
                            i / SIM_REGIMES, &work->results[i]);
        if (error) {
            atomic_store(&work->error, error);
        }
    }
}

static int run_all(struct work *work)
{
    pthread_t threads[THREADS_MAX];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    size_t started = 0;

    while (started + 1 < (size_t)(processors < THREADS_MAX ? processors : THREADS_MAX) &&
           started + 1 < work->count) {
        if (pthread_create(&threads[started], NULL, run_some, work)) {
            break;
        }
        started++;
    }
    run_some(work);
    while (started) {
        pthread_join(threads[--started], NULL);
    }
    return atomic_load(&work->error);
}

static uint64_t horizon(const struct sim_trace *trace)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < trace->task_count; i++) {
        uint64_t alone = trace->tasks[i].arrive_ms + trace->tasks[i].work / 1000;
        end = alone > end ? alone : end;
    }
    return HORIZON_TIMES * end;
}

static int report(struct simulate *simulate, const struct sim_trace *trace)
{
    const struct sim_report report = {trace, &simulate->options, &simulate->load, simulate->results,
                                      simulate->options.level_count * SIM_REGIMES};

    for (size_t i = 0; i < report.count; i++) {
        if (simulate->results[i].problem[0]) {
            return output_fail(&simulate->output, ERR_FAILED,
                               "the simulation is wrong, at reclaim level %zu under %s: %s",
                               i / SIM_REGIMES + 1, sim_regime_name(simulate->results[i].regime),
                               simulate->results[i].problem);
        }
    }
    if (simulate->output.json) {
        json_t *object = output_object(&simulate->output, STATUS_DONE);
        if (!object || sim_report_json(&report, object)) {
            json_decref(object);
            return output_fail(&simulate->output, ERR_FAILED, "there is not enough memory");
        }
        return output_print(object, STATUS_DONE);
    }
    return sim_report_print(&report) ? STATUS_ROLLED_BACK : STATUS_DONE;
}

static int show_models(const struct simulate *simulate)
{
    if (simulate->output.json) {
        json_t *object = output_object(&simulate->output, STATUS_DONE);
        json_object_set_new(object, "models", sim_models_json(&simulate->models));
        return output_print(object, STATUS_DONE);
    }
    return sim_models_print(&simulate->models) ? STATUS_ROLLED_BACK : STATUS_DONE;
}

static int simulate_trace(struct simulate *simulate)
{
    struct sim_trace trace;

    sim_trace_init(&trace, &simulate->models);
    int status = load(simulate, &trace);
    if (!status) {
        struct work work = {.trace = &trace,
                            .options = &simulate->options,
                            .results = simulate->results,
                            .count = simulate->options.level_count * SIM_REGIMES};
        simulate->options.horizon_ms = horizon(&trace);
        status = run_all(&work) ? output_fail(&simulate->output, ERR_FAILED,
                                              "there is not enough memory for this trace")
                                : report(simulate, &trace);
    }
    sim_trace_finish(&trace);
    return status;
}

int cmd_simulate(int argc, char **argv)
{
    struct simulate simulate = {.load = {.seed = 1, .grow_percent = GROW_DEFAULT}};

    output_init(&simulate.output, "simulate", argc, argv);
    sim_models_init(&simulate.models);
    sim_options_init(&simulate.options);
    int status = parse(&simulate, argc, argv);
    if (status) {
        return status;
    }
    if (simulate.show_models && !simulate.trace && !simulate.nodes && !simulate.tasks) {
        return show_models(&simulate);
    }
    return simulate_trace(&simulate);
}
