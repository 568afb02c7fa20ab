#include "agent/daemon/programs/registry.h"

#include <errno.h>
#include <string.h>

#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/peers.h"
#include "agent/protocol/common_messages.h"
#include "policy/reseat_limits.h"
#include "state/driver/offer.h"

bool program_wish_fits(const struct agent *agent, const struct program *program, uint32_t device,
                       char *ret_reason, size_t size)
{
    const struct inventory_entry *entry = program->wish.aware ? devices_entry(agent, device) : NULL;
    struct plan_offer offer;
    struct plan_use use;

    if (!entry)
        return true;
    uint64_t memory = ledger_lasting(&agent->ledger.devices[device]);
    reseat_limits_plan(&program->wish.minimum, &use);
    offer_from_devinfo(&entry->info, &offer);
    offer.memory_available = memory < offer.memory_available ? memory : offer.memory_available;
    return plan_fits(&use, &offer, ret_reason, size);
}

void program_notify(const struct program *program, size_t vdev, const char *what, uint64_t in_ns,
                    uint64_t value, const char *text)
{
    struct frame frame;

    if (!program->peer || !program->wish.aware)
        return;
    if (vdev == PROGRAM_ALL_VDEVS && program->vdev_count == 1)
        vdev = 0;
    struct program_notice notice = {.vdev =
                                        vdev < program->vdev_count ? (uint32_t)vdev : UINT32_MAX,
                                    .in_ns = in_ns,
                                    .value = value,
                                    .valued = true};
    snprintf(notice.what, sizeof(notice.what), "%s", what);
    snprintf(notice.text, sizeof(notice.text), "%s", text);
    frame_init(&frame, MSG_NOTICE);
    put_notice(&frame, &notice);
    peer_send(program->peer, &frame);
}

void programs_notify_added(const struct agent *agent, uint64_t bytes, const char *text)
{
    for (const struct program *program = agent->programs; program; program = program->next)
        program_notify(program, PROGRAM_NO_VDEV, NOTICE_ADDED, 0, bytes, text);
}
