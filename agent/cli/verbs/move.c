#include <string.h>
#include <unistd.h>

#include "agent/cli/client.h"
#include "agent/cli/image/images.h"
#include "agent/cli/select.h"

#define BAR_WIDTH 30
/* First words of the reason why a program cannot leave its device (state/move/move_lock.c). */
#define PINNED "the program is pinned to its device"

/** Options of move, suspend, resume and prewarm. */
struct change {
    const struct output *output;
    struct request asked;         /**< Set by options, and completed when it is sent. */
    bool on_demand, whole, taken; /**< Become `fetch` and `manner` of `asked`. */
    const char *to;               /**< Suspend: the folder of the image; or NULL. */
    bool prewarms;
    struct names devices; /**< Prewarm: the devices. */
    bool bar;             /**< A progress bar is on the terminal. */
};

#define MAX_DOWNTIME                                                                               \
    OPTION_MAX_DOWNTIME(                                                                           \
        struct change,                                                                             \
        "Longest pause of the program; a number is in milliseconds. What it writes meanwhile is "  \
        "copied in "                                                                               \
        "rounds until the rest takes no longer; if rounds do not help, the move fails (with "      \
        "--timeout: at that time). Default: the setting max-downtime, which is a target, not "     \
        "a limit.")
#define BANDWIDTH                                                                                  \
    OPTION_BANDWIDTH(                                                                              \
        struct change,                                                                             \
        "Bytes to copy in a second while the program runs, such as 100MiB. Does not limit "        \
        "copies during the pause. Default: the setting bandwidth.")

#define TAKEN                                                                                      \
    "The device is being taken away: move the program even if a callback that it "                 \
    "registered with reseat.h fails or is late."

#define DETACH                                                                                     \
    {                                                                                              \
        "detach", NULL,                                                                            \
            "Do not wait for the end: reseat ps shows how far it is, reseat wait waits for it, "   \
            "reseat cancel cancels it.",                                                           \
            OPTION_VALUE(struct change, asked.detach)                                              \
    }

#define REPORT_MEMBERS                                                                             \
    "app from to result reached reason total_ns arrived_ns downtime_ns predicted_ns rounds "       \
    "bytes left build_ns built drain_ns waited_for aim_ns starting already vdevs dry_run"

static const struct option_row move_options[] = {
    OPTION_TIMEOUT(struct change,
                   "Roll back a move that takes longer. Default: no limit, but a program that does "
                   "not answer for five seconds is given up with exit status 5."),
    {"dry-run", NULL,
     "Only say whether the device could run the program, by what it has used so far or, if it "
     "registered with reseat.h, by what it requires.",
     OPTION_VALUE(struct change, asked.dry_run)},
    MAX_DOWNTIME,
    BANDWIDTH,
    {"non-blocking", NULL,
     "Do not pause in the middle of a long launch: the rest of it runs on both devices, and the "
     "program moves at its end. Where a launch cannot be split (reseat run --slice), the move is "
     "an ordinary one.",
     OPTION_VALUE(struct change, asked.non_blocking)},
    {"on-demand", NULL,
     "Run the program on the new device at once. Data is copied when a command uses it, and the "
     "rest in the background (reseat ps shows how much); the old device is needed until then. "
     "Copying ahead, the default, gives a shorter pause.",
     OPTION_VALUE(struct change, on_demand)},
    {"taken", NULL, TAKEN, OPTION_VALUE(struct change, taken)},
    DETACH,
    OPTION_SELECTORS(SELECT_EACH),
    {NULL}};

static const struct option_row suspend_options[] = {
    {"to", "FOLDER",
     "Write all that the program has to an image in FOLDER, and then free its host memory; resume "
     "reads it back. If that fails, the program stays suspended in host memory, and the exit "
     "status is 1. Mapped memory and the program's own memory are not freed. FOLDER must belong to "
     "you alone; it is made if it is missing.",
     OPTION_VALUE(struct change, to)},
    OPTION_TIMEOUT(struct change, "Roll back when it takes longer. Default: as of reseat move."),
    MAX_DOWNTIME,
    BANDWIDTH,
    {"taken", NULL, TAKEN, OPTION_VALUE(struct change, taken)},
    DETACH,
    OPTION_SELECTORS(SELECT_EACH),
    {NULL}};

