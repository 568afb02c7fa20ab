#include <criterion/criterion.h>
#include <stdlib.h>

#include "remote/server/listener/promises.h"
#include "tests/support/leaks.h"

TestSuite(promises, .fini = leaks_check, .timeout = 60);

#define MIB (UINT64_C(1) << 20)

Test(promises, no_more_than_there_is)
{
    struct promises promises = {.total = 100 * MIB};
    uint64_t a = 0, b = 0;
    cr_expect_eq(promises_ask(&promises, &a, 60 * MIB, 60 * MIB), 60 * MIB);
    cr_expect_eq(promises_ask(&promises, &b, 41 * MIB, 41 * MIB), 0);
    cr_expect_eq(promises_ask(&promises, &b, 40 * MIB, 41 * MIB), 40 * MIB);
    cr_expect_eq(promises_ask(&promises, &b, 1, 1), 0);
    cr_expect_eq(a, 60 * MIB);
    cr_expect_eq(b, 40 * MIB);
    promises_return(&promises, &a, 10 * MIB);
    cr_expect_eq(promises_ask(&promises, &b, 10 * MIB, 10 * MIB), 10 * MIB);
}

/* A lump is a courtesy: where memory is short, each gets what it needs. */
Test(promises, more_than_the_least_only_while_there_is_plenty)
{
    struct promises promises = {.total = 1000 * MIB};
    uint64_t held = 0;
    cr_expect_eq(promises_ask(&promises, &held, 1, 100 * MIB), 100 * MIB);
    cr_expect_eq(promises_ask(&promises, &held, 1, 500 * MIB), 1);
}

Test(promises, nobody_gives_back_what_it_does_not_have)
{
    struct promises promises = {.total = 100};
    uint64_t a = 0, b = 0;
    cr_expect_eq(promises_ask(&promises, &a, 50, 50), 50);
    cr_expect_eq(promises_ask(&promises, &b, 30, 30), 30);
    promises_return(&promises, &b, UINT64_MAX);
    cr_expect_eq(b, 0);
    cr_expect_eq(promises.given, 50);
    promises_return(&promises, &b, 1);
    cr_expect_eq(promises.given, 50);
}

/* Sizes that sessions' processes might say. */
Test(promises, nothing_overflows)
{
    struct promises promises = {.total = 100};
    uint64_t held = 0;
    cr_expect_eq(promises_ask(&promises, &held, UINT64_MAX, UINT64_MAX), 0);
    cr_expect_eq(promises_ask(&promises, &held, 10, UINT64_MAX), 10);
    cr_expect_eq(promises_ask(&promises, &held, 10, 1), 0, "more than it wishes for");
    cr_expect_eq(held, 10);
    cr_expect_eq(promises.given, 10);
}
