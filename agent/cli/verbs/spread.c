#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"

/* An agent that has to list devices first takes as long as that does. */
#define SPREAD_MS 60000

struct spread {
    bool off;
};

static const struct verb_option spread_options[] = {
    {"off", NULL, "Have them done where the program is, and there alone.",
     OPTION_VALUE(struct spread, off)},
    {NULL}};

static int spread_print_spread(const struct output *output, const json_t *answer)
{
    const json_t *names = json_object_get(answer, "spread"), *name;
    char program[OUTPUT_PROGRAM_MAX];
    size_t i;

    (void)output;
    output_program(json_object_get(answer, "app"), program);
    if (json_array_size(names) == 0) {
        printf("%s: launches are done where it is\n", program);
        return output_done();
    }
    printf("%s: long launches %s done on ", program,
           member_bool(answer, "starting") ? "will be" : "are");
    json_array_foreach(names, i, name)
    {
        printf("%s%s", i ? ", " : "", json_string_value(name));
    }
    puts(" too");
    return output_done();
}

/** Names separated by commas, in place. */
static int spread_put_names(struct call *call, struct frame *frame)
{
    char *names = call->count > 1 ? call->words[1] : NULL;

    frame_array(frame, "devices");
    for (char *name = strsep(&names, ","); name; name = strsep(&names, ",")) {
        if (!*name)
            return output_usage(&call->output, "a DEVICE in the list is empty");
        frame_string(frame, NULL, name);
    }
    frame_end(frame);
    return 0;
}

static int spread_verb_run(struct call *call)
{
    static const struct question question = {
        MSG_SPREAD, "spread launches",     false,
        SPREAD_MS,  "app starting spread", spread_print_spread};
    const struct spread *spread = call->options;
    struct frame frame;

    if (spread->off == (call->count > 1))
        return output_usage(&call->output, "give a DEVICE (reseat devices) or --off, not both");
    frame_init(&frame, MSG_SPREAD);
    frame_string(&frame, "app", call->words[0]);
    int status = spread_put_names(call, &frame);
    if (status) {
        frame_finish(&frame);
        return status;
    }
    ask_put_environment(&frame);
    return ask_print(&call->output, &question, &frame);
}

const struct verb verb_spread = {
    .name = MSG_SPREAD,
    .arguments = "APP [DEVICE[,DEVICE]]",
    .summary = "Have the long launches of a program done on other devices too.",
    .text =
        "A launch that takes long enough goes on where the program is, while these devices do "
        "work-groups from its end; what they wrote is brought home before it ends. What was named "
        "before is replaced. A kernel whose work-groups rely on each other, or write the same "
        "bytes, is done on one device as ever, and so is what is not given in pieces (reseat run "
        "--slice, reseat explain). A device that drains or is full has no part until that is over. "
        "Each device holds what such a launch uses, and what prewarm makes there, which no limit "
        "counts.",
    .options = spread_options,
    .size = sizeof(struct spread),
    .users = true,
    .run = spread_verb_run,
};
