#include "remote/server/listener/devices.h"
#include "tests/support/leaks.h"

TestSuite(ledger, .fini = leaks_check, .timeout = 60);

#define MIB (UINT64_C(1) << 20)

Test(ledger, no_more_than_there_is)
{
    struct ledger ledger = {.total = 100 * MIB};
    uint64_t a = 0, b = 0;
    cr_expect_eq(ledger_ask(&ledger, &a, 60 * MIB, 60 * MIB), 60 * MIB);
    cr_expect_eq(ledger_ask(&ledger, &b, 41 * MIB, 41 * MIB), 0);
    cr_expect_eq(ledger_ask(&ledger, &b, 40 * MIB, 41 * MIB), 40 * MIB);
    cr_expect_eq(ledger_ask(&ledger, &b, 1, 1), 0);
    cr_expect_eq(a, 60 * MIB);
    cr_expect_eq(b, 40 * MIB);
    ledger_return(&ledger, &a, 10 * MIB);
    cr_expect_eq(ledger_ask(&ledger, &b, 10 * MIB, 10 * MIB), 10 * MIB);
}

/* A lump is a courtesy: where memory is short, each gets what it needs. */
Test(ledger, more_than_the_least_only_while_there_is_plenty)
{
    struct ledger ledger = {.total = 1000 * MIB};
    uint64_t held = 0;
    cr_expect_eq(ledger_ask(&ledger, &held, 1, 100 * MIB), 100 * MIB);
    cr_expect_eq(ledger_ask(&ledger, &held, 1, 500 * MIB), 1);
}

Test(ledger, nobody_gives_back_what_it_does_not_have)
{
    struct ledger ledger = {.total = 100};
    uint64_t a = 0, b = 0;
    cr_expect_eq(ledger_ask(&ledger, &a, 50, 50), 50);
    cr_expect_eq(ledger_ask(&ledger, &b, 30, 30), 30);
    ledger_return(&ledger, &b, UINT64_MAX);
    cr_expect_eq(b, 0);
    cr_expect_eq(ledger.given, 50);
    ledger_return(&ledger, &b, 1);
    cr_expect_eq(ledger.given, 50);
}

/* Sizes that sessions' processes might say. */
Test(ledger, nothing_overflows)
{
    struct ledger ledger = {.total = 100};
    uint64_t held = 0;
    cr_expect_eq(ledger_ask(&ledger, &held, UINT64_MAX, UINT64_MAX), 0);
    cr_expect_eq(ledger_ask(&ledger, &held, 10, UINT64_MAX), 10);
    cr_expect_eq(ledger_ask(&ledger, &held, 10, 1), 0, "more than it wishes for");
    cr_expect_eq(held, 10);
    cr_expect_eq(ledger.given, 10);
}
