#include <string.h>

#include "agent/cli/image/images.h"
#include "agent/cli/image/process.h"
#include "agent/cli/select.h"
#include "state/base/clock.h"

/* Images of a running program, made once or periodically. */

struct checkpoint {
    const struct output *output;
    struct request asked; /**< every_ms is OPTION_UNSAID for a single image. */
    const char *to;
    bool end_process; /**< With asked.parks: end the process afterwards. */
    const char *criu;
};

static const struct option_row options[] = {
    {"to", "FOLDER",
     "Folder for the images, which must belong to you alone. Made if it is missing.",
     OPTION_VALUE(struct checkpoint, to)},
    {"every", "TIME",
     "Interval of further images, which the agent makes until the program ends or --off. Meanwhile "
     "a copy of the program's data stays in host memory, so that only changes are copied and "
     "written.",
     OPTION_SECONDS(struct checkpoint, asked.every_ms, 3, 1, 86400000), .initial = OPTION_UNSAID},
    {"off", NULL, "Make no more images of APP, and end its lease.",
     OPTION_VALUE(struct checkpoint, asked.ends)},
    {"keep", "N",
     "Number of images to keep. Older ones of this process are removed after each new one.",
     OPTION_VALUE(struct checkpoint, asked.keep), .kind = OPTION_NUMBER, .least = 1,
     .most = 1000000},
    {"lease", "TIME",
     "Renew a lease in FOLDER while the program lives. When it was not renewed for so long, reseat "
     "recover may start the program again from its last image, also on another host; a program "
     "that cannot renew it waits. Only for programs with a save callback (reseat.h).",
     OPTION_SECONDS(struct checkpoint, asked.lease_ms, 3, 1000, 3600000)},
    OPTION_MAX_DOWNTIME(struct checkpoint,
                        "Longest pause of the program; a number is in milliseconds. If a "
                        "longer one is needed, no image is made."),
    OPTION_BANDWIDTH(struct checkpoint,
                     "Bytes to copy in a second while the program runs, such as 100MiB."),
    OPTION_TIMEOUT(struct checkpoint, "Give up an image that takes longer. Default: no limit."),
    {"process", NULL,
     "Save the whole process with CRIU, for reseat restore. The program is stopped meanwhile. "
     "Needs root, a program without children, and drivers in other processes (reseat run "
     "--isolate, or a server's devices).",
     OPTION_VALUE(struct checkpoint, asked.parks)},
    {"end", NULL, "With --process: end the program once its image is complete.",
     OPTION_VALUE(struct checkpoint, end_process)},
    {"criu", "PROGRAM", "With --process: the CRIU to use. Default: criu.",
     OPTION_VALUE(struct checkpoint, criu)},
    OPTION_SELECTORS(SELECT_EACH),
    {NULL}};

static int checkpoint_print(const struct checkpoint *checkpoint, json_t *report)
{
    const struct output *output = checkpoint->output;
    char every[32];

    json_object_set_new(report, "folder", output_text(checkpoint->asked.folder));
    json_object_set_new(report, "ended", json_boolean(checkpoint->end_process));
    int status = output_say(output, report,
                            "{app}: image {image} in {total_ns}, stopped for "
                            "[{?ended}good][{!ended}{downtime_ns}], {image_bytes}, "
                            "{image_written:bytes} of it new");
    if (output->json || checkpoint->asked.every_ms == OPTION_UNSAID)
        return status;
    say_duration(checkpoint->asked.every_ms * NS_PER_MS, every, sizeof(every));
    printf("another follows every %s, until its end or reseat checkpoint --off\n", every);
    return output_done();
}

static int checkpoint_take_report(const struct checkpoint *checkpoint, json_t *report)
{
    char name[SAY_PROGRAM_MAX];
    const char *result = member_text(report, "result"), *reason = member_text(report, "reason");

    if (checkpoint->asked.ends) {
        struct output output = *checkpoint->output;
        output.members = "app";
        return output_say(&output, report, "{app}: no more images are made");
    }
    if (strcmp(result, RESULT_DONE) != 0 || !member_text(report, "image")[0])
        return output_fail(
            checkpoint->output, output_code_of(result), "no image was made of %s: %s; it runs on",
            say_program(json_object_get(report, "app"), name), reason[0] ? reason : result);
    int status = checkpoint_print(checkpoint, report);
    if (member_text(report, "not_removed")[0])
        output_note(checkpoint->output, "older images were not removed: %s",
                    member_text(report, "not_removed"));
    return status;
}

