#include "state/image/image_record.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/bytes/msgcheck.h"
#include "state/base/bytes/text.h"

/* A record is an array: its type's name, its version, and a map of its fields. */
#define DEPTH 2

/* Of a text, bytes without the NUL. */
#define TEXT_MOST 1023
/* Of a list of properties. */
#define LIST_MOST 4096

enum field_kind { NUMBER, TEXT, BLOB };

struct field {
    const char *key; /* NULL: the rows end */
    enum field_kind kind;
    size_t offset;
    uint64_t most; /* a number, or of bytes */
};

struct record_type {
    const char *name;
    uint32_t version;
    size_t size;
    const struct field *fields;
    const char *(*check)(const void *body); /* what is wrong as a whole, or NULL; may be NULL */
    void (*describe)(const void *body, image_say *say, void *data); /* NULL: field by field */
};

#define ROW(type, member, kind, most)                                                              \
    {                                                                                              \
#member, kind, offsetof(struct type, member), most                                         \
    }

static const struct field about_fields[] = {
    ROW(image_about, created_ms, NUMBER, UINT64_MAX >> 1),
    ROW(image_about, program, TEXT, TEXT_MOST),
    ROW(image_about, pid, NUMBER, INT32_MAX),
    ROW(image_about, host, TEXT, TEXT_MOST),
    ROW(image_about, release, TEXT, TEXT_MOST),
    ROW(image_about, reason, TEXT, TEXT_MOST),
    {NULL},
};

static const struct field context_fields[] = {
    ROW(image_context, id, NUMBER, UINT64_MAX),
    ROW(image_context, vdevs, NUMBER, UINT32_MAX),
    ROW(image_context, properties, BLOB, LIST_MOST),
    {NULL},
};

static const struct field queue_fields[] = {
    ROW(image_queue, id, NUMBER, UINT64_MAX),   ROW(image_queue, context, NUMBER, UINT64_MAX),
    ROW(image_queue, vdev, NUMBER, UINT32_MAX), ROW(image_queue, properties, NUMBER, UINT64_MAX),
    ROW(image_queue, list, BLOB, LIST_MOST),    {NULL},
};

static const struct field program_fields[] = {
    ROW(image_program, id, NUMBER, UINT64_MAX),    ROW(image_program, context, NUMBER, UINT64_MAX),
    ROW(image_program, vdevs, NUMBER, UINT32_MAX), ROW(image_program, base, BLOB, UINT32_MAX),
    ROW(image_program, built, BLOB, UINT32_MAX),   {NULL},
};

static const struct field kernel_fields[] = {
    ROW(image_kernel, id, NUMBER, UINT64_MAX),
    ROW(image_kernel, context, NUMBER, UINT64_MAX),
    ROW(image_kernel, program, NUMBER, UINT64_MAX),
    ROW(image_kernel, name, TEXT, TEXT_MOST),
    ROW(image_kernel, arguments, NUMBER, UINT32_MAX),
    {NULL},
};

static const struct field argument_fields[] = {
    ROW(image_argument, kernel, NUMBER, UINT64_MAX),
    ROW(image_argument, index, NUMBER, UINT32_MAX),
    ROW(image_argument, kind, NUMBER, UINT8_MAX),
    ROW(image_argument, size, NUMBER, UINT32_MAX),
    ROW(image_argument, object, NUMBER, UINT64_MAX),
    ROW(image_argument, value, BLOB, UINT32_MAX),
    {NULL},
};

static const struct field sampler_fields[] = {
    ROW(image_sampler, id, NUMBER, UINT64_MAX),
    ROW(image_sampler, context, NUMBER, UINT64_MAX),
    ROW(image_sampler, normalized, NUMBER, 1),
    ROW(image_sampler, addressing, NUMBER, UINT32_MAX),
    ROW(image_sampler, filter, NUMBER, UINT32_MAX),
    ROW(image_sampler, properties, BLOB, LIST_MOST),
    {NULL},
};

