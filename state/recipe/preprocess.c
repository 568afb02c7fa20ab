#include "state/recipe/preprocess.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"

size_t preprocess_joins(const char *at, const char *end)
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

bool preprocess_splits(const char *text, size_t size)
{
    const char *at = text, *end = text + size;
    bool splits = false;
    for (; !splits && (at = memchr(at, '\\', (size_t)(end - at))); at++)
        splits = at > text && preprocess_is_word(at[-1]) && preprocess_joins(at, end);
    return splits;
}

/* At a continuation in the middle of a text until @closing, or of a word, which a "(" behind it
 * makes the name of a macro with parameters: move the rest of that to @at, and the blanks behind
 * it. Returns their end. */
static char *preprocess_close_up(char *at, char *end, char closing)
{
    const bool word = closing == '(', escapes = closing == '"' || closing == '\'';
    char *from = at;
    bool ends = false, escaped = false;
    while (from < end && !ends) {
        size_t joined = preprocess_joins(from, end);
        if (joined) {
            from += joined;
            continue;
        }
        if (word ? !preprocess_is_word(*from) && *from != closing : *from == '\n')
            break;
        ends = *from == closing && !escaped;
        escaped = escapes && !escaped && *from == '\\';
        *at++ = *from++;
    }
    memset(at, ' ', (size_t)(from - at));
    return from;
}

/* Replace comments by blanks, so that everything else keeps its position, but for the second part
 * of what a continuation splits; a comment of several lines joins them. */
static void preprocess_clean_up(char *text, size_t size)
{
    char *at = text, *end = text + size;
    char quote = '\0';
    while (at < end) {
        size_t joined = preprocess_joins(at, end);
        if (joined && (quote || (at > text && preprocess_is_word(at[-1])))) {
            at = preprocess_close_up(at, end, quote ? quote : '(');
            quote = '\0';
        } else if (joined) {
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
            bool named = *at == '<' && preprocess_wants_name(text, at);
            quote = *at == '"' || *at == '\'' ? *at : '\0';
            at = named ? preprocess_close_up(at + 1, end, '>') : at + 1;
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
    else if (end - at > 2 && memcmp(at, "?\?=", 3) == 0)
        at += 3;
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

bool header_name_take(const char *text, size_t size, struct header_name *ret_name)
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
