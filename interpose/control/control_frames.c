#include "interpose/control/control_frames.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "state/base/bytes/text.h"
#include "state/base/memory/pages.h"
#include "state/driver/device_key.h"

static void control_frames_put_limits(struct frame *frame, const char *key,
                                      const struct reseat_limits *limits)
{
    frame_map(frame, key);
    frame_u64(frame, "memory", limits->memory);
    frame_u64(frame, "allocation", limits->allocation);
    frame_u64(frame, "local_memory", limits->local_memory);
    frame_u64(frame, "work_group_size", limits->work_group_size);
    frame_u64(frame, "compute_units", limits->compute_units);
    frame_u64(frame, "features", limits->features);
    frame_end(frame);
}

/* "aware" of a hello or a wish, into an open map: nothing where nobody is registered. */
static void control_frames_put_wish(struct frame *frame, const struct aware_wish *wish)
{
    if (!wish->registered)
        return;
    frame_map(frame, "aware");
    control_frames_put_limits(frame, "minimum", &wish->minimum);
    control_frames_put_limits(frame, "preferred", &wish->preferred);
    frame_end(frame);
}

void control_frame_hello(struct frame *frame, const char *name, const char *id,
                         const struct aware_wish *wish)
{
    frame_init(frame, MSG_HELLO);
    frame_u64(frame, "version", PROTOCOL_VERSION);
    frame_string(frame, "role", "program");
    frame_string(frame, "name", name ? name : "");
    frame_string(frame, "id", id ? id : "");
    frame_string(frame, "program", program_invocation_short_name);
    control_frames_put_wish(frame, wish);
}

void control_frame_wish(struct frame *frame, const struct aware_wish *wish)
{
    frame_init(frame, MSG_WISH);
    control_frames_put_wish(frame, wish);
}

void control_frame_status(struct frame *frame, const struct spread_status *spread)
{
    frame_init(frame, MSG_STATUS);
    frame_u64(frame, "warm", pages_warm());
    frame_u64(frame, "slice_ns", spread->slice_ns);
    frame_u64(frame, "spread_launches", spread->launches);
    frame_u64(frame, "spread_items", spread->items);
    frame_array(frame, "vdevs");
}

static void control_frames_put_sources(struct frame *frame, const struct vdev_status *status)
{
    char key[DEVICE_KEY_TEXT_MAX];

    frame_array(frame, "sources");
    for (uint32_t i = 0; i < status->source_count; i++) {
        device_key_format(&status->sources[i].device, key);
        frame_map(frame, NULL);
        frame_string(frame, "device", key);
        frame_u64(frame, "bytes", status->sources[i].bytes);
        frame_end(frame);
    }
    frame_end(frame);
}

void control_frame_vdev(struct frame *frame, uint32_t vdev, const struct vdev_status *status)
{
    char key[DEVICE_KEY_TEXT_MAX] = "";

    if (status->device.icd[0])
        device_key_format(&status->device, key);
    frame_map(frame, NULL);
    frame_u64(frame, "vdev", vdev);
    frame_string(frame, "device", key);
    frame_bool(frame, "suspended", status->suspended);
    frame_bool(frame, "moving", status->moving);
    frame_bool(frame, "lost", status->lost);
    frame_u64(frame, "device_bytes", status->device_bytes);
    frame_u64(frame, "wanted", status->room.wanted);
    frame_u64(frame, "least", status->room.least);
    if (status->room.limited)
        frame_u64(frame, "granted", status->room.granted);
    frame_u64(frame, "peak", status->room.peak);
    frame_u64(frame, "spilled", status->spilled_bytes);
    frame_u64(frame, "fetched", status->fetched);
    frame_u64(frame, "to_fetch", status->to_fetch);
    if (status->source_count != 0)
        control_frames_put_sources(frame, status);
    frame_u64(frame, "busy", status->busy);
    frame_u64(frame, "moves", status->moves);
    frame_u64(frame, "last_downtime_ns", status->last_downtime_ns);
    frame_u64(frame, "contexts", status->contexts);
    frame_u64(frame, "queues", status->queues);
    frame_u64(frame, "memories", status->memories);
    frame_u64(frame, "programs", status->programs);
    frame_u64(frame, "kernels", status->kernels);
    frame_u64(frame, "events", status->events);
    frame_string(frame, "pinned", status->pinned ? status->pinned : "");
    frame_end(frame);
}

void control_frame_ready(struct frame *frame, const struct ready_status *ready, uint32_t count)
{
    char key[DEVICE_KEY_TEXT_MAX];

    frame_array(frame, "ready");
    for (uint32_t i = 0; i < count; i++) {
        device_key_format(&ready[i].device, key);
        frame_map(frame, NULL);
        frame_string(frame, "device", key);
        frame_u64(frame, "behind", ready[i].behind);
        frame_end(frame);
    }
    frame_end(frame);
}

void control_frame_whole(struct frame *frame, const struct pace_refusal *whole, uint32_t count)
{
    char name[sizeof(whole->kernel)];

    frame_array(frame, "whole");
    for (uint32_t i = 0; i < count; i++) {
        text_make_safe(name, sizeof(name), whole[i].kernel, strlen(whole[i].kernel));
        frame_map(frame, NULL);
        frame_string(frame, "kernel", name);
        frame_string(frame, "reason", whole[i].reason);
        frame_end(frame);
    }
    frame_end(frame);
}

