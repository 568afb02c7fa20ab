#include <getopt.h>
#include <libsmartcols.h>
#include <stdio.h>
#include <string.h>

#include "agent/cli/cmd.h"

#define LIST_MS 60000

/** @ret_presented  Set by --presented; NULL where the command has no such option. */
static int parse(const struct output *output, int argc, char **argv, bool *ret_presented)
{
    for (int i = 1; i < argc; i++) {
        if (ret_presented && strcmp(argv[i], "--presented") == 0) {
            *ret_presented = true;
        } else if (strcmp(argv[i], "--json")) {
            return output_usage(output, "unexpected \"%s\"", argv[i]);
        }
    }
    return 0;
}

struct column {
    const char *title;
    int flags;
};

static struct libscols_table *make_table(const struct column *columns, size_t count)
{
    struct libscols_table *table = scols_new_table();

    for (size_t i = 0; table && i < count; i++) {
        scols_table_new_column(table, columns[i].title, 0, columns[i].flags);
    }
    return table;
}

static void put(struct libscols_line *line, size_t column, const char *text)
{
    if (line) {
        scols_line_set_data(line, column, text);
    }
}

static void put_field(struct libscols_line *line, size_t column, const msgpack_object *map,
                      const char *key)
{
    char text[PROTOCOL_TEXT_MAX];

    field_text(map, key, text, sizeof(text));
    put(line, column, text[0] ? text : "-");
}

static void put_number(struct libscols_line *line, size_t column, const msgpack_object *map,
                       const char *key)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)field_u64(map, key, 0));
    put(line, column, text);
}

static void put_bytes(struct libscols_line *line, size_t column, const msgpack_object *map,
                      const char *key)
{
    char text[32];

    output_bytes(field_u64(map, key, 0), text, sizeof(text));
    put(line, column, text);
}

/** "-" where nobody set one; "drained" says more than a number. */
static void put_limit(struct libscols_line *line, size_t column, const msgpack_object *map,
                      const char *key)
{
    if (field_bool(map, "drained", false)) {
        put(line, column, "drained");
    } else if (field_bool(map, "draining", false)) {
        char text[48];
        snprintf(text, sizeof(text), "draining in %llu s",
                 (unsigned long long)(field_u64(map, "drains_in_ns", 0) + 999999999) / 1000000000);
        put(line, column, text);
    } else if (field_bool(map, "limited", false)) {
        put_bytes(line, column, map, key);
    } else {
        put(line, column, "-");
    }
}

static int print_table(struct libscols_table *table)
{
    int failed = !table || scols_print_table(table) || fflush(stdout);

    scols_unref_table(table);
    return failed ? STATUS_ROLLED_BACK : STATUS_DONE;
}

static int print_json(const struct output *output, const struct message *message, const char *key)
{
    json_t *object = output_object(output, STATUS_DONE);
    const msgpack_object *list = field_get(&message->root, key);

    json_object_set_new(object, key, list ? cmd_json(list) : json_array());
    return output_print(object, STATUS_DONE);
}

static void device_users(const msgpack_object *device, char *ret, size_t size)
{
    const msgpack_object *apps;
    size_t count = field_array(device, "apps", &apps), used = 0;

    snprintf(ret, size, "-");
    for (size_t i = 0; i < count && used < size; i++) {
        char name[PROTOCOL_WORD_MAX];
        field_text(&apps[i], "name", name, sizeof(name));
        int length = snprintf(ret + used, size - used, "%s%s(%llu)", used ? " " : "", name,
                              (unsigned long long)field_u64(&apps[i], "pid", 0));
        used += length > 0 ? (size_t)length : 0;
    }
}

static int print_devices(const struct message *message)
{
    static const struct column columns[] = {
        {"NAME", 0},
        {"KIND", 0},
        {"DEVICE", 0},
        {"VENDOR", 0},
        {"UNITS", SCOLS_FL_RIGHT},
        {"MEMORY", SCOLS_FL_RIGHT},
        {"IN USE", SCOLS_FL_RIGHT},
        {"GRANTED", SCOLS_FL_RIGHT},
        {"LIMIT", SCOLS_FL_RIGHT},
        {"BY", 0},
        {"UUID/PCI", 0},
    };
    struct libscols_table *table = make_table(columns, ARRAY_SIZE(columns));
    const msgpack_object *devices;
    size_t count = field_array(&message->root, "devices", &devices);

    for (size_t i = 0; table && i < count; i++) {
        struct libscols_line *line = scols_table_new_line(table, NULL);
        const msgpack_object *device = &devices[i];
        char users[512], pci[32];
        device_users(device, users, sizeof(users));
        put_field(line, 0, device, "name");
        put_field(line, 1, device, "kind");
        put_field(line, 2, device, "device");
        put_field(line, 3, device, "vendor");
        put_number(line, 4, device, "compute_units");
        put_bytes(line, 5, device, "memory_bytes");
        put_bytes(line, 6, device, "used_bytes");
        put_bytes(line, 7, device, "granted_bytes");
        put_limit(line, 8, device, "capacity_bytes");
        put(line, 9, users);
        field_string(device, "pci", pci, sizeof(pci));
        put_field(line, 10, device, pci[0] ? "pci" : "uuid");
    }
    return print_table(table);
}

