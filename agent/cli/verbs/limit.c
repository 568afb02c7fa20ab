#include "agent/cli/client.h"
#include "agent/cli/verb.h"

struct limit {
    bool off;
    uint64_t bytes;   /**< 0: not given. */
    uint64_t power_w; /**< OPTION_UNSAID: not given; OPTION_OFF: no cap. */
};

static const struct option_row limit_options[] = {
    {"memory", "SIZE",
     "Device memory that may be used, above 0, such as 512MiB. See reseat drain and reseat suspend "
     "to use none.",
     OPTION_VALUE(struct limit, bytes), .kind = OPTION_SIZE, .least = 1},
    {"power", "WATTS|off",
     "Power that a device, or a program with its device's idle power, may draw. Launches wait so "
     "that it is kept. Refused if no launch fits.",
     OPTION_VALUE(struct limit, power_w), .kind = OPTION_NUMBER, .least = 1, .most = 1000000,
     .initial = OPTION_UNSAID},
    {"off", NULL, "Remove the limit of memory (of power: --power off).",
     OPTION_VALUE(struct limit, off)},
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
        frame_u64(&frame, "cap_mw", limit->power_w == OPTION_OFF ? 0 : limit->power_w * 1000);
    ask_put_environment(&frame);
    return ask_print(&call->output, &question, &frame);
}

const struct verb verb_limit = {
    .name = "limit",
    .arguments = "DEVICE|APP",
    .summary = "Limit the memory or power of a device, or of a program on any device.",
    .text =
        "A device's limit is for all programs together. A program above the limit spills, moves or "
        "is suspended. A program that spills may have what its largest command needs, whatever its "
        "limit is. The limit of a device outlives the agent, that of a program ends with it.",
    .members = "app device limited memory_bytes capacity_bytes granted_bytes held_bytes "
               "least_bytes power_cap_mw",
    .options = limit_options,
    .size = sizeof(struct limit),
    .users = true,
    .run = limit_run,
};
