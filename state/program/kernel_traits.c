#include "state/program/kernel_traits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/program/kernel_source.h"
#include "state/program/program_cut.h"

struct reading {
    struct kernel_source source;
    struct token *volatiles; /* names that are declared volatile */
    size_t volatile_count;
    struct token *types; /* types and macros that declare other names volatile */
    size_t type_count;
    bool any_volatile; /* the source has a word like "volatile" */
    unsigned depth;    /* of the walk */
    struct kernel_traits traits;
};

/* The functions that cut_source.c replaces. A kernel that calls one of the first needs the
 * replacements; the last two give the right answer in a piece, but not together with the offsets
 * that the replacements need. */
static const char *const position_names[] = {
    "get_group_id",         "get_num_groups", "get_global_size", "get_global_offset",
    "get_global_linear_id", "get_work_dim",   "get_global_id",
};
#define POSITION_NAMES_ASK 5

/* ---- volatile memory ---- */

/* True for a declaration among a function's parameters; not for one in the brackets of a "for". */
static bool kernel_traits_is_in_brackets(const struct kernel_source *s, size_t at)
{
    size_t depth = 0;
    while (at-- > 0) {
        struct token token = s->tokens[at];
        if (token_is(token, ";") || token_is(token, "{") || token_is(token, "}"))
            return false;
        depth += token_is(token, ")");
        if (token_is(token, "(") && depth-- == 0)
            return at == 0 || !token_is(s->tokens[at - 1], "for");
    }
    return false;
}

/* The number of calls of macros that enclose it. */
static size_t kernel_traits_count_calls(const struct kernel_source *s, size_t at)
{
    size_t depth = 0, calls = 0;
    while (at-- > 1) {
        struct token token = s->tokens[at];
        if (token_is(token, ";") || token_is(token, "{") || token_is(token, "}"))
            break;
        depth += token_is(token, ")");
        if (!token_is(token, "(") || depth-- != 0)
            continue;
        depth = 0;
        if (!kernel_source_is_macro(s, s->tokens[at - 1], false))
            break;
        calls++;
    }
    return calls;
}

/* True in a declaration that begins with "typedef". */
static bool kernel_traits_is_in_typedef(const struct kernel_source *s, size_t at)
{
    size_t depth = 0;
    while (at-- > 0) {
        struct token token = s->tokens[at];
        if (depth == 0 && (token_is(token, ";") || token_is(token, "{") || token_is(token, "(")))
            return false;
        depth += token_is(token, "}") || token_is(token, ")");
        depth -= token_is(token, "{") || token_is(token, "(");
        if (depth == 0 && token_is(token, "typedef"))
            return true;
    }
    return false;
}

/* True for the last of several names side by side: it is declared, the others are its type. */
static bool kernel_traits_is_declared(const struct kernel_source *s, size_t at)
{
    struct token next = at + 1 < s->count ? s->tokens[at + 1] : (struct token){0};
    return !token_is(next, "*") && (!token_is_name(next) || token_is_attribute(next));
}

static bool kernel_traits_is_among(struct token token, const struct token *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (token_same(list[i], token))
            return true;
    return false;
}

static int kernel_traits_add_name(struct token token, struct token **list, size_t *count)
{
    if (kernel_traits_is_among(token, *list, *count))
        return 0;
    if (!array_make_room(list, *count, sizeof(**list)))
        return -ENOMEM;
    (*list)[(*count)++] = token;
    return 0;
}

static bool kernel_traits_is_local(struct token token)
{
    return token_is(token, "local") || token_is(token, "__local");
}

/* True when "volatile" at @at belongs to local memory. Behind a "*" the words are the pointer's. */
static bool kernel_traits_is_of_local(const struct kernel_source *s, size_t at)
{
    bool local = false;
    for (size_t i = at; i-- > 0 && token_is_name(s->tokens[i]);)
        local = local || kernel_traits_is_local(s->tokens[i]);
    for (size_t i = at + 1; i < s->count && token_is_name(s->tokens[i]); i++)
        local = local || kernel_traits_is_local(s->tokens[i]);
    return local;
}

