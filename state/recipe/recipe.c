#include "state/recipe/recipe.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/bytes/content_hash.h"
#include "state/base/cleanup.h"
#include "state/driver/devinfo.h"
#include "state/opencl/create.h"
#include "state/recipe/preprocess.h"

static atomic_bool prints;

bool recipes_print(void)
{
    return atomic_load(&prints);
}

void recipe_finish(struct recipe *recipe)
{
    for (uint32_t i = 0; i < recipe->input_count; i++) {
        recipe_unref(recipe->inputs[i]);
        if (recipe->names)
            free(recipe->names[i]);
    }
    free(recipe->inputs);
    free(recipe->names);
    headers_free(recipe->headers);
    free(recipe->constants);
    free(recipe->options);
    free(recipe->bytes);
}

void recipe_unref(struct recipe *recipe)
{
    if (!recipe || atomic_fetch_sub_explicit(&recipe->refs, 1, memory_order_acq_rel) != 1)
        return;
    recipe_finish(recipe);
    free(recipe);
}

void recipe_unref_pointer(struct recipe **recipe)
{
    recipe_unref(*recipe);
}

static struct recipe *recipe_new(enum recipe_kind kind)
{
    struct recipe *recipe = calloc(1, sizeof(*recipe));
    if (recipe) {
        atomic_init(&recipe->refs, 1);
        recipe->kind = kind;
        recipe->depth = 1;
    }
    return recipe;
}

/* Make a leaf with room for @size bytes, and a NUL after them. NULL without memory. */
static struct recipe *recipe_leaf(enum recipe_kind kind, size_t size)
{
    struct recipe *recipe = size == SIZE_MAX ? NULL : recipe_new(kind);
    if (recipe && !(recipe->bytes = calloc(1, size + 1))) {
        recipe_unref(recipe);
        return NULL;
    }
    return recipe;
}

static size_t recipe_string_length(const char *const *strings, const size_t *lengths, cl_uint i)
{
    return lengths && lengths[i] ? lengths[i] : strlen(strings[i]);
}

int recipe_source(cl_uint count, const char *const *strings, const size_t *lengths,
                  struct recipe **ret_recipe)
{
    size_t size = 0;
    for (cl_uint i = 0; i < count; i++)
        if (__builtin_add_overflow(size, recipe_string_length(strings, lengths, i), &size))
            return -ENOMEM;
    struct recipe *recipe = recipe_leaf(RECIPE_SOURCE, size);
    if (!recipe)
        return -ENOMEM;
    for (cl_uint i = 0; i < count; i++) {
        size_t length = recipe_string_length(strings, lengths, i);
        memcpy(recipe->bytes + recipe->size, strings[i], length);
        recipe->size += length;
    }
    if (memmem(recipe->bytes, recipe->size, "printf", strlen("printf")))
        atomic_store(&prints, true);
    *ret_recipe = recipe;
    return 0;
}

int recipe_il(const void *bytes, size_t size, struct recipe **ret_recipe)
{
    struct recipe *recipe = recipe_leaf(RECIPE_IL, size);
    if (!recipe)
        return -ENOMEM;
    memcpy(recipe->bytes, bytes, size);
    recipe->size = size;
    atomic_store(&prints, true);
    *ret_recipe = recipe;
    return 0;
}

int recipe_step(enum recipe_kind kind, struct recipe *base, const char *options, uint32_t count,
                struct recipe *const *more, const char *const *names,
                const struct recipe_constant *constants, uint32_t constant_count,
                struct recipe **ret_recipe)
{
    struct recipe *CLEANUP(recipe_unref_pointer) recipe = recipe_new(kind);
    bool named = kind == RECIPE_COMPILED;
    if (!recipe)
        return -ENOMEM;
    recipe->inputs = calloc((size_t)count + 1, sizeof(struct recipe *));
    recipe->names = named ? calloc((size_t)count + 1, sizeof(*recipe->names)) : NULL;
    recipe->options = strdup(options ? options : "");
    recipe->constants = constant_count ? calloc(constant_count, sizeof(*constants)) : NULL;
    if (!recipe->inputs || (named && !recipe->names) || !recipe->options ||
        (constant_count && !recipe->constants))
        return -ENOMEM;
    for (uint32_t i = 0; i <= count; i++) {
        struct recipe *input = i == 0 ? base : more[i - 1];
        if (input->depth >= RECIPE_DEPTH_MAX)
            return -E2BIG;
        if (recipe->depth <= input->depth)
            recipe->depth = input->depth + 1;
        recipe->inputs[recipe->input_count++] = recipe_ref(input);
        if (named && i > 0 && !(recipe->names[i] = strdup(names[i - 1])))
            return -ENOMEM;
    }
    if (constant_count)
        memcpy(recipe->constants, constants, constant_count * sizeof(*constants));
    recipe->constant_count = constant_count;
    *ret_recipe = recipe;
    recipe = NULL;
    return 0;
}

