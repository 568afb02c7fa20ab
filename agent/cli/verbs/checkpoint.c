#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/cli/client.h"
#include "agent/cli/image/checkpoint_process.h"
#include "agent/cli/image/images.h"
#include "agent/cli/verb.h"
#include "state/base/cleanup.h"
#include "state/image/image_keep.h"

/* Images of a program while it runs, once or again and again. */

#define SECONDS_MAX  (86400 * 1000)
#define TIMEOUT_MAX  10000000000
#define DOWNTIME_MAX 3600000
#define KEEP_MAX     1000000
#define EVERY_UNSAID UINT64_MAX

struct checkpoint {
    const struct output *output;
    const char *to;
    char folder[PATH_MAX];
    uint64_t every_ms; /**< EVERY_UNSAID: once. */
    uint64_t keep;     /**< 0: all. */
    uint64_t timeout_ms, max_downtime_ms, bandwidth, lease_ms;
    bool off;                  /**< None is made any more. */
    bool process, end_process; /**< All of it is kept; and it is not to run on. */
    const char *criu;
    int signals; /**< Ctrl-C and the like, as something to wait for. */
};

static void checkpoint_prepare(void *options)
{
    ((struct checkpoint *)options)->every_ms = EVERY_UNSAID;
}

static bool checkpoint_ends(const struct checkpoint *checkpoint)
{
    return checkpoint->off;
}

static int checkpoint_take_bandwidth(struct call *call, const struct verb_option *option,
                                     const char *text)
{
    struct checkpoint *checkpoint = call->options;
    char reason[PROTOCOL_TEXT_MAX];

    if (size_parse(text, &checkpoint->bandwidth, reason, sizeof(reason)))
        return output_usage(&call->output, "--%s: %s", option->name, reason);
    if (!checkpoint->bandwidth)
        return output_usage(&call->output, "--%s must be above 0", option->name);
    return 0;
}

static const struct verb_option options[] = {
    {"to", "FOLDER",
     "Where images go. It is made where it is missing, and has to be the user's alone.",
     OPTION_VALUE(struct checkpoint, to)},
    {"every", "SECONDS",
     "When the first one is there, have the agent make another each so many seconds, until the "
     "program's end or --off; reseat explain shows that. Between them the program's contents "
     "stay in host memory too, so that only what changed is copied and written.",
     OPTION_VALUE(struct checkpoint, every_ms), .number = "a number of seconds over 0", .places = 3,
     .least = 1, .most = SECONDS_MAX},
    {"off", NULL, "Make no more images of APP, and end its lease.",
     OPTION_VALUE(struct checkpoint, off)},
    {"keep", "N",
     "Remove all but the last N images of the program, once another one is there; those of other "
     "processes of its name stay.",
     OPTION_VALUE(struct checkpoint, keep), .number = "a number over 0", .least = 1,
     .most = KEEP_MAX},
    {"lease", "SECONDS",
     "From now on the program says in FOLDER that it lives. Where nobody hears that for so long, "
     "reseat recover starts it again from its last image, on another host too; a program that "
     "cannot say it for so long waits. It is for programs with a save callback (reseat.h).",
     OPTION_VALUE(struct checkpoint, lease_ms), .number = "a number of seconds from 1 to 3600",
     .places = 3, .least = 1000, .most = 3600000},
    {"max-downtime", "MS",
     "Stop the program for no longer than so many milliseconds, or make none and say why.",
     OPTION_VALUE(struct checkpoint, max_downtime_ms), .number = "a number of milliseconds over 0",
     .least = 1, .most = DOWNTIME_MAX},
    {"bandwidth", "SIZE", "Copy no more than that a second (100MiB, 2GiB) while it runs.",
     .take = checkpoint_take_bandwidth},
    {"timeout", "SECONDS", "Give one up that is not there by then. Default: no limit.",
     OPTION_VALUE(struct checkpoint, timeout_ms), .number = "a number of seconds over 0",
     .places = 3, .least = 1, .most = TIMEOUT_MAX},
    {"process", NULL,
     "Keep the whole process, as CRIU does, with all that it has of OpenCL, for reseat restore. "
     "The program is stopped for as long as that takes. Its drivers have to be in other processes "
     "(reseat run --isolate, or devices of servers), it has no children, and CRIU needs root.",
     OPTION_VALUE(struct checkpoint, process)},
    {"end", NULL,
     "With --process: the program ends once its image is there, to go on where that is restored.",
     OPTION_VALUE(struct checkpoint, end_process)},
    {"criu", "PROGRAM", "With --process: the CRIU to use. Default: criu.",
     OPTION_VALUE(struct checkpoint, criu)},
    {NULL}};

