#ifndef RESEAT_TESTS_SUPPORT_PLAIN_CRITERION_CRITERION_H
#define RESEAT_TESTS_SUPPORT_PLAIN_CRITERION_CRITERION_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * As much of Criterion's interface as a suite needs to run in one process under TSan, which cannot
 * run Criterion itself. To be included by several files of one program: the runner is weak.
 */

struct plain_test {
    const char *suite, *name;
    void (*run)(void);
    struct plain_test *next;
};
__attribute__((weak)) struct plain_test *plain_tests;
__attribute__((weak)) jmp_buf plain_skip;

__attribute__((noreturn)) static inline void plain_fail(const char *file, int line,
                                                        const char *what)
{
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
    _Exit(1);
}

static inline void plain_check(bool holds, const char *file, int line, const char *what)
{
    if (!holds)
        plain_fail(file, line, what);
}

static inline void plain_run(const struct plain_test *test)
{
    fprintf(stderr, "%s::%s\n", test->suite, test->name);
    if (setjmp(plain_skip) == 0)
        test->run();
}

int main(int argc, char **argv);
__attribute__((weak)) int main(int argc, char **argv)
{
    for (struct plain_test *test = plain_tests; test; test = test->next) {
        if (argc > 1 && !strstr(test->name, argv[1]))
            continue;
        plain_run(test);
    }
    return 0;
}

#define Test(suite_name, test_name, ...)                                                           \
    static void plain_##test_name(void);                                                           \
    __attribute__((constructor)) static void plain_add_##test_name(void)                           \
    {                                                                                              \
        static struct plain_test test = {#suite_name, #test_name, plain_##test_name, NULL};        \
        test.next = plain_tests;                                                                   \
        plain_tests = &test;                                                                       \
    }                                                                                              \
    static void plain_##test_name(void)

#define TestSuite(...) _Static_assert(1, "")

#define cr_assert_not(c, ...)       plain_check(!(c), __FILE__, __LINE__, "not " #c)
#define cr_assert_str_empty(s, ...) plain_check(!*(s), __FILE__, __LINE__, #s " is empty")
#define cr_assert(c, ...)           plain_check(c, __FILE__, __LINE__, #c)
#define cr_assert_eq(a, b, ...)     plain_check((a) == (b), __FILE__, __LINE__, #a " == " #b)
#define cr_assert_lt(a, b, ...)     plain_check((a) < (b), __FILE__, __LINE__, #a " < " #b)
#define cr_assert_leq(a, b, ...)    plain_check((a) <= (b), __FILE__, __LINE__, #a " <= " #b)
#define cr_assert_gt(a, b, ...)     plain_check((a) > (b), __FILE__, __LINE__, #a " > " #b)
#define cr_assert_geq(a, b, ...)    plain_check((a) >= (b), __FILE__, __LINE__, #a " >= " #b)
#define cr_assert_not_null(a, ...)  plain_check((a) != NULL, __FILE__, __LINE__, #a)
#define cr_assert_neq(a, b, ...)    plain_check((a) != (b), __FILE__, __LINE__, #a " != " #b)
#define cr_assert_arr_eq(a, b, size, ...)                                                          \
    plain_check(memcmp(a, b, size) == 0, __FILE__, __LINE__, #a " == " #b)
#define cr_assert_fail(...) plain_fail(__FILE__, __LINE__, "")
#define cr_skip_test(why)   longjmp(plain_skip, 1)

#endif
