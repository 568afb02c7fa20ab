#include "agent/cli/recover/lost.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/cli/client.h"
#include "state/base/clock.h"
#include "state/image/lease_renewer.h"

/* Least and longest interval at which the leases are looked at. */
#define LOOK_LEAST_NS (50 * NS_PER_MS)
#define LOOK_MOST_NS  NS_PER_S
/* How often a program may be taken over since its last image before it is given up: one that
 * starts and loses its host again uses two. */
#define TAKES_MOST 10

/** What --watch keeps from one look to the next. */
struct watch {
    struct losses losses;
    struct file_names names;         /**< The images that `losses` was made from. */
    bool beats;                      /**< This host's lease is renewed. */
    uint64_t read_ns;                /**< When these images were read. */
    uint64_t looked_ns;              /**< When the last look began. */
    char problem[IMAGE_PROBLEM_MAX]; /**< What was last said to be wrong with the folder. */
};

/**
 * Read images that are new, and keep what is known of their programs. Images that could not be read
 * are tried again after a lease, before the program of any could count as lost: the disk may have
 * failed for a moment only.
 */
static int watch_collect(struct watch *watch, struct images *images)
{
    struct losses *losses = &watch->losses, old = *losses;
    bool same = watch->names.count == images->names.count;

    for (size_t i = 0; same && i < images->names.count; i++)
        same = strcmp(watch->names.names[i], images->names.names[i]) == 0;
    if (same &&
        (!losses->unread || clock_now_ns() - watch->read_ns < losses->wanted->lease_ms * NS_PER_MS))
        return 0;
    watch->read_ns = clock_now_ns();
    losses->quiet = same;
    losses->lost = NULL;
    losses->count = 0;
    int status = losses_collect(losses, images);
    for (size_t i = 0; i < losses->count; i++) {
        struct lost *lost = &losses->lost[i];
        for (size_t j = 0; j < old.count; j++) {
            const struct lost *before = &old.lost[j];
            if (!lost_is_same(lost, before))
                continue;
            lost->seen = before->seen;
            lost->host = before->host;
            lost->outcome = before->outcome;
            lost->pid = before->pid;
            lost->told = before->told;
            memcpy(lost->reason, before->reason, sizeof(lost->reason));
            memcpy(lost->told_reason, before->told_reason, sizeof(lost->told_reason));
        }
    }
    losses_finish(&old);
    file_names_finish(&watch->names);
    watch->names = images->names;
    images->names = (struct file_names){0};
    return status;
}

/**
 * True if all that renewals need of the folder works for this host: else others may be unable to
 * renew their leases, too, and their silence means nothing.
 */
static bool watch_is_well(struct watch *watch, const char *folder, char *ret_problem)
{
    uint64_t lease_ns = watch->losses.wanted->lease_ms * NS_PER_MS, began = clock_now_ns();
    bool late = watch->looked_ns && began - watch->looked_ns > lease_ns / 2;
    struct lease_renewer_status status;
    struct images images;
    struct lease lease;
    int error = images_try(folder, IMAGE_TO_READ, &images, ret_problem);

    watch->looked_ns = began;
    if (error)
        return false;
    if (!watch->beats) {
        error = lease_begin_host(images.folder->path, watch->losses.wanted->lease_ms, &lease);
        error = error ? error : lease_renewer_adopt(&lease);
        watch->beats = !error;
    }
    if (error)
        snprintf(ret_problem, IMAGE_PROBLEM_MAX, "%.900s/rights: %s", folder, strerror(-error));
    else if (watch_collect(watch, &images))
        error = -EIO;
    images_close(&images);
    lease_renewer_read(&status);
    if (!error && status.problem[0])
        snprintf(ret_problem, IMAGE_PROBLEM_MAX, "%s", status.problem);
    return !error && !late && !status.problem[0] && status.age_ns <= lease_ns / 2 &&
           clock_now_ns() - began <= lease_ns / 2;
}

/** A process of this host that is gone, while its host is not, must never be started elsewhere. */
static void watch_mark_ended(const struct lease *lease)
{
    struct lease mine;

    if (!lease_is_of_this_host(lease) || kill((pid_t)lease->holder.pid, 0) == 0 || errno != ESRCH ||
        lease_take(lease, LEASE_ENDED, &mine) != 0)
        return;
    snprintf(mine.holder.reason, sizeof(mine.holder.reason),
             "its process ended, and its host did not");
    (void)!lease_renew(&mine, LEASE_ENDED); /* Only for who asks why. */
}

/** False, with the reason, if a lost program is not to be started unasked. */
static bool watch_may_start(const struct losses *losses, struct lost *lost)
{
    const struct lease_holder *holder = &lost->seen.lease.holder;
    uint64_t takes = lost_takes(lost);
    char text[PROTOCOL_TEXT_MAX] = "";

    if (takes >= TAKES_MOST) {
        snprintf(text, sizeof(text),
                 "it was taken over %llu times since its last image%s%s; reseat recover --from "
                 "starts it again",
                 (unsigned long long)takes, holder->reason[0] ? ": " : "", holder->reason);
        lost_conclude(lost, CANNOT, text);
    } else if (holder->state == LEASE_TAKEN) {
        return true; /* Who took it has failed or is gone: anybody may try next. */
    } else if (lost->host.error == -ENOENT) {
        snprintf(text, sizeof(text),
                 "nothing watches its host: reseat recover --from %s starts it again",
                 holder->host);
        lost_conclude(lost, LOST, text);
    } else if (!lost_is_silent(losses, &lost->host, 0)) {
        snprintf(text, sizeof(text), "%s lives", holder->host);
        lost_conclude(lost, LOST, text);
        watch_mark_ended(&lost->seen.lease);
    } else {
        return true;
    }
    return false;
}

