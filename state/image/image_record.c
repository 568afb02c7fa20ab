#include "state/image/image_record.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/bytes/schema.h"
#include "state/base/bytes/text.h"

/* A record is an array: its type's name, its version, and a map of its fields. */
#define DEPTH 2

/* Most elements of a list of properties. */
#define LIST_MOST 4096

struct record_type {
    const char *name;
    uint32_t version;
    struct schema schema;
    void (*describe)(const void *body, image_say *say, void *data); /* NULL: field by field */
};

#define BLOB(type, member, most)                                                                   \
#member, SCHEMA_IS_BYTES, offsetof(struct type, member.bytes), 1, most,                        \
        SCHEMA_MEMBER(type, member.size)

static const struct schema_field about_fields[] = {
    {SCHEMA_NUMBER(image_about, created_ms, UINT64_MAX >> 1)},
    {SCHEMA_TEXT(image_about, program, SCHEMA_TEXT_MAX)},
    {SCHEMA_NUMBER(image_about, pid, INT32_MAX)},
    {SCHEMA_TEXT(image_about, host, SCHEMA_TEXT_MAX)},
    {SCHEMA_TEXT(image_about, release, SCHEMA_TEXT_MAX)},
    {SCHEMA_TEXT(image_about, reason, SCHEMA_TEXT_MAX)},
    {NULL},
};

static const struct schema_field context_fields[] = {
    {SCHEMA_NUMBER(image_context, id, UINT64_MAX)},
    {SCHEMA_NUMBER(image_context, vdevs, UINT32_MAX)},
    {BLOB(image_context, properties, LIST_MOST)},
    {NULL},
};

static const struct schema_field queue_fields[] = {
    {SCHEMA_NUMBER(image_queue, id, UINT64_MAX)},
    {SCHEMA_NUMBER(image_queue, context, UINT64_MAX)},
    {SCHEMA_NUMBER(image_queue, vdev, UINT32_MAX)},
    {SCHEMA_NUMBER(image_queue, properties, UINT64_MAX)},
    {BLOB(image_queue, list, LIST_MOST)},
    {NULL},
};

static const struct schema_field program_fields[] = {
    {SCHEMA_NUMBER(image_program, id, UINT64_MAX)},
    {SCHEMA_NUMBER(image_program, context, UINT64_MAX)},
    {SCHEMA_NUMBER(image_program, vdevs, UINT32_MAX)},
    {BLOB(image_program, base, UINT32_MAX)},
    {BLOB(image_program, built, UINT32_MAX)},
    {NULL},
};

static const struct schema_field kernel_fields[] = {
    {SCHEMA_NUMBER(image_kernel, id, UINT64_MAX)},
    {SCHEMA_NUMBER(image_kernel, context, UINT64_MAX)},
    {SCHEMA_NUMBER(image_kernel, program, UINT64_MAX)},
    {SCHEMA_TEXT(image_kernel, name, SCHEMA_TEXT_MAX)},
    {SCHEMA_NUMBER(image_kernel, arguments, UINT32_MAX)},
    {NULL},
};

static const struct schema_field argument_fields[] = {
    {SCHEMA_NUMBER(image_argument, kernel, UINT64_MAX)},
    {SCHEMA_NUMBER(image_argument, index, UINT32_MAX)},
    {SCHEMA_NUMBER(image_argument, kind, UINT8_MAX)},
    {SCHEMA_NUMBER(image_argument, size, UINT32_MAX)},
    {SCHEMA_NUMBER(image_argument, object, UINT64_MAX)},
    {BLOB(image_argument, value, UINT32_MAX)},
    {NULL},
};

static const struct schema_field sampler_fields[] = {
    {SCHEMA_NUMBER(image_sampler, id, UINT64_MAX)},
    {SCHEMA_NUMBER(image_sampler, context, UINT64_MAX)},
    {SCHEMA_NUMBER(image_sampler, normalized, 1)},
    {SCHEMA_NUMBER(image_sampler, addressing, UINT32_MAX)},
    {SCHEMA_NUMBER(image_sampler, filter, UINT32_MAX)},
    {BLOB(image_sampler, properties, LIST_MOST)},
    {NULL},
};

