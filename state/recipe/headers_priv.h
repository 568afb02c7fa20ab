#ifndef RESEAT_STATE_RECIPE_HEADERS_PRIV_H
#define RESEAT_STATE_RECIPE_HEADERS_PRIV_H

#include "state/recipe/headers.h"
#include "state/recipe/preprocess.h"
#include "state/recipe/recipe.h"

/** A text with include directives: an input of the recipe, or a header that was found. */
struct walk_text {
    const char *folder; /**< The file's folder with its slash; length below. NULL: not a file. */
    size_t folder_length;
    struct directives directives;
};

/** A walk over everything that a step may include. */
struct walk {
    const struct recipe *recipe;
    struct headers *headers;
    bool fixed; /**< Use only the headers that were kept: the disk is not read. */
    char **folders;
    size_t folder_count;
    char **forced; /**< Names of -include options. */
    size_t forced_count;
    struct directives options; /**< Definitions of the options. */
    struct walk_text *texts; /**< The inputs, and one for each header; of those that are the same as
                                  another it is empty. */
    size_t text_count;
    bool unsure;             /**< True when it depends on the driver which file a name means. */
    size_t directive_count;  /**< Number of directives in all texts. */
    size_t steps;            /**< Definitions that were compared with names. */
    struct walk_file *files; /**< Files that were found on the disk. */
};

#define WALK_NONE     (-1)
#define WALK_EMBEDDED (-2) /**< A header program that the program named. */

/** 0, -ENOMEM or -E2BIG (beyond a limit). walk_finish() in any case. */
MUST_CHECK int walk_all(struct walk *walk);
void walk_finish(struct walk *walk);
/**
 * The index of the header that @directive of @from means, or one of the values above. Where macros
 * make several of it, it is WALK_NONE and the walk unsure.
 * 0, -ENOMEM or -E2BIG.
 */
MUST_CHECK int walk_directive(struct walk *walk, const struct walk_text *from,
                              const struct directive *directive, int *ret_index);
/**
 * The index of the header that @name means in @text, or one of the values above.
 * @next  As in struct directive.
 */
MUST_CHECK int walk_resolve(struct walk *walk, const struct walk_text *text,
                            const struct header_name *name, bool next, int *ret_index);

#endif