int recipe_again(const struct recipe *recipe, const char *options, struct recipe *const *inputs,
                 struct recipe **ret_recipe)
{
    return recipe_step(recipe->kind, inputs[0], options, recipe->input_count - 1, inputs + 1,
                       recipe->names ? (const char *const *)recipe->names + 1 : NULL,
                       recipe->constants, recipe->constant_count, ret_recipe);
}

/* Find out whether an option includes a file, which compilers put before the source. */
static int recipe_includes_first(const char *options, bool *ret_includes)
{
    size_t cursor = 0;
    struct option option;
    int found;
    bool includes = false;
    while ((found = option_next(options, &cursor, &option)) > 0) {
        includes = includes || option.kind == OPTION_INCLUDE;
        free(option.argument);
    }
    *ret_includes = includes;
    return found;
}

static int recipe_source_prefixed(const struct recipe *source, const char *text,
                                  struct recipe **ret_recipe)
{
    size_t mark = text_mark(source->bytes, source->size);
    const char *texts[] = {text, source->bytes + mark};
    const size_t sizes[] = {strlen(text), source->size - mark};
    return recipe_source(source->size ? 2 : 1, texts, sizes, ret_recipe);
}

/* Make the step with @text before the sources that it compiles. The headers of a compilation are
 * included in its source, so they get none. */
static int recipe_step_prefixed(const struct recipe *recipe, const char *text,
                                struct recipe **inputs, struct recipe **ret_recipe)
{
    struct recipe *CLEANUP(recipe_unref_pointer) step = NULL;
    int err = 0;
    for (uint32_t i = 0; !err && i < recipe->input_count; i++)
        if (recipe->kind != RECIPE_COMPILED || i == 0)
            err = recipe_prefixed(recipe->inputs[i], text, &inputs[i]);
        else
            inputs[i] = recipe_ref(recipe->inputs[i]);
    if (!err)
        err = recipe_again(recipe, recipe->options, inputs, &step);
    if (!err)
        err = headers_copy(recipe->headers, &step->headers);
    if (err)
        return err;
    *ret_recipe = step;
    step = NULL;
    return 0;
}

int recipe_prefixed(struct recipe *recipe, const char *text, struct recipe **ret_recipe)
{
    bool includes;
    if (recipe->kind == RECIPE_SOURCE)
        return recipe_source_prefixed(recipe, text, ret_recipe);
    if (recipe->kind == RECIPE_IL)
        return -ENOTSUP;
    int err = recipe_includes_first(recipe->options, &includes);
    if (err || includes)
        return err ? err : -ENOTSUP;
    struct recipe **inputs = calloc(recipe->input_count, sizeof(struct recipe *));
    if (!inputs)
        return -ENOMEM;
    err = recipe_step_prefixed(recipe, text, inputs, ret_recipe);
    for (uint32_t i = 0; i < recipe->input_count; i++)
        recipe_unref(inputs[i]);
    free(inputs);
    return err;
}

bool recipe_is_of_source(const struct recipe *recipe)
{
    return (recipe->kind == RECIPE_COMPILED || recipe->kind == RECIPE_BUILT) &&
           recipe->inputs[0]->kind == RECIPE_SOURCE;
}

int recipe_keep_headers(struct recipe *recipe)
{
    return headers_read(recipe, &recipe->headers);
}

bool recipe_headers_hold(const struct recipe *recipe)
{
    struct headers *now;
    if (recipe->headers && recipe->headers->partial)
        return true;
    if (headers_read(recipe, &now) != 0)
        return false;
    bool same = headers_same(recipe->headers, now);
    headers_free(now);
    return same;
}

const struct recipe *recipe_origin(const struct recipe *recipe)
{
    while (recipe->kind == RECIPE_COMPILED || recipe->kind == RECIPE_BUILT)
        recipe = recipe->inputs[0];
    return recipe->kind == RECIPE_LINKED ? NULL : recipe;
}

