#include "agent/cli/client.h"
#include "agent/cli/select.h"
#include "agent/cli/show/reports.h"

/** Append the devices of the virtual devices, in order, and those that share its long launches. */
static void ps_devices(const json_t *app, struct words *words)
{
    const json_t *vdev;
    size_t i;

    json_array_foreach(json_object_get(app, "vdevs"), i, vdev)
    {
        const char *name = member_text(vdev, "device");
        name = name[0] ? name : member_text(vdev, "device_driver_name");
        words_add(words, "%s%s", i ? "," : "",
                  name[0] && !member_bool(vdev, "suspended") ? name : "-");
    }
    words_say(words, app, "[ + {spread:list}]");
}

/** Append the devices that hold memory which is still to be fetched. */
static void ps_sources(const json_t *app, const char *first, struct words *words)
{
    const char *between = first;
    const json_t *vdev, *source;
    size_t i, j;

    json_array_foreach(json_object_get(app, "vdevs"), i, vdev)
    {
        json_array_foreach(json_object_get(vdev, "sources"), j, source)
        {
            words_add(words, "%s%s", between, member_text(source, "device"));
            between = ",";
        }
    }
}

/** Append the state; after an on-demand move, also how much memory was fetched. */
static void ps_state(const json_t *app, struct words *words)
{
    unsigned long long fetched = 0, all = 0;
    const json_t *vdev;
    size_t i;

    json_array_foreach(json_object_get(app, "vdevs"), i, vdev)
    {
        fetched += member_number(vdev, "fetched_bytes");
        all += member_number(vdev, "to_fetch_bytes");
    }
    say_moving(app, words);
    words_say(words, app,
              "[{!move}{state}][{?stored_bytes}, in an image][{?power_waits}, waits for power]");
    if (all) {
        json_auto_t *sums =
            json_pack("{s:I, s:I}", "fetched", (json_int_t)fetched, "all", (json_int_t)all);
        words_say(words, sums, ", {fetched:bytes} of {all:bytes} fetched");
    }
    ps_sources(app, all ? " from " : ", with memory on ", words);
}

/** Append the age of the last snapshot, from which the program is recovered if its device is lost.
 */
static void ps_snapshot(const json_t *app, struct words *words)
{
    const json_t *protection = json_object_get(app, "protection");
    bool none =
        member_text(protection, "broken")[0] || !member_number(protection, "snapshot_age_ns");

    if (member_bool(protection, "on"))
        words_say(words, protection, none ? "not yet" : "{snapshot_age_ns}");
}

const struct table_column ps_columns[] = {
    {"ID", "{id}"},
    {"NAME", "{name}"},
    {"PID", "{pid}", TABLE_RIGHT},
    {"DEVICE", .say = ps_devices,
     .members = "{vdevs.device}{vdevs.device_driver_name}{vdevs.suspended}{spread}"},
    {"READY", "{ready:list}", TABLE_OPTIONAL},
    {"MEMORY", "{device_bytes}", TABLE_RIGHT},
    {"GRANTED", "{granted_bytes}", TABLE_RIGHT | TABLE_OPTIONAL},
    {"WANTED", "{wanted_bytes}", TABLE_RIGHT | TABLE_OPTIONAL},
    {"BUSY", "{busy_permil}", TABLE_RIGHT},
    {"FROM", "[{from_device_bytes_s}]", TABLE_RIGHT | TABLE_OPTIONAL},
    {"TO", "[{to_device_bytes_s}]", TABLE_RIGHT | TABLE_OPTIONAL},
    {"LIMIT", "[{?limited}{quota_bytes}]", TABLE_RIGHT},
    {"STATE", .say = ps_state, .flags = TABLE_WRAP,
     .members = "{state}{move}{stored_bytes}{power_waits}{vdevs.fetched_bytes}"
                "{vdevs.to_fetch_bytes}{vdevs.sources}"},
    {"MOVES", "[{moves}]", TABLE_RIGHT | TABLE_OPTIONAL},
    {"DOWNTIME", "[{?moves}{last_downtime_ns}]", TABLE_RIGHT | TABLE_OPTIONAL},
    {"SNAPSHOT", .say = ps_snapshot, .flags = TABLE_RIGHT,
     .members = "{protection.on}{protection.broken}{protection.snapshot_age_ns}"},
    {"LOSSES", "[{losses}]", TABLE_RIGHT | TABLE_OPTIONAL},
    {"PINNED BY", "{pinned}", TABLE_WRAP},
    {NULL},
};

static int ps_print(const struct output *output, const json_t *answer)
{
    json_auto_t *apps = select_apps(answer);

    if (!json_array_size(apps) && !output->view.quiet)
        output_note(output, "no program runs under reseat; start one with reseat run");
    return output_table(output, apps, ps_columns, select_matches);
}

static const struct option_row ps_options[] = {
    OPTION_SELECTORS(
        "Every program that you may see, which is the default. Without --json, --user, "
        "--device and --name leave others out."),
    OPTION_VIEW,
    {NULL}};

static int ps_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_APPS, .what = "list programs", .lists = true, .print = ps_print};
    json_auto_t *members = NULL;
    struct frame frame;
    int status =
        call->output.json ? 0 : output_members(&call->output, ps_columns, SELECT_MEMBERS, &members);

    if (status)
        return status;
    frame_init(&frame, MSG_APPS);
    if (members)
        ask_put_fields(&frame, members);
    return ask_print(&call->output, &question, &frame);
}

const struct verb verb_ps = {
    .name = "ps",
    .summary = "List the programs that run under reseat, and where their virtual devices are.",
    .members = "apps[]",
    .options = ps_options,
    .users = true,
    .run = ps_run,
};
