#include "state/program/kernel_traits.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "state/program/kernel_source.h"

/* True for types such as "float4", which no declaration defines. */
static bool variables_is_builtin_type(struct token token)
{
    static const char *const types[] = {"bool", "char",     "uchar",  "short", "ushort", "int",
                                        "uint", "long",     "ulong",  "half",  "float",  "double",
                                        "void", "unsigned", "signed", "size_t"};
    while (token.length > 0 && isdigit((unsigned char)token.text[token.length - 1]))
        token.length--;
    return IS_ONE_OF(token, types);
}

static bool variables_is_qualifier(struct token token)
{
    static const char *const words[] = {"volatile",   "__volatile", "__volatile__", "restrict",
                                        "__restrict", "private",    "__private",    "inline",
                                        "__inline",   "local",      "__local",      "__inline__"};
    return IS_ONE_OF(token, words);
}

/* What was read of a declaration so far. */
struct declaration {
    unsigned names; /* the name of its type and the declared name: 0 to 2 of them were read */
    bool global, constant, other, function, pointer;
    bool elsewhere; /* "extern" without a value */
    bool tag;       /* the last word was "struct", or the name behind it */
    bool named;     /* the last word was a name */
};

struct reading {
    struct kernel_source source;
    bool new_language;
    struct declaration declaration; /* the current one */
};

/* True for a macro that may end a declaration. */
static bool variables_may_end(const struct kernel_source *s, struct token token)
{
    bool may = false;
    size_t u = token_is_name(token) ? kernel_source_find(s, token) : s->unit_count;
    for (; u < s->unit_count && token_same(s->units[u].name, token); u++)
        may = may || (s->units[u].ends && !s->units[u].open);
    return may;
}

/* The index of the next "," or ";" outside brackets, or of a macro that may make one. */
static size_t variables_behind_value(const struct kernel_source *s, size_t at, size_t end)
{
    while (at < end && !token_is(s->tokens[at], ",") && !token_is(s->tokens[at], ";") &&
           !variables_may_end(s, s->tokens[at])) {
        at = token_is(s->tokens[at], "(")   ? kernel_source_behind(s, at, end, "(", ")")
             : token_is(s->tokens[at], "{") ? kernel_source_behind(s, at, end, "{", "}")
             : token_is(s->tokens[at], "[") ? kernel_source_behind(s, at, end, "[", "]")
                                            : at + 1;
    }
    return at;
}

/* True for a word that only some branches of an #if put before a declaration which all have:
 * without it, the declaration may be of a variable. */
static bool variables_is_optional(const struct kernel_source *s, size_t at)
{
    static const char *const words[] = {"typedef",    "extern", "constant",
                                        "__constant", "const",  "__const"};
    if (!IS_ONE_OF(s->tokens[at], words))
        return false;
    size_t end = kernel_source_branch_end(s, at);
    return end < s->count && variables_behind_value(s, at, end) >= end;
}

static void variables_note(struct reading *r, size_t at)
{
    static const char *const others[] = {"typedef",   "kernel", "__kernel",
                                         "sampler_t", "using",  "_Static_assert"};
    /* Older languages have static variables in functions alone: a macro made the brackets. */
    static const char *const globals[] = {"global", "__global", "static"};
    static const char *const constants[] = {"constant", "__constant", "const", "__const"};
    static const char *const tags[] = {"struct", "union", "enum"};
    struct declaration *d = &r->declaration;
    struct token token = r->source.tokens[at];
    bool tagged = d->tag && d->named;
    d->named = false;
    if (variables_is_optional(&r->source, at)) {
        d->tag = false;
        return;
    }
    if (IS_ONE_OF(token, others)) {
        d->other = true;
    } else if (token_is(token, "extern")) {
        d->elsewhere = true;
    } else if (IS_ONE_OF(token, globals)) {
        d->global = true;
    } else if (IS_ONE_OF(token, constants)) {
        d->constant = true;
    } else if (token_is(token, "*")) {
        d->pointer = true;
        d->constant = false; /* "const" was about what it points to */
    } else if (IS_ONE_OF(token, tags)) {
        d->tag = true;
        d->names++;
        return;
    } else if (variables_is_builtin_type(token)) {
        d->names += d->names == 0;
    } else if (token_is_name(token) && !variables_is_qualifier(token)) {
        d->names += !d->tag || tagged; /* the name behind "struct" does not count */
        d->named = true;
        if (d->tag && !tagged)
            return;
    }
    d->tag = false;
}

/* @new_language: variables are global unless they say otherwise; before, that was an error. */
static bool variables_is_variable(const struct declaration *d, bool new_language)
{
    return !d->other && !d->elsewhere && !d->function && !d->constant && d->names > 1 &&
           (d->global || new_language);
}

/* Depth to which macros in macros are read. */
#define DEPTH_MAX 16

