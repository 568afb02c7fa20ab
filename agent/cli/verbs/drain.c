#include <string.h>

#include "agent/cli/client.h"
#include "agent/cli/verb.h"

/* reseat drain and reseat rebalance: moves chosen by the policy, each printed when it ends. */

struct steps {
    const struct output *output;
    const char *device; /**< NULL for a rebalance. */
    bool undo, dry_run;
    uint64_t in_ns;    /**< Delay; 0: now. */
    json_t *announced; /**< The answer that announced the drain; or NULL. */
    json_t *list;      /**< The steps for --json; NULL without it. */
};

static const struct verb_option drain_options[] = {
    {"in", "SECONDS",
     "Drain it then. New programs are kept away at once, and programs there that registered with "
     "reseat.h are told at once. One that answers with a wish says that now is a good time: it is "
     "moved as soon as another device has room. When all have left, the device is drained, "
     "whatever is left of the time. An agent that is started again keeps to the time.",
     OPTION_SECONDS(struct steps, in_ns, 9, 0, 10000000000000000)},
    {"off", NULL,
     "Let it take programs again, also before the time has come; those that were told are told so. "
     "A command that waits for the drain fails.",
     OPTION_VALUE(struct steps, undo)},
    {NULL}};

static const struct verb_option rebalance_options[] = {
    {"dry-run", NULL, "Only say which would move.", OPTION_VALUE(struct steps, dry_run)}, {NULL}};

static void drain_show_step(struct steps *steps, json_t *step)
{
    char name[OUTPUT_PROGRAM_MAX];
    const char *result = member_text(step, "result"), *reason = member_text(step, "reason");
    bool done = strcmp(result, RESULT_DONE) == 0;

    if (steps->list) {
        json_array_append(steps->list, step);
        return;
    }
    printf("%s: %s -> %s%s%s%s%s\n", output_program(json_object_get(step, "app"), name),
           output_place(member_text(step, "from")), output_place(member_text(step, "to")),
           done || steps->dry_run ? "" : ", ", done ? "" : result, reason[0] ? ": " : "", reason);
    fflush(stdout);
}

/** Print the announcement of a drain that is not immediate. */
static void drain_show_announced(struct steps *steps, json_t *announced)
{
    unsigned long long programs = member_number(announced, "programs");

    if (steps->output->json) {
        steps->announced = json_incref(announced);
        json_object_del(announced, "device");
        return;
    }
    printf("%s will be drained in %llu s; %llu program%s there, %llu told\n",
           member_text(announced, "device"),
           (member_number(announced, "in_ns") + 999999999) / 1000000000, programs,
           programs == 1 ? " is" : "s are", member_number(announced, "told"));
    fflush(stdout);
}

/** One line: the programs left on the device, and why. */
static void drain_explain(const json_t *answer, struct words *words)
{
    const char *device = member_text(answer, "device");
    char name[OUTPUT_PROGRAM_MAX];
    const json_t *one;
    size_t i;

    json_array_foreach(json_object_get(answer, "left"), i, one)
    {
        words_add(words, "%s%s stays: %s", i ? "; " : "",
                  output_program(json_object_get(one, "app"), name), member_text(one, "reason"));
    }
    words_add(words, "; %s takes no new programs (reseat drain %s --off)", device, device);
}

static int drain_finish_json(struct steps *steps, const json_t *answer, int status,
                             const char *code, const char *why)
{
    json_t *object = output_object(steps->output, status);

    if (steps->device) {
        json_t *drained = json_object_get(answer, "drained");
        output_add_members(object, answer, "device");
        json_object_set(object, "drained", drained ? drained : json_boolean(!steps->undo));
        output_add_members(object, answer, "left[]");
        json_object_set(object, "announced", steps->announced ? steps->announced : json_null());
    } else {
        json_object_set_new(object, "dry_run", json_boolean(steps->dry_run));
    }
    json_object_set(object, "steps", steps->list);
    json_object_set_new(object, "moved", json_integer((json_int_t)member_number(answer, "moved")));
    json_object_set_new(object, "failed",
                        json_integer((json_int_t)member_number(answer, "failed")));
    if (status)
        output_add_error(object, code, why);
    return output_print(object, status);
}

static int drain_finish(struct steps *steps, const json_t *answer)
{
    unsigned long long moved = member_number(answer, "moved");
    unsigned long long failed = member_number(answer, "failed");
    const char *device = member_text(answer, "device"), *code = failed ? ERR_FAILED : ERR_REFUSED;
    bool bad = steps->device ? json_array_size(json_object_get(answer, "left")) > 0 : failed > 0;
    struct words why = {0};

    if (bad && steps->device)
        drain_explain(answer, &why);
    else if (bad)
        words_add(&why, "%llu moved, %llu did not; what did not is where it was", moved, failed);
    if (steps->output->json) {
        int status = bad ? output_status_of(code) : STATUS_DONE;
        return drain_finish_json(steps, answer, status, code, why.text);
    }
    if (bad)
        return output_fail(steps->output, code, "%s", why.text);
    if (!steps->device) {
        printf("%llu program%s %s\n", moved, moved == 1 ? "" : "s",
               steps->dry_run ? "would move" : "moved");
    } else if (steps->undo) {
        printf("%s takes programs again\n", device);
    } else {
        printf("%s is empty and takes no new programs (reseat drain %s --off)\n", device, device);
    }
    return output_done();
}

static bool drain_take_news(void *context, const struct message *message)
{
    bool step = field_is(&message->root, "type", MSG_STEP);

    if (!step && !field_is(&message->root, "type", MSG_NOTICE))
        return false;
    json_t *news = output_answer(message);
    (step ? drain_show_step : drain_show_announced)(context, news);
    json_decref(news);
    return true;
}

static int drain_carry_out(struct call *call, const char *type, const char *what, bool launch)
{
    struct steps *steps = call->options;
    const struct news news = {.take = drain_take_news, .context = steps};
    const struct question question = {type, what, launch, 0, NULL, NULL, &news};
    struct frame frame;
    json_t *answer;

    steps->output = &call->output;
    steps->device = call->words[0];
    steps->list = call->output.json ? json_array() : NULL;
    frame_init(&frame, type);
    if (steps->device)
        frame_string(&frame, "device", steps->device);
    frame_bool(&frame, "undo", steps->undo);
    frame_u64(&frame, "in_ns", steps->in_ns);
    frame_bool(&frame, "dry_run", steps->dry_run);
    ask_put_environment(&frame);
    int status = ask(&call->output, &question, &frame, &answer);
    if (!status) {
        status = drain_finish(steps, answer);
        json_decref(answer);
    }
    json_decref(steps->list);
    json_decref(steps->announced);
    return status;
}

static int drain(struct call *call)
{
    const struct steps *steps = call->options;

    if (steps->undo && steps->in_ns)
        return output_usage(&call->output, "--off is done at once; --in does not go with it");
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
    .text =
        "Programs go to where the policy finds room. What fits nowhere is suspended and queues "
        "for a device. Waits until the device is empty. Exit status 4: some cannot leave it; 1: "
        "some failed to. It stays drained all the same, also when this command is "
        "interrupted.",
    .options = drain_options,
    .size = sizeof(struct steps),
    .users = true,
    .run = drain,
};

const struct verb verb_rebalance = {
    .name = "rebalance",
    .summary = "Move programs to where the policy would rather have them, now.",
    .text = "They go to where they run faster, have more of what they prefer, or cost less, "
            "without minimum stay and budget.",
    .options = rebalance_options,
    .size = sizeof(struct steps),
    .users = true,
    .run = drain_rebalance,
};
