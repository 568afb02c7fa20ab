#include "agent/protocol/json.h"

#include <stdlib.h>

#include "state/base/bytes/text.h"

json_t *json_text(const char *bytes, size_t size)
{
    char *safe = NULL;
    json_t *string = NULL;

    if (text_is_safe(bytes, size))
        return json_stringn_nocheck(bytes, size); /* It is UTF-8. */
    if ((safe = malloc(size + 1))) {
        text_make_safe(safe, size + 1, bytes, size);
        string = json_string(safe);
    }
    free(safe);
    return string;
}

static json_t *json_of(const msgpack_object *value)
{
    json_t *json;

    switch (value->type) {
    case MSGPACK_OBJECT_BOOLEAN:
        return json_boolean(value->via.boolean);
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        return json_integer((json_int_t)(value->via.u64 & INT64_MAX));
    case MSGPACK_OBJECT_STR:
        return json_text(value->via.str.size ? value->via.str.ptr : "", value->via.str.size);
    case MSGPACK_OBJECT_ARRAY:
        json = json_array();
        for (uint32_t i = 0; i < value->via.array.size; i++)
            json_array_append_new(json, json_of(&value->via.array.ptr[i]));
        return json;
    case MSGPACK_OBJECT_MAP:
        json = json_object();
        for (uint32_t i = 0; i < value->via.map.size; i++) {
            const msgpack_object_kv *pair = &value->via.map.ptr[i];
            char key[PROTOCOL_WORD_MAX];
            if (pair->key.type == MSGPACK_OBJECT_STR && pair->key.via.str.size < sizeof(key)) {
                text_make_safe(key, sizeof(key), pair->key.via.str.ptr, pair->key.via.str.size);
                json_object_set_new_nocheck(json, key, json_of(&pair->val));
            }
        }
        return json;
    default:
        return json_null();
    }
}

json_t *json_message(const struct message *message)
{
    json_t *object = json_of(&message->root);

    json_object_del(object, "type");
    return object;
}
