#include "interpose/control/control_frames.h"

#include <errno.h>

#include "agent/protocol/program_messages.h"
#include "state/base/memory/pages.h"

/* Put the field "aware" of a hello or a wish into an open map, if the program has registered. */
static void control_frames_put_wish(struct frame *frame, const struct aware_wish *wish)
{
    if (!wish->registered)
        return;
    frame_map(frame, "aware");
    put_aware(frame, wish);
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

void control_frame_costs(struct frame *frame, const struct pace_sample *samples, uint32_t count)
{
    frame_init(frame, MSG_COSTS);
    frame_array(frame, "samples");
    for (uint32_t i = 0; i < count; i++) {
        frame_map(frame, NULL);
        put_sample(frame, &samples[i]);
        frame_end(frame);
    }
    frame_end(frame);
}

void control_frame_status(struct frame *frame, const struct spread_status *spread)
{
    frame_init(frame, MSG_STATUS);
    frame_u64(frame, "warm", pages_warm());
    put_launches(frame, spread);
    frame_array(frame, "vdevs");
}

void control_frame_vdev(struct frame *frame, uint32_t vdev, const struct vdev_status *status)
{
    frame_map(frame, NULL);
    frame_u64(frame, "vdev", vdev);
    put_vdev(frame, status);
    put_objects(frame, status);
    frame_end(frame);
}

void control_frame_ready(struct frame *frame, const struct ready_status *ready, uint32_t count)
{
    frame_array(frame, "ready");
    for (uint32_t i = 0; i < count; i++) {
        frame_map(frame, NULL);
        put_ready(frame, &ready[i]);
        frame_end(frame);
    }
    frame_end(frame);
}

void control_frame_whole(struct frame *frame, const struct pace_refusal *whole, uint32_t count)
{
    frame_array(frame, "whole");
    for (uint32_t i = 0; i < count; i++) {
        frame_map(frame, NULL);
        put_whole(frame, &whole[i]);
        frame_end(frame);
    }
    frame_end(frame);
}

void control_frame_protect(struct frame *frame, const char *as, const struct protect_status *status)
{
    struct protect_status said = *status;

    if (!said.on) {
        said.broken = NULL;
        said.snapshot_bytes = said.at_ns = said.put_off_ns = 0;
    }
    frame_map(frame, "protect");
    frame_string(frame, "as", as);
    frame_bool(frame, "seeks", recovery_is_under_way(status->recovery));
    frame_string(frame, "recovery", recovery_state_text(status->recovery));
    put_protect(frame, &said);
    frame_end(frame);
}

void control_frame_lease(struct frame *frame, const struct lease_renewer_status *lease)
{
    frame_map(frame, "right");
    frame_string(frame, "folder", lease->path);
    frame_string(frame, "id", lease->id);
    put_lease(frame, lease);
    frame_end(frame);
}

void control_frame_loss(struct frame *frame, const struct loss *loss)
{
    if (loss->count == 0)
        return;
    frame_map(frame, "loss");
    message_put_device(frame, "device", &loss->device->key);
    put_loss(frame, loss);
    frame_end(frame);
}

void control_frame_progress(struct frame *frame, uint64_t request,
                            const struct move_progress *progress)
{
    frame_init(frame, MSG_PROGRESS);
    frame_u64(frame, "request", request);
    put_progress(frame, progress);
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

static void control_frames_put_stored(struct frame *frame, const struct image_report *stored)
{
    frame_string(frame, "image", stored->result == MOVE_DONE ? stored->image : "");
    put_stored(frame, stored);
}

void control_frame_report(struct frame *frame, uint64_t request,
                          const struct control_report *report)
{
    frame_init(frame, MSG_REPORT);
    frame_u64(frame, "request", request);
    frame_string(frame, "result",
                 report->again ? RESULT_AGAIN : control_frames_result_word(report->whole.result));
    put_outcome(frame, &report->whole);
    frame_bool(frame, "already", report->already);
    if (report->stores)
        control_frames_put_stored(frame, &report->image);
    if (report->protects)
        message_put_text(frame, "not_protected", report->not_protected);
    if (report->parked)
        frame_u64(frame, "box", report->box);
    frame_array(frame, "vdevs");
    for (uint32_t i = 0; i < report->count; i++) {
        frame_map(frame, NULL);
        frame_u64(frame, "vdev", report->each[i].vdev);
        const struct move_report *one = &report->each[i].report;
        frame_string(frame, "result", control_frames_result_word(one->result));
        put_outcome(frame, one);
        frame_end(frame);
    }
    frame_end(frame);
}
