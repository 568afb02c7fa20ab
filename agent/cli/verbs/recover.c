#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cli/client.h"
#include "agent/cli/image/images.h"
#include "agent/cli/verb.h"
#include "state/base/array.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/image/image_lease.h"

/*
 * Restart programs of a lost host from their images, each once, on whichever host runs this
 * command.
 */

#define LOOK_NS (50 * NS_PER_MS)

struct recover {
    const char *from, *device;
    uint64_t timeout_ms;
    bool dry_run;
};

enum outcome { UNKNOWN, CANNOT, ENDED, ALIVE, LOST, ELSEWHERE, RECOVERED };
static const char *const outcome_names[] = {"unknown", "cannot",    "ended",    "alive",
                                            "lost",    "elsewhere", "recovered"};

/** A program, as its last image describes it. */
struct lost {
    char image[IMAGE_NAME_MAX];
    struct image_summary summary;
    const struct image_lease *by; /**< In the image; NULL: it may be running or not. */
    struct lease lease;           /**< The lease as it was first read. */
    enum outcome outcome;
    char reason[PROTOCOL_TEXT_MAX];
    pid_t pid; /**< The restarted process. */
};

struct losses {
    const struct output *output;
    const struct recover *wanted;
    char path[PATH_MAX];
    struct lost *lost;
    size_t count;
};

static void recover_conclude(struct lost *lost, enum outcome outcome, const char *reason)
{
    lost->outcome = outcome;
    snprintf(lost->reason, sizeof(lost->reason), "%s", reason);
}

/* ---- finding programs ---- */

static bool recover_is_same(const struct lost *one, const struct lost *other)
{
    if (one->by && other->by)
        return strcmp(one->by->id, other->by->id) == 0;
    return !one->by && !other->by && one->summary.about->pid == other->summary.about->pid &&
           strcmp(one->summary.about->host, other->summary.about->host) == 0;
}

/**
 * Add the program of an image. Images must be added newest first. @lost becomes owned by the list,
 * or is finished here.
 */
static int recover_add(struct losses *losses, struct lost *lost)
{
    for (size_t i = 0; i < losses->count; i++) {
        struct lost *other = &losses->lost[i];
        if (!recover_is_same(other, lost))
            continue;
        /* Ignore later images by a process that had lost the lease: a higher generation counts. */
        if (lost->by && lost->by->generation > other->by->generation) {
            image_summary_finish(&other->summary);
            *other = *lost;
        } else {
            image_summary_finish(&lost->summary);
        }
        return 0;
    }
    if (!array_make_room(&losses->lost, losses->count, sizeof(*lost))) {
        image_summary_finish(&lost->summary);
        return -ENOMEM;
    }
    losses->lost[losses->count++] = *lost;
    return 0;
}

/** True if @host wrote the image, or holds the lease now. */
static bool recover_was_on(const struct lost *lost, const char *host)
{
    return strcmp(lost->summary.about->host, host) == 0 ||
           strcmp(lost->lease.holder.host, host) == 0;
}

static void recover_keep_those_of(struct losses *losses, const char *host)
{
    size_t kept = 0;

    for (size_t i = 0; i < losses->count; i++)
        if (recover_was_on(&losses->lost[i], host))
            losses->lost[kept++] = losses->lost[i];
        else
            image_summary_finish(&losses->lost[i].summary);
    losses->count = kept;
}

/** Conclude what is known without waiting. */
static void recover_look_at(struct losses *losses, struct lost *lost)
{
    const struct image_manifest *manifest = &lost->summary.manifest;

    if (!lost->by) {
        recover_conclude(lost, CANNOT,
                         "it was checkpointed without --lease, so whether it still runs is "
                         "unknown; reseat run --restore starts it again");
        return;
    }
    int error = lease_find(losses->path, lost->by->id, &lost->lease);
    if (error)
        recover_conclude(lost, CANNOT,
                         error == -EBADMSG  ? "its lease is damaged"
                         : error == -ENOENT ? "its lease is missing"
                         : error == -EPERM  ? "other users can change its lease"
                                            : strerror(-error));
    else if (lost->lease.holder.state == LEASE_ENDED)
        recover_conclude(lost, ENDED, "it ended by itself");
    else if (!image_manifest_find(manifest, IMAGE_PROGRESS))
        /* This is where images of whole processes would be recovered. */
        recover_conclude(lost, CANNOT,
                         "its image has no progress: the program has no save callback (reseat.h)");
    else if (!image_manifest_find(manifest, IMAGE_COMMAND))
        recover_conclude(
            lost, CANNOT,
            "its image does not say how it was started; reseat run --restore starts it again");
}

