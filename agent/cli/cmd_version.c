#include "agent/cli/verb.h"

static int run(struct call *call)
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
    .summary = "Say which release this is.",
    .run = run,
};
