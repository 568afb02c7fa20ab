#include <langinfo.h>
#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/show/reports.h"
#include "agent/cli/verb.h"

#define GRAPH 24 /* Columns of a graph. */
/** Most models in the table of a census. */
#define CENSUS_MODELS_MAX 20

/** What a line is of: a device, a program, or one that has ended. */
static const char *report_kind(const json_t *one)
{
    return json_object_get(one, "held_peak_bytes") ? "device"
           : json_object_get(one, "pid")           ? "program"
                                                   : "ended";
}

static void report_say_kind(const json_t *one, struct words *words)
{
    words_add(words, "%s", report_kind(one));
}

/** The capacity of a program's entry is its device's. */
static void report_say_capacity(const json_t *one, struct words *words)
{
    if (strcmp(report_kind(one), "device") == 0)
        words_say(words, one, "{capacity_bytes}");
}

/** Append which part of its device a program needed at most. */
static void report_say_share(const json_t *one, struct words *words)
{
    double capacity = (double)member_number(one, "capacity_bytes");
    double needed = (double)member_number(one, "wanted_peak_bytes");

    if (needed > 0 && capacity > 0 && member_text(one, "device")[0])
        words_add(words, "%.0f%%", 100 * needed / capacity);
}

/** Append a graph, newest to the right: bars of eight heights, maxima of their samples. */
static void report_say_graph(const json_t *one, struct words *words)
{
    /* Without UTF-8, the bytes of a bar would be shown as three characters. */
    static const char *const ascii[] = {" ", ".", ".", ":", "-", "=", "+", "*", "#"};
    const bool utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    static const char *const eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const json_t *held = json_object_get(one, "held");
    uint64_t capacity = member_number(one, "capacity_bytes");
    double full = (double)(capacity ? capacity : member_number(one, "peak_bytes"));
    size_t count = json_array_size(held);
    size_t columns = count < GRAPH ? count : GRAPH;

    for (size_t i = columns; count && i < GRAPH; i++)
        words_add(words, " ");
    for (size_t i = 0; i < columns; i++) {
        json_int_t most = 0;
        for (size_t j = i * count / columns; j < (i + 1) * count / columns; j++) {
            json_int_t value = json_integer_value(json_array_get(held, j));
            most = value > most ? value : most;
        }
        double part = full > 0 ? (double)most / full : 0;
        int bar = most ? 1 + (int)(part * 7.999) : 0;
        words_add(words, "%s", (utf8 ? eighths : ascii)[bar > 8 ? 8 : bar]);
    }
}

static int report_print(const struct output *output, const json_t *answer)
{
    static const struct table_column columns[] = {
        {"NAME", "{name}"},
        {"ID", "{id}", TABLE_OPTIONAL},
        {"KIND", .say = report_say_kind},
        {"CAPACITY", .say = report_say_capacity, .flags = TABLE_RIGHT | TABLE_OPTIONAL},
        {"GRANTED", "[{granted_bytes}]", TABLE_RIGHT},
        {"HELD", "[{held_bytes}][{device_bytes}]", TABLE_RIGHT},
        {"SPILLED", "[{spilled_bytes}]", TABLE_RIGHT},
        {"PEAK", "[{held_peak_bytes}][{peak_bytes}]", TABLE_RIGHT},
        {"HELD OVER TIME", .say = report_say_graph},
        {"NEEDED", "[{wanted_peak_bytes}]", TABLE_RIGHT | TABLE_OPTIONAL},
        {"SHARE", .say = report_say_share, .flags = TABLE_RIGHT | TABLE_OPTIONAL},
        {"WAITED", "[{?waits}{waited_ms}]", TABLE_RIGHT | TABLE_OPTIONAL},
        {"REFUSED", "[{refusals}]", TABLE_RIGHT | TABLE_OPTIONAL},
        {"OVER", "[{age_ms}]", TABLE_RIGHT | TABLE_OPTIONAL},
        {NULL},
    };
    const json_t *apps = json_object_get(answer, "apps");
    json_auto_t *lines = json_array();

    json_array_extend(lines, json_object_get(answer, "devices"));
    for (size_t i = json_array_size(apps); i-- > 0;)
        json_array_append(lines, json_array_get(apps, i));
    json_array_extend(lines, json_object_get(answer, "ended"));
    return output_table(output, lines, columns, NULL);
}

/** Options of `reseat report`. */
struct report {
    struct sim_models models;
    bool census;
};

static void report_prepare(void *value)
{
    struct report *report = value;
    sim_models_init(&report->models);
}