static int recover_collect(struct losses *losses, const char *folder)
{
    struct images images;
    int status = images_open(losses->output, folder, IMAGE_TO_READ, &images), error = 0;

    if (status)
        return status;
    memcpy(losses->path, images.folder->path, sizeof(losses->path));
    for (size_t i = images.names.count; i-- > 0 && !error;) {
        struct lost lost = {0};
        snprintf(lost.image, sizeof(lost.image), "%s", images.names.names[i]);
        image_summarize(&images, lost.image, &lost.summary);
        if (lost.summary.damaged) {
            output_note(losses->output, "%s is ignored: %s", lost.image, lost.summary.problem);
            continue;
        }
        const struct image_record *by = image_manifest_find(&lost.summary.manifest, IMAGE_LEASE);
        lost.by = by ? by->lease : NULL;
        error = recover_add(losses, &lost);
    }
    images_close(&images);
    if (error)
        return output_fail(losses->output, ERR_FAILED, "there is not enough memory");
    for (size_t i = 0; i < losses->count; i++)
        recover_look_at(losses, &losses->lost[i]);
    recover_keep_those_of(losses, losses->wanted->from);
    return 0;
}

/* ---- finding out which are alive ---- */

static bool recover_is_silent(const struct lease *before, const struct lease *now)
{
    return before->generation == now->generation && before->holder.beat == now->holder.beat &&
           before->holder.state == now->holder.state;
}

/**
 * Wait. A program is lost if its lease is not renewed for 1.25 times its duration, by our clock.
 */
static void recover_watch(struct losses *losses)
{
    uint64_t began = clock_now_ns();

    for (bool waits = true; waits;) {
        uint64_t waited = clock_now_ns() - began;
        waits = false;
        for (size_t i = 0; i < losses->count; i++) {
            struct lost *lost = &losses->lost[i];
            struct lease now;
            if (lost->outcome != UNKNOWN)
                continue;
            char text[PROTOCOL_TEXT_MAX];
            uint64_t lease = lost->lease.holder.lease_ms * NS_PER_MS;
            int error = lease_find(losses->path, lost->lease.id, &now);
            snprintf(text, sizeof(text), "it runs on %s as process %llu", now.holder.host,
                     (unsigned long long)now.holder.pid);
            if (error)
                recover_conclude(lost, CANNOT, strerror(-error));
            else if (now.holder.state == LEASE_ENDED)
                recover_conclude(lost, ENDED, "it ended by itself");
            else if (!recover_is_silent(&lost->lease, &now))
                recover_conclude(lost, ALIVE, text);
            else if (waited > lease + lease / 4)
                recover_conclude(lost, LOST, "");
            waits = waits || lost->outcome == UNKNOWN;
        }
        if (waits)
            clock_sleep(LOOK_NS);
    }
}

/* ---- starting ---- */

/** The strings of a list and a NULL. The array is to be freed, the strings are borrowed. */
static char **recover_texts_of(const struct image_blob *blob, size_t *ret_count)
{
    size_t count = 0;

    for (size_t i = 0; i < blob->size; i++)
        count += blob->bytes[i] == '\0';
    char **texts = calloc(count + 1, sizeof(*texts));
    if (!texts)
        return NULL;
    for (size_t i = 0, at = 0; i < count; at += strlen((char *)blob->bytes + at) + 1)
        texts[i++] = (char *)blob->bytes + at;
    *ret_count = count;
    return texts;
}