static const struct option_row resume_options[] = {
    OPTION_TIMEOUT(struct change, "Leave it suspended when it takes longer. Default: no limit."),
    {"queue", NULL, "Do not wait: the policy resumes the program when there is room.",
     OPTION_VALUE(struct change, asked.queue)},
    {"on-demand", NULL,
     "Run the program at once: data is copied when a command uses it, and the rest in the "
     "background (reseat ps shows how much). The default for programs with 256 MiB or more.",
     OPTION_VALUE(struct change, on_demand)},
    {"whole", NULL, "Copy all of its data before it runs.", OPTION_VALUE(struct change, whole)},
    BANDWIDTH,
    OPTION_SELECTORS(SELECT_EACH),
    {NULL}};

static const struct option_row prewarm_options[] = {
    {"off", NULL, "Release DEVICE, or without DEVICE every prewarmed device.",
     OPTION_VALUE(struct change, asked.drop)},
    OPTION_TIMEOUT(struct change, "Release a device that is not ready by then. Default: no limit."),
    {NULL}};

static bool move_show_progress(void *context, json_t *progress)
{
    struct change *change = context;
    unsigned long long done = member_number(progress, "done");
    unsigned long long total = member_number(progress, "total");
    unsigned long long builds = member_number(progress, "builds");
    unsigned long long built = member_number(progress, "built");
    struct words words = {.used = 0};
    char bar[BAR_WIDTH + 1];

    /* In the background, the terminal belongs to another process group. */
    if (change->output->json || tcgetpgrp(STDERR_FILENO) != getpgrp())
        return true;
    change->bar = true;
    words_add(&words, "%-8s ", member_text(progress, "phase"));
    if (builds) {
        words_say(&words, progress, change->prewarms ? "{to}: " : "");
        words_add(&words, "builds program %llu of %llu", built < builds ? built + 1 : builds,
                  builds);
        if (member_text(progress, "building")[0])
            words_add(&words, " (kernel %.40s)", member_text(progress, "building"));
    } else {
        int full =
            total ? (int)((double)(done > total ? total : done) / (double)total * BAR_WIDTH) : 0;
        memset(bar, ' ', BAR_WIDTH);
        memset(bar, '#', (size_t)full);
        bar[BAR_WIDTH] = '\0';
        words_add(&words, "[%s]", bar);
        words_say(&words, progress, " {done:bytes} of {total:bytes}");
        if (member_number(progress, "round") > 1)
            words_say(&words, progress, ", round {round}");
    }
    fprintf(stderr, "\r\033[K%s", words.text);
    return true;
}

/** Print that the program waits for memory. */
static bool move_show_waiting(void *context, json_t *notice)
{
    const struct change *change = context;
    struct words words = {.used = 0};

    words_say(&words, notice, "{app} waits for room (Ctrl-C: stay suspended): {reason}");
    if (!change->output->json)
        output_note(change->output, "%s", words.text);
    return true;
}

static void move_end_bar(struct change *change)
{
    if (change->bar) {
        fputs("\r\033[K", stderr);
        change->bar = false;
    }
}

/** True if the program was to be suspended to an image, and no image was written. */
static bool move_is_not_stored(const struct change *change, const json_t *report)
{
    return change->to && !member_text(report, "image")[0] &&
           strcmp(member_text(report, "result"), RESULT_DONE) == 0;
}

/** Advice after a move that failed. */
static const char *move_hint_for(const char *result, const char *to, const char *reason)
{
    bool pinned = strncmp(reason, PINNED, strlen(PINNED)) == 0;

    if (strcmp(result, RESULT_EXPIRED) == 0)
        return "; try again with a longer --timeout";
    /* The device is not the problem of an image or a pinned program. */
    return strcmp(result, RESULT_REFUSED) == 0 && to[0] && !pinned
               ? "; choose another device (reseat devices)"
               : "";
}

/** Say where the program is after a move that failed, and give advice. */
static void move_explain(const struct change *change, const json_t *report, struct words *words)
{
    const char *result = member_text(report, "result"), *reason = member_text(report, "reason");
    const char *from = member_text(report, "from"), *to = member_text(report, "to");
    bool canceled = strcmp(result, RESULT_CANCELED) == 0;

    if (move_is_not_stored(change, report)) {
        words_say(words, report,
                  "{app} is suspended, but not to an image, so no host memory was freed: "
                  "{not_stored}[{!not_stored}its libreseat.so is older and cannot write images]");
        return;
    }
    if (strcmp(result, RESULT_ENDED) == 0) {
        words_say(words, report, "{app} ended first; nothing is left to do");
        return;
    }
    words_say(words, report,
              change->prewarms                      ? "{app} was not made ready for {to:place}"
              : !to[0]                              ? "{app} was not suspended"
              : !from[0]                            ? "{app} was not resumed on {to}"
              : strcmp(result, RESULT_REFUSED) == 0 ? "{app} cannot move to {to}"
              : canceled                            ? "{app}: move to {to} canceled"
                                                    : "{app}: move to {to} failed");
    words_say(words, report, "[; still on {from}][{!from}; still suspended][: {reason}]");
    if (!reason[0] && !canceled)
        words_say(words, report, ": {result} in phase {reached}");
    words_add(words, "%s", move_hint_for(result, to, reason));
}

