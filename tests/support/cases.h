#ifndef RESEAT_TESTS_SUPPORT_CASES_H
#define RESEAT_TESTS_SUPPORT_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Tests in C, each in a process of its own, with the headers that nearly all need. The names are
 * Criterion's, which cannot run under ThreadSanitizer. The runner forks the tests, so they have the
 * libraries that constructors loaded.
 *
 *   test_NAME [--list] [--jobs N] [PATTERN...]
 *
 * A PATTERN as fnmatch(3) has it, with extended ones, is matched with SUITE/TEST, or with TEST if
 * it has no slash.
 */

struct cases_options {
    void (*init)(void), (*fini)(void); /**< Before and after the test, in its process. */
    double timeout;                    /**< Seconds, times TEST_PATIENCE; 0: as long as it takes. */
    int exit_code;                     /**< What the test's process ends with. */
    unsigned (*times)(void); /**< It runs so often, each with a number of its own; NULL: once. */
};

struct cases_test {
    const char *suite, *name;
    void (*run)(void); /**< NULL: @options are of a suite, inside those of its tests. */
    struct cases_options options;
    struct cases_test *next;
};

/** Before main(). */
void cases_add(struct cases_test *test);

/** Which time it is that this test runs, from 0. */
unsigned cases_number(void);

/** Call @end last in this test's process, however the test ends but for a crash. One a process. */
void cases_at_end(void (*end)(void));

/** Say that the test fails. Thread-safe, as the next; a process that the test forked may, too. */
void cases_fail(const char *file, int line, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Whether two texts are; what they are is said where they are not. */
bool cases_are_same(const char *a, const char *b);

/** End this process, as one whose test failed if any check of it did. */
__attribute__((noreturn)) void cases_end(void);

/** End this process, and say with @format why nothing is tested here. */
void cases_skip(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#define CASES_ADD(suite_name, test_name, function, ...)                                            \
    __attribute__((constructor)) static void cases_add_##suite_name##_##test_name(void)            \
    {                                                                                              \
        static struct cases_test test = {#suite_name, #test_name, function, {__VA_ARGS__}, NULL};  \
        cases_add(&test);                                                                          \
    }

#define Test(suite, name, ...)                                                                     \
    static void cases_##suite##_##name(void);                                                      \
    CASES_ADD(suite, name, cases_##suite##_##name, __VA_ARGS__)                                    \
    static void cases_##suite##_##name(void)

/** One that is only this call: of a body that several share. */
#define TestCall(suite, name, call, ...)                                                           \
    static void cases_##suite##_##name(void)                                                       \
    {                                                                                              \
        call;                                                                                      \
    }                                                                                              \
    CASES_ADD(suite, name, cases_##suite##_##name, __VA_ARGS__)                                    \
    _Static_assert(1, "")

#define TestSuite(suite, ...)                                                                      \
    CASES_ADD(suite, , NULL, __VA_ARGS__)                                                          \
    _Static_assert(1, "")

/* A check that fails is said with what comes behind it, a format and its arguments. An assertion
 * ends the test then, an expectation does not. */
#define CASES_CHECK(holds, what, then, ...)                                                        \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            cases_fail(__FILE__, __LINE__, what, " " __VA_ARGS__);                                 \
            then;                                                                                  \
        }                                                                                          \
    } while (0)
#define CASES_ASSERT(holds, what, ...) CASES_CHECK(holds, what, cases_end(), __VA_ARGS__)
#define CASES_EXPECT(holds, what, ...) CASES_CHECK(holds, what, (void)0, __VA_ARGS__)

#define cr_assert(c, ...)           CASES_ASSERT(c, #c, __VA_ARGS__)
#define cr_assert_not(c, ...)       CASES_ASSERT(!(c), "not " #c, __VA_ARGS__)
#define cr_assert_null(p, ...)      CASES_ASSERT((p) == NULL, #p " is NULL", __VA_ARGS__)
#define cr_assert_not_null(p, ...)  CASES_ASSERT((p) != NULL, #p " is not NULL", __VA_ARGS__)
#define cr_assert_eq(a, b, ...)     CASES_ASSERT((a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...)    CASES_ASSERT((a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...)     CASES_ASSERT((a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...)    CASES_ASSERT((a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...)     CASES_ASSERT((a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...)    CASES_ASSERT((a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) CASES_ASSERT(cases_are_same(a, b), #a " is " #b, __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...)                                                               \
    CASES_ASSERT(!cases_are_same(a, b), #a " is not " #b, __VA_ARGS__)
#define cr_assert_str_empty(s, ...)     CASES_ASSERT(!*(s), #s " is empty", __VA_ARGS__)
#define cr_assert_str_not_empty(s, ...) CASES_ASSERT(*(s), #s " is not empty", __VA_ARGS__)
#define cr_assert_arr_eq(a, b, size, ...)                                                          \
    CASES_ASSERT(memcmp(a, b, size) == 0, #a " is " #b, __VA_ARGS__)
#define cr_assert_float_eq(a, b, by, ...)                                                          \
    CASES_ASSERT((a) - (b) <= (by) && (b) - (a) <= (by), #a " == " #b, __VA_ARGS__)
#define cr_assert_fail(...)         CASES_ASSERT(false, "", __VA_ARGS__)
#define cr_expect(c, ...)           CASES_EXPECT(c, #c, __VA_ARGS__)
#define cr_expect_not(c, ...)       CASES_EXPECT(!(c), "not " #c, __VA_ARGS__)
#define cr_expect_null(p, ...)      CASES_EXPECT((p) == NULL, #p " is NULL", __VA_ARGS__)
#define cr_expect_not_null(p, ...)  CASES_EXPECT((p) != NULL, #p " is not NULL", __VA_ARGS__)
#define cr_expect_eq(a, b, ...)     CASES_EXPECT((a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_expect_neq(a, b, ...)    CASES_EXPECT((a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_expect_lt(a, b, ...)     CASES_EXPECT((a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_expect_leq(a, b, ...)    CASES_EXPECT((a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_expect_gt(a, b, ...)     CASES_EXPECT((a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_expect_geq(a, b, ...)    CASES_EXPECT((a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) CASES_EXPECT(cases_are_same(a, b), #a " is " #b, __VA_ARGS__)
#define cr_expect_str_neq(a, b, ...)                                                               \
    CASES_EXPECT(!cases_are_same(a, b), #a " is not " #b, __VA_ARGS__)
#define cr_expect_str_empty(s, ...)     CASES_EXPECT(!*(s), #s " is empty", __VA_ARGS__)
#define cr_expect_str_not_empty(s, ...) CASES_EXPECT(*(s), #s " is not empty", __VA_ARGS__)
#define cr_expect_arr_eq(a, b, size, ...)                                                          \
    CASES_EXPECT(memcmp(a, b, size) == 0, #a " is " #b, __VA_ARGS__)
#define cr_expect_arr_neq(a, b, size, ...)                                                         \
    CASES_EXPECT(memcmp(a, b, size) != 0, #a " is not " #b, __VA_ARGS__)
#define cr_expect_float_eq(a, b, by, ...)                                                          \
    CASES_EXPECT((a) - (b) <= (by) && (b) - (a) <= (by), #a " == " #b, __VA_ARGS__)

#endif