/* The index behind the initial value, of which @at is the "=". */
static size_t kernel_traits_behind_value(const struct kernel_source *s, size_t at)
{
    size_t depth = 0;
    for (; at < s->count; at++) {
        struct token token = s->tokens[at];
        bool closes = token_is(token, ")") || token_is(token, "}") || token_is(token, "]");
        if (depth == 0 && (closes || token_is(token, ",") || token_is(token, ";")))
            break;
        depth += token_is(token, "(") || token_is(token, "{") || token_is(token, "[");
        depth -= closes;
    }
    return at;
}

/* Add the names that a declaration with "volatile" at @at declares. Local memory does not count: no
 * other group reads it. */
static int kernel_traits_add_volatiles(struct reading *r, size_t at)
{
    static const char *const data[] = {"struct", "union", "enum"};
    const struct kernel_source *s = &r->source;
    /* In a macro's call it may declare names behind the call. */
    size_t depth = kernel_traits_count_calls(s, at);
    bool alone = depth == 0 && kernel_traits_is_in_brackets(s, at),
         types = kernel_traits_is_in_typedef(s, at), has_data = false;
    int err = 0;
    if (kernel_traits_is_of_local(s, at))
        return 0;
    for (size_t i = at + 1; !err && i < s->count; i++) {
        struct token token = s->tokens[i];
        if (token_is(token, "=") && i + 1 < s->count && !token_is(s->tokens[i + 1], "=")) {
            i = kernel_traits_behind_value(s, i);
            token = i < s->count ? s->tokens[i] : (struct token){";", 1};
        } else if (token_is(token, "{") && has_data) {
            i = kernel_source_behind(s, i, s->count, "{", "}") - 1;
            has_data = false;
            continue;
        }
        has_data = (has_data || IS_ONE_OF(token, data)) && token_is_name(token);
        depth += token_is(token, "(");
        if (token_is(token, ";") || token_is(token, "{") || token_is(token, "=") ||
            (depth == 0 && (token_is(token, ")") || (alone && token_is(token, ",")))))
            break;
        depth -= token_is(token, ")");
        types = types || token_is(token, "typedef");
        if (token_is_name(token))
            err = kernel_traits_add_name(token, &r->volatiles, &r->volatile_count);
        if (!err && types && token_is_name(token) && kernel_traits_is_declared(s, i))
            err = kernel_traits_add_name(token, &r->types, &r->type_count);
    }
    return err;
}

/* True for words that give a name the type of another expression. */
static bool kernel_traits_is_type_of(struct token token)
{
    static const char *const words[] = {"typeof", "__typeof", "__typeof__", "__auto_type"};
    return IS_ONE_OF(token, words);
}

/* True for "volatile", for types such as "atomic_int", and for the name of an atomic function that
 * is not called here: a macro of another name may call it. */
static bool kernel_traits_is_volatile_word(const struct kernel_source *s, size_t at)
{
    static const char *const words[] = {"volatile", "__volatile", "__volatile__"};
    static const char *const old[] = {"atom_add",     "atom_sub", "atom_xchg", "atom_inc",
                                      "atom_dec",     "atom_min", "atom_max",  "atom_and",
                                      "atom_cmpxchg", "atom_or",  "atom_xor"};
    struct token token = s->tokens[at];
    if (!strchr("v_a", *token.text)) /* excludes most of a million words quickly */
        return false;
    return IS_ONE_OF(token, words) || ((token_begins(token, "atomic_") || IS_ONE_OF(token, old)) &&
                                       at + 1 < s->count && !token_is(s->tokens[at + 1], "("));
}

/* True for these, and for what stands or may stand for one of them. */
static bool kernel_traits_declares_volatile(const struct reading *r, size_t at)
{
    struct token token = r->source.tokens[at];
    return kernel_traits_is_volatile_word(&r->source, at) ||
           kernel_traits_is_among(token, r->types, r->type_count) ||
           (r->any_volatile && kernel_traits_is_type_of(token));
}

/* Add a macro that declares names volatile. Such words in a cast or a call do not count, except in
 * the call of another macro. */
static int kernel_traits_add_macro_type(struct reading *r, const struct unit *unit)
{
    const struct kernel_source *s = &r->source;
    bool declares = false;
    for (size_t i = unit->body; unit->macro && i < unit->end; i++)
        if (token_is_attribute(s->tokens[i]) && i + 1 < unit->end)
            i = kernel_source_behind(s, i + 1, unit->end, "(", ")") - 1;
        else if (token_is(s->tokens[i], "(") &&
                 (i == unit->body || !kernel_source_is_macro(s, s->tokens[i - 1], false)))
            i = kernel_source_behind(s, i, unit->end, "(", ")") - 1;
        else
            declares = declares ||
                       (kernel_traits_declares_volatile(r, i) && !kernel_traits_is_of_local(s, i));
    int err = declares ? kernel_traits_add_name(unit->name, &r->volatiles, &r->volatile_count) : 0;
    return declares && !err ? kernel_traits_add_name(unit->name, &r->types, &r->type_count) : err;
}

