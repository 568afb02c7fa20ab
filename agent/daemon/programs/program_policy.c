#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/daemon/programs/registry.h"

/* How a program is treated: what `reseat run` and `reseat limit` said, kept for the next agent. */

#define PRIORITY_MAX 1000

void app_put_policy(const struct app *app, struct frame *frame)
{
    char priority[16];

    snprintf(priority, sizeof(priority), "%" PRId32, app->policy.priority);
    frame_u64(frame, "said", app->policy.said);
    frame_string(frame, "priority", priority);
    frame_bool(frame, "preemptible", app->policy.preemptible);
    frame_u64(frame, "ways", app->policy.ways);
    frame_u64(frame, "quota", app->policy.quota);
    frame_string(frame, "pinned_to", app->policy.pinned_to);
    frame_array(frame, "displaced");
    for (size_t i = 0; i < app->seat_count; i++) {
        frame_u64(frame, NULL, app->seats[i].displaced ? app->seats[i].ticket : 0);
    }
    frame_end(frame);
    frame_array(frame, "chosen");
    for (size_t i = 0; i < app->seat_count; i++) {
        frame_bool(frame, NULL, app->seats[i].chosen);
    }
    frame_end(frame);
}

/* Negative numbers are not among what frames carry. */
static void take_priority(struct app *app, const msgpack_object *map)
{
    char text[16], *end;

    if (field_string(map, "priority", text, sizeof(text)) && text[0]) {
        long value = strtol(text, &end, 10);
        if (!*end && value >= -PRIORITY_MAX && value <= PRIORITY_MAX) {
            app->policy.priority = (int32_t)value;
        }
    }
}

void app_take_policy(struct app *app, const msgpack_object *map)
{
    struct app_policy *policy = &app->policy;
    const uint64_t all = (1u << POLICY_WAYS) - 1;
    const msgpack_object *items;
    size_t count = field_array(map, "displaced", &items);

    /* What an older agent kept may have been said. */
    policy->said = (unsigned)(field_u64(map, "said", APP_SAID_ALL) & APP_SAID_ALL);
    take_priority(app, map);
    policy->preemptible = field_bool(map, "preemptible", policy->preemptible);
    policy->ways = (unsigned)(field_u64(map, "ways", policy->ways) & all);
    policy->quota = field_u64(map, "quota", policy->quota);
    if (field_get(map, "pinned_to")) {
        field_string(map, "pinned_to", policy->pinned_to, sizeof(policy->pinned_to));
    }
    for (size_t i = 0; i < count && i < PROTOCOL_SEATS_MAX; i++) {
        bool is = items[i].type == MSGPACK_OBJECT_POSITIVE_INTEGER && items[i].via.u64 > 0;
        app->seats[i].displaced = is;
        app->seats[i].ticket = is ? items[i].via.u64 : 0;
    }
    count = field_array(map, "chosen", &items);
    for (size_t i = 0; i < count && i < PROTOCOL_SEATS_MAX; i++) {
        app->seats[i].chosen = items[i].type == MSGPACK_OBJECT_BOOLEAN && items[i].via.boolean;
    }
}

void app_take_said(struct app *app, const msgpack_object *map)
{
    static const struct {
        const char *key;
        enum app_said said;
    } all[] = {{"priority", APP_SAID_PRIORITY},
               {"preemptible", APP_SAID_PREEMPTIBLE},
               {"ways", APP_SAID_WAYS},
               {"quota", APP_SAID_QUOTA}};

    app_take_policy(app, map);
    app->policy.said = 0;
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        app->policy.said |= field_get(map, all[i].key) ? all[i].said : 0;
    }
}

void app_unsay(struct app *app)
{
    app->status = (struct app_status){0};
    for (size_t i = 0; i < PROTOCOL_SEATS_MAX; i++) {
        struct app_seat *seat = &app->seats[i];
        seat->suspended = seat->moving = seat->limited = seat->speaks = false;
        seat->device_bytes = seat->moves = seat->last_downtime_ns = 0;
        seat->wanted = seat->least = seat->granted = seat->peak = seat->spilled = 0;
        seat->busy = 0;
        seat->pinned[0] = '\0';
    }
}

uint64_t app_uses(const struct app *app)
{
    const struct app_status *status = &app->status;

    return (status->contexts * 1000003 + status->programs) * 1000003 + status->kernels;
}
