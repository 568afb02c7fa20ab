/**
 * Launches that take long, of one kernel in two programs: the same to a compiler, but the text of
 * one has a loop that waits for other groups, which keeps its launches whole.
 *
 *   longlaunch [--kind compute|memory|places] [--items N] [--group N] [--mib N] [--loops N | --ms
 * N]
 *              [--pairs N | --only whole|pieces] [--times]
 *
 * compute does arithmetic, memory reads from a table of --mib, and places is compute by a kernel
 * that asks for its group. Each launch adds the same to a word of each item, so that a group which
 * is left out, or runs twice, is seen: samples of the first launch are held against the host's own
 * results, and in the end all words against the first's.
 *
 * Both take turns, or --only one of them is launched, once or as long as TEST_UNTIL says. --ms has
 * a launch take about so long. --times says "loops N" and "ready", and of each launch "begun", with
 * the monotonic time, and then "whole" or "pieces", with the seconds that it took.
 */
#include "prog.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ITEMS = 132 * 2048 * 16, /* as many as an H200 has at once, 16 times */
    GROUP = 256,
    SAMPLES = 16,
    LONGER = 16, /* as many times at once, at most: what is short is mostly what a launch costs */
    WARM = 2,    /* launches of each that are not counted: what is cut is measured by them */
    VECTOR = 4,  /* words */
    MIB = 1 << 20,
    MS = 1000,
};

#define MIXED "uint mixed(uint x) { x = (x ^ x >> 15) * 0x2c1b3c6du; return x ^ x >> 12; }\n"
#define FILL                                                                                       \
    MIXED "kernel void fill(global uint *table) {\n"                                               \
          "    table[get_global_id(0)] = mixed((uint)get_global_id(0));\n"                         \
          "}\n"

static const double ENOUGH = 1.25;

/* No compiler is shown this. */
#define WAITS                                                                                      \
    "#ifdef NEVER\n"                                                                               \
    "    while (atomic_or(sums, 0u) == 0u)\n"                                                      \
    "        ;\n"                                                                                  \
    "#endif\n"

#define KERNEL(name, waits, body)                                                                  \
    FILL "kernel void " name "(global uint *sums, global const uint4 *table, uint mask,\n"         \
         "                     uint stride, uint loops) {\n" waits                                 \
         "    const uint item = (uint)get_global_id(0);\n"                                         \
         "    uint sum = 0;\n" body "    sums[item] += sum;\n"                                     \
         "}\n"
#define BOTH(name, body)                                                                           \
    {name "_whole", name},                                                                         \
    {                                                                                              \
        KERNEL(name "_whole", WAITS, body), KERNEL(name, "", body)                                 \
    }

#define COMPUTES                                                                                   \
    "    sum = mixed(item);\n"                                                                     \
    "    for (uint i = 0; i < loops; i++)\n"                                                       \
    "        sum = (sum ^ sum >> 13) * 1664525u + 1013904223u;\n"
#define READS                                                                                      \
    "    uint at = item;\n"                                                                        \
    "    for (uint i = 0; i < loops; i++, at += stride) {\n"                                       \
    "        const uint4 four = table[at & mask];\n"                                               \
    "        sum += four.x ^ four.y ^ four.z ^ four.w;\n"                                          \
    "    }\n"
#define ASKS COMPUTES "    sum += (uint)(get_group_id(0) * 7 + get_num_groups(0));\n"

enum form { WHOLE, PIECES, FORMS };
static const char *const form_names[FORMS] = {"whole", "pieces"};

struct work {
    struct prog prog;
    const struct kind *kind;
    cl_kernel kernels[FORMS];
    cl_mem sums, table;
    size_t items, group;
    cl_uint mask, stride, loops;
    uint32_t launches; /* since the sums were zero */
    bool times;
};

static uint32_t mixed(uint32_t x)
{
    x = (x ^ x >> 15) * 0x2c1b3c6du;
    return x ^ x >> 12;
}

