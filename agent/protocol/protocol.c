#include "agent/protocol/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/bytes/little_endian.h"
#include "state/base/bytes/msgcheck.h"
#include "state/base/bytes/text.h"

#define PREFIX 4

void message_finish(struct message *message)
{
    if (message->zone)
        msgpack_zone_free(message->zone);
    free(message->bytes);
    *message = (struct message){0};
}

static bool protocol_keys_are_strings(const msgpack_object *map)
{
    for (uint32_t i = 0; i < map->via.map.size; i++)
        if (map->via.map.ptr[i].key.type != MSGPACK_OBJECT_STR)
            return false;
    return true;
}

int message_decode(const uint8_t *bytes, size_t size, struct message *ret_message)
{
    if (size == 0 || size > PROTOCOL_FRAME_MAX || msgcheck(bytes, size, PROTOCOL_DEPTH_MAX))
        return -EPROTO;
    uint8_t *copy = malloc(size);
    msgpack_unpacked unpacked;
    size_t offset = 0;
    if (!copy)
        return -ENOMEM;
    memcpy(copy, bytes, size);
    msgpack_unpacked_init(&unpacked);
    msgpack_unpack_return result =
        msgpack_unpack_next(&unpacked, (const char *)copy, size, &offset);
    if (result != MSGPACK_UNPACK_SUCCESS || offset != size ||
        unpacked.data.type != MSGPACK_OBJECT_MAP || !protocol_keys_are_strings(&unpacked.data)) {
        msgpack_unpacked_destroy(&unpacked);
        free(copy);
        return result == MSGPACK_UNPACK_NOMEM_ERROR ? -ENOMEM : -EPROTO;
    }
    ret_message->bytes = copy;
    ret_message->root = unpacked.data;
    ret_message->zone = msgpack_unpacked_release_zone(&unpacked);
    return 0;
}

void frame_reader_init(struct frame_reader *reader)
{
    *reader = (struct frame_reader){0};
}

void frame_reader_finish(struct frame_reader *reader)
{
    free(reader->bytes);
    *reader = (struct frame_reader){0};
}

int frame_reader_feed(struct frame_reader *reader, const void *bytes, size_t count)
{
    if (reader->start) {
        memmove(reader->bytes, reader->bytes + reader->start, reader->used - reader->start);
        reader->used -= reader->start;
        reader->start = 0;
    }
    if (count > SIZE_MAX - reader->used)
        return -ENOMEM;
    size_t need = reader->used + count;
    if (need > reader->size) {
        size_t size = reader->size ? reader->size : 4096;
        while (size < need)
            size += size / 2;
        uint8_t *grown = realloc(reader->bytes, size);
        if (!grown)
            return -ENOMEM;
        reader->bytes = grown;
        reader->size = size;
    }
    if (count)
        memcpy(reader->bytes + reader->used, bytes, count);
    reader->used = need;
    return 0;
}

int frame_reader_next(struct frame_reader *reader, struct message *ret_message)
{
    size_t available = reader->used - reader->start;

    if (available < PREFIX)
        return 0;
    const uint8_t *at = reader->bytes + reader->start;
    uint64_t length = little_endian_get(at, PREFIX);
    if (length > PROTOCOL_FRAME_MAX)
        return -EMSGSIZE;
    if (available - PREFIX < length)
        return 0;
    int error = message_decode(at + PREFIX, length, ret_message);
    if (error == -ENOMEM)
        return error;
    reader->start += PREFIX + length;
    return error ? error : 1;
}

/** The unpacker may give NULL for an empty string. */
static bool protocol_string_is(const msgpack_object *object, const char *value)
{
    size_t length = strlen(value);

    return object->type == MSGPACK_OBJECT_STR && object->via.str.size == length &&
           (length == 0 || memcmp(object->via.str.ptr, value, length) == 0);
}

const msgpack_object *field_get(const msgpack_object *map, const char *key)
{
    if (!map || map->type != MSGPACK_OBJECT_MAP)
        return NULL;
    for (uint32_t i = 0; i < map->via.map.size; i++) {
        const msgpack_object_kv *pair = &map->via.map.ptr[i];
        if (protocol_string_is(&pair->key, key))
            return &pair->val;
    }
    return NULL;
}

uint64_t field_u64(const msgpack_object *map, const char *key, uint64_t fallback)
{
    const msgpack_object *value = field_get(map, key);

    return value && value->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? value->via.u64 : fallback;
}

bool field_bool(const msgpack_object *map, const char *key, bool fallback)
{
    const msgpack_object *value = field_get(map, key);

    return value && value->type == MSGPACK_OBJECT_BOOLEAN ? value->via.boolean : fallback;
}

