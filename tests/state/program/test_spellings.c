#include <ctype.h>
#include <limits.h>
#include <stdarg.h>

#include "state/program/kernel_traits.h"
#include "state/program/program_cut.h"
#include "tests/support/folder.h"

/*
 * Random sources whose names are made by macros, pasting, options and headers, read by us and by a
 * real preprocessor. What is cut must not wait in what that makes of it, and is told its place
 * where it asks for it; with the text for pieces in front, nothing else may become of it.
 *
 * SPELLINGS: how many (100). SPELLINGS_SEED: of the first.
 */

enum { TEXT = 1 << 16, NAME = 256 };

static const char *const asks[] = {"get_group_id", "get_num_groups", "get_global_size",
                                   "get_global_offset", "get_global_linear_id"};
static const char *const tells[] = {"get_work_dim", "get_global_id"};
static const char *const atomics[] = {"atomic_or", "atomic_xchg", "atom_or", "atom_add"};

static uint64_t state;

static unsigned pick(unsigned below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 33) % below;
}

struct sample {
    char macros[TEXT], header[TEXT], options[TEXT], body[TEXT], source[4 * TEXT];
    unsigned count;
};

static void append(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(char *text, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, TEXT - used, format, arguments);
    va_end(arguments);
}

/* Where macros are defined: mostly in the source. */
static char *somewhere(struct sample *s)
{
    return pick(4) == 0 ? s->header : s->macros;
}

static void spell(struct sample *s, const char *name, unsigned depth, char *ret_spelled);

/* A word as it may be written where a macro is called: itself, or a macro of it. */
static void spell_part(struct sample *s, const char *part, bool expands, unsigned depth, char *ret)
{
    if (expands && *part && pick(3) == 0)
        spell(s, part, depth + 1, ret);
    else
        snprintf(ret, NAME, "%s", part);
}

/* A macro with parameters that makes @name of two or three parts. Its parameters have names that no
 * part has: in the macro a part would be taken for one. */
static void spell_pasted(struct sample *s, const char *name, unsigned depth, char *ret)
{
    const char *paste = pick(5) == 0 ? "%:%:" : pick(2) ? "##" : " ## ";
    unsigned n = s->count++, length = (unsigned)strlen(name), cut = pick(length + 1);
    unsigned second = cut + pick(length - cut + 1);
    char first[NAME], middle[NAME], last[NAME], *to = somewhere(s);
    bool outer = pick(2), expands = outer && pick(4) != 0;
    char parts[3][NAME];
    snprintf(first, sizeof(first), "%.*s", (int)cut, name);
    snprintf(middle, sizeof(middle), "%.*s", (int)(second - cut), name + cut);
    snprintf(last, sizeof(last), "%s", name + second);
    unsigned shape = pick(4);
    if (shape == 0 && second > cut)
        append(to, "#define P%u(p1, p2) p1%s%s%sp2\n", n, paste, middle, paste);
    else if (shape == 1 && cut > 0)
        append(to, "#define P%u(p1, p2) %s%sp1%sp2\n", n, first, paste, paste);
    else
        append(to, "#define P%u(p1, p2, p3) p1%sp2%sp3\n", n, paste, paste), shape = 2;
    if (outer)
        append(to,
               shape == 2 ? "#define X%u(u, v, w) P%u(u, v, w)\n" : "#define X%u(u, v) P%u(u, v)\n",
               n, n);
    spell_part(s, shape == 1 ? middle : first, expands, depth, parts[0]);
    spell_part(s, shape == 2 ? middle : last, expands, depth, parts[1]);
    spell_part(s, last, expands, depth, parts[2]);
    if (shape == 2)
        snprintf(ret, NAME, "%c%u(%.60s, %.60s, %.60s)", outer ? 'X' : 'P', n, parts[0], parts[1],
                 parts[2]);
    else
        snprintf(ret, NAME, "%c%u(%.90s, %.90s)", outer ? 'X' : 'P', n, parts[0], parts[1]);
}

