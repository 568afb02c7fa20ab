#include "state/base/bytes/schema.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/bytes/msgcheck.h"
#include "state/base/bytes/text.h"

static void *schema_at(const void *body, size_t offset)
{
    return (char *)(uintptr_t)body + offset;
}

static uint64_t schema_get(const void *member, size_t width)
{
    return width == sizeof(uint32_t) ? *(const uint32_t *)member : *(const uint64_t *)member;
}

static void schema_set(void *member, size_t width, uint64_t value)
{
    if (width == sizeof(uint32_t))
        *(uint32_t *)member = (uint32_t)value;
    else
        *(uint64_t *)member = value;
}

static char *schema_pointer(const void *body, const struct schema_field *field)
{
    return *(char **)schema_at(body, field->offset);
}

uint64_t schema_number(const struct schema_field *field, const void *body)
{
    if (field->kind == SCHEMA_IS_NUMBER)
        return schema_get(schema_at(body, field->offset), field->width);
    return field->count_width ? schema_get(schema_at(body, field->count_offset), field->count_width)
                              : 0;
}

const char *schema_text(const struct schema_field *field, const void *body)
{
    return schema_pointer(body, field);
}

static size_t schema_field_count(const struct schema *schema)
{
    size_t count = 0;
    while (schema->fields[count].key)
        count++;
    return count;
}

/* ---- writing ---- */

static int schema_put_text(msgpack_packer *packer, const char *text, size_t length)
{
    int error = msgpack_pack_str(packer, length);
    return error ? error : msgpack_pack_str_body(packer, text, length);
}

static int schema_put_member(msgpack_packer *packer, const struct schema_field *field,
                             const void *body)
{
    bool points = field->kind != SCHEMA_IS_NUMBER && field->kind != SCHEMA_IS_CHARS;
    const char *pointer = points ? schema_pointer(body, field) : NULL;
    uint64_t number = schema_number(field, body);
    char safe[SCHEMA_TEXT_MAX + 1] = "";
    int error = 0;
    switch (field->kind) {
    case SCHEMA_IS_NUMBER:
        return msgpack_pack_uint64(packer, number);
    case SCHEMA_IS_CHARS:
        return schema_put_text(packer, schema_at(body, field->offset),
                               strnlen(schema_at(body, field->offset), field->width));
    case SCHEMA_IS_TEXT:
        if (pointer)
            text_make_safe(safe, sizeof(safe), pointer, strlen(pointer));
        return schema_put_text(packer, safe, strlen(safe));
    case SCHEMA_IS_BYTES:
        error = msgpack_pack_bin(packer, number * field->width);
        return error || !number ? error
                                : msgpack_pack_bin_body(packer, pointer, number * field->width);
    case SCHEMA_IS_LIST:
        error = msgpack_pack_array(packer, number);
        for (uint64_t i = 0; !error && i < number; i++)
            error = schema_put(packer, field->of, pointer + i * field->width, false);
    }
    return error;
}

int schema_put(msgpack_packer *packer, const struct schema *schema, const void *body, bool keys)
{
    size_t count = schema_field_count(schema);
    int error = keys ? msgpack_pack_map(packer, count) : msgpack_pack_array(packer, count);
    for (size_t i = 0; !error && i < count; i++) {
        const struct schema_field *field = &schema->fields[i];
        if (keys)
            error = schema_put_text(packer, field->key, strlen(field->key));
        if (!error)
            error = schema_put_member(packer, field, body);
    }
    return error ? -ENOMEM : 0;
}

/* ---- reading ---- */

static int schema_refuse(struct schema_problem *ret_problem, const char *key, const char *what)
{
    *ret_problem = (struct schema_problem){key, what};
    return what ? -EBADMSG : -ENOMEM;
}

/* A copy with a NUL behind it, in place of a NULL pointer of @body. */
static int schema_copy(const struct schema_field *field, const char *bytes, size_t size, void *body,
                       struct schema_problem *ret_problem)
{
    char *kept = malloc(size + 1);
    if (!kept)
        return schema_refuse(ret_problem, field->key, NULL);
    if (size) /* the unpacker may give NULL for what is empty */
        memcpy(kept, bytes, size);
    kept[size] = '\0';
    memcpy(schema_at(body, field->offset), &kept, sizeof(kept));
    return 0;
}

static int schema_take_text(const struct schema_field *field, const msgpack_object *value,
                            void *body, struct schema_problem *ret_problem)
{
    const msgpack_object_str *text = &value->via.str;
    if (value->type != MSGPACK_OBJECT_STR)
        return schema_refuse(ret_problem, field->key, "it is no text");
    if (text->size > field->most || !text_is_safe(text->ptr, text->size))
        return schema_refuse(ret_problem, field->key,
                             "the text is too long, or has more than text in it");
    if (field->kind == SCHEMA_IS_TEXT)
        return schema_copy(field, text->ptr, text->size, body, ret_problem);
    if (text->size)
        memcpy(schema_at(body, field->offset), text->ptr, text->size);
    return 0;
}

