#include "agent/protocol/message.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/protocol/request.h"
#include "state/base/bytes/text.h"

const char *const request_verbs[REQUEST_VERBS] = {
    [REQUEST_MOVE] = MSG_MOVE,
    [REQUEST_SUSPEND] = MSG_SUSPEND,
    [REQUEST_RESUME] = MSG_RESUME,
    [REQUEST_PREWARM] = MSG_PREWARM,
    [REQUEST_CHECKPOINT] = MSG_CHECKPOINT,
    [REQUEST_PROTECT] = MSG_PROTECT,
    [REQUEST_TRACE] = MSG_TRACE,
    [REQUEST_DRAIN] = MSG_DRAIN,
    [REQUEST_BALANCE] = MSG_BALANCE,
    [REQUEST_WAIT] = MSG_WAIT,
};

enum request_verb request_verb(const msgpack_object *map)
{
    enum request_verb verb = 0;

    while (verb < REQUEST_VERBS && !field_is(map, "type", request_verbs[verb]))
        verb++;
    return verb;
}

void message_put_text(struct frame *frame, const char *key, const char *text)
{
    char safe[PROTOCOL_TEXT_MAX];

    text_make_safe(safe, sizeof(safe), text ? text : "", text ? strlen(text) : 0);
    frame_string(frame, key, safe);
}

void message_put_device(struct frame *frame, const char *key, const struct device_key *device)
{
    char text[DEVICE_KEY_TEXT_MAX] = "";

    if (device->icd[0])
        device_key_format(device, text);
    frame_string(frame, key, text);
}

void message_put_protection(struct frame *frame, const char *key,
                            const struct protection *protection)
{
    char text[PROTECTION_TEXT_MAX];

    protection_format(protection, text);
    frame_string(frame, key, text);
}

void message_put_signed(struct frame *frame, const char *key, int64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, value);
    frame_string(frame, key, text);
}

uint64_t message_number(const msgpack_object *map, const char *key, uint64_t most)
{
    uint64_t value = field_u64(map, key, 0);

    return value < most ? value : most;
}

int32_t message_signed(const msgpack_object *map, const char *key)
{
    char text[24], *end = text;

    long long value =
        field_string(map, key, text, sizeof(text)) && text[0] ? strtoll(text, &end, 10) : 0;
    return *end || value < INT32_MIN || value > INT32_MAX ? 0 : (int32_t)value;
}

uint32_t message_vdev(const msgpack_object *map, const char *key)
{
    uint64_t value = field_u64(map, key, UINT32_MAX);

    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

unsigned message_word(const msgpack_object *map, const char *key, const char *const *words,
                      size_t count)
{
    unsigned at = 0;

    while (at < count && !field_is(map, key, words[at]))
        at++;
    return at < count ? at : 0;
}

bool message_take_device(const msgpack_object *map, const char *key, struct device_key *ret_device)
{
    const msgpack_object *field = field_get(map, key);

    return field && message_item_device(field, ret_device);
}

void message_take_protection(const msgpack_object *map, const char *key,
                             struct protection *ret_protection)
{
    char text[PROTECTION_TEXT_MAX], reason[128];

    if (!field_string(map, key, text, sizeof(text)) ||
        protection_parse(text, ret_protection, reason, sizeof(reason)))
        *ret_protection = (struct protection){.word = PROTECTION_UNSAID};
}

bool message_is_number(const msgpack_object *map, const char *key)
{
    const msgpack_object *field = field_get(map, key);

    return field && field->type == MSGPACK_OBJECT_POSITIVE_INTEGER;
}

bool message_is_map(const msgpack_object *map, const char *key)
{
    const msgpack_object *field = field_get(map, key);

    return field && field->type == MSGPACK_OBJECT_MAP;
}

size_t message_items(const msgpack_object *map, const char *key, const msgpack_object **ret_items,
                     size_t most)
{
    size_t count = field_array(map, key, ret_items);

    return count < most ? count : most;
}

bool message_item_u64(const msgpack_object *item, uint64_t *ret_value)
{
    bool is = item->type == MSGPACK_OBJECT_POSITIVE_INTEGER;

    *ret_value = is ? item->via.u64 : 0;
    return is;
}

void message_item_bool(const msgpack_object *item, bool *ret_value)
{
    *ret_value = item->type == MSGPACK_OBJECT_BOOLEAN && item->via.boolean;
}

bool message_item_device(const msgpack_object *item, struct device_key *ret_device)
{
    char text[DEVICE_KEY_TEXT_MAX];

    return object_string(item, text, sizeof(text)) && text[0] &&
           !device_key_parse(text, ret_device);
}