static int checkpoint_stop(void *context, struct client *client)
{
    struct checkpoint *checkpoint = context;
    struct signalfd_siginfo info;
    struct frame frame;

    if (read(checkpoint->signals, &info, sizeof(info)) != sizeof(info))
        return 0;
    frame_init(&frame, MSG_CANCEL);
    return client_send(client, &frame);
}

static bool checkpoint_take_news(void *context, const struct message *message)
{
    (void)context;
    return field_is(&message->root, "type", MSG_PROGRESS);
}

static int checkpoint_print(const struct checkpoint *checkpoint, const json_t *report)
{
    char name[OUTPUT_PROGRAM_MAX], total[32], downtime[32], bytes[32], written[32];

    if (checkpoint->output->json) {
        json_t *object = output_object(checkpoint->output, STATUS_DONE);
        output_add_members(object, report,
                           "app image image_bytes image_written total_ns downtime_ns bytes");
        json_object_set_new(object, "folder", output_text(checkpoint->folder));
        return output_print(object, STATUS_DONE);
    }
    output_program(json_object_get(report, "app"), name);
    output_seconds(member_number(report, "total_ns"), total, sizeof(total));
    output_seconds(member_number(report, "downtime_ns"), downtime, sizeof(downtime));
    bytes_text(member_number(report, "image_bytes"), bytes, sizeof(bytes));
    bytes_text(member_number(report, "image_written"), written, sizeof(written));
    if (checkpoint->end_process)
        snprintf(downtime, sizeof(downtime), "good");
    printf("%s: image %s in %s, stopped for %s, %s, %s of it new\n", name,
           member_text(report, "image"), total, downtime, bytes, written);
    if (checkpoint->every_ms != EVERY_UNSAID)
        printf("another follows every %.3g s, until its end or reseat checkpoint --off\n",
               (double)checkpoint->every_ms / 1e3);
    return output_done();
}

static int checkpoint_take_report(const struct checkpoint *checkpoint,
                                  const struct message *message)
{
    if (!field_is(&message->root, "type", MSG_REPORT))
        return output_fail_message(checkpoint->output, message);
    json_t *report = output_answer(message);
    char name[OUTPUT_PROGRAM_MAX];
    const char *result = member_text(report, "result"), *reason = member_text(report, "reason");
    int status;
    if (strcmp(result, RESULT_DONE) == 0 && member_text(report, "image")[0]) {
        status = checkpoint_print(checkpoint, report);
        if (member_text(report, "not_removed")[0])
            output_note(checkpoint->output, "older images stay: %s",
                        member_text(report, "not_removed"));
    } else {
        status = output_fail(checkpoint->output,
                             strcmp(result, RESULT_REFUSED) == 0   ? ERR_REFUSED
                             : strcmp(result, RESULT_EXPIRED) == 0 ? ERR_EXPIRED
                             : strcmp(result, RESULT_ENDED) == 0   ? ERR_GONE
                                                                   : ERR_FAILED,
                             "no image was made of %s: %s; it runs on",
                             output_program(json_object_get(report, "app"), name),
                             reason[0] ? reason : result);
    }
    json_decref(report);
    return status;
}

/** That none is made any more was said, or not. */
static int checkpoint_take_end(const struct checkpoint *checkpoint, const struct message *message)
{
    char name[OUTPUT_PROGRAM_MAX];

    if (!field_is(&message->root, "type", MSG_REPORT))
        return output_fail_message(checkpoint->output, message);
    json_t *report = output_answer(message);
    output_program(json_object_get(report, "app"), name);
    if (checkpoint->output->json) {
        json_t *object = output_object(checkpoint->output, STATUS_DONE);
        output_add_members(object, report, "app");
        json_decref(report);
        return output_print(object, STATUS_DONE);
    }
    json_decref(report);
    printf("%s: no more images are made\n", name);
    return output_done();
}

static int checkpoint_request_make(const struct call *call, struct checkpoint *checkpoint,
                                   struct client *client)
{
    const struct news news = {checkpoint, checkpoint_take_news, checkpoint->signals,
                              checkpoint_stop};
    struct message message;
    struct frame frame;

