#include "agent/cli/ask.h"
#include "agent/cli/verb.h"

#define EXPLAIN_MS 10000

static void print_line(const char *text, int indent)
{
    printf("%*s", indent, "");
    output_wrapped(stdout, OUTPUT_COLUMNS, indent, indent + 2, text);
}

static void print_lines(const msgpack_object *unit, int indent)
{
    const msgpack_object *lines;
    size_t count = field_array(unit, "lines", &lines);
    char text[PROTOCOL_TEXT_MAX];

    for (size_t i = 0; i < count; i++)
        if (object_string(&lines[i], text, sizeof(text)))
            print_line(text, indent);
}

static void print_explanation(const msgpack_object *root)
{
    bool named = field_bool(root, "named", false);
    char name[OUTPUT_PROGRAM_MAX], state[PROTOCOL_WORD_MAX], device[PROTOCOL_WORD_MAX],
        text[2 * PROTOCOL_TEXT_MAX], reason[PROTOCOL_TEXT_MAX];
    const msgpack_object *items;

    field_string(root, "state", state, sizeof(state));
    printf("%s is %s\n", output_program(root, name), state);
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
        print_line(text, 2);
    }
    if (field_text(root, "why", reason, sizeof(reason)) && reason[0]) {
        snprintf(text, sizeof(text), "last decision: %s", reason);
        print_line(text, 2);
    }
}

static int run(struct call *call)
{
    static const struct question question = {MSG_EXPLAIN, "explain a program", false, EXPLAIN_MS};
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_EXPLAIN);
    frame_string(&frame, "app", call->words[0]);
    int status = ask(&call->output, &question, &frame, &message);
    if (status)
        return status;
    if (call->output.json) {
        json_t *object = output_object(&call->output, STATUS_DONE);
        json_object_set_new(object, "app", output_answer(&message));
        status = output_print(object, STATUS_DONE);
    } else {
        print_explanation(&message.root);
        status = output_done();
    }
    message_finish(&message);
    return status;
}

const struct verb verb_explain = {
    .name = "explain",
    .arguments = "APP[:N]",
    .summary = "Say why a program is where it is, and what would change that.",
    .run = run,
};
