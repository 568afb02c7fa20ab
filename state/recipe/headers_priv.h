#ifndef RESEAT_STATE_RECIPE_HEADERS_PRIV_H
#define RESEAT_STATE_RECIPE_HEADERS_PRIV_H

#include "state/recipe/headers.h"
#include "state/recipe/preprocess.h"
#include "state/recipe/recipe.h"

/** A text that includes: the recipe's inputs, and what the walk comes to. */
struct walk_text {
    const char *folder; /**< Of the file, with its slash; length below. NULL: no file. */
    size_t folder_length;
    struct directives directives;
};

/** A walk over all that a step may include. */
struct walk {
    const struct recipe *recipe;
    struct headers *headers;
    bool fixed; /**< The headers are those kept: the disk is not asked. */
    char **folders;
    size_t folder_count;
    char **forced; /**< Of -include. */
    size_t forced_count;
    struct macros macros;
    struct walk_text *texts; /**< The inputs, and one for each header; of those that are the same as
                                  another it is empty. */
    size_t text_count;
    bool unsure;             /**< Which file a name means depends on the driver. */
    size_t directive_count;  /**< Of all texts. */
    struct walk_file *files; /**< Of what was found on the disk. */
};

#define WALK_NONE     (-1)
#define WALK_EMBEDDED (-2) /**< A header program that the program named. */

/** 0, -ENOMEM or -E2BIG (beyond a limit). walk_finish() in any case. */
MUST_CHECK int walk_all(struct walk *walk);
void walk_finish(struct walk *walk);
/**
 * The index of what @name means in @text, or one of the above.
 * @next  As in struct directive.
 */
MUST_CHECK int walk_resolve(struct walk *walk, const struct walk_text *text,
                            const struct header_name *name, bool next, int *ret_index);

#endif
