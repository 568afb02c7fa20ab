#include <langinfo.h>
#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"
#include "state/base/clock.h"

#define GRAPH 26 /* Columns of a graph; with names and sizes it fits 80 columns. */

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

static int report_verb_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_USE, .what = "report use", .print = report_print_report};
    struct frame frame;

    frame_init(&frame, MSG_USE);
    frame_string(&frame, "what", call->count ? call->words[0] : "");
    ask_put_environment(&frame);
    return ask_print(&call->output, &question, &frame);
}

static const struct verb_option report_options[] = {OPTION_WATCH, {NULL}};

const struct verb verb_report = {
    .name = "report",
    .arguments = "[DEVICE|APP]",
    .summary = "Show use of device memory over time.",
    .text =
        "For each device and program: memory granted, held and at the peak, a graph of the memory "
        "held, and how much of its device a program needed at most; also for programs that ended.",
    .members = "devices[] apps[] ended[]",
    .options = report_options,
    .users = true,
    .run = report_verb_run,
};
