#include "state/program/source_facts.h"

#include <errno.h>
#include <msgpack.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/bytes/schema.h"
#include "state/base/cleanup.h"
#include "state/program/source_reader.h" /* generated: a digest of the code that reads source */

#define KERNELS_MAX 4096
#define REASON_MAX  255
/* Nested arrays in the file: the struct, its list, and the structs in that. */
#define DEPTH 3

/* As they are in the file. */
struct stored_kernel {
    char *name, *whole, *stays; /* "": no reason */
    uint32_t places, loops, even;
};
struct stored_facts {
    char reader[sizeof(SOURCE_READER)];
    uint32_t keeps_variables;
    struct stored_kernel *kernels;
    uint32_t count;
};

static const struct schema_field kernel_fields[] = {
    {SCHEMA_TEXT(stored_kernel, name, SCHEMA_TEXT_MAX)},
    {SCHEMA_TEXT(stored_kernel, whole, REASON_MAX)},
    {SCHEMA_TEXT(stored_kernel, stays, REASON_MAX)},
    {SCHEMA_NUMBER(stored_kernel, places, 1)},
    {SCHEMA_NUMBER(stored_kernel, loops, 1)},
    {SCHEMA_NUMBER(stored_kernel, even, 1)},
    {NULL},
};
static const struct schema kernel_schema = {sizeof(struct stored_kernel), kernel_fields, NULL};

static const struct schema_field facts_fields[] = {
    {SCHEMA_CHARS(stored_facts, reader)},
    {SCHEMA_NUMBER(stored_facts, keeps_variables, 1)},
    {SCHEMA_LIST(stored_facts, kernels, count, KERNELS_MAX, &kernel_schema)},
    {NULL},
};

static const char *source_facts_check(const void *body)
{
    const struct stored_facts *stored = body;
    return strcmp(stored->reader, SOURCE_READER) == 0 ? NULL : "another version read the source";
}
static const struct schema facts_schema = {sizeof(struct stored_facts), facts_fields,
                                           source_facts_check};

void source_facts_free(struct source_facts *facts)
{
    for (uint32_t i = 0; facts && i < facts->count; i++)
        free(facts->names[i]);
    if (facts) {
        recipe_unref(facts->recipe);
        free(facts->names);
        free(facts->traits);
    }
    free(facts);
}

static struct source_facts *source_facts_new(const struct recipe *recipe, size_t count)
{
    struct source_facts *facts = calloc(1, sizeof(*facts));
    if (!facts)
        return NULL;
    facts->recipe = recipe_ref(recipe);
    facts->names = calloc(count ? count : 1, sizeof(*facts->names));
    facts->traits = calloc(count ? count : 1, sizeof(*facts->traits));
    if (facts->names && facts->traits)
        return facts;
    source_facts_free(facts);
    return NULL;
}

struct source_facts *source_facts_read(const struct recipe *recipe, const char *names)
{
    size_t count = 1;
    for (const char *at = names; *at; at++)
        count += *at == ';';
    struct source_facts *facts = source_facts_new(recipe, count);
    while (facts && *names) {
        size_t length = strcspn(names, ";");
        char *name = strndup(names, length);
        if (!name) {
            source_facts_free(facts);
            return NULL;
        }
        facts->names[facts->count++] = name;
        names += length + (names[length] == ';');
    }
    int variables = facts ? recipe_variables(recipe) : -ENOMEM;
    if (variables < 0 ||
        kernel_traits_read_all(recipe, facts->count, (const char *const *)facts->names,
                               facts->traits) != 0) {
        source_facts_free(facts);
        return NULL;
    }
    facts->keeps_variables = variables > 0;
    return facts;
}

bool source_facts_are_of(const struct source_facts *facts, const struct recipe *recipe)
{
    return facts && recipe && recipe_executed(recipe) == recipe_executed(facts->recipe);
}

const struct kernel_traits *source_facts_find(const struct source_facts *facts, const char *name)
{
    for (uint32_t i = 0; facts && i < facts->count; i++)
        if (strcmp(facts->names[i], name) == 0)
            return &facts->traits[i];
    return NULL;
}

void *source_facts_pack(const struct source_facts *facts, size_t *ret_size)
{
    struct stored_facts stored = {
        .reader = SOURCE_READER, .keeps_variables = facts->keeps_variables, .count = facts->count};
    msgpack_sbuffer buffer;
    msgpack_packer packer;
    void *bytes = NULL;
    if (facts->count > KERNELS_MAX)
        return NULL;
    struct stored_kernel *CLEANUP(cleanup_free) kernels =
        calloc(facts->count ? facts->count : 1, sizeof(*kernels));
    if (!kernels)
        return NULL;
    stored.kernels = kernels;
    for (uint32_t i = 0; i < facts->count; i++) {
        const struct kernel_traits *traits = &facts->traits[i];
        kernels[i] =
            (struct stored_kernel){.name = facts->names[i],
                                   .whole = (char *)(uintptr_t)(traits->whole ? traits->whole : ""),
                                   .stays = (char *)(uintptr_t)(traits->stays ? traits->stays : ""),
                                   .places = traits->asks_position,
                                   .loops = traits->loops,
                                   .even = traits->even};
    }
    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    if (schema_put(&packer, &facts_schema, &stored, false) == 0) {
        *ret_size = buffer.size;
        bytes = msgpack_sbuffer_release(&buffer);
    }
    msgpack_sbuffer_destroy(&buffer);
    return bytes;
}

/* The static string that is equal to the reason @text, which came from a file: reasons live as long
 * as the process. There are about forty; a file with many more is not ours. */
static bool source_facts_reason(const char *text, const char **ret_reason)
{
    static char *_Atomic reasons[128];
    *ret_reason = NULL;
    if (!*text)
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
        char *there = atomic_load(&reasons[i]), *copy;
        if (!there && (copy = strdup(text)) != NULL) {
            if (atomic_compare_exchange_strong(&reasons[i], &there, copy))
                there = copy;
            else
                free(copy);
        }
        if (there && strcmp(there, text) == 0) {
            *ret_reason = there;
            return true;
        }
    }
    return false;
}

static struct source_facts *source_facts_take(const struct recipe *recipe,
                                              struct stored_facts *stored)
{
    struct source_facts *facts = source_facts_new(recipe, stored->count);
    bool whole = facts != NULL;
    for (uint32_t i = 0; whole && i < stored->count; i++) {
        struct stored_kernel *from = &stored->kernels[i];
        struct kernel_traits *traits = &facts->traits[i];
        whole = source_facts_reason(from->whole, &traits->whole) &&
                source_facts_reason(from->stays, &traits->stays);
        traits->asks_position = from->places;
        traits->loops = from->loops;
        traits->even = from->even;
        facts->names[facts->count++] = from->name;
        from->name = NULL;
    }
    if (!whole) {
        source_facts_free(facts);
        return NULL;
    }
    facts->keeps_variables = stored->keeps_variables;
    return facts;
}

struct source_facts *source_facts_unpack(const struct recipe *recipe, const void *bytes,
                                         size_t size)
{
    msgpack_unpacked CLEANUP(msgpack_unpacked_destroy) unpacked;
    struct stored_facts stored = {0};
    struct schema_problem problem;
    struct source_facts *facts = NULL;
    int err = schema_unpack(bytes, size, DEPTH, &unpacked);
    if (!err)
        err = schema_take(&unpacked.data, &facts_schema, &stored, false, &problem);
    if (!err)
        facts = source_facts_take(recipe, &stored);
    schema_finish(&facts_schema, &stored);
    return facts;
}
