#include "state/program/kernel_source.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/cleanup.h"

/* As for compilers, "$" and the letters of all alphabets belong to words. */
static bool kernel_source_is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || (unsigned char)c >= 0x80;
}

/* A quick test that excludes most tokens: large sources have a million. */
static bool kernel_source_may_begin(struct token token, const char *word)
{
    return token.length > 0 && *token.text == *word;
}

bool token_is(struct token token, const char *word)
{
    return kernel_source_may_begin(token, word) && token.length == strlen(word) &&
           memcmp(token.text, word, token.length) == 0;
}

bool token_begins(struct token token, const char *word)
{
    return kernel_source_may_begin(token, word) && token.length >= strlen(word) &&
           memcmp(token.text, word, strlen(word)) == 0;
}

bool token_same(struct token a, struct token b)
{
    return a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

bool token_is_one_of(struct token token, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (token_is(token, words[i]))
            return true;
    return false;
}

bool token_is_word(struct token token)
{
    return token.length > 0 && kernel_source_is_word(*token.text);
}

bool token_is_name(struct token token)
{
    return token_is_word(token) && !isdigit((unsigned char)*token.text);
}

bool token_is_attribute(struct token token)
{
    return token_is(token, "__attribute__") || token_is(token, "__attribute");
}

static void kernel_source_refuse(struct kernel_source *s, const char *reason)
{
    if (!s->unread)
        s->unread = reason;
}

/* ---- tokens ---- */

static int kernel_source_add(struct token **list, size_t *count, const char *text, size_t length)
{
    if (!array_make_room(list, *count, sizeof(**list)))
        return -ENOMEM;
    (*list)[(*count)++] = (struct token){text, length};
    return 0;
}

static int kernel_source_add_token(struct kernel_source *s, const char *text, size_t length)
{
    return kernel_source_add(&s->tokens, &s->count, text, length);
}

/* The sign that a digraph stands for; NULL for anything else. */
static const char *kernel_source_digraph(const char *at, const char *end)
{
    static const char *const spelled[][2] = {
        {"<%", "{"}, {"%>", "}"}, {"<:", "["}, {":>", "]"}, {"%:", "#"}};
    for (size_t i = 0; end - at > 1 && i < ARRAY_SIZE(spelled); i++)
        if (memcmp(at, spelled[i][0], 2) == 0)
            return spelled[i][1];
    return NULL;
}

/* Length of "##" or its digraph "%:%:"; 0 for anything else. */
static size_t kernel_source_paste_length(const char *at, const char *end)
{
    if (end - at > 1 && memcmp(at, "##", 2) == 0)
        return 2;
    return end - at > 3 && memcmp(at, "%:%:", 4) == 0 ? 4 : 0;
}

/* Tokens are words, "##" and single characters; quoted text is left out. */
static int kernel_source_add_tokens(struct kernel_source *s, const char *at, const char *end)
{
    int err = 0;
    while (!err && at < end) {
        const char *from = at, *sign = kernel_source_digraph(at, end);
        size_t pastes = kernel_source_paste_length(at, end);
        if (*at == '"' || *at == '\'') {
            for (at++; at < end && *at != *from && *at != '\n'; at++)
                at += *at == '\\' && end - at > 1;
            at += at < end;
        } else if (kernel_source_is_word(*at)) {
            while (at < end && kernel_source_is_word(*at))
                at++;
            err = kernel_source_add_token(s, from, (size_t)(at - from));
        } else if (isspace((unsigned char)*at)) {
            at++;
        } else if (sign && !pastes) {
            err = kernel_source_add_token(s, sign, 1);
            at += 2;
        } else {
            if (*at == '\\')
                kernel_source_refuse(
                    s, "its source has names with letters that are written as numbers");
            err = pastes ? kernel_source_add_token(s, "##", 2) : kernel_source_add_token(s, at, 1);
            at += pastes ? pastes : 1;
        }
    }
    return err;
}

/* The number of places up to the token at @at where a branch begins or ends. */
static size_t kernel_source_branches_before(const struct kernel_source *s, size_t at)
{
    size_t low = 0, high = s->branch_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->branches[middle].before <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Of the first @count places, the one that began the branch which is open behind them: its index
 * plus one; 0: none is open. */
static size_t kernel_source_open_branch(const struct kernel_source *s, size_t count)
{
    if (count == 0)
        return 0;
    return s->branches[count - 1].opens >= 0 ? count : s->branches[count - 1].outer;
}

size_t kernel_source_branch_end(const struct kernel_source *s, size_t at)
{
    size_t open = kernel_source_open_branch(s, kernel_source_branches_before(s, at));
    size_t end = open ? s->branches[open - 1].end : 0;
    return end ? s->branches[end].before : s->count;
}

/* Depth of conditions in brackets to which their branches are told apart. */
#define BRANCHES_DEEP 32

/* The depth of brackets before an #if, and behind that of its branches which changes it most. */
struct branch_depths {
    size_t before, behind;
};

/* The depth at the end of a branch whose last token has left it at @depth; @ends: of the #if, too.
 */
static size_t kernel_source_pass_branch(struct branch_depths *depths, size_t depth, bool ends)
{
    size_t change = depth > depths->before ? depth - depths->before : depths->before - depth;
    size_t most = depths->behind > depths->before ? depths->behind - depths->before
                                                  : depths->before - depths->behind;
    if (change > most)
        depths->behind = depth;
    return ends ? depths->behind : depths->before;
}

size_t kernel_source_behind(const struct kernel_source *s, size_t at, size_t end, const char *open,
                            const char *close)
{
    struct branch_depths depths[BRANCHES_DEEP];
    size_t depth = 0, deep = 0, branch = kernel_source_branches_before(s, at);
    for (; at < end; at++) {
        for (; branch < s->branch_count && s->branches[branch].before <= at; branch++) {
            int opens = s->branches[branch].opens;
            if (opens > 0 && deep < BRANCHES_DEEP) {
                depths[deep] = (struct branch_depths){depth, depth};
            } else if (opens <= 0 && deep > 0 && deep <= BRANCHES_DEEP) {
                depth = kernel_source_pass_branch(&depths[deep - 1], depth, opens < 0);
            } else if (opens == 0 && deep == 0) { /* other branches may begin the same brackets */
                while (branch < s->branch_count && s->branches[branch].opens == 0)
                    branch = s->branches[branch].end ? s->branches[branch].end : s->branch_count;
                at = branch < s->branch_count ? s->branches[branch].before : end;
                continue;
            }
            deep += opens > 0;
            deep -= opens < 0 && deep > 0;
        }
        if (at >= end)
            break;
        depth += token_is(s->tokens[at], open);
        depth -= token_is(s->tokens[at], close) && depth > 0;
        if (depth == 0)
            return at + 1;
    }
    return end;
}

/* ---- units ---- */

static int kernel_source_add_unit(struct kernel_source *s, struct unit unit)
{
    if (!array_make_room(&s->units, s->unit_count, sizeof(s->units[0])))
        return -ENOMEM;
    s->units[s->unit_count++] = unit;
    return 0;
}

/* "NAME body", "NAME(x) body", or, of an option, "NAME=body". */
static int kernel_source_add_macro(struct kernel_source *s, const char *at, const char *end)
{
    static const char *const loops[] = {"for", "while", "do", "goto"};
    static const char *const braces[] = {"{", "}"};
    size_t first = s->count;
    int err = kernel_source_add_tokens(s, at, end);
    if (err || s->count == first)
        return err;
    struct unit unit = {.name = s->tokens[first], .first = first + 1, .macro = true};
    const char *behind = unit.name.text + unit.name.length;
    unit.body = unit.first;
    unit.end = s->count;
    if (behind < end && *behind == '(')
        unit.body = kernel_source_behind(s, unit.first, unit.end, "(", ")");
    for (size_t i = unit.body; i < unit.end; i++) {
        unit.loops = unit.loops || IS_ONE_OF(s->tokens[i], loops);
        unit.braces = unit.braces || IS_ONE_OF(s->tokens[i], braces);
        unit.statics = unit.statics || token_is(s->tokens[i], "static");
        unit.ends = unit.ends || token_is(s->tokens[i], ";");
        unit.quotes = unit.quotes || token_is(s->tokens[i], "#");
    }
    err = kernel_source_add_token(s, ";", 1); /* ends a search that goes on behind the macro */
    return err ? err : kernel_source_add_unit(s, unit);
}

/* How many more brackets open than close. */
static ptrdiff_t kernel_source_count_open(const struct kernel_source *s, size_t at, size_t end)
{
    ptrdiff_t open = 0;
    for (; at < end; at++) {
        open += token_is(s->tokens[at], "{");
        open -= token_is(s->tokens[at], "}");
    }
    return open;
}

/* True for a token that only occurs in functions. Found outside them, it shows that macros make
 * functions of it. */
static bool kernel_source_is_code(const struct kernel_source *s, size_t at, bool in_brackets)
{
    static const char *const words[] = {"if",     "for",  "while", "do",   "goto",
                                        "switch", "case", "break", "else", "return"};
    struct token token = s->tokens[at];
    bool atomic = token_begins(token, "atomic_") || token_begins(token, "atom_");
    return IS_ONE_OF(token, words) ||
           (in_brackets && (token_is(token, ";") || (atomic && token_is(s->tokens[at + 1], "("))));
}

/* The index behind the brackets that begin at @at, outside all functions. */
static size_t kernel_source_pass_brackets(struct kernel_source *s, size_t at, size_t end)
{
    size_t behind = kernel_source_behind(s, at, end, "(", ")");
    for (; at + 1 < behind; at++)
        s->broken = s->broken || kernel_source_is_code(s, at, true);
    return behind;
}

static const char stand_ins[] = "its source has functions that stand for others";

/* Some attributes make a name stand for another function. */
static size_t kernel_source_pass_attribute(struct kernel_source *s, size_t at, size_t end)
{
    static const char *const words[] = {"alias",     "__alias__", "ifunc",
                                        "__ifunc__", "weakref",   "__weakref__"};
    size_t behind = kernel_source_behind(s, at, end, "(", ")");
    for (; at < behind; at++)
        if (IS_ONE_OF(s->tokens[at], words))
            kernel_source_refuse(s, stand_ins);
    return behind;
}

/* True for what looks like the name of a function: "name(" or "(name)(". */
static bool kernel_source_is_head(const struct kernel_source *s, size_t at, size_t end)
{
    if (at + 1 >= end || !token_is_name(s->tokens[at]) || token_is_attribute(s->tokens[at]))
        return false;
    return token_is(s->tokens[at + 1], "(") ||
           (at > 0 && at + 2 < end && token_is(s->tokens[at - 1], "(") &&
            token_is(s->tokens[at + 1], ")") && token_is(s->tokens[at + 2], "("));
}

/* Add the functions between @at and @end, which is outside all brackets. What looks like another
 * function's name behind a function's name may be a macro with arguments: the function is added
 * under each of the names. */
static int kernel_source_add_functions(struct kernel_source *s, size_t at, size_t end)
{
    static const char *const asms[] = {"asm", "__asm", "__asm__"};
    static const char *const data[] = {"struct", "union", "enum", "="};
    bool kernel = false, has_data = false;
    size_t head = s->unit_count;
    int err = 0;
    while (!err && at < end) {
        struct token token = s->tokens[at];
        bool ends = token_is(token, ";");
        size_t name = token_is(token, "(") && at + 1 < end ? at + 1 : at;
        if (kernel_source_is_head(s, name, end))
            err = kernel_source_add_unit(s,
                                         (struct unit){.name = s->tokens[name], .first = name + 1});
        if (token_is_name(token) && !err)
            err = kernel_source_add(&s->outside, &s->outside_count, token.text, token.length);
        if (token_is_attribute(token) && at + 1 < end) {
            at = kernel_source_pass_attribute(s, at + 1, end);
        } else if (token_is(token, "(")) {
            at = kernel_source_pass_brackets(s, at, end);
        } else if (token_is(token, "{")) {
            size_t behind = kernel_source_behind(s, at, end, "{", "}");
            bool named = s->unit_count > head;
            /* The branches of an #if may each have the head of the function. */
            s->broken =
                s->broken || kernel_source_count_open(s, at, behind) != 0 || (!named && !has_data);
            for (size_t u = head; u < s->unit_count; u++) {
                s->units[u].body = at;
                s->units[u].end = behind;
                s->units[u].kernel = kernel;
                s->units[u].last = u + 1 == s->unit_count;
            }
            head = s->unit_count;
            kernel = kernel && !named;
            has_data = has_data && !named;
            at = behind;
        } else {
            kernel = kernel || token_is(token, "kernel") || token_is(token, "__kernel");
            has_data = has_data || IS_ONE_OF(token, data);
            s->broken = s->broken || token_is(token, "}") || kernel_source_is_code(s, at, false);
            if (IS_ONE_OF(token, asms))
                kernel_source_refuse(s, "its source names functions by assembly");
            at++;
        }
        if (ends) {
            s->unit_count = head;
            kernel = has_data = false;
        }
    }
    s->unit_count = head;
    return err;
}

/* ---- texts ---- */

/* @word: of a directive. */
static int kernel_source_note_branch(struct kernel_source *s, struct token word)
{
    static const char *const begins[] = {"if", "ifdef", "ifndef"};
    static const char *const others[] = {"else", "elif", "elifdef", "elifndef"};
    bool opens = IS_ONE_OF(word, begins), closes = token_is(word, "endif");
    if (!opens && !closes && !IS_ONE_OF(word, others))
        return 0;
    if (!array_make_room(&s->branches, s->branch_count, sizeof(s->branches[0])))
        return -ENOMEM;
    size_t open = kernel_source_open_branch(s, s->branch_count);
    struct source_branch branch = {.before = s->count, .opens = opens - closes, .outer = open};
    if (!opens && open != 0) {
        s->branches[open - 1].end = s->branch_count;
        branch.outer = s->branches[open - 1].outer;
    }
    s->branches[s->branch_count++] = branch;
    return 0;
}

/* Note names in "#undef get_group_id" and "#ifdef get_group_id": if we defined such a macro, the
 * compiler would see another text. */
static int kernel_source_note_directive(struct kernel_source *s, const char *at, const char *end,
                                        bool inside)
{
    static const char *const words[] = {"undef", "if", "elif", "ifdef", "ifndef"};
    static const char *const includes[] = {"include", "include_next", "import"};
    bool asks = false, first = true, pragma = false;
    int err = 0;
    while (!err && at < end) {
        const char *from = at;
        while (at < end && kernel_source_is_word(*at))
            at++;
        struct token token = {from, (size_t)(at - from)};
        if (token.length == 0)
            at++;
        else if (first)
            asks = IS_ONE_OF(token, words), pragma = token_is(token, "pragma");
        else if (asks)
            err = kernel_source_add(&s->asked, &s->asked_count, token.text, token.length);
        if (token.length != 0 && first && inside && IS_ONE_OF(token, includes))
            kernel_source_refuse(s, "its source includes text in the middle of a function");
        if (pragma && token_is(token, "weak"))
            kernel_source_refuse(s, stand_ins);
        if (token.length != 0 && first && !err)
            err = kernel_source_note_branch(s, token);
        first = first && token.length == 0;
    }
    return err;
}

/* True when tokens differ from what is spelled: signs are written as trigraphs, or lines end in a
 * carriage return alone. */
static bool kernel_source_is_disguised(const char *text, size_t size)
{
    const char *end = text + size, *at;
    for (at = text; (at = memmem(at, (size_t)(end - at), "?\?", 2)); at++)
        if (end - at > 2 && memchr("=/'()!<>-", at[2], 9))
            return true;
    for (at = text; (at = memchr(at, '\r', (size_t)(end - at))); at++)
        if (end - at < 2 || at[1] != '\n')
            return true;
    return false;
}

/* A copy of @text in which lines that a backslash ends are joined with the next: in the middle of a
 * word, too. The caller frees it; NULL without memory. */
static char *kernel_source_join_lines(const char *text, size_t size, size_t *ret_size)
{
    const char *end = text + size;
    char *joined = malloc(size + 1), *to = joined;
    while (joined && text < end) {
        const char *next = memchr(text, '\\', (size_t)(end - text));
        size_t length = (size_t)((next ? next : end) - text), joins = 0;
        if (next)
            joins = preprocess_joins(next, end);
        length += next && !joins;
        memcpy(to, text, length);
        to += length;
        text += length + joins;
        const char *behind = preprocess_skip_blanks(text, end);
        if (joins && to > joined && to[-1] == '\\' && behind < end && *behind == '\n')
            to--; /* of two backslashes, the first joins nothing */
    }
    *ret_size = joined ? (size_t)(to - joined) : 0;
    return joined;
}

static bool kernel_source_mentions(const char *text, size_t size, const char *word)
{
    return memmem(text, size, word, strlen(word)) != NULL;
}

/* Pragmas, also in the form of the operator _Pragma("..."). */
static void kernel_source_note_pragmas(struct kernel_source *s, const char *text, size_t size)
{
    if (kernel_source_mentions(text, size, "redefine_extname") ||
        (kernel_source_mentions(text, size, "_Pragma") &&
         kernel_source_mentions(text, size, "weak")))
        kernel_source_refuse(s, stand_ins);
    if (kernel_source_mentions(text, size, "__cl_clang_function_pointers"))
        kernel_source_refuse(s, "its source has pointers to functions, which are not followed");
}

static int kernel_source_add_text(struct kernel_source *s, const char *text, size_t size)
{
    if (!array_make_room(&s->texts, s->text_count, sizeof(s->texts[0])))
        return -ENOMEM;
    struct source_text *kept = &s->texts[s->text_count];
    struct directives *directives = &kept->directives;
    char *CLEANUP(cleanup_free) joined = kernel_source_join_lines(text, size, &size);
    int err = joined ? directives_read(joined, size, directives) : -ENOMEM;
    if (err)
        return err;
    text = joined;
    s->text_count++;
    if (kernel_source_is_disguised(text, size)) {
        kernel_source_refuse(s, "its source has names or signs that are not spelled out");
        s->disguised = true;
    }
    kernel_source_note_pragmas(s, text, size);
    const char *clean = directives->clean, *end = clean + directives->size;
    for (size_t i = 0; !err && i < directives->count; i++)
        if (directives->list[i].kind == DIRECTIVE_DEFINE)
            err = kernel_source_add_macro(s, clean + directives->list[i].at,
                                          clean + directives->list[i].end);
    size_t first = s->count, counted = first;
    ptrdiff_t open = 0; /* up to @counted; counting anew at each directive would take minutes */
    for (const char *line = clean; !err && line < end;) {
        const char *line_end = memchr(line, '\n', (size_t)(end - line));
        const char *word = line;
        line_end = line_end ? line_end : end;
        while (word < line_end && isspace((unsigned char)*word))
            word++;
        if (word == line_end || (*word != '#' && !(*word == '%' && word[1] == ':'))) {
            err = kernel_source_add_tokens(s, line, line_end);
        } else {
            open += kernel_source_count_open(s, counted, s->count);
            counted = s->count;
            err = kernel_source_note_directive(s, word, line_end, open != 0);
        }
        line = line_end < end ? line_end + 1 : end;
    }
    kept->first = first;
    kept->end = s->count;
    return err ? err : kernel_source_add_functions(s, first, s->count);
}

/* True for an option, or the number that belongs to one, that does not change the meaning of names
 * in the source. */
static bool kernel_source_is_harmless(const char *word, size_t length)
{
    static const char *const beginnings[] = {"-cl-",
                                             "-f",
                                             "-m",
                                             "-O",
                                             "-U",
                                             "-W",
                                             "-w",
                                             "-g",
                                             "-create-library",
                                             "-enable-link-options"};
    for (size_t i = 0; i < ARRAY_SIZE(beginnings); i++)
        if (length >= strlen(beginnings[i]) &&
            memcmp(word, beginnings[i], strlen(beginnings[i])) == 0)
            return !memchr(word, ',', length);
    return strspn(word, "0123456789") == length; /* belongs to the option before it */
}

/* Read quoted text as well, because drivers differ in which quotes they remove. */
static void kernel_source_unquote(char *text)
{
    for (; *text; text++)
        if (*text == '"' || *text == '\'')
            *text = ' ';
}

static int kernel_source_add_options(struct kernel_source *s, const char *options)
{
    size_t cursor = 0;
    struct option option;
    int found, err = 0;
    if (strcasestr(options, "CLC++"))
        kernel_source_refuse(s, "it is written in C++");
    if (strstr(options, "-cl-opt-disable") || strstr(options, "-O0"))
        kernel_source_refuse(s, "it is compiled without optimisation, so that any loop may wait");
    while (!err && (found = option_next(options, &cursor, &option)) != 0) {
        if (found < 0)
            return found;
        /* Kept like any other text, because tokens point into it. */
        if (option.kind == OPTION_DEFINE && option.argument) {
            size_t size = strlen("#define ") + strlen(option.argument) + 1;
            char *line = malloc(size + 1);
            if (line) {
                strcpy(line, "#define ");
                strcat(line, option.argument);
                char *equals = strchr(line, '=');
                if (equals)
                    *equals = ' ';
                kernel_source_unquote(line);
            }
            size_t first = s->unit_count;
            err = line ? kernel_source_add_text(s, line, strlen(line)) : -ENOMEM;
            for (size_t u = first; u < s->unit_count; u++)
                s->units[u].option = true;
            free(line);
        }
        if (option.kind == OPTION_OTHER &&
            !kernel_source_is_harmless(options + option.at, option.end - option.at))
            kernel_source_refuse(s, "its options are not all read");
        free(option.argument);
    }
    return err;
}

static int kernel_source_add_recipe(struct kernel_source *s, const struct recipe *recipe)
{
    int err = 0;
    if (recipe->kind == RECIPE_IL)
        kernel_source_refuse(s, "it was given as IL, which is not rewritten");
    if (recipe->kind == RECIPE_SOURCE)
        return kernel_source_add_text(s, recipe->bytes, recipe->size);
    if (recipe->options)
        err = kernel_source_add_options(s, recipe->options);
    for (uint32_t i = 0; !err && i < recipe->input_count; i++)
        err = kernel_source_add_recipe(s, recipe->inputs[i]);
    if (recipe->headers && recipe->headers->partial)
        kernel_source_refuse(s, "some of what it includes could not be read");
    for (uint32_t i = 0; !err && recipe->headers && i < recipe->headers->count; i++)
        if (recipe->headers->list[i].bytes)
            err = kernel_source_add_text(s, recipe->headers->list[i].bytes,
                                         recipe->headers->list[i].size);
    return err;
}

/* ---- all of it ---- */

static int kernel_source_by_name(const void *a, const void *b)
{
    const struct unit *one = a, *other = b;
    size_t length = one->name.length < other->name.length ? one->name.length : other->name.length;
    int order = memcmp(one->name.text, other->name.text, length);
    return order != 0
               ? order
               : (one->name.length > other->name.length) - (one->name.length < other->name.length);
}

size_t kernel_source_find(const struct kernel_source *s, struct token name)
{
    const struct unit key = {.name = name};
    size_t low = 0, high = s->unit_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (kernel_source_by_name(&s->units[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->unit_count && token_same(s->units[low].name, name) ? low : s->unit_count;
}

/* A macro that uses a macro with `loops`, `braces`, `statics`, `ends` or "#" has that property too.
 */
static void kernel_source_spread_through_macros(struct kernel_source *s)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t u = 0; u < s->unit_count; u++) {
            struct unit *unit = &s->units[u];
            const struct unit before = *unit;
            for (size_t i = unit->body; unit->macro && i < unit->end; i++) {
                size_t used = kernel_source_find(s, s->tokens[i]);
                for (; used < s->unit_count && token_same(s->units[used].name, s->tokens[i]);
                     used++) {
                    unit->loops = unit->loops || s->units[used].loops;
                    unit->braces = unit->braces || s->units[used].braces;
                    unit->statics = unit->statics || s->units[used].statics;
                    unit->ends = unit->ends || s->units[used].ends;
                    unit->quotes_expanded = unit->quotes_expanded || s->units[used].quotes ||
                                            s->units[used].quotes_expanded;
                }
            }
            changed = changed || before.loops != unit->loops || before.braces != unit->braces ||
                      before.statics != unit->statics || before.ends != unit->ends ||
                      before.quotes_expanded != unit->quotes_expanded;
        }
    }
}

bool kernel_source_is_macro(const struct kernel_source *s, struct token name, bool with_braces)
{
    bool is = false;
    size_t u = kernel_source_find(s, name);
    for (; u < s->unit_count && token_same(s->units[u].name, name); u++)
        is = is || (s->units[u].macro && (s->units[u].braces || !with_braces));
    return is;
}

/* True when names of functions may not be what is written: macros may make functions, and a
 * function with the name of a macro has another name. */
static bool kernel_source_generates(const struct kernel_source *s)
{
    bool any = false;
    for (size_t i = 0; !any && i < s->outside_count; i++)
        any = kernel_source_is_macro(s, s->outside[i], true);
    for (size_t u = 0; !any && u < s->unit_count; u++)
        any = s->units[u].last && kernel_source_is_macro(s, s->units[u].name, false);
    return any;
}

static void kernel_source_sort_units(struct kernel_source *s)
{
    if (s->unit_count)
        qsort(s->units, s->unit_count, sizeof(s->units[0]), kernel_source_by_name);
}

/* What macros paste together, as text of its own. Sorted before and after. */
static int kernel_source_add_pasted(struct kernel_source *s)
{
    char *text = NULL;
    size_t size = 0;
    int err = kernel_paste(s, &text, &size);
    if (err == -ENOTSUP) {
        kernel_source_refuse(s, "its source pastes names together that cannot be read");
        err = 0;
    } else if (!err && size) {
        size_t first = s->unit_count;
        err = kernel_source_add_text(s, text, size);
        for (size_t u = first; u < s->unit_count; u++)
            s->units[u].pasted = true;
        kernel_source_sort_units(s);
    }
    free(text);
    return err;
}

int kernel_source_read(const struct recipe *recipe, struct kernel_source *ret_source)
{
    *ret_source = (struct kernel_source){0};
    int err = kernel_source_add_recipe(ret_source, recipe);
    kernel_source_sort_units(ret_source);
    if (!err)
        err = kernel_source_add_pasted(ret_source);
    if (err)
        return err;
    kernel_source_spread_through_macros(ret_source);
    ret_source->generates = kernel_source_generates(ret_source);
    return 0;
}

void kernel_source_finish(struct kernel_source *s)
{
    for (size_t i = 0; i < s->text_count; i++)
        directives_finish(&s->texts[i].directives);
    free(s->texts);
    free(s->branches);
    free(s->tokens);
    free(s->units);
    free(s->outside);
    free(s->asked);
    *s = (struct kernel_source){0};
}
