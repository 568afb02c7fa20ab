#include "agent/cli/recover/lost.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state/base/array.h"
#include "state/base/bytes/text.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/image/image_graph.h"

#define LOOK_NS (50 * NS_PER_MS)
/* Each failed start doubles the time until the next one, so many times. */
#define DOUBLED_MOST 6

static const char *const outcome_names[] = {"unknown", "cannot", "ended",     "alive",
                                            "lost",    "waits",  "elsewhere", "recovered"};

void lost_conclude(struct lost *lost, enum outcome outcome, const char *reason)
{
    lost->outcome = outcome;
    snprintf(lost->reason, sizeof(lost->reason), "%.*s", (int)sizeof(lost->reason) - 1, reason);
}

/* ---- finding programs ---- */

bool lost_is_same(const struct lost *one, const struct lost *other)
{
    if (one->by && other->by)
        return strcmp(one->by->id, other->by->id) == 0;
    return !one->by && !other->by && one->summary.about->pid == other->summary.about->pid &&
           strcmp(one->summary.about->host, other->summary.about->host) == 0;
}

/** Add the program of an image, newest images first. The list owns @lost, or it is finished. */
static int losses_add(struct losses *losses, struct lost *lost)
{
    for (size_t i = 0; i < losses->count; i++) {
        struct lost *other = &losses->lost[i];
        if (!lost_is_same(other, lost))
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

/** The options of `reseat run`, a line each, that the program was started with; NULL: unknown. */
static const char *lost_options(const struct lost *lost)
{
    static const char name[] = COMMAND_LINE_ENV_OPTIONS "=";
    const struct image_record *record = image_manifest_find(&lost->summary.manifest, IMAGE_COMMAND);
    const struct image_blob *variables = record ? &record->command->environment : NULL;

    for (size_t at = 0; variables && at < variables->size;) {
        const char *variable = (const char *)variables->bytes + at;
        if (strncmp(variable, name, strlen(name)) == 0)
            return variable + strlen(name);
        at += strlen(variable) + 1;
    }
    return NULL;
}

/** The most important ones first, those of equal priority in the order of their images. */
static int lost_compare(const void *one, const void *other)
{
    const struct lost *a = one, *b = other;

    return a->priority != b->priority ? (a->priority > b->priority ? -1 : 1)
                                      : strcmp(a->image, b->image);
}

void losses_finish(struct losses *losses)
{
    for (size_t i = 0; i < losses->count; i++)
        image_summary_finish(&losses->lost[i].summary);
    free(losses->lost);
    losses->lost = NULL;
    losses->count = 0;
}

int losses_collect(struct losses *losses, const struct images *images)
{
    static const char option[] = "--priority=";
    int error = 0;

    memcpy(losses->path, images->folder->path, sizeof(losses->path));
    losses->unread = false;
    for (size_t i = images->names.count; i-- > 0 && !error;) {
        struct lost lost = {0};
        snprintf(lost.image, sizeof(lost.image), "%s", images->names.names[i]);
        image_summarize(images, lost.image, &lost.summary);
        if (lost.summary.damaged) {
            losses->unread = true;
            if (!losses->quiet)
                output_note(losses->output, "%s is ignored: %s", lost.image, lost.summary.problem);
            continue;
        }
        const struct image_record *by = image_manifest_find(&lost.summary.manifest, IMAGE_LEASE);
        lost.by = by ? by->lease : NULL;
        error = losses_add(losses, &lost);
    }
    for (size_t i = 0; i < losses->count; i++) {
        const char *options = lost_options(&losses->lost[i]);
        const char *at = options ? strstr(options, option) : NULL;
        losses->lost[i].priority = at ? strtol(at + strlen(option), NULL, 10) : 0;
    }
    if (losses->count)
        qsort(losses->lost, losses->count, sizeof(*losses->lost), lost_compare);
    return error ? output_fail(losses->output, ERR_FAILED, "there is not enough memory") : 0;
}

/* ---- finding out which are alive ---- */

uint64_t lost_takes(const struct lost *lost)
{
    uint64_t now = lost->seen.lease.generation, then = lost->by->generation;
    return now > then ? now - then : 0;
}

bool lost_is_silent(const struct losses *losses, const struct lease_sight *sight, uint64_t more_ns)
{
    uint64_t own = losses->wanted->watch ? losses->wanted->lease_ms * NS_PER_MS : 0;
    uint64_t ns = sight->lease.holder.lease_ms * NS_PER_MS;

    ns = ns > own ? ns : own;
    ns += ns / 4;
    return clock_now_ns() - losses->well_ns > ns && lease_is_silent(sight, ns + more_ns);
}

/** How long --watch waits after a failed start: doubled each time, longest on that host. */
static uint64_t lost_delay(const struct losses *losses, const struct lost *lost)
{
    uint64_t takes = lost_takes(lost), ns = lost->seen.lease.holder.lease_ms * NS_PER_MS;

    if (!losses->wanted->watch || lost->seen.lease.holder.state != LEASE_TAKEN || !takes)
        return 0;
    uint64_t delay = (ns << (takes < DOUBLED_MOST ? takes : DOUBLED_MOST)) - 2 * ns;
    return delay + (lease_is_of_this_host(&lost->seen.lease) ? ns : 0);
}

/** Why a program with a good lease cannot be started from its image; or NULL. */
static const char *lost_lacks(const struct lost *lost)
{
    const struct image_manifest *manifest = &lost->summary.manifest;

    /* This is where images of whole processes would be recovered. */
    return !image_manifest_find(manifest, IMAGE_PROGRESS)
               ? "its image has no progress: the program has no save callback (reseat.h)"
           : !image_manifest_find(manifest, IMAGE_COMMAND)
               ? "its image does not say how it was started; reseat run --restore starts it again"
               : NULL;
}

static void lost_conclude_renewed(struct lost *lost)
{
    const struct lease_holder *holder = &lost->seen.lease.holder;
    char text[PROTOCOL_TEXT_MAX];

    snprintf(text, sizeof(text), "it runs on %s as process %llu", holder->host,
             (unsigned long long)holder->pid);
    if (holder->state == LEASE_TAKEN && holder->reason[0])
        snprintf(text, sizeof(text), "%s could not start it: %s", holder->host, holder->reason);
    else if (holder->state == LEASE_TAKEN)
        snprintf(text, sizeof(text), "%s is starting it", holder->host);
    lost_conclude(lost,
                  holder->state != LEASE_TAKEN ? ALIVE
                  : holder->reason[0]          ? CANNOT
                                               : ELSEWHERE,
                  text);
}

void lost_look_at(const struct losses *losses, struct lost *lost)
{
    const struct lease_holder *holder = &lost->seen.lease.holder;

    if (!lost->by) {
        lost_conclude(lost, CANNOT,
                      "it was checkpointed without --lease, so whether it still runs is "
                      "unknown; reseat run --restore starts it again");
        return;
    }
    bool renewed = lease_look(&lost->seen, losses->path, lost->by->id);
    int error = lost->seen.error;
    if (error)
        lost_conclude(lost, CANNOT,
                      error == -EBADMSG  ? "its lease is damaged"
                      : error == -ENOENT ? "its lease is missing"
                      : error == -EPERM  ? "other users can change its lease"
                                         : strerror(-error));
    else if (holder->state == LEASE_ENDED)
        lost_conclude(lost, ENDED, holder->reason[0] ? holder->reason : "it ended by itself");
    else if (lost_lacks(lost))
        lost_conclude(lost, CANNOT, lost_lacks(lost));
    else if (renewed)
        lost_conclude_renewed(lost);
    else if (lost_is_silent(losses, &lost->seen, lost_delay(losses, lost)))
        lost_conclude(lost, LOST, holder->reason);
    else if (lost->outcome == LOST)
        lost_conclude(lost, UNKNOWN, "");
}

/* ---- starting ---- */

/** The strings of a list and a NULL. The array is to be freed, the strings are borrowed. */
static char **lost_texts_of(const struct image_blob *blob, size_t *ret_count)
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
static void lost_execute(const struct losses *losses, const struct lost *lost,
                         const struct lease *lease)
{
    const struct image_command *command =
        image_manifest_find(&lost->summary.manifest, IMAGE_COMMAND)->command;
    char image[PATH_MAX + IMAGE_NAME_MAX], by[64], path[PATH_MAX], reseat[PATH_MAX];
    size_t count = 0, variables = 0, used = 0;
    char **arguments = lost_texts_of(&command->arguments, &count);
    char **environment = lost_texts_of(&command->environment, &variables);
    CLEANUP(cleanup_free) char *run = strdup(lost_options(lost) ? lost_options(lost) : "");
    const struct image_record *schedule =
        image_manifest_find(&lost->summary.manifest, IMAGE_SCHEDULE);
    char every[64], keep[64], *rest = run;
    char **words = arguments && run ? calloc(count + strlen(run) / 3 + 12, sizeof(*words)) : NULL;
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (!words || !environment || paths_own(reseat) || setsid() < 0 || dup2(nothing, 0) != 0) {
        output_note(losses->output, "%s: %s", lost->image, strerror(errno));
        return;
    }
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
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n"))
        if (*line)
            words[used++] = line;
    if (schedule) {
        snprintf(every, sizeof(every), "--every=%.3f", (double)schedule->schedule->every_ms / 1000);
        snprintf(keep, sizeof(keep), "--keep=%llu", (unsigned long long)schedule->schedule->keep);
        words[used++] = every;
        if (schedule->schedule->keep)
            words[used++] = keep;
    }
    words[used++] = "--";
    /* Use the program's name; if it does not exist here, its executable's path. */
    bool found = !strchr(arguments[0], '/') || access(arguments[0], X_OK) == 0;
    words[used++] = found && arguments[0][0] ? arguments[0] : path;
    memcpy(words + used, arguments + 1, (count - 1) * sizeof(*words));
    setenv("RESEAT_RIGHT", by, 1);
    execv(reseat, words);
    output_note(losses->output, "%s: %s", reseat, strerror(errno));
}

/** Wait until the program has taken over the lease. From then on the process is on its own. */
static void lost_await(const struct losses *losses, struct lost *lost, struct lease *mine,
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
            lost_conclude(lost, RECOVERED, "");
            lost->pid = (pid_t)now.holder.pid;
            return;
        }
        if (ended) {
            char text[PROTOCOL_TEXT_MAX];
            snprintf(text, sizeof(text), "it ended (%s %d) before it read its progress",
                     WIFEXITED(status) ? "status" : "signal",
                     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
            lost_conclude(lost, CANNOT, text);
            return;
        }
        if (over || clock_now_ns() >= until) {
            kill(-pid, SIGKILL);
            kill(pid, SIGKILL);
            while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
            lost_conclude(lost, over ? ELSEWHERE : CANNOT,
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

void lost_start(const struct losses *losses, struct lost *lost)
{
    struct lease mine;
    struct image_folder *folder;
    char problem[IMAGE_PROBLEM_MAX];

    /* Starting others took time, in which this one may have renewed its lease. */
    lost_look_at(losses, lost);
    if (lost->outcome != LOST)
        return;
    if (image_folder_open(losses->path, IMAGE_TO_READ, &folder, problem)) {
        lost_conclude(lost, CANNOT, problem);
        return;
    }
    int error = lease_take(&lost->seen.lease, LEASE_TAKEN, &mine);
    image_folder_close(folder);
    if (error) {
        lost_conclude(lost, error == -EEXIST ? ELSEWHERE : CANNOT,
                      error == -EEXIST ? "another reseat recover is starting it"
                                       : strerror(-error));
        return;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        lost_execute(losses, lost, &mine);
        _exit(126);
    }
    if (pid < 0)
        lost_conclude(lost, CANNOT, strerror(errno));
    else
        lost_await(losses, lost, &mine, pid);
    if (lost->outcome == CANNOT) {
        text_make_safe(mine.holder.reason, sizeof(mine.holder.reason), lost->reason,
                       strlen(lost->reason));
        (void)!lease_renew(&mine, LEASE_TAKEN); /* Only for who asks why. */
    }
    (void)lease_look(&lost->seen, losses->path, mine.id);
}

/* ---- output ---- */

json_t *lost_describe(const struct lost *lost)
{
    return json_pack("{s:s, s:o, s:s, s:o, s:o, s:o}", "image", lost->image, "program",
                     output_text(lost->summary.about->program), "outcome",
                     outcome_names[lost->outcome], "reason", output_text(lost->reason), "host",
                     output_text(lost->seen.lease.holder.host), "pid",
                     lost->pid ? json_integer(lost->pid) : json_null());
}