static const struct field memory_fields[] = {
    ROW(image_memory, id, NUMBER, UINT64_MAX),
    ROW(image_memory, context, NUMBER, UINT64_MAX),
    ROW(image_memory, root, NUMBER, UINT64_MAX),
    ROW(image_memory, origin, NUMBER, IMAGE_SIZE_MAX),
    ROW(image_memory, size, NUMBER, IMAGE_SIZE_MAX),
    ROW(image_memory, type, NUMBER, UINT32_MAX),
    ROW(image_memory, flags, NUMBER, UINT64_MAX),
    ROW(image_memory, user_memory, NUMBER, 1),
    ROW(image_memory, channel_order, NUMBER, UINT32_MAX),
    ROW(image_memory, channel_type, NUMBER, UINT32_MAX),
    ROW(image_memory, width, NUMBER, IMAGE_SIZE_MAX),
    ROW(image_memory, height, NUMBER, IMAGE_SIZE_MAX),
    ROW(image_memory, depth, NUMBER, IMAGE_SIZE_MAX),
    ROW(image_memory, array_size, NUMBER, IMAGE_SIZE_MAX),
    ROW(image_memory, row_pitch, NUMBER, IMAGE_SIZE_MAX),
    ROW(image_memory, slice_pitch, NUMBER, IMAGE_SIZE_MAX),
    {NULL},
};

static const struct field contents_fields[] = {
    ROW(image_contents, id, NUMBER, UINT64_MAX),
    ROW(image_contents, size, NUMBER, IMAGE_SIZE_MAX),
    ROW(image_contents, written, NUMBER, 1),
    ROW(image_contents, small, BLOB, IMAGE_SMALL),
    ROW(image_contents, digests, BLOB, UINT32_MAX),
    {NULL},
};

static const struct field name_fields[] = {
    ROW(image_name, id, NUMBER, UINT64_MAX),
    ROW(image_name, name, TEXT, IMAGE_OBJECT_NAME_MAX),
    {NULL},
};

static const struct field progress_fields[] = {
    ROW(image_progress, bytes, BLOB, IMAGE_PROGRESS_MAX),
    {NULL},
};

static const struct field command_fields[] = {
    ROW(image_command, executable, BLOB, PATH_MAX - 1),
    ROW(image_command, directory, BLOB, PATH_MAX - 1),
    ROW(image_command, arguments, BLOB, IMAGE_COMMAND_MAX),
    ROW(image_command, environment, BLOB, IMAGE_COMMAND_MAX),
    {NULL},
};

static const struct field lease_fields[] = {
    ROW(image_lease, id, TEXT, LEASE_ID_MAX - 1),
    ROW(image_lease, generation, NUMBER, UINT32_MAX),
    {NULL},
};

static bool image_record_is_path(const struct image_blob *blob)
{
    return blob->size && blob->bytes[0] == '/' && !memchr(blob->bytes, 0, blob->size);
}

static bool image_record_is_list(const struct image_blob *blob)
{
    return blob->size == 0 || blob->bytes[blob->size - 1] == 0;
}

static const char *image_record_check_command(const void *body)
{
    const struct image_command *command = body;
    if (!image_record_is_path(&command->executable) || !image_record_is_path(&command->directory))
        return "a path does not begin at the root folder";
    if (command->arguments.size == 0 || !image_record_is_list(&command->arguments))
        return "\"arguments\" is no list of texts";
    return image_record_is_list(&command->environment) ? NULL
                                                       : "\"environment\" is no list of texts";
}

/* The values of its variables are nobody's to see. */
static void image_record_describe_command(const void *body, image_say *say, void *data)
{
    const struct image_command *command = body;
    uint64_t arguments = 0, variables = 0;
    char path[TEXT_MOST + 1];
    text_make_safe(path, sizeof(path), (const char *)command->executable.bytes,
                   command->executable.size);
    for (size_t i = 0; i < command->arguments.size; i++)
        arguments += command->arguments.bytes[i] == 0;
    for (size_t i = 0; i < command->environment.size; i++)
        variables += command->environment.bytes[i] == 0;
    say(data, "executable", 0, path);
    say(data, "arguments", arguments, NULL);
    say(data, "variables", variables, NULL);
}

static const struct field process_fields[] = {
    ROW(image_process, box, NUMBER, UINT64_MAX),
    ROW(image_process, session, NUMBER, 1),
    {NULL},
};

static const struct field file_fields[] = {
    ROW(image_file, id, NUMBER, UINT64_MAX),
    ROW(image_file, name, TEXT, TEXT_MOST),
    {NULL},
};

static const struct field bases_fields[] = {
    ROW(image_bases, digests, BLOB, UINT32_MAX),
    {NULL},
};

