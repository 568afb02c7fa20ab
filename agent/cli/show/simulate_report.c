#include "agent/cli/show/reports.h"

#include <string.h>

#define HOUR_MS 3600000.0

static void simulate_report_say_hours(struct words *words, double hours)
{
    words_add(words, hours < 100 ? "%.1f" : "%.0f", hours);
}

static void simulate_report_say_lost(const json_t *run, struct words *words)
{
    simulate_report_say_hours(words, (double)member_number(run, "lost_device_ms") / HOUR_MS);
}

static void simulate_report_say_cost(const json_t *run, struct words *words)
{
    simulate_report_say_hours(words, json_real_value(json_object_get(run, "cost")));
}

static void simulate_report_say_nodes(const json_t *run, struct words *words)
{
    simulate_report_say_hours(words, json_real_value(json_object_get(run, "node_cost")));
}

/* The reclaims of a level, at its first regime. */
static void simulate_report_say_level(const json_t *run, struct words *words)
{
    if (strcmp(member_text(run, "regime"), sim_regime_name(0)) == 0)
        words_add(words, "%g/h", json_real_value(json_object_get(run, "reclaims_per_hour")));
    else
        words_add(words, " ");
}

static int simulate_report_print_results(const json_t *runs)
{
    static const struct table_column columns[] = {
        {"RECLAIM", .say = simulate_report_say_level, .flags = TABLE_RIGHT},
        {"REGIME", "{regime}"},
        {"KILLED", "{terminations}", TABLE_RIGHT},
        {"SAVED", "{saves}", TABLE_RIGHT},
        {"LOST h", .say = simulate_report_say_lost, .flags = TABLE_RIGHT},
        {"WAIT", "{wait_mean_ms}", TABLE_RIGHT},
        {"P99", "{wait_p99_ms}", TABLE_RIGHT},
        {"TOOK", "{took_mean_ms}", TABLE_RIGHT},
        {"COST", .say = simulate_report_say_cost, .flags = TABLE_RIGHT},
        {"NODES", .say = simulate_report_say_nodes, .flags = TABLE_RIGHT},
        {NULL},
    };

    return table_print_list(runs, columns);
}

json_t *sim_models_json(const struct sim_models *models)
{
    json_t *array = json_array();

    for (size_t i = 0; i < models->count; i++) {
        const struct sim_model *model = &models->items[i];
        json_array_append_new(array, json_pack("{s:s, s:I, s:f, s:f}", "model", model->name,
                                               "memory_bytes", (json_int_t)model->memory, "speed",
                                               model->speed / 1e3, "price", model->price / 1e3));
    }
    return array;
}

/* ---- as JSON ---- */

static json_t *simulate_report_trace_json(const struct sim_report *report)
{
    const struct sim_counts *counts = &report->trace->counts;

    return json_pack(
        "{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name",
        output_text(report->trace->name), "devices", (json_int_t)report->trace->device_count,
        "nodes", (json_int_t)report->trace->node_count, "programs",
        (json_int_t)report->trace->task_count, "tasks", (json_int_t)counts->rows, "without_gpu",
        (json_int_t)counts->without_gpu, "pending", (json_int_t)counts->pending, "failed",
        (json_int_t)counts->failed, "several_gpus", (json_int_t)counts->several, "growing",
        (json_int_t)counts->growing, "bound", (json_int_t)counts->ruled, "best_effort",
        (json_int_t)counts->preemptible, "seed", (json_int_t)(report->options->seed & INT64_MAX));
}

static json_t *simulate_report_assumed_json(const struct sim_report *report)
{
    const struct sim_options *options = report->options;

    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:f, s:i, s:I, s:b}",
        "notice_ms", (json_int_t)options->notice_ms, "away_ms", (json_int_t)options->away_ms,
        "repair_ms", (json_int_t)options->repair_ms, "checkpoint_ms",
        (json_int_t)options->checkpoint_ms, "fixed_ms", (json_int_t)options->fixed_ms, "touch_ms",
        (json_int_t)options->touch_ms, "link_bytes_per_ms", (json_int_t)options->link,
        "storage_bytes_per_ms", (json_int_t)options->storage, "network_bytes_per_ms",
        (json_int_t)options->network, "latency_ms", (json_int_t)options->latency_ms,
        "between_hosts", (int)options->between_hosts, "saved_everywhere", (int)options->save,
        "failures_per_hour", options->fail / 1e6, "grow_percent", (int)report->load->grow_percent,
        "cell_devices", (json_int_t)options->cell, "pending_run", (int)report->load->pending);
}