static uint32_t computed(const struct work *w, uint32_t item)
{
    uint32_t sum = mixed(item);

    for (uint32_t i = 0; i < w->loops; i++)
        sum = (sum ^ sum >> 13) * 1664525u + 1013904223u;
    return sum;
}

static uint32_t read_up(const struct work *w, uint32_t item)
{
    uint32_t sum = 0, at = item;

    for (uint32_t i = 0; i < w->loops; i++, at += w->stride) {
        uint32_t first = (at & w->mask) * VECTOR;
        sum += mixed(first) ^ mixed(first + 1) ^ mixed(first + 2) ^ mixed(first + 3);
    }
    return sum;
}

static uint32_t placed(const struct work *w, uint32_t item)
{
    return computed(w, item) + (uint32_t)(item / w->group * 7 + w->items / w->group);
}

static const struct kind {
    const char *name;
    uint32_t (*word)(const struct work *w, uint32_t item); /* what a launch adds */
    const char *kernels[FORMS], *sources[FORMS];
} kinds[] = {
    {"compute", computed, BOTH("compute", COMPUTES)},
    {"memory", read_up, BOTH("memory", READS)},
    {"places", placed, BOTH("places", ASKS)},
};

static const struct kind *kind_named(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    prog_fail("--kind: not compute, memory or places: %s", name);
}

static void clear(struct work *w)
{
    const cl_uint zero = 0;

    OK(clEnqueueFillBuffer(w->prog.queue, w->sums, &zero, sizeof zero, 0, w->items * sizeof zero, 0,
                           NULL, NULL));
    w->launches = 0;
}

static void make(struct work *w, size_t table_bytes)
{
    w->sums = prog_buffer(w->prog.context, CL_MEM_READ_WRITE, w->items * sizeof(cl_uint), NULL);
    w->table = prog_buffer(w->prog.context, CL_MEM_READ_WRITE, table_bytes, NULL);
    for (int form = 0; form < FORMS; form++) {
        cl_program program = prog_build(&w->prog, w->kind->sources[form], "");
        cl_kernel kernel = prog_kernel(program, w->kind->kernels[form]);
        ARGS(kernel, w->sums, w->table);
        prog_arg(kernel, 2, sizeof w->mask, &w->mask);
        prog_arg(kernel, 3, sizeof w->stride, &w->stride);
        w->kernels[form] = kernel;
        if (form == WHOLE) {
            cl_kernel fill = prog_kernel(program, "fill");
            prog_arg(fill, 0, sizeof(cl_mem), &w->table);
            prog_run(w->prog.queue, fill, table_bytes / sizeof(cl_uint));
            OK(clReleaseKernel(fill));
        }
        OK(clReleaseProgram(program));
    }
    clear(w);
    OK(clFinish(w->prog.queue));
}

/** A launch, waited for; the seconds that it took. */
static double launch(struct work *w, enum form form)
{
    prog_arg(w->kernels[form], 4, sizeof w->loops, &w->loops);
    double begun = prog_now();
    OK(clEnqueueNDRangeKernel(w->prog.queue, w->kernels[form], 1, NULL, &w->items, &w->group, 0,
                              NULL, NULL));
    OK(clFinish(w->prog.queue));
    w->launches++;
    return prog_now() - begun;
}

/** As many loops as make a launch take about @ms. */
static void find_loops(struct work *w, double ms)
{
    double longer;

    launch(w, WHOLE); /* drivers compile with the first */
    while ((longer = ms / (launch(w, WHOLE) * MS)) > ENOUGH) {
        double loops = w->loops * (longer < LONGER ? longer : LONGER);
        REQUIRE(loops < UINT32_MAX);
        w->loops = (cl_uint)loops + 1;
    }
    clear(w);
}

static uint32_t *read_sums(const struct work *w)
{
    uint32_t *words = prog_alloc(w->items * sizeof *words);

    prog_read(w->prog.queue, w->sums, 0, w->items * sizeof *words, words);
    return words;
}