/** In the child: execute `reseat run --restore`. Returns only if that fails. */
static void recover_start(const struct losses *losses, const struct lost *lost,
                          const struct lease *lease)
{
    const struct image_command *command =
        image_manifest_find(&lost->summary.manifest, IMAGE_COMMAND)->command;
    char image[PATH_MAX + IMAGE_NAME_MAX], by[64], path[PATH_MAX], reseat[PATH_MAX];
    size_t count = 0, variables = 0, used = 0;
    char **arguments = recover_texts_of(&command->arguments, &count);
    char **environment = recover_texts_of(&command->environment, &variables);
    char **words = arguments ? calloc(count + 8, sizeof(*words)) : NULL;
    ssize_t length = readlink("/proc/self/exe", reseat, sizeof(reseat) - 1);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (!words || !environment || length <= 0 || setsid() < 0 || dup2(nothing, 0) != 0) {
        output_note(losses->output, "%s: %s", lost->image, strerror(errno));
        return;
    }
    reseat[length] = '\0';
    snprintf(path, sizeof(path), "%.*s", (int)command->directory.size,
             (const char *)command->directory.bytes);
    if (chdir(path) != 0) {
        output_note(losses->output, "%s: its working folder %s: %s", lost->image, path,
                    strerror(errno));
        return;
    }
    for (size_t i = 0; i < variables; i++)
        if (strchr(environment[i], '=') && environment[i][0] != '=')
            putenv(environment[i]);
    snprintf(by, sizeof(by), "%s.%llu", lease->id, (unsigned long long)lease->generation);
    snprintf(image, sizeof(image), "%s/%s", losses->path, lost->image);
    snprintf(path, sizeof(path), "%.*s", (int)command->executable.size,
             (const char *)command->executable.bytes);
    words[used++] = reseat;
    words[used++] = "run";
    words[used++] = "--restore";
    words[used++] = image;
    if (losses->wanted->device) {
        words[used++] = "--device";
        words[used++] = (char *)losses->wanted->device;
    }
    words[used++] = "--";
    /*
     * Use the name that the program was called by; if that does not exist here, its executable's
     * path.
     */
    bool found = !strchr(arguments[0], '/') || access(arguments[0], X_OK) == 0;
    words[used++] = found && arguments[0][0] ? arguments[0] : path;
    memcpy(words + used, arguments + 1, (count - 1) * sizeof(*words));
    setenv("RESEAT_RIGHT", by, 1);
    execv(reseat, words);
    output_note(losses->output, "%s: %s", reseat, strerror(errno));
}