/** Print the result as JSON. Members outside of "devices" are those of @report. */
static int move_print_json(const struct change *change, json_t *report, const json_t *reports,
                           const char *code, const char *explanation)
{
    json_t *devices = json_array(), *one;
    size_t i;

    json_array_foreach(reports, i, one)
    {
        json_t *device = json_object();
        output_add_members(device, one, "to result reached reason total_ns already");
        json_array_append_new(devices, device);
    }
    json_object_set_new(report, "dry_run", json_boolean(change->asked.dry_run));
    json_object_set_new(report, "devices", devices);
    return output_result(change->output, report, code, explanation);
}

static void move_print_moved(const json_t *report)
{
    const char *from = member_text(report, "from"), *to = member_text(report, "to");
    uint64_t stop = member_number(report, "downtime_ns"), aim = member_number(report, "aim_ns");
    struct words words = {.used = 0};

    words_say(&words, report,
              !to[0]     ? "{app} suspended in {total_ns}"
              : !from[0] ? "{app} resumed on {to} in {arrived_ns}"
                         : "{app} moved from {from} to {to} in {total_ns}");
    /* The parts of the duration: builds, waiting for launched commands, copies. */
    words_say(&words, report, "[, {?built}{build_ns} of it building {built|program|programs}]");
    if (from[0] && to[0])
        words_say(&words, report, "; paused for {downtime_ns}");
    if (from[0] && to[0] && aim && stop > aim)
        words_say(&words, report,
                  strchr(member_text(report, "waited_for"), ',')
                      ? " (target {aim_ns}; {drain_ns} of it waiting for kernels {waited_for})"
                      : " (target {aim_ns}; {drain_ns} of it waiting for [kernel {waited_for}]"
                        "[{!waited_for}launched commands to end])");
    words_say(&words, report, "; [{bytes}][{!bytes}nothing] copied");
    if (member_number(report, "rounds") > 1)
        words_say(&words, report,
                  " in {rounds} rounds, the last of which predicted a pause of {predicted_ns}");
    words_say(&words, report, "[, {left:bytes} to follow while it runs]");
    puts(words.text);
}

static void move_print_done(const struct change *change, const json_t *report)
{
    bool already = member_bool(report, "already");
    const char *template = NULL;
    struct words words = {.used = 0};

    if (change->asked.drop)
        template = already ? "{app}: no prewarmed device to release[: {to}]"
                           : "{app}: prewarmed [device {to}][{!to}devices] released";
    else if (change->prewarms)
        template = !already                         ? "{app} is ready for {to}: made in {total_ns}"
                   : member_text(report, "from")[0] ? "{app} is ready for {from} already"
                                                    : "{app} is ready for {to} already";
    else if (already)
        template = "{app} is already [on {from}][{!from}suspended]";
    else if (strcmp(member_text(report, "result"), RESULT_QUEUED) == 0)
        template = "{app} queues for a device; the policy resumes it when there is room "
                   "(reseat explain {app.pid})";
    else if (change->asked.dry_run)
        template = "{app} can move from {from:place} to {to}";
    else if (strcmp(member_text(report, "result"), RESULT_BEGUN) == 0)
        template = "{app} leaves {from:place} for {to:place}; reseat ps shows how far it is";
    else if (member_bool(report, "starting"))
        template = "{app} has not used OpenCL yet; it will start on {to}";
    else
        move_print_moved(report);
    if (template) {
        words_say(&words, report, template);
        puts(words.text);
    }
    if (change->to && !change->asked.detach) {
        words.used = 0;
        words_say(&words, report,
                  "{image_bytes} in the image {image}, {image_written:bytes} of it new; "
                  "{freed:bytes} of host memory freed");
        puts(words.text);
    }
}