int cmd_devices(int argc, char **argv)
{
    struct output output;
    struct client client = {.fd = -1};
    struct message message = {0};
    struct frame frame;
    char problem[PROTOCOL_TEXT_MAX], inventory[PATH_MAX] = "";

    output_init(&output, "devices", argc, argv);
    bool presented = false;
    int status = parse(&output, argc, argv, &presented);
    if (status || (status = cmd_connect(&output, true, "list devices", &client))) {
        return status;
    }
    frame_init(&frame, MSG_DEVICES);
    cmd_put_environment(&frame);
    status = cmd_ask(&output, &client, &frame, MSG_DEVICES, LIST_MS, "list devices", &message);
    client_close(&client);
    if (status) {
        return status;
    }
    const msgpack_object *devices;
    size_t count = field_array(&message.root, "devices", &devices);
    field_text(&message.root, "problem", problem, sizeof(problem));
    if (problem[0] && !count) {
        status = output_fail(&output, ERR_FAILED, "%s; see reseat doctor", problem);
    } else if (presented) {
        field_string(&message.root, "inventory", inventory, sizeof(inventory));
        status = presented_print(&output, inventory);
    } else if (output.json) {
        status = print_json(&output, &message, "devices");
    } else if (!count) {
        status =
            output_fail(&output, ERR_NO_DEVICE,
                        "no OpenCL driver shows a device; install one, then see reseat doctor");
    } else {
        status = print_devices(&message);
        if (problem[0]) {
            output_note(&output, "the list may be old: %s", problem);
        }
    }
    message_finish(&message);
    return status;
}

/** Where its virtual devices are, in their order. */
static void app_devices(const msgpack_object *app, char *ret, size_t size)
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

static int print_apps(const struct message *message)
{
    static const struct column columns[] = {
        {"ID", 0},
        {"NAME", 0},
        {"PID", SCOLS_FL_RIGHT},
        {"DEVICE", 0},
        {"MEMORY", SCOLS_FL_RIGHT},
        {"GRANTED", SCOLS_FL_RIGHT},
        {"LIMIT", SCOLS_FL_RIGHT},
        {"STATE", 0},
        {"MOVES", SCOLS_FL_RIGHT},
        {"LAST DOWNTIME", SCOLS_FL_RIGHT},
        {"PINNED BY", 0},
    };
    struct libscols_table *table = make_table(columns, ARRAY_SIZE(columns));
    const msgpack_object *apps;
    size_t count = field_array(&message->root, "apps", &apps);

    if (!count) {
        fputs("reseat ps: no program runs under reseat; start one with reseat run\n", stderr);
    }
    /* The agent keeps the newest first. */
    for (size_t i = count; table && i-- > 0;) {
        struct libscols_line *line = scols_table_new_line(table, NULL);
        const msgpack_object *app = &apps[i];
        char time[32] = "-", devices[1024];
        if (field_u64(app, "moves", 0)) {
            output_seconds(field_u64(app, "last_downtime_ns", 0), time, sizeof(time));
        }
        put_field(line, 0, app, "id");
        put_field(line, 1, app, "name");
        put_number(line, 2, app, "pid");
        app_devices(app, devices, sizeof(devices));
        put(line, 3, devices);
        put_bytes(line, 4, app, "device_bytes");
        put_bytes(line, 5, app, "granted_bytes");
        put_limit(line, 6, app, "quota_bytes");
        put_field(line, 7, app, "state");
        put_number(line, 8, app, "moves");
        put(line, 9, time);
        put_field(line, 10, app, "pinned");
    }
    return print_table(table);
}

int cmd_ps(int argc, char **argv)
{
    struct output output;
    struct client client = {.fd = -1};
    struct message message = {0};
    struct frame frame;

    output_init(&output, "ps", argc, argv);
    int status = parse(&output, argc, argv, NULL);
    if (status || (status = cmd_connect(&output, false, "list programs", &client))) {
        return status;
    }
    frame_init(&frame, MSG_APPS);
    status = cmd_ask(&output, &client, &frame, MSG_APPS, LIST_MS, "list programs", &message);
    client_close(&client);
    if (!status) {
        status = output.json ? print_json(&output, &message, "apps") : print_apps(&message);
    }
    message_finish(&message);
    return status;
}