const struct recipe *recipe_executed(const struct recipe *recipe)
{
    while (recipe->kind == RECIPE_BUILT &&
           recipe_binary_type(recipe->inputs[0]) == CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
        recipe = recipe->inputs[0];
    return recipe;
}

cl_program_binary_type recipe_binary_type(const struct recipe *recipe)
{
    switch (recipe->kind) {
    case RECIPE_COMPILED:
        return CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT;
    case RECIPE_LINKED:
        return devinfo_names_have(recipe->options, "-create-library")
                   ? CL_PROGRAM_BINARY_TYPE_LIBRARY
                   : CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
    case RECIPE_BUILT:
        return CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
    default:
        return CL_PROGRAM_BINARY_TYPE_NONE;
    }
}

static bool recipe_strings_same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool recipe_same(const struct recipe *a, const struct recipe *b)
{
    if (a == b)
        return true;
    if (a->kind != b->kind || a->input_count != b->input_count ||
        a->constant_count != b->constant_count || a->bytes || b->bytes ||
        !recipe_strings_same(a->options, b->options) || !headers_same(a->headers, b->headers))
        return false;
    for (uint32_t i = 0; i < a->input_count; i++)
        if (!recipe_same(a->inputs[i], b->inputs[i]) ||
            (a->names && !recipe_strings_same(a->names[i], b->names[i])))
            return false;
    for (uint32_t i = 0; i < a->constant_count; i++)
        if (a->constants[i].id != b->constants[i].id ||
            a->constants[i].size != b->constants[i].size ||
            memcmp(a->constants[i].bytes, b->constants[i].bytes, a->constants[i].size) != 0)
            return false;
    return true;
}

bool recipe_asks_for_new_language(const struct recipe *recipe)
{
    return options_standard(recipe->options) >= CL_MAKE_VERSION(2, 0, 0);
}

bool recipe_may_keep_variables(const struct recipe *recipe)
{
    bool may = recipe->kind == RECIPE_IL || recipe_asks_for_new_language(recipe);
    for (uint32_t i = 0; i < recipe->input_count && !may; i++)
        may = recipe_may_keep_variables(recipe->inputs[i]);
    return may;
}

bool recipe_tells_parameters(const struct recipe *recipe)
{
    bool tells = recipe->kind == RECIPE_IL ||
                 (recipe->options && strstr(recipe->options, "-cl-kernel-arg-info"));
    for (uint32_t i = 0; i < recipe->input_count && !tells; i++)
        tells = recipe_tells_parameters(recipe->inputs[i]);
    return tells;
}

/* ---- hashing ---- */

/* Copy @options with one blank between words and none around them, unless quotes or backslashes
 * give blanks a meaning. Owned by the caller (free()); NULL without memory. */
static char *recipe_hash_plain_options(const char *options)
{
    if (strpbrk(options, "\"'\\"))
        return strdup(options);
    char *plain = malloc(strlen(options) + 1), *to = plain;
    for (const char *at = options; plain && *at; at++)
        if (!isspace((unsigned char)*at))
            *to++ = *at;
        else if (to != plain && to[-1] != ' ')
            *to++ = ' ';
    if (plain) {
        to -= to != plain && to[-1] == ' ';
        *to = '\0';
    }
    return plain;
}

/* True for a source that expands differently at each build. A false alarm only costs a build. */
static bool recipe_hash_tells_time(const char *bytes, size_t size)
{
    static const char *const names[] = {"__DATE__", "__TIME__", "__TIMESTAMP__"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (memmem(bytes, size, names[i], strlen(names[i])))
            return true;
    return false;
}

static int recipe_hash_leaf(const struct recipe *recipe, const char *prologue,
                            struct content_hash *hash)
{
    if (recipe->kind == RECIPE_SOURCE) {
        if (recipe_hash_tells_time(recipe->bytes, recipe->size))
            return -ENOTSUP;
        content_hash_string(hash, prologue);
    }
    content_hash_bytes(hash, recipe->bytes, recipe->size);
    return 0;
}

static int recipe_hash_headers(const struct headers *headers, struct content_hash *hash)
{
    content_hash_number(hash, headers ? headers->count : 0);
    for (uint32_t i = 0; headers && i < headers->count; i++) {
        const struct header *header = &headers->list[i];
        content_hash_string(hash, header->path);
        content_hash_number(hash, header->same);
        if (header->same != i)
            continue;
        if (recipe_hash_tells_time(header->bytes, header->size))
            return -ENOTSUP;
        content_hash_bytes(hash, header->bytes, header->size);
    }
    return headers && headers->partial ? -ENOTSUP : 0;
}

int recipe_hash(const struct recipe *recipe, const char *prologue, struct content_hash *hash)
{
    content_hash_number(hash, recipe->kind);
    if (recipe->kind == RECIPE_SOURCE || recipe->kind == RECIPE_IL)
        return recipe_hash_leaf(recipe, prologue, hash);
    char *CLEANUP(cleanup_free) options = recipe_hash_plain_options(recipe->options);
    if (!options)
        return -ENOMEM;
    content_hash_string(hash, options);
    content_hash_number(hash, recipe->constant_count);
    for (uint32_t i = 0; i < recipe->constant_count; i++) {
        content_hash_number(hash, recipe->constants[i].id);
        content_hash_bytes(hash, recipe->constants[i].bytes, recipe->constants[i].size);
    }
    content_hash_number(hash, recipe->input_count);
    for (uint32_t i = 0; i < recipe->input_count; i++) {
        content_hash_string(hash, recipe->names && recipe->names[i] ? recipe->names[i] : "");
        int err = recipe_hash(recipe->inputs[i], prologue, hash);
        if (err)
            return err;
    }
    return recipe_hash_headers(recipe->headers, hash);
}
