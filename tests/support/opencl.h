#ifndef RESEAT_TESTS_SUPPORT_OPENCL_H
#define RESEAT_TESTS_SUPPORT_OPENCL_H

#include "tests/interpose/entry/tried.h"

/* Objects for tests that call libreseat.so as a program does. Each asserts that it succeeds. */

/** One of each, on the first device there is. */
void samples_make(struct samples *ret);
void samples_release(struct samples *samples);

#endif