/** Bytes of a device for which nobody as important as the program would have to make room. */
static uint64_t watch_room(const json_t *device, const json_t *apps, long priority)
{
    uint64_t own = member_number(device, "capacity_bytes");
    uint64_t granted = member_number(device, "granted_bytes"), less = 0;
    const json_t *app, *vdev;
    size_t i, j;

    json_array_foreach(apps, i, app)
    {
        if (strtol(member_text(app, "priority"), NULL, 10) >= priority)
            continue;
        json_array_foreach(
            json_object_get(app, "vdevs"), j,
            vdev) if (strcmp(member_text(vdev, "device"), member_text(device, "name")) == 0) less +=
            member_number(vdev, "granted_bytes");
    }
    granted = granted > less ? granted - less : 0;
    return own > granted ? own - granted : 0;
}

/**
 * False if no device of this host has room for the program's objects: then another host may take
 * it. True if the agent does not answer: the program is started, and waits for room by itself.
 */
static bool watch_fits(const struct losses *losses, struct lost *lost)
{
    static const struct question devices = {
        .type = MSG_DEVICES, .what = "list devices", .launch = true, .lists = true};
    static const struct question programs = {.type = MSG_APPS, .what = "list programs"};
    const char *wanted = losses->wanted->device;
    json_auto_t *listed = NULL, *running = NULL;
    const json_t *device;
    struct frame frame;
    uint64_t most = 0;
    size_t i;

    frame_init(&frame, MSG_DEVICES);
    ask_put_environment(&frame);
    if (ask(losses->output, &devices, &frame, &listed))
        return true;
    frame_init(&frame, MSG_APPS);
    if (ask(losses->output, &programs, &frame, &running))
        return true;
    json_array_foreach(json_object_get(listed, "devices"), i, device)
    {
        bool closed = member_bool(device, "drained") || member_bool(device, "draining") ||
                      strcmp(member_text(device, "state"), "up") != 0;
        uint64_t room = closed || (wanted && strcmp(wanted, member_text(device, "name")) != 0)
                            ? 0
                            : watch_room(device, json_object_get(running, "apps"), lost->priority);
        most = room > most ? room : most;
    }
    if (most && most >= lost->summary.bytes)
        return true;
    struct words words = {.used = 0};
    json_auto_t *said = json_pack("{s:I, s:I}", "needed_bytes", (json_int_t)lost->summary.bytes,
                                  "most_bytes", (json_int_t)most);
    words_say(&words, said,
              "its objects need {needed_bytes} of a device, and no device here has more than "
              "{most_bytes} for it");
    lost_conclude(lost, WAITS, words.text);
    return false;
}

static void watch_tell(const struct losses *losses, struct lost *lost)
{
    if (lost->outcome == UNKNOWN ||
        (lost->outcome == lost->told && strcmp(lost->reason, lost->told_reason) == 0))
        return;
    lost->told = lost->outcome;
    memcpy(lost->told_reason, lost->reason, sizeof(lost->told_reason));
    json_auto_t *said = lost_describe(lost);
    struct output output = *losses->output;
    output.members = "program image host outcome reason pid";
    (void)!output_say(&output, said,
                      "{program} ({image}): {outcome}[ as process {pid}][: {reason}]");
}

static void watch_look(struct watch *watch, const char *folder)
{
    struct losses *losses = &watch->losses;
    char problem[IMAGE_PROBLEM_MAX] = "", id[LEASE_ID_MAX];
    bool well = watch_is_well(watch, folder, problem);

    if (problem[0] && strcmp(problem, watch->problem) != 0)
        output_note(losses->output, "%s; nothing is recovered until it can be used", problem);
    memcpy(watch->problem, problem, sizeof(problem));
    if (!well)
        losses->well_ns = clock_now_ns();
    for (size_t i = 0; i < losses->count; i++) {
        struct lost *lost = &losses->lost[i];
        lost_look_at(losses, lost);
        lease_host_id(lost->seen.lease.holder.boot, id);
        if (!lost->seen.error && lost->by)
            (void)lease_look(&lost->host, losses->path, id);
    }
    for (size_t i = 0; i < losses->count; i++) {
        struct lost *lost = &losses->lost[i];
        if (well && lost->outcome == LOST && watch_may_start(losses, lost) &&
            watch_fits(losses, lost))
            lost_start(losses, lost);
        watch_tell(losses, lost);
    }
}

void watch_run(const struct output *output, const struct recover *wanted, const char *folder)
{
    struct watch watch = {.losses = {.output = output, .wanted = wanted}};
    uint64_t pause = wanted->lease_ms * NS_PER_MS / 8;

    pause = pause < LOOK_LEAST_NS ? LOOK_LEAST_NS : pause > LOOK_MOST_NS ? LOOK_MOST_NS : pause;
    for (;; clock_sleep(pause)) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        watch_look(&watch, folder);
    }
}
