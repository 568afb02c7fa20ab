#include "agent/cli/client.h"
#include "agent/cli/verb.h"

static const struct option_row spread_options[] = {
    {"off", NULL, "Run launches only on the program's own device.",
     OPTION_VALUE(struct request, undo)},
    {NULL}};

static int spread_verb_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_SPREAD,
        .what = "spread launches",
        .lists = true,
        .say = "{app}: [{!spread}launches are done on its own device only]"
               "[{!spread}{?spread_free}, until another is free]"
               "[{?spread}{?starting}long launches will be done on {spread} too]"
               "[{?spread}{!starting}long launches are done on {spread} too]"};
    const struct request *asked = call->options;
    struct names devices = {.count = 0};
    struct frame frame;
    int status = 0;

    if (asked->undo == (call->count > 1))
        return output_usage(&call->output, "give a DEVICE (reseat devices) or --off, not both");
    if (call->count > 1)
        status = verb_take_names(call, "DEVICE", call->words[1], PROTOCOL_SPREAD_MAX, &devices);
    if (status)
        return status;
    frame_init(&frame, MSG_SPREAD);
    frame_string(&frame, "app", call->words[0]);
    ask_put_texts(&frame, "devices", devices.items, devices.count);
    ask_put_environment(&frame);
    return ask_print(&call->output, &question, &frame);
}

const struct verb verb_spread = {
    .name = MSG_SPREAD,
    .arguments = "APP [DEVICE[,DEVICE]|free]",
    .summary = "Split the long launches of a program over other devices too.",
    .text = "The program's device starts a long launch at its beginning, these devices at its end; "
            "their results are merged before the launch ends. The list replaces an earlier one. "
            "free: the devices that no program uses, as long as that is so, and of the same name "
            "and driver as its own unless it was run with --float any. "
            "Kernels whose work-groups depend on each other or write the same bytes, and launches "
            "that are not split (reseat run --slice, reseat explain), stay on one device. Devices "
            "that drain or are full do not take part. What launches and prewarming need on each "
            "device counts against no limit.",
    .members = "app starting spread spread_free",
    .options = spread_options,
    .size = sizeof(struct request),
    .users = true,
    .run = spread_verb_run,
};
