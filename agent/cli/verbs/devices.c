#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/show/reports.h"
#include "agent/cli/verb.h"

struct devices {
    bool presented, links, measure;
    uint64_t timeout_ms;
};

static const struct option_row devices_options[] = {
    {"presented", NULL,
     "Show what programs are told of their device instead, and why: for each answer the rule and "
     "each device's own value; for extensions, features of OpenCL C and image formats what is left "
     "out, and because of which device. For the portable profile and a program that starts on the "
     "default device.",
     OPTION_VALUE(struct devices, presented)},
    {"links", NULL,
     "Show the measured speed of the links to devices instead, from and to registered and ordinary "
     "memory, and for 1 MiB, 64 MiB and 1 GiB how they would be copied: straight, or in how many "
     "chunks by how many threads, and the predicted time.",
     OPTION_VALUE(struct devices, links)},
    {"measure", NULL,
     "With --links: measure now, in a process for each device. Programs use the result for a week.",
     OPTION_VALUE(struct devices, measure)},
    {"timeout", "TIME", "With --measure: limit for each device. Default: 60.",
     OPTION_SECONDS(struct devices, timeout_ms, 3, 1000, 3600000), .initial = 60000},
    OPTION_VIEW,
    {NULL}};

/** Append the limit of the memory, or that the device takes no programs. */
static void devices_say_limit(const json_t *device, struct words *words)
{
    if (member_bool(device, "drained"))
        words_add(words, "drained");
    else if (member_bool(device, "cordoned"))
        words_add(words, "cordoned");
    else if (member_bool(device, "draining"))
        words_say(words, device, "draining in {drains_in_ns:seconds}");
    else if (member_bool(device, "limited"))
        words_say(words, device, "{capacity_bytes}");
}

/** Append the state: that of a drain, if the device is up. */
static void devices_say_state(const json_t *device, struct words *words)
{
    const char *state = member_text(device, "state");
    bool up = strcmp(state, "up") == 0;

    words_add(words, "%s",
              up && member_bool(device, "drained")    ? "drained"
              : up && member_bool(device, "draining") ? "draining"
              : up && member_bool(device, "cordoned") ? "cordoned"
                                                      : state);
}

/** Append the power drawn and the cap, where they are known. */
static void devices_say_power(const json_t *device, struct words *words)
{
    double drawn = (double)member_number(device, "power_mw") / 1000;
    double cap = (double)member_number(device, "power_cap_mw") / 1000;
    bool read = member_bool(device, "power_read");

    if (read)
        words_add(words, "%.0f", drawn);
    else if (cap > 0)
        words_add(words, "?");
    if (cap > 0)
        words_add(words, "/%.0f", cap);
    if (words->used)
        words_add(words, member_bool(device, "power_model") ? "W(model)" : "W");
}

const struct table_column devices_columns[] = {
    {"NAME", "{name}"},
    {"KIND", "{kind}"},
    {"DEVICE", "{device}", TABLE_WRAP},
    {"VENDOR", "{vendor}", TABLE_WRAP | TABLE_OPTIONAL},
    {"UNITS", "{compute_units}", TABLE_RIGHT},
    {"MEMORY", "{memory_bytes}", TABLE_RIGHT},
    {"IN USE", "{used_bytes}", TABLE_RIGHT},
    {"GRANTED", "{granted_bytes}", TABLE_RIGHT},
    {"WANTED", "[{wanted_bytes}]", TABLE_RIGHT | TABLE_OPTIONAL},
    {"BUSY", "[{!busy_metered}>=]{busy_permil}", TABLE_RIGHT | TABLE_OPTIONAL},
    {"FROM", "[{from_device_bytes_s}]", TABLE_RIGHT | TABLE_OPTIONAL},
    {"TO", "[{to_device_bytes_s}]", TABLE_RIGHT | TABLE_OPTIONAL},
    {"TEMP", "[{temperature_c} C]", TABLE_RIGHT | TABLE_OPTIONAL},
    {"CLOCK", "[{clock_mhz} MHz]", TABLE_RIGHT | TABLE_OPTIONAL},
    {"LIMIT", .say = devices_say_limit, .flags = TABLE_RIGHT},
    {"HOST", "{host}[{!host}here]", TABLE_OPTIONAL},
    {"LINK", .say = say_link},
    {"STATE", .say = devices_say_state},
    {"BY", .say = say_users, .flags = TABLE_WRAP},
    {"UUID/PCI", "{pci}[{!pci}{uuid}]", TABLE_OPTIONAL},
    {"POWER", .say = devices_say_power, .flags = TABLE_RIGHT},
    {NULL},
};

static int devices_print(const struct call *call, const json_t *answer)
{
    const struct devices *wanted = call->options;
    const char *problem = member_text(answer, "problem");
    const json_t *devices = json_object_get(answer, "devices");

    if (problem[0] && !json_array_size(devices))
        return output_fail(&call->output, ERR_FAILED, "%s; see reseat doctor", problem);
    if (wanted->presented)
        return presented_print(&call->output, member_text(answer, "inventory"));
    if (wanted->links && json_array_size(devices))
        return links_print(&call->output, member_text(answer, "inventory"),
                           wanted->measure ? wanted->timeout_ms : 0);
    if (call->output.json)
        return output_result(&call->output, answer, NULL, NULL);
    if (!json_array_size(devices)) {
        return output_fail(&call->output, ERR_NO_DEVICE,
                           "no OpenCL driver shows a device; install one, then see reseat doctor");
    }
    int status = output_table(&call->output, devices, devices_columns, NULL);
    if (problem[0])
        output_note(&call->output, "the list may be old: %s", problem);
    return status;
}

static int devices_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_DEVICES, .what = "list devices", .launch = true, .lists = true};
    const struct devices *wanted = call->options;
    struct frame frame;
    json_auto_t *answer = NULL;

    if (wanted->measure && !wanted->links)
        return output_usage(&call->output, "--measure goes with --links");
    if (wanted->presented && wanted->links)
        return output_usage(&call->output, "--presented and --links are two different questions");
    frame_init(&frame, MSG_DEVICES);
    ask_put_environment(&frame);
    int status = ask(&call->output, &question, &frame, &answer);
    return status ? status : devices_print(call, answer);
}

const struct verb verb_devices = {
    .name = "devices",
    .summary = "List the devices of all OpenCL drivers, their use, and their users.",
    .members = "devices[]",
    .options = devices_options,
    .size = sizeof(struct devices),
    .users = true,
    .run = devices_run,
};