/* When a declared name is a macro, the names that it stands for are declared. */
static int kernel_traits_add_declared(struct reading *r, const struct unit *unit)
{
    const struct kernel_source *s = &r->source;
    int err = 0;
    if (!unit->macro || !kernel_traits_is_among(unit->name, r->volatiles, r->volatile_count))
        return 0;
    for (size_t i = unit->body; !err && i < unit->end; i++)
        if (token_is_name(s->tokens[i]))
            err = kernel_traits_add_name(s->tokens[i], &r->volatiles, &r->volatile_count);
    return err;
}

/* Repeated until nothing is added, because types are made of types. */
static int kernel_traits_add_all_volatiles(struct reading *r)
{
    size_t before;
    int err = 0;
    for (size_t i = 0; i < r->source.count && !r->any_volatile; i++)
        r->any_volatile = kernel_traits_is_volatile_word(&r->source, i);
    do {
        before = r->type_count + r->volatile_count;
        for (size_t u = 0; !err && u < r->source.unit_count; u++) {
            err = kernel_traits_add_macro_type(r, &r->source.units[u]);
            err = err ? err : kernel_traits_add_declared(r, &r->source.units[u]);
        }
        for (size_t i = 0; !err && i < r->source.count; i++)
            if (kernel_traits_declares_volatile(r, i))
                err = kernel_traits_add_volatiles(r, i);
    } while (!err && before != r->type_count + r->volatile_count);
    return err;
}

static bool kernel_traits_is_type_word(struct token token)
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

static bool kernel_traits_is_volatile(const struct reading *r, struct token token)
{
    return token_is_name(token) && !kernel_traits_is_type_word(token) &&
           kernel_traits_is_among(token, r->volatiles, r->volatile_count);
}

static bool kernel_traits_is_atomic(struct token token)
{
    return token_begins(token, "atomic_") || token_begins(token, "atom_");
}

static bool kernel_traits_is_atomic_call(const struct kernel_source *s, size_t at, size_t end)
{
    return kernel_traits_is_atomic(s->tokens[at]) && at + 1 < end &&
           token_is(s->tokens[at + 1], "(");
}

/* True when the value of the atomic function at @at is used. @behind: end of its arguments. */
static bool kernel_traits_atomic_is_used(const struct kernel_source *s, const struct unit *unit,
                                         size_t at, size_t behind)
{
    static const char *const before[] = {";", "{", "}", "else", "do"};
    static const char *const heads[] = {"if", "for", "while", "switch"};
    if (token_begins(s->tokens[at], "atomic_store") || token_begins(s->tokens[at], "atomic_init"))
        return false;
    if (token_begins(s->tokens[at], "atomic_load") || token_begins(s->tokens[at], "atomic_flag") ||
        token_begins(s->tokens[at], "atomic_compare") || /* returns what it read by an argument */
        at == unit->body || behind >= unit->end || !token_is(s->tokens[behind], ";"))
        return true;
    /* "({ atomic_or(p, 0);; })" has a value. */
    while (behind < unit->end && token_is(s->tokens[behind], ";"))
        behind++;
    if (behind + 1 < s->count && token_is(s->tokens[behind], "}") &&
        token_is(s->tokens[behind + 1], ")"))
        return true;
    if (IS_ONE_OF(s->tokens[at - 1], before))
        return false;
    if (!token_is(s->tokens[at - 1], ")"))
        return true;
    /* The brackets before it are of "if (...) atomic_inc(p);", and not a cast. */
    size_t depth = 0, i = at;
    while (i-- > unit->body) {
        depth += token_is(s->tokens[i], ")");
        depth -= token_is(s->tokens[i], "(");
        if (depth == 0)
            return i == unit->body || !IS_ONE_OF(s->tokens[i - 1], heads);
    }
    return true;
}

/* The end of the loop that begins at @at: that of its braces, or without braces that of the block
 * around it, beyond which it cannot go. */
