#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agent/daemon/programs/registry.h"

/* The policy of a program, as `reseat run` and `reseat limit` set it, stored for the next agent. */

#define PRIORITY_MAX 1000

void program_put_protect(const struct program *program, struct frame *frame)
{
    char text[PROTECTION_TEXT_MAX];

    protection_format(&program->policy.protect, text);
    frame_string(frame, "protect", text);
}

bool program_take_protect(struct program *program, const msgpack_object *map)
{
    char text[PROTECTION_TEXT_MAX], reason[PROTOCOL_TEXT_MAX];

    return field_string(map, "protect", text, sizeof(text)) &&
           protection_parse(text, &program->policy.protect, reason, sizeof(reason)) == 0;
}

void program_put_policy(const struct program *program, struct frame *frame)
{
    char priority[16];

    snprintf(priority, sizeof(priority), "%" PRId32, program->policy.priority);
    frame_u64(frame, "said", program->policy.overrides);
    frame_string(frame, "priority", priority);
    frame_bool(frame, "preemptible", program->policy.preemptible);
    frame_u64(frame, "ways", program->policy.ways);
    frame_u64(frame, "quota", program->policy.quota);
    frame_u64(frame, "cap_mw", program->policy.cap_mw);
    frame_string(frame, "pinned_to", program->policy.pinned_to);
    program_put_protect(program, frame);
    frame_array(frame, "displaced");
    for (size_t i = 0; i < program->vdev_count; i++)
        frame_u64(frame, NULL, program->vdevs[i].displaced ? program->vdevs[i].ticket : 0);
    frame_end(frame);
    frame_array(frame, "chosen");
    for (size_t i = 0; i < program->vdev_count; i++)
        frame_bool(frame, NULL, program->vdevs[i].chosen);
    frame_end(frame);
}

/* Frames carry no negative numbers. */
static void program_policy_take_priority(struct program *program, const msgpack_object *map)
{
    char text[16], *end;

    if (field_string(map, "priority", text, sizeof(text)) && text[0]) {
        long value = strtol(text, &end, 10);
        if (!*end && value >= -PRIORITY_MAX && value <= PRIORITY_MAX)
            program->policy.priority = (int32_t)value;
    }
}

void program_take_policy(struct program *program, const msgpack_object *map)
{
    struct program_policy *policy = &program->policy;
    const uint64_t all = (1u << POLICY_WAYS) - 1;

    /* An older agent stored no overrides: treat its values as set by a command. */
    policy->overrides = (unsigned)(field_u64(map, "said", OVERRIDE_ALL) & OVERRIDE_ALL);
    program_policy_take_priority(program, map);
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
               {"cap_mw", OVERRIDE_CAP},        {"protect", OVERRIDE_PROTECT}};

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

void program_put_queued(const struct agent *agent, const struct program *program,
                        struct frame *frame)
{
    frame_array(frame, "queued_ms");
    for (size_t i = 0; i < program->vdev_count; i++)
        frame_u64(frame, NULL, program->vdevs[i].queued_ms);
    frame_end(frame);
    frame_array(frame, "only");
    for (size_t i = 0; i < program->vdev_count; i++) {
        uint32_t only = program->vdevs[i].only;
        frame_string(frame, NULL, only == LEDGER_NONE ? "" : agent->ledger.devices[only].name);
    }
    frame_end(frame);
}

void program_take_queued(struct agent *agent, struct program *program, const msgpack_object *map)
{
    const msgpack_object *items, *times, *names;
    size_t timed = field_array(map, "queued_ms", &times), named = field_array(map, "only", &names);
    size_t count = field_array(map, "displaced", &items);
    uint64_t now = uv_now(&agent->loop);
    char name[PROTOCOL_WORD_MAX];

    for (size_t i = 0; i < count && i < PROTOCOL_VDEVS_MAX; i++) {
        bool is = items[i].type == MSGPACK_OBJECT_POSITIVE_INTEGER && items[i].via.u64 > 0;
        program->vdevs[i].displaced = is;
        program->vdevs[i].ticket = is ? items[i].via.u64 : 0;
    }
    count = field_array(map, "chosen", &items);
    for (size_t i = 0; i < count && i < PROTOCOL_VDEVS_MAX; i++)
        program->vdevs[i].chosen = items[i].type == MSGPACK_OBJECT_BOOLEAN && items[i].via.boolean;
    for (size_t i = 0; i < program->vdev_count; i++) {
        struct program_device *vdev = &program->vdevs[i];
        /* Agents share one clock as long as the machine is not restarted. */
        vdev->queued_ms = now;
        if (i < timed && times[i].type == MSGPACK_OBJECT_POSITIVE_INTEGER && times[i].via.u64 < now)
            vdev->queued_ms = times[i].via.u64;
        if (i < named && object_string(&names[i], name, sizeof(name)) && name[0] &&
            ledger_device(&agent->ledger, name, &vdev->only))
            vdev->only = LEDGER_NONE;
        if (vdev->ticket > agent->tickets)
            agent->tickets = vdev->ticket;
    }
}