bool field_is(const msgpack_object *map, const char *key, const char *value)
{
    const msgpack_object *field = field_get(map, key);

    return field && protocol_string_is(field, value);
}

bool field_string(const msgpack_object *map, const char *key, char *ret, size_t size)
{
    return object_string(field_get(map, key), ret, size);
}

static bool protocol_copy(const msgpack_object *field, bool shown, char *ret, size_t size)
{
    ret[0] = '\0';
    if (!field || field->type != MSGPACK_OBJECT_STR || field->via.str.size >= size)
        return false;
    size_t length = field->via.str.size;
    const char *text = length ? field->via.str.ptr : "";
    if (shown ? !text_is_safe(text, length) : memchr(text, '\0', length) != NULL)
        return false;
    memcpy(ret, text, length);
    ret[length] = '\0';
    return true;
}

bool object_string(const msgpack_object *field, char *ret, size_t size)
{
    return protocol_copy(field, true, ret, size);
}

bool field_path(const msgpack_object *map, const char *key, char *ret, size_t size)
{
    return protocol_copy(field_get(map, key), false, ret, size);
}

bool field_text(const msgpack_object *map, const char *key, char *ret, size_t size)
{
    const msgpack_object *field = field_get(map, key);
    bool is = field && field->type == MSGPACK_OBJECT_STR;

    text_make_safe(ret, size, is && field->via.str.size ? field->via.str.ptr : "",
                   is ? field->via.str.size : 0);
    return is;
}

size_t field_array(const msgpack_object *map, const char *key, const msgpack_object **ret_items)
{
    const msgpack_object *field = field_get(map, key);

    *ret_items = NULL;
    if (!field || field->type != MSGPACK_OBJECT_ARRAY)
        return 0;
    *ret_items = field->via.array.ptr;
    return field->via.array.size;
}

static void protocol_check(struct frame *frame, int result)
{
    if (result && !frame->error)
        frame->error = -ENOMEM;
}

static void protocol_put_bytes(struct frame *frame, const char *bytes, size_t size)
{
    protocol_check(frame, msgpack_sbuffer_write(&frame->buffer, bytes, size));
}

static void protocol_put_string(struct frame *frame, const char *value)
{
    size_t length = strlen(value);

    if (length > PROTOCOL_FRAME_MAX) {
        frame->error = frame->error ? frame->error : -EMSGSIZE;
        return;
    }
    protocol_check(frame, msgpack_pack_str(&frame->packer, length));
    protocol_check(frame, msgpack_pack_str_body(&frame->packer, value, length));
}

bool frame_fields_take(const msgpack_object *map, struct frame_fields *ret_fields)
{
    const msgpack_object *items;
    size_t count = field_array(map, "fields", &items);

    *ret_fields = (struct frame_fields){.count = count};
    for (size_t i = 0; i < count && count <= FRAME_FIELDS_MAX; i++) {
        char *name = ret_fields->names[i];
        if (!object_string(&items[i], name, sizeof(ret_fields->names[i])) || !name[0])
            return false;
        ret_fields->begins[name[0] & 31] |= 1ull << i;
    }
    return count <= FRAME_FIELDS_MAX;
}

/** True when the field of a map is asked for. @ret_next: what is asked for of its value. */
static bool protocol_is_wanted(const struct frame_fields *fields, const struct frame_level *map,
                               const char *key, struct frame_level *ret_next)
{
    uint64_t bits = map->wanted & (map->from ? UINT64_MAX : fields->begins[key[0] & 31]);
    size_t length = strlen(key);
    struct frame_level next = {.some = true, .from = map->from + length + 1};

    for (; bits; bits &= bits - 1) {
        unsigned i = (unsigned)__builtin_ctzll(bits);
        const char *name = fields->names[i] + map->from;
        if (strncmp(name, key, length) != 0 || (name[length] && name[length] != '.'))
            continue;
        next.some = next.some && name[length];
        next.wanted |= 1ull << i;
    }
    *ret_next = next;
    return next.wanted != 0;
}

/** Count the next value and write its key. False: neither of them is to be written. */
static bool protocol_put_key(struct frame *frame, const char *key)
{
    if (frame->skipped)
        return false;
    if (!frame->depth || frame->open[frame->depth - 1].map != (key != NULL)) {
        frame->error = frame->error ? frame->error : -EINVAL;
        return true;
    }
    struct frame_level *level = &frame->open[frame->depth - 1];
    frame->next = *level; /* Of the elements of an array the same is asked for. */
    if (key && level->some && !protocol_is_wanted(frame->fields, level, key, &frame->next))
        return false;
    level->count++;
    if (key)
        protocol_put_string(frame, key);
    return true;
}

