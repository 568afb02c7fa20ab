#include "tests/support/cases.h"

#include "state/program/kernel_traits.h"

/* Which programs have variables that live as long as they do. */

static bool keeps(const char *source, const char *options)
{
    struct recipe *leaf, *built;
    cr_assert_eq(recipe_source(1, &source, NULL, &leaf), 0);
    cr_assert_eq(recipe_built(leaf, options, NULL, 0, &built), 0);
    bool found = recipe_keeps_variables(built);
    recipe_unref(built);
    recipe_unref(leaf);
    return found;
}

Test(variables, that_are_global_are_found_in_any_language)
{
    static const char *const sources[] = {
        "global int v = 5; kernel void k(global int *a) { a[0] = v++; }",
        "__global float4 table[256];\nkernel void k() {}",
        "kernel void k() {}\n#define X \\\n global\nstatic global uint seen;",
        "global struct { int a; } s;",
        "struct s { int a; }; global struct s one = { 1 };",
        "__attribute__((aligned(8))) global int *p;",
        "global int * global p;",
        "const global int *p;",
        "kernel void k() { if (1) { static global int n; } }",
        "kernel void k() { static int n = 3; n++; }",
        "#define KEPT static global\nkernel void k() { KEPT int n = 0; n++; }",
        "#define KEPT static\n#define KEPT_INT KEPT int\nkernel void k() { KEPT_INT n; n++; }",
        "#define COUNTER(n) static global int n = 0;\nvoid f() { int a = 1; COUNTER(b) a++; }",
        "#define MAKE(name, code) kernel void name() { code }\nMAKE(k, static global int n; n++;) "
        "kernel void other() {}",
        "#define KEPT static\nvoid f() { KEPT constant int a = 1; KEPT global int b; }",
        "#if 0\ndon't\n#endif\nglobal int v;",
        "// don't \\\n '\nglobal int v;",
        "int f(int a) <% return a; %>\nglobal int v;",
        "#define SHARED global\nSHARED int v;",
        "#define DECLARE(type, name) global type name\nDECLARE(int, v);",
        "#define DECLARE(what, name) what name\nDECLARE(global int, v);",
        "__attribute((aligned(8))) global int v;",
        "global int v[sizeof(float)];",
        "global int (*p)[2];",
        "global int (v);",
        "int f(global int *), g(int); global int a, b;",
        "extern global int v = 4;",
        "kernel void k() { sta\\\n\\\ntic int n; n++; }",
        "glo\\\nbal int v;",
        "kernel void k() { static const int most = 4, *at = 0; }",
        "kernel void k() { static int *const at = 0, n; }",
        "kernel void k() { static struct { const int tag; int n; } s; s.n++; }",
        "kernel void k() { static int n[sizeof(const int)]; }",
        "kernel void k() { static int n[2] = {1, (const int)2}; }",
        "kernel void k() { static __attribute__((aligned(sizeof(const int)))) int n; }",
        "#define BODY(first) { first; n++; }\nkernel void k() BODY(static int n)",
        "static float4 last[2] = {1, 2};", /* in functions alone, where it is not global */
        "#define END ;\nglobal int b = 1 END\nkernel void k() {}",
        "#define END ; global int b = 1 MARK\n#define MARK ;\nconstant int c = 2 END\n",
        "#define MARK ;\n#define END MARK\nconstant int c = 2 END global int b = 3 END\n",
        "#define NEXT ; global int b\nconstant int c = 2 NEXT;",
        "#define END ;\nkernel void k() { static const int a = 1 END static int n = 0; n++; }",
        "#define BEGIN {\n#define END }\nkernel void k() BEGIN static int n; n++; END",
        "#ifdef A\n#define PLACE constant\n#else\n#define PLACE global\n#endif\nPLACE int v = 1;",
        "#ifdef A\nkernel void k(int a) {\n#elif B\nkernel void k(int2 a) {\n#else\nkernel void "
        "k() {\n#endif\n}\nglobal int v;",
        "kernel void k() {\n#ifdef A\nif (1) {\n#else\nfor (;;) {\n#endif\n}\n}\nglobal int v;",
        "#ifdef A\nkernel void k() {\n#ifdef B\n}\n#else\nif (1) {} }\n#endif\n#endif\nglobal int "
        "v;",
    };
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
        cr_expect(keeps(sources[i], ""), "%s", sources[i]);
}

