#ifndef RESEAT_STATE_PROGRAM_SOURCE_FACTS_H
#define RESEAT_STATE_PROGRAM_SOURCE_FACTS_H

#include "state/program/kernel_traits.h"

/*
 * All that reading a program's source says, for the library's entry of the program: the next start
 * does not read the source again. It is bound to the code that read: what another version of it
 * wrote is not believed.
 */

struct source_facts {
    struct recipe *recipe; /**< Of what; a reference. */
    bool keeps_variables;  /**< recipe_keeps_variables(). */
    uint32_t count;
    char **names;                 /**< Owned; of the kernels. */
    struct kernel_traits *traits; /**< Owned. */
};

/** Read the source. @names: of the kernels, with ";" between. NULL without memory. */
struct source_facts *source_facts_read(const struct recipe *recipe, const char *names);
void source_facts_free(struct source_facts *facts); /**< NULL is allowed. */
/** False of NULL. */
bool source_facts_are_of(const struct source_facts *facts, const struct recipe *recipe);
/** What it says of that kernel; NULL: nothing, or no @facts. Borrowed. */
const struct kernel_traits *source_facts_find(const struct source_facts *facts, const char *name);

/** The bytes: free(). NULL where there are too many kernels, or without memory. */
void *source_facts_pack(const struct source_facts *facts, size_t *ret_size);
/** What source_facts_pack() of this version wrote of @recipe, or NULL; nothing in @bytes is
 * trusted.
 */
struct source_facts *source_facts_unpack(const struct recipe *recipe, const void *bytes,
                                         size_t size);

#endif