static json_t *simulate_report_result_json(const struct sim_result *result, bool checked)
{
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"finished", result->finished},
        {"refused", result->refused},
        {"unfinished", result->unfinished},
        {"terminations", result->terminations},
        {"saves", result->saves},
        {"checkpoints", result->checkpoints},
        {"reclaims", result->reclaims},
        {"failures", result->failures},
        {"moves", result->moves},
        {"between_nodes", result->between},
        {"suspends", result->suspends},
        {"resumes", result->resumes},
        {"prewarms", result->prewarms},
        {"spills", result->spills},
        {"asked_device_ms", result->asked_ms},
        {"lost_device_ms", result->lost_ms},
        {"stopped_ms", result->stopped_ms},
        {"occupied_device_ms", result->occupied_ms},
        {"busy_device_ms", result->busy_ms},
        {"wait_mean_ms", result->wait_mean_ms},
        {"wait_p50_ms", result->wait_p50_ms},
        {"wait_p99_ms", result->wait_p99_ms},
        {"took_mean_ms", result->took_mean_ms},
        {"end_ms", result->end_ms},
    };
    json_t *object =
        json_pack("{s:s, s:f, s:f, s:f, s:f}", "regime", sim_regime_name(result->regime),
                  "reclaims_per_hour", result->level.reclaim / 1e6, "price",
                  result->level.price / 1e3, "cost", result->cost, "node_cost", result->node_cost);

    for (size_t i = 0; object && i < ARRAY_SIZE(numbers); i++)
        json_object_set_new(object, numbers[i].key, json_integer((json_int_t)numbers[i].value));
    if (object && checked)
        json_object_set_new(object, "checked_events", json_integer((json_int_t)result->checked));
    return object;
}

json_t *sim_report_json(const struct sim_report *report)
{
    json_t *runs = json_array();

    for (size_t i = 0; i < report->count; i++)
        json_array_append_new(
            runs, simulate_report_result_json(&report->results[i], report->options->check));
    return json_pack("{s:o, s:o, s:o, s:o}", "trace", simulate_report_trace_json(report), "assumed",
                     simulate_report_assumed_json(report), "models",
                     sim_models_json(&report->trace->models), "runs", runs);
}

/* ---- as text ---- */

static void simulate_report_print_trace(const struct sim_report *report, const json_t *answer)
{
    const json_t *trace = json_object_get(answer, "trace");
    struct words words = {.used = 0};

    words_say(
        &words, trace,
        "Simulated: {name}, seed {seed}, {devices} devices in {nodes} nodes, {programs} programs "
        "({bound} bound to some models, {best_effort} best effort, {growing} grow in steps).");
    if (member_number(trace, "tasks") != member_number(trace, "programs") ||
        member_number(trace, "failed")) {
        words_say(&words, trace,
                  " Of {tasks} tasks {without_gpu} want no GPU and {pending} never ran (Pending: ");
        words_add(&words, "%s); ", report->load->pending ? "taken as if they had" : "left out");
        words_say(&words, trace,
                  "{failed} Failed count as the others; {several_gpus} want several GPUs: of one "
                  "node, all or none.");
    }
    say_wrapped(stdout, 0, 0, words.text);
}

