#include "tests/support/cases.h"
#include <errno.h>
#include <unistd.h>

#include "state/recipe/container.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* The format's numbers once more, so that a change of the format is a change of this file. */
enum { VERSION = 8, PAYLOAD = 16, CHECKSUM = 24, HEADER = 32 };

static struct recipe *source(const char *text)
{
    struct recipe *recipe;
    cr_assert_eq(recipe_source(1, &text, NULL, &recipe), 0);
    return recipe;
}

/* A library of an IL module with a constant and a source with a header, linked and built. */
static struct recipe *everything(void)
{
    static const char module[] = {3, 2, 0x23, 7, 0, 0, 1, 0};
    const struct recipe_constant constant = {.id = 7, .size = 4, .bytes = {1, 2, 3, 4}};
    const char *name = "dir/h.h";
    struct recipe *il, *parts[2], *text = source("#include \"dir/h.h\"\n"), *header = source("");
    struct recipe *linked, *built;
    cr_assert_eq(recipe_il(module, sizeof(module), &il), 0);
    cr_assert_eq(recipe_step(RECIPE_COMPILED, il, "", 0, NULL, NULL, &constant, 1, &parts[0]), 0);
    cr_assert_eq(
        recipe_step(RECIPE_COMPILED, text, "-DA=\"b c\"", 1, &header, &name, NULL, 0, &parts[1]),
        0);
    parts[1]->headers = calloc(1, sizeof(*parts[1]->headers));
    cr_assert_eq(headers_add(parts[1]->headers, "inc/a.h", 0, "a", 1), 0);
    cr_assert_eq(headers_add(parts[1]->headers, "inc/../inc/a.h", 0, NULL, 0), 0);
    cr_assert_eq(headers_add(parts[1]->headers, "/b.h", 2, "", 0), 0);
    cr_assert_eq(recipe_linked(2, parts, "-create-library", &linked), 0);
    cr_assert_eq(recipe_built(linked, "-cl-std=CL1.2", NULL, 0, &built), 0);
    recipe_unref(il);
    recipe_unref(text);
    recipe_unref(header);
    recipe_unref(parts[0]);
    recipe_unref(parts[1]);
    recipe_unref(linked);
    return built;
}

static void same(const struct recipe *a, const struct recipe *b)
{
    cr_assert_eq(a->kind, b->kind);
    cr_assert_eq(a->depth, b->depth);
    cr_assert_eq(a->size, b->size);
    cr_assert(!a->size || memcmp(a->bytes, b->bytes, a->size) == 0);
    cr_assert(a->options ? strcmp(a->options, b->options) == 0 : !b->options);
    cr_assert(headers_same(a->headers, b->headers));
    cr_assert_eq(a->constant_count, b->constant_count);
    for (uint32_t i = 0; i < a->constant_count; i++) {
        cr_assert_eq(a->constants[i].id, b->constants[i].id);
        cr_assert_eq(a->constants[i].size, b->constants[i].size);
        cr_assert_arr_eq(a->constants[i].bytes, b->constants[i].bytes, a->constants[i].size);
    }
    cr_assert_eq(a->input_count, b->input_count);
    for (uint32_t i = 0; i < a->input_count; i++) {
        if (a->kind == RECIPE_COMPILED && i > 0)
            cr_assert_str_eq(a->names[i], b->names[i]);
        same(a->inputs[i], b->inputs[i]);
    }
}

static unsigned char *written(const struct recipe *recipe, size_t *ret_size)
{
    unsigned char *bytes;
    cr_assert_eq(container_write(recipe, &bytes, ret_size), 0);
    return bytes;
}

/* As an attacker would: the checksum fits whatever the payload says. */
static void sign(unsigned char *bytes, size_t size)
{
    for (unsigned i = 0; i < 8; i++)
        bytes[PAYLOAD + i] = (unsigned char)((uint64_t)(size - HEADER) >> (8 * i));
    uint64_t sum = XXH64(bytes + HEADER, size - HEADER, XXH64(bytes, CHECKSUM, 0));
    for (unsigned i = 0; i < 8; i++)
        bytes[CHECKSUM + i] = (unsigned char)(sum >> (8 * i));
}

