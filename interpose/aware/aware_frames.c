#include "interpose/aware/aware_frames.h"

static void put_limits(struct frame *frame, const char *key, const struct reseat_limits *limits)
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

void aware_put_wish(struct frame *frame, const struct aware_wish *wish)
{
    if (!wish->registered)
        return;
    frame_map(frame, "aware");
    put_limits(frame, "minimum", &wish->minimum);
    put_limits(frame, "preferred", &wish->preferred);
    frame_end(frame);
}

void aware_take_notice(const msgpack_object *map)
{
    static const struct {
        const char *word;
        uint32_t what;
    } whats[] = {
        {NOTICE_ADDED, RESEAT_DEVICE_ADDED},
        {NOTICE_TAKEN, RESEAT_DEVICE_TAKEN},
        {NOTICE_POWER, RESEAT_POWER},
        {NOTICE_QUOTA, RESEAT_QUOTA},
    };
    char text[PROTOCOL_TEXT_MAX];
    uint64_t seat = field_u64(map, "seat", UINT32_MAX);

    (void)field_text(map, "text", text, sizeof(text));
    for (size_t i = 0; i < sizeof(whats) / sizeof(whats[0]); i++) {
        if (field_is(map, "what", whats[i].word)) {
            aware_notice(whats[i].what, seat < PROTOCOL_SEATS_MAX ? (uint32_t)seat : UINT32_MAX,
                         field_u64(map, "in_ns", 0), field_u64(map, "value", 0), text);
        }
    }
}
