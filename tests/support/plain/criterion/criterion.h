#ifndef RESEAT_TESTS_SUPPORT_PLAIN_CRITERION_CRITERION_H
#define RESEAT_TESTS_SUPPORT_PLAIN_CRITERION_CRITERION_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * As much of Criterion's interface as a suite needs to run under TSan, which cannot run Criterion
 * itself. Each test has a process of its own, forked where there are no threads yet. To be included
 * by several files of one program: the runner is weak.
 */

struct plain_options {
    void (*init)(void), (*fini)(void);
    double timeout; /* meson's is for all of them */
    int exit_code;
};
struct plain_suite {
    const char *name;
    struct plain_options options;
    struct plain_suite *next;
};
struct plain_test {
    const char *suite, *name;
    void (*run)(void);
    struct plain_options options;
    struct plain_test *next;
};
__attribute__((weak)) struct plain_suite *plain_suites;
__attribute__((weak)) struct plain_test *plain_tests;
__attribute__((weak)) jmp_buf plain_skip;
/** What a test's process does last (folder.h), for it ends without exit's handlers; or NULL. */
#define PLAIN_CLEANUP 1
__attribute__((weak)) void (*plain_cleanup)(void);

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

/* In the test's own process. */
__attribute__((noreturn)) static inline void plain_run(const struct plain_test *test)
{
    struct plain_options suite = {0};
    for (const struct plain_suite *at = plain_suites; at; at = at->next)
        if (strcmp(at->name, test->suite) == 0)
            suite = at->options;
    if (setjmp(plain_skip) == 0) {
        if (suite.init)
            suite.init();
        if (test->options.init)
            test->options.init();
        test->run();
        if (test->options.fini)
            test->options.fini();
        if (suite.fini)
            suite.fini();
    }
    if (plain_cleanup)
        plain_cleanup();
    _Exit(0); /* The drivers' handlers are for processes that did not fork. */
}

static inline bool plain_passes(const struct plain_test *test)
{
    int status = -1;
    fprintf(stderr, "%s::%s\n", test->suite, test->name);
    pid_t child = fork();
    if (child == 0)
        plain_run(test);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return false;
    bool passes = WIFEXITED(status) && WEXITSTATUS(status) == test->options.exit_code;
    if (!passes)
        fprintf(stderr, "%s::%s failed (wait status %#x)\n", test->suite, test->name,
                (unsigned)status);
    return passes;
}

/* All tests, or those with the first argument in their name: at least one. */
int main(int argc, char **argv);
__attribute__((weak)) int main(int argc, char **argv)
{
    unsigned ran = 0, failed = 0;
    for (const struct plain_test *test = plain_tests; test; test = test->next) {
        if (argc > 1 && !strstr(test->name, argv[1]))
            continue;
        ran++;
        failed += !plain_passes(test);
    }
    return ran == 0 || failed != 0;
}

#define Test(suite_name, test_name, ...)                                                           \
    static void plain_##test_name(void);                                                           \
    __attribute__((constructor)) static void plain_add_##test_name(void)                           \
    {                                                                                              \
        static struct plain_test test = {                                                          \
            #suite_name, #test_name, plain_##test_name, {__VA_ARGS__}, NULL};                      \
        test.next = plain_tests;                                                                   \
        plain_tests = &test;                                                                       \
    }                                                                                              \
    static void plain_##test_name(void)

#define TestSuite(suite_name, ...)                                                                 \
    __attribute__((constructor)) static void plain_add_suite_##suite_name(void)                    \
    {                                                                                              \
        static struct plain_suite suite = {#suite_name, {__VA_ARGS__}, NULL};                      \
        suite.next = plain_suites;                                                                 \
        plain_suites = &suite;                                                                     \
    }                                                                                              \
    _Static_assert(1, "")

#define cr_assert(c, ...)          plain_check(c, __FILE__, __LINE__, #c)
#define cr_assert_not(c, ...)      plain_check(!(c), __FILE__, __LINE__, "not " #c)
#define cr_assert_eq(a, b, ...)    plain_check((a) == (b), __FILE__, __LINE__, #a " == " #b)
#define cr_assert_neq(a, b, ...)   plain_check((a) != (b), __FILE__, __LINE__, #a " != " #b)
#define cr_assert_lt(a, b, ...)    plain_check((a) < (b), __FILE__, __LINE__, #a " < " #b)
#define cr_assert_leq(a, b, ...)   plain_check((a) <= (b), __FILE__, __LINE__, #a " <= " #b)
#define cr_assert_gt(a, b, ...)    plain_check((a) > (b), __FILE__, __LINE__, #a " > " #b)
#define cr_assert_geq(a, b, ...)   plain_check((a) >= (b), __FILE__, __LINE__, #a " >= " #b)
#define cr_assert_null(a, ...)     plain_check((a) == NULL, __FILE__, __LINE__, #a " is NULL")
#define cr_assert_not_null(a, ...) plain_check((a) != NULL, __FILE__, __LINE__, #a)
#define cr_assert_arr_eq(a, b, size, ...)                                                          \
    plain_check(memcmp(a, b, size) == 0, __FILE__, __LINE__, #a " == " #b)
#define cr_assert_float_eq(a, b, by, ...)                                                          \
    plain_check((a) - (b) <= (by) && (b) - (a) <= (by), __FILE__, __LINE__, #a " == " #b)
#define cr_assert_str_eq(a, b, ...)     plain_check(strcmp(a, b) == 0, __FILE__, __LINE__, #a " == " #b)
#define cr_assert_str_empty(s, ...)     plain_check(!*(s), __FILE__, __LINE__, #s " is empty")
#define cr_assert_str_not_empty(s, ...) plain_check(*(s), __FILE__, __LINE__, #s " is not empty")
#define cr_assert_fail(...)             plain_fail(__FILE__, __LINE__, "")
#define cr_skip_test(why)               longjmp(plain_skip, 1)

/* What fails ends its test. */
#define cr_expect               cr_assert
#define cr_expect_eq            cr_assert_eq
#define cr_expect_neq           cr_assert_neq
#define cr_expect_not           cr_assert_not
#define cr_expect_gt            cr_assert_gt
#define cr_expect_geq           cr_assert_geq
#define cr_expect_lt            cr_assert_lt
#define cr_expect_leq           cr_assert_leq
#define cr_expect_null          cr_assert_null
#define cr_expect_not_null      cr_assert_not_null
#define cr_expect_str_eq        cr_assert_str_eq
#define cr_expect_str_not_empty cr_assert_str_not_empty

#endif
