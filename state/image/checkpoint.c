#include "state/image/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/base/threads/long_lock.h"
#include "state/base/threads/work.h"
#include "state/command/command.h"
#include "state/image/image_graph.h"
#include "state/image/lease_renewer.h"
#include "state/image/snapshot.h"
#include "state/object/upcalls.h"

/* Attempts to pin our own snapshot: another thread may make a newer one in between. */
#define TRIES 5

static struct long_lock checkpoint_turn = LONG_LOCK_INITIALIZER;
/* The chunks of the last image, and its folder. Guarded by checkpoint_turn. */
static struct {
    char path[PATH_MAX];
    struct image_known known;
    bool keeps; /* the snapshot stays in host memory for the next image */
} last;

static const struct checkpoint_partner *_Atomic partner;

void checkpoint_set_partner(const struct checkpoint_partner *given)
{
    atomic_store(&partner, given);
}

struct checkpoint {
    struct image_making image;
    const struct checkpoint_partner *partner; /* the program's callbacks; or NULL */
    struct image_blob progress;
    struct snapshot *snapshot; /* pinned */
    struct source *sources;
};

/* A root memory object as a source of image_write(). */
struct source {
    const struct checkpoint *checkpoint;
    size_t root;
    uint64_t *stamps; /* owned */
};

/* ---- the snapshot ---- */

static int checkpoint_moment(void *data, const struct snapshot *snapshot)
{
    struct checkpoint *m = data;
    (void)snapshot;
    image_manifest_finish(&m->image.manifest);
    /* Deferred commands count in the program's progress, but their results are not in the bytes. */
    if (m->partner && defer_any())
        return image_making_fail(
            &m->image, -EBUSY,
            "commands of the program wait for an event of its own, so that its progress "
            "is not that of its contents");
    int error = graph_describe_program(&m->image.manifest, "checkpoint");
    return error ? error : graph_describe(&m->image.manifest);
}

static int checkpoint_stand(void *data)
{
    struct checkpoint *m = data;
    void *bytes = NULL;
    size_t size = 0;
    int error = m->partner->stand(&m->image.request->move, &bytes, &size, m->image.report->reason,
                                  sizeof(m->image.report->reason));
    free(m->progress.bytes);
    m->progress = (struct image_blob){bytes, size};
    return error;
}

/* What a new process needs to go on from here. */
static int checkpoint_describe_progress(struct checkpoint *m)
{
    struct image_record *record = image_manifest_add(&m->image.manifest, IMAGE_PROGRESS);
    if (!record)
        return -ENOMEM;
    record->progress->bytes = m->progress;
    m->progress = (struct image_blob){0};
    /* Without the command line an operator has to say how the program is started. */
    int error = command_line_describe(&m->image.manifest);
    if (error && error != -ENOMEM)
        log_info("the image does not say how the program was started: %s", strerror(-error));
    return error == -ENOMEM ? error : 0;
}

/* Make a snapshot, with the records of its objects, and pin it. */
static int checkpoint_make_snapshot(struct checkpoint *m)
{
    const struct snapshot_request wanted = {.move = m->image.request->move,
                                            .moment = checkpoint_moment,
                                            .stand = m->partner ? checkpoint_stand : NULL,
                                            .data = m};
    for (unsigned i = 0; i < TRIES; i++) {
        struct snapshot_report made = {0};
        int error = the_upcalls->make_snapshot(&wanted, &made);
        if (m->partner)
            m->partner->go_on(error == 0);
        m->image.report->downtime_ns += made.downtime_ns;
        m->image.report->copied += made.copied;
        if (error)
            return image_making_fail(&m->image, error, made.reason);
        m->snapshot = snapshot_pin();
        if (m->snapshot && snapshot_serial(m->snapshot) == made.serial)
            return 0;
        snapshot_unpin(m->snapshot);
        m->snapshot = NULL;
    }
    return image_making_fail(&m->image, -EBUSY,
                             "snapshots are made faster than one can be looked at");
}

/* ---- its bytes ---- */