static const struct schema_field memory_fields[] = {
    {SCHEMA_NUMBER(image_memory, id, UINT64_MAX)},
    {SCHEMA_NUMBER(image_memory, context, UINT64_MAX)},
    {SCHEMA_NUMBER(image_memory, root, UINT64_MAX)},
    {SCHEMA_NUMBER(image_memory, origin, IMAGE_SIZE_MAX)},
    {SCHEMA_NUMBER(image_memory, size, IMAGE_SIZE_MAX)},
    {SCHEMA_NUMBER(image_memory, type, UINT32_MAX)},
    {SCHEMA_NUMBER(image_memory, flags, UINT64_MAX)},
    {SCHEMA_NUMBER(image_memory, user_memory, 1)},
    {SCHEMA_NUMBER(image_memory, channel_order, UINT32_MAX)},
    {SCHEMA_NUMBER(image_memory, channel_type, UINT32_MAX)},
    {SCHEMA_NUMBER(image_memory, width, IMAGE_SIZE_MAX)},
    {SCHEMA_NUMBER(image_memory, height, IMAGE_SIZE_MAX)},
    {SCHEMA_NUMBER(image_memory, depth, IMAGE_SIZE_MAX)},
    {SCHEMA_NUMBER(image_memory, array_size, IMAGE_SIZE_MAX)},
    {SCHEMA_NUMBER(image_memory, row_pitch, IMAGE_SIZE_MAX)},
    {SCHEMA_NUMBER(image_memory, slice_pitch, IMAGE_SIZE_MAX)},
    {NULL},
};

static const struct schema_field contents_fields[] = {
    {SCHEMA_NUMBER(image_contents, id, UINT64_MAX)},
    {SCHEMA_NUMBER(image_contents, size, IMAGE_SIZE_MAX)},
    {SCHEMA_NUMBER(image_contents, written, 1)},
    {BLOB(image_contents, small, IMAGE_SMALL)},
    {BLOB(image_contents, digests, UINT32_MAX)},
    {NULL},
};

static const struct schema_field name_fields[] = {
    {SCHEMA_NUMBER(image_name, id, UINT64_MAX)},
    {SCHEMA_TEXT(image_name, name, IMAGE_OBJECT_NAME_MAX)},
    {NULL},
};

static const struct schema_field progress_fields[] = {
    {BLOB(image_progress, bytes, IMAGE_PROGRESS_MAX)},
    {NULL},
};

static const struct schema_field command_fields[] = {
    {BLOB(image_command, executable, PATH_MAX - 1)},
    {BLOB(image_command, directory, PATH_MAX - 1)},
    {BLOB(image_command, arguments, IMAGE_COMMAND_MAX)},
    {BLOB(image_command, environment, IMAGE_COMMAND_MAX)},
    {NULL},
};

static const struct schema_field lease_fields[] = {
    {SCHEMA_TEXT(image_lease, id, LEASE_ID_MAX - 1)},
    {SCHEMA_NUMBER(image_lease, generation, UINT32_MAX)},
    {NULL},
};

