#include "tests/support/cases.h"
#include <time.h>

#include "state/program/source_facts.h"

/* Which kernels' launches may be given in pieces, and which have to be told where a piece is. */

static struct kernel_traits traits_of(const char *source, const char *options)
{
    struct kernel_traits traits = {0};
    struct recipe *leaf, *built;
    cr_assert_eq(recipe_source(1, &source, NULL, &leaf), 0);
    cr_assert_eq(recipe_built(leaf, options, NULL, 0, &built), 0);
    cr_assert_eq(kernel_traits_read(built, "k", &traits), 0);
    recipe_unref(built);
    recipe_unref(leaf);
    return traits;
}

struct sample {
    const char *source;
    const char *options;
};

static void expect_cut(const struct sample *samples, size_t count, bool places)
{
    for (size_t i = 0; i < count; i++) {
        const char *options = samples[i].options ? samples[i].options : "";
        struct kernel_traits traits = traits_of(samples[i].source, options);
        cr_expect_null(traits.whole, "%s: %s", samples[i].source, traits.whole);
        cr_expect_eq(traits.asks_position, places, "%s", samples[i].source);
    }
}

static void expect_whole(const struct sample *samples, size_t count, const char *word)
{
    for (size_t i = 0; i < count; i++) {
        const char *options = samples[i].options ? samples[i].options : "";
        struct kernel_traits traits = traits_of(samples[i].source, options);
        cr_expect_not_null(traits.whole, "%s", samples[i].source);
        if (traits.whole)
            cr_expect_not_null(strstr(traits.whole, word), "%s: %s", samples[i].source,
                               traits.whole);
    }
}
#define COUNT(samples) (sizeof(samples) / sizeof((samples)[0]))

Test(traits, ids_within_a_group_and_global_ones_need_nothing)
{
    static const struct sample samples[] = {
        {"kernel void k(global int *a) { a[get_global_id(0)] = get_local_id(0); }"},
        {"kernel void k(global int *a) { a[get_global_id(0)] += get_local_size(0) +"
         " get_work_dim() + get_local_linear_id() + get_enqueued_local_size(1); }"},
        {"// get_group_id\n/* get_num_groups(0) */ kernel void k() { \"get_global_size\"; }"},
        {"#define G get_group_id(0)\nkernel void k(global int *a) { a[0] = 1; }"},
        {"void f(global int *a) { a[0] = get_group_id(0); }\nkernel void k(global int *a) { }"},
        {"kernel void other(global int *a) { while (!atomic_add(a, 0)); }\n"
         "kernel void k(global int *a) { a[get_global_id(0)] = 1; }"},
        {"kernel void k(global float *a, local float *l) { for (int i = 0; i < 9; i++) {"
         " l[get_local_id(0)] = a[i]; barrier(CLK_LOCAL_MEM_FENCE); } }"},
        {"#define\nkernel void k(global int *a) { a[0] = 1; }"},
        {"#define API\nAPI void other(global int *a) { a[0] = get_group_id(0); }\n"
         "API kernel void k(global int *a) { a[get_global_id(0)] = 1; }"},
    };
    expect_cut(samples, COUNT(samples), false);
}

Test(traits, places_in_the_launch_are_seen_through_calls_and_macros)
{
    static const struct sample samples[] = {
        {"kernel void k(global int *a) { a[get_group_id(0)] = 1; }"},
        {"kernel void k(global int *a) { a[0] = get_num_groups(1); }"},
        {"kernel void k(global int *a) { a[0] = get_global_size(2); }"},
        {"kernel void k(global int *a) { a[0] = get_global_offset(0); }"},
        {"kernel void k(global int *a) { a[get_global_linear_id()] = 0; }"},
        {"size_t (g)(void) { return get_group_id(0); }\nkernel void k(global int *a) { a[g()] = 0; "
         "}"},
        {"size_t g(void) { return get_group_id(0); }\nsize_t f(void) { return g(); }\n"
         "kernel void k(global int *a) { a[f()] = 0; }"},
        {"#define B get_group_id(0)\n#define A (B)\nkernel void k(global int *a) { a[A] = 0; }"},
        {"kernel void k(global int *a) { a[I] = 0; }", "-D I=get_group_id(0)"},
        {"#if 0\n#define I get_global_id\n#else\n#define I \\\n get_group_id\n#endif\n"
         "kernel void k(global int *a) { a[I(0)] = 0; }"},
        {"kernel void k(global int *a) {\n#ifdef X\na[get_group_id(0)] = 0;\n#endif\n}"},
        {"#define NAME(x) k##x\nkernel void NAME()(global int *a) { a[get_group_id(0)] = 0; }"},
        {"#define MAKE(name, value) kernel void name(global int *a) { a[get_global_id(0)] = value; "
         "}\n"
         "MAKE(k, get_group_id(0))"},
        {"#define BEGIN {\n#define END }\nkernel void k(global int *a) BEGIN a[0] = "
         "get_group_id(0); "
         "END"},
    };
    expect_cut(samples, COUNT(samples), true);
}

Test(traits, atomics_that_nobody_looks_at_in_a_loop_are_cut)
{
    static const struct sample samples[] = {
        {"kernel void k(volatile global int *h, global const uchar *d, int n) {"
         " for (int i = 0; i < n; i++) atomic_inc(&h[d[i]]); }"},
        {"kernel void k(global int *h, int n) { for (int i = 0; i < n; i++) { if (i & 1)"
         " atomic_add(h, i); else atom_inc(h); } }"},
        {"kernel void k(global int *c, global int *o) { int at = atomic_inc(c); o[at] = 1; }"},
        {"kernel void k(global int *c) { int old = atomic_inc(c); if (old == 9)"
         " c[1] = 1; }"},
        {"kernel void k(volatile local int *l) { while (l[0]) l[0]--; }"},
        {"kernel void k(global int *a) { a[1] = 2; mem_fence(CLK_GLOBAL_MEM_FENCE); a[0] = 1; }"},
    };
    expect_cut(samples, COUNT(samples), false);
}