static size_t kernel_traits_loop_end(const struct kernel_source *s, const struct unit *unit,
                                     size_t at)
{
    size_t depth = 0;
    bool is_do = token_is(s->tokens[at], "do");
    at++;
    if (!is_do && at < unit->end && token_is(s->tokens[at], "("))
        at = kernel_source_behind(s, at, unit->end, "(", ")");
    if (at < unit->end && token_is(s->tokens[at], ";"))
        return at;
    if (at < unit->end && token_is(s->tokens[at], "{"))
        return kernel_source_behind(s, at, unit->end, "{", "}");
    for (; at < unit->end; at++) {
        depth += token_is(s->tokens[at], "{");
        if (token_is(s->tokens[at], "}") && depth-- == 0)
            break;
    }
    return at;
}

static void kernel_traits_refuse(struct reading *r, const char *reason)
{
    if (!r->traits.whole)
        r->traits.whole = reason;
}

/* Note what several groups do to the same word: then neither of two copies would be right. */
static void kernel_traits_note_together(struct reading *r, size_t at)
{
    struct token token = r->source.tokens[at];
    if (kernel_traits_is_atomic(token) || kernel_traits_declares_volatile(r, at))
        r->traits.stays = "it uses atomic functions, or volatile memory";
    if (token_is(token, "printf"))
        r->traits.stays = "it prints";
}

static void kernel_traits_note_position(struct reading *r, struct token token)
{
    r->traits.asks_position =
        r->traits.asks_position || token_is_one_of(token, position_names, POSITION_NAMES_ASK);
}

static bool kernel_traits_begins_one_of(struct token token, const char *const *words, size_t count)
{
    bool begins = false;
    for (size_t i = 0; i < count; i++)
        begins = begins || token_begins(token, words[i]);
    return begins;
}

/* Refuse a kernel that uses something with which launches are never given in pieces. */
static void kernel_traits_note_strange(struct reading *r, struct token token)
{
    static const char *const enqueues[] = {"enqueue_kernel", "enqueue_marker", "ndrange_t",
                                           "queue_t", "clk_event_t"};
    static const char *const pipes[] = {
        "pipe", "__pipe", "read_pipe", "write_pipe", "reserve_read_pipe", "reserve_write_pipe"};
    static const char *const both[] = {"read_write", "__read_write"};
    static const char *const asms[] = {"asm", "__asm", "__asm__"};
    static const char *const subgroups[] = {"sub_group_",
                                            "get_sub_group_",
                                            "get_num_sub_groups",
                                            "get_max_sub_group_size",
                                            "get_enqueued_num_sub",
                                            "intel_sub_group",
                                            "qcom_"};
    static const char *const inner[] = {"__nvvm",
                                        "__spirv",
                                        "__ockl",
                                        "__builtin_amdgcn",
                                        "__builtin_nvvm",
                                        "__builtin_IB",
                                        "__builtin_ia32",
                                        "__builtin_arm",
                                        "__builtin_aarch64",
                                        "__builtin_nontemporal",
                                        "_Z",
                                        "llvm",
                                        "__sync_",
                                        "__atomic_",
                                        "__c11_atomic_",
                                        "__opencl_atomic_",
                                        "__scoped_atomic_"};
    if (IS_ONE_OF(token, pipes))
        kernel_traits_refuse(r, "it uses a pipe, which orders its work-groups");
    if (IS_ONE_OF(token, enqueues))
        kernel_traits_refuse(r, "it enqueues kernels itself");
    if (IS_ONE_OF(token, both))
        kernel_traits_refuse(
            r, "it reads and writes an image, and may wait there for another work-group");
    if (IS_ONE_OF(token, asms))
        kernel_traits_refuse(r, "it has assembly, which is not read");
    /* Pieces may run on devices with sub-groups of different sizes. */
    if (kernel_traits_begins_one_of(token, subgroups, ARRAY_SIZE(subgroups)))
        kernel_traits_refuse(r, "it uses sub-groups, whose size depends on the device");
    if (kernel_traits_begins_one_of(token, inner, ARRAY_SIZE(inner)))
        kernel_traits_refuse(r, "it calls functions of one compiler's own");
}

