#ifndef RESEAT_STATE_RECIPE_PREPROCESS_H
#define RESEAT_STATE_RECIPE_PREPROCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "state/base/compiler.h"

/*
 * As much of C's preprocessor as finding what a text includes takes. Conditions are not evaluated:
 * every directive counts, whichever branch it is in, and a macro has all its definitions at once.
 */

enum directive_kind {
    DIRECTIVE_INCLUDE, /**< Also of __has_include. */
    DIRECTIVE_DEFINE,
};

struct directive {
    enum directive_kind kind;
    size_t at, end; /**< Of the header's name with its quotes or brackets, of the tokens that make
                         one, or of the definition, in the text. */
    bool next;      /**< The search goes on behind the folder that the text was found in. */
};

/** A text and what it directs. */
struct directives {
    char *clean; /**< As long as the text, with blanks for comments and joined lines. Owned. */
    size_t size;
    struct directive *list; /**< In the text's order. Owned. */
    size_t count;
};

/** Bytes of a mark of UTF-8 that a text begins with: compilers pass over it there, and refuse it
 *  behind other text. 0 without. */
size_t text_mark(const char *text, size_t size);
/** 0 or -ENOMEM. */
MUST_CHECK int directives_read(const char *text, size_t size, struct directives *ret_directives);
void directives_finish(struct directives *directives);

struct macro {
    char *name;
    char *parameters; /**< "x,y"; NULL: not like a function. */
    char *body;
    size_t next; /**< Of its chain, plus one; 0: the last. */
};

#define MACRO_CHAINS 1024

struct macros {
    struct macro *list;
    size_t count;
    struct {
        size_t first, last; /**< Plus one; 0: none. */
    } chains[MACRO_CHAINS]; /**< By name, each in the order of definition. */
    unsigned most;          /**< Definitions of one name. */
};

/**
 * Add a definition: "NAME body" or "NAME(x,y) body". What is none is ignored.
 * @ret_new  Set to true when it was not known; else left alone.
 * 0 or -ENOMEM.
 */
MUST_CHECK int macros_define(struct macros *macros, const char *text, size_t size, bool *ret_new);
void macros_finish(struct macros *macros);
/** As many as the macro with the most definitions has, at least 1, at most 16. */
unsigned macros_choices(const struct macros *macros);

/** A header's name as a directive says it. */
struct header_name {
    char text[4096];
    bool quoted; /**< "..." and not <...>. */
};

/**
 * The name that @text makes, of the @choice-th definition of every macro (the last, where there are
 * not as many). False where it makes none.
 */
bool header_name_read(const struct macros *macros, unsigned choice, const char *text, size_t size,
                      struct header_name *ret_name);
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
