#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"
#include "agent/protocol/common_messages.h"
#include "state/base/cleanup.h"
#include "state/base/files/file.h"

#define ID_DIGITS     (COST_ID_SIZE - 1)
#define FILE_SIZE_MAX (64u << 20)

struct profile {
    const char *export_to, *import_from;
};

static const struct option_row profile_options[] = {
    {"export", "FILE", "Write all that is known of them to FILE, as JSON.",
     OPTION_VALUE(struct profile, export_to)},
    {"import", "FILE",
     "Add what another agent exported, as if it had been measured here. A file with an error "
     "changes nothing.",
     OPTION_VALUE(struct profile, import_from)},
    {NULL}};

static void profile_say_error(const json_t *cost, struct words *words)
{
    words_add(words, "%.1f%%", (double)member_number(cost, "error_permil") / 10);
}

/* The energy of a launch, from the power that it draws above the idle device. */
static void profile_say_energy(const json_t *cost, struct words *words)
{
    double mw = (double)member_number(cost, "power_mw"), ns = (double)member_number(cost, "ns");

    if (member_number(cost, "power_samples_permil"))
        words_add(words, "%.3g J", mw * ns / 1e12);
}

static int profile_print(const struct output *output, const json_t *answer)
{
    static const struct table_column columns[] = {
        {"KERNEL", "{kernel}", TABLE_WRAP},
        {"DEVICE", "{device}"},
        {"WORK-ITEMS", "{items}", TABLE_RIGHT},
        {"TIME", "{ns}", TABLE_RIGHT},
        {"ERROR", .say = profile_say_error, .flags = TABLE_RIGHT},
        {"POWER",
         "[{?power_samples_permil}{power_mw}][{?power_samples_permil}{?power_model} (model)]",
         TABLE_RIGHT | TABLE_OPTIONAL},
        {"ENERGY", .say = profile_say_energy, .flags = TABLE_RIGHT | TABLE_OPTIONAL},
        {NULL},
    };
    const json_t *costs = json_object_get(answer, "costs");

    if (!json_array_size(costs)) {
        output_note(output, "no launch was measured yet; those of programs with one queue are, "
                            "while --slice is not 0");
        return output_done();
    }
    int status = table_print_list(costs, columns);
    if (member_bool(answer, "more"))
        output_note(output, "there are more; name a program, a kernel or a device");
    return status;
}

/* ---- export ---- */

/* An existing file is unchanged on failure. A device or a FIFO is never replaced by a file. */
static int profile_write(const struct call *call, const char *path, const json_t *object)
{
    CLEANUP(cleanup_free) char *text = json_dumps(object, JSON_INDENT(1));
    struct stat there;

    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return output_fail(&call->output, ERR_FAILED, "%s is not a regular file", path);
    int error = text ? file_replace_path(path, text, strlen(text)) : -ENOMEM;
    return error ? output_fail(&call->output, ERR_FAILED, "%s: %s", path, strerror(-error)) : 0;
}

static int profile_export(const struct call *call, const char *path)
{
    static const struct question question = {.type = MSG_PROFILE,
                                             .what = "show what launches cost"};
    json_auto_t *object = output_object(&call->output, STATUS_DONE), *costs = json_array();
    uint64_t next = 0;
    bool more = object && costs;
    int status = more ? 0 : output_fail(&call->output, ERR_FAILED, "there is not enough memory");

    while (!status && more) {
        json_auto_t *answer = NULL;
        struct frame frame;
        frame_init(&frame, MSG_PROFILE);
        frame_string(&frame, "what", call->count ? call->words[0] : "");
        frame_u64(&frame, "skip", next);
        status = ask(&call->output, &question, &frame, &answer);
        if (status)
            break;
        uint64_t before = next;
        json_array_extend(costs, json_object_get(answer, "costs"));
        next = member_number(answer, "next");
        more = member_bool(answer, "more") && next > before;
    }
    if (!status && json_object_set(object, "costs", costs) == 0)
        status = profile_write(call, path, object);
    if (status)
        return status;
    json_auto_t *answer = json_pack("{s:I, s:o}", "exported", (json_int_t)json_array_size(costs),
                                    "file", output_text(path));
    return output_say(&call->output, answer, "{exported|entry|entries} in {file}");
}

/* ---- import ---- */

static const struct {
    const char *name;
    size_t offset;
} profile_numbers[] = {
    {"items", offsetof(struct cost_record, items)},
    {"ns", offsetof(struct cost_record, ns)},
    {"samples_permil", offsetof(struct cost_record, samples_k)},
    {"spread_permil", offsetof(struct cost_record, spread_k)},
    {"power_mw", offsetof(struct cost_record, power_mw)},
    {"power_samples_permil", offsetof(struct cost_record, power_samples_k)},
    {"power_spread_permil", offsetof(struct cost_record, power_spread_k)},
};

