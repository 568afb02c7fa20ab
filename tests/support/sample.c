#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/cases.h"

/* Tests that fail, for test_cases.py. */

static void says_begun(void)
{
    puts("begun");
}

static void says_over(void)
{
    puts("over");
}

TestSuite(sample, .init = says_begun, .fini = says_over);

Test(sample, passes)
{
    cr_assert_eq(1, 1, "said never: %d", 1);
}

Test(sample, fails_and_goes_on)
{
    cr_expect_eq(1, 2, "told %d", 3);
    puts("went on");
}

Test(sample, fails_and_ends)
{
    cr_assert_str_eq("left", "right");
    puts("went on");
}

Test(sample, fails_in_a_child)
{
    pid_t child = fork();
    if (child == 0)
        cr_assert(false, "in the child");
    waitpid(child, NULL, 0); /* how it ended does not matter */
}

Test(sample, crashes)
{
    abort();
}

Test(sample, takes_too_long, .timeout = 0.2)
{
    pause();
}

Test(sample, ends_with_seven, .exit_code = 7)
{
    exit(7);
}

Test(sample, ends_with_another, .exit_code = 7)
{
    exit(6);
}

Test(sample, is_skipped)
{
    cases_skip("for %s", "a reason");
}

static unsigned thrice(void)
{
    return 3;
}

Test(sample, runs_thrice, .times = thrice)
{
    cr_assert_lt(cases_number(), 2u);
}