/* In a block of exactly that size, so that a sanitizer sees any read behind it. */
static int read_exactly(const unsigned char *bytes, size_t size, struct recipe **ret_recipe)
{
    unsigned char *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    int err = container_read(copy, size, ret_recipe);
    free(copy);
    return err;
}

Test(container, gives_back_the_recipe_that_it_was_made_of)
{
    struct recipe *recipe = everything(), *read;
    size_t size, size2;
    unsigned char *bytes = written(recipe, &size);
    cr_assert_eq(container_read(bytes, size, &read), 0);
    same(recipe, read);
    unsigned char *again = written(read, &size2);
    cr_assert_eq(size, size2);
    cr_assert_arr_eq(bytes, again, size);
    free(again);
    free(bytes);
    recipe_unref(recipe);
    recipe_unref(read);
}

Test(container, source_may_hold_any_byte)
{
    const char *strings[] = {"ab", "c\0d", "ef"};
    const size_t lengths[] = {0, 3, 1};
    struct recipe *recipe, *read;
    size_t size;
    cr_assert_eq(recipe_source(3, strings, lengths, &recipe), 0);
    cr_assert_eq(recipe->size, 6);
    cr_assert_arr_eq(recipe->bytes, "abc\0de", 7);
    unsigned char *bytes = written(recipe, &size);
    cr_assert_eq(container_read(bytes, size, &read), 0);
    same(recipe, read);
    free(bytes);
    recipe_unref(recipe);
    recipe_unref(read);
}

Test(container, every_truncation_is_refused)
{
    struct recipe *recipe = everything(), *read = NULL;
    size_t size;
    unsigned char *bytes = written(recipe, &size);
    for (size_t cut = 0; cut < size; cut++)
        cr_assert_neq(read_exactly(bytes, cut, &read), 0, "of %zu bytes %zu", size, cut);
    /* Also where the header says that nothing is missing. */
    for (size_t cut = HEADER; cut < size; cut++) {
        unsigned char *copy = malloc(cut);
        memcpy(copy, bytes, cut);
        sign(copy, cut);
        cr_assert_eq(read_exactly(copy, cut, &read), -EBADMSG, "of %zu bytes %zu", size, cut);
        free(copy);
    }
    cr_assert_null(read);
    free(bytes);
    recipe_unref(recipe);
}

Test(container, what_stands_behind_it_is_refused)
{
    struct recipe *recipe = everything(), *read = NULL;
    size_t size;
    unsigned char *bytes = written(recipe, &size);
    bytes = realloc(bytes, size + 1);
    bytes[size] = 0;
    cr_assert_eq(container_read(bytes, size + 1, &read), -EBADMSG);
    sign(bytes, size + 1);
    cr_assert_eq(container_read(bytes, size + 1, &read), -EBADMSG);
    free(bytes);
    recipe_unref(recipe);
}

