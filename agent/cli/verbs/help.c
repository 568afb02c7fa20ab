#include "agent/cli/verb.h"

static int help(struct call *call)
{
    size_t taken;
    char name[128];
    int status = STATUS_USAGE;

    if (call->output.json) {
        json_t *object = output_object(&call->output, STATUS_DONE);
        json_object_set_new(object, "verbs", help_json(call->verbs));
        return output_print(object, STATUS_DONE);
    }
    if (!call->count) {
        help_print_all(call->verbs, stdout);
        return output_done();
    }
    snprintf(name, sizeof(name), "%s%s%s", call->words[0], call->count > 1 ? " " : "",
             call->count > 1 ? call->words[1] : "");
    if (!help_print(call->verbs, name)) {
        const struct verb *verb =
            verb_find(call->verbs, &call->output, call->words, call->count, &taken, &status);
        if (!verb)
            return status;
        (void)help_print(call->verbs, verb->name);
    }
    return output_done();
}

const struct verb verb_help = {
    .name = "help",
    .arguments = "[COMMAND] [SUBCOMMAND]",
    .summary = "List the commands, or explain one.",
    .run = help,
};

static int help_version(struct call *call)
{
    if (call->output.json) {
        json_t *object = output_object(&call->output, STATUS_DONE);
        json_object_set_new(object, "version", json_string(RESEAT_VERSION));
        json_object_set_new(object, "protocol", json_integer(PROTOCOL_VERSION));
        return output_print(object, STATUS_DONE);
    }
    puts("reseat " RESEAT_VERSION);
    return output_done();
}

const struct verb verb_version = {
    .name = "version",
    .summary = "Print the version.",
    .run = help_version,
};
