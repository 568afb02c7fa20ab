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

/* The state of writing or reading a container. The functions below do either, so that the format is
 * defined once. A recipe that is written may be read by other threads meanwhile, so it is not
 * changed. A recipe that is read is filled into a zeroed one. */
struct codec {
    FILE *out;               /* NULL: reading... */
    const unsigned char *in; /* ...from here on */
    size_t size;             /* written, or left to be read */
    uint32_t steps, version;
    int err; /* the first error; nothing is written or read behind it, and numbers are 0 */
};

static void container_fail(struct codec *codec, int err)
{
    codec->err = codec->err ? codec->err : err;
}

/* Check a limit: if it does not hold, the recipe is too large to be written, or was not written by
 * us. */
static void container_require(struct codec *codec, bool holds)
{
    if (!holds)
        container_fail(codec, codec->out ? -E2BIG : -EBADMSG);
}

/* Write @size bytes, or set *bytes to their address in the container. */
static void container_bytes(struct codec *codec, const void **bytes, uint64_t size)
{
    container_require(codec, size <= (codec->out ? CONTAINER_SIZE_MAX - codec->size : codec->size));
    if (codec->err)
        return;
    if (codec->out) {
        if (fwrite(*bytes, 1, size, codec->out) != size)
            container_fail(codec, -ENOMEM);
        codec->size += size;
        return;
    }
    *bytes = codec->in;
    codec->in += size;
    codec->size -= size;
}

/* Write @value, or return the value read. */
static uint64_t container_number(struct codec *codec, uint64_t value, unsigned size)
{
    unsigned char bytes[8] = {0};
    const void *at = bytes;
    little_endian_put(bytes, value, size);
    container_bytes(codec, &at, size);
    return codec->err ? 0 : little_endian_get(at, size);
}

/* Write or read a string. One that was read is owned by the caller's (free()). */
static void container_string(struct codec *codec, char **string, size_t limit)
{
    size_t length = container_number(codec, codec->out ? strlen(*string) : 0, 4);
    const void *bytes = *string;
    container_require(codec, length <= limit);
    container_bytes(codec, &bytes, length);
    if (codec->out || codec->err)
        return;
    container_require(codec, !memchr(bytes, '\0', length));
    if (!codec->err && !(*string = strndup(bytes, length)))
        container_fail(codec, -ENOMEM);
}

/* Allocate @count elements of @size to be read. Each takes at least a byte in the container, so the
 * remaining bytes bound the allocation. */
static void *container_room(struct codec *codec, uint64_t count, size_t size)
{
    container_require(codec, count <= codec->size);
    void *room = codec->err ? NULL : calloc(count ? count : 1, size);
    if (!room)
        container_fail(codec, -ENOMEM);
    return room;
}

/* Write or read a header. One that is the same file as an earlier one names the first of them; no
 * other form is valid. */
static void container_header(struct codec *codec, struct headers *headers, uint32_t i)
{
    struct header header = codec->out ? headers->list[i] : (struct header){0};
    const void *bytes = header.bytes;
    container_string(codec, &header.path, HEADER_PATH_MAX - 1);
    header.same = (uint32_t)container_number(codec, header.same, 4);
    container_require(codec, header.same <= i && (header.same == i ||
                                                  headers->list[header.same].same == header.same));
    if (!codec->err && header.same == i) {
        header.size = container_number(codec, header.size, 8);
        container_bytes(codec, &bytes, header.size);
    }
    if (codec->out)
        return;
    container_require(codec, header.path && header.path[0]);
    if (!codec->err)
        container_fail(codec, headers_add(headers, header.path, header.same, bytes, header.size));
    free(header.path);
}

static void container_headers(struct codec *codec, struct recipe *recipe)
{
    struct headers *headers = recipe->headers;
    container_require(codec, !headers || !headers->partial);
    uint32_t count = (uint32_t)container_number(codec, headers ? headers->count : 0, 4);
    container_require(codec, count <= HEADERS_MAX);
    if (!codec->out && !codec->err && count)
        recipe->headers = headers = container_room(codec, 1, sizeof(*headers));
    for (uint32_t i = 0; !codec->err && i < count; i++)
        container_header(codec, headers, i);
}

static void container_constants(struct codec *codec, struct recipe *step)
{
    uint32_t count = (uint32_t)container_number(codec, step->constant_count, 4);
    if (!codec->out)
        step->constants = container_room(codec, count, sizeof(*step->constants));
    for (uint32_t i = 0; !codec->err && i < count; i++) {
        struct recipe_constant constant = step->constants[i];
        const void *bytes = constant.bytes;
        constant.id = (cl_uint)container_number(codec, constant.id, 4);
        constant.size = (uint32_t)container_number(codec, constant.size, 4);
        container_require(codec, constant.size != 0 && constant.size <= sizeof(constant.bytes));
        container_bytes(codec, &bytes, constant.size);
        if (codec->out || codec->err)
            continue;
        memcpy(constant.bytes, bytes, constant.size);
        step->constants[i] = constant;
        step->constant_count = i + 1;
    }
}

static struct recipe *container_recipe(struct codec *codec, struct recipe *recipe, unsigned depth);

