#include "state/recipe/container.h"

#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "state/base/bytes/little_endian.h"
#include "state/base/cleanup.h"

#define VERSION         2u
#define WITHOUT_HEADERS 1u /* the version that left them where they were */
#define OPTIONS_MAX     ((size_t)1 << 20)
#define NAME_MAX_LEN    4096u
#define INPUTS_MAX      65536u

static const char magic[8] = {'R', 'E', 'S', 'E', 'A', 'T', 'P', '\n'};

enum {
    VERSION_OFFSET = 8,
    FLAGS_OFFSET = 12,
    PAYLOAD_OFFSET = 16,
    CHECKSUM_OFFSET = 24,
    HEADER_SIZE = 32,
};

struct writer {
    FILE *stream;
    size_t size;
    uint32_t steps;
    int err; /* the first; writing stops there */
};

static void container_put(struct writer *writer, const void *bytes, size_t size)
{
    if (!writer->err && size > CONTAINER_SIZE_MAX - writer->size)
        writer->err = -E2BIG;
    if (writer->err)
        return;
    if (fwrite(bytes, 1, size, writer->stream) != size)
        writer->err = -ENOMEM;
    writer->size += size;
}

static void container_put_number(struct writer *writer, uint64_t value, unsigned size)
{
    unsigned char bytes[8];
    little_endian_put(bytes, value, size);
    container_put(writer, bytes, size);
}

static void container_put_string(struct writer *writer, const char *string, size_t limit)
{
    size_t length = strlen(string);
    if (length > limit) {
        writer->err = writer->err ? writer->err : -E2BIG;
        return;
    }
    container_put_number(writer, length, 4);
    container_put(writer, string, length);
}

static void container_put_headers(struct writer *writer, const struct headers *headers)
{
    uint32_t count = headers ? headers->count : 0;
    if (headers && headers->partial)
        writer->err = writer->err ? writer->err : -E2BIG;
    container_put_number(writer, count, 4);
    for (uint32_t i = 0; i < count; i++) {
        const struct header *header = &headers->list[i];
        container_put_string(writer, header->path, HEADER_PATH_MAX - 1);
        container_put_number(writer, header->same, 4);
        if (header->same != i)
            continue;
        container_put_number(writer, header->size, 8);
        container_put(writer, header->bytes, header->size);
    }
}

static void container_put_recipe(struct writer *writer, const struct recipe *recipe)
{
    if (++writer->steps > CONTAINER_STEPS_MAX || recipe->input_count > INPUTS_MAX)
        writer->err = writer->err ? writer->err : -E2BIG;
    if (writer->err)
        return;
    container_put_number(writer, recipe->kind, 1);
    if (recipe->kind == RECIPE_SOURCE || recipe->kind == RECIPE_IL) {
        container_put_number(writer, recipe->size, 8);
        container_put(writer, recipe->bytes, recipe->size);
        return;
    }
    container_put_string(writer, recipe->options, OPTIONS_MAX);
    container_put_number(writer, recipe->constant_count, 4);
    for (uint32_t i = 0; i < recipe->constant_count; i++) {
        container_put_number(writer, recipe->constants[i].id, 4);
        container_put_number(writer, recipe->constants[i].size, 4);
        container_put(writer, recipe->constants[i].bytes, recipe->constants[i].size);
    }
    container_put_number(writer, recipe->input_count, 4);
    for (uint32_t i = 0; i < recipe->input_count; i++) {
        if (recipe->kind == RECIPE_COMPILED && i > 0)
            container_put_string(writer, recipe->names[i], NAME_MAX_LEN);
        container_put_recipe(writer, recipe->inputs[i]);
    }
    if (recipe_is_of_source(recipe))
        container_put_headers(writer, recipe->headers);
}

/* The header before the checksum is its seed, so that nothing is left out of it. */
static uint64_t container_checksum(const unsigned char *bytes, size_t size)
{
    return XXH64(bytes + HEADER_SIZE, size - HEADER_SIZE, XXH64(bytes, CHECKSUM_OFFSET, 0));
}