static int move_status_of(const struct change *change, const json_t *report)
{
    const char *result = member_text(report, "result");
    bool done = strcmp(result, RESULT_DONE) == 0 || strcmp(result, RESULT_QUEUED) == 0 ||
                strcmp(result, RESULT_BEGUN) == 0;

    if (move_is_not_stored(change, report))
        return STATUS_ROLLED_BACK;
    return done ? STATUS_DONE : output_status_of(output_code_of(result));
}

/** Print the result. The first report of a failure determines the status. */
static int move_finish(struct change *change, const json_t *reports)
{
    json_t *report, *decides = json_array_get(reports, 0);
    struct words why = {.used = 0};
    size_t i;

    json_array_foreach(reports, i, report)
    {
        struct words explanation = {.used = 0};
        int status = move_status_of(change, report);
        if (status && !move_status_of(change, decides))
            decides = report;
        if (change->output->json)
            continue;
        if (!status) {
            move_print_done(change, report);
            continue;
        }
        move_explain(change, report, &explanation);
        output_note(change->output, "%s", explanation.text);
    }
    int status = move_status_of(change, decides);
    if (!change->output->json)
        return status ? status : output_done();
    if (status)
        move_explain(change, decides, &why);
    return move_print_json(change, decides, reports,
                           status ? output_code_of(member_text(decides, "result")) : NULL,
                           why.text);
}

static void move_say_canceling(void *context)
{
    struct change *change = context;

    move_end_bar(change);
    if (!change->output->json)
        output_note(change->output, "canceling; press Ctrl-C again to leave without waiting");
}

static void move_make_request(struct call *call, struct frame *ret_frame)
{
    struct change *change = call->options;
    struct request *asked = &change->asked;

    if (change->whole || change->on_demand)
        asked->fetch = change->whole ? REQUEST_FETCH_WHOLE : REQUEST_FETCH_ON_DEMAND;
    if (change->taken)
        asked->manner = REQUEST_TAKEN;
    if (!change->prewarms && call->count > 1)
        snprintf(asked->device, sizeof(asked->device), "%s", call->words[1]);
    ask_request(ret_frame, call->verb->name, call->words[0], asked);
    if (change->prewarms)
        ask_put_texts(ret_frame, "devices", change->devices.items, change->devices.count);
}

/** Receive the answers: one, or for prewarm one for each device. */
static int move_take_answers(struct call *call, struct client *client)
{
    struct change *change = call->options;
    static const struct news_row rows[] = {
        {MSG_PROGRESS, move_show_progress}, {MSG_NOTICE, move_show_waiting}, {NULL}};
    const struct news news = {rows, change, true, move_say_canceling};
    const struct question question = {.type = MSG_REPORT, .what = call->verb->name, .news = &news};
    size_t count = change->devices.count ? change->devices.count : 1;
    json_auto_t *reports = json_array();
    struct frame frame;
    int status = 0;

    move_make_request(call, &frame);
    for (size_t i = 0; !status && i < count; i++) {
        json_t *report = NULL;
        status = ask_on(&call->output, client, &question, i ? NULL : &frame, &report);
        move_end_bar(change);
        if (!status && json_is_string(json_object_get(report, "result")))
            json_array_append_new(reports, report);
        else if (!status)
            status = output_fail_answer(&call->output);
    }
    return status ? status : move_finish(change, reports);
}

static int move_cancel_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_CANCEL, .what = "cancel a move", .say = "{app}: canceled"};
    struct frame frame;

    frame_init(&frame, MSG_CANCEL);
    frame_string(&frame, "app", call->words[0]);
    return ask_print(&call->output, &question, &frame);
}

static int move_adjust_run(struct call *call)
{
    static const struct question question = {
        .type = MSG_ADJUST, .what = "adjust a move", .say = "{app}: adjusted"};
    struct change *change = call->options;
    struct frame frame;

    if (!change->asked.bandwidth && !change->asked.max_downtime_ms)
        return output_usage(&call->output, "give --bandwidth, --max-downtime or both");
    ask_request(&frame, MSG_ADJUST, call->words[0], &change->asked);
    return ask_print(&call->output, &question, &frame);
}

