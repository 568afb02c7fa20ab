#ifndef RESEAT_STATE_PROGRAM_SOURCE_FACTS_H
#define RESEAT_STATE_PROGRAM_SOURCE_FACTS_H

#include "state/program/kernel_traits.h"

/*
 * What was found by reading a program's source. It is kept in the library's entry of the program,
 * so that the next start does not read the source again. What another version of the reading code
 * wrote is not used.
 */

struct source_facts {
    struct recipe *recipe; /**< The program's; a reference. */
    bool keeps_variables;  /**< recipe_keeps_variables(). */
    uint32_t count;
    char **names;                 /**< Names of the kernels. Owned. */
    struct kernel_traits *traits; /**< Owned. */
};

/** Read the source. @names: those of the kernels, separated by ";". NULL without memory. */
struct source_facts *source_facts_read(const struct recipe *recipe, const char *names);
void source_facts_free(struct source_facts *facts); /**< NULL is allowed. */
/** True when @facts (or NULL) were found for @recipe (or NULL). */
bool source_facts_are_of(const struct source_facts *facts, const struct recipe *recipe);
/** The traits of kernel @name, or NULL. @facts may be NULL. Borrowed. */
const struct kernel_traits *source_facts_find(const struct source_facts *facts, const char *name);

/** Pack for a file. Owned by the caller (free()). NULL: too many kernels, or no memory. */
void *source_facts_pack(const struct source_facts *facts, size_t *ret_size);
/** Read what source_facts_pack() of this version wrote for @recipe; nothing in @bytes is trusted.
 * NULL on failure. */
struct source_facts *source_facts_unpack(const struct recipe *recipe, const void *bytes,
                                         size_t size);

#endif
