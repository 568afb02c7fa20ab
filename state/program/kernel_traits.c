#include "state/program/kernel_traits.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/recipe/preprocess.h"

struct token {
    const char *text;
    size_t length;
};

/* A function with its parameters, or a macro's definition. */
struct unit {
    struct token name;
    size_t first, body, end; /* tokens; @body: behind the parameters */
    bool macro, kernel;
    bool loops;            /* a macro: what stands behind it may be its loop's body */
    bool seen, seen_loops; /* in the walk from one kernel; the second: from inside a loop */
};

struct reading {
    struct directives *texts; /* what the tokens point into */
    size_t text_count;
    struct token *tokens;
    size_t count;
    struct unit *units;
    size_t unit_count;
    struct token *volatiles; /* names that were declared so */
    size_t volatile_count;
    bool pastes;    /* by ##: names that do not stand in the text */
    bool shadows;   /* directives say what the names below are */
    bool broken;    /* functions could not be told from one another */
    unsigned depth; /* of the walk */
    struct kernel_traits traits;
};

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool token_is(struct token token, const char *word)
{
    return token.length == strlen(word) && memcmp(token.text, word, token.length) == 0;
}

static bool token_begins(struct token token, const char *word)
{
    return token.length >= strlen(word) && memcmp(token.text, word, strlen(word)) == 0;
}

