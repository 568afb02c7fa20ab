#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "agent/cli/image/images.h"
#include "agent/cli/image/process.h"
#include "agent/cli/verb.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"

/* Restores a process from its image, once: a file in the image's folder claims it. */

#define CLAIM     "restored"
#define CLAIM_MAX 300
/* How long a pid that is needed may be in use: most processes end sooner. */
#define PID_NS  (10 * NS_PER_S)
#define LOOK_NS (20 * NS_PER_MS)

struct restore {
    const struct output *output;
    const char *device;
    const char *image; /**< Name of the image; NULL: the newest of a process. */
    const char *criu_word;
    bool again;
    char path[PATH_MAX], criu[PATH_MAX];
    struct images images;
    struct image_summary summary; /**< Of the image. */
    const struct image_process *process;
    struct owned folder; /**< The image's folder. */
    struct process_files files;
    struct parked parked;
};

static const struct option_row options[] = {
    {"device", "DEVICE",
     "Where to resume it. Default: the device where it was, else where the policy finds room.",
     OPTION_VALUE(struct restore, device)},
    {"image", "IMAGE", "Name of the image (reseat image list). Default: the last one.",
     OPTION_VALUE(struct restore, image)},
    {"again", NULL,
     "Also restore an image that was restored on another host, where the program may still run: "
     "both then do the same outside of their memory.",
     OPTION_VALUE(struct restore, again)},
    {"criu", "PROGRAM", "The CRIU to use. Default: criu.", OPTION_VALUE(struct restore, criu_word)},
    {NULL}};

/* ---- choosing the image ---- */

static bool restore_is_process(const struct image_summary *summary, const void *data)
{
    (void)data;
    return process_image_process(&summary->manifest);
}

static int restore_choose(struct restore *restore)
{
    const char *named = restore->image;
    int error = images_find(&restore->images, named, restore_is_process, NULL, &restore->summary,
                            &restore->image);

    if (error == -EBADMSG)
        return output_fail(restore->output, ERR_FAILED, "%s", restore->summary.problem);
    if (error)
        return output_fail(restore->output, ERR_NO_APP,
                           "%s%s%s: %s of a whole process (reseat checkpoint --process makes one)",
                           restore->images.folder->path, named ? "/" : "", named ? named : "",
                           named ? "the image is not one" : "there is no image");
    restore->process = process_image_process(&restore->summary.manifest);
    return 0;
}

/** True if a process on this host has @pid. @ret_name: its command. */
static bool restore_runs(pid_t pid, char *ret_name, size_t size)
{
    char path[64];

    if (kill(pid, 0) != 0 && errno == ESRCH)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    CLEANUP(cleanup_fclose) FILE *file = fopen(path, "re");
    if (!file || !fgets(ret_name, (int)size, file))
        snprintf(ret_name, size, "?");
    ret_name[strcspn(ret_name, "\n")] = '\0';
    return true;
}

/** The pid or thread id that is needed because @record is CRIU's file of a thread; 0: it is not. */
static pid_t restore_pid_of(const struct image_record *record)
{
    int pid = 0;

    if (record->kind == IMAGE_FILE)
        (void)sscanf(record->file->name, "core-%d.img", &pid);
    return pid > 0 ? pid : 0;
}

/**
 * Have the kernel go on counting pids from @last, so that no process that starts from now on, CRIU
 * among them, gets a pid that is needed. CRIU needs the same right. Without it nothing happens.
 */
static void restore_pass_pids(pid_t last)
{
    CLEANUP(cleanup_close) int fd = open("/proc/sys/kernel/ns_last_pid", O_RDWR | O_CLOEXEC);
    char text[16] = "";

    /* Never backward: the last numbers may still be known to others as their former owners'. */
    if (fd >= 0 && pread(fd, text, sizeof(text) - 1, 0) > 0 && atoi(text) < last)
        (void)!dprintf(fd, "%d", (int)last);
}

