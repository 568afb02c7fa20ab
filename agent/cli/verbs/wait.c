#include "agent/cli/client.h"
#include "agent/cli/verb.h"

static const struct option_row wait_options[] = {
    {"timeout", "TIME", "Give up after this time, with exit status 5. Default: no limit.",
     OPTION_SECONDS(struct request, timeout_ms, 3, 1, TIMEOUT_MAX_MS)},
    {NULL}};

static int wait_run(struct call *call)
{
    static const struct news nothing = {.rows = NULL};
    static const struct question question = {.type = MSG_WAIT,
                                             .what = "wait",
                                             .lists = true,
                                             .news = &nothing,
                                             .say = "{app}{device}: {condition}"};
    const struct request *asked = call->options;
    struct frame frame;

    frame_init(&frame, MSG_WAIT);
    frame_string(&frame, "what", call->words[0]);
    frame_string(&frame, "condition", call->words[1]);
    frame_u64(&frame, "timeout_ms", asked->timeout_ms);
    ask_put_environment(&frame);
    return ask_print(&call->output, &question, &frame);
}

const struct verb verb_wait = {
    .name = "wait",
    .arguments = "DEVICE|APP running|suspended|ended|lost|idle|drained|up",
    .summary = "Wait until a program or a device is in a state.",
    .text = "A program is running (on a device, with no move under way), suspended, lost (with its "
            "device) or ended; a device idle (no program is there), drained (and idle), lost or "
            "up. Returns at once if it is so already. Exit status 3: the program ended first, or "
            "there is none.",
    .members = "app device condition",
    .options = wait_options,
    .size = sizeof(struct request),
    .users = true,
    .run = wait_run,
};
