#include "state/recipe/preprocess.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"

#define CHOICES_MAX    16
#define ARGUMENTS_MAX  16
#define EXPANSION_MAX  8192
#define EXPANSION_DEEP 16
#define STEPS_MAX      20000

static bool preprocess_is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool preprocess_is_blank(char c)
{
    return c != '\n' && isspace((unsigned char)c);
}

/* Length of a line continuation at @at, or 0. Compilers accept blanks between backslash and line
 * end. */
static size_t preprocess_joins(const char *at, const char *end)
{
    if (at == end || *at != '\\')
        return 0;
    const char *behind = at + 1;
    while (behind < end && preprocess_is_blank(*behind))
        behind++;
    return behind < end && *behind == '\n' ? (size_t)(behind + 1 - at) : 0;
}

/* End of the name that begins at @at, after its closing quote or bracket; NULL for anything else.
 * It does not leave its line. */
static const char *preprocess_name_end(const char *at, const char *end)
{
    char closing = at < end && *at == '"' ? '"' : at < end && *at == '<' ? '>' : '\0';
    if (!closing)
        return NULL;
    for (at++; at < end && *at != '\n'; at++)
        if (*at == closing)
            return at + 1;
    return NULL;
}

/* True when the "<" at @at follows a word that a header's name follows. */
static bool preprocess_wants_name(const char *start, const char *at)
{
    static const char *const words[] = {"include", "include_next", "import"};
    while (at > start && (preprocess_is_blank(at[-1]) || at[-1] == '('))
        at--;
    const char *end = at;
    while (at > start && preprocess_is_word(at[-1]))
        at--;
    at += end - at > 5 && memcmp(at, "__has", 5) == 0 ? 6 : 0;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if ((size_t)(end - at) == strlen(words[i]) && memcmp(at, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

/* Replace comments by blanks, so that everything else keeps its position; a comment of several
 * lines joins them. */
static void preprocess_clean_up(char *text, size_t size)
{
    char *at = text, *end = text + size;
    char quote = '\0';
    while (at < end) {
        size_t joined = preprocess_joins(at, end);
        if (joined) {
            memset(at, ' ', joined);
            at += joined;
        } else if (quote) {
            bool escapes = *at == '\\' && end - at > 1;
            quote = *at == quote || *at == '\n' ? '\0' : quote;
            at += escapes ? 2 : 1;
        } else if (*at == '/' && end - at > 1 && at[1] == '/') {
            while (at < end && *at != '\n') {
                joined = preprocess_joins(at, end);
                memset(at, ' ', joined ? joined : 1);
                at += joined ? joined : 1;
            }
        } else if (*at == '/' && end - at > 1 && at[1] == '*') {
            const char *closed = memmem(at + 2, (size_t)(end - at - 2), "*/", 2);
            size_t length = closed ? (size_t)(closed + 2 - at) : (size_t)(end - at);
            memset(at, ' ', length);
            at += length;
        } else {
            const char *behind =
                *at == '<' && preprocess_wants_name(text, at) ? preprocess_name_end(at, end) : NULL;
            quote = *at == '"' || *at == '\'' ? *at : '\0';
            at = behind ? text + (behind - text) : at + 1;
        }
    }
}

static int preprocess_add(struct directives *directives, enum directive_kind kind, const char *at,
                          const char *end, bool next)
{
    while (at < end && preprocess_is_blank(*at))
        at++;
    while (end > at && preprocess_is_blank(end[-1]))
        end--;
    if (!array_make_room(&directives->list, directives->count, sizeof(directives->list[0])))
        return -ENOMEM;
    directives->list[directives->count++] = (struct directive){
        kind, (size_t)(at - directives->clean), (size_t)(end - directives->clean), next};
    return 0;
}

static const char *preprocess_skip_blanks(const char *at, const char *end)
{
    while (at < end && preprocess_is_blank(*at))
        at++;
    return at;
}

static int preprocess_add_questions(struct directives *directives, const char *at, const char *end)
{
    static const char word[] = "__has_include";
    int err = 0;
    while (!err && (at = memmem(at, (size_t)(end - at), word, sizeof(word) - 1))) {
        at += sizeof(word) - 1;
        bool next = end - at > 5 && memcmp(at, "_next", 5) == 0;
        const char *name = preprocess_skip_blanks(next ? at + 5 : at, end);
        name = name < end && *name == '(' ? preprocess_skip_blanks(name + 1, end) : name;
        const char *behind = preprocess_name_end(name, end);
        if (behind)
            err = preprocess_add(directives, DIRECTIVE_INCLUDE, name, behind, next);
    }
    return err;
}

static int preprocess_read_line(struct directives *directives, const char *at, const char *end)
{
    at = preprocess_skip_blanks(at, end);
    if (at < end && *at == '#')
        at++;
    else if (end - at > 1 && at[0] == '%' && at[1] == ':')
        at += 2;
    else
        return 0;
    const char *word = at = preprocess_skip_blanks(at, end);
    while (at < end && preprocess_is_word(*at))
        at++;
    size_t length = (size_t)(at - word);
    if (length == 6 && memcmp(word, "define", length) == 0) {
        int err = preprocess_add(directives, DIRECTIVE_DEFINE, at, end, false);
        return err ? err : preprocess_add_questions(directives, at, end);
    }
    if ((length == 7 && memcmp(word, "include", length) == 0) ||
        (length == 12 && memcmp(word, "include_next", length) == 0) ||
        (length == 6 && memcmp(word, "import", length) == 0)) {
        const char *name = preprocess_skip_blanks(at, end),
                   *behind = preprocess_name_end(name, end);
        return preprocess_add(directives, DIRECTIVE_INCLUDE, name, behind ? behind : end,
                              length == 12);
    }
    return preprocess_add_questions(directives, at, end);
}

size_t text_mark(const char *text, size_t size)
{
    return size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

int directives_read(const char *text, size_t size, struct directives *ret_directives)
{
    struct directives directives = {.clean = malloc(size + 1), .size = size};
    int err = 0;
    if (!directives.clean)
        return -ENOMEM;
    memcpy(directives.clean, text, size);
    directives.clean[size] = '\0';
    memset(directives.clean, ' ', text_mark(text, size));
    preprocess_clean_up(directives.clean, size);
    const char *at = directives.clean, *end = at + size;
    while (!err && at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        line_end = line_end ? line_end : end;
        err = preprocess_read_line(&directives, at, line_end);
        at = line_end < end ? line_end + 1 : end;
    }
    if (err)
        directives_finish(&directives);
    else
        *ret_directives = directives;
    return err;
}

void directives_finish(struct directives *directives)
{
    free(directives->clean);
    free(directives->list);
    *directives = (struct directives){0};
}

static void preprocess_macro_finish(struct macro *macro)
{
    free(macro->name);
    free(macro->parameters);
    free(macro->body);
}

static bool preprocess_texts_same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static size_t preprocess_chain_of(const char *name, size_t length)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return (hash ^ hash >> 16) % MACRO_CHAINS;
}

int macros_define(struct macros *macros, const char *text, size_t size, bool *ret_new)
{
    const char *end = text + size, *at = text, *open = NULL, *close = NULL;
    while (at < end && preprocess_is_word(*at))
        at++;
    size_t length = (size_t)(at - text);
    if (length == 0)
        return 0;
    if (at < end && *at == '(') {
        open = at + 1;
        close = memchr(open, ')', (size_t)(end - open));
        if (!close)
            return 0;
        at = close + 1;
    }
    at = preprocess_skip_blanks(at, end);
    struct macro macro = {
        .name = strndup(text, length),
        .parameters = open ? strndup(open, (size_t)(close - open)) : NULL,
        .body = strndup(at, (size_t)(end - at)),
    };
    bool whole = macro.name && macro.body && (macro.parameters || !open), known = false;
    size_t chain = preprocess_chain_of(text, length);
    unsigned same = 1;
    for (size_t i = macros->chains[chain].first; whole && !known && i;
         i = macros->list[i - 1].next) {
        const struct macro *other = &macros->list[i - 1];
        if (strcmp(other->name, macro.name) != 0)
            continue;
        same++;
        known = preprocess_texts_same(other->parameters, macro.parameters) &&
                strcmp(other->body, macro.body) == 0;
    }
    if (!known && whole)
        whole = array_make_room(&macros->list, macros->count, sizeof(macro));
    if (!whole || known) {
        preprocess_macro_finish(&macro);
        return whole ? 0 : -ENOMEM;
    }
    macros->list[macros->count++] = macro;
    if (macros->chains[chain].last)
        macros->list[macros->chains[chain].last - 1].next = macros->count;
    else
        macros->chains[chain].first = macros->count;
    macros->chains[chain].last = macros->count;
    macros->most = same > macros->most ? same : macros->most;
    *ret_new = true;
    return 0;
}

void macros_finish(struct macros *macros)
{
    for (size_t i = 0; i < macros->count; i++)
        preprocess_macro_finish(&macros->list[i]);
    free(macros->list);
    *macros = (struct macros){0};
}

/* Find the @choice-th definition of a name, or its last; NULL: it has none. */
static const struct macro *preprocess_find(const struct macros *macros, unsigned choice,
                                           const char *name, size_t length)
{
    const struct macro *found = NULL;
    size_t i = macros->chains[preprocess_chain_of(name, length)].first;
    for (; i; i = macros->list[i - 1].next) {
        const struct macro *macro = &macros->list[i - 1];
        if (strncmp(macro->name, name, length) != 0 || macro->name[length])
            continue;
        found = macro;
        if (choice-- == 0)
            break;
    }
    return found;
}

unsigned macros_choices(const struct macros *macros)
{
    unsigned most = macros->most > 0 ? macros->most : 1;
    return most < CHOICES_MAX ? most : CHOICES_MAX;
}

/* An expansion under way. It fails where it grows too long, too deep or takes too many steps. */
struct expansion {
    const struct macros *macros;
    unsigned choice, depth, steps;
    bool failed;
};
struct output {
    char *bytes;
    size_t length;
};
struct piece {
    const char *at, *end;
};

static void preprocess_put(struct expansion *e, struct output *out, const char *bytes, size_t size)
{
    e->failed = e->failed || size > EXPANSION_MAX - out->length;
    if (e->failed)
        return;
    memcpy(out->bytes + out->length, bytes, size);
    out->length += size;
}

static const char *preprocess_literal_end(const char *at, const char *end)
{
    char quote = *at++;
    while (at < end && *at != quote)
        at += *at == '\\' && end - at > 1 ? 2 : 1;
    return at < end ? at + 1 : end;
}

/* The next token: a word, a literal, or a character. */
static struct piece preprocess_next_piece(const char *at, const char *end)
{
    const char *behind = at;
    if (*at == '"' || *at == '\'')
        return (struct piece){at, preprocess_literal_end(at, end)};
    while (behind < end && preprocess_is_word(*behind))
        behind++;
    return (struct piece){at, behind == at ? at + 1 : behind};
}

/* The arguments in brackets from @at; false without them. */
static bool preprocess_read_arguments(const char **at, const char *end, struct piece *arguments,
                                      unsigned *ret_count)
{
    const char *from = preprocess_skip_blanks(*at, end);
    unsigned depth = 0, count = 0;
    if (from == end || *from != '(')
        return false;
    const char *start = ++from;
    while (from < end) {
        struct piece piece = preprocess_next_piece(from, end);
        bool ends = *from == ')' && depth == 0, parts = *from == ',' && depth == 0;
        if (ends || parts) {
            const char *first = preprocess_skip_blanks(start, from), *last = from;
            while (last > first && preprocess_is_blank(last[-1]))
                last--;
            if (count == ARGUMENTS_MAX)
                return false;
            arguments[count++] = (struct piece){first, last};
            start = from + 1;
        }
        if (ends) {
            *at = from + 1;
            *ret_count = count;
            return true;
        }
        depth += *from == '(';
        depth -= *from == ')';
        from = piece.end;
    }
    return false;
}

static int preprocess_parameter_index(const struct macro *macro, struct piece word)
{
    const char *at = macro->parameters;
    size_t length = (size_t)(word.end - word.at);
    for (int i = 0; at; i++) {
        at += strspn(at, " \t");
        if (strncmp(at, word.at, length) == 0 && !preprocess_is_word(at[length]))
            return i;
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    return -1;
}

static void preprocess_stringify(struct expansion *e, struct output *out, struct piece argument)
{
    preprocess_put(e, out, "\"", 1);
    for (const char *at = argument.at; at < argument.end; at++) {
        if (*at == '"' || *at == '\\')
            preprocess_put(e, out, "\\", 1);
        preprocess_put(e, out, at, 1);
    }
    preprocess_put(e, out, "\"", 1);
}

static void preprocess_expand(struct expansion *e, const char *at, const char *end,
                              struct output *out);

/* Write a macro's body with its arguments in place. */
static void preprocess_substitute(struct expansion *e, const struct macro *macro,
                                  const struct piece *arguments, unsigned count, struct output *out)
{
    const char *at = macro->body, *end = at + strlen(at);
    bool pasted = false;
    while (at < end && !e->failed) {
        struct piece piece = preprocess_next_piece(at, end);
        const char *behind = preprocess_skip_blanks(piece.end, end);
        bool pastes = end - behind > 1 && behind[0] == '#' && behind[1] == '#';
        int index = preprocess_is_word(*at) ? preprocess_parameter_index(macro, piece) : -1;
        if (end - at > 1 && at[0] == '#' && at[1] == '#') {
            while (out->length > 0 && preprocess_is_blank(out->bytes[out->length - 1]))
                out->length--;
            at = preprocess_skip_blanks(at + 2, end);
            pasted = true;
            continue;
        }
        if (*at == '#' && macro->parameters && behind < end && preprocess_is_word(*behind)) {
            struct piece word = preprocess_next_piece(behind, end);
            index = preprocess_parameter_index(macro, word);
            if (index >= 0 && (unsigned)index < count) {
                preprocess_stringify(e, out, arguments[index]);
                at = word.end;
                continue;
            }
            index = -1;
        }
        if (index < 0 || (unsigned)index >= count)
            preprocess_put(e, out, piece.at, (size_t)(piece.end - piece.at));
        else if (pasted || pastes)
            preprocess_put(e, out, arguments[index].at,
                           (size_t)(arguments[index].end - arguments[index].at));
        else
            preprocess_expand(e, arguments[index].at, arguments[index].end, out);
        pasted = false;
        at = piece.end;
    }
}

static void preprocess_expand_macro(struct expansion *e, const struct macro *macro,
                                    const struct piece *arguments, unsigned count,
                                    struct output *out)
{
    struct output body = {.bytes = malloc(EXPANSION_MAX)};
    e->failed = e->failed || !body.bytes || e->depth == EXPANSION_DEEP;
    if (!e->failed) {
        e->depth++;
        preprocess_substitute(e, macro, arguments, count, &body);
        preprocess_expand(e, body.bytes, body.bytes + body.length, out);
        e->depth--;
    }
    free(body.bytes);
}

static void preprocess_expand(struct expansion *e, const char *at, const char *end,
                              struct output *out)
{
    while (at < end && !e->failed) {
        struct piece piece = preprocess_next_piece(at, end), arguments[ARGUMENTS_MAX];
        unsigned count = 0;
        const struct macro *macro =
            preprocess_is_word(*at)
                ? preprocess_find(e->macros, e->choice, piece.at, (size_t)(piece.end - piece.at))
                : NULL;
        at = piece.end;
        e->failed = ++e->steps > STEPS_MAX;
        if (macro && (!macro->parameters || preprocess_read_arguments(&at, end, arguments, &count)))
            preprocess_expand_macro(e, macro, arguments, count, out);
        else
            preprocess_put(e, out, piece.at, (size_t)(piece.end - piece.at));
    }
}

static bool preprocess_take_name(const char *text, size_t size, struct header_name *ret_name)
{
    const char *end = text + size, *at = preprocess_skip_blanks(text, end),
               *behind = preprocess_name_end(at, end);
    size_t length = behind ? (size_t)(behind - at) - 2 : 0;
    if (length == 0 || length >= sizeof(ret_name->text) || memchr(at, '\0', length + 2))
        return false;
    memcpy(ret_name->text, at + 1, length);
    ret_name->text[length] = '\0';
    ret_name->quoted = *at == '"';
    return true;
}

bool header_name_is_literal(const char *text, size_t size)
{
    return preprocess_name_end(text, text + size) != NULL;
}

bool header_name_read(const struct macros *macros, unsigned choice, const char *text, size_t size,
                      struct header_name *ret_name)
{
    if (header_name_is_literal(text, size))
        return preprocess_take_name(text, size, ret_name);
    struct expansion e = {.macros = macros, .choice = choice};
    struct output out = {.bytes = malloc(EXPANSION_MAX)};
    if (out.bytes)
        preprocess_expand(&e, text, text + size, &out);
    bool found = out.bytes && !e.failed && preprocess_take_name(out.bytes, out.length, ret_name);
    free(out.bytes);
    return found;
}

/* The word from @at without its quotes, and its end. */
static char *preprocess_read_word(const char *at, const char **ret_end)
{
    char *word = calloc(1, strlen(at) + 1), *to = word;
    char quote = '\0';
    while (*at && (quote || !isspace((unsigned char)*at))) {
        if (*at == '\\' && at[1] && strchr(" \t\"'\\", at[1])) {
            at++;
        } else if (quote ? *at == quote : *at == '"' || *at == '\'') {
            quote = quote ? '\0' : *at;
            at++;
            continue;
        }
        if (word)
            *to++ = *at;
        at++;
    }
    *ret_end = at;
    return word;
}

int option_next(const char *options, size_t *cursor, struct option *ret_option)
{
    static const struct {
        const char *word;
        enum option_kind kind;
        bool joined; /* the argument may follow without a blank */
    } known[] = {
        {"-include", OPTION_INCLUDE, false}, {"-isystem", OPTION_FOLDER, false},
        {"-iquote", OPTION_FOLDER, false},   {"-idirafter", OPTION_FOLDER, false},
        {"-I", OPTION_FOLDER, true},         {"-D", OPTION_DEFINE, true},
    };
    const char *at = options + *cursor, *end;
    at += strspn(at, " \t\r\n\v\f");
    if (!*at)
        return 0;
    struct option option = {.at = (size_t)(at - options)};
    char *word = preprocess_read_word(at, &end);
    if (!word)
        return -ENOMEM;
    for (size_t i = 0; i < ARRAY_SIZE(known) && option.kind == OPTION_OTHER; i++) {
        size_t length = strlen(known[i].word);
        if (strncmp(word, known[i].word, length) != 0 || (word[length] && !known[i].joined))
            continue;
        option.kind = known[i].kind;
        if (word[length]) {
            memmove(word, word + length, strlen(word + length) + 1);
            option.argument = word;
            word = NULL;
        } else {
            at = end + strspn(end, " \t\r\n\v\f");
            option.argument = *at ? preprocess_read_word(at, &end) : strdup("");
        }
        if (!option.argument) {
            free(word);
            return -ENOMEM;
        }
    }
    free(word);
    option.end = (size_t)(end - options);
    *cursor = option.end;
    *ret_option = option;
    return 1;
}
