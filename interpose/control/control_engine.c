#include "interpose/control/control_priv.h"

#include <errno.h>
#include <string.h>

#include "agent/protocol/common_messages.h"
#include "agent/protocol/program_messages.h"
#include "interpose/aware/aware.h"
#include "state/base/log.h"
#include "state/base/memory/pages.h"
#include "state/command/place.h"
#include "state/driver/device_key.h"
#include "state/image/lease_renewer.h"
#include "state/move/elastic.h"

void control_take_warm(const msgpack_object *map)
{
    pages_set_limit(field_u64(map, "bytes", 0));
}

void control_take_spread(const msgpack_object *map)
{
    struct device_key keys[ELASTIC_MAX];
    char text[DEVICE_KEY_TEXT_MAX];
    const msgpack_object *items;
    size_t count = field_array(map, "devices", &items), good = 0;

    _Static_assert(PROTOCOL_SPREAD_MAX == ELASTIC_MAX, "one number of devices");
    for (size_t i = 0; i < count && good < ELASTIC_MAX; i++)
        good +=
            object_string(&items[i], text, sizeof(text)) && !device_key_parse(text, &keys[good]);
    int error = elastic_set(keys, good);
    if (error)
        log_warn("launches are done on one device alone: %s",
                 error == -ENOTSUP ? "they are not given in pieces" : strerror(-error));
}

void control_take_costs(const msgpack_object *map)
{
    const msgpack_object *items;
    size_t count = field_array(map, "powers", &items);

    place_set_idle(field_u64(map, "idle_mw", 0));
    for (size_t i = 0; i < count && i < PROTOCOL_POWERS_MAX; i++) {
        struct place_power power = {.has_device = false};
        take_drawn(&items[i], &power);
        if (power.has_device && power.id[0])
            place_learn_power(&power);
    }
}

void control_take_notice(const msgpack_object *map)
{
    static const char *const whats[] = {[RESEAT_DEVICE_ADDED] = NOTICE_ADDED,
                                        [RESEAT_DEVICE_TAKEN] = NOTICE_TAKEN,
                                        [RESEAT_POWER] = NOTICE_POWER,
                                        [RESEAT_QUOTA] = NOTICE_QUOTA};
    struct program_notice notice;

    take_notice(map, &notice);
    if (notice.vdev >= PROTOCOL_VDEVS_MAX)
        notice.vdev = UINT32_MAX;
    for (uint32_t i = RESEAT_DEVICE_ADDED; i < ARRAY_SIZE(whats); i++)
        if (strcmp(notice.what, whats[i]) == 0)
            aware_notice(i, notice.vdev, notice.in_ns, notice.value, notice.text);
}

void control_follow_lease(const struct control_lease *lease)
{
    if (lease->folder[0] != '/' || !lease->id[0])
        return;
    int error = lease_renewer_follow(lease->folder, lease->id);
    if (error)
        log_warn("the right to run, of the images in %s: %s", lease->folder, strerror(-error));
}