static const void *checkpoint_look(const struct image_source *image_source, uint64_t at,
                                   size_t size, void *room)
{
    const struct source *source = image_source->data;
    const struct snapshot *snapshot = source->checkpoint->snapshot;
    char *into = room;
    for (uint64_t end = at + size; at < end;) {
        struct snapshot_run run;
        if (!snapshot_run(snapshot, source->root, (size_t)at, &run))
            return NULL;
        size_t offset = (size_t)at - run.range.begin;
        size_t part = (run.range.end < end ? run.range.end : (size_t)end) - (size_t)at;
        if (run.bytes && part == size)
            return run.bytes + offset;
        if (run.bytes)
            memcpy(into, run.bytes + offset, part);
        else
            memset(into, 0, part);
        into += part;
        at += part;
    }
    return room;
}

/* Stamp each part with the serial of the snapshot that first had all of its bytes: the part is the
 * same in all snapshots from then on. *ret_written: some of it was ever written. */
static int checkpoint_stamp(const struct checkpoint *m, struct source *source, size_t size,
                            bool *ret_written)
{
    uint64_t count = image_part_total(size);
    source->stamps = calloc(count + 1, sizeof(*source->stamps));
    if (!source->stamps)
        return -ENOMEM;
    *ret_written = false;
    for (size_t at = 0; at < size;) {
        struct snapshot_run run;
        if (!snapshot_run(m->snapshot, source->root, at, &run))
            return -EFAULT;
        *ret_written = *ret_written || run.bytes;
        for (size_t part = at / IMAGE_PART; part * IMAGE_PART < run.range.end; part++)
            if (source->stamps[part] < run.since)
                source->stamps[part] = run.since;
        at = run.range.end;
    }
    return 0;
}

static int checkpoint_write_image(struct checkpoint *m, struct image_folder *folder,
                                  char *ret_problem)
{
    size_t count = snapshot_root_count(m->snapshot);
    struct image_source *sources = calloc(count + 1, sizeof(*sources));
    m->sources = calloc(count + 1, sizeof(*m->sources));
    int error = sources && m->sources ? 0 : -ENOMEM;
    for (size_t i = 0; !error && i < count; i++) {
        const struct snapshot_root root = snapshot_root(m->snapshot, i);
        m->sources[i] = (struct source){.checkpoint = m, .root = i};
        sources[i] = (struct image_source){.id = (uintptr_t)root.memory.object,
                                           .size = root.size,
                                           .look = checkpoint_look,
                                           .data = &m->sources[i]};
        error = checkpoint_stamp(m, &m->sources[i], root.size, &sources[i].written);
        sources[i].stamps = m->sources[i].stamps;
    }
    if (!error && strcmp(last.path, folder->path) != 0) {
        image_known_finish(&last.known);
        strcpy(last.path, folder->path);
    }
    if (!error)
        error = image_making_write(
            &m->image, folder,
            (struct image_plan){.sources = sources, .count = count, .known = &last.known},
            ret_problem);
    for (size_t i = 0; m->sources && i < count; i++)
        free(m->sources[i].stamps);
    free(m->sources);
    free(sources);
    return error;
}

/* Once the image has the lease, other hosts may start the program from it. */
static int checkpoint_describe_lease(struct checkpoint *m, const char *path)
{
    uint32_t lease_ms = m->image.request->lease_ms;
    struct lease lease;
    if (lease_ms) {
        int error = lease_renewer_begin(path, lease_ms);
        if (error)
            return image_making_fail(&m->image, error,
                                     error == -EBUSY
                                         ? "the right to run it is for images in another folder"
                                         : strerror(-error));
    }
    if (!lease_renewer_lease(path, &lease))
        return 0;
    struct image_record *record = image_manifest_add(&m->image.manifest, IMAGE_LEASE);
    if (!record || !(record->lease->id = strdup(lease.id)))
        return -ENOMEM;
    record->lease->generation = lease.generation;
    if (!m->image.request->every_ms)
        return 0;
    record = image_manifest_add(&m->image.manifest, IMAGE_SCHEDULE);
    if (!record)
        return -ENOMEM;
    *record->schedule = (struct image_schedule){m->image.request->every_ms, m->image.request->keep};
    return 0;
}

