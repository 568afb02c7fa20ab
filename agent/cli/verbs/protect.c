#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/select.h"

struct protect {
    struct request asked;
    const char *every;
    bool off;
};

static int protect_take_every(struct call *call, const struct option_row *option, const char *text)
{
    struct protect *protect = call->options;
    struct protection *protection = &protect->asked.protection;
    char reason[PROTOCOL_TEXT_MAX];

    if (protection_parse(text, protection, reason, sizeof(reason)))
        return output_usage(&call->output, "--%s: %s", option->name, reason);
    if (!protection->seconds && !protection->bytes)
        return output_usage(&call->output, "--%s takes a time or a size", option->name);
    protect->every = text;
    return 0;
}

static const struct option_row options[] = {
    {"every", "TIME|SIZE",
     "Time between two copies of the program's data (fewer copies are made if they would pause "
     "it for more than 1% of its time), or host memory for the journal of what it does in between. "
     "Default: 10 and 256MiB.",
     .take = protect_take_every},
    {"off", NULL, "End the protection.", OPTION_VALUE(struct protect, off)},
    {"timeout", "TIME", "Wait no longer for the first copy, which is then made later. Default: 60.",
     OPTION_SECONDS(struct protect, asked.timeout_ms, 3, 1, TIMEOUT_MAX_MS), .initial = 60000},
    OPTION_SELECTORS(SELECT_EACH),
    {NULL}};

static int protect_print(const struct call *call, json_t *report)
{
    const struct protect *protect = call->options;
    char name[SAY_PROGRAM_MAX];

    if (member_text(report, "not_protected")[0]) {
        return output_fail(&call->output, ERR_REFUSED,
                           "%s is not protected now: %s; it will be as soon as that has passed "
                           "(reseat protect --off ends it)",
                           say_program(json_object_get(report, "app"), name),
                           member_text(report, "not_protected"));
    }
    json_object_set_new(report, "protect",
                        output_text(protect->off     ? "off"
                                    : protect->every ? protect->every
                                                     : "on"));
    return output_say(&call->output, report,
                      protect->off
                          ? "{app} [{?starting}will start][{!starting}is] not protected"
                          : "{app} [{?starting}will start protected][{!starting}is protected: "
                            "{bytes} copied in {total_ns}, stopped for {downtime_ns}]");
}

static int protect_verb_run(struct call *call)
{
    static const struct news news = {.cancels = false};
    static const struct question question = {
        .type = MSG_REPORT, .what = MSG_PROTECT, .news = &news};
    struct protect *protect = call->options;
    char name[SAY_PROGRAM_MAX];
    struct frame frame;
    json_auto_t *report = NULL;

    if (protect->off && protect->every)
        return output_usage(&call->output, "give --every or --off, not both");
    if (!protect->every)
        protect->asked.protection.word = protect->off ? PROTECTION_OFF : PROTECTION_ON;
    ask_request(&frame, MSG_PROTECT, call->words[0], &protect->asked);
    int status = ask(&call->output, &question, &frame, &report);
    if (status)
        return status;
    if (strcmp(member_text(report, "result"), RESULT_DONE) == 0)
        return protect_print(call, report);
    return output_fail(&call->output, output_code_of(member_text(report, "result")), "%s: %s",
                       say_program(json_object_get(report, "app"), name),
                       member_text(report, "reason"));
}

const struct verb verb_protect = {
    .name = MSG_PROTECT,
    .arguments = "APP",
    .summary = "Protect a running program from the loss of its device.",
    .text =
        "The program's data is copied to host memory again and again, and its commands since the "
        "last copy are kept; when its device is lost, it goes on from there on another. reseat "
        "explain shows the last copy, the cost, and the last loss. Holds until the program ends, "
        "whatever the configuration says. reseat run --protect lists what cannot be protected.",
    .members = "app starting bytes total_ns downtime_ns protect",
    .options = options,
    .size = sizeof(struct protect),
    .users = true,
    .run = protect_verb_run,
};
