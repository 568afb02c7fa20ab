#include "state/program/kernel_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The names that "a##b" in a macro makes are found from the arguments of all calls of the macro.
 * Each argument has to be one word, a macro of one word, or a parameter of another macro. Otherwise
 * the names are not known, and no launch of the program is cut.
 */
#define PASTED_MAX 256
#define VALUES_MAX 64
#define CALLS_DEEP 16
/* Most words looked at for one program: that takes about 0.1 s. */
#define LOOKED_MAX ((size_t)1 << 26)

/* An index of all words of a source, to find the calls of a macro without reading it again. */
struct pasting {
    const struct kernel_source *s;
    uint32_t *first;  /* for each hash: index of the first word that has it, plus one; 0: none */
    uint32_t *next;   /* for each word: index of the next with its hash, plus one; 0: none */
    uint32_t *around; /* for each word: index of the macro that it defines, plus one; 0: none */
    size_t mask;      /* of hashes */
    size_t looked;
};

struct values {
    struct token list[VALUES_MAX];
    size_t count;
    bool unknown;
};

static size_t kernel_paste_hash(struct token token)
{
    size_t hash = token.length;
    for (size_t i = 0; i < token.length; i++)
        hash = hash * 31 + (unsigned char)token.text[i];
    return hash;
}

static void kernel_paste_finish(struct pasting *p)
{
    free(p->first);
    free(p->next);
    free(p->around);
}

/* 0, -ENOMEM or -ENOTSUP: too long. */
static int kernel_paste_begin(const struct kernel_source *s, struct pasting *ret_pasting)
{
    struct pasting p = {.s = s, .mask = 1};
    if (s->count >= UINT32_MAX)
        return -ENOTSUP;
    while (p.mask < s->count)
        p.mask = 2 * p.mask + 1;
    p.first = calloc(p.mask + 1, sizeof(*p.first));
    p.next = calloc(s->count + 1, sizeof(*p.next));
    p.around = calloc(s->count + 1, sizeof(*p.around));
    if (!p.first || !p.next || !p.around) {
        kernel_paste_finish(&p);
        return -ENOMEM;
    }
    for (size_t i = s->count; i-- > 0;) {
        uint32_t *first = &p.first[kernel_paste_hash(s->tokens[i]) & p.mask];
        p.next[i] = *first;
        *first = (uint32_t)i + 1;
    }
    for (size_t u = 0; u < s->unit_count; u++)
        for (size_t i = s->units[u].first - 1; s->units[u].macro && i < s->units[u].end; i++)
            p.around[i] = (uint32_t)u + 1;
    *ret_pasting = p;
    return 0;
}

static void kernel_paste_add_value(struct values *values, struct token token)
{
    for (size_t i = 0; i < values->count; i++)
        if (token_same(values->list[i], token))
            return;
    values->unknown = values->unknown || values->count == VALUES_MAX ||
                      (token.length > 0 && !token_is_word(token));
    if (!values->unknown)
        values->list[values->count++] = token;
}

/* The index of @macro's parameter @name, or -1. Unknown for macros with a variable number. */
static int kernel_paste_parameter_of(const struct kernel_source *s, const struct unit *macro,
                                     struct token name, struct values *values)
{
    int index = 0, found = -1;
    for (size_t i = macro->first; i < macro->body; i++) {
        values->unknown = values->unknown || token_is(s->tokens[i], ".");
        if (token_same(s->tokens[i], name))
            found = index;
        index += token_is(s->tokens[i], ",");
    }
    return found;
}

/* The macro in whose definition @at is, or NULL. */
static const struct unit *kernel_paste_macro_around(const struct pasting *p, size_t at)
{
    return p->around[at] ? &p->s->units[p->around[at] - 1] : NULL;
}

static void kernel_paste_add_parameter(struct pasting *p, const struct unit *macro, int index,
                                       unsigned depth, struct values *values);

/* Add a word that a macro is called with, and what it stands for. */
static void kernel_paste_add_word(const struct kernel_source *s, struct token token, unsigned depth,
                                  struct values *values)
{
    kernel_paste_add_value(values, token);
    size_t u = token_is_name(token) ? kernel_source_find(s, token) : s->unit_count;
    for (; u < s->unit_count && token_same(s->units[u].name, token); u++) {
        const struct unit *macro = &s->units[u];
        size_t size = macro->end - macro->body;
        if (!macro->macro || macro->body != macro->first)
            continue;
        values->unknown = values->unknown || size > 1 || depth == CALLS_DEEP;
        if (size == 0)
            kernel_paste_add_value(values, (struct token){"", 0});
        else if (!values->unknown)
            kernel_paste_add_word(s, s->tokens[macro->body], depth + 1, values);
    }
}