/* Some way to write @name. */
static void spell(struct sample *s, const char *name, unsigned depth, char *ret)
{
    char inner[NAME];
    unsigned n = s->count;
    switch (depth > 3 ? 0 : pick(9)) {
    case 1:
    case 2:
        s->count++;
        spell(s, name, depth + 1, inner);
        append(somewhere(s), "#define M%u %s\n", n, inner);
        snprintf(ret, NAME, "M%u", n);
        break;
    case 3:
    case 4:
    case 5:
        spell_pasted(s, name, depth, ret);
        break;
    case 6:
        s->count++;
        append(s->options, " -DO%u=%s", n, name);
        snprintf(ret, NAME, "O%u", n);
        break;
    case 7:
        s->count++;
        append(somewhere(s), "#define I%u(x) x\n", n);
        snprintf(ret, NAME, "I%u(%s)", n, name);
        break;
    case 8:
        if (strlen(name) > 2) {
            snprintf(ret, NAME, "%.*s\\\n%s", 2, name, name + 2);
            break;
        } /* fall through */
    default:
        snprintf(ret, NAME, "%s", name);
    }
}

#define ANY(list) list[pick(sizeof(list) / sizeof((list)[0]))]

static void add_statement(struct sample *s)
{
    char one[NAME], other[NAME];
    switch (pick(8)) {
    case 0:
        spell(s, "while", 0, one);
        spell(s, ANY(atomics), 0, other);
        append(s->body, " %s (!%s(a, 0)) ;\n", one, other);
        break;
    case 1:
        spell(s, "flag", 0, one);
        append(s->body, " while (!%s[0]) ;\n", one);
        break;
    case 2:
    case 3:
        spell(s, ANY(tells), 0, one);
        append(s->body, " x += %s(0);\n", one);
        break;
    default:
        spell(s, ANY(asks), 0, one);
        append(s->body, " x += %s(0);\n", one);
    }
}

static void add_strange(struct sample *s)
{
    static const char *const words[] = {"uint",        "size_t",  "get_local_size",
                                        "reseat_pick", "one",     "CLK_LOCAL_MEM_FENCE",
                                        "is",          "harmless"};
    switch (pick(12)) {
    case 0:
        append(s->options, " -D%s=%s", ANY(words), ANY(words));
        break;
    case 1:
        append(s->macros,
               "#ifdef %s\n#define EXTRA get_group_id(1)\n#else\n#define EXTRA 3\n#endif\n",
               ANY(asks));
        append(s->body, " x += EXTRA;\n");
        break;
    case 2:
        append(s->macros,
               "#define HAS defined(%s)\n#if HAS\n#define MORE 1\n#else\n#define MORE 2\n"
               "#endif\n",
               ANY(asks));
        append(s->body, " x += MORE;\n");
        break;
    case 3:
        append(s->macros, "#define %s(d) 7\n", ANY(asks));
        break;
    }
}

static void make_sample(struct sample *s)
{
    char keyword[NAME], name[NAME];
    memset(s, 0, sizeof(*s));
    spell(s, pick(3) ? "const" : "volatile", 0, keyword);
    spell(s, "flag", 0, name);
    for (unsigned n = 1 + pick(3); n > 0; n--)
        add_statement(s);
    add_strange(s);
    snprintf(s->source, sizeof(s->source),
             "%s#include \"h.h\"\n%s"
             "kernel void k(global int *a, %s global int *%s) {\n int x = 0;\n%s"
             " a[get_global_id(0)] = x;\n}\n",
             pick(6) ? "" : "\xef\xbb\xbf", s->macros, keyword, name, s->body);
}

/* What a preprocessor makes of the sample with @front before it, each word and sign apart. NULL
 * where it refuses it. */
static char *expand(const char *folder, const char *front, const char *text, const char *options)
{
    char *joined = malloc(strlen(front) + strlen(text) + 1), *out = NULL;
    char command[TEXT + 3 * PATH_MAX];
    size_t size = 0;
    int c, last = ' ';
    bool mark = *front && strncmp(text, "\xef\xbb\xbf", 3) == 0;
    cr_assert_not_null(joined);
    if (mark)
        text += 3;
    sprintf(joined, "%s%s", front, text);
    folder_put(folder, "sample.c", joined);
    free(joined);
    snprintf(command, sizeof(command), "cpp -P -w -nostdinc -undef -I %s%s %s/sample.c 2>/dev/null",
             folder, options, folder);
    FILE *from = popen(command, "r"), *to = open_memstream(&out, &size);
    cr_assert(from && to);
    while ((c = getc(from)) != EOF) {
        bool word = isalnum(c) || c == '_', was = isalnum(last) || last == '_';
        if (!isspace(c)) {
            if (!word || !was)
                putc(' ', to);
            putc(c, to);
        }
        last = c;
    }
    fclose(to);
    if (pclose(from) == 0)
        return out;
    free(out);
    return NULL;
}

