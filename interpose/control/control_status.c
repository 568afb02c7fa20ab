#include "interpose/control/control_status.h"

#include "interpose/control/control_frames.h"
#include "interpose/control/control_protect.h"
#include "state/checkpoint/lease_renewer.h"
#include "state/move/status.h"
#include "state/move/stored.h"
#include "state/object/lost.h"
#include "state/recovery/protect.h"

static void control_status_put_protection(struct frame *frame, const struct protect_status *status)
{
    char as[PROTECTION_TEXT_MAX];
    struct lease_renewer_status lease;
    struct loss loss;

    control_protect_words(as);
    if (as[0])
        control_frame_protect(frame, as, status);
    lost_last(&loss);
    control_frame_loss(frame, &loss);
    frame_u64(frame, "stored", stored_bytes());
    lease_renewer_read(&lease);
    control_frame_lease(frame, &lease);
}

void control_status_pack(struct frame *ret_frame)
{
    struct spread_status spread;
    struct protect_status protection;
    struct ready_status ready[STATUS_READY_MAX];
    struct pace_refusal whole[STATUS_WHOLE_MAX];

    protect_read(&protection);
    status_spread(&spread);
    control_frame_status(ret_frame, &spread);
    for (uint32_t vdev = 0; vdev < status_vdev_count(); vdev++) {
        struct vdev_status status = {0};
        status_vdev(vdev, &status);
        /* Only a program with one virtual device is protected: the recovery is that device's. */
        status.lost = status.lost || recovery_is_under_way(protection.recovery);
        control_frame_vdev(ret_frame, vdev, &status);
    }
    frame_end(ret_frame);
    control_frame_ready(ret_frame, ready, status_ready(ready));
    control_frame_whole(ret_frame, whole, status_whole(whole));
    control_status_put_protection(ret_frame, &protection);
}
