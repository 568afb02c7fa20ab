#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"

struct limit {
    bool off;
    uint64_t bytes;   /**< 0: not given. */
    uint64_t power_w; /**< OPTION_UNSAID: not given; OPTION_NONE: no cap. */
};

static const struct verb_option limit_options[] = {
    {"memory", "SIZE",
     "Such as 512MiB or 2GiB, above 0. To empty a device there is reseat drain, and to take a "
     "program off its device reseat suspend.",
     OPTION_VALUE(struct limit, bytes), .kind = OPTION_SIZE},
    {"power", "WATTS|none",
     "What it may draw: all of a device, or a program with what its device draws idle. Launches "
     "wait so that this is kept. Refused where nothing fits under it.",
     OPTION_VALUE(struct limit, power_w), .kind = OPTION_NUMBER, .least = 1, .most = 1000000,
     .initial = OPTION_UNSAID},
    {"off", NULL, "No limit but the memory that there is.", OPTION_VALUE(struct limit, off)},
    {NULL}};

static int limit_print(const struct output *output, const json_t *answer)
{
    uint64_t memory = member_number(answer, "memory_bytes");
    uint64_t capacity = member_number(answer, "capacity_bytes");
    bool limited = member_bool(answer, "limited"), app = json_object_get(answer, "app");

    if (json_object_get(answer, "power_cap_mw"))
        return output_say(
            output, answer,
            "{app}{device}: [{?limited}at most {power_cap_mw}][{!limited}no power cap]");
    if (app)
        return output_say(output, answer,
                          "{app}: [{?limited}at most {memory_bytes}][{!limited}no limit]"
                          "[{?limited}{?least_bytes} (its largest command needs {least_bytes})]; "
                          "granted now: {granted_bytes}");
    if (limited && memory > capacity)
        return output_say(output, answer,
                          "{device}: it has only {capacity_bytes}, so a limit of {memory_bytes} "
                          "changes nothing; granted now: {granted_bytes}");
    return output_say(output, answer,
                      "{device}: programs may have [{?limited}{memory_bytes}][{!limited}all of its "
                      "memory, {capacity_bytes}]; granted now: {granted_bytes}");
}

static int limit_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_LIMIT, .what = "set a limit", .launch = true, .print = limit_print};
    const struct limit *limit = call->options;
    struct frame frame;

    bool power = limit->power_w != OPTION_UNSAID;

    if (limit->off + (limit->bytes != 0) + power != 1)
        return output_usage(&call->output, "give --memory SIZE, --power WATTS or --off");
    frame_init(&frame, MSG_LIMIT);
    frame_string(&frame, "what", call->words[0]);
    frame_bool(&frame, "limited", limit->bytes != 0);
    frame_u64(&frame, "memory_bytes", limit->bytes);
    if (power)
        frame_u64(&frame, "cap_mw", limit->power_w == OPTION_NONE ? 0 : limit->power_w * 1000);
    ask_put_environment(&frame);
    return ask_print(&call->output, &question, &frame);
}

const struct verb verb_limit = {
    .name = "limit",
    .arguments = "DEVICE|APP",
    .summary = "Set how much memory or power programs may have of a device, or one program of any.",
    .text = "The limit of a device is for all programs together. A program that has more makes "
            "room: it spills, moves or is suspended. A program that spills has what its largest "
            "command needs, whatever its own limit is. The limit of a device outlives the agent, "
            "that of a program ends with it.",
    .members = "app device limited memory_bytes capacity_bytes granted_bytes held_bytes "
               "least_bytes power_cap_mw",
    .options = limit_options,
    .size = sizeof(struct limit),
    .users = true,
    .run = limit_run,
};