Test(traits, what_may_wait_for_another_group_is_not_cut)
{
    static const struct sample samples[] = {
        {"kernel void k(global int *a) { while (atomic_cmpxchg(a, 0, 1)) ; }"},
        {"kernel void k(global int *a) { do { } while (atomic_add(a, 0) < 4); }"},
        {"kernel void k(global int *a) { for (;;) { int v = atomic_or(a, 0); if (v) break; } }"},
        {"kernel void k(global int *a) { again: if (!atomic_or(a, 0)) goto again; }"},
        {"int seen(global int *a) { return atomic_or(a, 0); }\n"
         "kernel void k(global int *a) { while (!seen(a)) ; }"},
        {"#define SEEN(a) atomic_or(a, 0)\nkernel void k(global int *a) { while (!SEEN(a)) ; }"},
        {"#define UNTIL while (\nkernel void k(global int *a) { UNTIL !atomic_or(a, 0)); }"},
        {"#define W while\n#define U W\nkernel void k(global int *a) { U (!atomic_or(a, 0)); }"},
        {"kernel void k(volatile global int *a) { while (!a[0]) ; }"},
        {"kernel void k(global volatile int *a) { while (a[0] == 0) ; }"},
        {"typedef volatile global int *flag;\nkernel void k(flag a) { flag b = a; while (!*b) ;"
         " while (!*(flag)a) ; }"},
        {"kernel void k(global int *a) { while (*(volatile global int *)a == 0) ; }"},
        {"struct s { volatile int go; };\nkernel void k(global struct s *a) { while (!a->go) ; }"},
        {"kernel void k(global atomic_int *a) { while (atomic_load(a) == 0) ; }"},
        {"kernel void k(global atomic_int *a) { while (*a == 0) ; }"},
        {"kernel void k(global int *a) { while (!a[0]) mem_fence(CLK_GLOBAL_MEM_FENCE); }"},
        {"kernel void k(global int *a) { while (!a[0]) barrier(CLK_GLOBAL_MEM_FENCE); }"},
        {"kernel void k(global int *a) { for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++)"
         " if (j) a[1] = 1; else while (a[i]) a[3] = (int)atomic_inc(a); }"},
        {"kernel void k(global int *a) { if (a[1]) do { a[2]++; } while (!atomic_or(a, 0)); }"},
        {"#define CAT(a, b) a##b\nint helper1(global int *a) { return atomic_or(a, 0); }\n"
         "kernel void k(global int *a) { while (!CAT(helper, 1)(a)) ; }"},
    };
    expect_whole(samples, COUNT(samples), "may wait for another work-group");
}

/* As a compiler reads it, which joins lines before it tells words apart. */
Test(traits, words_and_signs_that_go_on_on_the_next_line_are_seen)
{
    static const struct sample places[] = {
        {"kernel void k(global int *a) { a[get_group_\\\nid(0)] = 1; }"},
        {"kernel void k(global int *a) { a[get_group_\\\r\nid(0)] = 1; }"},
        {"kernel void k(global int *a) { a[get_gr\\ \noup_id(0)] = 1; }"},
        {"kernel void k(global int *a) { a[get_gro\\\n\\\nup_id(0)] = 1; }"},
        {"#def\\\nine I get_group_id(0)\nkernel void k(global int *a) { a[I] = 1; }"},
        {"#define CAT(a, b) a#\\\n#b\n"
         "kernel void k(global int *a) { a[CAT(get_group, _id)(0)] = 1; }"},
        {"kernel void k(global int *a) {\n// C:\\\\\n\na[get_group_id(0)] = 1; }"},
    };
    static const struct sample plain[] = {
        {"kernel void k(global int *a) {\n// C:\\\\\na[get_group_id(0)] = 1;\n}"},
        {"kernel void k(global int *a) {\n/\\\n/ a[get_group_id(0)] = 1;\n}"},
        {"kernel void k(global int *a) { constant char *s = \"\\\\\\\nn get_group_id\"; }"},
    };
    static const struct sample waits[] = {
        {"kernel void k(global int *a) { /* *\\\n/ while (!atomic_or(a, 0)) ; /* */ }"},
        {"kernel void k(global int *a) { wh\\\nile (!atomic_or(a, 0)) ; }"},
    };
    expect_cut(places, COUNT(places), true);
    expect_cut(plain, COUNT(plain), false);
    expect_whole(waits, COUNT(waits), "may wait for another work-group");
}

/* The program would see our names in the text. */
Test(traits, functions_that_say_where_a_group_is_are_not_quoted_by_other_names)
{
    static const struct sample quoted[] = {
        {"#define STR(x) #x\n#define XSTR(x) STR(x)\n"
         "kernel void k(global int *a) { printf(\"%s\", XSTR(get_group_id(0))); }"},
        {"#define STR(x) %:x\n#define SHOW(x) printf(STR(x) \"%d\", x)\n"
         "kernel void k(global int *a) { SHOW((int)get_num_groups(0)); }"},
        {"#define STR(x) #x\n#define XSTR(x) STR(x)\n#define I get_group_id\n"
         "kernel void k(global int *a) { a[I(0)] = sizeof(XSTR(I)); }"},
        {"#define STR(x) #x\n#define CALL(f, x) f(x)\n"
         "kernel void k(global int *a) { a[0] = sizeof(CALL(STR, get_group_id(0))); }"},
        {"#define STR(x) #x\n#define XSTR(...) STR(__VA_ARGS__)\n"
         "#define A(x) B(x)\n#define B(x) B(x) A(x)\n"
         "kernel void k(global int *a) { a[0] = sizeof(XSTR(A(1), "
         "get_global_id(get_group_id(0)))); }"},
    };
    static const struct sample others[] = {
        {"#define STR(x) #x\nkernel void k(global int *a) {"
         " printf(\"%s %d\", STR(get_group_id(0)), (int)get_group_id(0)); }"},
        {"#define STR(x) #x\n#define UNROLL(n) _Pragma(STR(unroll n))\n"
         "kernel void k(global int *a) { UNROLL(4) for (int i = 0; i < 4; i++)"
         " a[get_group_id(0)] += i; }"},
    };
    static const struct sample unneeded[] = {
        {"#define STR(x) #x\n#define XSTR(x) STR(x)\n"
         "kernel void k(global int *a) { a[get_global_id(0)] = sizeof(XSTR(get_global_id)); }"},
    };
    expect_whole(quoted, COUNT(quoted), "quotes the functions");
    expect_cut(others, COUNT(others), true);
    expect_cut(unneeded, COUNT(unneeded), false);
}