static void kernel_traits_note_fence(struct reading *r, size_t at)
{
    static const char *const fences[] = {"mem_fence",
                                         "read_mem_fence",
                                         "write_mem_fence",
                                         "atomic_work_item_fence",
                                         "CLK_GLOBAL_MEM_FENCE",
                                         "CLK_IMAGE_MEM_FENCE"};
    static const char *const barriers[] = {"barrier", "work_group_barrier"};
    const struct token *tokens = &r->source.tokens[at];
    bool local = at + 3 < r->source.count && token_is(tokens[1], "(") &&
                 token_is(tokens[2], "CLK_LOCAL_MEM_FENCE") &&
                 (token_is(tokens[3], ")") || token_is(tokens[3], ","));
    if (IS_ONE_OF(*tokens, fences) || (IS_ONE_OF(*tokens, barriers) && !local))
        kernel_traits_refuse(
            r, "a loop with a fence of global memory may wait for another work-group");
}

/* Depth to which calls and macros are followed: each level takes some of the stack. */
#define DEPTH_MAX 200

static void kernel_traits_walk(struct reading *r, size_t index, bool in_loop);

static void kernel_traits_walk_used(struct reading *r, struct token name, bool in_loop,
                                    bool *ret_loops)
{
    const struct kernel_source *s = &r->source;
    size_t used = token_is_name(name) ? kernel_source_find(s, name) : s->unit_count;
    for (; used < s->unit_count && token_same(s->units[used].name, name); used++) {
        *ret_loops = *ret_loops || s->units[used].loops;
        kernel_traits_walk(r, used, in_loop);
    }
}

/* Note the token at @at in a loop. @in_arguments: among the arguments of an atomic function whose
 * value is not used. */
static void kernel_traits_note_looping(struct reading *r, size_t at, bool in_arguments)
{
    struct token token = r->source.tokens[at];
    kernel_traits_note_fence(r, at);
    if (token_is(token, "printf"))
        kernel_traits_refuse(r, "a loop that prints may wait for another work-group");
    if (!in_arguments &&
        (kernel_traits_declares_volatile(r, at) || kernel_traits_is_volatile(r, token)))
        kernel_traits_refuse(r,
                             "a loop that reads volatile memory may wait for another work-group");
}

/* Visit a unit and all that it uses, until there is a reason to refuse. */
static void kernel_traits_walk(struct reading *r, size_t index, bool in_loop)
{
    static const char *const loops[] = {"for", "while", "do"};
    const struct kernel_source *s = &r->source;
    struct unit *unit = &s->units[index];
    unit->recurses = unit->recurses || (unit->open && !unit->macro);
    if (unit->seen_loops || (unit->seen && !in_loop) || r->traits.whole)
        return;
    if (r->depth == DEPTH_MAX) {
        kernel_traits_refuse(r, "its functions call each other deeper than is read");
        return;
    }
    r->depth++;
    unit->open = unit->seen = true;
    unit->seen_loops = in_loop;
    size_t loop = in_loop ? unit->end : unit->body; /* end of the loop that it is in */
    size_t arguments = unit->body; /* end of the atomic function's arguments that it is in */
    bool opens = false;
    for (size_t i = unit->first; i < unit->end && !opens && !r->traits.whole; i++) {
        struct token token = s->tokens[i];
        bool looping = i < loop && i >= unit->body;
        kernel_traits_note_position(r, token);
        kernel_traits_note_strange(r, token);
        kernel_traits_note_together(r, i);
        if (i >= unit->body && IS_ONE_OF(token, loops)) {
            size_t end = kernel_traits_loop_end(s, unit, i);
            loop = end > loop ? end : loop;
            r->traits.loops = true;
        }
        opens = token_is(token, "goto");
        if (kernel_traits_is_atomic_call(s, i, unit->end)) {
            size_t behind = kernel_source_behind(s, i + 1, unit->end, "(", ")");
            bool used = kernel_traits_atomic_is_used(s, unit, i, behind);
            if (looping && used)
                kernel_traits_refuse(
                    r, "a loop over an atomic's value may wait for another work-group");
            if (!used && behind > arguments)
                arguments = behind;
        } else if (looping) {
            kernel_traits_note_looping(r, i, i < arguments);
        }
        kernel_traits_walk_used(r, token, looping, &opens);
        opens = opens && !in_loop;
    }
    r->traits.loops = r->traits.loops || opens || unit->recurses;
    if ((opens || unit->recurses) && !unit->seen_loops)
        kernel_traits_walk(r, index, true); /* again, as if all of it were a loop */
    unit->open = false;
    r->depth--;
}