static int schema_take_bytes(const struct schema_field *field, const msgpack_object *value,
                             void *body, struct schema_problem *ret_problem)
{
    const msgpack_object_bin *bytes = &value->via.bin;
    if (value->type != MSGPACK_OBJECT_BIN)
        return schema_refuse(ret_problem, field->key, "it is no bytes");
    if (bytes->size % field->width || bytes->size / field->width > field->most)
        return schema_refuse(ret_problem, field->key, "there are too many bytes");
    int error = schema_copy(field, bytes->ptr, bytes->size, body, ret_problem);
    if (!error)
        schema_set(schema_at(body, field->count_offset), field->count_width,
                   bytes->size / field->width);
    return error;
}

static int schema_take_list(const struct schema_field *field, const msgpack_object *value,
                            void *body, struct schema_problem *ret_problem)
{
    const msgpack_object_array *array = &value->via.array;
    int error = 0;
    if (value->type != MSGPACK_OBJECT_ARRAY || array->size > field->most)
        return schema_refuse(ret_problem, field->key, "it is no list, or too long");
    char *list = calloc((size_t)array->size + 1, field->width);
    if (!list)
        return schema_refuse(ret_problem, field->key, NULL);
    memcpy(schema_at(body, field->offset), &list, sizeof(list));
    for (uint32_t i = 0; !error && i < array->size; i++) {
        schema_set(schema_at(body, field->count_offset), field->count_width, i + 1);
        error = schema_take(&array->ptr[i], field->of, list + i * field->width, false, ret_problem);
    }
    return error;
}

static int schema_take_member(const struct schema_field *field, const msgpack_object *value,
                              void *body, struct schema_problem *ret_problem)
{
    switch (field->kind) {
    case SCHEMA_IS_CHARS:
    case SCHEMA_IS_TEXT:
        return schema_take_text(field, value, body, ret_problem);
    case SCHEMA_IS_BYTES:
        return schema_take_bytes(field, value, body, ret_problem);
    case SCHEMA_IS_LIST:
        return schema_take_list(field, value, body, ret_problem);
    case SCHEMA_IS_NUMBER:
        break;
    }
    if (value->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        return schema_refuse(ret_problem, field->key, "it is no number");
    if (value->via.u64 > field->most)
        return schema_refuse(ret_problem, field->key, "the number is too large");
    schema_set(schema_at(body, field->offset), field->width, value->via.u64);
    return 0;
}

bool schema_is_text(const msgpack_object *object, const char *text)
{
    return object->type == MSGPACK_OBJECT_STR && object->via.str.size == strlen(text) &&
           memcmp(object->via.str.ptr, text, object->via.str.size) == 0;
}

/* NULL: it is not there, or twice. */
static const msgpack_object *schema_find(const msgpack_object_map *map, const char *key)
{
    const msgpack_object *found = NULL;
    for (uint32_t i = 0; i < map->size; i++) {
        if (!schema_is_text(&map->ptr[i].key, key))
            continue;
        if (found)
            return NULL;
        found = &map->ptr[i].val;
    }
    return found;
}

int schema_take(const msgpack_object *object, const struct schema *schema, void *body, bool keys,
                struct schema_problem *ret_problem)
{
    size_t count = schema_field_count(schema);
    if (object->type != (keys ? MSGPACK_OBJECT_MAP : MSGPACK_OBJECT_ARRAY))
        return schema_refuse(ret_problem, NULL, "it has no fields");
    for (size_t i = 0; i < count; i++) {
        const struct schema_field *field = &schema->fields[i];
        const msgpack_object *value = keys ? schema_find(&object->via.map, field->key)
                                      : i < object->via.array.size ? &object->via.array.ptr[i]
                                                                   : NULL;
        int error = value ? schema_take_member(field, value, body, ret_problem)
                          : schema_refuse(ret_problem, field->key, "it is missing, or there twice");
        if (error)
            return error;
    }
    if ((keys ? object->via.map.size : object->via.array.size) != count)
        return schema_refuse(ret_problem, NULL, "it has a field that is not known");
    const char *what = schema->check ? schema->check(body) : NULL;
    return what ? schema_refuse(ret_problem, NULL, what) : 0;
}

int schema_unpack(const void *bytes, size_t size, unsigned depth, msgpack_unpacked *ret_unpacked)
{
    size_t offset = 0;
    msgpack_unpacked_init(ret_unpacked);
    if (msgcheck(bytes, size, depth) != 0)
        return -EBADMSG;
    switch (msgpack_unpack_next(ret_unpacked, bytes, size, &offset)) {
    case MSGPACK_UNPACK_SUCCESS:
        return 0;
    case MSGPACK_UNPACK_NOMEM_ERROR:
        return -ENOMEM;
    default:
        return -EBADMSG;
    }
}

void schema_finish(const struct schema *schema, void *body)
{
    for (const struct schema_field *field = schema->fields; field->key; field++) {
        if (field->kind == SCHEMA_IS_NUMBER || field->kind == SCHEMA_IS_CHARS)
            continue;
        char *pointer = schema_pointer(body, field);
        for (uint64_t i = 0; field->kind == SCHEMA_IS_LIST && i < schema_number(field, body); i++)
            schema_finish(field->of, pointer + i * field->width);
        free(pointer);
    }
}