Test(container, every_flipped_bit_is_noticed)
{
    struct recipe *recipe = everything(), *read = NULL;
    size_t size;
    unsigned char *bytes = written(recipe, &size);
    for (size_t bit = 0; bit < size * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        cr_assert_neq(container_read(bytes, size, &read), 0, "bit %zu", bit);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    cr_assert_null(read);
    free(bytes);
    recipe_unref(recipe);
}

Test(container, a_later_version_is_told_from_damage)
{
    struct recipe *recipe = everything(), *read = NULL;
    size_t size;
    unsigned char *bytes = written(recipe, &size);
    bytes[VERSION]++;
    sign(bytes, size);
    cr_assert_eq(container_read(bytes, size, &read), -ENOTSUP);
    free(bytes);
    recipe_unref(recipe);
}

/* Altered payloads with a checksum that fits reach every check of the reader. What is read must be
 * something that can be written again. */
Test(container, altered_payloads_with_a_good_checksum_do_no_harm)
{
    struct recipe *recipe = everything(), *read;
    size_t size, size2;
    unsigned char *bytes = written(recipe, &size);
    unsigned char *copy = malloc(size);
    unsigned refused = 0;
    srand(1);
    for (int round = 0; round < 50000; round++) {
        memcpy(copy, bytes, size);
        for (int change = rand() % 4; change >= 0; change--)
            copy[HEADER + (size_t)rand() % (size - HEADER)] = (unsigned char)rand();
        sign(copy, size);
        if (read_exactly(copy, size, &read) != 0) {
            refused++;
            continue;
        }
        unsigned char *again = written(read, &size2);
        cr_assert_eq(size2, size);
        cr_assert_arr_eq(again, copy, size);
        free(again);
        recipe_unref(read);
    }
    cr_assert_gt(refused, 10000u);
    free(copy);
    free(bytes);
    recipe_unref(recipe);
}

Test(container, random_bytes_are_refused)
{
    unsigned char bytes[512];
    struct recipe *read = NULL;
    srand(2);
    for (int round = 0; round < 20000; round++) {
        size_t size = HEADER + (size_t)rand() % (sizeof(bytes) - HEADER);
        for (size_t i = 0; i < size; i++)
            bytes[i] = (unsigned char)rand();
        cr_assert_neq(read_exactly(bytes, size, &read), 0);
        memcpy(bytes, "RESEATP\n\2\0\0\0\0\0\0\0", 16);
        sign(bytes, size);
        (void)read_exactly(bytes, size, &read);
        recipe_unref(read);
        read = NULL;
    }
}

/* Steps within steps: at the limit it is read, past it refused, with no stack to overflow. */
Test(container, depth_is_limited)
{
    enum { STEP = 1 + 4 + 4 + 4, LEAF = 1 + 8 + 4 }; /* and no headers */
    const struct {
        size_t steps;
        int err;
    } cases[] = {{RECIPE_DEPTH_MAX - 1, 0}, {RECIPE_DEPTH_MAX, -EBADMSG}, {4000000, -EBADMSG}};
    for (size_t c = 0; c < ARRAY_SIZE(cases); c++) {
        size_t size = HEADER + cases[c].steps * STEP + LEAF;
        unsigned char *bytes = calloc(1, size);
        struct recipe *read = NULL;
        memcpy(bytes, "RESEATP\n\2", 9);
        for (size_t i = 0; i < cases[c].steps; i++) {
            bytes[HEADER + i * STEP] = RECIPE_BUILT;
            bytes[HEADER + i * STEP + 9] = 1;
        }
        bytes[HEADER + cases[c].steps * STEP] = RECIPE_SOURCE;
        sign(bytes, size);
        cr_assert_eq(container_read(bytes, size, &read), cases[c].err);
        recipe_unref(read);
        free(bytes);
    }
    struct recipe *recipe = source("x"), *next;
    for (int i = 1; i < RECIPE_DEPTH_MAX; i++) {
        cr_assert_eq(recipe_built(recipe, "", NULL, 0, &next), 0);
        recipe_unref(recipe);
        recipe = next;
    }
    cr_assert_eq(recipe_built(recipe, "", NULL, 0, &next), -E2BIG);
    recipe_unref(recipe);
}

/* A few shared recipes that would be written 2^24 times. */
Test(container, a_recipe_that_grows_when_written_is_refused)
{
    struct recipe *recipe = source("kernel void k() {}"), *next;
    unsigned char *bytes;
    size_t size;
    for (int i = 0; i < 24; i++) {
        struct recipe *twice[] = {recipe, recipe};
        cr_assert_eq(recipe_linked(2, twice, "", &next), 0);
        recipe_unref(recipe);
        recipe = next;
    }
    cr_assert_eq(container_write(recipe, &bytes, &size), -E2BIG);
    recipe_unref(recipe);
}

/* Programs have such in their caches, and some end where theirs is refused. */
Test(container, the_first_version_is_read_with_the_headers_of_now)
{
    static const char text[] = "#include \"first-version.h\"\n";
    unsigned char bytes[HEADER + 13 + 9 + sizeof(text) - 1] = "RESEATP\n\1";
    struct recipe *read;
    char folder[] = "/tmp/reseat-container-XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
    bytes[HEADER] = RECIPE_BUILT;
    bytes[HEADER + 9] = 1;
    bytes[HEADER + 13] = RECIPE_SOURCE;
    bytes[HEADER + 14] = sizeof(text) - 1;
    memcpy(bytes + HEADER + 22, text, sizeof(text) - 1);
    sign(bytes, sizeof(bytes));
    for (int found = 0; found < 2; found++) {
        cr_assert_eq(read_exactly(bytes, sizeof(bytes), &read), 0);
        cr_assert_str_eq(read->inputs[0]->bytes, text);
        cr_expect_eq(read->headers != NULL, found == 1);
        recipe_unref(read);
        FILE *file = fopen("first-version.h", "we");
        cr_assert_not_null(file);
        fclose(file);
    }
    cr_assert_eq(unlink("first-version.h"), 0);
    cr_assert_eq(rmdir(folder), 0);
}

/* A header is the same as itself or as one that was before it, which has the bytes. */
Test(container, headers_that_are_the_same_as_none_are_refused)
{
    struct recipe *recipe = everything(), *read = NULL;
    static const unsigned char second[] = {14, 0, 0, 0, 'i', 'n', 'c', '/', '.', '.'};
    size_t size;
    unsigned char *bytes = written(recipe, &size);
    unsigned char *at = memmem(bytes, size, second, sizeof(second));
    cr_assert_not_null(at);
    cr_assert_eq(at[4 + 14], 0);
    for (unsigned same = 2; same < 256; same += 50) {
        at[4 + 14] = (unsigned char)same;
        sign(bytes, size);
        cr_expect_eq(read_exactly(bytes, size, &read), -EBADMSG, "%u", same);
    }
    free(bytes);
    recipe_unref(recipe);
}

/* Counts that promise more than there is must not be believed, let alone allocated. */
Test(container, counts_without_content_are_refused)
{
    for (unsigned at = 1; at <= 9; at += 4) {
        unsigned char bytes[HEADER + 13 + 9] = "RESEATP\n\2";
        struct recipe *read = NULL;
        bytes[HEADER] = RECIPE_LINKED;
        bytes[HEADER + 9] = 1;
        bytes[HEADER + 13] = RECIPE_SOURCE;
        sign(bytes, sizeof(bytes));
        cr_assert_eq(container_read(bytes, sizeof(bytes), &read), 0);
        recipe_unref(read);
        memset(bytes + HEADER + at, 0xff, 4);
        sign(bytes, sizeof(bytes));
        cr_assert_eq(read_exactly(bytes, sizeof(bytes), &read), -EBADMSG);
    }
}

Test(container, vendors_binaries_are_named)
{
    unsigned char elf[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    const struct {
        const void *bytes;
        size_t size;
        const char *has;
    } cases[] = {
        {elf, sizeof(elf), "machine 190"}, /* EM_CUDA */
        {elf, 20, "damaged ELF"},
        {"//\n// Generated by NVIDIA", 24, "PTX"},
        {"BC\xC0\xDE", 4, "LLVM"},
        {"RESEATP\n", 8, "container"},
        {"?", 1, "unknown"},
        {"", 0, "unknown"},
    };
    elf[16] = 2;
    elf[18] = 190;
    elf[20] = 1;
    elf[52] = 64;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        unsigned char *copy = malloc(cases[i].size ? cases[i].size : 1);
        char text[80];
        memcpy(copy, cases[i].bytes, cases[i].size);
        container_describe(copy, cases[i].size, text, sizeof(text));
        cr_assert(strstr(text, cases[i].has), "%s is not %s", text, cases[i].has);
        free(copy);
    }
}
