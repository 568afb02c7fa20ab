#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/object/usage.h"
#include "state/recipe/container.h"
#include "tests/fuzz/fuzz.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/*
 * clCreateProgramWithBinary's input: a container of ours, a vendor's binary, or anything.
 *
 * An input is read as it is, and once more as the payload of a container whose header fits it, so
 * that no checksum stands between the fuzzer and the reader.
 */

static const char magic[] = "RESEATP\n\2\0\0\0\0\0\0\0";
enum { VERSION = 8, PAYLOAD = 16, CHECKSUM = 24, HEADER = 32, DESCRIPTION = 80 };

static void put_le64(unsigned char *bytes, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
}

static void sign(unsigned char *bytes, size_t size)
{
    put_le64(bytes + PAYLOAD, size - HEADER);
    put_le64(bytes + CHECKSUM, XXH64(bytes + HEADER, size - HEADER, XXH64(bytes, CHECKSUM, 0)));
}

/* What a move does where the disk is not what it was. Nothing is written but in the folder. */
static void stage(const struct recipe *recipe)
{
    struct staged staged;
    if (!recipe_is_of_source(recipe) || headers_stage(recipe, &staged) != 0)
        return;
    EXPECT(staged.recipe->kind == recipe->kind && staged.count > 0);
    for (size_t i = 0; i < staged.count; i++)
        EXPECT(strncmp(staged.paths[i], staged.paths[0], strlen(staged.paths[0])) == 0 &&
               !strstr(staged.paths[i], "/../"));
    headers_unstage(&staged);
}

/* What a program and PLAN ask of a recipe. */
static void use(const struct recipe *recipe)
{
    const struct recipe *origin = recipe_origin(recipe);
    cl_program_binary_type type = recipe_binary_type(recipe);
    EXPECT(!origin || origin->kind == RECIPE_SOURCE || origin->kind == RECIPE_IL);
    EXPECT((type == CL_PROGRAM_BINARY_TYPE_NONE) == (recipe->kind <= RECIPE_IL));
    EXPECT(recipe->depth <= RECIPE_DEPTH_MAX);
    usage_note_recipe(recipe);
    stage(recipe);
}

/* What is read, written again, is the same to the byte: nothing has two forms, but for the first
 * version, which lacks headers. */
static void read_back(const unsigned char *bytes, size_t size, const struct recipe *recipe)
{
    unsigned char *again;
    size_t again_size;
    EXPECT(container_write(recipe, &again, &again_size) == 0);
    EXPECT(bytes[VERSION] == 1 || (again_size == size && memcmp(again, bytes, size) == 0));
    free(again);
}

static void try_read(const unsigned char *bytes, size_t size)
{
    struct recipe *recipe = NULL;
    int err = container_read(bytes, size, &recipe);
    EXPECT(err == 0 || err == -EBADMSG || err == -ENOTSUP || err == -ENOMEM);
    EXPECT((err == 0) == (recipe != NULL));
    if (err != 0)
        return;
    use(recipe);
    read_back(bytes, size, recipe);
    recipe_unref(recipe);
}

static void try_describe(const void *bytes, size_t size)
{
    char text[DESCRIPTION], cut[8];
    container_describe(bytes, size, text, sizeof(text));
    EXPECT(text[0] && strnlen(text, sizeof(text)) < sizeof(text));
    container_describe(bytes, size, cut, sizeof(cut));
    EXPECT(strncmp(cut, text, sizeof(cut) - 1) == 0 && cut[sizeof(cut) - 1] == '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *bytes = fuzz_copy(data, size);
    try_describe(bytes, size);
    try_read(bytes, size);
    free(bytes);

    /* A whole container is given its own payload again. */
    bool whole = size >= HEADER && memcmp(data, magic, 8) == 0;
    size_t skipped = whole ? HEADER : 0, payload = size - skipped;
    bytes = malloc(HEADER + payload);
    EXPECT(bytes);
    memcpy(bytes, magic, PAYLOAD);
    if (payload)
        memcpy(bytes + HEADER, data + skipped, payload);
    sign(bytes, HEADER + payload);
    try_read(bytes, HEADER + payload);
    free(bytes);
    return 0;
}