/** What one launch adds, of samples as the host finds it. The caller frees it. */
static uint32_t *first_launch(struct work *w)
{
    launch(w, WHOLE);
    uint32_t *words = read_sums(w);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        uint32_t item = (uint32_t)((w->items - 1) * (uint64_t)i / (SAMPLES - 1));
        uint32_t want = w->kind->word(w, item);
        if (words[item] != want)
            prog_fail("%s: item %" PRIu32 " gives %" PRIx32 " instead of %" PRIx32, w->kind->name,
                      item, words[item], want);
    }
    return words;
}

static void check(const struct work *w, const uint32_t *first)
{
    uint32_t *words = read_sums(w);

    for (size_t i = 0; i < w->items; i++)
        if (words[i] != first[i] * w->launches)
            prog_fail("%s: item %zu has %" PRIx32 " after %" PRIu32 " launches of %" PRIx32,
                      w->kind->name, i, words[i], w->launches, first[i]);
    free(words);
}

static void timed(struct work *w, enum form form)
{
    if (w->times) {
        printf("begun %.6f\n", prog_now());
        fflush(stdout);
    }
    double took = launch(w, form);
    if (w->times) {
        printf("%s %.9f\n", form_names[form], took);
        fflush(stdout);
    }
}

/** First one, then the other is first, so that neither is ever the one behind. */
static void take_turns(struct work *w, long pairs)
{
    for (int i = 0; i < WARM && pairs > 0; i++)
        for (int form = 0; form < FORMS; form++)
            launch(w, (enum form)form);
    for (long i = 0; i < pairs; i++) {
        timed(w, i % 2 ? PIECES : WHOLE);
        timed(w, i % 2 ? WHOLE : PIECES);
    }
}

int main(int argc, char **argv)
{
    const char *only = prog_option_text(argc, argv, "--only", NULL);
    long mib = prog_option(argc, argv, "--mib", 64), ms = prog_option(argc, argv, "--ms", 0);
    long pairs = prog_option(argc, argv, "--pairs", 2);
    struct work w = {
        .kind = kind_named(prog_option_text(argc, argv, "--kind", "compute")),
        .items = (size_t)prog_option(argc, argv, "--items", ITEMS),
        .group = (size_t)prog_option(argc, argv, "--group", GROUP),
        .loops = (cl_uint)prog_option(argc, argv, "--loops", ms ? 16 : 1000),
    };

    for (int i = 1; i < argc; i++)
        w.times = w.times || strcmp(argv[i], "--times") == 0;
    REQUIRE(mib >= 1 && mib <= 16384 && (mib & (mib - 1)) == 0); /* in words of 4 bytes */
    REQUIRE(w.items >= SAMPLES && w.items <= INT32_MAX && w.group > 0 && w.items % w.group == 0);
    REQUIRE(!only || strcmp(only, "whole") == 0 || strcmp(only, "pieces") == 0);
    w.mask = (cl_uint)((size_t)mib * MIB / sizeof(cl_uint) / VECTOR - 1);
    w.stride = (cl_uint)(w.items + w.group);
    prog_open(&w.prog);
    make(&w, (size_t)mib * MIB);
    if (ms)
        find_loops(&w, (double)ms);
    uint32_t *first = first_launch(&w);
    if (w.times) {
        printf("loops %" PRIu32 "\nready\n", w.loops);
        fflush(stdout);
    }
    do {
        if (only)
            timed(&w, only[0] == 'w' ? WHOLE : PIECES);
        else
            take_turns(&w, pairs);
    } while (prog_again());
    check(&w, first);
    printf("%s: every word is right\n", w.kind->name);
    free(first);
    RELEASE(w.sums, w.table);
    for (int form = 0; form < FORMS; form++)
        OK(clReleaseKernel(w.kernels[form]));
    prog_close(&w.prog);
    return 0;
}