static const struct schema_field schedule_fields[] = {
    {SCHEMA_NUMBER(image_schedule, every_ms, UINT64_MAX >> 1)},
    {SCHEMA_NUMBER(image_schedule, keep, UINT64_MAX)},
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

/* Values of environment variables are not shown. */
static void image_record_describe_command(const void *body, image_say *say, void *data)
{
    const struct image_command *command = body;
    uint64_t arguments = 0, variables = 0;
    char path[SCHEMA_TEXT_MAX + 1];
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

static const struct schema_field process_fields[] = {
    {SCHEMA_NUMBER(image_process, box, UINT64_MAX)},
    {SCHEMA_NUMBER(image_process, session, 1)},
    {NULL},
};

static const struct schema_field file_fields[] = {
    {SCHEMA_NUMBER(image_file, id, UINT64_MAX)},
    {SCHEMA_TEXT(image_file, name, SCHEMA_TEXT_MAX)},
    {NULL},
};

static const struct schema_field bases_fields[] = {
    {BLOB(image_bases, digests, UINT32_MAX)},
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

/* The name becomes a file in a folder of ours, so it must be safe. */
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
    [IMAGE_ABOUT] = {"about", 1, {sizeof(struct image_about), about_fields}},
    [IMAGE_CONTEXT] = {"context", 1, {sizeof(struct image_context), context_fields}},
    [IMAGE_QUEUE] = {"queue", 1, {sizeof(struct image_queue), queue_fields}},
    [IMAGE_PROGRAM] = {"program", 1, {sizeof(struct image_program), program_fields}},
    [IMAGE_KERNEL] = {"kernel", 1, {sizeof(struct image_kernel), kernel_fields}},
    [IMAGE_ARGUMENT] = {"argument", 1, {sizeof(struct image_argument), argument_fields}},
    [IMAGE_SAMPLER] = {"sampler", 1, {sizeof(struct image_sampler), sampler_fields}},
    [IMAGE_MEMORY] = {"memory", 1, {sizeof(struct image_memory), memory_fields}},
    [IMAGE_CONTENTS] = {"contents",
                        1,
                        {sizeof(struct image_contents), contents_fields,
                         image_record_check_contents},
                        image_record_describe_contents},
    [IMAGE_NAME] = {"name", 1, {sizeof(struct image_name), name_fields}},
    [IMAGE_PROGRESS] = {"progress", 1, {sizeof(struct image_progress), progress_fields}},
    [IMAGE_COMMAND] = {"command",
                       1,
                       {sizeof(struct image_command), command_fields, image_record_check_command},
                       image_record_describe_command},
    [IMAGE_LEASE] = {"right", 1, {sizeof(struct image_lease), lease_fields}},
    [IMAGE_SCHEDULE] = {"schedule", 1, {sizeof(struct image_schedule), schedule_fields}},
    [IMAGE_PROCESS] = {"process", 1, {sizeof(struct image_process), process_fields}},
    [IMAGE_FILE] = {"file", 1, {sizeof(struct image_file), file_fields, image_record_check_file}},
    [IMAGE_BASES] = {"bases",
                     1,
                     {sizeof(struct image_bases), bases_fields, image_record_check_bases},
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
    void *body = calloc(1, types[kind].schema.size);
    if (!body)
        return -ENOMEM;
    *record = (struct image_record){.kind = kind, .body = body};
    return 0;
}

void image_record_finish(struct image_record *record)
{
    if (record->body)
        schema_finish(&types[record->kind].schema, record->body);
    free(record->body);
    record->body = NULL;
}

int image_record_encode(const struct image_record *record, msgpack_sbuffer *buffer)
{
    const struct record_type *type = &types[record->kind];
    msgpack_packer packer;
    msgpack_packer_init(&packer, buffer, msgpack_sbuffer_write);
    if (msgpack_pack_array(&packer, 3) != 0 || msgpack_pack_str(&packer, strlen(type->name)) != 0 ||
        msgpack_pack_str_body(&packer, type->name, strlen(type->name)) != 0 ||
        msgpack_pack_uint32(&packer, type->version) != 0)
        return -ENOMEM;
    return schema_put(&packer, &type->schema, record->body, true);
}

/* ---- decoding ---- */

static int image_record_wrong(char *ret_problem, const char *name, const char *key,
                              const char *what)
{
    snprintf(ret_problem, IMAGE_PROBLEM_MAX, "a record \"%.60s\"%s%s%s: %s", name,
             key ? ", \"" : "", key ? key : "", key ? "\"" : "", what);
    return -EBADMSG;
}

static int image_record_unpack(const msgpack_object *object, struct image_record *ret_record,
                               char *ret_problem)
{
    const msgpack_object *parts = object->via.array.ptr;
    if (object->type != MSGPACK_OBJECT_ARRAY || object->via.array.size != 3 ||
        parts[0].type != MSGPACK_OBJECT_STR || parts[1].type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        return image_record_wrong(ret_problem, "", NULL, "it is not a name, a version and fields");
    size_t kind = 0;
    while (kind < IMAGE_RECORD_KINDS && !schema_is_text(&parts[0], types[kind].name))
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
    struct schema_problem problem;
    int error = image_record_init(&record, (enum image_record_kind)kind);
    if (error)
        return error;
    error = schema_take(&parts[2], &types[kind].schema, record.body, true, &problem);
    if (error == -EBADMSG)
        image_record_wrong(ret_problem, types[kind].name, problem.key, problem.what);
    if (error)
        image_record_finish(&record);
    else
        *ret_record = record;
    return error;
}

int image_record_decode(const void *bytes, size_t size, struct image_record *ret_record,
                        char ret_problem[IMAGE_PROBLEM_MAX])
{
    msgpack_unpacked CLEANUP(msgpack_unpacked_destroy) unpacked;
    int error = schema_unpack(bytes, size, DEPTH, &unpacked);
    if (error == -EBADMSG)
        return image_record_wrong(ret_problem, "", NULL, "it is no msgpack");
    return error ? error : image_record_unpack(&unpacked.data, ret_record, ret_problem);
}

void image_record_describe(const struct image_record *record, image_say *say, void *data)
{
    const struct record_type *type = &types[record->kind];
    if (type->describe) {
        type->describe(record->body, say, data);
        return;
    }
    for (const struct schema_field *field = type->schema.fields; field->key; field++)
        if (field->kind == SCHEMA_IS_TEXT)
            say(data, field->key, 0, schema_text(field, record->body));
        else
            say(data, field->key, schema_number(field, record->body), NULL);
}
