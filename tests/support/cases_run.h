#ifndef RESEAT_TESTS_SUPPORT_CASES_RUN_H
#define RESEAT_TESTS_SUPPORT_CASES_RUN_H

#include <stdatomic.h>

/** This process runs a test for the @number-th time; *@failed is set when a check fails, and
 * outlives it. */
void cases_begin(atomic_bool *failed, unsigned number);

#endif