static const char *image_record_check_bases(const void *body)
{
    const struct image_bases *bases = body;
    return bases->digests.size % IMAGE_DIGEST == 0 ? NULL : "\"digests\" is no list of digests";
}

static void image_record_describe_bases(const void *body, image_say *say, void *data)
{
    const struct image_bases *bases = body;
    say(data, "chunks", bases->digests.size / IMAGE_DIGEST, NULL);
}

/* It becomes one in a folder of ours. */
static const char *image_record_check_file(const void *body)
{
    const struct image_file *file = body;
    return file->name[0] && file->name[0] != '.' && !strchr(file->name, '/')
               ? NULL
               : "\"name\" is not that of a file";
}

static const char *image_record_check_contents(const void *body)
{
    const struct image_contents *contents = body;
    bool small = contents->size <= IMAGE_SMALL;
    uint64_t bytes = contents->written && small ? contents->size : 0;
    uint64_t chunks = contents->written && !small ? image_chunk_count(contents->size) : 0;
    if (contents->small.size != bytes)
        return "\"small\" has not the object's number of bytes";
    return contents->digests.size == chunks * IMAGE_DIGEST
               ? NULL
               : "\"digests\" has not one digest for each chunk of the object";
}

static void image_record_describe_contents(const void *body, image_say *say, void *data)
{
    const struct image_contents *contents = body;
    uint64_t chunks = contents->digests.size / IMAGE_DIGEST, zero = 0;
    for (uint64_t i = 0; i < chunks; i++) {
        struct image_digest digest = image_contents_digest(contents, i);
        zero += image_digest_is_zero(&digest);
    }
    say(data, "id", contents->id, NULL);
    say(data, "size", contents->size, NULL);
    say(data, "written", contents->written, NULL);
    say(data, "chunks", chunks, NULL);
    say(data, "zero_chunks", zero, NULL);
}

static const struct record_type types[IMAGE_RECORD_KINDS] = {
    [IMAGE_ABOUT] = {"about", 1, sizeof(struct image_about), about_fields, NULL, NULL},
    [IMAGE_CONTEXT] = {"context", 1, sizeof(struct image_context), context_fields, NULL, NULL},
    [IMAGE_QUEUE] = {"queue", 1, sizeof(struct image_queue), queue_fields, NULL, NULL},
    [IMAGE_PROGRAM] = {"program", 1, sizeof(struct image_program), program_fields, NULL, NULL},
    [IMAGE_KERNEL] = {"kernel", 1, sizeof(struct image_kernel), kernel_fields, NULL, NULL},
    [IMAGE_ARGUMENT] = {"argument", 1, sizeof(struct image_argument), argument_fields, NULL, NULL},
    [IMAGE_SAMPLER] = {"sampler", 1, sizeof(struct image_sampler), sampler_fields, NULL, NULL},
    [IMAGE_MEMORY] = {"memory", 1, sizeof(struct image_memory), memory_fields, NULL, NULL},
    [IMAGE_CONTENTS] = {"contents", 1, sizeof(struct image_contents), contents_fields,
                        image_record_check_contents, image_record_describe_contents},
    [IMAGE_NAME] = {"name", 1, sizeof(struct image_name), name_fields, NULL, NULL},
    [IMAGE_PROGRESS] = {"progress", 1, sizeof(struct image_progress), progress_fields, NULL, NULL},
    [IMAGE_COMMAND] = {"command", 1, sizeof(struct image_command), command_fields,
                       image_record_check_command, image_record_describe_command},
    [IMAGE_LEASE] = {"right", 1, sizeof(struct image_lease), lease_fields, NULL, NULL},
    [IMAGE_PROCESS] = {"process", 1, sizeof(struct image_process), process_fields, NULL, NULL},
    [IMAGE_FILE] = {"file", 1, sizeof(struct image_file), file_fields, image_record_check_file,
                    NULL},
    [IMAGE_BASES] = {"bases", 1, sizeof(struct image_bases), bases_fields, image_record_check_bases,
                     image_record_describe_bases},
};

struct image_digest image_contents_digest(const struct image_contents *contents, uint64_t index)
{
    struct image_digest digest;
    memcpy(&digest, contents->digests.bytes + index * IMAGE_DIGEST, sizeof(digest));
    return digest;
}

const char *image_record_name(enum image_record_kind kind)
{
    return types[kind].name;
}