/* Each macro is read once: else these would be read 8 to the 40th times. */
Test(traits, what_is_quoted_is_read_in_time, .timeout = 30)
{
    char source[8192] = "#define STR(x) #x\n#define XSTR(x) STR(x)\n#define M0 1\n";
    for (int i = 1; i <= 40; i++)
        sprintf(source + strlen(source), "#define M%d M%d M%d M%d M%d M%d M%d M%d M%d\n", i, i - 1,
                i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    strcat(source, "kernel void k(global int *a) { a[get_group_id(0)] = sizeof(XSTR(M40)); }");
    const struct sample samples[] = {{source}};
    expect_cut(samples, COUNT(samples), true);
}

/* A name that is pasted together is found from what the macro is called with, however small the
 * parts are. */
Test(traits, pasted_names_are_seen)
{
    static const struct sample places[] = {
        {"#define CAT(a, b) a##b\nkernel void k(global int *a) { a[CAT(get_, group_id)(0)] = 1; }"},
        {"#define CAT(a, b) a%:%:b\nkernel void k(global int *a) { a[CAT(get_, group_id)(0)] = 1; "
         "}"},
        {"#define CAT(a, b) a##b\nkernel void k(global int *a) { a[get_group_id(0)] ="
         " CAT(get_work_, dim)(); }"},
        {"#define ID(what) get_##what##_id\nkernel void k(global int *a) { a[ID(group)(0)] = 1; }"},
        {"#define ID(what) get##_##what\n#define GROUP ID(group_id)(0)\n"
         "kernel void k(global int *a) { a[GROUP] = 1; }"},
        {"#define CAT(a, b) a##b\n#define OUTER(x, y) CAT(x, y)\n#define GROUP _id\n"
         "kernel void k(global int *a) { a[OUTER(get_group, GROUP)(0)] = 1; }"},
        {"#define CAT(a, b) a##b\nkernel void k(global int *a) { a[CAT(get_, WHAT)(0)] = 1; }"
         "\n#define OUTER(x, y) CAT(x, y)\nkernel void o(global int *a) { a[OUTER(get_, WHAT)(0)]"
         " = 1; }",
         "-DWHAT=group_id"},
    };
    static const struct sample plain[] = {
        {"#define CAT(a, b) a##b\n#define VEC(type, width) CAT(type, width)\n"
         "kernel void k(global VEC(uint, WIDTH) *a) { for (int i = 0; i < 4; i++) a[i] = 0; }",
         "-DWIDTH=4 -cl-nv-maxrregcount 32 -w"},
        {"#define CAT(a, b) a##b\nkernel void k(global int *a) { a[0] = CAT(get_work_, dim)(); }"},
    };
    static const struct sample waits[] = {
        {"#define ATOM(op) atom_##op\nkernel void k(global int *a) { while (!ATOM(or)(a, 0)) ; }"},
        {"#define ATOM(op) a##op\nkernel void k(global int *a) { while (!ATOM(tomic_or)(a, 0)) ; "
         "}"},
        {"#define V(x) v##x\nkernel void k(V(olatile) global int *a) { while (!*a) ; }"},
        {"#define W(x) whil##x\nkernel void k(global int *a) { W(e) (!atomic_or(a, 0)) ; }"},
        {"#define SYNC(what) barrier(CLK_##what##_MEM_FENCE)\n"
         "kernel void k(global int *a) { while (!a[0]) SYNC(GLOBAL); }"},
        {"#define CAT(a, b) a##b\nkernel void k(global int *a, int f) {"
         " while (!a[0]) CAT(barr, ier)(f); }"},
        {"#define CAT(a, b) a##b\nkernel void k(volatile global int *flag) {"
         " while (!CAT(fl, ag)[0]) ; }"},
        {"#define CAT(a, b) a##b\nkernel void k(volatile global int *CAT(fl, ag)) {"
         " while (!flag[0]) ; }"},
        {"#define I(x) x\nkernel void k(I(volatile) global int *a) { while (!*a) ; }"},
        {"#define I(x) x\n#define V I(volatile)\nkernel void k(V global int *I(flag)) {"
         " while (!flag[0]) ; }"},
        {"#define SEEN atom_or\nkernel void k(global int *a) { while (!SEEN(a, 0)) ; }"},
        {"#define FLAG flag\nkernel void k(volatile global int *FLAG) { while (!flag[0]) ; }"},
        {"\xef\xbb\xbf#define SEEN(a) atomic_or(a, 0)\nkernel void k(global int *a) {"
         " while (!SEEN(a)) ; }"},
        {"kernel void k(global int *a) { while (!SEEN(a, 0)) ; }", "-DSEEN=\\\"atomic_or\\\""},
    };
    expect_cut(places, COUNT(places), true);
    expect_cut(plain, COUNT(plain), false);
    expect_whole(waits, COUNT(waits), "may wait for another work-group");
}

/* What declares, aliases, makes or calls what waits, where the words for it stand somewhere else.
 */
Test(traits, waiting_is_seen_behind_other_names)
{
    static const struct sample samples[] = {
        {"typedef volatile int vint;\nkernel void k(global vint *a) { while (!*a) ; }"},
        {"typedef volatile int one, two;\nkernel void k(global two *a) { while (!*a) ; }"},
        {"typedef volatile int vint;\ntypedef vint flag __attribute__((aligned(4)));\n"
         "kernel void k(global flag *a) { while (!*a) ; }"},
        {"#define SHARED volatile global int *\nkernel void k(SHARED a) { while (!*a) ; }"},
        {"#define V volatile\n#define SHARED V global int *\nkernel void k(SHARED a) { while (!*a) "
         "; }"},
        {"#define SHARED(type) volatile global type *\nkernel void k(SHARED(int) a) {"
         " while (!*a) ; }"},
        {"#define SEEN atomic_or\nkernel void k(global int *a) { while (!SEEN(a, 0)) ; }"},
        {"kernel void k(global int *a) { while (!a[0]) SEEN(a, 0); }", "-DSEEN=atomic_or"},
        {"#define DEFINE(name) int name(global int *a) { return atomic_or(a, 0); }\nDEFINE(seen)\n"
         "kernel void k(global int *a) { while (!seen(a)) ; }"},
        {"#define BEGIN {\n#define DEFINE(name) int name(global int *a) BEGIN return atomic_or(a, "
         "0); }\n"
         "DEFINE(seen)\nkernel void k(global int *a) { while (!seen(a)) ; }"},
        {"#define seen other\nint seen(global int *a) { return atomic_or(a, 0); }\n#undef seen\n"
         "kernel void k(global int *a) { while (!other(a)) ; }"},
        {"kernel void k(global int *a) { while (({ atomic_or(a, 0); })) ; }"},
        {"int (seen)(global int *a) { return atomic_or(a, 0); }\n"
         "kernel void k(global int *a) { while (!seen(a)) ; }"},
        {"#define LAST(n) __attribute__((noinline))\n"
         "int seen(global int *a) LAST(1) { return atomic_or(a, 0); }\n"
         "kernel void k(global int *a) { while (!seen(a)) ; }"},
        {"int seen$(global int *a) { return atomic_or(a, 0); }\n"
         "kernel void k(global int *a) { while (!seen$(a)) ; }"},
        {"int s\xc3\xa9(global int *a) { return atomic_or(a, 0); }\n"
         "kernel void k(global int *a) { while (!s\xc3\xa9(a)) ; }"},
        {"int seen(global int *a) { return atomic_or(a, 0) ? 1 : seen(a); }\n"
         "kernel void k(global int *a) { a[1] = seen(a); }"},
        {"kernel void k(global int *a) <% while (!atomic_or(a, 0)) ; %>"},
        {"#define WAIT(a) \\ \n while (!atomic_or(a, 0)) ;\nkernel void k(global int *a) { WAIT(a) "
         "}"},
        {"kernel void k(global int *a) { // \\\t\n /*\n while (!atomic_or(a, 0)) ; // */\n}"},
        {"kernel void k(global int *a) { int f = CLK_GLOBAL_MEM_FENCE; while (!a[0]) barrier(f); "
         "}"},
        {"#define SYNC barrier\nkernel void k(global int *a, int f) { while (!a[0]) SYNC(f); }"},
        {"kernel void k(global int *a) { while (!a[0]) barrier(2); }"},
        {"kernel void k(global int *a) { volatile global int *p = a, *q = a; while (!*q) ; }"},
        {"kernel void k(global int *a) { for (volatile global int *p = a, *q = a; !*q;) ; }"},
        {"typedef __attribute__((aligned(4))) volatile int vint;\n"
         "kernel void k(global vint *a) { while (!*a) ; }"},
        {"volatile int typedef vint;\nkernel void k(global vint *a) { while (!*a) ; }"},
        {"typedef volatile struct { int go; } flag;\n"
         "kernel void k(global flag *a) { while (!a->go) ; }"},
        {"#define SHARED __attribute__((aligned(4))) volatile\n"
         "kernel void k(SHARED global int *a) { while (!*a) ; }"},
        {"kernel void k(volatile global int *a) { __auto_type q = a; while (!*q) ; }"},
        {"kernel void k(volatile global int *a) { __typeof__(a) q = a; while (!*q) ; }"},
        {"kernel void k(global int *a) { volatile global int *local p; p = a; while (!*p) ; }"},
        {"kernel void k(local int *l, volatile global int *g) { while (!*g) ; }"},
        {"kernel void k(global atomic_int *a) { int e; do { e = 0;"
         " atomic_compare_exchange_strong(a, &e, 1); } while (e); }"},
        {"kernel void k(global int *a) { while (({ atomic_or(a, 0);; })) ; }"},
        {"kernel void k(global int *a) { while (!a[0]) printf(\"\"); }"},
        {"#define MAKE(name, value) kernel void name(volatile global int *a) { while (!(value)) ; "
         "}\n"
         "MAKE(k, *a)"},
        {"#define MAKE(name, step) kernel void name(global int *a) { while (!*a) step; }\n"
         "MAKE(k, mem_fence(CLK_GLOBAL_MEM_FENCE))"},
    };
    static const struct sample redefined[] = {
        {"#define CLK_LOCAL_MEM_FENCE 2\nkernel void k(global int *a) {"
         " while (!a[0]) barrier(CLK_LOCAL_MEM_FENCE); }"},
        {"kernel void k(volatile local int *a) { while (!*a) ; }", "-Dlocal=global"},
        {"#define if(x) v =\nkernel void k(global int *a) { int v = 0; while (!v) {"
         " if(1) atomic_or(a, 0); } }"},
    };
    static const struct sample unoptimised[] = {
        {"kernel void k(global int *a) { while (!*a) ; }", "-cl-opt-disable"},
    };
    static const struct sample read_write[] = {
        {"kernel void k(read_write image2d_t i) { while (!read_imagei(i, (int2)(0)).x) ; }",
         "-cl-std=CL2.0"},
    };
    expect_whole(samples, COUNT(samples), "may wait for another work-group");
    expect_whole(redefined, COUNT(redefined), "words of the language");
    expect_whole(unoptimised, COUNT(unoptimised), "without optimisation");
    expect_whole(read_write, COUNT(read_write), "reads and writes an image");
}

Test(traits, macros_and_barriers_as_they_mostly_are_change_nothing)
{
    static const struct sample samples[] = {
        {"#define SQUARE(x) ({ int y_ = (x); y_ * y_; })\n#define EACH(i) for (int i = 0; i < 4; "
         "i++)\n"
         "#define KERNEL __attribute__((reqd_work_group_size(8, 1, 1)))\n"
         "kernel KERNEL void k(global int *a) { EACH(i) { a[i] = SQUARE(i) ^ (int2)(1, 2).x; } }"},
        {"struct s { int a[2]; };\nenum { ONE = (1) };\ntypedef union { int a; } u;\n"
         "constant int list[] = { (1), (ONE) };\nconstant int2 two = (int2)(ONE, ONE);\n"
         "kernel void k(global int *a) { for (int i = 0; i < 2; i++) a[i] ^= list[i] ^ ~a[i]; }"},
        {"typedef volatile global int *counter;\nkernel void k(counter c, global int *a) {"
         " for (int i = 0; i < 4; i++) { atomic_inc(c); a[i] = i; } }"},
        {"#define SYNC barrier(CLK_LOCAL_MEM_FENCE)\nkernel void k(local int *l) {"
         " for (int i = 0; i < 4; i++) { l[i] = i; SYNC; barrier(CLK_LOCAL_MEM_FENCE);"
         " work_group_barrier(CLK_LOCAL_MEM_FENCE, memory_scope_work_group); } }"},
        {"#define NAME(x) square_##x\nint square_int(int x) { return x * x; }\n"
         "kernel void k(global int *a) { for (int i = 0; i < 4; i++) a[i] = NAME(int)(i); }"},
        {"float f(float x) { return x; }\nfloat __attribute__((overloadable)) g(float x)"
         " { return f(x); }\nfloat2 __attribute__((overloadable)) g(float2 x)"
         " { return (float2)(g(x.x), g(x.y)); }\n"
         "kernel void k(global float2 *a) { for (int i = 0; i < 4; i++) a[i] = g(a[i]); }"},
        {"#define MAKE(name, type) kernel void name(global type *a) { a[0] = 1; }\n"
         "MAKE(k, int)\nvoid f(volatile global int *b);"},
        {"kernel void k(global int *a) { \\\r\n a[0] = 1;\\\n }"},
        {"kernel void k(volatile local int *l, global int *a) { local int volatile *m = l, *n = l;"
         " for (int i = 0; i < 4; i++) a[i] = *m + *n; }"},
        {"kernel void k(global int *a) { __typeof__(a) p = a; for (int i = 0; i < 4; i++)"
         " { __auto_type x = p[i]; a[i] = x; } }"},
        {"__attribute__((weak)) int f(int a) { return a; }\n#pragma unroll\n"
         "kernel void k(global int *a) { for (int i = 0; i < 4; i++) a[i] = f(i); }"},
    };
    expect_cut(samples, COUNT(samples), false);
}

/* Ours would take their place, or they that of ours. */
Test(traits, macros_called_as_the_functions_are_in_the_way_where_those_are_needed)
{
    static const struct sample shadowed[] = {
        {"#define get_group_id(d) 5\nkernel void k(global int *a) { a[get_num_groups(0)] = 1; }"},
        {"kernel void k(global int *a) { a[get_group_id(0)] = 1; }", "-D get_work_dim=f"},
        {"#ifdef get_group_id\n#endif\nkernel void k(global int *a) { a[get_group_id(0)] = 1; }"},
        {"#undef get_global_id\nkernel void k(global int *a) { a[get_group_id(0)] = 1; }"},
        {"#if 1 && defined(get_global_size)\n#endif\n"
         "kernel void k(global int *a) { a[get_group_id(0)] = 1; }"},
        {"#define HAS defined(get_group_id)\n#if HAS\n#endif\n"
         "kernel void k(global int *a) { a[get_group_id(0)] = 1; }"},
        {"kernel void k(global int *a) { a[get_group_id(0)] = 1; }", "-Dget_local_size(d)=1"},
        {"kernel void k(global int *a) { a[get_group_id(0)] = 1; }", "-Duint=ushort"},
    };
    static const struct sample unneeded[] = {
        {"#define get_group_id(d) 5\nkernel void k(global int *a) { a[get_global_id(0)] = 1; }"},
    };
    static const struct sample others[] = {
        {"#define ID get_global_id(0)\n#pragma get_group_id\n#error get_group_id\n"
         "kernel void k(global int *a) { a[get_group_id(0)] = ID; }"},
    };
    expect_whole(shadowed, COUNT(shadowed), "macros called");
    expect_cut(unneeded, COUNT(unneeded), false);
    expect_cut(others, COUNT(others), true);
}

Test(traits, languages_before_2_0_have_even_groups_alone)
{
    cr_expect(traits_of("kernel void k() { }", "").even);
    cr_expect(traits_of("kernel void k() { }", "-cl-std=CL1.2").even);
    cr_expect_not(traits_of("kernel void k() { }", "-cl-std=CL2.0").even);
    cr_expect_not(traits_of("kernel void k() { }", "-w -cl-std=CL3.0").even);
    cr_expect(traits_of("kernel void k() { }", "-cl-std=CL3.0 -cl-uniform-work-group-size").even);
}

Test(traits, what_cannot_be_read_is_not_cut)
{
    static const struct sample pasted[] = {
        {"#define CAT(a, b) a##b\n#define ID(x) x\n"
         "kernel void k(global int *a) { a[CAT(get_, ID(group_id))(0)] = 1; }"},
        {"#define CAT(a, b) a##b\n#define BOTH(x) CAT(x)\n#define PAIR get_, group_id\n"
         "kernel void k(global int *a) { a[BOTH(PAIR)(0)] = 1; }"},
        {"#define CAT(...) a##__VA_ARGS__\nkernel void k(global int *a) { CAT(b) = 1; }"},
        {"#define CAT(a, b) a##b\n#define NAMES (get_, group_id)\n"
         "kernel void k(global int *a) { a[CAT NAMES(0)] = 1; }"},
        {"#define CAT(a, b) a##b\n#define CALL(m, x, y) m(x, y)\n"
         "kernel void k(global int *a) { a[CALL(CAT, get_, group_id)(0)] = 1; }"},
        {"#define CAT(a, b) a##b\n#define GET(a) CAT(get_, a)\n"
         "kernel void k(global int *a) { a[CAT(GE, T)(group_id)(0)] = 1; }"},
        {"#define CAT(a, b) a##b\n#define THREE(a, b, c) CAT(CAT(a, b), c)\n"
         "kernel void k(global int *a) { a[THREE(get, _group, _id)(0)] = 1; }"},
    };
    static const struct sample options[] = {
        {"kernel void k(global int *a) { a[0] = 1; }", "-Xclang -DX=1"},
        {"kernel void k(global int *a) { a[0] = 1; }", "-imacros other.h"},
        {"kernel void k(global int *a) { a[0] = 1; }", "-Wp,-DX=1"},
    };
    static const struct sample unspelled[] = {
        {"kernel void k(global int *a) { a[get_group_?\?/\nid(0)] = 1; }"},
        {"kernel void k(global int *a) ?\?< while (!atomic_or(a, 0)) ; ?\?>"},
        {"int s\\u00e9(global int *a) { return atomic_or(a, 0); }\n"
         "kernel void k(global int *a) { while (!s\\u00e9(a)) ; }"},
        {"// lines of an old Mac\rkernel void k(global int *a) { while (!atomic_or(a, 0)) ; }\r"},
        {"int f(global int *a) __asm__(\"g\");\nkernel void k(global int *a) { while (!f(a)) ; }"},
        {"int f(global int *a) __attribute__((alias(\"g\")));\n"
         "kernel void k(global int *a) { while (!f(a)) ; }"},
        {"kernel void k(global int *a) {\n#include \"body.h\"\n}"},
        {"kernel void other(global int *a) { }"},
    };
    static const struct sample broken[] = {
        {"#if A\nkernel void k(int a) {\n#else\nkernel void k(long a) {\n#endif\n}"},
        {"kernel void k(int a) { } }"},
        {"struct s f(struct s a) { return a; }\n#define K kernel void k(global int *a)\n"
         "K { a[get_group_id(0)] = 1; }"},
        {"int seen(a) global int *a; { return atomic_or(a, 0); }\n"
         "kernel void k(global int *a) { while (!seen(a)) ; }"},
        {"#define DEFINE(name, what) int name(global int *a) { what; }\n"
         "DEFINE(seen, return atomic_or(a, 0))\n"
         "kernel void k(global int *a) { while (!seen(a)) ; }"},
        {"#define DEFINE(name, what) int name(global int *a) { return what; }\n"
         "DEFINE(seen, atomic_or(a, 0))\nkernel void k(global int *a) { while (!seen(a)) ; }"},
        {"if (atomic_or(a, 0)) break;\nkernel void k(global int *a) { }"},
    };
    static const struct sample others[] = {
        {"kernel void k(global int *a) { }", "-cl-std=CLC++"},
        {"kernel void k(global int *a) { }", "-cl-std=clc++2021"},
    };
    static const struct sample assembly[] = {
        {"kernel void k(global int *a) { __asm__(\"mov.u32 %0, %ctaid.x;\"); }"},
    };
    static const struct sample inner[] = {
        {"kernel void k(global int *a) { a[0] = __nvvm_read_ptx_sreg_ctaid_x(); }"},
        {"int f() { return __builtin_amdgcn_workgroup_id_x(); }\n"
         "kernel void k(global int *a) { a[0] = f(); }"},
        {"kernel void k(global int *a) { while (!a[0]) __builtin_ia32_mfence(); }"},
        {"kernel void k(global int *a) { while (!__sync_fetch_and_add(a, 0)) ; }"},
        {"kernel void k(global int *a) { while (!__atomic_load_n(a, 5)) ; }"},
        {"kernel void k(global atomic_int *a) { while (!__opencl_atomic_load(a, 5, 2)) ; }"},
    };
    static const struct sample stand_ins[] = {
        {"int other(global int *a) { return atomic_or(a, 0); }\n#pragma weak seen = other\n"
         "int seen(global int *a);\nkernel void k(global int *a) { while (!seen(a)) ; }"},
        {"_Pragma(\"redefine_extname seen other\") int seen(global int *a);\n"
         "int other(global int *a) { return atomic_or(a, 0); }\n"
         "kernel void k(global int *a) { while (!seen(a)) ; }"},
    };
    static const struct sample pointers[] = {
        {"#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable\n"
         "int seen(global int *a) { return atomic_or(a, 0); }\n"
         "kernel void k(global int *a) { int (*f)(global int *) = seen; while (!f(a)) ; }"},
    };
    static const struct sample blocks[] = {
        {"kernel void k(global int *a) { int (^seen)(void) = ^{ return atomic_or(a, 0); };"
         " while (!seen()) ; }"},
        {"int (^const seen)(global int *) = ^(global int *a) { return a[0]; };\n"
         "kernel void k(global int *a) { while (!seen(a)) ; }"},
        {"kernel void k(global int *a) { __auto_type seen = ^(int x) { return atomic_or(a, x); };"
         " while (!seen(0)) ; }"},
    };
    static const struct sample subgroups[] = {
        {"kernel void k(global int *a) { a[get_global_id(0) / get_sub_group_size()] = 1; }"},
        {"kernel void k(global int *a) { a[get_global_id(0)] = sub_group_reduce_add(1); }"},
    };
    static const struct sample children[] = {
        {"kernel void k(global int *a) { enqueue_kernel(get_default_queue(), 0, ndrange_1D(1),"
         " ^{ a[0] = 1; }); }"},
    };
    static const struct sample pipes[] = {
        {"kernel void k(read_only pipe int p, global int *a) { read_pipe(p, a); }"},
    };
    expect_whole(pasted, COUNT(pasted), "pastes");
    expect_whole(options, COUNT(options), "options");
    expect_whole(unspelled, COUNT(unspelled), "source");
    expect_whole(stand_ins, COUNT(stand_ins), "stand for others");
    expect_whole(pointers, COUNT(pointers), "pointers to functions");
    expect_whole(blocks, COUNT(blocks), "blocks");
    expect_whole(subgroups, COUNT(subgroups), "sub-groups");
    expect_whole(broken, COUNT(broken), "cannot be told from one another");
    expect_whole(others, COUNT(others), "C++");
    expect_whole(assembly, COUNT(assembly), "assembly");
    expect_whole(inner, COUNT(inner), "compiler's own");
    expect_whole(children, COUNT(children), "enqueues");
    expect_whole(pipes, COUNT(pipes), "pipe");
}

/* Each of so many calls the one before it: to follow them all takes more than the stack there is.
 */
Test(traits, calls_that_go_deep_are_not_followed)
{
    enum { FUNCTIONS = 100000, LINE = 40 };
    static char source[(FUNCTIONS + 2) * LINE];
    memset(source, ' ', sizeof(source) - 1);
    char line[LINE] = "void f0(int *a) { }";
    for (int i = 1; i < FUNCTIONS; i++) {
        memcpy(&source[(i - 1) * LINE], line, strlen(line));
        snprintf(line, sizeof(line), "void f%d(int *a) { f%d(a); }", i, i - 1);
    }
    char *kernel = &source[(FUNCTIONS - 1) * LINE];
    snprintf(kernel, LINE, "kernel void k() { f%d(0); }", FUNCTIONS - 2);
    struct sample deep = {source};
    expect_whole(&deep, 1, "deeper");
    /* And what a kernel does call, however much there is. */
    snprintf(kernel, LINE, "kernel void k() { f%d(0); }", 150);
    expect_cut(&deep, 1, false);
}

/* A copy of the bytes on another device would miss what the groups there do to the same word. */
Test(traits, what_groups_do_together_stays_on_one_device)
{
    static const struct sample staying[] = {
        {"kernel void k(global int *a) { atomic_inc(a); }"},
        {"kernel void k(volatile global int *a) { a[get_global_id(0)] = 1; }"},
        {"kernel void k(global int *a) { printf(\"%d\", a[0]); }"},
        {"#define SAY(x) printf(\"%d\", x)\nvoid say(int x) { SAY(x); }\n"
         "kernel void k(global int *a) { say(a[0]); }"},
    };
    static const struct sample leaving[] = {
        {"kernel void k(global int *a) { a[get_global_id(0)] = 1; }"},
        {"void say(int x) { printf(\"%d\", x); }\nkernel void k(global int *a) { a[0] = 1; }"},
    };
    for (size_t i = 0; i < COUNT(staying); i++)
        cr_expect_not_null(traits_of(staying[i].source, "").stays, "%s", staying[i].source);
    for (size_t i = 0; i < COUNT(leaving); i++)
        cr_expect_null(traits_of(leaving[i].source, "").stays, "%s", leaving[i].source);
}

Test(traits, il_is_not_cut_and_neither_is_what_was_linked_with_it)
{
    const unsigned char module[20] = {3, 2, 0x23, 7};
    const char *source = "kernel void k() { }";
    struct recipe *il, *text, *compiled, *parts[2], *linked;
    struct kernel_traits traits;
    cr_assert_eq(recipe_il(module, sizeof(module), &il), 0);
    cr_assert_eq(recipe_source(1, &source, NULL, &text), 0);
    cr_assert_eq(recipe_step(RECIPE_COMPILED, text, "", 0, NULL, NULL, NULL, 0, &compiled), 0);
    parts[0] = parts[1] = compiled;
    cr_assert_eq(recipe_linked(2, parts, "", &linked), 0);
    cr_assert_eq(kernel_traits_read(linked, "k", &traits), 0);
    cr_expect_null(traits.whole);
    recipe_unref(linked);
    parts[1] = il;
    cr_assert_eq(recipe_linked(2, parts, "", &linked), 0);
    cr_assert_eq(kernel_traits_read(linked, "k", &traits), 0);
    cr_expect(traits.whole && strstr(traits.whole, "IL"));
    recipe_unref(linked);
    recipe_unref(compiled);
    recipe_unref(text);
    recipe_unref(il);
}

/* Processor time to read a kernel of so many lines, every other one of which is a directive. */
static double seconds_to_read(size_t lines)
{
    static const char head[] = "kernel void k(global int *a) {\n", tail[] = "}\n",
                      line[] = "#pragma unroll\na[0] = a[1] + a[2] * (a[3] - a[4]);\n";
    char *source = malloc(sizeof(head) + sizeof(tail) + lines * sizeof(line)), *at = source;
    struct timespec from, to;
    cr_assert_not_null(source);
    at = stpcpy(at, head);
    for (size_t i = 0; i < lines; i++)
        at = stpcpy(at, line);
    strcpy(at, tail);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    struct kernel_traits traits = traits_of(source, "");
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    cr_expect_null(traits.whole, "%s", traits.whole);
    free(source);
    return (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
}

/* Programs give sources of a million words with thousands of directives. */
Test(traits, a_source_sixteen_times_as_long_is_read_in_some_sixteen_times_the_time)
{
    double one = seconds_to_read(1000), sixteen = seconds_to_read(16000);
    cr_expect_lt(sixteen, 64 * one, "%f s, then %f s", one, sixteen);
}

/* Each macro calls the one before it eight times: the ways to what pastes are more than can be
 * gone. */
Test(traits, pastes_that_are_reached_in_countless_ways_are_not_followed, .timeout = 60)
{
    static char source[4096];
    char *at = stpcpy(source, "#define A0(x) x##_\n");
    for (int i = 1; i < 14; i++) {
        at += sprintf(at, "#define A%d(x)", i);
        for (int call = 0; call < 8; call++)
            at += sprintf(at, " A%d(x)", i - 1);
        at = stpcpy(at, "\n");
    }
    strcpy(at, "kernel void k(global int *a) { int A13(b) = 1; }");
    struct sample countless = {source};
    expect_whole(&countless, 1, "pastes");
}

/* ---- what is kept of it ---- */

static const char many[] =
    "void wait(volatile global int *v) { while (*v) ; }\n"
    "int deep(int n) { return n ? deep(n - 1) : (int)get_group_id(0); }\n"
    "kernel void waits(global int *a) { wait(a); }\n"
    "kernel void asks(global int *a) { for (int i = 0; i < 9; i++) a[i] = deep(i); }\n"
    "kernel void stays(global int *a) { atomic_inc(a); }\n"
    "kernel void plain(global int *a) { a[get_global_id(0)] = 1; }\n";

static struct recipe *recipe_of(const char *source)
{
    struct recipe *leaf, *built;
    cr_assert_eq(recipe_source(1, &source, NULL, &leaf), 0);
    cr_assert_eq(recipe_built(leaf, "-cl-std=CL2.0", NULL, 0, &built), 0);
    recipe_unref(leaf);
    return built;
}

static void expect_same_reason(const char *name, const char *one, const char *other)
{
    cr_expect_eq(one == NULL, other == NULL, "%s", name);
    if (one && other)
        cr_expect_str_eq(one, other, "%s", name);
}

/* As each kernel is when it is read alone. */
static void expect_facts(const struct source_facts *facts, const struct recipe *recipe)
{
    cr_assert_eq(facts->count, 4);
    for (uint32_t i = 0; i < facts->count; i++) {
        const char *name = facts->names[i];
        const struct kernel_traits *traits = source_facts_find(facts, name);
        struct kernel_traits alone;
        cr_assert_eq(kernel_traits_read(recipe, name, &alone), 0);
        cr_assert_not_null(traits, "%s", name);
        expect_same_reason(name, traits->whole, alone.whole);
        expect_same_reason(name, traits->stays, alone.stays);
        cr_expect_eq(traits->asks_position, alone.asks_position, "%s", name);
        cr_expect_eq(traits->loops, alone.loops, "%s", name);
        cr_expect_eq(traits->even, alone.even, "%s", name);
    }
    cr_expect_null(source_facts_find(facts, "other"));
    cr_expect_eq(facts->keeps_variables, recipe_keeps_variables(recipe));
}

Test(traits, all_kernels_read_at_once_are_as_each_alone)
{
    static const char *const orders[] = {"waits;asks;stays;plain", "plain;stays;asks;waits;"};
    for (size_t i = 0; i < COUNT(orders); i++) {
        struct recipe *recipe = recipe_of(many);
        struct source_facts *facts = source_facts_read(recipe, orders[i]);
        cr_assert_not_null(facts);
        expect_facts(facts, recipe);
        cr_expect_not_null(source_facts_find(facts, "waits")->whole);
        cr_expect(source_facts_find(facts, "asks")->asks_position);
        cr_expect_null(source_facts_find(facts, "plain")->whole);
        source_facts_free(facts);
        recipe_unref(recipe);
    }
}

Test(traits, what_is_kept_says_the_same)
{
    const char *sources[] = {many, "global int kept;\nkernel void waits() {}\n"
                                   "kernel void asks() {}\nkernel void stays() {}\n"
                                   "kernel void plain() { kept = 1; }\n"};
    for (size_t i = 0; i < COUNT(sources); i++) {
        struct recipe *recipe = recipe_of(sources[i]);
        struct source_facts *read = source_facts_read(recipe, "waits;asks;stays;plain");
        size_t size = 0;
        void *bytes = source_facts_pack(read, &size);
        cr_assert_not_null(bytes);
        struct source_facts *kept = source_facts_unpack(recipe, bytes, size);
        cr_assert_not_null(kept);
        expect_facts(kept, recipe);
        cr_expect_eq(kept->keeps_variables, i == 1);
        cr_expect(source_facts_are_of(kept, recipe));
        source_facts_free(kept);
        source_facts_free(read);
        free(bytes);
        recipe_unref(recipe);
    }
}

Test(traits, what_another_version_kept_and_what_is_damaged_is_not_believed)
{
    struct recipe *recipe = recipe_of(many), *other = recipe_of("kernel void waits() {}");
    struct source_facts *read = source_facts_read(recipe, "waits;asks;stays;plain");
    size_t size = 0;
    unsigned char *bytes = source_facts_pack(read, &size);
    cr_assert_not_null(bytes);
    cr_expect(!source_facts_are_of(read, other));
    cr_expect(!source_facts_are_of(NULL, recipe));
    for (size_t length = 0; length < size; length++) {
        unsigned char *part = malloc(length + 1); /* for who looks behind the end */
        memcpy(part, bytes, length);
        cr_expect_null(source_facts_unpack(recipe, part, length), "%zu bytes", length);
        free(part);
    }
    for (size_t at = 0; at < size; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[at] ^= (unsigned char)(1u << bit);
            source_facts_free(source_facts_unpack(recipe, bytes, size));
            bytes[at] ^= (unsigned char)(1u << bit);
        }
    bytes[8]++; /* in the digest of the code that read, which comes first */
    cr_expect_null(source_facts_unpack(recipe, bytes, size));
    source_facts_free(read);
    free(bytes);
    recipe_unref(other);
    recipe_unref(recipe);
}