static int checkpoint_request_make(const struct call *call, const struct checkpoint *checkpoint)
{
    static const struct news news = {.cancels = true};
    static const struct question question = {
        .type = MSG_REPORT, .what = MSG_CHECKPOINT, .news = &news};
    struct request asked = checkpoint->asked;
    struct frame frame;
    json_auto_t *report = NULL;

    if (checkpoint->asked.every_ms == OPTION_UNSAID)
        asked.every_ms = 0;
    ask_request(&frame, MSG_CHECKPOINT, call->words[0], &asked);
    int status = ask(&call->output, &question, &frame, &report);
    return status ? status : checkpoint_take_report(checkpoint, report);
}

static int checkpoint_keep_process(const struct call *call, const struct checkpoint *checkpoint)
{
    const struct process_wish wish = {.app = call->words[0],
                                      .folder = checkpoint->asked.folder,
                                      .criu = checkpoint->criu,
                                      .ends = checkpoint->end_process,
                                      .timeout_ms = checkpoint->asked.timeout_ms};
    CLEANUP(client_close) struct client client;
    sigset_t blocked;
    json_auto_t *report = NULL;
    int status = ask_connect(&call->output, false, "reach the program", &client);

    if (status)
        return status;
    /* A signal would end this process while CRIU has stopped the program. */
    ask_block_signals(&blocked);
    status = checkpoint_process(&call->output, &wish, &client, &report);
    if (status)
        return status;
    status = checkpoint_print(checkpoint, report);
    /* The agent applies --keep to images that it makes, but not to those of whole processes. */
    char problem[IMAGE_PROBLEM_MAX] = "";
    if (checkpoint->asked.keep &&
        image_keep_last(checkpoint->asked.folder, member_text(report, "image"),
                        checkpoint->asked.keep, problem) != 0)
        output_note(checkpoint->output, "older images were not removed: %s", problem);
    return status;
}

static int checkpoint_run(struct call *call)
{
    struct checkpoint *checkpoint = call->options;
    bool repeated = checkpoint->asked.every_ms != OPTION_UNSAID;

    checkpoint->output = &call->output;
    if (!checkpoint->asked.parks && (checkpoint->end_process || checkpoint->criu))
        return output_usage(&call->output, "--end and --criu are for --process");
    if (checkpoint->asked.parks &&
        (repeated || checkpoint->asked.lease_ms || checkpoint->asked.max_downtime_ms))
        return output_usage(&call->output, "--process stops the program for as long as it takes, "
                                           "once: without --every, --lease and --max-downtime");
    if (checkpoint->asked.ends && (checkpoint->to || repeated))
        return output_usage(&call->output, "--off takes no --to and no --every");
    if (!checkpoint->asked.ends && !checkpoint->to)
        return output_usage(&call->output, "--to FOLDER is missing");
    int status = checkpoint->asked.ends
                     ? 0
                     : images_name_folder(&call->output, checkpoint->to, checkpoint->asked.folder);
    if (status)
        return status;
    return checkpoint->asked.parks ? checkpoint_keep_process(call, checkpoint)
                                   : checkpoint_request_make(call, checkpoint);
}

const struct verb verb_checkpoint = {
    .name = MSG_CHECKPOINT,
    .arguments = "APP",
    .summary = "Write an image of a program to disk, while it runs.",
    .text = "The image has the program's OpenCL objects and their bytes as they were at one "
            "moment; only for that moment the program is paused. Chunks that did not change are "
            "shared with other images in FOLDER. An image is complete or absent. Ctrl-C cancels.",
    .members = "app image image_bytes image_written total_ns downtime_ns bytes folder",
    .options = options,
    .size = sizeof(struct checkpoint),
    .run = checkpoint_run,
};
