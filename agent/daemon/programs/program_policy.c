#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"
#include "agent/protocol/common_messages.h"
#include "policy/reseat_limits.h"
#include "state/driver/offer.h"

/* The policy of a program, as `reseat run` and `reseat limit` set it, stored for the next agent. */

#define PRIORITY_MAX 1000

bool program_take_protect(struct program *program, const msgpack_object *map)
{
    char text[PROTECTION_TEXT_MAX], reason[PROTOCOL_TEXT_MAX];

    return field_string(map, "protect", text, sizeof(text)) &&
           protection_parse(text, &program->policy.protect, reason, sizeof(reason)) == 0;
}

void program_put_policy(const struct program *program, struct frame *frame)
{
    frame_u64(frame, "said", program->policy.overrides);
    message_put_signed(frame, "priority", program->policy.priority);
    frame_bool(frame, "preemptible", program->policy.preemptible);
    frame_u64(frame, "ways", program->policy.ways);
    frame_u64(frame, "quota", program->policy.quota);
    frame_u64(frame, "cap_mw", program->policy.cap_mw);
    frame_string(frame, "pinned_to", program->policy.pinned_to);
    message_put_protection(frame, "protect", &program->policy.protect);
}

void program_take_policy(struct program *program, const msgpack_object *map)
{
    struct program_policy *policy = &program->policy;
    const uint64_t all = (1u << POLICY_WAYS) - 1;

    /* An older agent stored no overrides: treat its values as set by a command. */
    policy->overrides = (unsigned)(field_u64(map, "said", OVERRIDE_ALL) & OVERRIDE_ALL);
    int32_t priority = message_signed(map, "priority");
    if (field_get(map, "priority") && priority >= -PRIORITY_MAX && priority <= PRIORITY_MAX)
        policy->priority = priority;
    policy->preemptible = field_bool(map, "preemptible", policy->preemptible);
    policy->ways = (unsigned)(field_u64(map, "ways", policy->ways) & all);
    policy->quota = field_u64(map, "quota", policy->quota);
    policy->cap_mw = field_u64(map, "cap_mw", policy->cap_mw);
    if (field_get(map, "pinned_to"))
        field_string(map, "pinned_to", policy->pinned_to, sizeof(policy->pinned_to));
    (void)program_take_protect(program, map);
}

void program_take_overrides(struct program *program, const msgpack_object *map)
{
    static const struct {
        const char *key;
        enum program_override said;
    } all[] = {{"priority", OVERRIDE_PRIORITY}, {"preemptible", OVERRIDE_PREEMPTIBLE},
               {"ways", OVERRIDE_WAYS},         {"quota", OVERRIDE_QUOTA},
               {"cap_mw", OVERRIDE_CAP},        {"protect", OVERRIDE_PROTECT},
               {"pinned_to", OVERRIDE_DEVICES}};

    program_take_policy(program, map);
    program->policy.overrides = 0;
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        program->policy.overrides |= field_get(map, all[i].key) ? all[i].said : 0;
}

void program_reset_status(struct program *program)
{
    program->status = (struct program_status){0};
    program->ready_count = 0;
    program->whole_count = 0;
    for (size_t i = 0; i < PROTOCOL_VDEVS_MAX; i++) {
        struct program_device *vdev = &program->vdevs[i];
        vdev->suspended = vdev->moving = vdev->limited = vdev->tells_grants = false;
        vdev->lost = vdev->seeks = false;
        vdev->device_bytes = vdev->moves = vdev->last_downtime_ns = 0;
        vdev->wanted = vdev->least = vdev->granted = vdev->peak = vdev->spilled = 0;
        vdev->busy = 0;
        vdev->pinned[0] = '\0';
    }
}

uint64_t program_uses(const struct program *program)
{
    const struct program_status *status = &program->status;

    return (status->contexts * 1000003 + status->programs) * 1000003 + status->kernels;
}

/* ---- programs that registered ---- */

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
