/** Kernels that say what every index function says. */
#ifndef TESTS_PROGRAMS_LAUNCHES_H
#define TESTS_PROGRAMS_LAUNCHES_H

/** Plain kernels: loops, positions, constants, branches, required, shared, atomics, chained,
 * ordered. */
extern const char launches_source[];

/** The same functions written in unusual ways: spelled, pasted, nested. */
extern const char launches_spelled[];

#endif