static void simulate_report_print_levels(const struct sim_report *report, const json_t *assumed)
{
    const struct sim_options *options = report->options;
    struct words words = {.used = 0};

    words_say(&words, assumed,
              "RECLAIM: of each node, with its host memory, {notice_ms} after a notice, for "
              "{away_ms} on average; price");
    for (size_t i = 0; i < options->level_count; i++)
        words_add(&words, "%s %g at %g/h", i ? "," : "", options->levels[i].price / 1000.0,
                  options->levels[i].reclaim / 1e6);
    words_say(
        &words, assumed,
        " (on demand: 1). [{?failures_per_hour}Failures: {failures_per_hour}/h of each node, for "
        "{repair_ms}. ]KILLED: programs that lost their node; they start again [from a checkpoint, "
        "one each {checkpoint_ms}][{!checkpoint_ms}from zero]. [Storage: {storage_bytes_per_ms} "
        "for each node; programs stand while they are saved or loaded. ]SAVED: programs saved "
        "within the notice. LOST: work lost, in hours of the reference device. WAIT (mean, P99): "
        "of a program, for a device or for memory. TOOK: mean from arrival to end. COST: device "
        "time with a program there, by the models' prices; 1 is an hour of the reference device on "
        "demand. NODES: the same, where a node with a program is paid whole.");
    say_wrapped(stdout, 0, 0, words.text);
}

static void simulate_report_print_regimes(const struct sim_report *report, const json_t *assumed)
{
    struct words words = {.used = 0};

    words_say(
        &words, assumed,
        "reseat(1) describes the regimes. [{?between_hosts}Under reconfiguration programs move "
        "from node to node, too, at {network_bytes_per_ms} after {latency_ms}. ]"
        "[{?saved_everywhere}Under overcommit and reconfiguration, too, what is left on a node "
        "at the notice is saved. ]A move, suspend, resume or spill stops its program for "
        "{fixed_ms} and for what it copies at {link_bytes_per_ms}. A program uses all its "
        "memory once in {touch_ms}; spilled memory crosses the link each time. ");
    if (report->options->between_hosts && report->trace->device_count > report->options->cell)
        words_say(&words, assumed, "One policy governs about {cell_devices} devices. ");
    words_add(&words, "Speed, memory and price of models: reseat simulate --models (%s).",
              report->trace->models.from);
    say_wrapped(stdout, 0, 0, words.text);
}

int sim_report_print(const struct sim_report *report, const json_t *answer)
{
    const json_t *assumed = json_object_get(answer, "assumed");
    const json_t *runs = json_object_get(answer, "runs"), *run;
    size_t i;
    int status = simulate_report_print_results(runs);

    if (status)
        return status;
    putchar('\n');
    simulate_report_print_trace(report, answer);
    simulate_report_print_levels(report, assumed);
    simulate_report_print_regimes(report, assumed);
    json_array_foreach(runs, i, run)
    {
        struct words words = {.used = 0};
        words_say(&words, run,
                  "{reclaims_per_hour}/h, {regime}: {refused} programs fit no device and are left "
                  "out, {unfinished} had not ended when the simulation did.");
        if (member_number(run, "refused") || member_number(run, "unfinished"))
            say_wrapped(stdout, 0, 0, words.text);
    }
    return output_done();
}

/* ---- models ---- */

int sim_models_print(const struct sim_models *models, const json_t *list)
{
    static const struct table_column columns[] = {{"MODEL", "{model}"},
                                                  {"MEMORY", "{memory_bytes}", TABLE_RIGHT},
                                                  {"SPEED", "{speed}", TABLE_RIGHT},
                                                  {"PRICE", "{price}", TABLE_RIGHT},
                                                  {NULL}};
    struct words words = {.used = 0};
    int status = table_print_list(list, columns);

    if (status)
        return status;
    putchar('\n');
    words_add(&words,
              "Table: %s. Speed and price are relative to the reference device, 1 being its "
              "speed and what an hour of it costs on demand. ",
              models->from);
    if (strcmp(models->from, "built in") == 0) {
        words_add(&words,
                  "The reference is the T4. G2 and G3 are undisclosed: assumed to be cards of "
                  "the class of the A10 and of the A100 with 80 GiB. ");
    }
    words_add(&words,
              "For another table, --models FILE: the line model,memory_gib,speed,price, then a "
              "line for each model.");
    say_wrapped(stdout, 0, 0, words.text);
    return output_done();
}
