#include <langinfo.h>
#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"

#define GRAPH 24 /* Columns of a graph. */

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

/**
 * Append a graph of bars with eight heights, newest to the right. Each is the maximum of its
 * samples.
 */
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

static int report_verb_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_USE, .what = "report use", .print = report_print};
    struct frame frame;

    frame_init(&frame, MSG_USE);
    frame_string(&frame, "what", call->count ? call->words[0] : "");
    ask_put_environment(&frame);
    return ask_print(&call->output, &question, &frame);
}

static const struct verb_option report_options[] = {OPTION_VIEW, {NULL}};

const struct verb verb_report = {
    .name = "report",
    .arguments = "[DEVICE|APP]",
    .summary = "Show use of device memory over time.",
    .text =
        "For each device and program: memory granted, held and at the peak, a graph of the memory "
        "held, and how much of its device a program needed at most and how long its calls waited "
        "for memory; also for programs that ended.",
    .members = "devices[] apps[] ended[]",
    .options = report_options,
    .users = true,
    .run = report_verb_run,
};
