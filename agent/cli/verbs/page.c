#include "agent/cli/client.h"
#include "agent/cli/verb.h"

static int page_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_PAGE, .what = "tell the address of its page", .launch = true, .say = "{url}"};
    struct frame frame;

    frame_init(&frame, MSG_PAGE);
    return ask_print(&call->output, &question, &frame);
}

const struct verb verb_page = {
    .name = "page",
    .summary = "Print the address of a page for browsers, on which programs can be moved.",
    .text = "The agent serves it if metrics-port is set (reseat.conf(5)). The address has a secret "
            "in it, with which anybody could do what you may: do not give it to others. It is "
            "valid for a day. What you may not see or move by commands you cannot on the page.",
    .members = "url",
    .users = true,
    .run = page_run,
};
