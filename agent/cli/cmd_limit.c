#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "agent/cli/cmd.h"
#include "agent/wire/size.h"

#define LIMIT_MS 10000

struct limit {
    struct output output;
    const char *what;
    bool given, limited;
    uint64_t bytes;
};

static int parse_memory(struct limit *limit, const char *text)
{
    char reason[PROTOCOL_TEXT_MAX];

    limit->given = true;
    limit->limited = strcmp(text, "none") != 0;
    if (limit->limited && size_parse(text, &limit->bytes, reason, sizeof(reason))) {
        return output_usage(&limit->output, "--memory: %s", reason);
    }
    if (limit->limited && !limit->bytes) {
        return output_usage(&limit->output,
                            "--memory: with nothing no program runs; empty a device with reseat "
                            "drain, take a program off its device with reseat suspend");
    }
    return 0;
}

static int parse(struct limit *limit, int argc, char **argv)
{
    static const struct option options[] = {
        {"memory", required_argument, NULL, 'm'}, {"json", no_argument, NULL, 'j'}, {0}};
    int option, status;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", options, NULL)) >= 0) {
        if (option == 'm') {
            status = parse_memory(limit, optarg);
            if (status) {
                return status;
            }
        } else if (option != 'j') {
            return output_usage(&limit->output, "option %s is unknown or lacks its value",
                                argv[optind - 1]);
        }
    }
    if (argc - optind != 1 || !argv[optind][0]) {
        return output_usage(&limit->output, argc == optind ? "no device or program is named"
                                                           : "one name is expected");
    }
    if (!limit->given) {
        return output_usage(&limit->output, "--memory SIZE or --memory none is needed");
    }
    limit->what = argv[optind];
    return 0;
}

static void print_limit(const struct message *message)
{
    char name[PROTOCOL_WORD_MAX], bytes[32], granted[32];
    const msgpack_object *app = field_get(&message->root, "app");
    bool limited = field_bool(&message->root, "limited", false);

    if (app) {
        field_text(app, "name", name, sizeof(name));
        snprintf(name + strlen(name), sizeof(name) - strlen(name), " (pid %llu)",
                 (unsigned long long)field_u64(app, "pid", 0));
    } else {
        field_string(&message->root, "device", name, sizeof(name));
    }
    output_bytes(field_u64(&message->root, app || limited ? "memory_bytes" : "capacity_bytes", 0),
                 bytes, sizeof(bytes));
    output_bytes(field_u64(&message->root, "granted_bytes", 0), granted, sizeof(granted));
    if (app) {
        printf("%s: %s%s; granted now: %s\n", name, limited ? "at most " : "no limit",
               limited ? bytes : "", granted);
    } else {
        printf("%s: programs may have %s%s; granted now: %s\n", name,
               limited ? "" : "all of its memory, ", bytes, granted);
    }
}

int cmd_limit(int argc, char **argv)
{
    struct limit limit = {0};
    struct client client = {.fd = -1};
    struct message message = {0};
    struct frame frame;

    output_init(&limit.output, "limit", argc, argv);
    int status = parse(&limit, argc, argv);
    if (status || (status = cmd_connect(&limit.output, true, "set a limit", &client))) {
        return status;
    }
    frame_init(&frame, MSG_LIMIT);
    frame_string(&frame, "what", limit.what);
    frame_bool(&frame, "limited", limit.limited);
    frame_u64(&frame, "memory_bytes", limit.bytes);
    cmd_put_environment(&frame);
    status = cmd_ask(&limit.output, &client, &frame, MSG_LIMIT, LIMIT_MS, "set a limit", &message);
    client_close(&client);
    if (status) {
        return status;
    }
    if (limit.output.json) {
        static const char *const fields[] = {"app",          "device",         "limited",
                                             "memory_bytes", "capacity_bytes", "granted_bytes",
                                             "held_bytes"};
        json_t *object = output_object(&limit.output, STATUS_DONE);
        for (size_t i = 0; object && i < ARRAY_SIZE(fields); i++) {
            const msgpack_object *value = field_get(&message.root, fields[i]);
            json_object_set_new(object, fields[i], value ? cmd_json(value) : json_null());
        }
        status = output_print(object, STATUS_DONE);
    } else {
        print_limit(&message);
        status = fflush(stdout) ? STATUS_ROLLED_BACK : STATUS_DONE;
    }
    message_finish(&message);
    return status;
}
