#include "agent/cli/client.h"
#include "agent/cli/verb.h"

#define PROFILE_MS 10000

static int profile_print(const struct output *output, const json_t *answer)
{
    enum { TIME = 3, ERROR };
    static const struct table_column columns[] = {
        {"KERNEL", "kernel", .wrap = true},
        {"DEVICE", "device"},
        {"WORK-ITEMS", "items", TABLE_NUMBER, true},
        {"TIME", .right = true},
        {"ERROR", .right = true},
    };
    const json_t *costs = json_object_get(answer, "costs"), *cost;
    size_t i;

    if (!json_array_size(costs)) {
        output_note(output, "no launch was measured yet; those of programs with one queue are, "
                            "while --slice is not 0");
        return output_done();
    }
    struct table *table = table_create(columns, ARRAY_SIZE(columns));
    json_array_foreach(costs, i, cost)
    {
        char text[32];
        table_add(table, cost);
        output_seconds(member_number(cost, "ns"), text, sizeof(text));
        table_put(table, TIME, text);
        snprintf(text, sizeof(text), "%.1f%%", (double)member_number(cost, "error_permil") / 10);
        table_put(table, ERROR, text);
    }
    int status = table_print(table);
    if (json_is_true(json_object_get(answer, "more")))
        output_note(output, "there are more; name a program or a kernel");
    return status;
}

static int profile_run(struct call *call)
{
    static const struct question question = {
        MSG_PROFILE, "show what launches cost", false, PROFILE_MS, "costs[] more", profile_print,
        NULL};
    struct frame frame;

    frame_init(&frame, MSG_PROFILE);
    frame_string(&frame, "what", call->count ? call->words[0] : "");
    return ask_print(&call->output, &question, &frame);
}

const struct verb verb_profile = {
    .name = "profile",
    .arguments = "[APP|KERNEL]",
    .summary = "Show how long launches of each kernel took on each device.",
    .text =
        "Shown are the work-items and the time of a launch, each a mean of launches of about "
        "that size, and how far the mean may be off. They are measured while programs run, from "
        "launches that these make anyway: in programs with one queue, of kernels that may run "
        "in pieces (reseat run --slice). The policy compares devices by them. They are kept for "
        "each user, in costs.sqlite in the agent's state folder.",
    .users = true,
    .run = profile_run,
};