/* @text has blanks between its words. */
static bool has_any(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (const char *at = text; (at = strstr(at, words[i])); at++)
            if (at == text || at[-1] == ' ')
                return true;
    }
    return false;
}
#define HAS_ANY(text, list) has_any(text, list, sizeof(list) / sizeof((list)[0]))

/* With each function's name become that of ours. */
static char *renamed(const char *text)
{
    static const char *const ours[] = {"group_id",      "num_groups",       "global_size",
                                       "global_offset", "global_linear_id", "work_dim",
                                       "global_id"};
    char *out = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&out, &size);
    cr_assert_not_null(to);
    for (const char *at = text; *at;) {
        size_t length = strcspn(at + 1, " ") + 1;
        bool is = false;
        for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
            is = is || (length == strlen(ours[i]) + 5 && strncmp(at, " get_", 5) == 0 &&
                        strncmp(at + 5, ours[i], strlen(ours[i])) == 0);
        fprintf(to, is ? " reseat%.*s" : "%.*s", (int)(length - (is ? 4 : 0)), at + (is ? 4 : 0));
        at += length;
    }
    fclose(to);
    return out;
}

static struct kernel_traits read_sample(const struct sample *s, const char *folder)
{
    const char *text = s->source;
    char options[2 * TEXT];
    struct recipe *leaf, *built;
    struct kernel_traits traits;
    snprintf(options, sizeof(options), "-I %s%s", folder, s->options);
    cr_assert_eq(recipe_source(1, &text, NULL, &leaf), 0);
    cr_assert_eq(recipe_built(leaf, options, NULL, 0, &built), 0);
    cr_assert_eq(recipe_keep_headers(built), 0);
    cr_assert_eq(kernel_traits_read(built, "k", &traits), 0);
    recipe_unref(built);
    recipe_unref(leaf);
    return traits;
}

struct tally {
    unsigned whole, told, plain;
};

static void check_sample(const struct sample *s, const char *folder, struct tally *tally)
{
    char *native = expand(folder, "", s->source, s->options);
    if (!native)
        return;
    struct kernel_traits traits = read_sample(s, folder);
    const char *kernel = strstr(native, "kernel");
    bool waits = strstr(kernel, " while") || strstr(kernel, " for");
    bool volatile_wait = strstr(kernel, "volatile") && strstr(kernel, "! flag");
    waits = waits && (HAS_ANY(kernel, atomics) || volatile_wait);
    bool fine = traits.whole || (!waits && (traits.asks_position || !HAS_ANY(kernel, asks)));
    cr_expect(fine, "cut%s:\n%s\n-- header:\n%s\n-- options:%s\n-- becomes:\n%s",
              traits.asks_position ? ", told" : "", s->source, s->header, s->options, native);
    tally->whole += traits.whole != NULL;
    tally->told += !traits.whole && traits.asks_position;
    tally->plain += !traits.whole && !traits.asks_position;
    if (!traits.whole && traits.asks_position) {
        char *ours = expand(folder, cut_source, "", "");
        char *pieces = expand(folder, cut_source, s->source, s->options);
        char *wanted = renamed(native);
        cr_assert_not_null(ours);
        bool same = pieces && strncmp(pieces, ours, strlen(ours)) == 0 &&
                    strcmp(pieces + strlen(ours), wanted) == 0;
        cr_expect(same, "in pieces it is another text:\n%s\n-- header:\n%s\n-- options:%s\n%s\n%s",
                  s->source, s->header, s->options, wanted, pieces ? pieces : "none");
        free(ours);
        free(pieces);
        free(wanted);
    }
    free(native);
}

Test(spellings, are_read_as_a_preprocessor_does, .timeout = 7200)
{
    static struct sample sample;
    static char folder[SCRATCH_MAX];
    const char *count = getenv("SPELLINGS"), *seed = getenv("SPELLINGS_SEED");
    uint64_t first = seed ? strtoull(seed, NULL, 10) : 1;
    struct tally tally = {0};
    folder_make(folder);
    for (uint64_t i = 0; i < (count ? strtoull(count, NULL, 10) : 100); i++) {
        state = (first + i) * 0x9e3779b97f4a7c15u | 1;
        (void)pick(2);
        (void)pick(2);
        make_sample(&sample);
        folder_put(folder, "h.h", sample.header);
        check_sample(&sample, folder, &tally);
    }
    printf("%u whole, %u told, %u plain\n", tally.whole, tally.told, tally.plain);
    cr_expect(tally.whole && tally.told && tally.plain);
}
