#ifndef RESEAT_STATE_PROGRAM_KERNEL_SOURCE_H
#define RESEAT_STATE_PROGRAM_KERNEL_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "state/recipe/preprocess.h"
#include "state/recipe/recipe.h"

/*
 * The source of a program as tokens, and which of them belong to which function or macro.
 * Conditions (#if) are not evaluated: the text of all branches is read. Where that does not show
 * what a compiler sees, `unread` says why.
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
/** True for letters and digits, false for a sign. */
bool token_is_word(struct token token);
/** True for a word that does not begin with a digit. */
bool token_is_name(struct token token);
bool token_is_attribute(struct token token);

/** A function with its parameters, or a macro's definition. */
struct unit {
    struct token name;
    size_t first, body, end; /**< Tokens; @body: behind the parameters. */
    bool macro, kernel;
    bool option;          /**< A macro that a build option defines. */
    bool pasted;          /**< Not a definition of its own: names that one pastes together. */
    bool last;            /**< A function: no other name stands between this one and its body. */
    bool loops;           /**< A macro: the text behind a use of it may be the body of its loop. */
    bool braces;          /**< A macro: it may make a function, or a part of one. */
    bool statics;         /**< A macro: it may declare a static variable. */
    bool ends;            /**< A macro: it has ";". */
    bool quotes;          /**< A macro: it has "#". */
    bool quotes_expanded; /**< A macro: it uses one with "#", which gets what macros stand for. */
    bool open, recurses;  /**< In the walk from one kernel: it is being visited; it calls itself. */
    bool seen, seen_loops; /**< It was visited; it was visited from inside a loop. */
};

struct source_text {
    struct directives directives; /**< The tokens point into this. */
    size_t first, end;            /**< Its tokens without those of its macros. */
};

/** Where a branch of an #if begins or ends. */
struct source_branch {
    size_t before; /**< The token behind it. */
    int opens; /**< 1: #if; 0: #else and the like, which end one and begin another; -1: #endif. */
    size_t
        outer;  /**< Index plus one of where the branch around that #if begins; 0: there is none. */
    size_t end; /**< Index of where the branch that begins here ends; 0: nowhere. */
};

struct kernel_source {
    struct source_text *texts;
    size_t text_count;
    struct source_branch *branches; /**< By token. */
    size_t branch_count;
    struct token *tokens;
    size_t count;
    struct unit *units; /**< By name. */
    size_t unit_count;
    struct token *outside; /**< Names outside all functions. */
    size_t outside_count;
    struct token *asked; /**< Names in conditions and in #undef. */
    size_t asked_count;
    const char *unread; /**< Why it cannot be read: static text; NULL: it can. */
    bool disguised;     /**< Some of its words and signs are not spelled out: they are not read. */
    bool generates;     /**< Macros make functions, or the names of functions. */
    bool broken;        /**< The functions could not be told apart. */
};

/** 0 or -ENOMEM. The caller calls kernel_source_finish() in either case. */
MUST_CHECK int kernel_source_read(const struct recipe *recipe, struct kernel_source *ret_source);
void kernel_source_finish(struct kernel_source *source);
/** Index of the first unit of that name; others of the name follow it. unit_count: none. */
size_t kernel_source_find(const struct kernel_source *source, struct token name);
/** True when a macro has that name. @with_braces: count only macros with `braces`. */
bool kernel_source_is_macro(const struct kernel_source *source, struct token name,
                            bool with_braces);
/** Index behind the bracket that closes the one at @at; @end if none does. */
size_t kernel_source_behind(const struct kernel_source *source, size_t at, size_t end,
                            const char *open, const char *close);

/** Index behind the branch of an #if that the token at @at is in; the end of all tokens: it is in
 * none. */
size_t kernel_source_branch_end(const struct kernel_source *source, size_t at);

/**
 * Find the names that "##" makes in the macros of @source. They are returned as further definitions
 * of these macros, one a line.
 *
 * @ret_text  NULL before. Owned by the caller (free()), also on failure.
 * Returns 0, -ENOMEM, or -ENOTSUP: some operands of "##" are not known.
 */
MUST_CHECK int kernel_paste(const struct kernel_source *source, char **ret_text, size_t *ret_size);

#endif