/* True when the brackets at @at contain a declared name or pointer: "(*p)". */
static bool variables_is_declarator(const struct kernel_source *s, size_t at, size_t behind)
{
    bool alone = behind - at == 3 && token_is_name(s->tokens[at + 1]) &&
                 !variables_is_builtin_type(s->tokens[at + 1]);
    return alone || (at + 1 < behind && token_is(s->tokens[at + 1], "*"));
}

static bool variables_range_keeps(struct reading *r, size_t at, size_t end, unsigned depth);

/* True for "static", and for a macro that has it: its words may be any part of a declaration. */
static bool variables_is_static(const struct kernel_source *s, struct token token)
{
    bool is = token_is(token, "static");
    size_t u = token_is_name(token) && !is ? kernel_source_find(s, token) : s->unit_count;
    for (; u < s->unit_count && token_same(s->units[u].name, token); u++)
        is = is || (s->units[u].statics && !s->units[u].open);
    return is;
}

/* True when there is a static variable, which lives as long as the program, in a function's body,
 * or among the arguments of a macro that makes one: there a declaration ends with its argument. */
static bool variables_body_keeps(struct reading *r, size_t at, size_t end, bool arguments,
                                 unsigned depth)
{
    static const char *const borders[] = {";", "{", "}", "(", ")", ":"};
    const struct kernel_source *s = &r->source;
    const bool new_language = r->new_language;
    for (size_t begin = at; at < end; at++) {
        begin = at > begin && IS_ONE_OF(s->tokens[at - 1], borders) ? at : begin;
        if (!variables_is_static(s, s->tokens[at]))
            continue;
        if (depth == DEPTH_MAX)
            return true;
        at = variables_behind_value(s, at + 1, end);
        while (!arguments && at < end && token_is(s->tokens[at], ","))
            at = variables_behind_value(s, at + 1, end);
        r->declaration = (struct declaration){0};
        r->new_language = true;
        bool found = variables_range_keeps(r, begin, at, depth + 1) ||
                     variables_is_variable(&r->declaration, true);
        r->new_language = new_language;
        if (found)
            return true;
    }
    return false;
}

/* Join what two definitions of a macro make of a declaration: only one is used. */
static void variables_join(struct declaration *d, const struct declaration *other)
{
    d->names = d->names > other->names ? d->names : other->names;
    d->global = d->global || other->global;
    d->constant = d->constant && other->constant;
    d->other = d->other && other->other;
    d->function = d->function && other->function;
    d->pointer = d->pointer || other->pointer;
    d->elsewhere = d->elsewhere && other->elsewhere;
}

/* Read the words of the macros at @u, which have one name; 0, or 1 when one of them keeps
 * something. Of its own definitions each is another way to read the declaration; the names that
 * they paste together come behind. */
static bool variables_macros_keep(struct reading *r, size_t u, bool pasted, unsigned depth)
{
    const struct kernel_source *s = &r->source;
    const struct token name = s->units[u].name;
    const struct declaration before = r->declaration;
    bool first = true;
    for (; u < s->unit_count && token_same(s->units[u].name, name); u++) {
        struct unit *unit = &s->units[u];
        if (!unit->macro || unit->open || unit->pasted != pasted)
            continue; /* compilers do not expand a macro in its own words either */
        const struct declaration joined = r->declaration;
        r->declaration = pasted ? joined : before;
        unit->open = true;
        bool found = variables_range_keeps(r, unit->body, unit->end, depth + 1);
        unit->open = false;
        if (found)
            return true;
        if (!first && !pasted)
            variables_join(&r->declaration, &joined);
        first = false;
    }
    return false;
}

/* Read the name at @at; in place of a macro read its words, and behind them its arguments. */
static bool variables_name_keeps(struct reading *r, size_t *at, size_t end, unsigned depth)
{
    const struct kernel_source *s = &r->source;
    struct token token = s->tokens[*at];
    const size_t first = token_is_name(token) ? kernel_source_find(s, token) : s->unit_count;
    bool macro = false, takes = false;
    for (size_t u = first; u < s->unit_count && token_same(s->units[u].name, token); u++)
        if (s->units[u].macro && !s->units[u].open && depth < DEPTH_MAX) {
            macro = true;
            takes = takes || s->units[u].body > s->units[u].first;
        }
    if (!macro)
        variables_note(r, *at);
    else if (variables_macros_keep(r, first, false, depth) ||
             variables_macros_keep(r, first, true, depth))
        return true;
    ++*at;
    if (!takes || *at == end || !token_is(s->tokens[*at], "("))
        return false;
    size_t behind = kernel_source_behind(s, *at, end, "(", ")");
    const struct declaration before = r->declaration;
    if (variables_body_keeps(r, *at, behind, true, depth)) /* may be for a function */
        return true;
    r->declaration = before;
    for (; *at < behind; (*at)++)
        variables_note(r, *at);
    return false;
}

