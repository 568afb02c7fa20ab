#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "state/recipe/headers_priv.h"

/*
 * Names of headers that macros make, as in hashcat's `#include M2S(INCLUDE_PATH/inc_types.h)`. All
 * definitions of a macro are tried: which one counts depends on conditions, which are not
 * evaluated. Arguments are always expanded before they are quoted (`#`), and what `##` makes is not
 * read.
 */

#define CHOICES_MAX   16
#define EXPANSION_MAX 8192
#define REPLACED_MAX  256               /* Macros replaced in one expansion. */
#define STEPS_MAX     ((size_t)1 << 27) /* Definitions compared: less than a second. */

struct span {
    const char *at, *end;
};

struct macro {
    bool called; /* It is function-like. */
    struct span parameters, body;
};

/* An expansion with the @choice-th definition of each macro, or its last. */
struct expansion {
    struct walk *walk;
    unsigned choice;
    bool failed; /* It grows too long, takes too many steps, or pastes. */
    bool more;   /* A macro has further definitions. */
    char bytes[EXPANSION_MAX], before[EXPANSION_MAX];
    size_t length;
};

static struct span headers_macro_trim(const char *at, const char *end)
{
    at = preprocess_skip_blanks(at, end);
    while (end > at && preprocess_is_blank(end[-1]))
        end--;
    return (struct span){at, end};
}

/* The next token: a word, a literal, or a character. */
static struct span headers_macro_token(const char *at, const char *end)
{
    const char *behind = at;
    if (*at == '"' || *at == '\'') {
        for (behind++; behind < end && *behind != *at; behind++)
            behind += *behind == '\\' && end - behind > 1;
        return (struct span){at, behind < end ? behind + 1 : end};
    }
    while (behind < end && preprocess_is_word(*behind))
        behind++;
    return (struct span){at, behind == at ? at + 1 : behind};
}

/* The @n-th of the items between commas, from 0 on; false if there are fewer. */
static bool headers_macro_item(struct span list, unsigned n, struct span *ret_item)
{
    const char *start = list.at;
    unsigned depth = 0;
    for (const char *at = list.at;; at = headers_macro_token(at, list.end).end) {
        bool ends = at == list.end;
        if ((ends || (*at == ',' && depth == 0)) && n == 0) {
            *ret_item = headers_macro_trim(start, at);
            return true;
        }
        if (ends)
            return false;
        if (*at == ',' && depth == 0) {
            n--;
            start = at + 1;
        }
        depth += *at == '(';
        depth -= *at == ')';
    }
}

/* The bracket that closes the one at @at; NULL: none. */
static const char *headers_macro_close(const char *at, const char *end)
{
    for (unsigned depth = 0; at < end; at = headers_macro_token(at, end).end) {
        depth += *at == '(';
        if (*at == ')' && --depth == 0)
            return at;
    }
    return NULL;
}

static bool headers_macro_same(struct span a, struct span b)
{
    return a.end - a.at == b.end - b.at && memcmp(a.at, b.at, (size_t)(a.end - a.at)) == 0;
}

/* Read the definition "NAME body" or "NAME(x,y) body"; false for another name. */
static bool headers_macro_read(struct span text, struct span name, struct macro *ret_macro)
{
    const char *at = headers_macro_token(text.at, text.end).end, *close = at;
    if (!headers_macro_same((struct span){text.at, at}, name))
        return false;
    bool called = at < text.end && *at == '(';
    if (called && !(close = headers_macro_close(at, text.end)))
        return false;
    *ret_macro =
        (struct macro){called, {at + called, close}, headers_macro_trim(close + called, text.end)};
    return true;
}

static bool headers_macro_find(struct expansion *e, struct span name, struct macro *ret_macro)
{
    const struct walk *walk = e->walk;
    unsigned seen = 0;
    for (size_t t = 0; t <= walk->text_count; t++) {
        const struct directives *of = t ? &walk->texts[t - 1].directives : &walk->options;
        e->walk->steps += of->count;
        for (size_t i = 0; i < of->count; i++) {
            const struct directive *directive = &of->list[i];
            const struct span text = {of->clean + directive->at, of->clean + directive->end};
            struct macro macro;
            if (directive->kind != DIRECTIVE_DEFINE || directive->at == directive->end ||
                !headers_macro_read(text, name, &macro))
                continue;
            if (seen++ > e->choice) {
                e->more = true;
                return true;
            }
            *ret_macro = macro;
        }
    }
    e->failed = e->failed || walk->steps > STEPS_MAX;
    return seen > 0;
}

static void headers_macro_put(struct expansion *e, const char *at, const char *end)
{
    size_t size = (size_t)(end - at);
    e->failed = e->failed || size > EXPANSION_MAX - e->length;
    if (e->failed)
        return;
    memcpy(e->bytes + e->length, at, size);
    e->length += size;
}