static void recover_end(pid_t pid)
{
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/** Wait until the program has taken over the lease. From then on the process is on its own. */
static void recover_await(const struct losses *losses, struct lost *lost, struct lease *mine,
                          pid_t pid)
{
    uint64_t until = clock_now_ns() + losses->wanted->timeout_ms * NS_PER_MS;
    uint64_t beat = LEASE_BEAT(mine->holder.lease_ms) * NS_PER_MS, due = clock_now_ns() + beat;
    struct lease now;
    int status;

    for (;; clock_sleep(LOOK_NS)) {
        bool ended = waitpid(pid, &status, WNOHANG) == pid;
        bool over =
            lease_find(losses->path, mine->id, &now) == 0 && now.generation != mine->generation;
        if (over && now.generation == mine->generation + 1 && now.holder.state != LEASE_TAKEN) {
            recover_conclude(lost, RECOVERED, "");
            lost->pid = (pid_t)now.holder.pid;
            return;
        }
        if (ended) {
            char text[PROTOCOL_TEXT_MAX];
            snprintf(text, sizeof(text), "it ended (%s %d) before it read its progress",
                     WIFEXITED(status) ? "status" : "signal",
                     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
            recover_conclude(lost, CANNOT, text);
            return;
        }
        if (over || clock_now_ns() >= until) {
            recover_end(pid);
            recover_conclude(lost, over ? ELSEWHERE : CANNOT,
                             over ? "another reseat recover is starting it"
                                  : "it did not read its progress in time and was ended");
            return;
        }
        if (clock_now_ns() >= due) {
            due = clock_now_ns() + beat;
            (void)!lease_renew(mine, LEASE_TAKEN); /* the loop sees if the lease was lost */
        }
    }
}

static void recover_one(const struct losses *losses, struct lost *lost)
{
    struct lease mine;
    struct image_folder *folder;
    char problem[IMAGE_PROBLEM_MAX];

    if (image_folder_open(losses->path, IMAGE_TO_READ, &folder, problem)) {
        recover_conclude(lost, CANNOT, problem);
        return;
    }
    int error = lease_take(&lost->lease, LEASE_TAKEN, &mine);
    image_folder_close(folder);
    if (error) {
        recover_conclude(lost, error == -EEXIST ? ELSEWHERE : CANNOT,
                         error == -EEXIST ? "another reseat recover is starting it"
                                          : strerror(-error));
        return;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        recover_start(losses, lost, &mine);
        _exit(126);
    }
    if (pid < 0)
        recover_conclude(lost, CANNOT, strerror(errno));
    else
        recover_await(losses, lost, &mine, pid);
}

/* ---- output ---- */

static int recover_print(const struct losses *losses)
{
    static const struct table_column columns[] = {
        {"PROGRAM", "{program}"},        {"IMAGE", "{image}"},
        {"OUTCOME", "{outcome}"},        {"PID", "{pid}", TABLE_RIGHT},
        {"WHY", "{reason}", TABLE_WRAP}, {NULL},
    };
    json_t *list = json_array();
    bool failed = false;

    for (size_t i = 0; i < losses->count; i++) {
        const struct lost *lost = &losses->lost[i];
        failed = failed || lost->outcome == CANNOT;
        json_array_append_new(list, json_pack("{s:s, s:o, s:s, s:o, s:o}", "image", lost->image,
                                              "program", output_text(lost->summary.about->program),
                                              "outcome", outcome_names[lost->outcome], "reason",
                                              output_text(lost->reason), "pid",
                                              lost->pid ? json_integer(lost->pid) : json_null()));
    }
    json_auto_t *answer =
        json_pack("{s:o, s:o}", "folder", output_text(losses->path), "programs", list);
    return output_list(losses->output, answer, "programs", columns, failed ? ERR_FAILED : NULL,
                       "not all can be recovered");
}

static int recover_run(struct call *call)
{
    struct losses losses = {.output = &call->output, .wanted = call->options};
    char folder[PATH_MAX];
    int status = images_name_folder(&call->output, call->words[0], folder);

    if (!status)
        status = recover_collect(&losses, folder);
    if (!status && !losses.count)
        status = output_fail(&call->output, ERR_NO_APP, "%s: there is no image of a program on %s",
                             losses.path, losses.wanted->from);
    if (!status) {
        recover_watch(&losses);
        for (size_t i = 0; i < losses.count && !losses.wanted->dry_run; i++)
            if (losses.lost[i].outcome == LOST)
                recover_one(&losses, &losses.lost[i]);
        status = recover_print(&losses);
    }
    for (size_t i = 0; i < losses.count; i++)
        image_summary_finish(&losses.lost[i].summary);
    free(losses.lost);
    return status;
}

static const struct verb_option options[] = {
    {"from", "HOST", "The host that is gone (host in reseat image list --json).", .required = true,
     OPTION_VALUE(struct recover, from)},
    {"device", "DEVICE", "Where they start. Default: as reseat run chooses.",
     OPTION_VALUE(struct recover, device)},
    {"dry-run", NULL, "List the programs that are lost, and start none.",
     OPTION_VALUE(struct recover, dry_run)},
    {"timeout", "SECONDS", "End a program that has not loaded its progress by then. Default: 120.",
     OPTION_SECONDS(struct recover, timeout_ms, 3, 1, 3600000), .initial = 120000},
    {NULL}};

const struct verb verb_recover = {
    .name = "recover",
    .arguments = "FOLDER",
    .summary = "Restart the programs of a host that is gone on this one.",
    .text = "FOLDER has their images (reseat checkpoint --lease), on a disk that both hosts can "
            "reach. The command first waits as long as their leases last: a program whose lease is "
            "renewed lives and is left alone, as is one that ended by exit(). Each lost program is "
            "started from its last image once, however many hosts try, with its arguments, in its "
            "working folder, on this command's standard output.",
    .members = "folder programs",
    .options = options,
    .size = sizeof(struct recover),
    .run = recover_run,
};