int image_record_init(struct image_record *record, enum image_record_kind kind)
{
    void *body = calloc(1, types[kind].size);
    if (!body)
        return -ENOMEM;
    *record = (struct image_record){.kind = kind, .body = body};
    return 0;
}

static void *image_record_at(const struct image_record *record, const struct field *field)
{
    return (char *)record->body + field->offset;
}

void image_record_finish(struct image_record *record)
{
    for (const struct field *field = types[record->kind].fields; record->body && field->key;
         field++)
        if (field->kind == TEXT)
            free(*(char **)image_record_at(record, field));
        else if (field->kind == BLOB)
            free(((struct image_blob *)image_record_at(record, field))->bytes);
    free(record->body);
    record->body = NULL;
}

static int image_record_put_text(msgpack_packer *packer, const char *text)
{
    char safe[TEXT_MOST + 1] = "";
    if (text)
        text_make_safe(safe, sizeof(safe), text, strlen(text));
    int error = msgpack_pack_str(packer, strlen(safe));
    return error ? error : msgpack_pack_str_body(packer, safe, strlen(safe));
}

static int image_record_put_field(msgpack_packer *packer, const struct field *field,
                                  const void *value)
{
    const struct image_blob *blob = value;
    int error = image_record_put_text(packer, field->key);
    if (error)
        return error;
    switch (field->kind) {
    case NUMBER:
        return msgpack_pack_uint64(packer, *(const uint64_t *)value);
    case TEXT:
        return image_record_put_text(packer, *(char *const *)value);
    case BLOB:
        break;
    }
    error = msgpack_pack_bin(packer, blob->size);
    return error || blob->size == 0 ? error
                                    : msgpack_pack_bin_body(packer, blob->bytes, blob->size);
}

int image_record_encode(const struct image_record *record, msgpack_sbuffer *buffer)
{
    const struct record_type *type = &types[record->kind];
    size_t count = 0;
    msgpack_packer packer;
    while (type->fields[count].key)
        count++;
    msgpack_packer_init(&packer, buffer, msgpack_sbuffer_write);
    int error = msgpack_pack_array(&packer, 3);
    if (!error)
        error = image_record_put_text(&packer, type->name);
    if (!error)
        error = msgpack_pack_uint32(&packer, type->version);
    if (!error)
        error = msgpack_pack_map(&packer, count);
    for (size_t i = 0; !error && i < count; i++)
        error = image_record_put_field(&packer, &type->fields[i],
                                       image_record_at(record, &type->fields[i]));
    return error ? -ENOMEM : 0;
}

/* ---- decoding ---- */

static int image_record_wrong(char *ret_problem, const char *name, const char *key,
                              const char *what)
{
    snprintf(ret_problem, IMAGE_PROBLEM_MAX, "a record \"%.60s\"%s%s%s: %s", name,
             key ? ", \"" : "", key ? key : "", key ? "\"" : "", what);
    return -EBADMSG;
}

static bool image_record_is_string(const msgpack_object *object, const char *text)
{
    return object->type == MSGPACK_OBJECT_STR && object->via.str.size == strlen(text) &&
           memcmp(object->via.str.ptr, text, object->via.str.size) == 0;
}

/* Exactly one. */
static const msgpack_object *image_record_find(const msgpack_object_map *map, const char *key)
{
    const msgpack_object *found = NULL;
    for (uint32_t i = 0; i < map->size; i++) {
        if (!image_record_is_string(&map->ptr[i].key, key))
            continue;
        if (found)
            return NULL;
        found = &map->ptr[i].val;
    }
    return found;
}

/* A copy with a NUL behind it. */
static void *image_record_copy(const char *bytes, size_t size)
{
    char *kept = malloc(size + 1);
    if (kept) {
        if (size)
            memcpy(kept, bytes, size);
        kept[size] = '\0';
    }
    return kept;
}

