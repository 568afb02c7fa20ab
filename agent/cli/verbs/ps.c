#include "agent/cli/client.h"
#include "agent/cli/verb.h"

#define LIST_MS 60000

/** Append the devices of the virtual devices, in order, and those that share its long launches. */
static void ps_places(const json_t *app, struct words *words)
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
    json_array_foreach(json_object_get(app, "spread"), i, vdev)
    {
        words_add(words, "%s%s", i ? "," : " + ", json_string_value(vdev));
    }
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

/** The age of the last snapshot, from which the program is recovered if its device is lost. */
static void ps_protection(const json_t *app, char *ret, size_t size)
{
    const json_t *protection = json_object_get(app, "protection");
    uint64_t age = member_number(protection, "snapshot_age_ns");

    ret[0] = '\0';
    if (!member_bool(protection, "on"))
        return;
    if (member_text(protection, "broken")[0] || !age)
        snprintf(ret, size, "not yet");
    else
        output_seconds(age, ret, size);
}

/** Append the state; after an on-demand move, also how much memory was fetched. */
static void ps_state(const json_t *app, struct words *words)
{
    unsigned long long fetched = 0, all = 0;
    char have[32], whole[32];
    const json_t *vdev;
    size_t i;

    json_array_foreach(json_object_get(app, "vdevs"), i, vdev)
    {
        fetched += member_number(vdev, "fetched_bytes");
        all += member_number(vdev, "to_fetch_bytes");
    }
    const json_t *move = json_object_get(app, "move");
    output_moving(move, words);
    words_add(words, "%s%s%s", move ? "" : member_text(app, "state"),
              member_number(app, "stored_bytes") ? ", in an image" : "",
              member_bool(app, "power_waits") ? ", waits for power" : "");
    if (all) {
        bytes_text(fetched, have, sizeof(have));
        bytes_text(all, whole, sizeof(whole));
        words_add(words, ", %s of %s fetched", have, whole);
    }
    ps_sources(app, all ? " from " : ", with memory on ", words);
}

static int ps_print(const struct output *output, const json_t *answer)
{
    enum { DEVICE = 3, STATE = 8, DOWNTIME = 10, POINT = 11 };
    static const struct table_column columns[] = {
        {"ID", "id"},
        {"NAME", "name"},
        {"PID", "pid", TABLE_NUMBER, true},
        {"DEVICE"},
        {"READY", "ready", TABLE_NAMES},
        {"MEMORY", "device_bytes", TABLE_BYTES, true},
        {"GRANTED", "granted_bytes", TABLE_BYTES, true},
        {"LIMIT", "quota_bytes", TABLE_LIMIT, true},
        {"STATE"},
        {"MOVES", "moves", TABLE_NUMBER, true},
        {"DOWNTIME", NULL, TABLE_TEXT, true},
        {"SNAPSHOT", NULL, TABLE_TEXT, true},
        {"LOSSES", "losses", TABLE_NUMBER, true},
        {"PINNED BY", "pinned", .wrap = true},
    };
    struct table *table = table_create(columns, ARRAY_SIZE(columns));
    const json_t *apps = json_object_get(answer, "apps");
    size_t count = json_array_size(apps);

    if (!count)
        output_note(output, "no program runs under reseat; start one with reseat run");
    /* The agent keeps the newest first. */
    for (size_t i = count; i-- > 0;) {
        const json_t *app = json_array_get(apps, i);
        struct words devices = {0}, how = {0};
        char downtime[32] = "", point[32];
        table_add(table, app);
        ps_places(app, &devices);
        ps_state(app, &how);
        table_put(table, DEVICE, devices.text);
        table_put(table, STATE, how.text);
        if (member_number(app, "moves"))
            output_seconds(member_number(app, "last_downtime_ns"), downtime, sizeof(downtime));
        table_put(table, DOWNTIME, downtime);
        ps_protection(app, point, sizeof(point));
        table_put(table, POINT, point);
    }
    return table_print(table);
}

static int ps_run(struct call *call)
{
    static const struct question question = {MSG_APPS, "list programs", false, LIST_MS,
                                             "apps[]", ps_print,        NULL};
    struct frame frame;

    frame_init(&frame, MSG_APPS);
    return ask_print(&call->output, &question, &frame);
}

const struct verb verb_ps = {
    .name = "ps",
    .summary = "List the programs that run under reseat, and where their virtual devices are.",
    .users = true,
    .run = ps_run,
};