/* Add argument @index of the call at @at. */
static void kernel_paste_add_argument(struct pasting *p, size_t at, int index, unsigned depth,
                                      struct values *values)
{
    const struct kernel_source *s = p->s;
    const struct unit *around = kernel_paste_macro_around(p, at);
    size_t end = around ? around->end : s->count;
    size_t close = kernel_source_behind(s, at + 1, end, "(", ")") - 1, first = at + 2, open = 0;
    p->looked += close - at;
    if (at + 1 >= end || !token_is(s->tokens[at + 1], "(") || !token_is(s->tokens[close], ")")) {
        values->unknown = true;
        return;
    }
    for (size_t i = first; i < close && index > 0; i++) {
        open += token_is(s->tokens[i], "(");
        open -= token_is(s->tokens[i], ")");
        if (open == 0 && token_is(s->tokens[i], ",")) {
            index--;
            first = i + 1;
        }
    }
    bool ends = first >= close || token_is(s->tokens[first], ",");
    bool single = !ends && (first + 1 == close || token_is(s->tokens[first + 1], ","));
    values->unknown = values->unknown || index > 0 || (!ends && !single);
    if (values->unknown)
        return;
    int outer =
        single && around ? kernel_paste_parameter_of(s, around, s->tokens[first], values) : -1;
    if (outer >= 0)
        kernel_paste_add_parameter(p, around, outer, depth + 1, values);
    else if (single)
        kernel_paste_add_word(s, s->tokens[first], depth, values);
    else
        kernel_paste_add_value(values, (struct token){"", 0});
}

/* Add all values of a parameter of @macro. */
static void kernel_paste_add_parameter(struct pasting *p, const struct unit *macro, int index,
                                       unsigned depth, struct values *values)
{
    values->unknown = values->unknown || depth == CALLS_DEEP;
    for (uint32_t i = p->first[kernel_paste_hash(macro->name) & p->mask]; i && !values->unknown;
         i = p->next[i - 1]) {
        const struct unit *around = kernel_paste_macro_around(p, i - 1);
        values->unknown = ++p->looked > LOOKED_MAX;
        /* Skip the definition. */
        if (!values->unknown && token_same(p->s->tokens[i - 1], macro->name) &&
            (!around || i != around->first))
            kernel_paste_add_argument(p, i - 1, index, depth, values);
    }
}

/* The index behind the tokens that "##" joins from @at on. */
static size_t kernel_paste_end(const struct kernel_source *s, size_t at, size_t end)
{
    while (at + 2 < end && token_is(s->tokens[at + 1], "##"))
        at += 2;
    return at + 1;
}

/* Append each value of the part at @at to each of @words, which are separated by blanks. 0,
 * -ENOMEM, or -ENOTSUP: the values are not known. */
static int kernel_paste_part(struct pasting *p, const struct unit *macro, size_t at, char **words)
{
    const struct kernel_source *s = p->s;
    struct values values = {0};
    int index = kernel_paste_parameter_of(s, macro, s->tokens[at], &values);
    if (index >= 0)
        kernel_paste_add_parameter(p, macro, index, 0, &values);
    else
        kernel_paste_add_value(&values, s->tokens[at]);
    size_t size = 0, count = 0;
    char *text = NULL;
    FILE *out = values.unknown ? NULL : open_memstream(&text, &size);
    for (const char *word = *words, *next; out && word; word = next ? next + 1 : NULL) {
        next = strchr(word, ' ');
        for (size_t v = 0; v < values.count; v++, count++)
            fprintf(out, "%s%.*s%.*s", count ? " " : "", (int)strcspn(word, " "), word,
                    (int)values.list[v].length, values.list[v].text);
    }
    int err = out && fclose(out) == 0 && text ? 0 : values.unknown ? -ENOTSUP : -ENOMEM;
    if (!err && count > PASTED_MAX)
        err = -ENOTSUP;
    free(*words);
    *words = err ? NULL : text;
    if (err)
        free(text);
    return err;
}

/* True when one of @words is a macro with parameters: what it becomes is not seen. */
static bool kernel_paste_makes_calls(const struct kernel_source *s, const char *words)
{
    bool any = false;
    while (*words && !any) {
        const struct token word = {words, strcspn(words, " ")};
        size_t u = kernel_source_find(s, word);
        for (; u < s->unit_count && token_same(s->units[u].name, word); u++)
            any = any || (s->units[u].macro && s->units[u].body != s->units[u].first);
        words += word.length + (words[word.length] == ' ');
    }
    return any;
}

/* Write to @out a further definition of @macro, with all words that it pastes. */
static int kernel_paste_in(struct pasting *p, const struct unit *macro, FILE *out)
{
    const struct kernel_source *s = p->s;
    int err = 0;
    for (size_t i = macro->body; !err && i < macro->end; i++) {
        size_t end = kernel_paste_end(s, i, macro->end);
        char *words = end > i + 1 ? strdup("") : NULL;
        if (token_is(s->tokens[i], "##"))
            err = -ENOTSUP;
        if (end == i + 1 || err) {
            free(words);
            continue;
        }
        err = words ? 0 : -ENOMEM;
        for (size_t at = i; !err && at < end; at += 2)
            err = kernel_paste_part(p, macro, at, &words);
        if (!err && kernel_paste_makes_calls(s, words))
            err = -ENOTSUP;
        if (!err)
            fprintf(out, "#define %.*s %s\n", (int)macro->name.length, macro->name.text, words);
        free(words);
        i = end - 1;
    }
    return err;
}

int kernel_paste(const struct kernel_source *s, char **ret_text, size_t *ret_size)
{
    struct pasting p;
    int err = kernel_paste_begin(s, &p);
    if (err)
        return err;
    FILE *out = open_memstream(ret_text, ret_size);
    for (size_t u = 0; out && u < s->unit_count && !err; u++)
        if (s->units[u].macro)
            err = kernel_paste_in(&p, &s->units[u], out);
    kernel_paste_finish(&p);
    return !out || fclose(out) != 0 || !*ret_text ? -ENOMEM : err;
}