static bool same(struct token a, struct token b)
{
    return a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

static bool is_one_of(struct token token, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (token_is(token, words[i]))
            return true;
    return false;
}
#define IS_ONE_OF(token, words) is_one_of(token, words, ARRAY_SIZE(words))

static bool is_name(struct token token)
{
    return token.length > 0 && is_word(*token.text) && !isdigit((unsigned char)*token.text);
}

/* The functions that a piece answers for itself: those that make it ask for its place, and two that
 * say the same in a piece, but not in one that is told its place (program_cut.c). */
static const char *const place_names[] = {
    "get_group_id",         "get_num_groups", "get_global_size", "get_global_offset",
    "get_global_linear_id", "get_work_dim",   "get_global_id",
};
#define PLACE_NAMES_ASK 5

/* ---- tokens and units ---- */

static int add_token(struct reading *r, const char *text, size_t length)
{
    if (!array_make_room(&r->tokens, r->count, sizeof(r->tokens[0])))
        return -ENOMEM;
    r->tokens[r->count++] = (struct token){text, length};
    return 0;
}

/* Words and single characters; quoted text is none. */
static int add_tokens(struct reading *r, const char *at, const char *end)
{
    int err = 0;
    while (!err && at < end) {
        const char *from = at;
        if (*at == '"' || *at == '\'') {
            for (at++; at < end && *at != *from && *at != '\n'; at++)
                at += *at == '\\' && end - at > 1;
            at += at < end;
        } else if (is_word(*at)) {
            while (at < end && is_word(*at))
                at++;
            err = add_token(r, from, (size_t)(at - from));
        } else if (isspace((unsigned char)*at)) {
            at++;
        } else {
            /* "##", or "%:%:" */
            r->pastes =
                r->pastes ||
                (end - at > 1 && ((*at == '#' && at[1] == '#') || (*at == '%' && at[1] == ':')));
            err = add_token(r, at++, 1);
        }
    }
    return err;
}

static int add_unit(struct reading *r, struct unit unit)
{
    if (!array_make_room(&r->units, r->unit_count, sizeof(r->units[0])))
        return -ENOMEM;
    r->units[r->unit_count++] = unit;
    return 0;
}

/* "NAME body", "NAME(x) body", or, of an option, "NAME=body". */
static int add_macro(struct reading *r, const char *at, const char *end)
{
    static const char *const loops[] = {"for", "while", "do", "goto"};
    size_t first = r->count;
    int err = add_tokens(r, at, end);
    if (err || r->count == first)
        return err;
    r->shadows = r->shadows || IS_ONE_OF(r->tokens[first], place_names);
    struct unit unit = {.name = r->tokens[first], .first = first + 1, .macro = true};
    unit.body = unit.first;
    unit.end = r->count;
    for (size_t i = unit.first; i < unit.end; i++)
        unit.loops = unit.loops || IS_ONE_OF(r->tokens[i], loops);
    return add_unit(r, unit);
}

/* Behind the bracket that closes the one at @at; @end where none does. */
static size_t behind_bracket(const struct reading *r, size_t at, size_t end, const char *open,
                             const char *close)
{
    size_t depth = 0;
    for (; at < end; at++) {
        depth += token_is(r->tokens[at], open);
        depth -= token_is(r->tokens[at], close) && depth > 0;
        if (depth == 0)
            return at + 1;
    }
    return end;
}

/* As many brackets close as open: text of several branches may have a function's head twice. */
static bool is_closed(const struct reading *r, size_t at, size_t end)
{
    size_t depth = 0;
    for (; at < end; at++) {
        depth += token_is(r->tokens[at], "{");
        depth -= token_is(r->tokens[at], "}");
    }
    return depth == 0;
}

static bool is_attribute(struct token token)
{
    return token_is(token, "__attribute__") || token_is(token, "__attribute");
}

/* The functions between @at and @end, which is outside of all brackets. */
static int add_functions(struct reading *r, size_t at, size_t end)
{
    struct unit unit = {0};
    bool named = false, kernel = false;
    int err = 0;
    while (!err && at < end) {
        struct token token = r->tokens[at];
        if (is_attribute(token) && at + 1 < end) {
            at = behind_bracket(r, at + 1, end, "(", ")");
        } else if (token_is(token, "(")) {
            if (at > 0 && is_name(r->tokens[at - 1]))
                unit = (struct unit){.name = r->tokens[at - 1], .first = at};
            named = named || unit.name.length > 0;
            at = behind_bracket(r, at, end, "(", ")");
            unit.body = at;
        } else if (token_is(token, "{")) {
            size_t behind = behind_bracket(r, at, end, "{", "}");
            r->broken = r->broken || !is_closed(r, at, behind);
            unit.end = behind;
            unit.kernel = kernel;
            if (named)
                err = add_unit(r, unit);
            kernel = kernel && !named;
            named = false;
            at = behind;
        } else {
            kernel = kernel || token_is(token, "kernel") || token_is(token, "__kernel");
            r->broken = r->broken || token_is(token, "}");
            if (token_is(token, ";"))
                named = kernel = false;
            at++;
        }
    }
    return err;
}

/* "#undef get_group_id", "#ifdef get_group_id": with a macro of that name it is another text. */
static void note_directive(struct reading *r, const char *at, const char *end)
{
    static const char *const words[] = {"undef", "if", "elif", "ifdef", "ifndef"};
    bool asks = false, first = true;
    while (at < end) {
        const char *from = at;
        while (at < end && is_word(*at))
            at++;
        struct token token = {from, (size_t)(at - from)};
        if (token.length == 0)
            at++;
        else if (first)
            asks = IS_ONE_OF(token, words);
        else
            r->shadows = r->shadows || (asks && IS_ONE_OF(token, place_names));
        first = first && token.length == 0;
    }
}

/* A line's end within a name, or what trigraphs may make of one: names that do not stand there. */
static bool is_spliced(const char *text, size_t size)
{
    const char *end = text + size, *at = text;
    while ((at = memchr(at, '\\', (size_t)(end - at)))) {
        const char *next = at + 1;
        next += next < end && *next == '\r';
        if (at > text && is_word(at[-1]) && end - next > 1 && *next == '\n' && is_word(next[1]))
            return true;
        at++;
    }
    return memmem(text, size, "?\?/", 3) || memmem(text, size, "?\?=", 3);
}

static int add_text(struct reading *r, const char *text, size_t size)
{
    if (!array_make_room(&r->texts, r->text_count, sizeof(r->texts[0])))
        return -ENOMEM;
    struct directives *directives = &r->texts[r->text_count];
    int err = directives_read(text, size, directives);
    if (err)
        return err;
    r->text_count++;
    r->pastes = r->pastes || is_spliced(text, size);
    const char *clean = directives->clean, *end = clean + directives->size;
    for (size_t i = 0; !err && i < directives->count; i++)
        if (directives->list[i].kind == DIRECTIVE_DEFINE)
            err = add_macro(r, clean + directives->list[i].at, clean + directives->list[i].end);
    size_t first = r->count;
    for (const char *line = clean; !err && line < end;) {
        const char *line_end = memchr(line, '\n', (size_t)(end - line));
        const char *word = line;
        line_end = line_end ? line_end : end;
        while (word < line_end && isspace((unsigned char)*word))
            word++;
        if (word == line_end || (*word != '#' && !(*word == '%' && word[1] == ':')))
            err = add_tokens(r, line, line_end);
        else
            note_directive(r, word, line_end);
        line = line_end < end ? line_end + 1 : end;
    }
    return err ? err : add_functions(r, first, r->count);
}

static int add_options(struct reading *r, const char *options)
{
    size_t cursor = 0;
    struct option option;
    int found, err = 0;
    if (strstr(options, "CLC++"))
        r->traits.whole = "it is written in C++";
    while (!err && (found = option_next(options, &cursor, &option)) != 0) {
        if (found < 0)
            return found;
        /* A text like any other, that its tokens can point into. */
        if (option.kind == OPTION_DEFINE && option.argument) {
            size_t size = strlen("#define ") + strlen(option.argument) + 1;
            char *line = malloc(size + 1);
            if (line) {
                strcpy(line, "#define ");
                strcat(line, option.argument);
                char *equals = strchr(line, '=');
                if (equals)
                    *equals = ' ';
            }
            err = line ? add_text(r, line, strlen(line)) : -ENOMEM;
            free(line);
        }
        free(option.argument);
    }
    return err;
}

static int add_recipe(struct reading *r, const struct recipe *recipe)
{
    int err = 0;
    if (recipe->kind == RECIPE_IL)
        r->traits.whole = "it was given as IL, which is not rewritten";
    if (recipe->kind == RECIPE_SOURCE)
        return add_text(r, recipe->bytes, recipe->size);
    if (recipe->options)
        err = add_options(r, recipe->options);
    for (uint32_t i = 0; !err && i < recipe->input_count; i++)
        err = add_recipe(r, recipe->inputs[i]);
    if (recipe->headers && recipe->headers->partial)
        r->traits.whole = "some of what it includes could not be read";
    for (uint32_t i = 0; !err && recipe->headers && i < recipe->headers->count; i++)
        if (recipe->headers->list[i].bytes)
            err = add_text(r, recipe->headers->list[i].bytes, recipe->headers->list[i].size);
    return err;
}

static int by_name(const void *a, const void *b)
{
    const struct unit *one = a, *other = b;
    size_t length = one->name.length < other->name.length ? one->name.length : other->name.length;
    int order = memcmp(one->name.text, other->name.text, length);
    return order != 0
               ? order
               : (one->name.length > other->name.length) - (one->name.length < other->name.length);
}

/* The first unit of that name, unit_count where there is none. */
static size_t find_unit(const struct reading *r, struct token name)
{
    const struct unit key = {.name = name};
    size_t low = 0, high = r->unit_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (by_name(&r->units[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->unit_count && same(r->units[low].name, name) ? low : r->unit_count;
}

/* A macro that uses one that loops does so too. */
static void spread_loops(struct reading *r)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t u = 0; u < r->unit_count; u++) {
            struct unit *unit = &r->units[u];
            for (size_t i = unit->body; unit->macro && !unit->loops && i < unit->end; i++) {
                size_t used = find_unit(r, r->tokens[i]);
                for (; used < r->unit_count && same(r->units[used].name, r->tokens[i]); used++)
                    unit->loops = unit->loops || (r->units[used].macro && r->units[used].loops);
                changed = changed || unit->loops;
            }
        }
    }
}

/* ---- what may wait ---- */

/* Among a function's parameters? */
static bool is_in_brackets(const struct reading *r, size_t at)
{
    size_t depth = 0;
    while (at-- > 0) {
        struct token token = r->tokens[at];
        if (token_is(token, ";") || token_is(token, "{") || token_is(token, "}"))
            return false;
        depth += token_is(token, ")");
        if (token_is(token, "(") && depth-- == 0)
            return true;
    }
    return false;
}

/* The names that a declaration with "volatile" at @at declares; of local memory none counts. */
static int add_volatiles(struct reading *r, size_t at)
{
    size_t first = r->volatile_count;
    bool local = false, alone = is_in_brackets(r, at);
    for (size_t i = at > 3 ? at - 3 : 0; i < at; i++)
        local = !token_is(r->tokens[i], ",") && !token_is(r->tokens[i], "(") &&
                !token_is(r->tokens[i], ";") &&
                (local || token_is(r->tokens[i], "local") || token_is(r->tokens[i], "__local"));
    for (size_t i = at + 1; i < r->count; i++) {
        struct token token = r->tokens[i];
        if (token_is(token, ";") || token_is(token, "{") || token_is(token, "=") ||
            token_is(token, ")") || (alone && token_is(token, ",")))
            break;
        local = local || token_is(token, "local") || token_is(token, "__local");
        if (!is_name(token))
            continue;
        if (!array_make_room(&r->volatiles, r->volatile_count, sizeof(r->volatiles[0])))
            return -ENOMEM;
        r->volatiles[r->volatile_count++] = token;
    }
    if (local)
        r->volatile_count = first;
    return 0;
}

/* "atomic_int" and the like; and not a call. */
static bool declares_volatile(const struct reading *r, size_t at)
{
    struct token token = r->tokens[at];
    return token_is(token, "volatile") || token_is(token, "__volatile__") ||
           (token_begins(token, "atomic_") && at + 1 < r->count &&
            !token_is(r->tokens[at + 1], "("));
}

static bool is_type_word(struct token token)
{
    static const char *const words[] = {
        "global",  "__global", "const",     "unsigned", "signed",     "char",
        "uchar",   "short",    "ushort",    "int",      "uint",       "long",
        "ulong",   "float",    "double",    "half",     "size_t",     "restrict",
        "__const", "local",    "__local",   "constant", "__constant", "int2",
        "int4",    "uint2",    "uint4",     "float2",   "float4",     "void",
        "struct",  "private",  "__private", "bool",     "volatile",   "__restrict",
    };
    return IS_ONE_OF(token, words);
}

static bool is_volatile(const struct reading *r, struct token token)
{
    if (!is_name(token) || is_type_word(token))
        return false;
    for (size_t i = 0; i < r->volatile_count; i++)
        if (same(r->volatiles[i], token))
            return true;
    return false;
}

static bool is_atomic_call(const struct reading *r, size_t at, size_t end)
{
    struct token token = r->tokens[at];
    return (token_begins(token, "atomic_") || token_begins(token, "atom_")) && at + 1 < end &&
           token_is(r->tokens[at + 1], "(");
}

/* Of one whose value is looked at; @behind: the end of its arguments. */
static bool atomic_is_used(const struct reading *r, const struct unit *unit, size_t at,
                           size_t behind)
{
    static const char *const before[] = {";", "{", "}", "else", "do"};
    static const char *const heads[] = {"if", "for", "while", "switch"};
    if (token_begins(r->tokens[at], "atomic_store") || token_begins(r->tokens[at], "atomic_init"))
        return false;
    if (token_begins(r->tokens[at], "atomic_load") || token_begins(r->tokens[at], "atomic_flag") ||
        at == unit->body || behind >= unit->end || !token_is(r->tokens[behind], ";"))
        return true;
    if (IS_ONE_OF(r->tokens[at - 1], before))
        return false;
    if (!token_is(r->tokens[at - 1], ")"))
        return true;
    /* "if (...) atomic_inc(p);", and not a cast. */
    size_t depth = 0, i = at;
    while (i-- > unit->body) {
        depth += token_is(r->tokens[i], ")");
        depth -= token_is(r->tokens[i], "(");
        if (depth == 0)
            return i == unit->body || !IS_ONE_OF(r->tokens[i - 1], heads);
    }
    return true;
}

/* The end of the loop that begins at @at: of its brackets; without them, of the block that it is
 * in, which is as far as it can go. */
static size_t loop_end(const struct reading *r, const struct unit *unit, size_t at)
{
    size_t depth = 0;
    bool is_do = token_is(r->tokens[at], "do");
    at++;
    if (!is_do && at < unit->end && token_is(r->tokens[at], "("))
        at = behind_bracket(r, at, unit->end, "(", ")");
    if (at < unit->end && token_is(r->tokens[at], ";"))
        return at;
    if (at < unit->end && token_is(r->tokens[at], "{"))
        return behind_bracket(r, at, unit->end, "{", "}");
    for (; at < unit->end; at++) {
        depth += token_is(r->tokens[at], "{");
        if (token_is(r->tokens[at], "}") && depth-- == 0)
            break;
    }
    return at;
}

static void refuse(struct reading *r, const char *reason)
{
    if (!r->traits.whole)
        r->traits.whole = reason;
}

/* What groups do together to one word: of two copies of it none would be right. */
static void note_together(struct reading *r, struct token token)
{
    static const char *const words[] = {"volatile", "__volatile__"};
    if (token_begins(token, "atomic_") || token_begins(token, "atom_") || IS_ONE_OF(token, words))
        r->traits.stays = "it uses atomic functions, or volatile memory";
    if (token_is(token, "printf"))
        r->traits.stays = "it prints";
}

static void note_places(struct reading *r, struct token token)
{
    r->traits.places = r->traits.places || is_one_of(token, place_names, PLACE_NAMES_ASK);
}

/* What is not cut wherever it stands. */
static void note_strange(struct reading *r, struct token token)
{
    static const char *const enqueues[] = {"enqueue_kernel", "enqueue_marker", "ndrange_t",
                                           "queue_t", "clk_event_t"};
    static const char *const pipes[] = {
        "pipe", "__pipe", "read_pipe", "write_pipe", "reserve_read_pipe", "reserve_write_pipe"};
    static const char *const inner[] = {
        "__nvvm",         "__spirv",      "__ockl", "__builtin_amdgcn",
        "__builtin_nvvm", "__builtin_IB", "_Z",     "llvm"};
    if (IS_ONE_OF(token, pipes))
        refuse(r, "it uses a pipe, which orders its work-groups");
    if (IS_ONE_OF(token, enqueues))
        refuse(r, "it enqueues kernels itself");
    if (token_is(token, "asm") || token_is(token, "__asm") || token_is(token, "__asm__"))
        refuse(r, "it has assembly, which is not read");
    for (size_t i = 0; i < ARRAY_SIZE(inner); i++)
        if (token_begins(token, inner[i]))
            refuse(r, "it calls functions of one compiler's own");
}

static void note_fence(struct reading *r, struct token token)
{
    static const char *const fences[] = {"mem_fence",
                                         "read_mem_fence",
                                         "write_mem_fence",
                                         "atomic_work_item_fence",
                                         "CLK_GLOBAL_MEM_FENCE",
                                         "CLK_IMAGE_MEM_FENCE"};
    if (IS_ONE_OF(token, fences))
        refuse(r, "a loop with a fence of global memory may wait for another work-group");
}

/* Calls and macros inside each other that are followed: each takes some of the stack. */
#define DEPTH_MAX 200

static void walk(struct reading *r, size_t index, bool in_loop);

static void walk_used(struct reading *r, struct token name, bool in_loop, bool *ret_loops)
{
    size_t used = is_name(name) ? find_unit(r, name) : r->unit_count;
    for (; used < r->unit_count && same(r->units[used].name, name); used++) {
        *ret_loops = *ret_loops || (r->units[used].macro && r->units[used].loops);
        walk(r, used, in_loop);
    }
}

/* One unit and all that it uses. */
static void walk(struct reading *r, size_t index, bool in_loop)
{
    static const char *const loops[] = {"for", "while", "do"};
    struct unit *unit = &r->units[index];
    if (unit->seen_loops || (unit->seen && !in_loop))
        return;
    if (r->depth == DEPTH_MAX) {
        refuse(r, "its functions call each other deeper than is read");
        return;
    }
    r->depth++;
    unit->seen = true;
    unit->seen_loops = in_loop;
    size_t loop = in_loop ? unit->end : unit->body; /* up to there it is in one */
    size_t arguments = unit->body;                  /* and up to there in an atomic's arguments */
    for (size_t i = unit->first; i < unit->end; i++) {
        struct token token = r->tokens[i];
        bool looping = i < loop && i >= unit->body, opens = false;
        note_places(r, token);
        note_strange(r, token);
        note_together(r, token);
        if (i >= unit->body && IS_ONE_OF(token, loops)) {
            size_t end = loop_end(r, unit, i);
            loop = end > loop ? end : loop;
        }
        if (token_is(token, "goto"))
            opens = true;
        if (is_atomic_call(r, i, unit->end)) {
            size_t behind = behind_bracket(r, i + 1, unit->end, "(", ")");
            bool used = atomic_is_used(r, unit, i, behind);
            if (looping && used)
                refuse(r, "a loop over an atomic's value may wait for another work-group");
            if (!used && behind > arguments)
                arguments = behind;
        } else if (looping) {
            note_fence(r, token);
            if (i >= arguments && (token_is(token, "volatile") || is_volatile(r, token)))
                refuse(r, "a loop that reads volatile memory may wait for another work-group");
        }
        walk_used(r, token, looping, &opens);
        if (opens && !in_loop) {
            walk(r, index, true); /* as if all of it were a loop */
            break;
        }
    }
    r->depth--;
}

/* A part of a name, with others that it may be pasted to. */
static bool may_be_pasted(struct token token, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(names[i]);
        if (token.length < 3 || token.length >= length)
            continue;
        if (token.text[token.length - 1] == '_' && memcmp(names[i], token.text, token.length) == 0)
            return true;
        if (token.text[0] == '_' &&
            memcmp(names[i] + length - token.length, token.text, token.length) == 0)
            return true;
    }
    return false;
}

