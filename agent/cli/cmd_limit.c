#include <string.h>

#include "agent/cli/ask.h"
#include "agent/cli/verb.h"
#include "agent/wire/size.h"

#define LIMIT_MS 10000

struct limit {
    bool limited;
    uint64_t bytes;
};

static int take_memory(struct call *call, const struct verb_option *option, const char *text)
{
    struct limit *limit = call->options;
    char reason[PROTOCOL_TEXT_MAX];

    limit->limited = strcmp(text, "none") != 0;
    if (limit->limited && size_parse(text, &limit->bytes, reason, sizeof(reason)))
        return output_usage(&call->output, "--%s: %s", option->name, reason);
    if (limit->limited && !limit->bytes) {
        return output_usage(&call->output,
                            "--%s: with nothing no program runs; empty a device with reseat drain, "
                            "take a program off its device with reseat suspend",
                            option->name);
    }
    return 0;
}

static const struct verb_option limit_options[] = {
    {"memory", "SIZE|none", "Such as 512MiB or 2GiB; none: all that there is.", .required = true,
     .take = take_memory},
    {NULL}};

static void print_limit(const struct message *message)
{
    char name[OUTPUT_PROGRAM_MAX], bytes[32], granted[32];
    const msgpack_object *app = field_get(&message->root, "app");
    bool limited = field_bool(&message->root, "limited", false);

    if (app)
        output_program(app, name);
    else
        field_string(&message->root, "device", name, sizeof(name));
    bytes_text(field_u64(&message->root, app || limited ? "memory_bytes" : "capacity_bytes", 0),
               bytes, sizeof(bytes));
    bytes_text(field_u64(&message->root, "granted_bytes", 0), granted, sizeof(granted));
    if (app) {
        printf("%s: %s%s; granted now: %s\n", name, limited ? "at most " : "no limit",
               limited ? bytes : "", granted);
    } else {
        printf("%s: programs may have %s%s; granted now: %s\n", name,
               limited ? "" : "all of its memory, ", bytes, granted);
    }
}

static int run(struct call *call)
{
    static const struct question question = {MSG_LIMIT, "set a limit", true, LIMIT_MS};
    const struct limit *limit = call->options;
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_LIMIT);
    frame_string(&frame, "what", call->words[0]);
    frame_bool(&frame, "limited", limit->limited);
    frame_u64(&frame, "memory_bytes", limit->bytes);
    ask_put_environment(&frame);
    int status = ask(&call->output, &question, &frame, &message);
    if (status)
        return status;
    if (call->output.json) {
        json_t *object = output_object(&call->output, STATUS_DONE);
        output_add_fields(object, &message.root,
                          "app device limited memory_bytes capacity_bytes granted_bytes "
                          "held_bytes");
        status = output_print(object, STATUS_DONE);
    } else {
        print_limit(&message);
        status = output_done();
    }
    message_finish(&message);
    return status;
}

const struct verb verb_limit = {
    .name = "limit",
    .arguments = "DEVICE|APP",
    .summary = "Set how much memory programs may have of a device, or one program of any.",
    .text = "That of a device is for all programs together. Who has more makes room: it spills, "
            "moves or is suspended. That of a device outlives the agent, that of a program ends "
            "with it.",
    .options = limit_options,
    .size = sizeof(struct limit),
    .run = run,
};
