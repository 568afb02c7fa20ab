#ifndef RESEAT_STATE_PROGRAM_KERNEL_SOURCE_H
#define RESEAT_STATE_PROGRAM_KERNEL_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "state/recipe/preprocess.h"
#include "state/recipe/recipe.h"

/*
 * All source of a program as words, and which of them are which function's or macro's. Conditions
 * are not evaluated: it is read as it stands, whichever branch of one it is in. Where that does not
 * tell what a compiler sees, it is said so.
 */

struct token {
    const char *text;
    size_t length;
};

bool token_is(struct token token, const char *word);
bool token_begins(struct token token, const char *word);
bool token_same(struct token a, struct token b);
bool token_is_one_of(struct token token, const char *const *words, size_t count);
#define IS_ONE_OF(token, words) token_is_one_of(token, words, ARRAY_SIZE(words))
/** Of letters and digits, rather than a sign. */
bool token_is_word(struct token token);
/** A word that begins with no digit. */
bool token_is_name(struct token token);
bool token_is_attribute(struct token token);

/** A function with its parameters, or a macro's definition. */
struct unit {
    struct token name;
    size_t first, body, end; /**< Tokens; @body: behind the parameters. */
    bool macro, kernel;
    bool option;           /**< A macro that a build option defines, in front of all text. */
    bool last;             /**< A function: no other name stands between this one and its body. */
    bool loops;            /**< A macro: what stands behind it may be its loop's body. */
    bool braces;           /**< A macro: it may make a function, or a part of one. */
    bool open, recurses;   /**< In the walk from one kernel... */
    bool seen, seen_loops; /**< ...the second: from inside a loop. */
};

struct source_text {
    struct directives directives; /**< Its tokens point into that. */
    size_t first, end;            /**< Tokens, but for those of its macros. */
};

struct kernel_source {
    struct source_text *texts;
    size_t text_count;
    struct token *tokens;
    size_t count;
    struct unit *units; /**< By name. */
    size_t unit_count;
    struct token *outside; /**< Names outside of all functions. */
    size_t outside_count;
    struct token *asked; /**< Names in conditions, and those that are undefined. */
    size_t asked_count;
    const char *unread; /**< Why it cannot be read, in words; static. NULL: it can. */
    bool generates;     /**< Macros make functions, or their names. */
    bool broken;        /**< Functions could not be told from one another. */
};

/** 0 or -ENOMEM. The caller finishes it in any case. */
MUST_CHECK int kernel_source_read(const struct recipe *recipe, struct kernel_source *ret_source);
void kernel_source_finish(struct kernel_source *source);
/** The first unit of that name, unit_count where there is none; others of the name follow it. */
size_t kernel_source_find(const struct kernel_source *source, struct token name);
/** Has any macro that name? @with_braces: one that may make a function, or a part of one. */
bool kernel_source_is_macro(const struct kernel_source *source, struct token name,
                            bool with_braces);
/** Behind the bracket that closes the one at @at; @end where none does. */
size_t kernel_source_behind(const struct kernel_source *source, size_t at, size_t end,
                            const char *open, const char *close);

/**
 * The names that "##" makes in the macros of @source, as further definitions of these macros, one a
 * line.
 *
 * @ret_text  The caller's (free()), on failure as well; NULL before.
 * Returns 0, -ENOMEM, or -ENOTSUP where what is pasted is not known.
 */
MUST_CHECK int kernel_paste(const struct kernel_source *source, char **ret_text, size_t *ret_size);

#endif
