#include "agent/cli/ask.h"
#include "agent/cli/output.h"
#include "agent/cli/presented.h"
#include "agent/cli/verb.h"

#define LIST_MS 60000

struct devices {
    bool presented;
};

static const struct verb_option devices_options[] = {
    {"presented", NULL,
     "Say what programs are told of their device instead, and why: for each answer the rule and "
     "what each device says itself; for each extension, feature of OpenCL C and list of image "
     "formats what is left out, and because of which device, or why it cannot be carried. It holds "
     "for the portable profile and a program that starts where programs start by default.",
     OPTION_VALUE(struct devices, presented)},
    {NULL}};

static void users(const msgpack_object *device, char *ret, size_t size)
{
    const msgpack_object *apps;
    size_t count = field_array(device, "apps", &apps), used = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < count && used < size; i++) {
        char name[PROTOCOL_WORD_MAX];
        field_text(&apps[i], "name", name, sizeof(name));
        int length = snprintf(ret + used, size - used, "%s%s(%llu)", used ? " " : "", name,
                              (unsigned long long)field_u64(&apps[i], "pid", 0));
        used += length > 0 ? (size_t)length : 0;
    }
}

static int print_devices(const msgpack_object *devices, size_t count)
{
    enum { BY = 9, UUID = 10 };
    static const struct table_column columns[] = {
        {"NAME", "name"},
        {"KIND", "kind"},
        {"DEVICE", "device"},
        {"VENDOR", "vendor"},
        {"UNITS", "compute_units", TABLE_NUMBER, true},
        {"MEMORY", "memory_bytes", TABLE_BYTES, true},
        {"IN USE", "used_bytes", TABLE_BYTES, true},
        {"GRANTED", "granted_bytes", TABLE_BYTES, true},
        {"LIMIT", "capacity_bytes", TABLE_LIMIT, true},
        {"BY"},
        {"UUID/PCI"},
    };
    struct table *table = table_create(columns, ARRAY_SIZE(columns));

    for (size_t i = 0; i < count; i++) {
        char text[512];
        table_add(table, &devices[i]);
        users(&devices[i], text, sizeof(text));
        table_put(table, BY, text);
        field_text(&devices[i], field_is(&devices[i], "pci", "") ? "uuid" : "pci", text,
                   sizeof(text));
        table_put(table, UUID, text);
    }
    return table_print(table);
}

static int print(const struct call *call, const struct message *message)
{
    const struct devices *wanted = call->options;
    char problem[PROTOCOL_TEXT_MAX], inventory[PATH_MAX] = "";
    const msgpack_object *devices;
    size_t count = field_array(&message->root, "devices", &devices);

    field_text(&message->root, "problem", problem, sizeof(problem));
    if (problem[0] && !count)
        return output_fail(&call->output, ERR_FAILED, "%s; see reseat doctor", problem);
    if (wanted->presented) {
        field_string(&message->root, "inventory", inventory, sizeof(inventory));
        return presented_print(&call->output, inventory);
    }
    if (call->output.json) {
        json_t *object = output_object(&call->output, STATUS_DONE);
        output_add_lists(object, &message->root, "devices");
        return output_print(object, STATUS_DONE);
    }
    if (!count) {
        return output_fail(&call->output, ERR_NO_DEVICE,
                           "no OpenCL driver shows a device; install one, then see reseat doctor");
    }
    int status = print_devices(devices, count);
    if (problem[0])
        output_note(&call->output, "the list may be old: %s", problem);
    return status;
}

static int run(struct call *call)
{
    static const struct question question = {MSG_DEVICES, "list devices", true, LIST_MS};
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_DEVICES);
    ask_put_environment(&frame);
    int status = ask(&call->output, &question, &frame, &message);
    if (!status) {
        status = print(call, &message);
        message_finish(&message);
    }
    return status;
}

const struct verb verb_devices = {
    .name = "devices",
    .summary = "List every device of every OpenCL driver, what is in use of it, and by whom.",
    .options = devices_options,
    .size = sizeof(struct devices),
    .run = run,
};