/** A map or array of the widest form, so that its count can be set when it ends. */
static void protocol_put_open(struct frame *frame, bool map)
{
    const char header[5] = {map ? (char)0xdf : (char)0xdd};

    if (frame->depth == PROTOCOL_DEPTH_MAX) {
        frame->error = frame->error ? frame->error : -EINVAL;
        return;
    }
    struct frame_level *level = &frame->open[frame->depth++];
    *level = frame->next;
    level->header = frame->buffer.size;
    level->count = 0;
    level->map = map;
    protocol_put_bytes(frame, header, sizeof(header));
}

/** The same with its key before it, or neither. */
static void protocol_put_keyed(struct frame *frame, const char *key, bool map)
{
    if (protocol_put_key(frame, key))
        protocol_put_open(frame, map);
    else
        frame->skipped++;
}

static void protocol_put_close(struct frame *frame)
{
    if (!frame->depth || frame->error) {
        frame->error = frame->error ? frame->error : -EINVAL;
        return;
    }
    frame->depth--;
    char *count = frame->buffer.data + frame->open[frame->depth].header + 1;
    for (int i = 0; i < 4; i++)
        count[i] = (char)(frame->open[frame->depth].count >> (24 - 8 * i));
}

void frame_init(struct frame *frame, const char *type)
{
    const char prefix[PREFIX] = {0};

    *frame = (struct frame){0};
    msgpack_sbuffer_init(&frame->buffer);
    msgpack_packer_init(&frame->packer, &frame->buffer, msgpack_sbuffer_write);
    protocol_put_bytes(frame, prefix, sizeof(prefix));
    protocol_put_open(frame, true);
    frame_string(frame, "type", type);
}

void frame_finish(struct frame *frame)
{
    msgpack_sbuffer_destroy(&frame->buffer);
    *frame = (struct frame){0};
}

void frame_u64(struct frame *frame, const char *key, uint64_t value)
{
    if (protocol_put_key(frame, key))
        protocol_check(frame, msgpack_pack_uint64(&frame->packer, value));
}

void frame_bool(struct frame *frame, const char *key, bool value)
{
    if (protocol_put_key(frame, key))
        protocol_check(frame, value ? msgpack_pack_true(&frame->packer)
                                    : msgpack_pack_false(&frame->packer));
}

void frame_string(struct frame *frame, const char *key, const char *value)
{
    if (protocol_put_key(frame, key))
        protocol_put_string(frame, value);
}

void frame_map(struct frame *frame, const char *key)
{
    protocol_put_keyed(frame, key, true);
}

void frame_array(struct frame *frame, const char *key)
{
    protocol_put_keyed(frame, key, false);
}

void frame_only(struct frame *frame, const struct frame_fields *fields)
{
    if (!fields->count || !frame->depth)
        return;
    struct frame_level *level = &frame->open[frame->depth - 1];
    frame->fields = fields;
    level->some = true;
    level->from = 0;
    level->wanted = UINT64_MAX;
}

void frame_end(struct frame *frame)
{
    if (frame->skipped) {
        frame->skipped--;
        return;
    }
    if (frame->depth < 2) {
        frame->error = frame->error ? frame->error : -EINVAL;
        return;
    }
    protocol_put_close(frame);
}

void frame_object(struct frame *frame, const char *key, const msgpack_object *value)
{
    if (protocol_put_key(frame, key))
        protocol_check(frame, msgpack_pack_object(&frame->packer, *value));
}

void frame_packed(struct frame *frame, const char *key, const void *bytes, size_t size)
{
    if (protocol_put_key(frame, key))
        protocol_check(frame, msgpack_sbuffer_write(&frame->buffer, bytes, size));
}

void frame_forward(struct frame *frame, const msgpack_object *map, const char *const *keys,
                   size_t count)
{
    char text[PROTOCOL_TEXT_MAX];

    for (size_t i = 0; i < count; i++) {
        const msgpack_object *value = field_get(map, keys[i]);
        if (value && (value->type == MSGPACK_OBJECT_POSITIVE_INTEGER ||
                      value->type == MSGPACK_OBJECT_BOOLEAN))
            frame_object(frame, keys[i], value);
        else if (field_text(map, keys[i], text, sizeof(text)))
            frame_string(frame, keys[i], text);
    }
}

int frame_seal(struct frame *frame)
{
    if (!frame->error && (frame->depth != 1 || frame->skipped))
        frame->error = -EINVAL;
    if (frame->error)
        return frame->error;
    protocol_put_close(frame);
    size_t length = frame->buffer.size - PREFIX;
    if (length > PROTOCOL_FRAME_MAX) {
        frame->error = -EMSGSIZE;
        return frame->error;
    }
    little_endian_put((unsigned char *)frame->buffer.data, length, PREFIX);
    return 0;
}
