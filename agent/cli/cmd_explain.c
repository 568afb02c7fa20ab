#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"

#define EXPLAIN_MS 10000

static void print_line(const char *text)
{
    fputs("  ", stdout);
    output_wrapped(stdout, OUTPUT_COLUMNS, 2, 4, text);
}

/** Which devices do a part of its launches, and whether that came to anything. */
static void print_spread(const json_t *answer)
{
    const json_t *spread = json_object_get(answer, "spread"), *name;
    struct words words = {0};
    size_t i;

    if (json_array_size(spread) == 0)
        return;
    words_add(&words, "its long launches are done on ");
    json_array_foreach(spread, i, name)
    {
        words_add(&words, "%s%s", i ? ", " : "", json_string_value(name));
    }
    words_add(&words, " too");
    if (!member_number(answer, "slice_ns") && strcmp(member_text(answer, "state"), "starting") != 0)
        words_add(&words, ", but they are not given in pieces (reseat run --slice)");
    else
        words_add(&words, ": %llu so far, %llu work-items there",
                  member_number(answer, "spread_launches"), member_number(answer, "spread_items"));
    print_line(words.text);
}

static void print_explanation(const json_t *answer)
{
    const json_t *devices = json_object_get(answer, "devices"), *item, *line;
    bool named = member_bool(answer, "named");
    char name[OUTPUT_PROGRAM_MAX];
    size_t i, j;

    printf("%s is %s\n", output_program(answer, name), member_text(answer, "state"));
    json_array_foreach(devices, i, item)
    {
        const char *device = member_text(item, "device");
        if (json_array_size(devices) > 1 || named) {
            printf("virtual device %llu, %s:\n", member_number(item, "seat"),
                   device[0] ? device : "on none");
        }
        json_array_foreach(json_object_get(item, "lines"), j, line)
        {
            print_line(json_string_value(line));
        }
    }
    json_array_foreach(json_object_get(answer, "refused_by"), i, item)
    {
        struct words words = {0};
        words_add(&words, "%s %s: %s", member_text(item, "device"),
                  member_bool(item, "for_now") ? "failed a moment ago" : "would not run it",
                  member_text(item, "reason"));
        print_line(words.text);
    }
    print_spread(answer);
    json_array_foreach(json_object_get(answer, "whole"), i, item)
    {
        struct words words = {0};
        words_add(&words, "launches of kernel %s are not given in pieces: %s",
                  member_text(item, "kernel"), member_text(item, "reason"));
        print_line(words.text);
    }
    if (member_text(answer, "why")[0]) {
        struct words words = {0};
        words_add(&words, "last decision: %s", member_text(answer, "why"));
        print_line(words.text);
    }
}

static int run(struct call *call)
{
    static const struct question question = {MSG_EXPLAIN, "explain a program", false, EXPLAIN_MS};
    struct frame frame;
    json_t *answer;

    frame_init(&frame, MSG_EXPLAIN);
    frame_string(&frame, "app", call->words[0]);
    int status = ask(&call->output, &question, &frame, &answer);
    if (status)
        return status;
    if (call->output.json) {
        json_t *object = output_object(&call->output, STATUS_DONE);
        json_object_set_new(object, "app", answer);
        return output_print(object, STATUS_DONE);
    }
    print_explanation(answer);
    json_decref(answer);
    return output_done();
}

const struct verb verb_explain = {
    .name = "explain",
    .arguments = "APP[:N]",
    .summary = "Say why a program is where it is, and what would change that.",
    .run = run,
};