static void container_inputs(struct codec *codec, struct recipe *step, unsigned depth)
{
    uint32_t count = (uint32_t)container_number(codec, step->input_count, 4);
    container_require(codec, count != 0 && count <= INPUTS_MAX &&
                                 (step->kind != RECIPE_BUILT || count == 1));
    if (!codec->out) {
        step->inputs = container_room(codec, count, sizeof(struct recipe *));
        step->names = container_room(codec, count, sizeof(*step->names));
        step->input_count = codec->err ? 0 : count;
    }
    for (uint32_t i = 0; !codec->err && i < count; i++) {
        if (step->kind == RECIPE_COMPILED && i > 0)
            container_string(codec, &step->names[i], NAME_MAX_LEN);
        struct recipe *input = container_recipe(codec, step->inputs[i], depth + 1);
        if (!codec->out)
            step->inputs[i] = input;
    }
}

/* Make the recipe for a step whose parts were read. */
static struct recipe *container_make_step(struct codec *codec, const struct recipe *step)
{
    struct recipe *recipe = NULL;
    for (uint32_t i = 0; !codec->err && step->kind == RECIPE_COMPILED && i < step->input_count; i++)
        container_require(codec, step->inputs[i]->kind == RECIPE_SOURCE ||
                                     (i == 0 && step->inputs[i]->kind == RECIPE_IL));
    container_require(codec, step->kind != RECIPE_LINKED || step->constant_count == 0);
    if (codec->err)
        return NULL;
    container_fail(codec, recipe_again(step, step->options, step->inputs, &recipe));
    return recipe;
}

static struct recipe *container_step(struct codec *codec, struct recipe *recipe, unsigned depth)
{
    struct recipe *made = NULL;
    container_string(codec, &recipe->options, OPTIONS_MAX);
    container_constants(codec, recipe);
    container_inputs(codec, recipe, depth);
    if (!codec->out)
        made = container_make_step(codec, recipe);
    if (codec->err || !recipe_is_of_source(recipe))
        return made;
    if (codec->version == WITHOUT_HEADERS)
        container_fail(codec, recipe_keep_headers(made));
    else
        container_headers(codec, made ? made : recipe);
    return made;
}

static struct recipe *container_leaf(struct codec *codec, const struct recipe *recipe)
{
    const void *bytes = recipe->bytes;
    struct recipe *made = NULL;
    uint64_t size = container_number(codec, recipe->size, 8);
    container_bytes(codec, &bytes, size);
    if (!codec->out && !codec->err)
        container_fail(codec, recipe_il(bytes, size, &made));
    if (made)
        made->kind = recipe->kind;
    return made;
}

/* Write @recipe; or, if it is NULL, read one, owned by the caller, which may be incomplete after an
 * error. */
static struct recipe *container_recipe(struct codec *codec, struct recipe *recipe, unsigned depth)
{
    struct recipe CLEANUP(recipe_finish) parts = {0};
    container_require(codec, depth <= RECIPE_DEPTH_MAX && ++codec->steps <= CONTAINER_STEPS_MAX);
    uint64_t kind = container_number(codec, recipe ? recipe->kind : 0, 1);
    container_require(codec, kind >= RECIPE_SOURCE && kind <= RECIPE_BUILT);
    if (codec->err)
        return NULL;
    parts.kind = (enum recipe_kind)kind;
    recipe = recipe ? recipe : &parts;
    return kind <= RECIPE_IL ? container_leaf(codec, recipe) : container_step(codec, recipe, depth);
}

/* The digest of the header's begin is the seed, so that the checksum covers it too. */
static uint64_t container_checksum(const unsigned char *bytes, size_t size)
{
    return XXH64(bytes + HEADER_SIZE, size - HEADER_SIZE, XXH64(bytes, CHECKSUM_OFFSET, 0));
}

int container_write(const struct recipe *recipe, unsigned char **ret_bytes, size_t *ret_size)
{
    static const unsigned char blank[HEADER_SIZE];
    const void *header = blank;
    unsigned char *bytes = NULL;
    size_t size;
    struct codec codec = {.out = open_memstream((char **)&bytes, &size), .version = VERSION};
    if (!codec.out)
        return -ENOMEM;
    container_bytes(&codec, &header, sizeof(blank));
    (void)container_recipe(&codec, (struct recipe *)(uintptr_t)recipe, 1);
    if (fclose(codec.out) != 0)
        container_fail(&codec, -ENOMEM);
    if (codec.err) {
        free(bytes);
        return codec.err;
    }
    memcpy(bytes, magic, sizeof(magic));
    little_endian_put(bytes + VERSION_OFFSET, VERSION, 4);
    little_endian_put(bytes + PAYLOAD_OFFSET, size - HEADER_SIZE, 8);
    little_endian_put(bytes + CHECKSUM_OFFSET, container_checksum(bytes, size), 8);
    *ret_bytes = bytes;
    *ret_size = size;
    return 0;
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
    struct codec codec = {
        .in = header + HEADER_SIZE, .size = size - HEADER_SIZE, .version = version};
    struct recipe *recipe = container_recipe(&codec, NULL, 1);
    container_require(&codec, codec.size == 0);
    if (codec.err) {
        recipe_unref(recipe);
        return codec.err == -E2BIG ? -EBADMSG : codec.err;
    }
    *ret_recipe = recipe;
    return 0;
}

static bool container_describe_elf(const void *bytes, size_t size, char *ret_text, size_t text_size)
{
    if (size < EI_NIDENT || memcmp(bytes, ELFMAG, SELFMAG) != 0 ||
        elf_version(EV_CURRENT) == EV_NONE)
        return false;
    /* libelf does not change an image that is only read; its parameter just lacks the const. */
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
