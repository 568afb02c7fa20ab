#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"

#define MOVES_SHOWN 5 /* All are in --json. */

static void explain_print_line(const char *text)
{
    if (text[0]) {
        fputs("  ", stdout);
        say_wrapped(stdout, 2, 4, text);
    }
}

/** Print a template as a line, if @object has what it is about. */
static void explain_say(const json_t *object, const char *template)
{
    struct words words = {.used = 0};

    words_say(&words, object, template);
    explain_print_line(words.text);
}

/** Print how the program is protected against the loss of its device. */
static void explain_print_protection(const json_t *answer)
{
    const json_t *protection = json_object_get(answer, "protection");
    uint64_t all = member_number(protection, "protected_ns");
    struct words words = {.used = 0};

    if (!member_bool(protection, "on") && strcmp(member_text(protection, "protect"), "off") != 0) {
        words_add(&words, "protection was asked for; the program has not confirmed it yet");
    } else if (!member_bool(protection, "on")) {
        words_add(&words, "it is not protected: it would lose with its device what only that has "
                          "(reseat protect)");
    } else if (member_text(protection, "broken")[0]) {
        words_say(&words, protection,
                  "protection is on, but the program is not protected now: {broken}");
    } else if (!member_number(protection, "snapshot_age_ns")) {
        words_add(&words, "it is protected; it has no data to copy yet");
    } else {
        words_say(&words, protection,
                  "it is protected: the last copy, of {snapshot_bytes}, was made {snapshot_age_ns} "
                  "ago and paused it for {snapshot_downtime_ns}; copies so far: {snapshots}");
        words_add(&words, ", paused for %.2f%% of its time",
                  all ? 100.0 * (double)member_number(protection, "paused_ns") / (double)all : 0.0);
        words_say(
            &words, protection,
            "[; a copy is due every {interval_ns}][{?fault_ns}, as devices are expected to be "
            "lost every {fault_ns} and a copy delays the program by {cost_ns}]");
    }
    words_say(&words, protection,
              "[; the next copy is put off: the program writes so much that it would be paused for "
              "{put_off_ns}]");
    explain_print_line(words.text);
}

/** Print how the last loss of a device ended. */
static void explain_print_loss(const json_t *answer)
{
    const json_t *loss = json_object_get(answer, "loss");
    struct words words = {.used = 0};

    if (!member_number(loss, "count"))
        return;
    words_say(&words, loss, "it lost {device} {age_ns} ago: {reason}");
    words_say(
        &words, json_object_get(answer, "protection"),
        "[; {recovery}]"
        "[{?recoveries}; it was recovered on another device {recoveries|time|times}]"
        "[{?recoveries}{?differences}, and {differences} of its reads gave other bytes when "
        "done again: results may differ from a run without losses]"
        "[{?recoveries}{!differences}; all reads that were repeated returned the same bytes]");
    explain_print_line(words.text);
}

/** Print the number of moves by the policy, and the reasons of the last ones. */
static void explain_print_moves(const json_t *answer)
{
    const json_t *item;
    size_t i;

    explain_say(answer, member_number(answer, "policy_moved") > MOVES_SHOWN
                            ? "[the policy moved it {policy_moved|time|times}; the last of these "
                              "moves:]"
                            : "[the policy moved it {policy_moved|time|times}:]");
    json_array_foreach(json_object_get(answer, "policy_moves"), i, item)
    {
        if (i < MOVES_SHOWN)
            explain_say(item, "{age_ms} ago from {from:place} to {to}: {reason}");
    }
}

/** Print which part of its devices the program uses, and what it transfers. */
static void explain_print_use(const json_t *answer)
{
    const json_t *use = json_object_get(answer, "use"), *item;
    struct words words = {.used = 0};
    size_t i;

    json_array_foreach(use, i, item)
    {
        words_add(&words, "%s", i ? ", " : "it uses ");
        words_say(&words, item, "{device} for {busy_permil} of the time");
    }
    words_say(&words, answer,
              "[; it reads {from_device_bytes_s} from its device]"
              "[; it writes {to_device_bytes_s} to its device]");
    explain_print_line(words.text + (words.text[0] == ';' ? 2 : 0));
}