static int move_verb_run(struct call *call)
{
    struct change *change = call->options;
    struct client client;
    change->output = &call->output;
    change->prewarms = strcmp(call->verb->name, MSG_PREWARM) == 0;
    if (change->prewarms && !change->asked.drop && call->count < 2)
        return output_fail(&call->output, ERR_USAGE,
                           "prewarm needs a DEVICE to make ready (reseat devices), or --off");
    if (change->on_demand && change->asked.non_blocking)
        return output_usage(&call->output, "give --on-demand or --non-blocking, not both");
    if (change->on_demand && change->whole)
        return output_usage(&call->output, "give --on-demand or --whole, not both");
    int status =
        change->to ? images_name_folder(&call->output, change->to, change->asked.folder) : 0;
    if (!status && change->prewarms && call->count > 1)
        status =
            verb_take_names(call, "DEVICE", call->words[1], PROTOCOL_PREWARM_MAX, &change->devices);
    if (status)
        return status;
    status = ask_connect(&call->output, false, "reach the program", &client);

    if (!status)
        status = move_take_answers(call, &client);
    client_close(&client);
    return status;
}

const struct verb verb_move = {
    .name = MSG_MOVE,
    .arguments = "APP[:N] DEVICE",
    .summary = "Move a program to another device, while it runs.",
    .text = "APP is a pid, a name or an id (reseat ps); DEVICE a name, UUID, PCI address or part "
            "of the driver's name (reseat devices). Ctrl-C cancels, as does reseat cancel in "
            "another terminal.\nAll virtual devices of the program move, one after "
            "another; APP:N is one of them, counted from 0.",
    .members = REPORT_MEMBERS,
    .options = move_options,
    .size = sizeof(struct change),
    .users = true,
    .run = move_verb_run,
};

static const struct option_row cancel_options[] = {OPTION_SELECTORS(SELECT_EACH), {NULL}};

const struct verb verb_cancel = {
    .name = MSG_CANCEL,
    .arguments = "APP",
    .summary = "Cancel the move, suspend, resume or prewarm of a program that is under way.",
    .text = "Whoever asked for it (reseat ps shows what is under way). The program stays where it "
            "was. Exit status 4: nothing is under way.",
    .members = "app",
    .options = cancel_options,
    .users = true,
    .run = move_cancel_run,
};

static const struct option_row adjust_options[] = {
    OPTION_MAX_DOWNTIME(
        struct change,
        "Longest pause of the program from now on; a number is in milliseconds. A longer pause is "
        "undone, also if the move had only a target."),
    OPTION_BANDWIDTH(struct change,
                     "Bytes to copy in a second from now on, such as 100MiB. Does not limit copies "
                     "during the pause."),
    OPTION_SELECTORS(SELECT_EACH),
    {NULL}};

const struct verb verb_adjust = {
    .name = MSG_ADJUST,
    .arguments = "APP",
    .summary = "Change the limits of a move, suspend or resume that is under way.",
    .text = "Whoever asked for it (reseat ps shows what is under way). Exit status 4: nothing is "
            "under way, or all is copied already. What a move on demand fetches in the background "
            "keeps the bandwidth that it began with.",
    .members = "app",
    .options = adjust_options,
    .size = sizeof(struct change),
    .users = true,
    .run = move_adjust_run,
};

const struct verb verb_suspend = {
    .name = MSG_SUSPEND,
    .arguments = "APP[:N]",
    .summary = "Take a program off its device, into host memory.",
    .text = "The program waits when it needs a device. All its virtual devices are suspended; "
            "APP:N is one of them.",
    .members = REPORT_MEMBERS " image? image_bytes? image_written? freed? not_stored?",
    .options = suspend_options,
    .size = sizeof(struct change),
    .users = true,
    .run = move_verb_run,
};

const struct verb verb_resume = {
    .name = MSG_RESUME,
    .arguments = "APP[:N] [DEVICE]",
    .summary = "Give a suspended program a device again.",
    .text = "It gets DEVICE, else the device it was on, or any that fits. If there is no room now, "
            "the command waits until there is; Ctrl-C leaves the program suspended. All virtual "
            "devices that are suspended are resumed; APP:N is one of them.",
    .members = REPORT_MEMBERS,
    .options = resume_options,
    .size = sizeof(struct change),
    .users = true,
    .run = move_verb_run,
};

const struct verb verb_prewarm = {
    .name = MSG_PREWARM,
    .arguments = "APP[:N] [DEVICE[,DEVICE]]",
    .summary = "Prepare devices for a later move of a program.",
    .text = "Opens a context on each DEVICE (8 at most) and builds the program's kernels there, "
            "while it runs elsewhere; a later move to DEVICE saves that time. A move to another "
            "device, a suspend, and a drain of DEVICE release it. The column READY of reseat ps "
            "lists prewarmed devices. Their memory counts against no limit.",
    .members = REPORT_MEMBERS " devices",
    .options = prewarm_options,
    .size = sizeof(struct change),
    .users = true,
    .run = move_verb_run,
};
