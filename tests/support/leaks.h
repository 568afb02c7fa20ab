#ifndef RESEAT_TESTS_SUPPORT_LEAKS_H
#define RESEAT_TESTS_SUPPORT_LEAKS_H

#include <stdlib.h>

/*
 * A suite's .fini under a leak sanitiser. Criterion has judged the test by then and ignores failed
 * assertions and exit statuses; a crash it does count.
 */

extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static inline void leaks_check(void)
{
    if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check())
        abort();
}

#endif
