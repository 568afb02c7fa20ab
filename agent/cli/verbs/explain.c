#include <inttypes.h>
#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"

#define EXPLAIN_MS  10000
#define MOVES_SHOWN 5 /* All are in --json. */

static void explain_print_line(const char *text)
{
    fputs("  ", stdout);
    output_wrapped(stdout, OUTPUT_COLUMNS, 2, 4, text);
}

/** Print the devices that share the program's launches, and how much work they did. */
static void explain_print_spread(const json_t *answer)
{
    const json_t *spread = json_object_get(answer, "spread");
    struct words words = {0};

    if (json_array_size(spread) == 0)
        return;
    words_add(&words, "its long launches are done on ");
    words_add_names(&words, spread, ", ");
    words_add(&words, " too");
    if (!member_number(answer, "slice_ns") && strcmp(member_text(answer, "state"), "starting") != 0)
        words_add(&words, ", but they are not given in pieces (reseat run --slice)");
    else
        words_add(&words, ": %llu so far, %llu work-items there",
                  member_number(answer, "spread_launches"), member_number(answer, "spread_items"));
    explain_print_line(words.text);
}

/**
 * Print how the program is protected against the loss of its device, and how the last loss ended.
 */
static void explain_print_protection(const json_t *answer)
{
    const json_t *protection = json_object_get(answer, "protection");
    const json_t *loss = json_object_get(answer, "loss");
    uint64_t age = member_number(protection, "snapshot_age_ns"),
             all = member_number(protection, "protected_ns"),
             differences = member_number(protection, "differences");
    char ago[32], bytes[32], stop[32];
    struct words words = {0}, lost = {0};

    if (!member_bool(protection, "on") && strcmp(member_text(protection, "protect"), "off") != 0) {
        words_add(&words, "protection was asked for; the program has not confirmed it yet");
    } else if (!member_bool(protection, "on")) {
        words_add(&words, "it is not protected: it would lose with its device what only that has "
                          "(reseat protect)");
    } else if (member_text(protection, "broken")[0]) {
        words_add(&words, "protection is on, but the program is not protected now: %s",
                  member_text(protection, "broken"));
    } else if (!age) {
        words_add(&words, "it is protected; it has no data to copy yet");
    } else {
        output_seconds(age, ago, sizeof(ago));
        bytes_text(member_number(protection, "snapshot_bytes"), bytes, sizeof(bytes));
        output_seconds(member_number(protection, "snapshot_downtime_ns"), stop, sizeof(stop));
        words_add(&words,
                  "it is protected: the last copy, of %s, was made %s ago and paused it for %s; "
                  "copies so far: %llu, paused for %.2f%% of its time",
                  bytes, ago, stop, member_number(protection, "snapshots"),
                  all ? 100.0 * (double)member_number(protection, "paused_ns") / (double)all : 0.0);
    }
    if (member_number(protection, "put_off_ns")) {
        output_seconds(member_number(protection, "put_off_ns"), stop, sizeof(stop));
        words_add(&words,
                  "; the next copy is put off: the program writes so much that it would be paused "
                  "for %s",
                  stop);
    }
    explain_print_line(words.text);
    if (!member_number(loss, "count"))
        return;
    output_seconds(member_number(loss, "age_ns"), ago, sizeof(ago));
    words_add(&lost, "it lost %s %s ago: %s", member_text(loss, "device"), ago,
              member_text(loss, "reason"));
    if (member_text(protection, "recovery")[0])
        words_add(&lost, "; %s", member_text(protection, "recovery"));
    if (member_number(protection, "recoveries"))
        words_add(&lost, "; it was recovered on another device %llu time%s",
                  member_number(protection, "recoveries"),
                  member_number(protection, "recoveries") == 1 ? "" : "s");
    if (member_number(protection, "recoveries") && differences)
        words_add(&lost,
                  ", and %" PRIu64 " of its reads gave other bytes when done again: results "
                  "may differ from a run without losses",
                  differences);
    else if (member_number(protection, "recoveries"))
        words_add(&lost, "; all reads that were repeated returned the same bytes");
    explain_print_line(lost.text);
}