void control_frame_protect(struct frame *frame, const char *as, const struct protect_status *status)
{
    frame_map(frame, "protect");
    frame_string(frame, "as", as);
    frame_bool(frame, "on", status->on);
    frame_string(frame, "broken", status->on && status->broken ? status->broken : "");
    frame_bool(frame, "seeks", recovery_is_under_way(status->recovery));
    frame_string(frame, "recovery", recovery_state_text(status->recovery));
    frame_u64(frame, "snapshots", status->snapshots);
    frame_u64(frame, "recoveries", status->recoveries);
    frame_u64(frame, "differences", status->differences);
    frame_u64(frame, "snapshot_bytes", status->on ? status->snapshot_bytes : 0);
    frame_u64(frame, "at_ns", status->on ? status->at_ns : 0);
    frame_u64(frame, "downtime_ns", status->downtime_ns);
    frame_u64(frame, "paused_ns", status->paused_ns);
    frame_u64(frame, "since_ns", status->since_ns);
    frame_u64(frame, "put_off_ns", status->on ? status->put_off_ns : 0);
    frame_end(frame);
}

void control_frame_lease(struct frame *frame, const struct lease_renewer_status *lease)
{
    char problem[sizeof(lease->problem)];

    text_make_safe(problem, sizeof(problem), lease->problem, strlen(lease->problem));
    frame_map(frame, "right");
    frame_string(frame, "folder", lease->path);
    frame_string(frame, "id", lease->id);
    frame_bool(frame, "fenced", lease->fenced);
    frame_string(frame, "problem", problem);
    frame_end(frame);
}

void control_frame_loss(struct frame *frame, const struct loss *loss)
{
    char key[DEVICE_KEY_TEXT_MAX];

    if (loss->count == 0)
        return;
    device_key_format(&loss->device->key, key);
    frame_map(frame, "loss");
    frame_string(frame, "device", key);
    frame_string(frame, "reason", loss->reason);
    frame_u64(frame, "at_ns", loss->at_ns);
    frame_u64(frame, "count", loss->count);
    frame_bool(frame, "isolated", loss->isolated);
    frame_end(frame);
}

void control_frame_progress(struct frame *frame, uint64_t request,
                            const struct move_progress *progress)
{
    frame_init(frame, MSG_PROGRESS);
    frame_u64(frame, "request", request);
    frame_string(frame, "phase", move_phase_name(progress->phase));
    frame_u64(frame, "done", progress->bytes_done);
    frame_u64(frame, "total", progress->bytes_total);
    frame_u64(frame, "builds", progress->builds);
    frame_u64(frame, "built", progress->built);
    frame_string(frame, "building", progress->building);
    frame_u64(frame, "round", progress->round);
}

static const char *control_frames_result_word(enum move_result result)
{
    switch (result) {
    case MOVE_DONE:
        return RESULT_DONE;
    case MOVE_REFUSED:
        return RESULT_REFUSED;
    case MOVE_EXPIRED:
        return RESULT_EXPIRED;
    case MOVE_CANCELED:
        return RESULT_CANCELED;
    case MOVE_ENDED:
        return RESULT_ENDED;
    case MOVE_ROLLED_BACK:
        break;
    }
    return RESULT_ROLLED_BACK;
}

static void control_frames_put_report(struct frame *frame, const char *result,
                                      const struct move_report *report)
{
    char reason[sizeof(report->reason)];

    text_make_safe(reason, sizeof(reason), report->reason, strlen(report->reason));
    frame_string(frame, "result", result);
    frame_string(frame, "reached", move_phase_name(report->reached));
    frame_string(frame, "reason", reason);
    frame_bool(frame, "lasting", report->lasting);
    frame_u64(frame, "total_ns", report->total_ns);
    frame_u64(frame, "arrived_ns", report->arrived_ns);
    frame_u64(frame, "downtime_ns", report->downtime_ns);
    frame_u64(frame, "bytes", report->bytes);
    frame_u64(frame, "build_ns", report->build_ns);
    frame_u64(frame, "built", report->built);
    frame_u64(frame, "drain_ns", report->drain_ns);
    frame_u64(frame, "aim_ns", report->aim_ns);
    frame_u64(frame, "left", report->left);
    frame_u64(frame, "rounds", report->rounds);
    frame_u64(frame, "predicted_ns", report->predicted_ns);
}

static void control_frames_put_stored(struct frame *frame, const struct stored_report *stored)
{
    char reason[sizeof(stored->reason)], older[sizeof(stored->not_removed)];

    text_make_safe(reason, sizeof(reason), stored->reason, strlen(stored->reason));
    frame_string(frame, "image", stored->result == MOVE_DONE ? stored->image : "");
    frame_string(frame, "not_stored", reason);
    frame_u64(frame, "image_bytes", stored->bytes);
    frame_u64(frame, "image_written", stored->written);
    frame_u64(frame, "freed", stored->freed);
    text_make_safe(older, sizeof(older), stored->not_removed, strlen(stored->not_removed));
    frame_string(frame, "not_removed", older);
}

void control_frame_report(struct frame *frame, uint64_t request,
                          const struct control_report *report)
{
    frame_init(frame, MSG_REPORT);
    frame_u64(frame, "request", request);
    control_frames_put_report(
        frame, report->again ? RESULT_AGAIN : control_frames_result_word(report->whole.result),
        &report->whole);
    frame_bool(frame, "already", report->already);
    if (report->stores)
        control_frames_put_stored(frame, &report->stored);
    if (report->protects) {
        char reason[sizeof(report->not_protected)];
        text_make_safe(reason, sizeof(reason), report->not_protected,
                       strlen(report->not_protected));
        frame_string(frame, "not_protected", reason);
    }
    if (report->parked)
        frame_u64(frame, "box", report->box);
    frame_array(frame, "vdevs");
    for (uint32_t i = 0; i < report->count; i++) {
        frame_map(frame, NULL);
        frame_u64(frame, "vdev", report->each[i].vdev);
        const struct move_report *one = &report->each[i].report;
        control_frames_put_report(frame, control_frames_result_word(one->result), one);
        frame_end(frame);
    }
    frame_end(frame);
}