Test(variables, without_an_address_space_are_global_in_new_languages)
{
    static const char *const sources[] = {
        "int counter;",
        "atomic_int hits = ATOMIC_VAR_INIT(0); kernel void k() {}",
        "unsigned long n; void f(int);",
        "volatile uint flag;",
        "typedef int num; num v;",
        "struct s { int a; } v;",
        "struct s { int a; }; struct s v;",
        "enum e { A, B } v;",
        "constant int t[2] = {1, 2}; constant int *p;",
        "int f(int), v;",
        "int v[(const int)2];",
        "__typeof__(1) v;",
        "ptrdiff_t v;",
        "extern int v = 4;",
        "kernel void k() ?\?< ?\?>",
        "#ifdef A\n#define PLACE constant\n#else\n#define PLACE\n#endif\nPLACE int v;",
        "#define INNER\n#define PLACE INNER\n#if A\n#define INNER const\n#endif\nPLACE int v = 1;",
        "#ifdef A\nconst\n#endif\nint v;",
        "#if A\nextern int v;\n#else\n#ifdef B\nconst\n#else\ntypedef\n#endif\nint v;\n#endif",
        "#if A\nint b\n#elif B\nconstant int v\n#endif\n, w = 2;",
    };
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        cr_expect_not(keeps(sources[i], "-cl-std=CL1.2"), "%s", sources[i]);
        cr_expect(keeps(sources[i], "-DX -cl-std=CL2.0"), "%s", sources[i]);
        cr_expect(keeps(sources[i], "-cl-std=CL3.0"), "%s", sources[i]);
        cr_expect(keeps(sources[i], "-cl-std=CLC++"), "%s", sources[i]);
    }
}

/* Else each of its words would be all of them again, at every depth. */
Test(variables, are_found_behind_macros_that_name_themselves, .timeout = 30)
{
    cr_expect(keeps("#define A(x) A(x) A A A A A A A A A A A A A A A A A A A\n"
                    "A(1); global int v;",
                    ""));
}