    frame_init(&frame, MSG_CHECKPOINT);
    frame_string(&frame, "app", call->words[0]);
    frame_bool(&frame, "end", checkpoint_ends(checkpoint));
    frame_string(&frame, "folder", checkpoint->folder);
    frame_u64(&frame, "every_ms", checkpoint->every_ms == EVERY_UNSAID ? 0 : checkpoint->every_ms);
    frame_u64(&frame, "keep", checkpoint->keep);
    frame_u64(&frame, "timeout_ms", checkpoint->timeout_ms);
    frame_u64(&frame, "max_downtime_ms", checkpoint->max_downtime_ms);
    frame_u64(&frame, "bandwidth", checkpoint->bandwidth);
    frame_u64(&frame, "lease_ms", checkpoint->lease_ms);
    int result = ask_follow(client, &frame, &news, &message);
    if (result != 1)
        return output_fail_agent(&call->output, result, MSG_CHECKPOINT);
    int status = checkpoint_ends(checkpoint) ? checkpoint_take_end(checkpoint, &message)
                                             : checkpoint_take_report(checkpoint, &message);
    message_finish(&message);
    return status;
}

/** Of its process it has none that keeps them for it. */
static void checkpoint_keep_last(const struct checkpoint *checkpoint, const char *image)
{
    char problem[IMAGE_PROBLEM_MAX] = "";

    if (checkpoint->keep &&
        image_keep_last(checkpoint->folder, image, checkpoint->keep, problem) != 0)
        output_note(checkpoint->output, "older images stay: %s", problem);
}

static int checkpoint_keep_process(const struct call *call, const struct checkpoint *checkpoint,
                                   struct client *client)
{
    const struct process_wish wish = {.app = call->words[0],
                                      .folder = checkpoint->folder,
                                      .criu = checkpoint->criu,
                                      .ends = checkpoint->end_process,
                                      .timeout_ms = checkpoint->timeout_ms};
    json_t *report = NULL;
    int status = checkpoint_process(&call->output, &wish, client, &report);

    if (!status) {
        status = checkpoint_print(checkpoint, report);
        checkpoint_keep_last(checkpoint, member_text(report, "image"));
    }
    json_decref(report);
    return status;
}

static int checkpoint_run(struct call *call)
{
    struct checkpoint *checkpoint = call->options;
    struct client client;
    sigset_t caught;
    int status = 0;

    if (!checkpoint->process && (checkpoint->end_process || checkpoint->criu))
        return output_usage(&call->output, "--end and --criu are for --process");
    if (checkpoint->process && (checkpoint->every_ms != EVERY_UNSAID || checkpoint->lease_ms ||
                                checkpoint->max_downtime_ms))
        return output_usage(&call->output, "--process stops the program for as long as it takes, "
                                           "once: without --every, --lease and --max-downtime");
    if (checkpoint->off && (checkpoint->to || checkpoint->every_ms != EVERY_UNSAID))
        return output_usage(&call->output, "--off takes no --to and no --every");
    if (!checkpoint_ends(checkpoint) && !checkpoint->to)
        return output_usage(&call->output, "--to FOLDER is missing");
    if (!checkpoint_ends(checkpoint))
        status = images_name_folder(&call->output, checkpoint->to, checkpoint->folder);
    if (status)
        return status;
    checkpoint->output = &call->output;
    status = ask_connect(&call->output, false, "reach the program", &client);
    if (!status) {
        sigemptyset(&caught);
        sigaddset(&caught, SIGINT);
        sigaddset(&caught, SIGTERM);
        sigaddset(&caught, SIGHUP);
        sigprocmask(SIG_BLOCK, &caught, NULL);
        CLEANUP(cleanup_close) int signals = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
        checkpoint->signals = signals;
        status = checkpoint->process ? checkpoint_keep_process(call, checkpoint, &client)
                                     : checkpoint_request_make(call, checkpoint, &client);
    }
    client_close(&client);
    return status;
}

const struct verb verb_checkpoint = {
    .name = MSG_CHECKPOINT,
    .arguments = "APP",
    .summary = "Write an image of a program to disk, while it runs.",
    .text = "An image has all that the program has of OpenCL, its objects and their bytes, as it "
            "was at one moment; the program is stopped for that moment alone. What did not change "
            "since another image in FOLDER is shared with that. An image is complete or "
            "absent, and never changes another one. Ctrl-C cancels.",
    .options = options,
    .size = sizeof(struct checkpoint),
    .prepare = checkpoint_prepare,
    .run = checkpoint_run,
};
