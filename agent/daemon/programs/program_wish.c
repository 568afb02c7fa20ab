#include "agent/daemon/programs/registry.h"

#include <errno.h>
#include <string.h>

#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/peers.h"
#include "agent/protocol/agent_messages.h"
#include "policy/reseat_limits.h"
#include "state/driver/offer.h"

void program_take_wish(struct program *program, const msgpack_object *map)
{
    const msgpack_object *aware = field_get(map, "aware");
    struct program_wish *wish = &program->wish;

    *wish = (struct program_wish){.aware = aware && aware->type == MSGPACK_OBJECT_MAP};
    if (wish->aware)
        take_aware(aware, wish);
}

static void program_wish_put_limits(struct frame *frame, const char *key,
                                    const struct reseat_limits *limits)
{
    const char *feature;
    uint32_t bit;

    frame_map(frame, key);
    frame_u64(frame, "memory", limits->memory);
    frame_u64(frame, "allocation", limits->allocation);
    frame_u64(frame, "local_memory", limits->local_memory);
    frame_u64(frame, "work_group_size", limits->work_group_size);
    frame_u64(frame, "compute_units", limits->compute_units);
    frame_array(frame, "features");
    for (size_t i = 0; (feature = reseat_limits_feature(i, &bit)); i++)
        if (limits->features & bit)
            frame_string(frame, NULL, feature);
    frame_end(frame);
    frame_end(frame);
}

void program_put_wish(const struct program *program, struct frame *frame)
{
    if (!program->wish.aware)
        return;
    frame_map(frame, "aware");
    program_wish_put_limits(frame, "minimum", &program->wish.minimum);
    program_wish_put_limits(frame, "preferred", &program->wish.preferred);
    frame_end(frame);
}

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
    frame_init(&frame, MSG_NOTICE);
    frame_string(&frame, "what", what);
    if (vdev < program->vdev_count || (vdev == PROGRAM_ALL_VDEVS && program->vdev_count == 1))
        frame_u64(&frame, "vdev", vdev < program->vdev_count ? vdev : 0);
    frame_u64(&frame, "in_ns", in_ns);
    frame_u64(&frame, "value", value);
    frame_string(&frame, "text", text);
    peer_send(program->peer, &frame);
}

void programs_notify_added(const struct agent *agent, uint64_t bytes, const char *text)
{
    for (const struct program *program = agent->programs; program; program = program->next)
        program_notify(program, PROGRAM_NO_VDEV, NOTICE_ADDED, 0, bytes, text);
}
