#include "agent/cli/ask.h"
#include "agent/cli/output.h"
#include "agent/cli/verb.h"

#define LIST_MS 60000

/** Where its virtual devices are, in their order. */
static void places(const msgpack_object *app, char *ret, size_t size)
{
    const msgpack_object *seats;
    size_t count = field_array(app, "seats", &seats), used = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < count && used < size; i++) {
        char name[PROTOCOL_WORD_MAX] = "-";
        if (!field_bool(&seats[i], "suspended", false)) {
            field_string(&seats[i],
                         field_is(&seats[i], "device", "") ? "device_driver_name" : "device", name,
                         sizeof(name));
        }
        int length =
            snprintf(ret + used, size - used, "%s%s", used ? "," : "", name[0] ? name : "-");
        used += length > 0 ? (size_t)length : 0;
    }
}

static int print(const struct output *output, const struct message *message)
{
    enum { DEVICE = 3, DOWNTIME = 9 };
    static const struct table_column columns[] = {
        {"ID", "id"},
        {"NAME", "name"},
        {"PID", "pid", TABLE_NUMBER, true},
        {"DEVICE"},
        {"MEMORY", "device_bytes", TABLE_BYTES, true},
        {"GRANTED", "granted_bytes", TABLE_BYTES, true},
        {"LIMIT", "quota_bytes", TABLE_LIMIT, true},
        {"STATE", "state"},
        {"MOVES", "moves", TABLE_NUMBER, true},
        {"LAST DOWNTIME", NULL, TABLE_TEXT, true},
        {"PINNED BY", "pinned"},
    };
    struct table *table = table_create(columns, ARRAY_SIZE(columns));
    const msgpack_object *apps;
    size_t count = field_array(&message->root, "apps", &apps);

    if (!count)
        output_note(output, "no program runs under reseat; start one with reseat run");
    /* The agent keeps the newest first. */
    for (size_t i = count; i-- > 0;) {
        char text[1024];
        table_add(table, &apps[i]);
        places(&apps[i], text, sizeof(text));
        table_put(table, DEVICE, text);
        text[0] = '\0';
        if (field_u64(&apps[i], "moves", 0))
            output_seconds(field_u64(&apps[i], "last_downtime_ns", 0), text, sizeof(text));
        table_put(table, DOWNTIME, text);
    }
    return table_print(table);
}

static int run(struct call *call)
{
    static const struct question question = {MSG_APPS, "list programs", false, LIST_MS};
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_APPS);
    int status = ask(&call->output, &question, &frame, &message);
    if (status)
        return status;
    if (call->output.json) {
        json_t *object = output_object(&call->output, STATUS_DONE);
        output_add_lists(object, &message.root, "apps");
        status = output_print(object, STATUS_DONE);
    } else {
        status = print(&call->output, &message);
    }
    message_finish(&message);
    return status;
}

const struct verb verb_ps = {
    .name = "ps",
    .summary = "List the programs that run under reseat, and where their virtual devices are.",
    .run = run,
};
