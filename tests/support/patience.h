#ifndef RESEAT_TESTS_SUPPORT_PATIENCE_H
#define RESEAT_TESTS_SUPPORT_PATIENCE_H

#include <stdlib.h>

/** How many times as slow as an idle one this machine may be: TEST_PATIENCE in the environment. */
static inline unsigned patience_factor(void)
{
    const char *text = getenv("TEST_PATIENCE");
    int factor = text ? atoi(text) : 1;

    return factor > 1 ? (unsigned)factor : 1;
}

/** How long to wait here for what comes within @ms on an idle machine. */
static inline unsigned patience(unsigned ms)
{
    return ms * patience_factor();
}

#endif