/* Brackets at @at: a function's parameters, if a type and a name precede; else a part of the
 * declared name. Returns the index behind them. */
static size_t variables_past_brackets(struct reading *r, size_t at, size_t end)
{
    struct declaration *d = &r->declaration;
    size_t behind = kernel_source_behind(&r->source, at, end, "(", ")");
    bool function = d->named && d->names > 1;
    bool declares = !function && variables_is_declarator(&r->source, at, behind);
    d->function = d->function || function;
    d->names += declares;
    d->named = declares;
    return behind;
}

/* True when a variable is declared between @at and @end, or in a function there. @at is outside all
 * functions. */
static bool variables_range_keeps(struct reading *r, size_t at, size_t end, unsigned depth)
{
    const struct kernel_source *s = &r->source;
    struct declaration *d = &r->declaration;
    while (at < end) {
        struct token token = s->tokens[at];
        bool ends = token_is(token, ";"), parts = token_is(token, ",");
        const struct declaration type = {
            .names = 1,
            .global = d->global,
            .constant = d->constant && !d->pointer,
            .other = d->other,
            .elsewhere = d->elsewhere,
        };
        if (token_is_attribute(token)) {
            at = kernel_source_behind(s, at + 1, end, "(", ")");
        } else if (token_is(token, "(")) {
            at = variables_past_brackets(r, at, end);
        } else if (token_is(token, "[")) {
            at = kernel_source_behind(s, at, end, "[", "]");
        } else if (token_is(token, "=")) {
            d->elsewhere = false; /* a value makes it a definition */
            at = variables_behind_value(s, at, end);
        } else if (token_is(token, "{")) {
            size_t behind = kernel_source_behind(s, at, end, "{", "}");
            bool data = d->tag;
            if (!data && variables_body_keeps(r, at, behind, false, depth))
                return true;
            *d = data ? type : (struct declaration){0};
            at = behind;
        } else if (token_is(token, "}")) {
            *d = (struct declaration){0}; /* the branches of an #if do not fit together */
            at++;
        } else if (ends || parts) {
            if (variables_is_variable(d, r->new_language))
                return true;
            *d = type; /* for the next name of the declaration */
            if (ends)
                *d = (struct declaration){0};
            at++;
        } else if (variables_name_keeps(r, &at, end, depth)) {
            return true;
        }
    }
    return false;
}

/* 1: the source has variables that outlive a launch; 0 or -ENOMEM. */
static int variables_source_keeps(const struct recipe *recipe, bool new_language)
{
    struct reading r = {.new_language = new_language};
    int found = kernel_source_read(recipe, &r.source);
    if (found == 0)
        found = r.source.disguised && new_language; /* any of its words may declare one */
    for (size_t i = 0; found == 0 && i < r.source.text_count; i++) {
        r.declaration = (struct declaration){0};
        found = variables_range_keeps(&r, r.source.texts[i].first, r.source.texts[i].end, 0);
    }
    kernel_source_finish(&r.source);
    return found;
}

#define SPIRV_MAGIC           0x07230203u
#define SPIRV_HEADER          5 /* words */
#define SPIRV_VARIABLE        59
#define SPIRV_CROSS_WORKGROUP 5

static uint32_t variables_word_at(const struct recipe *il, size_t at, bool swapped)
{
    uint32_t word;
    memcpy(&word, il->bytes + at * sizeof(word), sizeof(word));
    return swapped ? __builtin_bswap32(word) : word;
}

static bool variables_il_keeps(const struct recipe *il)
{
    size_t count = il->size / sizeof(uint32_t);
    if (count < SPIRV_HEADER)
        return false;
    bool swapped = variables_word_at(il, 0, false) != SPIRV_MAGIC;
    for (size_t at = SPIRV_HEADER; at < count;) {
        uint32_t first = variables_word_at(il, at, swapped), length = first >> 16;
        if (length == 0 || length > count - at)
            return false;
        if ((first & 0xffff) == SPIRV_VARIABLE && length > 3 &&
            variables_word_at(il, at + 3, swapped) == SPIRV_CROSS_WORKGROUP)
            return true;
        at += length;
    }
    return false;
}

/* @new_language: a step above was done with options that ask for OpenCL C 2.0 or newer. */
static int variables_keeps(const struct recipe *recipe, bool new_language)
{
    int found = 0;
    if (recipe->kind == RECIPE_IL)
        return variables_il_keeps(recipe);
    new_language = new_language || recipe_asks_for_new_language(recipe);
    if (recipe->kind == RECIPE_SOURCE || recipe_is_of_source(recipe))
        return variables_source_keeps(recipe, new_language);
    for (uint32_t i = 0; i < recipe->input_count && found == 0; i++)
        found = variables_keeps(recipe->inputs[i], new_language);
    return found;
}

int recipe_variables(const struct recipe *recipe)
{
    return variables_keeps(recipe, false);
}
