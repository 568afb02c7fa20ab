#ifndef RESEAT_TESTS_SUPPORT_LEAKS_H
#define RESEAT_TESTS_SUPPORT_LEAKS_H

#include "tests/support/cases.h"

extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

/* A suite's .fini under a leak sanitizer. */
static inline void leaks_check(void)
{
    cr_assert(!__lsan_do_recoverable_leak_check || !__lsan_do_recoverable_leak_check());
}

#endif
