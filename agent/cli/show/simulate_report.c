#include "agent/cli/show/simulate_report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define HOUR_MS 3600000.0

struct cell {
    char text[32];
};

static struct cell simulate_report_cell(const char *format, ...) PRINTF(1, 2);

static struct cell simulate_report_cell(const char *format, ...)
{
    struct cell ret;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(ret.text, sizeof(ret.text), format, arguments);
    va_end(arguments);
    return ret;
}

/* A duration: "0.3 s", "12 min", "4.5 h". */
static struct cell simulate_report_span(uint64_t ms)
{
    double seconds = (double)ms / 1000;

    if (seconds < 100)
        return simulate_report_cell(ms ? "%.1f s" : "%.0f s", seconds);
    return seconds < 6000 ? simulate_report_cell("%.0f min", seconds / 60)
                          : simulate_report_cell("%.1f h", seconds / 3600);
}

static struct cell simulate_report_hours(double value)
{
    return value < 100 ? simulate_report_cell("%.1f", value) : simulate_report_cell("%.0f", value);
}

static struct cell simulate_report_rate(uint32_t millionths)
{
    return simulate_report_cell("%g/h", millionths / 1e6);
}

static void simulate_report_put(struct table *table, const struct cell *cells, size_t count)
{
    table_add(table, NULL);
    for (size_t i = 0; i < count; i++)
        table_put(table, i, cells[i].text);
}

static int simulate_report_print_results(const struct sim_report *report)
{
    static const struct table_column columns[] = {
        {"RECLAIM", .right = true}, {"REGIME"},
        {"KILLED", .right = true},  {"SAVED", .right = true},
        {"LOST h", .right = true},  {"WAIT", .right = true},
        {"P99", .right = true},     {"TOOK", .right = true},
        {"COST", .right = true},    {"NODES", .right = true},
    };
    struct table *table = table_create(columns, ARRAY_SIZE(columns));

    for (size_t i = 0; i < report->count; i++) {
        const struct sim_result *result = &report->results[i];
        const struct cell cells[] = {
            i % SIM_REGIMES ? simulate_report_cell(" ")
                            : simulate_report_rate(result->level.reclaim),
            simulate_report_cell("%s", sim_regime_name(result->regime)),
            simulate_report_cell("%" PRIu64, result->terminations),
            simulate_report_cell("%" PRIu64, result->saves),
            simulate_report_hours((double)result->lost_ms / HOUR_MS),
            simulate_report_span(result->wait_mean_ms),
            simulate_report_span(result->wait_p99_ms),
            simulate_report_span(result->took_mean_ms),
            simulate_report_hours(result->cost),
            simulate_report_hours(result->node_cost),
        };
        simulate_report_put(table, cells, ARRAY_SIZE(cells));
    }
    return table_print(table);
}

/* ---- assumptions ---- */

static void simulate_report_print_trace(const struct sim_report *report)
{
    const struct sim_trace *trace = report->trace;
    const struct sim_counts *counts = &trace->counts;
    struct words words = {0};

    words_add(&words, "Simulated: %s, seed %" PRIu64 ", %u devices in %u nodes, %u programs",
              trace->name, report->options->seed, trace->device_count, trace->node_count,
              trace->task_count);
    words_add(&words, " (%u bound to some models, %u best effort, %u grow in steps).",
              counts->ruled, counts->preemptible, counts->growing);
    if (counts->rows != trace->task_count || counts->failed) {
        words_add(&words, " Of %u tasks %u want no GPU and %u never ran (Pending: %s); ",
                  counts->rows, counts->without_gpu, counts->pending,
                  report->load->pending ? "taken as if they had" : "left out");
        words_add(&words,
                  "%u Failed count as the others; %u want several GPUs: of one node, all or "
                  "none.",
                  counts->failed, counts->several);
    }
    output_wrapped(stdout, OUTPUT_COLUMNS, 0, 0, words.text);
}

static void simulate_report_print_levels(const struct sim_report *report)
{
    const struct sim_options *options = report->options;
    struct words words = {0};

    words_add(&words,
              "RECLAIM: of each node, with its host memory, %s after a notice, for %s on "
              "average; price",
              simulate_report_span(options->notice_ms).text,
              simulate_report_span(options->away_ms).text);
    for (size_t i = 0; i < options->level_count; i++) {
        words_add(&words, "%s %g at %s", i ? "," : "", options->levels[i].price / 1000.0,
                  simulate_report_rate(options->levels[i].reclaim).text);
    }
    words_add(&words, " (on demand: 1). ");
    if (options->fail) {
        words_add(&words, "Failures: %s of each node, for %s. ",
                  simulate_report_rate(options->fail).text,
                  simulate_report_span(options->repair_ms).text);
    }
    words_add(&words, "KILLED: programs that lost their node; they begin again, on any, %s%s. ",
              options->checkpoint_ms ? "with their last checkpoint, one each " : "from zero",
              options->checkpoint_ms ? simulate_report_span(options->checkpoint_ms).text : "");
    if (options->storage) {
        words_add(&words, "Storage: %g GB/s for each node; who saves or loads stands meanwhile. ",
                  (double)options->storage / 1e6);
    }
    words_add(&words,
              "SAVED: programs that were saved within the notice. LOST: work done in vain, in "
              "hours of the reference device. "
              "WAIT (mean, P99): of a program in all, without a device or for memory. TOOK: from "
              "arrival to end, the mean. COST: device time with a program there, by the models' "
              "prices; 1 is an hour of the reference device on demand. NODES: the same where a "
              "node with a "
              "program is paid whole.");
    output_wrapped(stdout, OUTPUT_COLUMNS, 0, 0, words.text);
}

