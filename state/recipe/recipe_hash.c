#include "state/recipe/recipe_hash.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"

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