/* NULL, or what is wrong; "" without memory. */
static const char *image_record_take(const struct field *field, const msgpack_object *value,
                                     void *ret)
{
    struct image_blob *blob = ret;
    switch (field->kind) {
    case NUMBER:
        if (value->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
            return "it is no number";
        if (value->via.u64 > field->most)
            return "the number is too large";
        *(uint64_t *)ret = value->via.u64;
        return NULL;
    case TEXT:
        if (value->type != MSGPACK_OBJECT_STR)
            return "it is no text";
        if (value->via.str.size > field->most ||
            !text_is_safe(value->via.str.ptr, value->via.str.size))
            return "the text is too long, or has more than text in it";
        *(char **)ret = image_record_copy(value->via.str.ptr, value->via.str.size);
        return *(char **)ret ? NULL : "";
    case BLOB:
        break;
    }
    if (value->type != MSGPACK_OBJECT_BIN)
        return "it is no bytes";
    if (value->via.bin.size > field->most)
        return "there are too many bytes";
    blob->bytes = image_record_copy(value->via.bin.ptr, value->via.bin.size);
    blob->size = value->via.bin.size;
    return blob->bytes ? NULL : "";
}

static int image_record_take_fields(const msgpack_object_map *map, struct image_record *record,
                                    char *ret_problem)
{
    const struct record_type *type = &types[record->kind];
    const char *why = NULL;
    size_t count = 0;
    for (const struct field *field = type->fields; field->key; field++, count++) {
        const msgpack_object *value = image_record_find(map, field->key);
        why = value ? image_record_take(field, value, image_record_at(record, field))
                    : "it is missing, or there twice";
        if (why)
            return *why ? image_record_wrong(ret_problem, type->name, field->key, why) : -ENOMEM;
    }
    if (map->size != count)
        return image_record_wrong(ret_problem, type->name, NULL,
                                  "it has a field that is not known");
    why = type->check ? type->check(record->body) : NULL;
    return why ? image_record_wrong(ret_problem, type->name, NULL, why) : 0;
}

static int image_record_unpack(const msgpack_object *object, struct image_record *ret_record,
                               char *ret_problem)
{
    const msgpack_object *parts = object->via.array.ptr;
    if (object->type != MSGPACK_OBJECT_ARRAY || object->via.array.size != 3 ||
        parts[0].type != MSGPACK_OBJECT_STR || parts[1].type != MSGPACK_OBJECT_POSITIVE_INTEGER ||
        parts[2].type != MSGPACK_OBJECT_MAP)
        return image_record_wrong(ret_problem, "", NULL, "it is not a name, a version and fields");
    size_t kind = 0;
    while (kind < IMAGE_RECORD_KINDS && !image_record_is_string(&parts[0], types[kind].name))
        kind++;
    if (kind == IMAGE_RECORD_KINDS) {
        char name[61];
        text_make_safe(name, sizeof(name), parts[0].via.str.ptr, parts[0].via.str.size);
        return image_record_wrong(ret_problem, name, NULL,
                                  "that type is not known: another release made it");
    }
    if (parts[1].via.u64 != types[kind].version)
        return image_record_wrong(ret_problem, types[kind].name, NULL,
                                  "its version is not known: another release made it");
    struct image_record record;
    int error = image_record_init(&record, (enum image_record_kind)kind);
    if (error)
        return error;
    error = image_record_take_fields(&parts[2].via.map, &record, ret_problem);
    if (error)
        image_record_finish(&record);
    else
        *ret_record = record;
    return error;
}

int image_record_decode(const void *bytes, size_t size, struct image_record *ret_record,
                        char ret_problem[IMAGE_PROBLEM_MAX])
{
    msgpack_object object;
    size_t offset = 0;
    if (msgcheck(bytes, size, DEPTH) != 0)
        return image_record_wrong(ret_problem, "", NULL, "it is no msgpack");
    msgpack_zone *zone = msgpack_zone_new(MSGPACK_ZONE_CHUNK_SIZE);
    if (!zone)
        return -ENOMEM;
    int error = msgpack_unpack(bytes, size, &offset, zone, &object) == MSGPACK_UNPACK_SUCCESS
                    ? image_record_unpack(&object, ret_record, ret_problem)
                    : image_record_wrong(ret_problem, "", NULL, "it is no msgpack");
    msgpack_zone_free(zone);
    return error;
}

void image_record_describe(const struct image_record *record, image_say *say, void *data)
{
    const struct record_type *type = &types[record->kind];
    if (type->describe) {
        type->describe(record->body, say, data);
        return;
    }
    for (const struct field *field = type->fields; field->key; field++) {
        const void *value = image_record_at(record, field);
        if (field->kind == TEXT)
            say(data, field->key, 0, *(char *const *)value);
        else
            say(data, field->key,
                field->kind == NUMBER ? *(const uint64_t *)value
                                      : ((const struct image_blob *)value)->size,
                NULL);
    }
}
