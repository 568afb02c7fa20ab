#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"

#define TEXT_MAX 256 /* Bytes of a notice's text, which programs log as a line. */

/** A notice to a registered program. */
struct notice {
    const char *text;
    uint64_t in_ns, value; /**< OPTION_UNSAID: not given. */
};

static int notify_take_text(struct call *call, const struct option_row *option, const char *text)
{
    size_t length = strlen(text);
    bool line = length < TEXT_MAX;

    for (size_t i = 0; i < length; i++)
        line = line && (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;
    if (!line) {
        return output_usage(&call->output,
                            "--%s is one line of less than %d bytes, without control characters",
                            option->name, TEXT_MAX);
    }
    ((struct notice *)call->options)->text = text;
    return 0;
}

static const struct option_row notify_options[] = {
    {"in", "TIME", "Of device-taken, which needs it: how long until then; 0 is now.",
     OPTION_SECONDS(struct notice, in_ns, 9, 0, 10000000000000000), .initial = OPTION_UNSAID},
    {"value", "N|off",
     "Of power, which needs it: milliwatts. Of quota, which needs it: bytes, or off. Of "
     "device-added: bytes.",
     OPTION_VALUE(struct notice, value), .kind = OPTION_NUMBER, .most = INT64_MAX,
     .initial = OPTION_UNSAID},
    {"text", "TEXT", "One line that the program may log.", .take = notify_take_text},
    {NULL}};

/** Check that the options given are those that the notice needs. There are no defaults. */
static int notify_check(const struct output *output, const char *what, const struct notice *notice)
{
    static const struct {
        const char *what;
        bool takes_in, takes_value;
        const char *needs;
    } notices[] = {
        {NOTICE_ADDED, false, true, NULL},
        {NOTICE_TAKEN, true, false, "when: --in TIME; 0 is now"},
        {NOTICE_POWER, false, true, "how much: --value MILLIWATTS"},
        {NOTICE_QUOTA, false, true, "how much: --value BYTES, or --value off"},
    };
    bool has_in = notice->in_ns != OPTION_UNSAID, has_value = notice->value != OPTION_UNSAID;
    size_t i = 0;

    while (strcmp(notices[i].what, what))
        i++;
    if (has_in && !notices[i].takes_in)
        return output_usage(output, "%s has no --in", what);
    if (has_value && !notices[i].takes_value)
        return output_usage(output, "%s has no --value", what);
    if (notice->value == OPTION_OFF && strcmp(what, NOTICE_QUOTA))
        return output_usage(output, "--value off is for quota only");
    return notices[i].needs && !has_in && !has_value
               ? output_usage(output, "%s says %s", what, notices[i].needs)
               : 0;
}

static int notify_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_NOTICE, .what = "notify a program", .say = "{app} is told: {what}"};
    const struct notice *notice = call->options;
    struct frame frame;
    int status = notify_check(&call->output, call->words[1], notice);

    if (status)
        return status;
    frame_init(&frame, MSG_NOTICE);
    frame_string(&frame, "app", call->words[0]);
    frame_string(&frame, "what", call->words[1]);
    frame_u64(&frame, "in_ns", notice->in_ns == OPTION_UNSAID ? 0 : notice->in_ns);
    if (notice->value != OPTION_UNSAID)
        frame_u64(&frame, "value", notice->value == OPTION_OFF ? UINT64_MAX : notice->value);
    frame_string(&frame, "text", notice->text ? notice->text : "");
    return ask_print(&call->output, &question, &frame);
}

const struct verb verb_notify = {
    .name = "notify",
    .arguments = "APP[:N] " NOTICE_ADDED "|" NOTICE_TAKEN "|" NOTICE_POWER "|" NOTICE_QUOTA,
    .summary = "Notify a program that registered with reseat.h.",
    .text = "The program is only told; it decides what to do.",
    .members = "app what",
    .options = notify_options,
    .size = sizeof(struct notice),
    .users = true,
    .run = notify_run,
};
