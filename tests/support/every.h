#ifndef RESEAT_TESTS_SUPPORT_EVERY_H
#define RESEAT_TESTS_SUPPORT_EVERY_H

#include <stdlib.h>

/**
 * The step of a loop that tries one fault after another: every @n th of them, and with TEST_TIMES
 * above 1, as scripts/test full has it, every one.
 */
static inline unsigned every(unsigned n)
{
    const char *times = getenv("TEST_TIMES");

    return times && atoi(times) > 1 ? 1 : n;
}

#endif
