#include <stdlib.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"

#define EVENT_MEMBERS                                                                              \
    "number at_ms what state uid? app? device? from? to? by by_uid? by_pid? reason?"

struct events {
    const struct output *output;
    uint64_t since_ms;
    bool follow;
    bool any;     /**< One came. */
    json_t *list; /**< The events for --json; NULL: each is printed when it comes. */
};

static const struct option_row events_options[] = {
    {"follow", NULL,
     "Print what happens from now on too, until Ctrl-C. With --json each event is an object of its "
     "own, on one line.",
     OPTION_VALUE(struct events, follow)},
    {"since", "TIME",
     "Only events that are no older, such as 90s, 10m, 2h or 1d. Default: all that are kept.",
     OPTION_SECONDS(struct events, since_ms, 3, 0, 1000000000000), .initial = OPTION_UNSAID},
    {NULL}};

static void events_print(const json_t *event)
{
    struct words words = {.used = 0};

    /* A member that is there and "" is host memory. */
    words_say(&words, event, "{at_ms:timestamp} {what}[ {app}][ {device}]");
    if (json_object_get(event, "to"))
        words_say(&words, event, " {from:place} -> {to:place}");
    words_say(&words, event, ": {state}[ ({reason})] by {by}[ {by_pid}][ of user {by_uid}]");
    puts(words.text);
}

static bool events_show(void *context, json_t *answer)
{
    struct events *events = context;
    const json_t *one;
    size_t i;

    json_array_foreach(json_object_get(answer, "events"), i, one)
    {
        json_auto_t *event = json_object();
        events->any = true;
        output_add_members(event, one, EVENT_MEMBERS);
        if (events->list)
            json_array_append(events->list, event);
        else if (!events->output->json)
            events_print(event);
        else if (!json_dumpf(event, stdout, JSON_COMPACT))
            putchar('\n');
    }
    fflush(stdout);
    /* Who reads them has gone. */
    if (events->follow && ferror(stdout))
        exit(STATUS_ROLLED_BACK);
    return events->follow || member_bool(answer, "more");
}

static int events_run(struct call *call)
{
    struct events *events = call->options;
    static const struct news_row rows[] = {{MSG_EVENTS, events_show}, {NULL}};
    const struct news news = {.rows = rows, .context = events};
    const struct question question = {
        .type = MSG_EVENTS, .what = "read events", .news = &news, .lists = true};
    json_auto_t *answer = NULL;
    struct frame frame;

    events->output = &call->output;
    events->list = call->output.json && !events->follow ? json_array() : NULL;
    frame_init(&frame, MSG_EVENTS);
    frame_u64(&frame, "age_ms", events->since_ms);
    frame_bool(&frame, "follow", events->follow);
    int status = ask(&call->output, &question, &frame, &answer);
    if (!status && events->list)
        json_object_set(answer, "events", events->list);
    json_decref(events->list);
    if (status)
        return status;
    if (!events->any)
        output_note(&call->output, "nothing has happened%s",
                    events->since_ms == OPTION_UNSAID ? " yet" : " in that time");
    return call->output.json ? output_result(&call->output, answer, NULL, NULL) : output_done();
}

const struct verb verb_events = {
    .name = "events",
    .summary = "Show what happened to programs and devices, and who asked for it.",
    .text =
        "Moves with their phases, refusals, lost devices and recoveries, drains, limits, "
        "suspends and what the policy decided; of other users' programs only root is told. The "
        "agent keeps the last 4096 events, also when it is started again. Where there are more, "
        "the oldest of the user with the most events go.",
    .members = "events[]",
    .options = events_options,
    .size = sizeof(struct events),
    .users = true,
    .run = events_run,
};
