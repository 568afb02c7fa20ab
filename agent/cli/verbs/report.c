#include <langinfo.h>
#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/show/reports.h"
#include "agent/cli/verb.h"
#include "state/base/clock.h"

#define GRAPH 26 /* Columns of a graph; with names and sizes it fits 80 columns. */
/** Most models in the table of a census. */
#define CENSUS_MODELS_MAX 20

/**
 * Draw a graph of bars with eight heights, newest to the right. Each is the maximum of its samples.
 */
static void report_draw(const json_t *one, uint64_t full)
{
    /* Without UTF-8, the bytes of a bar would be shown as three characters. */
    static const char *const ascii[] = {" ", ".", ".", ":", "-", "=", "+", "*", "#"};
    const bool utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    static const char *const eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const json_t *held = json_object_get(one, "held");
    size_t count = json_array_size(held);
    size_t columns = count < GRAPH ? count : GRAPH;

    for (size_t i = columns; i < GRAPH; i++)
        putchar(' ');
    for (size_t i = 0; i < columns; i++) {
        json_int_t most = 0;
        for (size_t j = i * count / columns; j < (i + 1) * count / columns; j++) {
            json_int_t value = json_integer_value(json_array_get(held, j));
            most = value > most ? value : most;
        }
        double part = full ? (double)most / (double)full : 0;
        int bar = most ? 1 + (int)(part * 7.999) : 0;
        fputs((utf8 ? eighths : ascii)[bar > 8 ? 8 : bar], stdout);
    }
}

static unsigned report_percent(uint64_t part, uint64_t whole)
{
    return whole ? (unsigned)((double)part / (double)whole * 100 + 0.5) : 0;
}

/** Print the name, four sizes and the graph of memory held. @full: the maximum of the graph. */
static void report_print_line(const json_t *one, int width, const char *const fields[4],
                              uint64_t full)
{
    char text[32];

    say_padded(member_text(one, "name"), width);
    for (size_t i = 0; i < 4; i++) {
        bytes_text(member_number(one, fields[i]), text, sizeof(text));
        printf("%9s", text);
    }
    putchar(' ');
    report_draw(one, full);
    say_duration(member_number(one, "age_ms") * NS_PER_MS, text, sizeof(text));
    printf(" %s\n", text);
}

/** Print the most memory that the program wanted, and its share of the device's. */
static void report_print_needed(const json_t *one)
{
    uint64_t capacity = member_number(one, "capacity_bytes");
    unsigned percent = report_percent(member_number(one, "wanted_peak_bytes"), capacity);
    struct words words = {.used = 0};

    words_say(&words, one, "needed at most {wanted_peak_bytes}");
    if (capacity && member_text(one, "device")[0])
        words_add(&words, ", %u%% of %s", percent, member_text(one, "device"));
    words_say(&words, one,
              "[{?waits}; asked for memory {waits|time|times}, {waited_ms} in all, refused "
              "{refusals}]");
    puts(words.text);
}

static void report_print_app(const json_t *app, int width)
{
    static const char *const fields[] = {"granted_bytes", "device_bytes", "spilled_bytes",
                                         "peak_bytes"};
    uint64_t capacity = member_number(app, "capacity_bytes");

    report_print_line(app, width, fields, capacity ? capacity : member_number(app, "peak_bytes"));
    printf("%*s", width, "");
    report_print_needed(app);
}

static void report_print_ended(const json_t *one, int width)
{
    say_padded(member_text(one, "name"), width);
    fputs(" ended; ", stdout);
    report_print_needed(one);
}

/** Width of the longest name in the list, plus a blank; at least @width. */
static int report_width_of(const json_t *items, int width)
{
    const json_t *item;
    size_t i;

    json_array_foreach(items, i, item)
    {
        int length = say_columns(member_text(item, "name")) + 1;
        width = length > width ? length : width;
    }
    return width;
}

static int report_print_report(const struct output *output, const json_t *answer)
{
    static const char *const fields[] = {"capacity_bytes", "granted_bytes", "held_bytes",
                                         "held_peak_bytes"};
    const json_t *devices = json_object_get(answer, "devices");
    const json_t *apps = json_object_get(answer, "apps"), *ended = json_object_get(answer, "ended");
    int width = report_width_of(ended, report_width_of(apps, report_width_of(devices, 8)));
    const json_t *item;
    size_t i;

    (void)output;
    if (json_array_size(devices)) {
        printf("%-*s%9s%9s%9s%9s %s\n", width, "DEVICE", "CAPACITY", "GRANTED", "HELD", "PEAK",
               "HELD OVER TIME");
    }
    json_array_foreach(devices, i, item)
    {
        report_print_line(item, width, fields, member_number(item, "capacity_bytes"));
    }
    if (json_array_size(apps)) {
        printf("%s%-*s%9s%9s%9s%9s %s\n", json_array_size(devices) ? "\n" : "", width, "PROGRAM",
               "GRANTED", "HELD", "SPILLED", "PEAK", "HELD OVER TIME");
    }
    for (i = json_array_size(apps); i-- > 0;)
        report_print_app(json_array_get(apps, i), width);
    if (json_array_size(ended))
        putchar('\n');
    json_array_foreach(ended, i, item)
    {
        report_print_ended(item, width);
    }
    return output_done();
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

static int report_take_models(struct call *call, const struct verb_option *option, const char *path)
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

static int report_print_census(const json_t *census, const struct sim_models *models)
{
    struct table_column columns[CENSUS_MODELS_MAX + 3] = {{"PROGRAM", ""},
                                                          {"PEAK", "", TABLE_RIGHT}};
    const json_t *row;
    size_t i;

    for (i = 0; i < models->count; i++)
        columns[2 + i] = (struct table_column){models->items[i].name, "", TABLE_RIGHT};
    struct table *table = table_create(columns);
    json_array_foreach(census, i, row)
    {
        char line[512], peak[32];
        bytes_text(member_number(row, "peak_bytes"), peak, sizeof(peak));
        int used = snprintf(line, sizeof(line), "%.200s\t%s", member_text(row, "name"), peak);
        for (size_t j = 0; j < models->count; j++) {
            double percent = json_real_value(
                json_object_get(json_object_get(row, "percent"), models->items[j].name));
            used += snprintf(line + used, sizeof(line) - (size_t)used,
                             percent < 10 ? "\t%.2g%%" : "\t%.0f%%", percent);
        }
        table_add_line(table, "%s", line);
    }
    return table_print(table);
}

static int report_verb_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_USE, .what = "report use", .print = report_print_report};
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
    return call->output.json
               ? output_result(&call->output, answer, NULL, NULL)
               : report_print_census(json_object_get(answer, "census"), &report->models);
}

static const struct verb_option report_options[] = {
    {"census", NULL,
     "Print for each program the most memory that it needed on a device, and the percentage of "
     "each model's memory that this is.",
     OPTION_VALUE(struct report, census)},
    {"models", "FILE",
     "With --census: the models, as reseat simulate --models reads them. Default: the models that "
     "it prints.",
     .take = report_take_models},
    {NULL},
};

const struct verb verb_report = {
    .name = "report",
    .arguments = "[DEVICE|APP]",
    .summary = "Show use of device memory over time.",
    .text =
        "For each device and program: memory granted, held and at the peak, a graph of the memory "
        "held, and how much of its device a program needed at most; also for programs that ended.",
    .options = report_options,
    .size = sizeof(struct report),
    .prepare = report_prepare,
    .members = "devices[] apps[] ended[] census?",
    .users = true,
    .run = report_verb_run,
};