int container_write(const struct recipe *recipe, unsigned char **ret_bytes, size_t *ret_size)
{
    const unsigned char blank[HEADER_SIZE] = {0};
    unsigned char *bytes = NULL;
    size_t size;
    struct writer writer = {.stream = open_memstream((char **)&bytes, &size)};
    if (!writer.stream)
        return -ENOMEM;
    container_put(&writer, blank, sizeof(blank));
    container_put_recipe(&writer, recipe);
    if (fclose(writer.stream) != 0 && !writer.err)
        writer.err = -ENOMEM;
    if (writer.err) {
        free(bytes);
        return writer.err;
    }
    memcpy(bytes, magic, sizeof(magic));
    little_endian_put(bytes + VERSION_OFFSET, VERSION, 4);
    little_endian_put(bytes + PAYLOAD_OFFSET, size - HEADER_SIZE, 8);
    little_endian_put(bytes + CHECKSUM_OFFSET, container_checksum(bytes, size), 8);
    *ret_bytes = bytes;
    *ret_size = size;
    return 0;
}

struct reader {
    const unsigned char *bytes;
    size_t left;
    uint32_t steps, version;
};

static int container_get_number(struct reader *reader, unsigned size, uint64_t *ret_value)
{
    if (reader->left < size)
        return -EBADMSG;
    *ret_value = little_endian_get(reader->bytes, size);
    reader->bytes += size;
    reader->left -= size;
    return 0;
}

/* @size bytes of what is left. */
static int container_get_bytes(struct reader *reader, uint64_t size,
                               const unsigned char **ret_bytes)
{
    if (size > reader->left)
        return -EBADMSG;
    *ret_bytes = reader->bytes;
    reader->bytes += size;
    reader->left -= (size_t)size;
    return 0;
}

static int container_get_string(struct reader *reader, size_t limit, char **ret_string)
{
    uint64_t length;
    const unsigned char *bytes;
    if (container_get_number(reader, 4, &length) || length > limit ||
        container_get_bytes(reader, length, &bytes) || memchr(bytes, '\0', (size_t)length))
        return -EBADMSG;
    char *string = strndup((const char *)bytes, (size_t)length);
    if (!string)
        return -ENOMEM;
    *ret_string = string;
    return 0;
}

/* A step's inputs while it is read; the recipe takes references of its own. */
struct parts {
    char *options;
    struct recipe_constant *constants;
    uint32_t constant_count;
    struct recipe **inputs;
    char **names; /* one less than inputs: of headers */
    uint32_t input_count;
};

static void container_parts_finish(struct parts *parts)
{
    for (uint32_t i = 0; i < parts->input_count; i++) {
        if (parts->inputs)
            recipe_unref(parts->inputs[i]);
        if (parts->names)
            free(parts->names[i]);
    }
    free(parts->inputs);
    free(parts->names);
    free(parts->constants);
    free(parts->options);
}

static int container_get_constants(struct reader *reader, struct parts *parts)
{
    uint64_t count, id, size;
    const unsigned char *bytes;
    /* Each takes more than a byte: what is left bounds what is allocated. */
    if (container_get_number(reader, 4, &count) || count > reader->left)
        return -EBADMSG;
    parts->constants = calloc(count ? count : 1, sizeof(*parts->constants));
    if (!parts->constants)
        return -ENOMEM;
    for (uint64_t i = 0; i < count; i++) {
        struct recipe_constant *constant = &parts->constants[i];
        if (container_get_number(reader, 4, &id) || container_get_number(reader, 4, &size) ||
            size == 0 || size > sizeof(constant->bytes) ||
            container_get_bytes(reader, size, &bytes))
            return -EBADMSG;
        constant->id = (cl_uint)id;
        constant->size = (uint32_t)size;
        memcpy(constant->bytes, bytes, (size_t)size);
    }
    parts->constant_count = (uint32_t)count;
    return 0;
}

static int container_get_recipe(struct reader *reader, unsigned depth, struct recipe **ret_recipe);