Test(variables, are_not_seen_where_there_are_none)
{
    static const char *const sources[] = {
        "",
        "kernel void k(global int *a) { a[0] = 1; }",
        "__kernel void k(__global int *a, __local int *l) { local int x[4]; int y; x[0] = y; }",
        "constant int t[] = {1, 2};",
        "__constant float4 t[2] = {(float4)(1), (float4)(2)}; kernel void k() {}",
        "static __constant int t[1] = {1};",
        "const sampler_t s = CLK_FILTER_NEAREST;",
        "constant sampler_t s = 0;",
        "typedef struct { int a; global int *p; } node; kernel void k(global node *n) {}",
        "struct node { global int *p; };",
        "typedef global int *pointer;",
        "global int *next(global int *p); kernel void k() {}",
        "static inline int twice(int a) { const int b = a; return 2 * b; }",
        "int __attribute__((overloadable)) f(global int *p) { return *p; }",
        "extern global int elsewhere;",
        "extern global int elsewhere, there; extern constant int one = 1;",
        "kernel void k() { static const int least = 1, most[2] = {2, 3}; }",
        "// global int v;\n/* global int w; */ kernel void k() {}",
        "#define COUNTER global int v;\n#if 0\n#endif\nkernel void k() {}",
        "kernel void k() { printf(\"global int v; { ( \\\" \"); }",
        "const int n = 5; enum { A, B }; union u { int a; float b; };",
        "kernel void k() { static constant int t[2] = {1, 2}; }",
        "kernel void k() { const static int most = 3; int n; n++; }",
        "kernel void k() { static struct { int n; } const one = {1}, two = {2}; }",
        "#define MAKE(type, name) type name() { return 1; }\nMAKE(static inline int, f) void g();",
        "#define TABLE static constant\nkernel void k() { TABLE int t[2] = {1, 2}; }",
        "#define INNER static\nINNER int f() { int a = 1; return a; } void g() { int b; f(b); }",
        "#define PROTOTYPE(name) int name(global int *a)\nPROTOTYPE(f);\nPROTOTYPE(g) { return 1; "
        "}",
        "#define CONSTANT constant\nCONSTANT int t[] = {1}; constant char *constant names[1] = "
        "{0};",
        "#define KERNEL(name) kernel void name\nKERNEL(k)(global int *a) {}",
        "typedef struct { int x; } t; t f(t a); t f(t a) { return a; }",
        "struct s { int x; }; struct s f(struct s a) { return a; } constant struct s one = {1};",
        "_Static_assert(sizeof(int) == 4, \"\"); float (f)(float a) { return a; }",
        "void f(global int *a), g(global int *b); typedef int (function)(int);",
        "#if 0\nusing namespace metal;\n#endif",
        "kernel __attribute__((reqd_work_group_size(1, 1, 1))) void k(global int *a) {}",
        "#ifdef A\n#define PLACE constant\n#else\n#define PLACE const\n#endif\nPLACE int t = 1;",
        "#ifdef A\ntypedef struct {\n#ifdef B\nint a;\n#else\nlong a;\n#endif\n} s;\n#endif",
        "#ifndef A\n#define A\n#if B\nconstant int t[2] = {1,\n#ifdef C\n2\n#endif\n}, u = 1;\n"
        "#else\nconst float t = 1;\n#endif\n#endif",
        "#ifdef A\n#define KERNEL\n#else\n#define KERNEL kernel\n#endif\nKERNEL void k() {}",
        "#define TABLE(n) constant int t##n[2] = {1, 2}\nTABLE(1);\nTABLE(2);",
        "kernel void k() {\n#if A\nif (1) {\n#else\n#endif\n;\n#if A\n}\n#endif\nint a = 1; }",
        "/* never ends",
        "\"never ends",
        "kernel void k() { {",
        "constant int t[] = {1};;;;;; (",
        "#",
    };
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        cr_expect_not(keeps(sources[i], ""), "%s", sources[i]);
        cr_expect_not(keeps(sources[i], "-cl-std=CL3.0"), "%s", sources[i]);
    }
}

Test(variables, of_inputs_are_those_of_what_is_linked)
{
    const char *with = "global int v;", *without = "kernel void k() {}";
    struct recipe *leaves[2], *compiled[2], *linked;
    cr_assert_eq(recipe_source(1, &with, NULL, &leaves[0]), 0);
    cr_assert_eq(recipe_source(1, &without, NULL, &leaves[1]), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(
            recipe_step(RECIPE_COMPILED, leaves[i], "", 0, NULL, NULL, NULL, 0, &compiled[i]), 0);
    cr_assert_eq(recipe_linked(2, compiled, "", &linked), 0);
    cr_expect(recipe_keeps_variables(linked));
    cr_expect_not(recipe_keeps_variables(compiled[1]));
    recipe_unref(linked);
    for (int i = 0; i < 2; i++) {
        recipe_unref(compiled[i]);
        recipe_unref(leaves[i]);
    }
}

static bool il_keeps(uint32_t storage, bool swapped, size_t cut)
{
    /* A header, OpCapability Kernel, OpVariable %1 %2 storage. */
    uint32_t words[] = {0x07230203, 0x00010000,      0, 3, 0,      (2u << 16) | 17,
                        6,          (4u << 16) | 59, 1, 2, storage};
    struct recipe *il;
    for (size_t i = 0; swapped && i < sizeof(words) / sizeof(words[0]); i++)
        words[i] = __builtin_bswap32(words[i]);
    cr_assert_eq(recipe_il(words, sizeof(words) - cut, &il), 0);
    bool found = recipe_keeps_variables(il);
    recipe_unref(il);
    return found;
}

Test(variables, of_il_are_those_in_the_memory_of_all_work_groups)
{
    cr_expect(il_keeps(5, false, 0));
    cr_expect(il_keeps(5, true, 0));
    cr_expect_not(il_keeps(0, false, 0)); /* constants */
    cr_expect_not(il_keeps(4, false, 0)); /* local memory */
    for (size_t cut = 1; cut <= 40; cut++)
        cr_expect_not(il_keeps(5, false, cut), "%zu bytes less", cut);
}