static bool kernel_traits_stands_there(const struct kernel_source *s, const char *name)
{
    bool stands = false;
    for (size_t i = 0; i < s->count && !stands; i++)
        stands = token_is(s->tokens[i], name);
    return stands;
}

/* True for "^{", or "^(" without an operand before it: a function without a name, and not an
 * exclusive or. */
static bool kernel_traits_has_blocks(const struct kernel_source *s)
{
    static const char *const operands[] = {")", "]", "}"};
    bool has = false;
    for (size_t i = 0; i + 1 < s->count && !has; i++) {
        struct token before = i > 0 ? s->tokens[i - 1] : (struct token){";", 1};
        has = token_is(s->tokens[i], "^") &&
              (token_is(s->tokens[i + 1], "{") || token_is(before, "return") ||
               !(IS_ONE_OF(before, operands) || token_is_name(before) ||
                 (*before.text >= '0' && *before.text <= '9')));
    }
    return has;
}

/* Note the tokens outside all functions, which macros may put into any of them: the arguments of a
 * macro that makes a kernel. They may be in its loop, unless they are a function's parameters. */
static void kernel_traits_note_outside(struct reading *r, const struct source_text *text)
{
    const struct kernel_source *s = &r->source;
    size_t parameters = 0, brackets = 0; /* the ends of those that it is in */
    for (size_t i = text->first; i < text->end && !r->traits.whole; i++) {
        struct token token = s->tokens[i];
        if (token_is(token, "{") && i >= brackets) {
            i = kernel_source_behind(s, i, text->end, "{", "}") - 1;
            continue;
        }
        if (token_is(token, "(") && i >= brackets) {
            bool named = i > text->first && token_is_name(s->tokens[i - 1]) &&
                         !kernel_source_is_macro(s, s->tokens[i - 1], false);
            brackets = kernel_source_behind(s, i, text->end, "(", ")");
            parameters = named ? brackets : 0;
        }
        kernel_traits_note_position(r, token);
        kernel_traits_note_strange(r, token);
        kernel_traits_note_together(r, i);
        if (i >= parameters)
            kernel_traits_note_looping(r, i, false);
    }
}

static void kernel_traits_walk_from(struct reading *r, const char *name)
{
    const struct kernel_source *s = &r->source;
    const struct token token = {name, strlen(name)};
    size_t at = kernel_source_find(s, token);
    bool found = false, unused = false;
    for (size_t u = at; u < s->unit_count && token_same(s->units[u].name, token); u++)
        found = found || !s->units[u].macro;
    if (!kernel_traits_stands_there(s, name))
        kernel_traits_refuse(r, "it was not found in its source");
    if (found && !s->generates && !s->broken) {
        kernel_traits_walk_used(r, token, false, &unused);
        return;
    }
    /* It is not known what calls what: it may call everything, and in a loop. */
    for (size_t u = 0; u < s->unit_count; u++)
        kernel_traits_walk(r, u, s->broken || !s->units[u].kernel);
    for (size_t i = 0; i < s->text_count; i++)
        kernel_traits_note_outside(r, &s->texts[i]);
    if (s->broken)
        kernel_traits_refuse(r, "the functions of its source cannot be told from one another");
}

/* True when cut_source has this word. */
static bool kernel_traits_is_in_answers(struct token name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    for (const char *at = cut_source; *at;) {
        size_t length = strspn(at, letters);
        if (length && token_same(name, (struct token){at, length}))
            return true;
        at += length ? length : 1;
    }
    return false;
}

/* True when the replaced functions may mean something else in this source: directives name them,
 * options define words of cut_source, or macros contain "defined", which may be in any condition.
 */
static bool kernel_traits_shadows(const struct kernel_source *s)
{
    bool shadows = kernel_traits_stands_there(s, "defined");
    for (size_t u = 0; u < s->unit_count; u++)
        shadows = shadows || (s->units[u].macro && IS_ONE_OF(s->units[u].name, position_names)) ||
                  (s->units[u].option && kernel_traits_is_in_answers(s->units[u].name));
    for (size_t i = 0; i < s->asked_count; i++)
        shadows = shadows || IS_ONE_OF(s->asked[i], position_names);
    return shadows;
}