static int container_get_inputs(struct reader *reader, enum recipe_kind kind, unsigned depth,
                                struct parts *parts)
{
    uint64_t count;
    int err = 0;
    if (container_get_number(reader, 4, &count) || count == 0 || count > INPUTS_MAX ||
        count > reader->left || (kind == RECIPE_BUILT && count != 1))
        return -EBADMSG;
    parts->inputs = calloc(count, sizeof(struct recipe *));
    parts->names = calloc(count, sizeof(*parts->names));
    if (!parts->inputs || !parts->names)
        return -ENOMEM;
    parts->input_count = (uint32_t)count;
    for (uint32_t i = 0; !err && i < count; i++) {
        if (kind == RECIPE_COMPILED && i > 0)
            err = container_get_string(reader, NAME_MAX_LEN, &parts->names[i - 1]);
        if (!err)
            err = container_get_recipe(reader, depth + 1, &parts->inputs[i]);
    }
    return err;
}

/* What is the same as another names the first of them, so that nothing has two forms. */
static int container_get_header(struct reader *reader, struct headers *headers)
{
    uint64_t same, size = 0;
    const unsigned char *bytes = NULL;
    char *CLEANUP(cleanup_free) path = NULL;
    int err = container_get_string(reader, HEADER_PATH_MAX - 1, &path);
    if (err)
        return err;
    if (!path[0] || container_get_number(reader, 4, &same) || same > headers->count ||
        (same < headers->count && headers->list[same].same != same) ||
        (same == headers->count &&
         (container_get_number(reader, 8, &size) || container_get_bytes(reader, size, &bytes))))
        return -EBADMSG;
    return headers_add(headers, path, (uint32_t)same, bytes, (size_t)size);
}

static int container_get_headers(struct reader *reader, struct recipe *recipe)
{
    uint64_t count;
    int err = 0;
    if (container_get_number(reader, 4, &count) || count > HEADERS_MAX)
        return -EBADMSG;
    recipe->headers = count ? calloc(1, sizeof(*recipe->headers)) : NULL;
    if (count && !recipe->headers)
        return -ENOMEM;
    for (uint64_t i = 0; !err && i < count; i++)
        err = container_get_header(reader, recipe->headers);
    return err;
}

static int container_make_step(enum recipe_kind kind, const struct parts *parts,
                               struct recipe **ret_recipe)
{
    if (kind == RECIPE_BUILT)
        return recipe_built(parts->inputs[0], parts->options, parts->constants,
                            parts->constant_count, ret_recipe);
    if (kind == RECIPE_LINKED)
        return parts->constant_count
                   ? -EBADMSG
                   : recipe_linked(parts->input_count, parts->inputs, parts->options, ret_recipe);
    for (uint32_t i = 0; i < parts->input_count; i++)
        if (parts->inputs[i]->kind != RECIPE_SOURCE &&
            (i > 0 || parts->inputs[i]->kind != RECIPE_IL))
            return -EBADMSG;
    return recipe_compiled(parts->inputs[0], parts->options, parts->input_count - 1,
                           parts->inputs + 1, (const char *const *)parts->names, parts->constants,
                           parts->constant_count, ret_recipe);
}

static int container_get_step(struct reader *reader, enum recipe_kind kind, unsigned depth,
                              struct recipe **ret_recipe)
{
    struct parts CLEANUP(container_parts_finish) parts = {0};
    int err = container_get_string(reader, OPTIONS_MAX, &parts.options);
    if (!err)
        err = container_get_constants(reader, &parts);
    if (!err)
        err = container_get_inputs(reader, kind, depth, &parts);
    struct recipe *CLEANUP(recipe_unref_pointer) recipe = NULL;
    if (!err)
        err = container_make_step(kind, &parts, &recipe);
    if (!err && recipe_is_of_source(recipe))
        err = reader->version == WITHOUT_HEADERS ? recipe_keep_headers(recipe)
                                                 : container_get_headers(reader, recipe);
    if (err)
        return err;
    *ret_recipe = recipe;
    recipe = NULL;
    return 0;
}

