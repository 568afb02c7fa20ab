#include <stdio.h>
#include <string.h>

#include "agent/cli/cmd.h"

#define EXPLAIN_MS 10000

static int parse(const struct output *output, int argc, char **argv, const char **ret_app)
{
    *ret_app = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            continue;
        }
        if (*ret_app || argv[i][0] == '-') {
            return output_usage(output, "unexpected \"%s\"", argv[i]);
        }
        *ret_app = argv[i];
    }
    return *ret_app && **ret_app ? 0 : output_usage(output, "no program is named");
}

/** Between spaces, so that no line is wider than a terminal. */
static void print_wrapped(const char *text, int indent)
{
    const int width = 79 - indent;
    int used = 0;

    printf("%*s", indent, "");
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (used && used + 1 + length > width) {
            printf("\n%*s", indent + 2, "");
            used = 2;
        } else if (used) {
            putchar(' ');
            used++;
        }
        printf("%.*s", length, text);
        used += length;
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

static void print_lines(const msgpack_object *unit, int indent)
{
    const msgpack_object *lines;
    size_t count = field_array(unit, "lines", &lines);
    char text[PROTOCOL_TEXT_MAX];

    for (size_t i = 0; i < count; i++) {
        if (object_string(&lines[i], text, sizeof(text))) {
            print_wrapped(text, indent);
        }
    }
}

static void print_explanation(const msgpack_object *root)
{
    bool named = field_bool(root, "named", false);
    char name[PROTOCOL_WORD_MAX], state[PROTOCOL_WORD_MAX], device[PROTOCOL_WORD_MAX],
        text[2 * PROTOCOL_TEXT_MAX], reason[PROTOCOL_TEXT_MAX];
    const msgpack_object *items;

    field_text(root, "name", name, sizeof(name));
    field_string(root, "state", state, sizeof(state));
    printf("%s (pid %llu) is %s\n", name, (unsigned long long)field_u64(root, "pid", 0), state);
    size_t count = field_array(root, "devices", &items);
    for (size_t i = 0; i < count; i++) {
        if (count > 1 || named) {
            field_string(&items[i], "device", device, sizeof(device));
            printf("virtual device %llu, %s:\n",
                   (unsigned long long)field_u64(&items[i], "seat", 0),
                   device[0] ? device : "on none");
        }
        print_lines(&items[i], 2);
    }
    count = field_array(root, "refused_by", &items);
    for (size_t i = 0; i < count; i++) {
        field_string(&items[i], "device", device, sizeof(device));
        field_text(&items[i], "reason", reason, sizeof(reason));
        snprintf(text, sizeof(text), "%s %s: %s", device,
                 field_bool(&items[i], "for_now", false) ? "failed a moment ago"
                                                         : "would not run it",
                 reason);
        print_wrapped(text, 2);
    }
    if (field_text(root, "why", reason, sizeof(reason)) && reason[0]) {
        snprintf(text, sizeof(text), "last decision: %s", reason);
        print_wrapped(text, 2);
    }
}

int cmd_explain(int argc, char **argv)
{
    struct output output;
    struct client client = {.fd = -1};
    struct message message = {0};
    struct frame frame;
    const char *app;

    output_init(&output, "explain", argc, argv);
    int status = parse(&output, argc, argv, &app);
    if (status || (status = cmd_connect(&output, false, "explain a program", &client))) {
        return status;
    }
    frame_init(&frame, MSG_EXPLAIN);
    frame_string(&frame, "app", app);
    status =
        cmd_ask(&output, &client, &frame, MSG_EXPLAIN, EXPLAIN_MS, "explain a program", &message);
    client_close(&client);
    if (status) {
        return status;
    }
    if (output.json) {
        json_t *object = output_object(&output, STATUS_DONE), *said = cmd_json(&message.root);
        json_object_del(said, "type");
        json_object_set_new(object, "app", said);
        status = output_print(object, STATUS_DONE);
    } else {
        print_explanation(&message.root);
        status = fflush(stdout) ? STATUS_ROLLED_BACK : STATUS_DONE;
    }
    message_finish(&message);
    return status;
}