static int report_take_models(struct call *call, const struct option_row *option, const char *path)
{
    struct report *report = call->options;
    char error[SIM_ERROR] = "";

    (void)option;
    if (sim_models_read(path, &report->models, error))
        return output_fail(&call->output, ERR_USAGE, "%s", error);
    if (report->models.count > CENSUS_MODELS_MAX)
        return output_fail(&call->output, ERR_USAGE, "%s: a census has at most %d models", path,
                           CENSUS_MODELS_MAX);
    return 0;
}

/** Add what the programs of @list wanted to @peaks, by name: the most of all runs of a program. */
static void report_add_peaks(json_t *peaks, const json_t *list)
{
    const json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        uint64_t peak = member_number(one, "wanted_peak_bytes");
        if (peak > member_number(peaks, member_text(one, "name")))
            json_object_set_new(peaks, member_text(one, "name"), json_integer((json_int_t)peak));
    }
}

/** A row for each program: its peak, and the percentage of each model's memory that this is. */
static json_t *report_census(const json_t *answer, const struct sim_models *models)
{
    json_auto_t *peaks = json_object();
    json_t *census = json_array(), *peak;
    const char *name;

    report_add_peaks(peaks, json_object_get(answer, "ended"));
    report_add_peaks(peaks, json_object_get(answer, "apps"));
    json_object_foreach(peaks, name, peak)
    {
        json_t *percent = json_object();
        for (size_t i = 0; i < models->count; i++) {
            const struct sim_model *model = &models->items[i];
            json_object_set_new(
                percent, model->name,
                json_real((double)json_integer_value(peak) * 100 / (double)model->memory));
        }
        json_array_append_new(census, json_pack("{s:s, s:O, s:o}", "name", name, "peak_bytes", peak,
                                                "percent", percent));
    }
    return census;
}

/** Print a census; the percentages as texts, in members whose names are templates' words. */
static int report_print_census(const struct output *output, const json_t *census,
                               const struct sim_models *models)
{
    struct table_column columns[CENSUS_MODELS_MAX + 3] = {{"NAME", "{name}"},
                                                          {"PEAK", "{peak_bytes}", TABLE_RIGHT}};
    char templates[CENSUS_MODELS_MAX][24];
    json_t *row;
    size_t i, j;

    for (i = 0; i < models->count; i++) {
        snprintf(templates[i], sizeof(templates[i]), "{m%zu}", i);
        columns[2 + i] = (struct table_column){models->items[i].name, templates[i], TABLE_RIGHT};
    }
    json_array_foreach(census, i, row)
    {
        for (j = 0; j < models->count; j++) {
            double percent = json_real_value(
                json_object_get(json_object_get(row, "percent"), models->items[j].name));
            char member[24];
            snprintf(member, sizeof(member), "m%zu", j);
            json_object_set_new(row, member,
                                json_sprintf(percent < 10 ? "%.2g%%" : "%.0f%%", percent));
        }
    }
    return output_table(output, census, columns, NULL);
}

static int report_verb_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_USE, .what = "report use", .print = report_print};
    const struct report *report = call->options;
    json_auto_t *answer = NULL;
    struct frame frame;

    frame_init(&frame, MSG_USE);
    frame_string(&frame, "what", call->count ? call->words[0] : "");
    ask_put_environment(&frame);
    if (!report->census)
        return ask_print(&call->output, &question, &frame);
    int status = ask(&call->output, &question, &frame, &answer);
    if (status)
        return status;
    json_object_set_new(answer, "census", report_census(answer, &report->models));
    return call->output.json ? output_result(&call->output, answer, NULL, NULL)
                             : report_print_census(&call->output, json_object_get(answer, "census"),
                                                   &report->models);
}

static const struct option_row report_options[] = {
    {"census", NULL,
     "Print for each program the most memory that it needed on a device, and the percentage of "
     "each model's memory that this is.",
     OPTION_VALUE(struct report, census)},
    {"models", "FILE",
     "With --census: the models, as reseat simulate --models reads them. Default: the models that "
     "it prints.",
     .take = report_take_models},
    OPTION_VIEW,
    {NULL},
};

const struct verb verb_report = {
    .name = "report",
    .arguments = "[DEVICE|APP]",
    .summary = "Show use of device memory over time.",
    .text =
        "For each device and program: memory granted, held and at the peak, a graph of the memory "
        "held, and how much of its device a program needed at most and how long its calls waited "
        "for memory; also for programs that ended.",
    .options = report_options,
    .size = sizeof(struct report),
    .prepare = report_prepare,
    .members = "devices[] apps[] ended[] census?",
    .users = true,
    .run = report_verb_run,
};