static int container_get_leaf(struct reader *reader, enum recipe_kind kind,
                              struct recipe **ret_recipe)
{
    uint64_t size;
    const unsigned char *bytes;
    if (container_get_number(reader, 8, &size) || container_get_bytes(reader, size, &bytes))
        return -EBADMSG;
    int err = recipe_il(bytes, (size_t)size, ret_recipe);
    if (!err)
        (*ret_recipe)->kind = kind;
    return err;
}

static int container_get_recipe(struct reader *reader, unsigned depth, struct recipe **ret_recipe)
{
    uint64_t kind;
    if (depth > RECIPE_DEPTH_MAX || ++reader->steps > CONTAINER_STEPS_MAX ||
        container_get_number(reader, 1, &kind))
        return -EBADMSG;
    switch (kind) {
    case RECIPE_SOURCE:
    case RECIPE_IL:
        return container_get_leaf(reader, (enum recipe_kind)kind, ret_recipe);
    case RECIPE_COMPILED:
    case RECIPE_LINKED:
    case RECIPE_BUILT:
        return container_get_step(reader, (enum recipe_kind)kind, depth, ret_recipe);
    default:
        return -EBADMSG;
    }
}

int container_read(const void *bytes, size_t size, struct recipe **ret_recipe)
{
    const unsigned char *header = bytes;
    if (size < HEADER_SIZE || size > CONTAINER_SIZE_MAX ||
        memcmp(header, magic, sizeof(magic)) != 0)
        return -EBADMSG;
    uint32_t version = (uint32_t)little_endian_get(header + VERSION_OFFSET, 4);
    if (version != VERSION && version != WITHOUT_HEADERS)
        return -ENOTSUP;
    if (little_endian_get(header + FLAGS_OFFSET, 4) != 0 ||
        little_endian_get(header + PAYLOAD_OFFSET, 8) != size - HEADER_SIZE ||
        little_endian_get(header + CHECKSUM_OFFSET, 8) != container_checksum(header, size))
        return -EBADMSG;
    struct reader reader = {
        .bytes = header + HEADER_SIZE, .left = size - HEADER_SIZE, .version = version};
    struct recipe *CLEANUP(recipe_unref_pointer) recipe = NULL;
    int err = container_get_recipe(&reader, 1, &recipe);
    if (err)
        return err == -E2BIG ? -EBADMSG : err;
    if (reader.left != 0)
        return -EBADMSG;
    *ret_recipe = recipe;
    recipe = NULL;
    return 0;
}

static bool container_describe_elf(const void *bytes, size_t size, char *ret_text, size_t text_size)
{
    if (size < EI_NIDENT || memcmp(bytes, ELFMAG, SELFMAG) != 0 ||
        elf_version(EV_CURRENT) == EV_NONE)
        return false;
    /* For reading, libelf leaves the image alone; its parameter is only not const. */
    Elf *elf = elf_memory((char *)(uintptr_t)bytes, size);
    GElf_Ehdr header;
    if (elf && gelf_getehdr(elf, &header))
        snprintf(ret_text, text_size, "an ELF file for machine %u", header.e_machine);
    else
        snprintf(ret_text, text_size, "a damaged ELF file");
    elf_end(elf);
    return true;
}

void container_describe(const void *bytes, size_t size, char *ret_text, size_t text_size)
{
    static const struct {
        const char *magic;
        size_t length;
        const char *text;
    } kinds[] = {
        {"RESEATP\n", 8, "a portable container that is altered or of a later version"},
        {"BC\xC0\xDE", 4, "LLVM bitcode"},
        {"\x03\x02\x23\x07", 4, "a SPIR-V module"},
        {"PK\x03\x04", 4, "an archive of a vendor"},
        {"xclbin2", 7, "an FPGA's bitstream"},
        {"pocl", 4, "a binary of POCL"},
        {"//", 2, "assembly text (PTX)"},
        {".version", 8, "assembly text (PTX)"},
    };
    if (container_describe_elf(bytes, size, ret_text, text_size))
        return;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (size >= kinds[i].length && memcmp(bytes, kinds[i].magic, kinds[i].length) == 0) {
            snprintf(ret_text, text_size, "%s", kinds[i].text);
            return;
        }
    }
    snprintf(ret_text, text_size, "of an unknown kind");
}