static void explain_print_devices(const json_t *answer)
{
    const json_t *devices = json_object_get(answer, "devices"), *item, *line;
    bool headed = json_array_size(devices) > 1 || member_bool(answer, "named");
    size_t i, j;

    json_array_foreach(devices, i, item)
    {
        struct words words = {.used = 0};
        words_say(&words, item, "virtual device {vdev}, {device}[{!device}on none]:");
        if (headed)
            puts(words.text);
        json_array_foreach(json_object_get(item, "lines"), j, line)
        {
            explain_print_line(json_string_value(line));
        }
        /* A suspended program has no device, only the name of its last one. */
        if (json_object_get(item, "busy_permil"))
            explain_say(item, "{device} is busy {busy_permil} of the time, as [{?busy_metered}"
                              "its meter shows][{!busy_metered}its programs know]"
                              "[{?power_read}; it draws {power_mw}][; {temperature_c} C]"
                              "[; {clock_mhz} MHz]");
    }
    explain_print_use(answer);
    json_array_foreach(json_object_get(answer, "refused_by"), i, item)
    {
        explain_say(item, "{device} [{?for_now}failed a moment ago][{!for_now}would not run it]: "
                          "{reason}");
    }
}

/** Print the devices that may run the program's launches in addition to its own. */
static void explain_print_spread(const json_t *answer)
{
    bool whole =
        !member_number(answer, "slice_ns") && strcmp(member_text(answer, "state"), "starting") != 0;
    const json_t *placed = json_object_get(answer, "placed"), *item;
    const char *objective = member_text(answer, "objective");
    struct words words = {.used = 0};
    size_t i;

    if (!objective[0]) {
        explain_say(answer, whole ? "[its long launches are done on {spread} too, but they are not "
                                    "given in pieces (reseat run --slice)]"
                                  : "[{?spread}its long launches are done on {spread} too: "
                                    "{spread_launches} so far, {spread_items} work-items there]");
        explain_say(answer, "[{!spread}{?spread_free}its long launches will be done on free "
                            "devices too; none that it may use is free now]");
        return;
    }
    words_say(&words, answer, "objective {objective}: each launch runs ");
    words_add(&words, "%s",
              strcmp(objective, "energy") == 0 ? "where it takes the least energy"
              : strcmp(objective, "time") != 0
                  ? "where it takes the least energy without ending later"
                  : "where it ends first");
    words_say(&words, answer,
              ", on its own device or on [{spread}][{!spread}no other, as none is allowed (reseat "
              "spread)]; so far ");
    json_array_foreach(placed, i, item)
    {
        words_add(&words, "%s", i ? ", " : "");
        words_say(&words, item, "{launches|launch|launches} on {device}");
    }
    words_say(&words, answer, "[{!placed}none could run elsewhere]");
    explain_print_line(words.text);
    explain_say(answer,
                "[{?placed_by_time}{placed_by_time} of these ran where they end first, because "
                "their energy on these devices is not known]");
    explain_say(answer, "[the last launch that had to stay on its own device: {not_placed}]");
}

static int explain_print(const struct output *output, const json_t *answer)
{
    struct words words = {.used = 0};
    const json_t *item;
    size_t i;

    (void)output;
    words_say(&words, answer, "{name} (pid {pid}) is [{!move}{state}]");
    say_moving(answer, &words);
    puts(words.text);
    explain_print_devices(answer);
    explain_say(answer,
                "[{?fenced}it is fenced, so that it does not run twice, and its calls wait: "
                "{right_problem}][{!fenced}{?right_problem}{right_problem}; when its lease "
                "expires, its calls will wait]");
    explain_print_protection(answer);
    explain_print_loss(answer);
    explain_say(json_object_get(answer, "checkpoints"),
                "[{?every_ms}an image of it is made every {every_ms} in {folder}; the last is "
                "{image}][{?every_ms}{!image}one before][{?every_ms}, made {age_ms} ago]"
                "[{?every_ms}{?problem}; none was since: {problem}]");
    explain_print_spread(answer);
    json_array_foreach(json_object_get(answer, "whole"), i, item)
    {
        explain_say(item, "launches of kernel {kernel} are not given in pieces: {reason}");
    }
    explain_print_moves(answer);
    explain_say(answer, "[last decision: {why}]");
    return output_done();
}

static int explain_run(struct call *call)
{
    static const struct question question = {.type = MSG_EXPLAIN, .what = "explain a program"};
    json_auto_t *answer = NULL, *object = NULL;
    struct frame frame;

    frame_init(&frame, MSG_EXPLAIN);
    frame_string(&frame, "app", call->words[0]);
    int status = ask(&call->output, &question, &frame, &answer);
    if (status)
        return status;
    object = json_pack("{s:O}", "app", answer);
    return call->output.json ? output_result(&call->output, object, NULL, NULL)
                             : explain_print(&call->output, answer);
}

const struct verb verb_explain = {
    .name = "explain",
    .arguments = "APP[:N]",
    .summary = "Explain why a program is where it is, and what would change that.",
    .members = "app",
    .users = true,
    .run = explain_run,
};
