#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"

/* reseat drain and reseat rebalance: moves chosen by the policy, each printed when it ends. */

struct steps {
    const struct output *output;
    const char *device; /**< NULL for a rebalance. */
    struct request asked;
    json_t *announced; /**< The answer that announced the drain; or NULL. */
    json_t *list;      /**< The steps for --json; NULL without it. */
};

static const struct option_row drain_options[] = {
    {"in", "TIME",
     "Drain the device after this time. New programs are kept away at once, and programs "
     "that registered with reseat.h are notified: one that answers with a wish is moved as soon as "
     "there is room elsewhere. When all have left, the device is drained early. A restarted agent "
     "keeps to the time.",
     OPTION_SECONDS(struct steps, asked.in_ns, 9, 0, 10000000000000000)},
    {"timeout", "TIME",
     "Wait no longer for programs to leave, with exit status 5; the device stays drained. Default: "
     "no limit.",
     OPTION_SECONDS(struct steps, asked.timeout_ms, 3, 1, TIMEOUT_MAX_MS)},
    {"dry-run", NULL,
     "Only list where the programs would go now, and which cannot leave. Exit status 4: some "
     "cannot.",
     OPTION_VALUE(struct steps, asked.dry_run)},
    {"keep", NULL,
     "Only keep new programs away; those that are on the device stay there (other tools call that "
     "to cordon).",
     OPTION_VALUE(struct steps, asked.stay)},
    {"off", NULL,
     "Admit programs again, and cancel a planned drain: programs that were notified are told, and "
     "a command that waits for it fails.",
     OPTION_VALUE(struct steps, asked.undo)},
    {NULL}};

static const struct option_row rebalance_options[] = {{"dry-run", NULL,
                                                       "Only list the programs that would move.",
                                                       OPTION_VALUE(struct steps, asked.dry_run)},
                                                      {NULL}};

static bool drain_show_step(void *context, json_t *step)
{
    struct steps *steps = context;
    struct words words = {.used = 0};
    bool done = strcmp(member_text(step, "result"), RESULT_DONE) == 0;

    if (steps->list) {
        json_array_append(steps->list, step);
        return true;
    }
    words_say(&words, step, "{app}: {from:place} -> {to:place}");
    words_say(&words, step, done ? "" : steps->asked.dry_run ? "{result}" : ", {result}");
    words_say(&words, step, "[: {reason}]");
    puts(words.text);
    fflush(stdout);
    return true;
}

/** Print the announcement of a drain that is not immediate. */
static bool drain_show_announced(void *context, json_t *announced)
{
    struct steps *steps = context;
    struct words words = {.used = 0};

    if (steps->output->json) {
        steps->announced = json_incref(announced);
        json_object_del(announced, "device");
        return true;
    }
    words_say(
        &words, announced,
        "{device} will be drained in {in_ns:seconds}; {programs|program is|programs are} there, "
        "{told} told");
    puts(words.text);
    fflush(stdout);
    return true;
}

/** One line: what stays where it was, and why. */
static void drain_explain(const struct steps *steps, const json_t *answer, struct words *words)
{
    const json_t *one;
    size_t i;

    if (!steps->device) {
        words_say(words, answer, "{moved} moved, {failed} did not; what did not is where it was");
        return;
    }
    json_array_foreach(json_object_get(answer, "left"), i, one)
        words_say(words, one, "{app} stays: {reason}; ");
    words_say(words, answer,
              steps->asked.dry_run
                  ? "{moved|program|programs} would leave"
                  : "{device} takes no new programs (reseat drain {device} --off)");
}

static int drain_finish(struct steps *steps, json_t *answer)
{
    bool failed = member_number(answer, "failed"), bad = failed;
    struct words why = {.used = 0};

    if (steps->device) {
        bad = json_array_size(json_object_get(answer, "left")) > 0;
        if (!json_object_get(answer, "drained"))
            json_object_set_new(answer, "drained", json_boolean(!steps->asked.undo));
        json_object_set(answer, "announced", steps->announced);
    }
    json_object_set_new(answer, "dry_run", json_boolean(steps->asked.dry_run));
    json_object_set(answer, "steps", steps->list);
    if (bad) {
        drain_explain(steps, answer, &why);
        return output_result(steps->output, answer, failed ? ERR_FAILED : ERR_REFUSED, why.text);
    }
    return output_say(
        steps->output, answer,
        steps->asked.dry_run ? "{moved|program|programs} would move"
        : steps->asked.stay  ? "{device} takes no new programs, and those on it stay (reseat drain "
                               "{device} --off)"
        : !steps->device     ? "{moved|program|programs} moved"
        : steps->asked.undo  ? "{device} takes programs again"
                             : "{device} is empty and takes no new programs (reseat drain {device} "
                               "--off)");
}

static int drain_carry_out(struct call *call, const char *type, const char *what, bool launch)
{
    struct steps *steps = call->options;
    static const struct news_row rows[] = {
        {MSG_STEP, drain_show_step}, {MSG_NOTICE, drain_show_announced}, {NULL}};
    const struct news news = {.rows = rows, .context = steps};
    const struct question question = {.type = type, .what = what, .launch = launch, .news = &news};
    struct frame frame;
    json_auto_t *answer = NULL;

    steps->output = &call->output;
    steps->device = call->words[0];
    steps->list = call->output.json ? json_array() : NULL;
    if (steps->device)
        snprintf(steps->asked.device, sizeof(steps->asked.device), "%s", steps->device);
    ask_request(&frame, type, "", &steps->asked);
    ask_put_environment(&frame);
    int status = ask(&call->output, &question, &frame, &answer);
    if (!status)
        status = drain_finish(steps, answer);
    json_decref(steps->list);
    json_decref(steps->announced);
    return status;
}

static int drain(struct call *call)
{
    const struct steps *steps = call->options;

    bool waits = steps->asked.in_ns || steps->asked.timeout_ms;

    if (steps->asked.undo + steps->asked.stay + steps->asked.dry_run + waits > 1)
        return output_usage(&call->output,
                            "give one of --off, --keep, --dry-run, or --in and --timeout");
    return drain_carry_out(call, MSG_DRAIN, "drain the device", true);
}

static int drain_rebalance(struct call *call)
{
    return drain_carry_out(call, MSG_BALANCE, "move programs", false);
}

const struct verb verb_drain = {
    .name = "drain",
    .arguments = "DEVICE",
    .summary = "Move every program off a device, and keep new ones away.",
    .text = "The policy chooses where programs go; what fits nowhere is suspended and queues for a "
            "device. Waits until the device is empty. Exit status 4: some programs cannot leave; "
            "1: some failed to. The device stays drained, also when this command is interrupted.",
    .members = "device drained cordoned dry_run left[] announced steps moved failed",
    .options = drain_options,
    .size = sizeof(struct steps),
    .users = true,
    .run = drain,
};

const struct verb verb_rebalance = {
    .name = "rebalance",
    .summary = "Move programs now to where the policy prefers them.",
    .text = "That is where they run faster, have more of what they prefer, or cost less; the "
            "settings for a minimum stay and a budget of moves do not apply.",
    .members = "dry_run steps moved failed",
    .options = rebalance_options,
    .size = sizeof(struct steps),
    .users = true,
    .run = drain_rebalance,
};