/* Read one imported record. Returns NULL, or what is wrong with it. */
static const char *profile_read(const json_t *cost, struct cost_line *ret_line)
{
    const char *id = member_text(cost, "id"), *name = member_text(cost, "kernel");
    struct cost_line line = {.has_device = true};
    struct costs costs;

    if (strlen(id) != ID_DIGITS || strspn(id, "0123456789abcdef") != ID_DIGITS)
        return "\"id\" is not 32 hexadecimal digits";
    if (!name[0])
        return "\"kernel\" is missing";
    if (device_key_parse(member_text(cost, "key"), &line.device))
        return "\"key\" is no key of a device";
    for (size_t i = 0; i < ARRAY_SIZE(profile_numbers); i++) {
        const json_t *number = json_object_get(cost, profile_numbers[i].name);
        if (number && (!json_is_integer(number) || json_integer_value(number) < 0))
            return "a number is negative, or not a whole one";
        *(uint64_t *)(void *)((char *)&line.record + profile_numbers[i].offset) =
            member_number(cost, profile_numbers[i].name);
    }
    if (!costs_read_record(&line.record, &costs))
        return "a number is missing or out of range";
    strcpy(line.id, id);
    snprintf(line.name, sizeof(line.name), "%s", name);
    *ret_line = line;
    return NULL;
}

static int profile_check(const struct call *call, const char *path, const json_t *costs)
{
    struct cost_line line;
    const json_t *cost;
    size_t i;

    if (!json_array_size(costs))
        return output_fail(&call->output, ERR_FAILED, "%s: there are no \"costs\" in it", path);
    json_array_foreach(costs, i, cost)
    {
        const char *fault = profile_read(cost, &line);
        if (fault)
            return output_fail(&call->output, ERR_FAILED, "%s: entry %zu: %s; nothing is imported",
                               path, i + 1, fault);
    }
    return 0;
}

static int profile_send(const struct call *call, const json_t *costs, size_t *ret_added,
                        uint64_t *ret_kept)
{
    static const struct question question = {
        .type = MSG_IMPORT, .what = "import costs", .launch = true};
    size_t count = json_array_size(costs);
    int status = 0;

    *ret_added = 0;
    for (size_t from = 0; !status && from < count; from += PROTOCOL_COSTS_MAX) {
        json_auto_t *answer = NULL;
        struct cost_line line;
        struct frame frame;
        frame_init(&frame, MSG_IMPORT);
        frame_array(&frame, "costs");
        for (size_t i = from; i < count && i < from + PROTOCOL_COSTS_MAX; i++) {
            if (profile_read(json_array_get(costs, i), &line))
                continue; /* profile_check() found none such. */
            frame_map(&frame, NULL);
            put_cost(&frame, &line);
            frame_end(&frame);
        }
        frame_end(&frame);
        status = ask(&call->output, &question, &frame, &answer);
        *ret_added += member_number(answer, "added");
        *ret_kept = member_number(answer, "kept");
    }
    return status;
}

static json_t *profile_load(const char *path, json_error_t *ret_error)
{
    CLEANUP(cleanup_free) char *text = NULL;
    size_t size;
    int error = paths_read(path, FILE_SIZE_MAX, &text, &size);

    if (!error)
        return json_loadb(text, size, JSON_REJECT_DUPLICATES, ret_error);
    *ret_error = (json_error_t){.line = -1};
    snprintf(ret_error->text, sizeof(ret_error->text), "%s",
             error == -EFBIG    ? "longer than 64 MiB"
             : error == -EINVAL ? "not a regular file"
                                : strerror(-error));
    return NULL;
}

static int profile_import(const struct call *call, const char *path)
{
    json_error_t error;
    json_auto_t *object = profile_load(path, &error);
    size_t added = 0;
    uint64_t kept = 0;

    if (!object && error.line >= 0)
        return output_fail(&call->output, ERR_FAILED, "%s:%d: %s", path, error.line, error.text);
    if (!object)
        return output_fail(&call->output, ERR_FAILED, "%s: %s", path, error.text);
    const json_t *costs = json_object_get(object, "costs");
    int status = profile_check(call, path, costs);
    if (!status)
        status = profile_send(call, costs, &added, &kept);
    if (status)
        return status;
    json_auto_t *answer = json_pack("{s:I, s:I, s:b}", "added", (json_int_t)added, "kept",
                                    (json_int_t)kept, "full", kept < added);
    return output_say(&call->output, answer,
                      "{added|entry|entries} imported[{?full}; of all entries the {kept} that were "
                      "used last are kept]");
}

static int profile_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_PROFILE, .what = "show what launches cost", .print = profile_print};
    const struct profile *wanted = call->options;
    struct frame frame;

    if (wanted->import_from && (wanted->export_to || call->count))
        return output_usage(&call->output, "--import goes alone");
    if (wanted->import_from)
        return profile_import(call, wanted->import_from);
    if (wanted->export_to)
        return profile_export(call, wanted->export_to);
    frame_init(&frame, MSG_PROFILE);
    frame_string(&frame, "what", call->count ? call->words[0] : "");
    return ask_print(&call->output, &question, &frame);
}

const struct verb verb_profile = {
    .name = "profile",
    .arguments = "[APP|KERNEL|DEVICE]",
    .summary = "Show how long launches of each kernel took on each device.",
    .text = "For each kernel, device and size of launch: the work-items, the mean time and its "
            "possible error, and if known the power above the idle device and the energy. Measured "
            "during ordinary launches of programs with one queue, of kernels that may be split "
            "(reseat run --slice); the policy compares devices by it. Kept for each user in "
            "costs.sqlite, in the agent's state folder.",
    .users = true,
    .members = "costs? more? exported? file? added? kept?",
    .options = profile_options,
    .size = sizeof(struct profile),
    .run = profile_run,
};
