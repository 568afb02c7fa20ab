#include "state/program/variables.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "state/base/compiler.h"

struct reader {
    const char *at, *end;
    bool line_start; /* only white space since the line began */
};

static void skip_until(struct reader *r, const char *mark)
{
    size_t length = strlen(mark);
    while (r->at < r->end &&
           ((size_t)(r->end - r->at) < length || memcmp(r->at, mark, length) != 0))
        r->at++;
    r->at = (size_t)(r->end - r->at) >= length ? r->at + length : r->end;
}

/* A directive ends with the line that does not end in a backslash. */
static void skip_directive(struct reader *r)
{
    do
        skip_until(r, "\n");
    while (r->at < r->end && r->at[-2] == '\\');
}

static void skip_quoted(struct reader *r)
{
    char quote = *r->at++;
    while (r->at < r->end && *r->at != quote)
        r->at += *r->at == '\\' && r->at + 1 < r->end ? 2 : 1;
    if (r->at < r->end)
        r->at++;
}

/* White space, comments, directives and quoted text. */
static void skip_blank(struct reader *r)
{
    while (r->at < r->end) {
        size_t left = (size_t)(r->end - r->at);
        if (isspace((unsigned char)*r->at)) {
            r->line_start = r->line_start || *r->at == '\n';
            r->at++;
        } else if (left > 1 && r->at[0] == '/' && r->at[1] == '/') {
            skip_until(r, "\n");
            r->line_start = true;
        } else if (left > 1 && r->at[0] == '/' && r->at[1] == '*') {
            skip_until(r, "*/");
        } else if (*r->at == '#' && r->line_start) {
            skip_directive(r);
        } else if (*r->at == '"' || *r->at == '\'') {
            skip_quoted(r);
        } else {
            return;
        }
    }
}

struct token {
    const char *text;
    size_t length; /* 0 at the end */
};

static struct token next_token(struct reader *r)
{
    skip_blank(r);
    struct token token = {r->at, 0};
    r->line_start = false;
    while (r->at < r->end && (isalnum((unsigned char)*r->at) || *r->at == '_'))
        r->at++;
    if (r->at == token.text && r->at < r->end)
        r->at++;
    token.length = (size_t)(r->at - token.text);
    return token;
}

static bool token_is(struct token token, const char *word)
{
    return token.length == strlen(word) && memcmp(token.text, word, token.length) == 0;
}

/* "float4" and the like: a declaration that begins with one declares an object or a function. */
static bool is_builtin_type(struct token token)
{
    static const char *const types[] = {"bool",  "char",   "uchar",    "short",  "ushort",
                                        "int",   "uint",   "long",     "ulong",  "half",
                                        "float", "double", "unsigned", "signed", "size_t"};
    size_t length = token.length;
    if (length > 7 && memcmp(token.text, "atomic_", 7) == 0)
        return true;
    while (length > 0 && isdigit((unsigned char)token.text[length - 1]))
        length--;
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (length == strlen(types[i]) && memcmp(token.text, types[i], length) == 0)
            return true;
    return false;
}

/* What a declaration outside functions, or a static one inside, has said so far. */
struct declaration {
    bool begun, type_first, global, constant, is_const, pointer, other, function, initialised;
};

static void note(struct declaration *d, struct token token)
{
    static const char *const others[] = {"typedef", "extern", "kernel", "__kernel", "sampler_t"};
    bool first = !d->begun;
    d->begun = true;
    if (d->initialised)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        d->other = d->other || token_is(token, others[i]);
    bool is_static = token_is(token, "static") || token_is(token, "volatile");
    d->begun = d->begun && !(first && is_static); /* the type is what comes next */
    d->type_first = d->type_first || (first && is_builtin_type(token));
    d->global = d->global || token_is(token, "global") || token_is(token, "__global");
    d->constant = d->constant || token_is(token, "constant") || token_is(token, "__constant");
    d->is_const = d->is_const || token_is(token, "const");
    d->pointer = d->pointer || token_is(token, "*");
    d->initialised = token_is(token, "=");
}

