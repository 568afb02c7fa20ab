#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/show/links.h"
#include "agent/cli/show/presented.h"
#include "agent/cli/verb.h"

#define LIST_MS 60000

struct devices {
    bool presented, links, measure;
    uint64_t timeout_ms;
};

static const struct verb_option devices_options[] = {
    {"presented", NULL,
     "Say what programs are told of their device instead, and why: for each answer the rule and "
     "what each device says itself; for each extension, feature of OpenCL C and list of image "
     "formats what is left out, and because of which device, or why it cannot be carried. It holds "
     "for the portable profile and a program that starts where programs start by default.",
     OPTION_VALUE(struct devices, presented)},
    {"links", NULL,
     "Show instead what was measured of the links to devices, from and to registered memory and "
     "plain memory, and how 1 MiB, 64 MiB and 1 GiB go each way, and in which time: the chunks, "
     "how "
     "many of them, and the threads that copy; or straight from and to the program's memory.",
     OPTION_VALUE(struct devices, links)},
    {"measure", NULL,
     "With --links: measure first, with a process for each device. Programs use what was measured "
     "for a week.",
     OPTION_VALUE(struct devices, measure)},
    {"timeout", "SECONDS", "For each device that is measured. Default: 60.",
     OPTION_SECONDS(struct devices, timeout_ms, 3, 1000, 3600000), .initial = 60000},
    {NULL}};

/** The state to show: that of a drain, if the device is up. */
static const char *devices_state_of(const json_t *device)
{
    const char *state = member_text(device, "state");

    if (strcmp(state, "up") != 0)
        return state;
    return member_bool(device, "drained")    ? "drained"
           : member_bool(device, "draining") ? "draining"
                                             : "up";
}

/** Power drawn and cap; "" if neither is known. */
static void devices_power(const json_t *device, char *ret_text, size_t size)
{
    double drawn = (double)member_number(device, "power_mw") / 1000;
    uint64_t cap_mw = member_number(device, "power_cap_mw");
    bool read = member_bool(device, "power_read");

    ret_text[0] = '\0';
    const char *how = member_bool(device, "power_model") ? " (model)" : "";

    if (read && cap_mw)
        snprintf(ret_text, size, "%.0f of %.0f W%s", drawn, (double)cap_mw / 1000, how);
    else if (read)
        snprintf(ret_text, size, "%.0f W%s", drawn, how);
    else if (cap_mw)
        snprintf(ret_text, size, "? of %.0f W", (double)cap_mw / 1000);
}

static int devices_print_devices(const json_t *devices)
{
    enum { HOST = 9, LINK, STATE, BY, UUID, POWER };
    static const struct table_column columns[] = {
        {"NAME", "name"},
        {"KIND", "kind"},
        {"DEVICE", "device", .wrap = true},
        {"VENDOR", "vendor", .wrap = true, .optional = true},
        {"UNITS", "compute_units", TABLE_NUMBER, true},
        {"MEMORY", "memory_bytes", TABLE_BYTES, true},
        {"IN USE", "used_bytes", TABLE_BYTES, true},
        {"GRANTED", "granted_bytes", TABLE_BYTES, true},
        {"LIMIT", "capacity_bytes", TABLE_LIMIT, true},
        {"HOST", .optional = true},
        {"LINK"},
        {"STATE"},
        {"BY"},
        {"UUID/PCI"},
        {"POWER", .right = true}, /* Left out if no device's power is known. */
    };
    char power[64];
    const json_t *device;
    bool powered = false;
    size_t i;

    json_array_foreach(devices, i, device)
    {
        devices_power(device, power, sizeof(power));
        powered = powered || power[0];
    }
    struct table *table = table_create(columns, powered ? ARRAY_SIZE(columns) : POWER);

    json_array_foreach(devices, i, device)
    {
        struct words by = {0};
        const char *pci = member_text(device, "pci"), *host = member_text(device, "host");
        char link[64];
        table_add(table, device);
        output_link(device, link, sizeof(link));
        table_put(table, HOST, host[0] ? host : "here");
        table_put(table, LINK, link);
        table_put(table, STATE, devices_state_of(device));
        output_add_users(device, &by);
        table_put(table, BY, by.text);
        table_put(table, UUID, pci[0] ? pci : member_text(device, "uuid"));
        if (powered) {
            devices_power(device, power, sizeof(power));
            table_put(table, POWER, power);
        }
    }
    return table_print(table);
}

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
        return output_print_members(&call->output, answer, "devices[]");
    if (!json_array_size(devices)) {
        return output_fail(&call->output, ERR_NO_DEVICE,
                           "no OpenCL driver shows a device; install one, then see reseat doctor");
    }
    int status = devices_print_devices(devices);
    if (problem[0])
        output_note(&call->output, "the list may be old: %s", problem);
    return status;
}

static int devices_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_DEVICES, .what = "list devices", .launch = true, .timeout_ms = LIST_MS};
    const struct devices *wanted = call->options;
    struct frame frame;
    json_t *answer;

    if (wanted->measure && !wanted->links)
        return output_usage(&call->output, "--measure goes with --links");
    if (wanted->presented && wanted->links)
        return output_usage(&call->output, "--presented and --links are two different questions");
    frame_init(&frame, MSG_DEVICES);
    ask_put_environment(&frame);
    int status = ask(&call->output, &question, &frame, &answer);
    if (!status) {
        status = devices_print(call, answer);
        json_decref(answer);
    }
    return status;
}

const struct verb verb_devices = {
    .name = "devices",
    .summary = "List every device of every OpenCL driver, what is in use of it, and by whom.",
    .options = devices_options,
    .size = sizeof(struct devices),
    .users = true,
    .run = devices_run,
};