static bool any_pasted(const struct reading *r, const char *const *names, size_t count)
{
    bool any = false;
    for (size_t i = 0; r->pastes && !any && i < r->count; i++)
        any = may_be_pasted(r->tokens[i], names, count);
    return any;
}

static int read_all(struct reading *r, const struct recipe *recipe)
{
    int err = add_recipe(r, recipe);
    for (size_t i = 0; !err && i < r->count; i++)
        if (declares_volatile(r, i))
            err = add_volatiles(r, i);
    if (err)
        return err;
    if (r->unit_count)
        qsort(r->units, r->unit_count, sizeof(r->units[0]), by_name);
    spread_loops(r);
    return 0;
}

static void walk_from(struct reading *r, const char *name)
{
    static const char *const words[] = {"enqueue_kernel", "read_pipe", "write_pipe",
                                        "mem_fence",      "volatile",  "atomic_cmpxchg",
                                        "atomic_load"};
    size_t at = find_unit(r, (struct token){name, strlen(name)});
    bool found = false, unused = false;
    for (size_t u = at; u < r->unit_count && token_is(r->units[u].name, name); u++)
        found = found || !r->units[u].macro;
    if (any_pasted(r, place_names, PLACE_NAMES_ASK) || any_pasted(r, words, ARRAY_SIZE(words)))
        refuse(r, "its source pastes names together that cannot be read");
    if (found && !r->pastes && !r->broken) {
        walk_used(r, (struct token){name, strlen(name)}, false, &unused);
        return;
    }
    /* Who calls whom is not known: it may call everything, and in a loop. */
    for (size_t u = 0; u < r->unit_count; u++)
        walk(r, u, r->broken || !r->units[u].kernel);
    if (r->broken)
        refuse(r, "the functions of its source cannot be told from one another");
}

static void find_traits(struct reading *r, const char *name)
{
    walk_from(r, name);
    if (!r->traits.places)
        return;
    if (any_pasted(r, place_names, ARRAY_SIZE(place_names)))
        refuse(r, "its source pastes names together that cannot be read");
    if (r->shadows)
        refuse(r, "its source has macros called as the functions that say where a group is");
}

int kernel_traits_read(const struct recipe *recipe, const char *name,
                       struct kernel_traits *ret_traits)
{
    struct reading r = {0};
    int err = read_all(&r, recipe);
    if (!err) {
        find_traits(&r, name);
        r.traits.even = !recipe_asks_for_new_language(recipe);
        *ret_traits = r.traits;
    }
    for (size_t i = 0; i < r.text_count; i++)
        directives_finish(&r.texts[i]);
    free(r.texts);
    free(r.tokens);
    free(r.units);
    free(r.volatiles);
    return err;
}