/* The snapshot, with the progress of a program that has a save callback. */
static int checkpoint_ask_and_snapshot(struct checkpoint *m, const struct checkpoint_partner *asked)
{
    int has_none = 1;
    if (asked)
        has_none = asked->begin(&m->image.request->move, m->image.report->reason,
                                sizeof(m->image.report->reason));
    if (has_none > 0 && m->image.request->lease_ms)
        return image_making_fail(
            &m->image, -EPERM,
            "it has no save callback (reseat.h), so that reseat recover could not start it "
            "again: make images without --lease");
    m->partner = has_none == 0 ? asked : NULL;
    int error = has_none < 0 ? has_none : checkpoint_make_snapshot(m);
    if (m->partner)
        m->partner->end();
    return error;
}

static int checkpoint_make_image(struct checkpoint *m)
{
    const struct image_request *request = m->image.request;
    char problem[IMAGE_PROBLEM_MAX] = "";
    struct image_folder *folder = NULL;
    const struct checkpoint_partner *asked = atomic_load(&partner);
    uint64_t before;
    unsigned tries = 0;
    /* A folder that cannot be used is found before the program is paused. */
    int error = image_folder_open(request->folder, IMAGE_TO_WRITE, &folder, problem);
    /* After a lost device the recovery thread moves the program first; then the snapshot is tried
     * again. */
    if (!error)
        do {
            m->image.report->reason[0] = '\0';
            before = the_upcalls->recovery_count();
            error = checkpoint_ask_and_snapshot(m, asked);
        } while (error && ++tries < TRIES &&
                 the_upcalls->recovery_outlived(before, request->move.deadline_ns,
                                                request->move.cancel));
    if (!error && m->partner)
        error = checkpoint_describe_progress(m);
    if (!error)
        error = checkpoint_describe_lease(m, folder->path);
    if (!error)
        error = checkpoint_write_image(m, folder, problem);
    image_folder_close(folder);
    snapshot_unpin(m->snapshot);
    free(m->progress.bytes);
    return error ? image_making_fail(&m->image, error, problem) : 0;
}

/* The caller has checkpoint_turn. */
static void checkpoint_let_go(void)
{
    image_known_finish(&last.known);
    if (last.keeps)
        the_upcalls->forget_snapshot();
    last.keeps = false;
}

void checkpoint_make(const struct image_request *request, struct image_report *ret_report)
{
    struct checkpoint m = {.image = {.request = request, .report = ret_report}};
    uint64_t begun = clock_now_ns();
    *ret_report = (struct image_report){0};
    int error = -ETIMEDOUT;
    if (long_lock_take(&checkpoint_turn, request->move.deadline_ns)) {
        error = work_is_over() ? -ESHUTDOWN : checkpoint_make_image(&m);
        if (!error && request->keep)
            (void)!image_keep_last(request->folder, ret_report->image, request->keep,
                                   ret_report->not_removed); /* the next checkpoint tries again */
        last.keeps = last.keeps || m.snapshot;
        if (!request->keeps)
            checkpoint_let_go();
        long_lock_release(&checkpoint_turn);
    }
    image_manifest_finish(&m.image.manifest);
    ret_report->result = error == -ENOTSUP ? MOVE_REFUSED : move_result_of(error);
    ret_report->total_ns = clock_now_ns() - begun;
    if (error)
        (void)image_making_fail(&m.image, error, strerror(-error));
    log_info("image in %s: %s, %.3f ms in all, %.3f ms stopped", request->folder,
             error ? ret_report->reason : ret_report->image, (double)ret_report->total_ns / 1e6,
             (double)ret_report->downtime_ns / 1e6);
}

void checkpoint_end(void)
{
    (void)long_lock_take(&checkpoint_turn, 0);
    checkpoint_let_go();
    long_lock_release(&checkpoint_turn);
}