/** Print the state of periodic images. */
static void explain_print_images(const json_t *answer)
{
    const json_t *images = json_object_get(answer, "checkpoints");
    uint64_t every = member_number(images, "every_ms");
    struct words words = {0};
    char age[32];

    if (!every)
        return;
    output_seconds(member_number(images, "age_ms") * 1000000, age, sizeof(age));
    words_add(&words, "an image of it is made every %.3g s in %s; the last is %s, made %s ago",
              (double)every / 1e3, member_text(images, "folder"),
              member_text(images, "image")[0] ? member_text(images, "image") : "one before", age);
    if (member_text(images, "problem")[0])
        words_add(&words, "; none was since: %s", member_text(images, "problem"));
    explain_print_line(words.text);
}

/** Print whether the program may run. */
static void explain_print_right(const json_t *answer)
{
    const char *problem = member_text(answer, "right_problem");
    struct words words = {0};

    if (member_bool(answer, "fenced"))
        words_add(&words, "it is fenced, so that it does not run twice, and its calls wait: %s",
                  problem);
    else if (problem[0])
        words_add(&words, "%s; when its lease expires, its calls will wait", problem);
    if (words.text[0])
        explain_print_line(words.text);
}

/** Print the number of moves by the policy, and the reasons of the last ones. */
static void explain_print_moves(const json_t *answer)
{
    const json_t *moves = json_object_get(answer, "policy_moves"), *item;
    uint64_t count = member_number(answer, "policy_moved");
    size_t i;

    if (!count)
        return;
    printf("  the policy moved it %" PRIu64 " time%s%s\n", count, count == 1 ? ":" : "s",
           count == 1             ? ""
           : count <= MOVES_SHOWN ? ":"
                                  : "; the last of these moves:");
    json_array_foreach(moves, i, item)
    {
        struct words words = {0};
        char ago[32];

        if (i == MOVES_SHOWN)
            break;
        output_seconds(member_number(item, "age_ms") * 1000000, ago, sizeof(ago));
        words_add(&words, "%s ago from %s to %s: %s", ago,
                  member_text(item, "from")[0] ? member_text(item, "from") : "host memory",
                  member_text(item, "to"), member_text(item, "reason"));
        explain_print_line(words.text);
    }
}

static void explain_print_explanation(const json_t *answer)
{
    const json_t *devices = json_object_get(answer, "devices"), *item, *line;
    bool named = member_bool(answer, "named");
    char name[OUTPUT_PROGRAM_MAX];
    size_t i, j;

    struct words moving = {0};
    output_moving(json_object_get(answer, "move"), &moving);
    printf("%s is %s\n", output_program(answer, name),
           moving.text[0] ? moving.text : member_text(answer, "state"));
    json_array_foreach(devices, i, item)
    {
        const char *device = member_text(item, "device");
        if (json_array_size(devices) > 1 || named) {
            printf("virtual device %llu, %s:\n", member_number(item, "vdev"),
                   device[0] ? device : "on none");
        }
        json_array_foreach(json_object_get(item, "lines"), j, line)
        {
            explain_print_line(json_string_value(line));
        }
    }
    json_array_foreach(json_object_get(answer, "refused_by"), i, item)
    {
        struct words words = {0};
        words_add(&words, "%s %s: %s", member_text(item, "device"),
                  member_bool(item, "for_now") ? "failed a moment ago" : "would not run it",
                  member_text(item, "reason"));
        explain_print_line(words.text);
    }
    explain_print_right(answer);
    explain_print_protection(answer);
    explain_print_images(answer);
    explain_print_spread(answer);
    json_array_foreach(json_object_get(answer, "whole"), i, item)
    {
        struct words words = {0};
        words_add(&words, "launches of kernel %s are not given in pieces: %s",
                  member_text(item, "kernel"), member_text(item, "reason"));
        explain_print_line(words.text);
    }
    explain_print_moves(answer);
    if (member_text(answer, "why")[0]) {
        struct words words = {0};
        words_add(&words, "last decision: %s", member_text(answer, "why"));
        explain_print_line(words.text);
    }
}

static int explain_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_EXPLAIN, .what = "explain a program", .timeout_ms = EXPLAIN_MS};
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
    explain_print_explanation(answer);
    json_decref(answer);
    return output_done();
}

const struct verb verb_explain = {
    .name = "explain",
    .arguments = "APP[:N]",
    .summary = "Say why a program is where it is, and what would change that.",
    .users = true,
    .run = explain_run,
};