/** Wait until no process has @pid. Returns 0 or an exit status. */
static int restore_await_pid(const struct restore *restore, pid_t pid, uint64_t until_ns)
{
    char name[64];
    bool told = false;

    for (; restore_runs(pid, name, sizeof(name)); clock_sleep(LOOK_NS)) {
        if (clock_now_ns() >= until_ns)
            return output_fail(
                restore->output, ERR_REFUSED,
                "pid %d, which %s had in %s, is in use here by %s: it still runs (reseat "
                "ps), or another process has its pid",
                (int)pid, restore->summary.about->program, restore->image, name);
        if (!told)
            output_note(restore->output, "waiting for pid %d, which %s has", (int)pid, name);
        told = true;
    }
    return 0;
}

static int restore_check_pids(const struct restore *restore)
{
    const struct image_manifest *manifest = &restore->summary.manifest;
    pid_t pid = (pid_t)restore->summary.about->pid, last = pid;
    uint64_t until = clock_now_ns() + PID_NS;
    int status;

    if (pid <= 0)
        return output_fail(restore->output, ERR_FAILED, "%s does not record the pid of its process",
                           restore->image);
    for (size_t i = 0; i < manifest->count; i++)
        if (restore_pid_of(&manifest->records[i]) > last)
            last = restore_pid_of(&manifest->records[i]);
    restore_pass_pids(last);
    status = restore_await_pid(restore, pid, until);
    for (size_t i = 0; !status && i < manifest->count; i++)
        if (restore_pid_of(&manifest->records[i]))
            status = restore_await_pid(restore, restore_pid_of(&manifest->records[i]), until);
    return status;
}

/* ---- the claim ---- */

static void restore_host_name(char *ret, size_t size)
{
    struct utsname host;

    snprintf(ret, size, "%s", uname(&host) == 0 ? host.nodename : "?");
}

/**
 * Check the claim. One of another host is respected unless --again is given; one of this host is
 * removed, because the process was found not to run here.
 */
static int restore_check_claim(const struct restore *restore)
{
    char text[CLAIM_MAX + 1] = "", own[65];
    uint64_t size;
    int error = file_read(&restore->folder, CLAIM, text, CLAIM_MAX, &size);

    if (error == -ENOENT)
        return 0;
    restore_host_name(own, sizeof(own));
    if (error || (strcmp(text, own) != 0 && !restore->again)) {
        return output_fail(restore->output, ERR_REFUSED,
                           "%s was already restored on %s; if it no longer runs there, use --again",
                           restore->image, error ? "some host" : text);
    }
    return unlinkat(owned_fd(&restore->folder), CLAIM, 0) == 0 || errno == ENOENT
               ? 0
               : output_fail(restore->output, ERR_FAILED, "%s: %s", restore->image,
                             strerror(errno));
}

static int restore_claim(struct restore *restore)
{
    char own[65];

    restore_host_name(own, sizeof(own));
    const struct file_part part = {own, strlen(own)};
    /* Locked until the process exists: no other command checks or changes the claim. */
    if (flock(owned_fd(&restore->folder), LOCK_EX | LOCK_NB))
        return output_fail(restore->output, ERR_REFUSED, "%s is being restored by another process",
                           restore->image);
    int status = restore_check_claim(restore);
    if (status)
        return status;
    int error = file_make(&restore->folder, CLAIM, &part, 1);
    return error ? output_fail(restore->output, error == -EEXIST ? ERR_REFUSED : ERR_FAILED,
                               "%s: %s", restore->image,
                               error == -EEXIST ? "somebody else restores it" : strerror(-error))
                 : 0;
}

/* ---- restoring the process ---- */

static int restore_prepare(struct restore *restore)
{
    const struct output *output = restore->output;
    char problem[IMAGE_PROBLEM_MAX];

    int status = images_open(output, restore->path, IMAGE_TO_READ, &restore->images);
    if (status)
        return status;
    status = restore_choose(restore);
    if (!status)
        status = restore_check_pids(restore);
    if (!status)
        status = criu_need(output, restore->criu_word, restore->criu);
    if (status)
        return status;
    int error = file_folder(&restore->images.folder->folder, restore->image, &restore->folder);
    if (!error)
        error = process_files_begin(restore->images.folder, &restore->files);
    if (error)
        return output_fail(output, ERR_FAILED, "%s: %s", restore->path, strerror(-error));
    error = process_image_read(restore->images.folder, &restore->summary.manifest, &restore->files,
                               problem);
    return error
               ? output_fail(output, ERR_FAILED, "%s is not restored: %s", restore->image, problem)
               : 0;
}