/* Write the argument for the parameter @word; false if it is none. */
static bool headers_macro_put_argument(struct expansion *e, const struct macro *macro,
                                       struct span arguments, struct span word, bool quoted)
{
    static const char signs[] = "\"\\";
    struct span name, argument;
    unsigned n = 0;
    while (headers_macro_item(macro->parameters, n, &name) && !headers_macro_same(name, word))
        n++;
    if (!headers_macro_item(macro->parameters, n, &name) ||
        !headers_macro_item(arguments, n, &argument))
        return false;
    if (!quoted) {
        headers_macro_put(e, argument.at, argument.end);
        return true;
    }
    headers_macro_put(e, signs, signs + 1);
    for (const char *at = argument.at; at < argument.end; at++) {
        if (strchr(signs, *at))
            headers_macro_put(e, signs + 1, signs + 2);
        headers_macro_put(e, at, at + 1);
    }
    headers_macro_put(e, signs, signs + 1);
    return true;
}

/* Write @macro's body with its arguments in place. */
static void headers_macro_put_body(struct expansion *e, const struct macro *macro,
                                   struct span arguments)
{
    const char *at = macro->body.at, *end = macro->body.end;
    while (at < end) {
        bool quoted = *at == '#';
        const char *operand = quoted ? preprocess_skip_blanks(at + 1, end) : at;
        struct span token = headers_macro_token(at, end);
        if (operand < end && *operand == '#' && quoted)
            e->walk->unsure = e->failed = true;
        struct span word = operand < end ? headers_macro_token(operand, end) : token;
        if (preprocess_is_word(*word.at) &&
            headers_macro_put_argument(e, macro, arguments, word, quoted))
            token = word;
        else
            headers_macro_put(e, token.at, token.end);
        at = token.end;
    }
}

/* Replace the last macro, so that arguments are expanded before what they are given to. False when
 * there is none. */
static bool headers_macro_replace(struct expansion *e)
{
    const char *end = e->before + e->length;
    struct span found = {NULL, NULL}, arguments = {NULL, NULL};
    struct macro macro = {0}, one;
    memcpy(e->before, e->bytes, e->length);
    for (const char *at = e->before; at < end && !e->failed;) {
        struct span token = headers_macro_token(at, end);
        at = token.end;
        if (!preprocess_is_word(*token.at) || !headers_macro_find(e, token, &one))
            continue;
        const char *open = preprocess_skip_blanks(at, end),
                   *close = open < end && *open == '(' ? headers_macro_close(open, end) : NULL;
        if (one.called && !close)
            continue;
        macro = one;
        found = (struct span){token.at, one.called ? close + 1 : token.end};
        arguments = one.called ? (struct span){open + 1, close} : found;
    }
    if (!found.at || e->failed)
        return false;
    e->length = (size_t)(found.at - e->before);
    headers_macro_put_body(e, &macro, arguments);
    headers_macro_put(e, found.end, end);
    return true;
}

static bool headers_macro_expand(struct expansion *e, const char *at, const char *end,
                                 struct header_name *ret_name)
{
    e->more = e->failed = false;
    e->length = 0;
    headers_macro_put(e, at, end);
    for (unsigned replaced = 0; headers_macro_replace(e); replaced++)
        e->failed = e->failed || replaced == REPLACED_MAX;
    return !e->failed && header_name_take(e->bytes, e->length, ret_name);
}

int walk_directive(struct walk *walk, const struct walk_text *from,
                   const struct directive *directive, int *ret_index)
{
    const char *at = from->directives.clean + directive->at;
    const char *end = from->directives.clean + directive->end;
    struct header_name name;
    int only = WALK_NONE, err = 0;
    bool several = false;
    *ret_index = WALK_NONE;
    if (header_name_is_literal(at, (size_t)(end - at)))
        return header_name_take(at, (size_t)(end - at), &name)
                   ? walk_resolve(walk, from, &name, directive->next, ret_index)
                   : 0;
    struct expansion *e = malloc(sizeof(*e));
    if (!e)
        return -ENOMEM;
    *e = (struct expansion){.walk = walk, .more = true};
    for (; !err && e->more && e->choice < CHOICES_MAX; e->choice++) {
        int index = WALK_NONE;
        if (headers_macro_expand(e, at, end, &name))
            err = walk_resolve(walk, from, &name, directive->next, &index);
        else if (walk->steps > STEPS_MAX)
            err = -E2BIG;
        index = index >= 0 ? (int)walk->headers->list[index].same : index;
        several = several || (only != WALK_NONE && index != WALK_NONE && index != only);
        only = index != WALK_NONE ? index : only;
    }
    free(e);
    walk->unsure = walk->unsure || several;
    *ret_index = several ? WALK_NONE : only;
    return err;
}
