#ifndef RESEAT_STATE_RECIPE_PREPROCESS_H
#define RESEAT_STATE_RECIPE_PREPROCESS_H

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"

/*
 * The part of C's preprocessor that is needed to find what a text includes. Conditions are not
 * evaluated: every directive counts, in whatever branch, and a macro has all of its definitions at
 * once.
 */

static inline bool preprocess_is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static inline bool preprocess_is_blank(char c)
{
    return c != '\n' && isspace((unsigned char)c);
}

static inline const char *preprocess_skip_blanks(const char *at, const char *end)
{
    while (at < end && preprocess_is_blank(*at))
        at++;
    return at;
}

/** Length of a line continuation at @at, or 0. Compilers accept blanks between backslash and line
 * end. */
size_t preprocess_joins(const char *at, const char *end);
/** True when a word is continued on the next line. */
bool preprocess_splits(const char *text, size_t size);

enum directive_kind {
    DIRECTIVE_INCLUDE, /**< Also of __has_include. */
    DIRECTIVE_DEFINE,
};

struct directive {
    enum directive_kind kind;
    size_t at, end; /**< Range in the text: of the header's name with its quotes or brackets, of the
                       tokens that make one, or of the definition. */
    bool next; /**< #include_next: the search continues after the folder that the text was found in.
                */
};

/** A text and its directives. */
struct directives {
    char *clean; /**< As long as the text, with blanks for comments and joined lines: those in the
                    middle of a word or a name are behind it. Owned. */
    size_t size;
    struct directive *list; /**< In the text's order. Owned. */
    size_t count;
};

/** Length of a UTF-8 byte order mark at the begin of a text, or 0: compilers skip it there, and
 * reject it after other text. */
size_t text_mark(const char *text, size_t size);
/** 0 or -ENOMEM. */
MUST_CHECK int directives_read(const char *text, size_t size, struct directives *ret_directives);
void directives_finish(struct directives *directives);

/** A header's name in a directive. */
struct header_name {
    char text[4096];
    bool quoted; /**< "..." and not <...>. */
};

/** The name that @text begins with; false if it begins with none. */
bool header_name_take(const char *text, size_t size, struct header_name *ret_name);
/** True when the name needs no macro. */
bool header_name_is_literal(const char *text, size_t size);

/** A word of a compiler's options, with its argument. */
enum option_kind { OPTION_OTHER, OPTION_FOLDER, OPTION_INCLUDE, OPTION_DEFINE };
struct option {
    enum option_kind kind;
    size_t at, end; /**< The whole of it in the text. */
    char *argument; /**< Without its quotes; NULL: none. Owned. */
};
/**
 * @cursor  0 at first.
 * @ret_option  The caller frees its argument.
 * 1, 0 at the end, or -ENOMEM.
 */
MUST_CHECK int option_next(const char *options, size_t *cursor, struct option *ret_option);

#endif