static int restore_run_criu(struct restore *restore)
{
    char problem[CRIU_PROBLEM_MAX];
    const char *words[] = {"restore",
                           "--images-dir",
                           restore->files.path,
                           "--restore-detached",
                           "--file-locks",
                           "--manage-cgroups=ignore",
                           restore->process->session ? "--shell-job" : NULL,
                           NULL};
    const struct criu_call call = {.path = restore->criu,
                                   .words = words,
                                   .log = restore->files.log,
                                   .terminal = restore->process->session};

    int status = restore_claim(restore);
    if (status || criu_run(&call, problem) == 0)
        return status;
    (void)!unlinkat(owned_fd(&restore->folder), CLAIM, 0);
    return output_fail(restore->output, ERR_FAILED, "%s is not restored: CRIU says: %s (%s)",
                       restore->image, problem,
                       process_files_keep_log(restore->images.folder, &restore->files));
}

/** On the named device alone; else on the previous one, or where there is room. */
static int restore_resume(struct restore *restore, struct client *client, json_t **ret_report)
{
    const struct output *output = restore->output;
    pid_t pid = restore->parked.pid;
    int status = checkpoint_resume(output, client, pid, restore->device, false, ret_report);

    if (status || strcmp(member_text(*ret_report, "result"), RESULT_DONE) == 0)
        return status;
    if (restore->device) {
        return output_fail(output, ERR_FAILED,
                           "pid %d was restored and stays suspended; it cannot resume on %s: %s",
                           (int)pid, restore->device, member_text(*ret_report, "reason"));
    }
    output_note(output, "it cannot resume on its previous device: %s",
                member_text(*ret_report, "reason"));
    json_decref(*ret_report);
    *ret_report = NULL;
    return checkpoint_resume(output, client, pid, NULL, true, ret_report);
}

static int restore_process(struct restore *restore, struct client *client, const char *socket)
{
    json_auto_t *report = NULL;
    int status = restore_prepare(restore);

    if (!status)
        status = restore_run_criu(restore);
    if (status)
        return status;
    restore->parked =
        (struct parked){.pid = (pid_t)restore->summary.about->pid, .box = restore->process->box};
    int error = park_go(&restore->parked, socket);
    if (error) {
        output_note(restore->output,
                    "pid %d cannot be told that it was restored (%s); it will look for its old "
                    "agent by itself",
                    (int)restore->parked.pid, strerror(-error));
    }
    status = restore_resume(restore, client, &report);
    if (status)
        return status;
    bool queued = strcmp(member_text(report, "result"), RESULT_QUEUED) == 0;
    json_object_set_new(report, "image", output_text(restore->image));
    return output_say(restore->output, report,
                      queued ? "{app} restored from {image}, queues for a device"
                             : "{app} restored from {image}, on {to:place}");
}

static int restore_run(struct call *call)
{
    struct restore *restore = call->options;
    struct client client = {.fd = -1};
    struct paths paths;

    restore->output = &call->output;
    restore->folder = OWNED_NONE;
    restore->files.fd = -1;
    int status = images_name_folder(&call->output, call->words[0], restore->path);
    if (!status && paths_find(&paths))
        status = output_fail(&call->output, ERR_FAILED, "the runtime folder cannot be used: %s",
                             paths.problem);
    if (!status)
        status = ask_connect(&call->output, true, "restore the program", &client);
    if (!status)
        status = restore_process(restore, &client, paths.socket);
    client_close(&client);
    process_files_end(&restore->files);
    owned_close(&restore->folder);
    image_summary_finish(&restore->summary);
    images_close(&restore->images);
    return status;
}

const struct verb verb_restore = {
    .name = "restore",
    .arguments = "FOLDER",
    .summary = "Restore a program's whole process from an image, on this host or another.",
    .text = "The image was made by reseat checkpoint --process; its bytes are first compared with "
            "their digests. The process gets its old pid and its open files, which must be "
            "unchanged, as must its program and libraries; then it is resumed on a device. "
            "Refused: an image that was restored on another host, and one whose process runs here.",
    .members = "app to result image",
    .options = options,
    .size = sizeof(struct restore),
    .run = restore_run,
};