/* True for a function that cut_source.c replaces, and for a macro that uses one. Each macro is read
 * once: one that uses none stays open. */
static bool kernel_traits_is_replaced(const struct kernel_source *s, struct token token,
                                      unsigned depth)
{
    bool is = depth == DEPTH_MAX || IS_ONE_OF(token, position_names);
    size_t u = token_is_name(token) ? kernel_source_find(s, token) : s->unit_count;
    for (; u < s->unit_count && token_same(s->units[u].name, token) && !is; u++) {
        struct unit *unit = &s->units[u];
        bool reads = unit->macro && !unit->open;
        unit->open = true;
        for (size_t i = unit->body; i < unit->end && reads && !is; i++)
            is = kernel_traits_is_replaced(s, s->tokens[i], depth + 1);
    }
    return is;
}

/* True when a macro may quote the name of a replaced function, in a text that would have ours: one
 * that gets arguments in which macros were replaced already. */
static bool kernel_traits_quotes(const struct kernel_source *s)
{
    bool quotes = false;
    for (size_t i = 0; i < s->count && !quotes; i++) {
        size_t u =
            token_is_name(s->tokens[i]) ? kernel_source_find(s, s->tokens[i]) : s->unit_count;
        bool called = i + 1 < s->count && token_is(s->tokens[i + 1], "("), expanded = false;
        for (; u < s->unit_count && token_same(s->units[u].name, s->tokens[i]); u++)
            expanded =
                expanded || (i + 1 != s->units[u].first &&
                             (s->units[u].quotes_expanded || (s->units[u].quotes && !called)));
        size_t end = expanded ? kernel_source_behind(s, i + 1, s->count, "(", ")") : i;
        for (size_t at = i + 1; at < end && !quotes; at++)
            quotes = !called || kernel_traits_is_replaced(s, s->tokens[at], 0);
    }
    return quotes;
}

/* True when a macro has the name of a word that the reading relies on. */
static bool kernel_traits_redefines(const struct kernel_source *s)
{
    static const char *const words[] = {"local",   "__local",       "CLK_LOCAL_MEM_FENCE",
                                        "if",      "else",          "do",
                                        "for",     "while",         "switch",
                                        "struct",  "union",         "enum",
                                        "typedef", "__attribute__", "__attribute"};
    bool redefines = false;
    for (size_t u = 0; u < s->unit_count; u++)
        redefines = redefines || (s->units[u].macro && IS_ONE_OF(s->units[u].name, words));
    return redefines;
}

static void kernel_traits_find_traits(struct reading *r, const char *name)
{
    r->traits.whole = r->source.unread;
    if (kernel_traits_redefines(&r->source))
        kernel_traits_refuse(r, "its source has macros called as words of the language");
    kernel_traits_walk_from(r, name);
    if (kernel_traits_has_blocks(&r->source))
        kernel_traits_refuse(r, "its source has blocks, which are not followed");
    if (!r->traits.asks_position)
        return;
    if (kernel_traits_shadows(&r->source))
        kernel_traits_refuse(
            r, "its source has macros called as the functions that say where a group is");
    if (kernel_traits_quotes(&r->source))
        kernel_traits_refuse(r, "its source quotes the functions that say where a group is");
}

/* Forget what was found for the previous kernel. */
static void kernel_traits_begin(struct reading *r, const struct recipe *recipe)
{
    for (size_t u = 0; u < r->source.unit_count; u++) {
        struct unit *unit = &r->source.units[u];
        unit->open = unit->recurses = unit->seen = unit->seen_loops = false;
    }
    r->depth = 0;
    r->traits = (struct kernel_traits){
        .even = !recipe_asks_for_new_language(recipe) ||
                (recipe->options && strstr(recipe->options, "-cl-uniform-work-group-size"))};
}

int kernel_traits_read_all(const struct recipe *recipe, size_t count, const char *const *names,
                           struct kernel_traits *ret_traits)
{
    struct reading r = {0};
    int err = kernel_source_read(recipe, &r.source);
    if (!err)
        err = kernel_traits_add_all_volatiles(&r);
    for (size_t i = 0; !err && i < count; i++) {
        kernel_traits_begin(&r, recipe);
        kernel_traits_find_traits(&r, names[i]);
        ret_traits[i] = r.traits;
    }
    kernel_source_finish(&r.source);
    free(r.volatiles);
    free(r.types);
    return err;
}
