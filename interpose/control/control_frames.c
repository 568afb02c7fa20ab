#include "interpose/control/control_priv.h"

#include <stdlib.h>

#include "agent/protocol/program_messages.h"
#include "state/base/memory/pages.h"
#include "state/image/stored.h"

void control_frame_status(struct frame *frame)
{
    struct control_status status = {.warm = pages_warm(), .vdev_count = status_vdev_count()};
    struct protect_status *protect = &status.protect;

    protect_read(protect);
    status.seeks = recovery_is_under_way(protect->recovery);
    status.recovery = recovery_state_text(protect->recovery);
    if (!protect->on) {
        protect->broken = NULL;
        protect->snapshot_bytes = protect->at_ns = protect->put_off_ns = 0;
    }
    control_protect_read(&status.as);
    status.protects = status.as.word != PROTECTION_UNSAID;
    status_spread(&status.spread);
    status.vdevs = calloc(status.vdev_count, sizeof(*status.vdevs));
    if (!status.vdevs)
        status.vdev_count = 0; /* as if it had not started: the agent keeps what it knows */
    for (uint32_t vdev = 0; vdev < status.vdev_count; vdev++) {
        status_vdev(vdev, &status.vdevs[vdev]);
        /* Only a program with one virtual device is protected: the recovery is that device's. */
        status.vdevs[vdev].lost = status.vdevs[vdev].lost || status.seeks;
    }
    status.ready_count = status_ready(status.ready);
    status.whole_count = status_whole(status.whole);
    lost_last(&status.loss);
    status.stored = stored_bytes();
    lease_renewer_read(&status.lease);
    frame_init(frame, MSG_STATUS);
    put_status(frame, &status);
    free(status.vdevs);
}
