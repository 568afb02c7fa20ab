#include <criterion/criterion.h>
#include <criterion/hooks.h>

#include "tests/support/patience.h"

/*
 * Criterion begins libgit2 in the process of each test, and that reads all certificates of the
 * machine: a sixtieth of a second with a sanitizer. It is for differences between texts that the
 * assertions of our tests do not show. These, which come before the library's, read nothing.
 */
int git_libgit2_init(void);
int git_libgit2_shutdown(void);

int git_libgit2_init(void)
{
    return 1;
}

int git_libgit2_shutdown(void)
{
    return 0;
}

/* What takes longer than its test may is ended: on a machine that is slow, later. */
ReportHook(PRE_ALL)(struct criterion_test_set *set)
{
    FOREACH_SET(struct criterion_suite_set * suite, set->suites)
    {
        if (suite->suite.data)
            suite->suite.data->timeout *= patience_factor();
        FOREACH_SET(struct criterion_test * test, suite->tests)
        {
            test->data->timeout *= patience_factor();
        }
    }
}