static void simulate_report_print_regimes(const struct sim_report *report)
{
    const struct sim_options *options = report->options;
    struct words words = {0};

    words_add(&words,
              "termination: programs get all memory that they will ever need, wait for it, and "
              "end with their node. cheapest: the same, on the cheapest device with room. "
              "saving: termination, and what can be saved within the notice is. overcommit: they "
              "get what they use; what does not fit spills into host memory. reconfiguration: "
              "they are moved, spilled and suspended, by the policy that the agent has, ");
    if (options->between_hosts) {
        words_add(&words, "also from node to node, at %g GB/s after %g s. ",
                  (double)options->network / 1e6, (double)options->latency_ms / 1e3);
    } else {
        words_add(&words, "each on its node. ");
    }
    if (options->save)
        words_add(&words, "Under these two what is left at a notice is saved, too. ");
    words_add(
        &words,
        "Each step stops its program for %s and what it copies at %g GB/s. A program goes over all "
        "its memory once in %s; what is spilled comes and goes each time. ",
        simulate_report_span(options->fixed_ms).text, (double)options->link / 1e6,
        simulate_report_span(options->touch_ms).text);
    if (options->between_hosts && report->trace->device_count > options->cell)
        words_add(&words, "One policy governs about %u devices. ", options->cell);
    words_add(&words, "Speed, memory and price of models: reseat simulate --models (%s).",
              report->trace->models.from);
    output_wrapped(stdout, OUTPUT_COLUMNS, 0, 0, words.text);
}

static void simulate_report_print_rest(const struct sim_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        const struct sim_result *result = &report->results[i];
        struct words words = {0};
        if (!result->refused && !result->unfinished)
            continue;
        words_add(&words, "%s, %s: ", simulate_report_rate(result->level.reclaim).text,
                  sim_regime_name(result->regime));
        words_add(&words,
                  "%" PRIu64 " programs fit no device and are left out, %" PRIu64 " had not "
                  "ended when the simulation did.",
                  result->refused, result->unfinished);
        output_wrapped(stdout, OUTPUT_COLUMNS, 0, 0, words.text);
    }
}

int sim_report_print(const struct sim_report *report)
{
    int status = simulate_report_print_results(report);

    if (status)
        return status;
    putchar('\n');
    simulate_report_print_trace(report);
    simulate_report_print_levels(report);
    simulate_report_print_regimes(report);
    simulate_report_print_rest(report);
    return output_done();
}

/* ---- JSON ---- */

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
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:f, s:i, s:I, "
        "s:b}",
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

int sim_report_json(const struct sim_report *report, json_t *object)
{
    json_t *runs = json_array();

    for (size_t i = 0; i < report->count; i++)
        json_array_append_new(
            runs, simulate_report_result_json(&report->results[i], report->options->check));
    return json_object_set_new(object, "trace", simulate_report_trace_json(report)) ||
                   json_object_set_new(object, "assumed", simulate_report_assumed_json(report)) ||
                   json_object_set_new(object, "models", sim_models_json(&report->trace->models)) ||
                   json_object_set_new(object, "runs", runs)
               ? -ENOMEM
               : 0;
}

/* ---- models ---- */

int sim_models_print(const struct sim_models *models)
{
    static const struct table_column columns[] = {
        {"MODEL"}, {"MEMORY", .right = true}, {"SPEED", .right = true}, {"PRICE", .right = true}};
    struct table *table = table_create(columns, ARRAY_SIZE(columns));
    struct words words = {0};

    for (size_t i = 0; i < models->count; i++) {
        const struct sim_model *model = &models->items[i];
        struct cell cells[] = {simulate_report_cell("%s", model->name),
                               {""},
                               simulate_report_cell("%g", model->speed / 1000.0),
                               simulate_report_cell("%g", model->price / 1000.0)};
        bytes_text(model->memory, cells[1].text, sizeof(cells[1].text));
        simulate_report_put(table, cells, ARRAY_SIZE(cells));
    }
    int status = table_print(table);
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
    output_wrapped(stdout, OUTPUT_COLUMNS, 0, 0, words.text);
    return output_done();
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