static bool is_variable(const struct declaration *d, bool new_language)
{
    if (d->other || d->function || d->constant || (d->is_const && !d->pointer))
        return false;
    return d->global || (new_language && d->type_first);
}

/* Past the bracket that closes the one just read. */
static void skip_brackets(struct reader *r, const char *open, const char *close)
{
    for (unsigned depth = 1; depth > 0;) {
        struct token token = next_token(r);
        if (token.length == 0)
            return;
        depth += token_is(token, open);
        depth -= token_is(token, close);
    }
}

/* A function's body, after its brace: what is static in it lives as long as the program. */
static bool body_keeps(struct reader *r)
{
    for (unsigned depth = 1; depth > 0;) {
        struct token token = next_token(r);
        struct declaration d = {0};
        if (token.length == 0)
            return false;
        depth += token_is(token, "{");
        depth -= token_is(token, "}");
        if (!token_is(token, "static"))
            continue;
        for (token = next_token(r); token.length && !token_is(token, ";"); token = next_token(r))
            note(&d, token);
        if (!d.constant && (!d.is_const || d.pointer))
            return true;
    }
    return false;
}

static bool source_keeps(const char *bytes, size_t size, bool new_language)
{
    struct reader reader = {bytes, bytes + size, true};
    struct declaration d = {0};
    bool attribute = false;
    for (;;) {
        struct token token = next_token(&reader);
        if (token.length == 0)
            return false;
        if (token_is(token, "(")) {
            d.function = d.function || (!attribute && !d.initialised);
            skip_brackets(&reader, "(", ")");
        } else if (token_is(token, "{") && d.function) {
            if (body_keeps(&reader))
                return true;
            d = (struct declaration){0};
        } else if (token_is(token, "{")) {
            skip_brackets(&reader, "{", "}"); /* of a struct, or values */
        } else if (token_is(token, ";")) {
            if (is_variable(&d, new_language))
                return true;
            d = (struct declaration){0};
        } else {
            note(&d, token);
        }
        attribute = token_is(token, "__attribute__");
    }
}

#define SPIRV_MAGIC           0x07230203u
#define SPIRV_HEADER          5 /* words */
#define SPIRV_VARIABLE        59
#define SPIRV_CROSS_WORKGROUP 5

static uint32_t word_at(const struct recipe *il, size_t at, bool swapped)
{
    uint32_t word;
    memcpy(&word, il->bytes + at * sizeof(word), sizeof(word));
    return swapped ? __builtin_bswap32(word) : word;
}

static bool il_keeps(const struct recipe *il)
{
    size_t count = il->size / sizeof(uint32_t);
    if (count < SPIRV_HEADER)
        return false;
    bool swapped = word_at(il, 0, false) != SPIRV_MAGIC;
    for (size_t at = SPIRV_HEADER; at < count;) {
        uint32_t first = word_at(il, at, swapped), length = first >> 16;
        if (length == 0 || length > count - at)
            return false;
        if ((first & 0xffff) == SPIRV_VARIABLE && length > 3 &&
            word_at(il, at + 3, swapped) == SPIRV_CROSS_WORKGROUP)
            return true;
        at += length;
    }
    return false;
}

/* @new_language: a step above was done with options that ask for OpenCL C 2.0 or newer. */
static bool keeps(const struct recipe *recipe, bool new_language)
{
    if (recipe->kind == RECIPE_SOURCE)
        return source_keeps(recipe->bytes, recipe->size, new_language);
    if (recipe->kind == RECIPE_IL)
        return il_keeps(recipe);
    new_language = new_language || recipe_asks_for_new_language(recipe);
    for (uint32_t i = 0; i < recipe->input_count; i++)
        if (keeps(recipe->inputs[i], new_language))
            return true;
    for (uint32_t i = 0; recipe->headers && i < recipe->headers->count; i++)
        if (recipe->headers->list[i].bytes &&
            source_keeps(recipe->headers->list[i].bytes, recipe->headers->list[i].size,
                         new_language))
            return true;
    return false;
}

bool recipe_keeps_variables(const struct recipe *recipe)
{
    return keeps(recipe, false);
}
