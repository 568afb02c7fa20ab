#include <string.h>

#include "agent/cli/ask.h"
#include "agent/cli/verb.h"

#define REPORT_MS 10000
#define GRAPH     32 /* Columns of a graph: with names and sizes it fits a terminal. */

static uint64_t value_of(const msgpack_object *item)
{
    return item->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? item->via.u64 : 0;
}

/** Bars of eighths, the newest to the right, each the most of what falls into it. */
static void draw(const msgpack_object *map, uint64_t full)
{
    static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const msgpack_object *held;
    size_t count = field_array(map, "held", &held);
    size_t columns = count < GRAPH ? count : GRAPH;

    for (size_t i = columns; i < GRAPH; i++)
        putchar(' ');
    for (size_t i = 0; i < columns; i++) {
        uint64_t most = 0;
        for (size_t j = i * count / columns; j < (i + 1) * count / columns; j++)
            most = value_of(&held[j]) > most ? value_of(&held[j]) : most;
        double part = full ? (double)most / (double)full : 0;
        int bar = most ? 1 + (int)(part * 7.999) : 0;
        fputs(bars[bar > 8 ? 8 : bar], stdout);
    }
}

static void age_text(uint64_t ms, char *ret, size_t size)
{
    uint64_t seconds = ms / 1000;

    if (seconds < 120)
        snprintf(ret, size, "%llu s", (unsigned long long)seconds);
    else if (seconds < 7200)
        snprintf(ret, size, "%llu min", (unsigned long long)seconds / 60);
    else
        snprintf(ret, size, "%llu h", (unsigned long long)seconds / 3600);
}

static unsigned percent(uint64_t part, uint64_t whole)
{
    return whole ? (unsigned)((double)part / (double)whole * 100 + 0.5) : 0;
}

/** Its name, four sizes, and what it held. @full: the top of the graph. */
static void print_line(const msgpack_object *one, int width, const char *const fields[4],
                       uint64_t full)
{
    char name[PROTOCOL_WORD_MAX], text[32];

    field_text(one, "name", name, sizeof(name));
    printf("%-*s", width, name);
    for (size_t i = 0; i < 4; i++) {
        bytes_text(field_u64(one, fields[i], 0), text, sizeof(text));
        printf("%9s", text);
    }
    putchar(' ');
    draw(one, full);
    age_text(field_u64(one, "age_ms", 0), text, sizeof(text));
    printf(" %s\n", text);
}

/** What it wanted, wherever that was, and how much of the device that would be. */
static void print_needed(const msgpack_object *one)
{
    uint64_t wanted = field_u64(one, "wanted_peak_bytes", 0);
    char device[PROTOCOL_WORD_MAX], text[32];

    field_string(one, "device", device, sizeof(device));
    bytes_text(wanted, text, sizeof(text));
    printf("needed at most %s", text);
    if (device[0] && field_u64(one, "capacity_bytes", 0))
        printf(", %u%% of %s", percent(wanted, field_u64(one, "capacity_bytes", 0)), device);
}

static void print_app(const msgpack_object *app, int width)
{
    static const char *const fields[] = {"granted_bytes", "device_bytes", "spilled_bytes",
                                         "peak_bytes"};
    uint64_t capacity = field_u64(app, "capacity_bytes", 0), waits = field_u64(app, "waits", 0);

    print_line(app, width, fields, capacity ? capacity : field_u64(app, "peak_bytes", 0));
    printf("%*s", width, "");
    print_needed(app);
    if (waits) {
        char waited[32];
        output_seconds(field_u64(app, "waited_ms", 0) * 1000000, waited, sizeof(waited));
        printf("; asked for memory %llu time%s, %s in all, refused %llu", (unsigned long long)waits,
               waits == 1 ? "" : "s", waited, (unsigned long long)field_u64(app, "refusals", 0));
    }
    putchar('\n');
}

static void print_ended(const msgpack_object *one, int width)
{
    char name[PROTOCOL_WORD_MAX];

    field_text(one, "name", name, sizeof(name));
    printf("%-*s ended; ", width, name);
    print_needed(one);
    putchar('\n');
}

/** Of the longest name in the list, and the space behind it. */
static int width_of(const msgpack_object *root, const char *key, int width)
{
    const msgpack_object *items;
    size_t count = field_array(root, key, &items);
    char name[PROTOCOL_WORD_MAX];

    for (size_t i = 0; i < count; i++) {
        field_string(&items[i], "name", name, sizeof(name));
        int length = (int)strlen(name) + 1;
        width = length > width ? length : width;
    }
    return width;
}

static int print_report(const msgpack_object *root)
{
    static const char *const fields[] = {"capacity_bytes", "granted_bytes", "held_bytes",
                                         "held_peak_bytes"};
    const msgpack_object *items;
    size_t count = field_array(root, "devices", &items);
    int width = width_of(root, "devices", 8);

    width = width_of(root, "ended", width_of(root, "apps", width));
    if (count) {
        printf("%-*s%9s%9s%9s%9s %s\n", width, "DEVICE", "CAPACITY", "GRANTED", "HELD", "PEAK",
               "HELD OVER TIME");
    }
    for (size_t i = 0; i < count; i++)
        print_line(&items[i], width, fields, field_u64(&items[i], "capacity_bytes", 0));
    bool devices = count > 0;
    count = field_array(root, "apps", &items);
    if (count) {
        printf("%s%-*s%9s%9s%9s%9s %s\n", devices ? "\n" : "", width, "PROGRAM", "GRANTED", "HELD",
               "SPILLED", "PEAK", "HELD OVER TIME");
    }
    for (size_t i = count; i-- > 0;)
        print_app(&items[i], width);
    count = field_array(root, "ended", &items);
    if (count)
        putchar('\n');
    for (size_t i = 0; i < count; i++)
        print_ended(&items[i], width);
    return output_done();
}

static int run(struct call *call)
{
    static const struct question question = {MSG_USE, "report use", false, REPORT_MS};
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_USE);
    frame_string(&frame, "what", call->count ? call->words[0] : "");
    ask_put_environment(&frame);
    int status = ask(&call->output, &question, &frame, &message);
    if (status)
        return status;
    if (call->output.json) {
        json_t *object = output_object(&call->output, STATUS_DONE);
        output_add_lists(object, &message.root, "devices apps ended");
        status = output_print(object, STATUS_DONE);
    } else {
        status = print_report(&message.root);
    }
    message_finish(&message);
    return status;
}

const struct verb verb_report = {
    .name = "report",
    .arguments = "[DEVICE|APP]",
    .summary = "Show use of device memory over time.",
    .text = "It is what was granted, what is held, the most that ever was, and how much of its "
            "device each program wanted at most, held there or not, also those that ended.",
    .run = run,
};
