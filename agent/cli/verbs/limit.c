#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"

#define LIMIT_MS 10000

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
     "wait so that "
     "this is kept. Refused where nothing fits under it.",
     OPTION_VALUE(struct limit, power_w), .kind = OPTION_NUMBER, .least = 1, .most = 1000000,
     .initial = OPTION_UNSAID},
    {"off", NULL, "No limit but the memory that there is.", OPTION_VALUE(struct limit, off)},
    {NULL}};

static int limit_print_limit(const struct output *output, const json_t *answer)
{
    char name[OUTPUT_PROGRAM_MAX], bytes[32], granted[32], least[32], more[96] = "";
    const json_t *app = json_object_get(answer, "app");
    bool limited = member_bool(answer, "limited"), power = json_object_get(answer, "power_cap_mw");

    (void)output;
    bytes_text(member_number(answer, app || limited ? "memory_bytes" : "capacity_bytes"), bytes,
               sizeof(bytes));
    bytes_text(member_number(answer, "granted_bytes"), granted, sizeof(granted));
    if (limited && member_number(answer, "least_bytes")) {
        bytes_text(member_number(answer, "least_bytes"), least, sizeof(least));
        snprintf(more, sizeof(more), " (its largest command needs %s)", least);
    }
    if (power) {
        printf("%s: ", app ? output_program(app, name) : member_text(answer, "device"));
        if (limited)
            printf("at most %.1f W\n", (double)member_number(answer, "power_cap_mw") / 1000);
        else
            puts("no power cap");
    } else if (app) {
        printf("%s: %s%s%s; granted now: %s\n", output_program(app, name),
               limited ? "at most " : "no limit", limited ? bytes : "", more, granted);
    } else if (limited &&
               member_number(answer, "memory_bytes") > member_number(answer, "capacity_bytes")) {
        char own[32];
        bytes_text(member_number(answer, "capacity_bytes"), own, sizeof(own));
        printf("%s: it has only %s, so a limit of %s changes nothing; granted now: %s\n",
               member_text(answer, "device"), own, bytes, granted);
    } else {
        printf("%s: programs may have %s%s; granted now: %s\n", member_text(answer, "device"),
               limited ? "" : "all of its memory, ", bytes, granted);
    }
    return output_done();
}

static int limit_run(struct call *call)
{
    static const struct question question = {MSG_LIMIT,
                                             "set a limit",
                                             true,
                                             LIMIT_MS,
                                             "app device limited memory_bytes capacity_bytes "
                                             "granted_bytes held_bytes least_bytes power_cap_mw",
                                             limit_print_limit,
                                             NULL};
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
    .options = limit_options,
    .size = sizeof(struct limit),
    .users = true,
    .run = limit_run,
};
